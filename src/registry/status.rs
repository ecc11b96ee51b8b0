//! What the registry is doing, readable at any time: sources, rejects, recent changes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use serde::{Serialize, Serializer};

use crate::consul::{Client, Contact};
use crate::metrics::names;
use crate::route::{Origin, Reject};

/// A snapshot.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The first table is in force.
    pub ready: bool,
    /// Routes are, at least in part, those that were kept on disk, known to be right at this time; in milliseconds since
    /// 1970 when serialised.
    #[serde(serialize_with = "millis")]
    pub stale: Option<SystemTime>,
    #[serde(flatten, serialize_with = "inner")]
    pub table: Arc<TableStatus>,
    pub sources: Vec<SourceStatus>,
    /// Those of Consul that are watched, our own first.
    pub datacenters: Vec<DatacenterStatus>,
}

/// What is known of a datacenter.
#[derive(Clone, Debug, Serialize)]
pub struct DatacenterStatus {
    pub name: String,
    /// Our own: its targets are preferred, and overrides and pages are those of its KV store.
    pub own: bool,
    /// Milliseconds since the list of its services that is in force was heard of; `None`: it never was.
    pub age_ms: Option<u64>,
    /// Failures in a row of what fails most; 0: all is well.
    pub failures: u64,
    pub last_error: Option<String>,
    pub warning: Option<String>,
    /// With routes.
    pub services: usize,
    pub instances: usize,
    #[serde(skip)]
    pub contact: Option<Contact>,
}

/// The part that changes with each table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TableStatus {
    /// When the table in force was built; in milliseconds since 1970 when serialised.
    #[serde(serialize_with = "millis")]
    pub built: Option<SystemTime>,
    /// How many tables were built.
    pub builds: u64,
    /// How long the last build took, in milliseconds.
    pub build_ms: f64,
    /// From the first news to the table that holds them, in milliseconds.
    pub lag_ms: Option<f64>,
    pub routes: usize,
    pub targets: usize,
    /// Services and instances with routes.
    pub services: usize,
    pub instances: usize,
    /// How many of each are those of other datacenters.
    #[serde(skip)]
    pub shares: BTreeMap<Arc<str>, (usize, usize)>,
    /// What could not be used, and why.
    #[serde(serialize_with = "rejects")]
    pub rejects: Arc<[Reject]>,
    /// The latest changes, the newest last.
    #[serde(serialize_with = "changes")]
    pub changes: VecDeque<Arc<Change>>,
}

/// One update of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    #[serde(serialize_with = "millis")]
    pub at: Option<SystemTime>,
    /// What it came from, in a few words.
    pub cause: String,
    pub added: usize,
    pub removed: usize,
    /// `+ route add ...` and `- route add ...`, the first few.
    pub lines: Vec<String>,
}

/// One place that routes come from.
#[derive(Clone, Debug, Serialize)]
pub struct SourceStatus {
    pub name: &'static str,
    /// `None`: our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(serialize_with = "millis")]
    pub last_good: Option<SystemTime>,
    /// Milliseconds since then. With blocking queries half a minute is nothing unusual.
    pub age_ms: Option<u64>,
    /// `X-Consul-Index` of the last answer; 0 elsewhere.
    pub index: u64,
    /// Failures in a row; 0: all is well.
    pub failures: u64,
    pub last_error: Option<String>,
    /// Something that is not a failure, but should be known.
    pub warning: Option<String>,
}

/// Keeps the newest changes in a bounded list.
pub(super) fn remember(changes: &VecDeque<Arc<Change>>, change: Change) -> VecDeque<Arc<Change>> {
    let mut all = changes.clone();
    let mut lines: usize = all.iter().map(|change| change.lines.len()).sum::<usize>() + change.lines.len();
    while all.len() >= CHANGES || lines > CHANGES_LINES {
        let Some(old) = all.pop_front() else { break };
        lines -= old.lines.len();
    }
    all.push_back(Arc::new(change));
    all
}

/// Where the parts of the registry write what [`Status`] shows.
#[derive(Default)]
pub(super) struct Board {
    pub(super) table: ArcSwap<TableStatus>,
    sources: Mutex<Vec<Source>>,
    stale: Mutex<Option<SystemTime>>,
    /// Our own first.
    datacenters: Mutex<Vec<(Arc<str>, Client)>>,
}

impl Board {
    /// A new source. `what` completes "Consul: ..." in the log.
    pub(super) fn source(&self, name: &'static str) -> Source {
        self.source_in(None, name)
    }

