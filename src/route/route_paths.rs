//! How the path of a route is looked for, by matcher.

use super::glob::{self, Glob};
use super::{Matcher, path};

/// Where a path stands in the index of its host, and how it is compared then.
pub(super) struct PathKey {
    /// A request path can match only if it begins with this.
    pub(super) key: Vec<u8>,
    /// What else must hold. Without it the beginning is all.
    pub(super) glob: Option<Glob>,
}

impl PathKey {
    /// Escapes in the path of a route are decoded once, like those of a request.
    pub(super) fn of(matcher: Matcher, written: &str) -> Result<Self, String> {
        match matcher {
            Matcher::Prefix => Ok(Self { key: path::decode(written).into_owned(), glob: None }),
            Matcher::IPrefix => Ok(Self { key: folded(&path::decode(written)), glob: None }),
            Matcher::Glob => {
                let pattern = decoded_pattern(written);
                let glob = Glob::parse(&pattern).map_err(|why| format!("path {written:?} is no pattern: {why}"))?;
                Ok(Self { key: Glob::literal_prefix(&pattern).to_vec(), glob: Some(glob) })
            }
        }
    }
}

/// In lower case as far as it is text.
pub(super) fn folded(decoded: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(decoded) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => decoded.to_ascii_lowercase(),
    }
}

/// An escaped star is a star to look for, not a pattern.
fn decoded_pattern(written: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('%') {
        pattern.extend_from_slice(&rest.as_bytes()[..at]);
        let end = rest.ceil_char_boundary((at + 3).min(rest.len()));
        let escape = path::decode(&rest[at..end]);
        if escape.len() == 1 && (glob::is_meta(escape[0]) || matches!(escape[0], b'}' | b',' | b']')) {
            pattern.push(b'\\');
        }
        if escape.len() == 1 {
            pattern.push(escape[0]);
            rest = &rest[end..];
        } else {
            pattern.push(b'%');
            rest = &rest[at + 1..];
        }
    }
    pattern.extend_from_slice(rest.as_bytes());
    pattern
}
