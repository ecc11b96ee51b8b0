//! Pages for our own errors by status, in sets: one for everybody, and one for each host or whatever routes name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// An immutable collection of pages. What is larger than [`ErrorPages::LARGEST`] is not in it.
#[derive(Clone, Default, PartialEq)]
pub struct ErrorPages(BTreeMap<Arc<str>, BTreeMap<Which, Bytes>>);

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Status(u16),
    /// `4xx`, `5xx`
    Family(u16),
}

impl ErrorPages {
    /// Bytes of one page.
    pub const LARGEST: usize = 64 * 1024;

    /// Reads keys below a base, as in `503`, `5xx.html`, `shop.example.com/502`. Also gives what cannot be used, and why.
    pub fn parse<'a>(pages: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Self, Vec<String>) {
        let mut sets: BTreeMap<Arc<str>, BTreeMap<Which, Bytes>> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (key, text) in pages {
            let key = key.trim_matches('/');
            // Folders of the KV store are keys, too.
            if key.is_empty() || (text.is_empty() && !key.contains(|c: char| c.is_ascii_digit())) {
                continue;
            }
            let (set, name) = key.rsplit_once('/').unwrap_or(("", key));
            let Some(which) = which(name) else {
                wrong.push(format!("{key:?} is no status; keys end in 503, 503.html or 5xx"));
                continue;
            };
            if text.len() > Self::LARGEST {
                wrong.push(format!("{key:?} has more than {} bytes", Self::LARGEST));
                continue;
            }
            let text = Bytes::copy_from_slice(text.as_bytes());
            sets.entry(set.to_lowercase().into()).or_default().insert(which, text);
        }
        (Self(sets), wrong)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The page of a set, else of the one for everybody; that of the status, else of its family.
    pub fn page(&self, set: &str, status: u16) -> Option<&Bytes> {
        [set, ""]
            .into_iter()
            .filter_map(|set| self.0.get(set))
            .find_map(|pages| pages.get(&Which::Status(status)).or_else(|| pages.get(&Which::Family(status / 100))))
    }
}

impl fmt::Debug for ErrorPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.0.iter().map(|(set, pages)| (set, pages.keys().collect::<Vec<_>>()));
        f.debug_map().entries(pages).finish()
    }
}

fn which(name: &str) -> Option<Which> {
    let name = name.strip_suffix(".html").or_else(|| name.strip_suffix(".txt")).unwrap_or(name);
    match name {
        "4xx" => Some(Which::Family(4)),
        "5xx" => Some(Which::Family(5)),
        _ if name.len() == 3 => name.parse().ok().filter(|status| (400..600).contains(status)).map(Which::Status),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_page_is_taken() {
        let long = "x".repeat(ErrorPages::LARGEST + 1);
        let (pages, wrong) = ErrorPages::parse([
            ("503", "busy"),
            ("5xx.html", "broken"),
            ("Shop.example.com/503", "shop"),
            ("shop.example.com/", ""),
            ("a/b/404", "nested"),
            ("404", &long),
            ("302", "no error"),
            ("readme", "x"),
        ]);
        for (set, status, page) in [
            ("", 503, Some("busy")),
            ("", 502, Some("broken")),
            ("", 404, None),
            ("x.com", 503, Some("busy")),
            ("shop.example.com", 503, Some("shop")),
            ("shop.example.com", 504, Some("broken")),
            ("a/b", 404, Some("nested")),
        ] {
            let got = pages.page(set, status).map(|page| std::str::from_utf8(page).unwrap());
            assert_eq!(got, page, "{set} {status}");
        }
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(ErrorPages::default().page("a", 503).is_none());
    }
}
