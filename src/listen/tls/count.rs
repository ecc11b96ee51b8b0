//! Handshakes, counted by what came of them.
//!
//! A handshake costs some hundred microseconds, so a counter that all workers share does not show.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;

use crate::metrics::names;
use crate::net::TlsInfo;

/// Of one listener, since the start.
#[derive(Debug, Default)]
pub struct Counts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    resumed: AtomicU64,
    /// By position in [`ALL_CIPHER_SUITES`], which are of one version each.
    suites: [AtomicU64; SUITES],
}

/// What came of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// No certificate for the name.
    NoCertificate,
    /// The client's certificate is missing or was refused.
    ClientCertificate,
    /// Something else than TLS.
    Plain,
    Timeout,
    /// Too many others at the same time.
    Busy,
    /// The client went away.
    Closed,
    /// A challenge of a CA, which was answered.
    Challenge,
    /// No common version, suite or protocol, or not TLS as it should be.
    Failed,
}

impl Counts {
    pub(super) fn done(&self, info: &TlsInfo, resumed: bool) {
        self.count(Outcome::Done);
        if resumed {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        let position = ALL_CIPHER_SUITES.iter().position(|suite| u16::from(suite.suite()) == info.cipher);
        if let Some(counter) = position.and_then(|at| self.suites.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    /// Handshakes that took up an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// All of them, by the word for what came of them.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.iter().map(|(outcome, name)| (*name, self.of(*outcome)))
    }

    /// Version, cipher suite and count of those that were used.
    pub fn ciphers(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        ALL_CIPHER_SUITES.iter().zip(&self.suites).filter_map(|(suite, count)| {
            let count = count.load(Ordering::Relaxed);
            let version = if suite.tls13().is_some() { "tls13" } else { "tls12" };
            (count > 0).then(|| (version, suite.suite().as_str().unwrap_or("?"), count))
        })
    }

    /// Sets the series of this listener. To be called now and then by the control plane.
    pub fn publish(&self, listener: &str) {
        for (name, count) in self.results() {
            metrics::counter!(names::TLS_HANDSHAKES, "listener" => listener.to_owned(), "result" => name)
                .absolute(count);
        }
        metrics::counter!(names::TLS_RESUMED, "listener" => listener.to_owned()).absolute(self.resumed());
        for (version, cipher, count) in self.ciphers() {
            metrics::counter!(
                names::TLS_CIPHERS,
                "listener" => listener.to_owned(), "version" => version, "cipher" => cipher
            )
            .absolute(count);
        }
    }
}

/// In the order of [`Outcome`].
const OUTCOMES: &[(Outcome, &str)] = &[
    (Outcome::Done, "ok"),
    (Outcome::NoCertificate, "no_certificate"),
    (Outcome::ClientCertificate, "client_certificate"),
    (Outcome::Plain, "plain"),
    (Outcome::Timeout, "timeout"),
    (Outcome::Busy, "busy"),
    (Outcome::Closed, "closed"),
    (Outcome::Challenge, "challenge"),
    (Outcome::Failed, "failed"),
];

const SUITES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_and_suite_has_its_place() {
        for (at, (outcome, name)) in OUTCOMES.iter().enumerate() {
            assert_eq!(*outcome as usize, at, "{name}");
        }
        assert_eq!(SUITES, ALL_CIPHER_SUITES.len());
    }
}
