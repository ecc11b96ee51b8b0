//! Challenges under way, as the data plane answers them.
//!
//! Readers load a snapshot. Nothing is answered that no source waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::sign::CertifiedKey;

/// Of all sources of the process.
#[derive(Debug, Default)]
pub struct Challenges {
    current: ArcSwap<Answers>,
    /// What each source waits for. Only the control plane looks here.
    pending: Mutex<HashMap<String, Vec<Pending>>>,
}

/// One challenge.
#[derive(Clone, Debug)]
pub(in crate::cert) enum Pending {
    /// RFC 8555 section 8.3.
    Http { token: String, answer: Arc<str> },
    /// RFC 8737.
    TlsAlpn { name: String, key: Arc<CertifiedKey> },
}

#[derive(Debug, Default)]
struct Answers {
    tokens: HashMap<Box<str>, Arc<str>>,
    names: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl Challenges {
    /// What to answer to a request for this path; `None`: it is no challenge, or nobody waits for it.
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(PATH)?;
        self.current.load().tokens.get(token).cloned()
    }

    /// The certificate for a handshake that is about [`ALPN`].
    pub fn certificate(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        if current.names.is_empty() {
            return None;
        }
        current.names.get(server_name.trim_end_matches('.').to_ascii_lowercase().as_str()).cloned()
    }

    /// Replaces what a source waits for.
    #[cfg_attr(not(feature = "acme"), allow(dead_code))]
    pub(in crate::cert) fn set(&self, source: &str, pending: Vec<Pending>) {
        let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.is_empty() && all.get(source).is_none_or(Vec::is_empty) {
            return;
        }
        all.insert(source.to_owned(), pending);
        let mut answers = Answers::default();
        for pending in all.values().flatten() {
            match pending {
                Pending::Http { token, answer } => {
                    answers.tokens.insert(token.as_str().into(), answer.clone());
                }
                Pending::TlsAlpn { name, key } => {
                    answers.names.insert(name.as_str().into(), key.clone());
                }
            }
        }
        self.current.store(Arc::new(answers));
    }
}

/// Before the token, in HTTP-01.
const PATH: &str = "/.well-known/acme-challenge/";
/// The protocol of handshakes that are a challenge. No other handshake offers it, and such a handshake offers no other.
pub const ALPN: &[u8] = b"acme-tls/1";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_pending_is_answered() {
        let challenges = Challenges::default();
        let http = |token: &str| Pending::Http { token: token.into(), answer: format!("{token}.thumb").into() };
        challenges.set("a", vec![http("one"), http("two")]);
        challenges.set("b", vec![http("three")]);
        for (path, want) in [
            ("/.well-known/acme-challenge/one", Some("one.thumb")),
            ("/.well-known/acme-challenge/three", Some("three.thumb")),
            ("/.well-known/acme-challenge/four", None),
            ("/.well-known/acme-challenge/", None),
            ("/.well-known/acme-challenge/one/", None),
            ("/x/.well-known/acme-challenge/one", None),
            ("/", None),
        ] {
            assert_eq!(challenges.answer(path).as_deref(), want, "{path}");
        }
        challenges.set("a", vec![http("two")]);
        assert!(challenges.answer("/.well-known/acme-challenge/one").is_none());
        assert!(challenges.answer("/.well-known/acme-challenge/three").is_some());
        challenges.set("b", vec![]);
        assert!(challenges.answer("/.well-known/acme-challenge/three").is_none());
        assert!(challenges.certificate("a.test").is_none());
    }
}
