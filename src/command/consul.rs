//! A routing table straight from Consul, built once by the code that the proxy uses. Registers and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::Failure;
use super::arguments::Arguments;
use crate::config::{Config, inspect};
use crate::registry::{self, Backend, Publish, Registry};
use crate::route::{LiveTable, Snapshot, Table};

/// What one look has shown.
pub(super) struct Seen {
    pub(super) table: Arc<Table>,
    pub(super) registry: Registry,
}

/// The configuration that a start with `--cfg` and `flags` would have.
pub(super) fn config(arguments: &Arguments, flags: Vec<String>) -> Result<Config, Failure> {
    let cfg = arguments.value("cfg").map(|file| vec!["-cfg".to_owned(), file.to_owned()]).unwrap_or_default();
    let found = inspect(cfg.into_iter().chain(flags), std::env::vars_os());
    let all = |mistakes: Vec<crate::config::Mistake>| {
        let lines: Vec<String> = mistakes.into_iter().map(|mistake| mistake.text).collect();
        Failure::Unknown(format!("the configuration cannot be used:\n  {}", lines.join("\n  ")))
    };
    let usable = found.config.filter(|_| found.mistakes.is_empty());
    usable.map(|config| *config).ok_or_else(|| all(found.mistakes))
}

/// As [`config`], with the Consul of `--consul`.
pub(super) fn registry_config(arguments: &Arguments) -> Result<registry::Config, Failure> {
    Ok(whole_config(arguments)?.registry)
}

/// As [`registry_config`], with all the rest.
pub(super) fn whole_config(arguments: &Arguments) -> Result<Config, Failure> {
    let mut flags = Vec::new();
    if let Some(addr) = arguments.value("consul") {
        flags.extend(["-registry.backend=consul".to_owned(), format!("-registry.consul.addr={addr}")]);
    }
    let mut config = config(arguments, flags)?;
    // Nobody wants to wait for a cluster that is still being started.
    config.registry.timeout = config.registry.timeout.min(START);
    Ok(config)
}

/// Reads everything and builds the table.
pub(super) async fn look(config: registry::Config) -> Result<Seen, Failure> {
    let backend = match &config.backend {
        Backend::Consul(consul) => format!("Consul at {}", consul.client.place()),
        _ => "the registry".to_owned(),
    };
    let live = Arc::new(LiveTable::default());
    let start = registry::start(config, Arc::new(Keep(live.clone())));
    let registry = start.await.map_err(|error| Failure::Unknown(format!("{backend}: {error}")))?;
    if tokio::time::timeout(PATIENCE, registry.ready()).await.is_err() {
        let errors: Vec<String> = registry.status().sources.iter().filter_map(|s| s.last_error.clone()).collect();
        let why = if errors.is_empty() { "no answer in time".to_owned() } else { errors.join("; ") };
        return Err(Failure::Unknown(format!("{backend}: {why}")));
    }
    registry.stop();
    Ok(Seen { table: live.load_full().table.clone(), registry })
}

struct Keep(Arc<LiveTable>);

impl Publish for Keep {
    fn publish(&self, table: Arc<Table>, page: Arc<str>) {
        self.0.store(Snapshot { table, page, ..Snapshot::default() });
    }
}

/// For an agent that is not there.
const START: Duration = Duration::from_secs(2);

const PATIENCE: Duration = Duration::from_secs(10);
