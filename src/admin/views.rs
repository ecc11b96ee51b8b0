//! What the admin part sees of the others. `app` fills it in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::certificates::CertificatesView;
use super::login::Login;
use crate::metrics::Metrics;
use crate::registry::{Disabled, Past, Preview};
use crate::route::{Explanation, LiveTable, Question, Reject, Table};

/// Windows into the other parts. All of them answer at once, except [`Overrides`].
pub struct Views {
    pub table: Arc<LiveTable>,
    /// Where a request would go. Takes its time.
    pub explain: Arc<Explain>,
    /// Tags and lines that could not be used, as of now.
    pub rejects: Arc<dyn Fn() -> Vec<Reject> + Send + Sync>,
    pub status: Arc<dyn Fn() -> StatusView + Send + Sync>,
    pub health: Arc<dyn Fn() -> Health + Send + Sync>,
    pub certificates: Arc<dyn Fn() -> CertificatesView + Send + Sync>,
    /// Targets that do not get their usual share of requests, as of now, in the order of the table.
    pub conditions: Arc<dyn Fn() -> Vec<Condition> + Send + Sync>,
    /// `None`: the backend has no overrides.
    pub overrides: Option<Arc<dyn Overrides>>,
    /// `/api/config` as compact JSON, secrets masked.
    pub config_json: Arc<str>,
    /// `/api/config/effective`: every option with its value and where that comes from, secrets masked.
    pub effective_json: Arc<str>,
    /// `None`: there is nothing to show live.
    pub metrics: Option<Metrics>,
    pub operations: Arc<dyn Operations>,
    /// `None`: everybody is let in.
    pub login: Option<Arc<dyn Login>>,
    pub version: &'static str,
}

/// Answers a question about a request with a table.
pub type Explain = dyn Fn(&Table, &Question) -> Explanation + Send + Sync;

/// What `/health` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Ready, but with routes that were kept on disk, because the registry does not say what they are.
    Stale(String),
    /// Before the first table and while draining, with the reason.
    Unready(String),
}

/// What `/api/status` says.
#[derive(Clone, Debug, Default)]
pub struct StatusView {
    pub sources: Vec<SourceView>,
    /// Those of Consul that are watched, our own first.
    pub datacenters: Vec<DatacenterView>,
    /// How old the routes from disk are that are in force; `None`: there are none.
    pub stale: Option<Duration>,
    /// Since the table was published.
    pub table_age: Option<Duration>,
    /// From the news to the table that holds it, last time.
    pub lag: Option<Duration>,
    /// Tables so far.
    pub builds: u64,
    /// How long the last one took to build.
    pub build: Duration,
    /// Services and instances with routes.
    pub services: usize,
    pub instances: usize,
    /// What Consul says about its leader: how long ago the server that answered had heard of it, and whether there is one.
    pub contact: Option<(Duration, bool)>,
    /// The last changes of the table, newest first.
    pub changes: Vec<Change>,
}

/// What `/api/targets` says about a target that does not get its usual share.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    pub service: String,
    pub host: String,
    pub path: String,
    pub target: String,
    /// `ejected`, `full`, `slow_start`
    pub state: &'static str,
    /// Why, in a word; empty if the state says it all.
    pub reason: &'static str,
    /// For how much longer, if that is known.
    pub left: Option<Duration>,
    /// The part of its share that it gets, 0 to 1.
    pub share: f64,
    /// Requests under way and those that wait, where there is a limit.
    pub in_flight: usize,
    pub waiting: usize,
}

/// A datacenter whose services are watched.
#[derive(Clone, Debug, Default)]
pub struct DatacenterView {
    pub name: String,
    pub own: bool,
    /// Why its last read failed; `None`: it did not.
    pub error: Option<String>,
    /// Something that is no failure, but should be known.
    pub warning: Option<String>,
    /// Since its last answer about the names of its services; `None`: it has not answered yet.
    pub age: Option<Duration>,
    /// In a row; 0: all is well.
    pub failures: u64,
    /// With routes.
    pub services: usize,
    pub instances: usize,
    /// As [`StatusView::contact`].
    pub contact: Option<(Duration, bool)>,
}

impl DatacenterView {
    /// In a word.
    pub fn state(&self) -> &'static str {
        match (self.failures, self.age) {
            (0, Some(_)) => "well",
            (0, None) => "unknown",
            _ => "failing",
        }
    }
}

/// A route source.
#[derive(Clone, Debug, Default)]
pub struct SourceView {
    pub name: String,
    /// `None`: our own, or none at all.
    pub datacenter: Option<String>,
    /// Why its last read failed; `None`: it did not.
    pub error: Option<String>,
    /// Since its last answer; `None`: it has not answered yet.
    pub age: Option<Duration>,
    /// `X-Consul-Index`; 0: none.
    pub index: u64,
    /// In a row; 0: all is well.
    pub failures: u64,
    /// Something that is no failure, but should be known.
    pub warning: Option<String>,
}

/// A change of the table.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: SystemTime,
    /// What it came from, in a few words.
    pub cause: String,
    pub added: usize,
    pub removed: usize,
    /// `- old` and `+ new`, the first few.
    pub lines: Vec<String>,
}

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The override texts in the KV store. A suffix is what follows the configured key: empty, or with a leading slash.
pub trait Overrides: Send + Sync {
    /// The suffixes of all keys there are.
    fn paths(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>>;

    fn read<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Override, BoxError>>;

    /// Creates the key if it does not exist, else replaces it if it has this version.
    fn write<'a>(&'a self, suffix: &'a str, value: &'a str, version: u64) -> BoxFuture<'a, Result<Written, BoxError>>;

    /// Texts that were written before, newest first.
    fn history<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Vec<Past>, BoxError>>;

    /// One of them; empty if there is none.
    fn past<'a>(&'a self, suffix: &'a str, id: &'a str) -> BoxFuture<'a, Result<String, BoxError>>;

    /// What would change with this text. `None`: there is no table yet.
    fn preview<'a>(&'a self, suffix: &'a str, value: &'a str) -> BoxFuture<'a, Result<Option<Preview>, BoxError>>;
}

/// What can be changed while we run.
pub trait Operations: Send + Sync {
    fn is_draining(&self) -> bool;

    /// While draining, `/health` says so, and whoever checks it sends its clients elsewhere. Everything is still served.
    fn drain(&self, on: bool);

    fn log_level(&self) -> String;

    /// The error names the levels.
    fn set_log_level(&self, level: &str) -> Result<(), String>;

    /// What became of the last SIGUSR2: `starting`, `failed: ...`, `replaced by process ...`; empty: there was none.
    fn upgrade(&self) -> String {
        String::new()
    }
    /// As SIGHUP.
    fn reload(&self) -> Result<(), String>;

    /// Whether other processes see what is disabled here.
    fn is_shared(&self) -> bool;

    fn disabled(&self) -> Vec<Disabled>;

    fn disable(&self, entry: Disabled) -> BoxFuture<'_, Result<(), BoxError>>;

    /// `false`: it was not disabled.
    fn enable<'a>(&'a self, service: &'a str, instance: Option<&'a str>) -> BoxFuture<'a, Result<bool, BoxError>>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Trimmed; empty if there is no such key.
    pub value: String,
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The key is not at that version, or exists already.
    Conflict,
}