    /// The same of another datacenter.
    pub(super) fn source_in(&self, datacenter: Option<&Arc<str>>, name: &'static str) -> Source {
        let source = Source(Arc::new(Named { name, datacenter: datacenter.cloned(), state: Mutex::default() }));
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source.clone());
        source
    }

    /// Which one is our own, as far as is known. To be called before the others are named.
    pub(super) fn own_datacenter(&self, name: &str, client: Client) {
        *self.datacenters() = vec![(name.into(), client)];
    }

    pub(super) fn other_datacenter(&self, name: &Arc<str>, client: Client) {
        self.datacenters().push((name.clone(), client));
    }

    fn datacenters(&self) -> MutexGuard<'_, Vec<(Arc<str>, Client)>> {
        self.datacenters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of the services of our own datacenter was answered.
    pub(super) fn has_own_services(&self) -> bool {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = sources.iter().filter(|source| source.0.datacenter.is_none() && source.0.name == SERVICES[0]);
        own.any(Source::has_answered)
    }

    /// What was kept on disk is in force, and was right at this time.
    pub(super) fn stale_since(&self, at: SystemTime) {
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        metrics::gauge!(names::REGISTRY_STALE).set(1.0);
    }

    /// It no longer is.
    pub(super) fn fresh(&self) {
        if self.stale.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            metrics::gauge!(names::REGISTRY_STALE).set(0.0);
            tracing::info!("registry: Consul has answered, the routes are no longer those that were kept on disk");
        }
    }

    pub(super) fn stale(&self) -> Option<SystemTime> {
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every source of our own datacenter has answered last time. The others may be gone for good.
    pub(super) fn is_well(&self) -> bool {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = sources.iter().filter(|source| source.0.datacenter.is_none());
        self.stale().is_none() && own.all(|source| source.state().failures == 0)
    }

    pub(super) fn status(&self, ready: bool) -> Status {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let table = self.table.load_full();
        let mut sources: Vec<SourceStatus> = sources.iter().map(Source::status).collect();
        sources.sort_by_key(|source| source.datacenter.is_some());
        let datacenters = self.datacenters().clone();
        let datacenters = datacenters.into_iter().zip(0..).map(|(of, rank)| datacenter(of, rank, &sources, &table));
        Status { ready, stale: self.stale(), datacenters: datacenters.collect(), table, sources }
    }
}

fn datacenter(
    (name, client): (Arc<str>, Client),
    rank: usize,
    sources: &[SourceStatus],
    table: &TableStatus,
) -> DatacenterStatus {
    let own = rank == 0;
    let of = if own { None } else { Some(&*name) };
    let here = || sources.iter().filter(|source| source.datacenter.as_deref() == of && SERVICES.contains(&source.name));
    let worst = here().max_by_key(|source| source.failures);
    let (services, instances) = match own {
        true => table.shares.values().fold((table.services, table.instances), |left, (services, instances)| {
            (left.0.saturating_sub(*services), left.1.saturating_sub(*instances))
        }),
        false => table.shares.get(&name).copied().unwrap_or_default(),
    };
    DatacenterStatus {
        own,
        age_ms: here().find(|source| source.name == SERVICES[0]).and_then(|source| source.age_ms),
        failures: worst.map_or(0, |source| source.failures),
        last_error: worst.filter(|source| source.failures > 0).and_then(|source| source.last_error.clone()),
        warning: here().find_map(|source| source.warning.clone()),
        services,
        instances,
        contact: client.contact(),
        name: name.to_string(),
    }
}

/// Sources that every datacenter has.
const SERVICES: [&str; 3] = ["services", "checks", "instances"];

/// Keeps count of good and bad answers of one source, and logs the bad ones sparingly.
#[derive(Clone)]
pub(super) struct Source(Arc<Named>);

struct Named {
    name: &'static str,
    /// `None`: our own.
    datacenter: Option<Arc<str>>,
    state: Mutex<State>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match &self.datacenter {
            None => Ok(()),
            Some(datacenter) => write!(f, " of {datacenter}"),
        }
    }
}

#[derive(Default)]
struct State {
    last_good: Option<(SystemTime, Instant)>,
    index: u64,
    failures: u64,
    last_error: Option<String>,
    warning: Option<String>,
    logged: Option<Instant>,
    /// How many lines were logged about this row of failures.
    lines: u32,
    /// Failures since the last line in the log.
    unlogged: u64,
    /// A failure was logged and its end was not.
    complained: bool,
}

impl Source {
    pub(super) fn good(&self, index: u64) {
        let mut state = self.state();
        let now = SystemTime::now();
        state.last_good = Some((now, Instant::now()));
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        metrics::gauge!(names::REGISTRY_CONTACT, self.labels()).set(seconds);
        state.index = index;
        if std::mem::take(&mut state.failures) > 0 {
            metrics::gauge!(names::REGISTRY_FAILING, self.labels()).set(0.0);
        }
        state.lines = 0;
        if std::mem::take(&mut state.complained) {
            tracing::info!("registry: {} is well again", self.0);
        }
    }

    pub(super) fn failed(&self, error: &dyn Display) {
        metrics::counter!(names::REGISTRY_ERRORS, self.labels()).increment(1);
        metrics::gauge!(names::REGISTRY_FAILING, self.labels()).set(1.0);
        let mut state = self.state();
        state.failures += 1;
        state.unlogged += 1;
        let text = error.to_string();
        // The longer it lasts the less there is to say.
        let pause = LOG_EVERY * (1 << state.lines.saturating_sub(1).min(5));
        if state.logged.is_none_or(|at| at.elapsed() >= pause) {
            let times = if state.unlogged > 1 { format!(" ({} times)", state.unlogged) } else { String::new() };
            tracing::warn!("registry: {}: {text}{times}. Keeping what was last known", self.0);
            state.logged = Some(Instant::now());
            state.unlogged = 0;
            state.lines += 1;
            state.complained = true;
        }
        state.last_error = Some(text);
    }

