//! What stands in a sticky cookie: a name for an instance that tells nothing about it.

use std::fmt;

use aws_lc_rs::hmac;

use crate::route::Target;

/// The opaque name of an instance. The same in every process that has the same key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(u128);

impl Token {
    pub(super) fn of(target: &Target, key: &hmac::Key) -> Self {
        let mut context = hmac::Context::with_key(key);
        for part in [&*target.service, target.home_instance().unwrap_or_default(), &target.destination.text] {
            context.update(part.as_bytes());
            context.update(&[0xff]);
        }
        let half = context.sign().as_ref().first_chunk::<16>().copied();
        Self(u128::from_be_bytes(half.expect("SHA-256 has 32 bytes")))
    }

    /// Reads what [`fmt::Display`] has written.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let hex = text.len() == 32 && text.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
        let text = std::str::from_utf8(text).ok().filter(|_| hex)?;
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// An empty secret gives a key that everybody knows.
pub(super) fn key(secret: &str) -> hmac::Key {
    let secret = if secret.is_empty() { "ferrio sticky" } else { secret };
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::{Builder, Origin, Settings, parse_text};

    #[test]
    fn tokens_are_opaque_and_the_same_everywhere() {
        let mut builder = Builder::new(Settings::default());
        let text =
            "route add a / http://10.0.0.1:80/\nroute add a / http://10.0.0.2:80/\nroute add b / http://10.0.0.1:80/";
        builder.manual(parse_text(text, |line| Origin::Static { line }).entries);
        let table = builder.build().table;
        let all = |secret: &str| -> Vec<String> {
            table.routes().flat_map(|r| &r.targets).map(|t| Token::of(t, &key(secret)).to_string()).collect()
        };
        let tokens = all("x");
        assert_eq!(tokens, all("x"));
        assert!(tokens.iter().all(|token| token.len() == 32 && !all("y").contains(token)));
        assert_eq!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        for token in &tokens {
            assert!(Token::parse(token.as_bytes()).is_some_and(|read| read.to_string() == *token));
        }
        for bad in ["", "1", "+0000000000000000000000000000001", "0000000000000000000000000000000G"] {
            assert!(Token::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
