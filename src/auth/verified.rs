//! Credentials that were found right, so that a slow hash is not computed for every request.
//!
//! Kept as a keyed hash over the user, the password and what was stored for the user: a changed file makes an entry void by
//! itself, and who reads our memory finds no password here.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::{hmac, rand};

pub(super) struct Verified {
    key: hmac::Key,
    /// Only held to look and to add.
    known: Mutex<HashSet<Tag>>,
}

pub(super) type Tag = [u8; 32];

impl Verified {
    /// The key is of this process alone. Without randomness there is no cache to be trusted.
    pub(super) fn new() -> Option<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new()).ok()?;
        Some(Self { key, known: Mutex::default() })
    }

    pub(super) fn tag(&self, parts: [&[u8]; 3]) -> Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    pub(super) fn contains(&self, tag: &Tag) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(tag)
    }

    pub(super) fn insert(&self, tag: Tag) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            // More users than that at once are rare, and all it costs is to check them again.
            known.clear();
        }
        known.insert(tag);
    }
}

const MOST: usize = 10_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let verified = Verified::new().unwrap();
        let tag = verified.tag([b"user", b"password", b"hash"]);
        verified.insert(tag);
        assert!(verified.contains(&tag));
        for parts in [[&b"user"[..], b"password", b"other"], [b"userp", b"assword", b"hash"], [b"", b"", b""]] {
            assert!(!verified.contains(&verified.tag(parts)));
        }
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let verified = Verified::new().unwrap();
        for n in 0..MOST + 10 {
            verified.insert(verified.tag([&n.to_be_bytes(), b"", b""]));
        }
        assert!(verified.known.lock().unwrap().len() <= MOST);
    }
}
