//! Parameters whose values do not belong into a log.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Which parameters of a query are masked (`log.access.masquery`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    all: bool,
    /// In lower case.
    names: Vec<String>,
}

impl Mask {
    /// `*` stands for all parameters. Case does not count.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut mask = Self::default();
        for name in names {
            match name {
                "*" => mask.all = true,
                name => mask.names.push(name.to_lowercase()),
            }
        }
        mask
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    /// A query, without its question mark.
    pub fn query<'q>(&self, query: &'q str) -> Cow<'q, str> {
        if self.is_empty() || query.is_empty() {
            return Cow::Borrowed(query);
        }
        let mut out = String::with_capacity(query.len());
        for pair in query.split_inclusive(['&', ';']) {
            let (pair, separator) = match pair.strip_suffix(['&', ';']) {
                Some(bare) => (bare, &pair[bare.len()..]),
                None => (pair, ""),
            };
            match pair.split_once('=') {
                Some((name, value)) if !value.is_empty() && self.hides(name) => {
                    out.push_str(name);
                    out.push_str("=***");
                }
                // A value without a name.
                None if self.all && !pair.is_empty() => out.push_str("***"),
                _ => out.push_str(pair),
            }
            out.push_str(separator);
        }
        Cow::Owned(out)
    }

    /// A URL or a request target: its query, if there is one.
    pub(super) fn url<'u>(&self, url: &'u str) -> Cow<'u, str> {
        match url.split_once('?') {
            Some((path, query)) if !self.is_empty() => Cow::Owned(format!("{path}?{}", self.query(query))),
            _ => Cow::Borrowed(url),
        }
    }

    fn hides(&self, name: &str) -> bool {
        self.all || {
            let name = percent_decode_str(name).decode_utf8_lossy().to_lowercase();
            self.names.contains(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_masked() {
        let some = Mask::new(["token", "Pass Word"]);
        let all = Mask::new(["*"]);
        for (mask, query, want) in [
            (&some, "token=abc&x=1", "token=***&x=1"),
            (&some, "x=1;TOKEN=a=b;token=", "x=1;TOKEN=***;token="),
            (&some, "%74oken=a&pass%20word=b&tokens=c&token", "%74oken=***&pass%20word=***&tokens=c&token"),
            (&all, "a=1&b=&c&&d=2", "a=***&b=&***&&d=***"),
            (&Mask::default(), "token=abc", "token=abc"),
        ] {
            assert_eq!(mask.query(query), want, "{query}");
        }
        assert_eq!(some.url("http://h/p?token=1?2&y"), "http://h/p?token=***&y");
        assert_eq!(some.url("/token=1"), "/token=1");
    }
}
