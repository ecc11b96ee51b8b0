//! What a client's cookies say, and the one that we set.

use http::header::{COOKIE, HeaderMap, HeaderValue};

use crate::upstream::{TargetState, Token};

/// The values of a cookie, wherever it stands. Usually one, and few at most: nobody is to make us look at thousands.
pub(super) fn values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    let values = pairs.filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        // Quotes belong to the value (RFC 6265, section 5.2), but some clients add them.
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    });
    values.take(MOST)
}

/// What a client is bound to, by the cookie of this target's route.
pub(super) fn bound(target: &TargetState, request: &HeaderMap) -> Vec<Token> {
    let sticky = target.options.sticky.iter();
    sticky.flat_map(|sticky| values(request, &sticky.name).filter_map(Token::parse)).collect()
}

/// Binds a client to the target that has answered, if it is not bound to it yet.
pub(super) fn bind(target: &TargetState, bound: &[Token]) -> Option<HeaderValue> {
    let (sticky, token) = (target.options.sticky.as_ref()?, target.token?);
    if bound.contains(&token) {
        return None;
    }
    HeaderValue::from_str(&sticky.cookie(&token.to_string())).ok()
}

/// Values of one name.
const MOST: usize = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found() {
        let mut headers = HeaderMap::new();
        for line in ["a=1; lb=2;b=3", "lb=\"4\";  lb2=5", "xlb=6;lb;lb="] {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        let found: Vec<&[u8]> = values(&headers, "lb").collect();
        assert_eq!(found, [&b"2"[..], b"4", b""]);
    }
}
