//! What a source knows about itself: what it serves, what is wrong, and since when. In log, gauges and reports.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::blobs::{Problem, Set};
use super::certificate::{Certificate, Facts};
use super::error::Error;
use super::store::{self, Store};
use crate::metrics::names;

/// What the tasks of a source and its owner have in common.
pub(super) struct Shared {
    pub(super) name: String,
    kind: &'static str,
    place: String,
    pub(super) store: Arc<Store>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    error: Option<String>,
    /// Why what was read last is not served.
    kept: Option<String>,
    problems: Vec<Problem>,
    checked: Option<(Instant, SystemTime)>,
    changed: Option<SystemTime>,
    /// Fingerprints of certificates that were reported to be out of their time.
    reported: HashSet<String>,
    /// Names with a gauge.
    gauges: HashSet<String>,
    waiting: Vec<Waiting>,
    /// Why nothing can be ordered.
    trouble: Option<String>,
}

/// What to show about a source.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    /// As `type=` spells it.
    pub kind: &'static str,
    /// Where it reads, without secrets.
    pub place: String,
    pub certificates: Vec<Entry>,
    /// Pairs that cannot be used; an older certificate may be served in place of one.
    pub problems: Vec<Problem>,
    /// Names that should have a certificate, or a newer one, and why they do not.
    pub waiting: Vec<Waiting>,
    /// Why the last read failed or was not taken into service.
    pub error: Option<String>,
    /// Time since the last successful read; `None`: there was none yet.
    pub age: Option<Duration>,
    pub checked: Option<SystemTime>,
    /// When the served set changed last.
    pub changed: Option<SystemTime>,
}

/// A name whose order failed or was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub name: String,
    pub reason: String,
    /// When it is tried again, seconds since 1970.
    pub next: Option<i64>,
}

/// One served certificate.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub facts: Facts,
    pub validity: Validity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Valid,
    NotYet,
    Expired,
}

impl Validity {
    fn of(facts: &Facts, now: i64) -> Self {
        if now < facts.not_before {
            Validity::NotYet
        } else if now > facts.not_after {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }
}

impl Shared {
    pub(super) fn new(name: String, kind: &'static str, place: String) -> Self {
        Self { name, kind, place, store: Arc::new(Store::new()), state: Mutex::default() }
    }

    pub(super) fn report(&self) -> Report {
        let state = self.state();
        let now = store::now();
        let entry = |certificate: &Certificate| Entry {
            name: certificate.name.clone(),
            facts: certificate.pair.facts.clone(),
            validity: Validity::of(&certificate.pair.facts, now),
        };
        Report {
            name: self.name.clone(),
            kind: self.kind,
            place: self.place.clone(),
            certificates: self.store.certificates().iter().map(entry).collect(),
            problems: state.problems.clone(),
            waiting: state.waiting.clone(),
            error: state.error.clone().or_else(|| state.trouble.clone()).or_else(|| state.kept.clone()),
            age: state.checked.map(|(at, _)| at.elapsed()),
            checked: state.checked.map(|(_, at)| at),
            changed: state.changed,
        }
    }

