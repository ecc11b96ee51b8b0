//! A running source: reads, keeps the last good set, reports.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::blobs::{Blobs, Maker, Problem, Set};
use super::certificate::{Certificate, Facts, sha256};
use super::error::Error;
use super::file::Files;
use super::load::Load;
use super::store::{self, Store};
use super::{Config, Kind, series};

/// One entry of `proxy.cs` at work, for all listeners that name it. Dropping it ends its tasks.
pub struct Source {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// What the tasks of a source and its owner have in common.
pub(super) struct Shared {
    name: String,
    kind: &'static str,
    place: String,
    store: Arc<Store>,
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
    /// Why the last read failed or was not taken into service.
    pub error: Option<String>,
    /// Time since the last successful read; `None`: there was none yet.
    pub age: Option<Duration>,
    pub checked: Option<SystemTime>,
    /// When the served set changed last.
    pub changed: Option<SystemTime>,
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

/// Starts a source on the current runtime, which has to be the control plane's.
///
/// A `file` source that cannot be loaded is an error, as is a place that cannot be one. Everything else is tried again
/// and again; the first set is waited for a moment, so that listeners begin with it when all is well.
pub async fn start(config: &Config) -> Result<Arc<Source>, Error> {
    let loader: Box<dyn Load> = match &config.kind {
        Kind::File { cert, key } => Box::new(Files::pair(cert, key, config.refresh)),
        _ => return Err(Error::Place(format!("type={} is not built yet", config.kind.name()))),
    };
    let shared = Arc::new(Shared {
        name: config.name.clone(),
        kind: config.kind.name(),
        place: loader.place(),
        store: Arc::new(Store::new()),
        state: Mutex::default(),
    });
    let mut runner = Runner::new(shared.clone(), loader);
    let mut tasks = Vec::new();
    if let Kind::File { .. } = config.kind {
        runner.first_or_fail().await?;
        tasks.push(tokio::spawn(runner.run()).abort_handle());
    } else {
        let mut delivered = runner.delivered.subscribe();
        tasks.push(tokio::spawn(runner.run()).abort_handle());
        let _ = tokio::time::timeout(FIRST, delivered.wait_for(|done| *done)).await;
    }
    tasks.push(tokio::spawn(observe(shared.clone())).abort_handle());
    Ok(Arc::new(Source { shared, tasks }))
}

impl Source {
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// For the data plane.
    pub fn store(&self) -> Arc<Store> {
        self.shared.store.clone()
    }

    pub fn report(&self) -> Report {
        let state = self.shared.state();
        let now = store::now();
        let entry = |certificate: &Certificate| Entry {
            name: certificate.name.clone(),
            facts: certificate.pair.facts.clone(),
            validity: Validity::of(&certificate.pair.facts, now),
        };
        Report {
            name: self.shared.name.clone(),
            kind: self.shared.kind,
            place: self.shared.place.clone(),
            certificates: self.shared.store.certificates().iter().map(entry).collect(),
            problems: state.problems.clone(),
            error: state.error.clone().or_else(|| state.kept.clone()),
            age: state.checked.map(|(at, _)| at.elapsed()),
            checked: state.checked.map(|(_, at)| at),
            changed: state.changed,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last good set stays. The same error is told once.
    fn failed(&self, error: &Error) {
        metrics::counter!(series::ERRORS, "source" => self.name.clone()).increment(1);
        let text = error.to_string();
        let mut state = self.state();
        if state.error.as_ref() != Some(&text) {
            tracing::error!("cert: Cannot load certificates from {}. {text}", self.place);
        }
        state.error = Some(text);
    }

    fn succeeded(&self) {
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
        gauge(series::CERTIFICATES, certificates.len() as f64);
        gauge(series::INVALID, invalid as f64);
        gauge(series::PROBLEMS, state.problems.len() as f64);
        gauge(
            series::UP,
            if state.error.is_none() && state.kept.is_none() && state.checked.is_some() { 1.0 } else { 0.0 },
        );
        if let Some((at, _)) = state.checked {
            gauge(series::AGE, at.elapsed().as_secs_f64());
        }
        let mut gone = std::mem::take(&mut state.gauges);
        for certificate in certificates.iter() {
            metrics::gauge!(series::NOT_AFTER, "source" => source(), "name" => certificate.name.clone())
                .set(certificate.pair.facts.not_after as f64);
            gone.remove(&certificate.name);
            state.gauges.insert(certificate.name.clone());
        }
        for name in gone {
            metrics::gauge!(series::NOT_AFTER, "source" => source(), "name" => name).set(f64::NAN);
        }
    }
}

/// Reads again and again.
struct Runner {
    shared: Arc<Shared>,
    loader: Box<dyn Load>,
    maker: Maker,
    /// Of names and content of the last set.
    last: Option<[u8; 32]>,
    /// True once a first set is in service.
    delivered: watch::Sender<bool>,
}

impl Runner {
    fn new(shared: Arc<Shared>, loader: Box<dyn Load>) -> Self {
        Self { shared, loader, maker: Maker::default(), last: None, delivered: watch::Sender::new(false) }
    }

    /// For a source with a single pair: whatever is wrong with it is an error.
    async fn first_or_fail(&mut self) -> Result<(), Error> {
        self.step().await?;
        let state = self.shared.state();
        match state.problems.first() {
            Some(problem) => Err(Error::Pair { what: problem.name.clone(), cause: problem.error.clone() }),
            None => Ok(()),
        }
    }

    async fn run(mut self) {
        loop {
            let pause = match self.step().await {
                Ok(()) => {
                    self.delivered.send_replace(true);
                    match self.loader.pause() {
                        Some(pause) => pause,
                        None => return,
                    }
                }
                Err(error) => {
                    self.shared.failed(&error);
                    self.loader.pause().unwrap_or_default().max(AGAIN)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn step(&mut self) -> Result<(), Error> {
        let blobs = self.loader.load().await?;
        self.shared.succeeded();
        let Some(blobs) = blobs else { return Ok(()) };
        let hash = hash(&blobs);
        if self.last == Some(hash) {
            return Ok(());
        }
        self.last = Some(hash);
        let pairs = self.loader.pairs(&blobs);
        // Thousands of keys take a second to parse: not on a thread that others wait for.
        let mut maker = std::mem::take(&mut self.maker);
        let (maker, set) = tokio::task::spawn_blocking(move || {
            let set = maker.make(&blobs, &pairs);
            (maker, set)
        })
        .await
        .map_err(|_| Error::Fetch("the certificates could not be parsed".into()))?;
        self.maker = maker;
        self.shared.publish(set);
        self.shared.observe();
        Ok(())
    }
}

/// Certificates expire without anybody touching them.
async fn observe(shared: Arc<Shared>) {
    loop {
        shared.observe();
        tokio::time::sleep(OBSERVE).await;
    }
}

fn hash(blobs: &Blobs) -> [u8; 32] {
    let parts = blobs.iter().flat_map(|(name, content)| [sha256(name.as_bytes()), sha256(content)]);
    sha256(&parts.flatten().collect::<Vec<u8>>())
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

/// The least time between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the start waits for a first set.
const FIRST: Duration = Duration::from_secs(2);
const OBSERVE: Duration = Duration::from_secs(15);
