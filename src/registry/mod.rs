//! Where routes come from, and the one funnel that builds and publishes tables.
//!
//! A back-end hands whole values to the funnel (`publish.rs`); the funnel keeps the last good of each and publishes a
//! table when one changed. Nothing here is on the path of a request.

mod consul;
mod custom;
mod disabled;
mod file;
mod fixed;
mod giver;
mod preview;
mod publish;
mod start;
mod state;
mod status;
#[cfg(test)]
mod testing;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::route::{Allow, Datacenter, ErrorPages, Route, Settings, Table};

pub use self::consul::history::Past;
pub use self::consul::overrides::{Override, Overrides, Written};
pub use self::disabled::{Control, Disabled};
pub use self::preview::Preview;
pub use self::start::{Error, Registry, start};
/// The target of events of which each line break is ours: a log lets them stay.
pub const SEVERAL_LINES: &str = "ferrio::lines";

pub use self::status::{Change, DatacenterStatus, RejectView, SourceStatus, Status, TableStatus, place};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub backend: Backend,
    /// Give up at start after this long without an answer of the backend.
    pub timeout: Duration,
    /// Pause between attempts at start.
    pub retry: Duration,
    pub settings: Settings,
    pub log: RoutesLog,
    /// Where the last good inputs are kept (Consul only); `None`: nowhere.
    pub state: Option<StateConfig>,
}

/// The last good inputs of the table on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Made if it is not there.
    pub dir: PathBuf,
    /// Older ones are not used at start; 0: whatever their age.
    pub max_age: Duration,
}

/// `log.routes.format`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutesLog {
    #[default]
    Delta,
    All,
    Detail,
    /// New: nothing.
    Off,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    Consul(Box<ConsulConfig>),
    Static { routes: String, page: String },
    File { path: PathBuf, page: Option<PathBuf> },
    Custom(CustomConfig),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConsulConfig {
    pub client: crate::consul::Config,
    /// Without its leading slash.
    pub kv_path: String,
    /// Without its leading slash.
    pub page_path: String,
    /// Keys below it are entries that `options=NAME` names. Without its leading slash; empty: there are none.
    pub options_path: String,
    /// Keys below it are pages for our own errors. Without its leading slash; empty: there are none.
    pub error_pages_path: String,
    /// `registry.consul.unavailablehtmlpath`; empty: none.
    pub down_page_path: String,
    /// `registry.consul.connect`: our name in the service mesh; empty: we are none of its members.
    pub connect: String,
    pub tag_prefix: String,
    /// Datacenters to watch beside the agent's own, which may be among them; the preferred ones first.
    pub datacenters: Vec<String>,
    /// What services may claim in their tags.
    pub allow: Allow,
    /// Check states that count as good.
    pub service_status: Vec<String>,
    /// All checks of an instance must be good (`checksRequired=all`), not just one.
    pub checks_all: bool,
    /// `registry.consul.keepunhealthy`: a service without a healthy instance keeps its routes, which answer 503.
    pub keep_unhealthy: bool,
    /// Queries for services under way at once.
    pub service_monitors: usize,
    /// 0: blocking queries.
    pub poll_interval: Duration,
    /// `None`: do not register ourselves. Aliases are registered regardless, by the other fields of `announce`.
    pub register: bool,
    pub announce: Announce,
}

impl ConsulConfig {
    /// The datacenters that are named, with their ranks.
    fn ranked(&self) -> Arc<[Arc<Datacenter>]> {
        let ranked = self.datacenters.iter().zip(1..);
        ranked.map(|(name, rank)| Arc::new(Datacenter { name: name.as_str().into(), rank })).collect()
    }

    /// Why an instance with these checks (its own, and its node's) may have no traffic; `None`: it may.
    pub fn refusal(&self, service_id: &str, checks: &[crate::consul::Check]) -> Option<String> {
        let rules = consul::health::Rules { accepted: self.service_status.clone(), all: self.checks_all, keep: false };
        rules.refusal(service_id, checks)
    }
}

/// How ferrio appears in Consul.
#[derive(Clone, Debug, PartialEq)]
pub struct Announce {
    pub name: String,
    /// `host:port` of the admin listener, as configured.
    pub addr: String,
    /// Used when the host of `addr` is empty or not an address.
    pub local_ip: Option<IpAddr>,
    /// `http` or `https`: scheme of the health check.
    pub check_scheme: String,
    pub tags: Vec<String>,
    pub check_interval: Duration,
    pub check_timeout: Duration,
    pub check_tls_skip_verify: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CustomConfig {
    pub host: String,
    pub scheme: String,
    pub path: String,
    pub query: String,
    pub skip_verify: bool,
    pub timeout: Duration,
    pub poll_interval: Duration,
    pub page: String,
}

/// Takes what the funnel built. Called from the control plane, one call at a time.
pub trait Publish: Send + Sync + 'static {
    /// Called right before [`Publish::publish`]: routes of the new table that the last one did not have, whose slots are
    /// empty, and routes that are gone. All others are shared by both tables, with what hangs on them.
    fn prepare(&self, _fresh: &[Arc<Route>], _gone: &[Arc<Route>]) {}

    /// Pages for our own errors, for the next [`Publish::publish`] and all after it.
    fn error_pages(&self, _pages: Arc<ErrorPages>) {}

    fn publish(&self, table: Arc<Table>, page: Arc<str>);

    /// The page for routes whose targets are all down, when it changes.
    fn down_page(&self, _page: Arc<str>) {}
}