    /// Logged when it is new. `None` takes the last one back.
    pub(super) fn warn(&self, warning: Option<String>) {
        let mut state = self.state();
        if state.warning != warning {
            if let Some(text) = &warning {
                tracing::warn!("registry: {}: {text}", self.0);
            }
            state.warning = warning;
        }
    }

    pub(super) fn status(&self) -> SourceStatus {
        let state = self.state();
        SourceStatus {
            name: self.0.name,
            datacenter: self.0.datacenter.as_ref().map(ToString::to_string),
            last_good: state.last_good.map(|(at, _)| at),
            age_ms: state.last_good.map(|(_, at)| at.elapsed().as_millis() as u64),
            index: state.index,
            failures: state.failures,
            last_error: state.last_error.clone(),
            warning: state.warning.clone(),
        }
    }

    /// It has said something, sooner or later.
    pub(super) fn has_answered(&self) -> bool {
        self.state().last_good.is_some()
    }

    fn labels(&self) -> Vec<metrics::Label> {
        let datacenter = self.0.datacenter.as_ref().map(|name| metrics::Label::new("datacenter", name.clone()));
        [metrics::Label::new("source", self.0.name)].into_iter().chain(datacenter).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis<S: Serializer>(at: &Option<SystemTime>, s: S) -> Result<S::Ok, S::Error> {
    at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|d| d.as_millis() as u64).serialize(s)
}

fn rejects<S: Serializer>(rejects: &Arc<[Reject]>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(rejects.iter().map(RejectView::new))
}

fn inner<S: Serializer>(table: &Arc<TableStatus>, s: S) -> Result<S::Ok, S::Error> {
    table.as_ref().serialize(s)
}

fn changes<S: Serializer>(changes: &VecDeque<Arc<Change>>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(changes.iter().map(AsRef::as_ref))
}

/// A reject as the API shows it.
#[derive(Serialize)]
pub struct RejectView<'a> {
    pub source: String,
    pub text: &'a str,
    pub reason: &'a str,
}

impl<'a> RejectView<'a> {
    pub fn new(reject: &'a Reject) -> Self {
        Self { source: place(&reject.origin), text: &reject.text, reason: &reject.reason }
    }
}

/// Where something was written, in words.
pub fn place(origin: &Origin) -> String {
    match origin {
        Origin::Tag { service, instance, .. } => format!("service {service} instance {instance}"),
        Origin::Key { key, line } => format!("key {key} line {line}"),
        Origin::File { path, line } => format!("{path}:{line}"),
        Origin::Static { line } => format!("registry.static.routes line {line}"),
        Origin::Custom { index } => format!("custom registry, element {index}"),
    }
}

/// Changes that are kept.
const CHANGES: usize = 1000;

/// And the lines that they have together.
const CHANGES_LINES: usize = 10_000;

const LOG_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_source_counts_and_recovers() {
        let board = Board::default();
        let source = board.source("services");
        source.good(7);
        source.failed(&"no leader");
        source.failed(&"no leader");
        let status = board.status(true);
        assert_eq!((status.sources[0].failures, status.sources[0].index), (2, 7));
        assert_eq!(status.sources[0].last_error.as_deref(), Some("no leader"));
        source.good(8);
        assert_eq!(board.status(true).sources[0].failures, 0);
    }

    #[test]
    fn failures_are_logged_once_in_a_while() {
        let source = Board::default().source("kv");
        for _ in 0..1000 {
            source.failed(&"403");
        }
        assert_eq!(source.state().unlogged, 999);
    }

    #[test]
    fn changes_are_bounded() {
        let mut changes = VecDeque::new();
        for i in 0..3000 {
            let change = Change { at: None, cause: i.to_string(), added: 0, removed: 0, lines: vec![] };
            changes = remember(&changes, change);
        }
        assert_eq!((changes.len(), changes.back().unwrap().cause.as_str()), (CHANGES, "2999"));
    }

    #[test]
    fn the_view_is_plain_json() {
        let board = Board::default();
        board.source("services").good(3);
        let reject = Reject {
            origin: Origin::Key { key: "fabio/config".into(), line: 3 },
            text: "route ad".into(),
            reason: "unknown command".into(),
            advice: false,
        };
        board.table.store(Arc::new(TableStatus { rejects: [reject].into(), ..Default::default() }));
        let json = serde_json::to_value(board.status(true)).unwrap();
        assert_eq!(json["rejects"][0]["source"], "key fabio/config line 3");
        assert_eq!(json["sources"][0]["index"], 3);
        assert_eq!(json["ready"], true);
    }
}
