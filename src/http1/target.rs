//! Request targets that the `http` crate's `Uri` does not take.
//!
//! `Uri` refuses some bytes in a query that clients send and targets understand. Such a query travels beside a `Uri` in
//! which these bytes are escaped.

use bytes::Bytes;
use http::Uri;

/// The query of a request byte for byte, or of a request to a target what is sent behind the path. In the extensions of a
/// head, and there only if its `Uri` says it otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawQuery(pub Bytes);

/// `None`: no target at all.
pub(super) fn target(text: Bytes) -> Option<(Uri, Option<RawQuery>)> {
    if let Ok(uri) = Uri::from_maybe_shared(text.clone()) {
        return Some((uri, None));
    }
    let question = memchr::memchr(b'?', &text)?;
    let end = memchr::memchr(b'#', &text).unwrap_or(text.len());
    if end < question {
        return None;
    }
    let raw = text.slice(question + 1..end);
    let mut escaped = Vec::with_capacity(text.len() + 16);
    escaped.extend_from_slice(&text[..=question]);
    for &byte in &raw {
        if matches!(byte, b'!' | b'$'..=b';' | b'=' | b'?'..=b'~') {
            escaped.push(byte);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            escaped.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
    let uri = Uri::from_maybe_shared(Bytes::from(escaped)).ok()?;
    Some((uri, Some(RawQuery(raw))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_are_kept_beside() {
        for (text, uri, raw) in [
            ("/x?a=b", Some("/x?a=b"), None),
            ("/x?a=\"<>\\", Some("/x?a=%22%3C%3E\\"), Some("a=\"<>\\")),
            ("/x?\u{e4}<", Some("/x?%C3%A4%3C"), Some("\u{e4}<")),
            ("/x?a<b#c", Some("/x?a%3Cb"), Some("a<b")),
            ("http://h/x?<", Some("http://h/x?%3C"), Some("<")),
            ("/<x>", None, None),
            ("/x<y>?q", None, None),
            ("/#?<", Some("/"), None),
            ("*", Some("*"), None),
        ] {
            let got = target(Bytes::copy_from_slice(text.as_bytes()));
            let text_of = |uri: &Uri| uri.to_string();
            assert_eq!(got.as_ref().map(|(uri, _)| text_of(uri)).as_deref(), uri, "{text}");
            let query = got.and_then(|(_, raw)| raw).map(|raw| raw.0);
            assert_eq!(query.as_deref(), raw.map(str::as_bytes), "{text}");
        }
    }
}
