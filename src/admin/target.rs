//! What a request asks for: its path decoded once and checked for detours, its query looked through for words.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The path of a request, decoded.
#[derive(Debug, PartialEq)]
pub(super) enum Path {
    Clean(String),
    /// Has double slashes or dot segments; this is where it leads. Such requests are sent there, as by Go's mux.
    Detour(String),
    /// Not absolute, not UTF-8, or with a broken escape.
    Bad,
}

impl Path {
    pub(super) fn parse(raw: &str) -> Self {
        let Some(decoded) = decode(raw).filter(|path| path.starts_with('/')) else { return Self::Bad };
        match clean(&decoded) {
            clean if clean == *decoded => Self::Clean(clean),
            clean => Self::Detour(clean),
        }
    }
}

fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let mut rest = raw.as_bytes();
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        if !rest.get(at + 1..at + 3)?.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = &rest[at + 3..];
    }
    percent_decode_str(raw).decode_utf8().ok()
}

fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut clean = String::with_capacity(path.len());
    for segment in &segments {
        clean.push('/');
        clean.push_str(segment);
    }
    if clean.is_empty() || path.ends_with('/') {
        clean.push('/');
    }
    clean
}

/// A decoded path as it may stand in a Location or a link.
pub(super) fn encode(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// Whether the query has this key, with whatever value.
pub(super) fn has(query: Option<&str>, key: &str) -> bool {
    value(query, key).is_some()
}

/// The first value of a key of the query, as written.
pub(super) fn value<'q>(query: Option<&'q str>, key: &str) -> Option<&'q str> {
    query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).find(|(k, _)| *k == key).map(|(_, v)| v)
}

/// All values of a key of the query, as written.
pub(super) fn values<'q>(query: Option<&'q str>, key: &'q str) -> impl Iterator<Item = &'q str> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(k, _)| *k == key).map(|(_, v)| v)
}

/// A value as forms mean it: `+` is a blank. What is no UTF-8 then is shown as such.
pub(super) fn decoded(value: &str) -> String {
    percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned()
}

const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once() {
        let clean = |path: &str| Path::Clean(path.into());
        let detour = |path: &str| Path::Detour(path.into());
        for (raw, want) in [
            ("/", clean("/")),
            ("/a%20b", clean("/a b")),
            ("/a%2520b", clean("/a%20b")),
            ("/a%2Fb/", clean("/a/b/")),
            ("/%3Fx%23y", clean("/?x#y")),
            ("/a+b", clean("/a+b")),
            ("/%C3%A4", clean("/\u{e4}")),
            ("//", detour("/")),
            ("//evil.com/x", detour("/evil.com/x")),
            ("/a//b/", detour("/a/b/")),
            ("/a/../b", detour("/b")),
            ("/a/%2e%2e/%2E%2e/..", detour("/")),
            ("/a/.", detour("/a")),
            ("/a%2F%2Fb", detour("/a/b")),
            ("*", Path::Bad),
            ("", Path::Bad),
            ("/%", Path::Bad),
            ("/%4", Path::Bad),
            ("/%zz", Path::Bad),
            ("/%FF", Path::Bad),
        ] {
            assert_eq!(Path::parse(raw), want, "{raw}");
        }
    }

    #[test]
    fn locations_are_encoded() {
        for (path, want) in [("/a b/\u{e4}", "/a%20b/%C3%A4"), ("/\"<x>?#%\r\n", "/%22%3Cx%3E%3F%23%25%0D%0A")] {
            assert_eq!(encode(path), want);
        }
    }

    #[test]
    fn query_keys_are_whole_words() {
        for (query, want) in [
            (None, false),
            (Some(""), false),
            (Some("raw"), true),
            (Some("raw="), true),
            (Some("a=1&raw=0"), true),
            (Some("a=raw"), false),
            (Some("rawest"), false),
        ] {
            assert_eq!(has(query, "raw"), want, "{query:?}");
        }
        assert_eq!(value(Some("a=1&b=2&b=3"), "b"), Some("2"));
        assert_eq!(values(Some("a=1&b=2&b=3&b"), "b").collect::<Vec<_>>(), ["2", "3", ""]);
        assert_eq!(decoded("a+b%20c%2Bd%zz%ff"), "a b c+d%zz\u{fffd}");
    }
}
