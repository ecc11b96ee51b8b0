//! What the admin part sees of the others.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{VERSION, conditions};
use crate::admin::{
    BoxError, BoxFuture, Change, Health, Override, Overrides, SourceView, State, StatusView, Views, Written,
};
use crate::config::Config;
use crate::life::{Phase, Watch};
use crate::registry::{self, Registry};
use crate::route::LiveTable;

/// The state of the admin listener.
pub(super) fn state(
    admin: &crate::admin::Config,
    config: &Config,
    live: &Arc<LiveTable>,
    registry: &Arc<Registry>,
    life: &Watch,
) -> Arc<State> {
    let (of_rejects, of_status, life) = (registry.clone(), registry.clone(), life.clone());
    let of_targets = live.clone();
    let has_overrides = matches!(config.registry.backend, registry::Backend::Consul(_));
    let overrides: Option<Arc<dyn Overrides>> =
        if has_overrides { Some(Arc::new(Store(registry.overrides()))) } else { None };
    let views = Views {
        table: live.clone(),
        rejects: Arc::new(move || of_rejects.status().table.rejects.to_vec()),
        status: Arc::new(move || status(&of_status.status())),
        health: Arc::new(move || health(life.phase())),
        conditions: Arc::new(move || conditions::of(&of_targets.load().table)),
        overrides,
        config_json: config.json.as_str().into(),
        version: VERSION,
    };
    State::new(admin.clone(), views)
}

fn health(phase: Phase) -> Health {
    match phase {
        Phase::Starting => Health::Unready("waiting for the first routing table".into()),
        Phase::Serving => Health::Ready,
        Phase::Leaving | Phase::Closing | Phase::Ended => Health::Unready("shutting down".into()),
    }
}

fn status(status: &registry::Status) -> StatusView {
    let now = SystemTime::now();
    let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
    let sources = status.sources.iter().map(|source| SourceView {
        name: source.name.to_owned(),
        error: source.last_error.clone(),
        age: source.age_ms.map(Duration::from_millis),
    });
    let changes = status
        .table
        .changes
        .iter()
        .rev()
        .map(|change| Change { at: change.at.unwrap_or(SystemTime::UNIX_EPOCH), lines: change.lines.clone() });
    StatusView {
        sources: sources.collect(),
        table_age: status.table.built.map(since),
        lag: None,
        changes: changes.collect(),
    }
}

/// The KV store behind the override pages.
struct Store(registry::Overrides);

impl Overrides for Store {
    fn paths(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(async { Ok(self.0.paths().await?.unwrap_or_default()) })
    }

    fn read<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Override, BoxError>> {
        Box::pin(async {
            let read = self.0.read(suffix).await?;
            Ok(Override { value: read.value, version: read.version })
        })
    }

    fn write<'a>(&'a self, suffix: &'a str, value: &'a str, version: u64) -> BoxFuture<'a, Result<Written, BoxError>> {
        Box::pin(async move {
            Ok(match self.0.write(suffix, value, version).await? {
                registry::Written::Done => Written::Done,
                registry::Written::Mismatch => Written::Conflict,
            })
        })
    }
}
