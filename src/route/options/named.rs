//! Options that stand elsewhere than in a tag: `options=NAME` takes those of an entry that many tags can name, with
//! characters that a tag cannot carry.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries by name, each with its options or with what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named(BTreeMap<Arc<str>, Result<BTreeMap<String, String>, String>>);

impl Named {
    /// The option that names an entry.
    pub const OPTION: &str = "options";

    /// Reads entries: one `key=value` on a line, `#` before remarks. Blanks in values stay what they are.
    pub fn parse<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(entries.into_iter().map(|(name, text)| (name.into(), entry(text))).collect())
    }

    /// The options of an entry. An error is a reason not to have a route that names it: without the options it might
    /// let in whom it should not.
    pub(in crate::route) fn options(&self, name: &str) -> Result<&BTreeMap<String, String>, String> {
        match self.0.get(name) {
            Some(Ok(options)) => Ok(options),
            Some(Err(why)) => Err(format!("the entry {name:?} that options= names cannot be used: {why}")),
            None => Err(format!(
                "options={:?} names no entry; write its options below registry.consul.optionspath",
                crate::route::excerpt(name)
            )),
        }
    }
}

fn entry(text: &str) -> Result<BTreeMap<String, String>, String> {
    if text.len() > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    let mut options = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(format!("line {number} is no option; write key=value"));
        }
        if key == Named::OPTION {
            return Err(format!("line {number}: entries do not name entries"));
        }
        options.insert(key.to_owned(), held(value));
    }
    Ok(options)
}

/// A value as an option can hold it: blanks as escapes, which is how tags write them.
pub(crate) fn held(value: &str) -> String {
    value.replace(' ', "%20").replace('\t', "%09")
}

/// Bytes of an entry. Each tag that names it gets a copy.
const LONGEST: usize = 16 * 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn entries() {
        let long = "a".repeat(LONGEST + 1);
        let named = Named::parse([
            ("a", "# remark\n\nrespset = X-A:b c|X-D:e \nauth=basic\nsecure"),
            ("empty", ""),
            ("bad", "a b=c"),
            ("worse", "=c"),
            ("nested", "options=a"),
            ("long", &long),
        ]);
        let a = named.options("a").unwrap();
        let pairs: Vec<_> = a.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("auth", "basic"), ("respset", "X-A:b%20c|X-D:e"), ("secure", "")]);
        assert!(named.options("empty").unwrap().is_empty());
        for name in ["bad", "worse", "nested", "long", "missing", ""] {
            let why = named.options(name).unwrap_err();
            assert!(why.contains(name), "{name}: {why}");
        }
    }
}