    /// The first pair that cannot be used.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.state().problems.first().cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last good set stays. The same error is told once, and only if it may be told at all.
    pub(super) fn failed(&self, error: &Error, tell: bool) {
        metrics::counter!(names::CERT_SOURCE_ERRORS, "source" => self.name.clone()).increment(1);
        let text = error.to_string();
        let mut state = self.state();
        if tell && state.error.as_ref() != Some(&text) {
            tracing::error!("cert: Cannot load certificates from {}. {text}", self.place);
        }
        state.error = Some(text);
    }

    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!("cert: {} can be read again", self.place);
        }
        state.checked = Some((Instant::now(), SystemTime::now()));
    }

    /// Takes a new set into service.
    pub(super) fn publish(&self, set: Set) {
        let mut state = self.state();
        for problem in set.problems.iter().filter(|problem| !state.problems.contains(problem)) {
            tracing::error!("cert: Cannot make certificates: {problem} (source {})", self.name);
        }
        state.problems = set.problems;
        let before = self.store.certificates();
        if set.certificates.is_empty() && !before.is_empty() {
            let what = if state.problems.is_empty() { "is empty" } else { "holds no usable certificate" };
            let text = format!("{} {what}; keeping the previous certificates", self.place);
            tracing::error!("cert: {text}");
            state.kept = Some(text);
            return;
        }
        state.kept = None;
        let same = before.len() == set.certificates.len()
            && before.iter().zip(&set.certificates).all(|(a, b)| a.name == b.name && Arc::ptr_eq(&a.pair, &b.pair));
        if same {
            return;
        }
        self.store.replace(set.certificates);
        state.changed = Some(SystemTime::now());
        let names = names(&self.store.certificates());
        tracing::info!("cert: Store has certificates for {names} (source {})", self.name);
    }

    #[cfg_attr(not(feature = "acme"), allow(dead_code))]
    pub(super) fn wait(&self, waiting: Vec<Waiting>) {
        self.state().waiting = waiting;
    }

    /// Nothing can be ordered, for this reason; `None`: it can again. Told once.
    #[cfg_attr(not(feature = "acme"), allow(dead_code))]
    pub(super) fn trouble(&self, reason: Option<String>) {
        let mut state = self.state();
        if reason != state.trouble {
            match &reason {
                Some(reason) => tracing::error!("acme: Cannot order certificates: {reason} (source {})", self.name),
                None => tracing::info!("acme: certificates can be ordered again (source {})", self.name),
            }
        }
        if reason.is_some() {
            metrics::counter!(names::CERT_SOURCE_ERRORS, "source" => self.name.clone()).increment(1);
        }
        state.trouble = reason;
    }

    /// Takes these certificates into service, whatever was there.
    pub(super) fn replace(&self, certificates: Vec<Certificate>) {
        self.store.replace(certificates);
        self.state().changed = Some(SystemTime::now());
    }

    /// Tells about certificates that are out of their time, once each, and sets the gauges.
    pub(super) fn observe(&self) {
        let certificates = self.store.certificates();
        let now = store::now();
        let mut state = self.state();
        let mut reported = HashSet::new();
        for Certificate { name, pair } in certificates.iter() {
            let facts = &pair.facts;
            let what = match Validity::of(facts, now) {
                Validity::Valid => continue,
                Validity::NotYet => "not valid yet",
                Validity::Expired => "expired",
            };
            if !state.reported.contains(&facts.fingerprint) {
                tracing::warn!(
                    "cert: the certificate {name} for {} is {what} (source {})",
                    list(&facts.names),
                    self.name
                );
            }
            reported.insert(facts.fingerprint.clone());
        }
        let invalid = reported.len();
        state.reported = reported;

        let source = || self.name.clone();
        let gauge = |name: &'static str, value: f64| metrics::gauge!(name, "source" => source()).set(value);
        gauge(names::CERT_CERTIFICATES, certificates.len() as f64);
        gauge(names::CERT_INVALID, invalid as f64);
        gauge(names::CERT_PROBLEMS, state.problems.len() as f64);
        gauge(
            names::CERT_SOURCE_UP,
            if state.error.is_none() && state.trouble.is_none() && state.kept.is_none() && state.checked.is_some() {
                1.0
            } else {
                0.0
            },
        );
        if let Some((at, _)) = state.checked {
            gauge(names::CERT_SOURCE_AGE, at.elapsed().as_secs_f64());
        }
        let mut gone = std::mem::take(&mut state.gauges);
        for certificate in certificates.iter() {
            metrics::gauge!(names::CERT_NOT_AFTER, "source" => source(), "name" => certificate.name.clone())
                .set(certificate.pair.facts.not_after as f64);
            gone.remove(&certificate.name);
            state.gauges.insert(certificate.name.clone());
        }
        for name in gone {
            metrics::gauge!(names::CERT_NOT_AFTER, "source" => source(), "name" => name).set(f64::NAN);
        }
    }
}

fn names(certificates: &[Certificate]) -> String {
    let names: Vec<String> = certificates.iter().flat_map(|each| each.pair.facts.names.clone()).collect();
    list(&names)
}

/// Some of the names.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("[{}{more}]", shown.join(" "))
}
