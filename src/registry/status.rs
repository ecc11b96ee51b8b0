//! What the registry is doing, readable at any time: sources, rejects, recent changes.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use serde::{Serialize, Serializer};

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
}

impl Board {
    /// A new source. `what` completes "Consul: ..." in the log.
    pub(super) fn source(&self, name: &'static str) -> Source {
        let source = Source(Arc::new(Named { name, state: Mutex::default() }));
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source.clone());
        source
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

    /// Every source has answered last time.
    pub(super) fn is_well(&self) -> bool {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        self.stale().is_none() && sources.iter().all(|source| source.state().failures == 0)
    }

    pub(super) fn status(&self, ready: bool) -> Status {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status {
            ready,
            stale: self.stale(),
            table: self.table.load_full(),
            sources: sources.iter().map(Source::status).collect(),
        }
    }
}

/// Keeps count of good and bad answers of one source, and logs the bad ones sparingly.
#[derive(Clone)]
pub(super) struct Source(Arc<Named>);

struct Named {
    name: &'static str,
    state: Mutex<State>,
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
        metrics::gauge!(names::REGISTRY_CONTACT, "source" => self.0.name).set(seconds);
        state.index = index;
        if std::mem::take(&mut state.failures) > 0 {
            metrics::gauge!(names::REGISTRY_FAILING, "source" => self.0.name).set(0.0);
        }
        state.lines = 0;
        if std::mem::take(&mut state.complained) {
            tracing::info!("registry: {} is well again", self.0.name);
        }
    }

    pub(super) fn failed(&self, error: &dyn Display) {
        metrics::counter!(names::REGISTRY_ERRORS, "source" => self.0.name).increment(1);
        metrics::gauge!(names::REGISTRY_FAILING, "source" => self.0.name).set(1.0);
        let mut state = self.state();
        state.failures += 1;
        state.unlogged += 1;
        let text = error.to_string();
        // The longer it lasts the less there is to say.
        let pause = LOG_EVERY * (1 << state.lines.saturating_sub(1).min(5));
        if state.logged.is_none_or(|at| at.elapsed() >= pause) {
            let times = if state.unlogged > 1 { format!(" ({} times)", state.unlogged) } else { String::new() };
            tracing::warn!("registry: {}: {text}{times}. Keeping what was last known", self.0.name);
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
                tracing::warn!("registry: {}: {text}", self.0.name);
            }
            state.warning = warning;
        }
    }

    pub(super) fn status(&self) -> SourceStatus {
        let state = self.state();
        SourceStatus {
            name: self.0.name,
            last_good: state.last_good.map(|(at, _)| at),
            age_ms: state.last_good.map(|(_, at)| at.elapsed().as_millis() as u64),
            index: state.index,
            failures: state.failures,
            last_error: state.last_error.clone(),
            warning: state.warning.clone(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
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
