//! What the admin part sees of the others.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::login::Gate;
use super::operations::{Draining, Switchboard};
use super::upgrade::Succession;
use super::{VERSION, conditions, log};
use crate::admin::{
    BoxError, BoxFuture, CertificatesView, Change, DatacenterView, Health, Login, Override, Overrides, SourceView,
    State, StatusView, Views, Written,
};
use crate::auth::Auth;
use crate::config::Config;
use crate::life::{Phase, Watch};
use crate::listen::Proto;
use crate::metrics::Metrics;
use crate::proxy::http::Explainer;
use crate::registry::{self, Registry};
use crate::route::LiveTable;

/// What the views look into.
pub(super) struct Parts {
    pub(super) live: Arc<LiveTable>,
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Metrics,
    pub(super) auth: Arc<Auth>,
    pub(super) log: Option<log::Handle>,
    pub(super) life: Watch,
    pub(super) certificates: Arc<dyn Fn() -> CertificatesView + Send + Sync>,
    pub(super) succession: Arc<Succession>,
}

/// The state of the admin listener.
pub(super) fn state(admin: &crate::admin::Config, config: &Config, parts: Parts) -> Arc<State> {
    let Parts { live, registry, metrics, auth, log, life, certificates, succession } = parts;
    let (of_rejects, of_status, of_health) = (registry.clone(), registry.clone(), registry.clone());
    let of_targets = live.clone();
    let has_overrides = matches!(config.registry.backend, registry::Backend::Consul(_));
    let overrides: Option<Arc<dyn Overrides>> = if has_overrides {
        Some(Arc::new(Store { keys: registry.overrides(), registry: registry.clone() }))
    } else {
        None
    };
    let draining = Draining::default();
    let replaced = succession.clone();
    let operations = Switchboard { draining: draining.clone(), log, control: registry.control(), succession };
    let login = admin.auth.clone().map(|scheme| -> Arc<dyn Login> { Arc::new(Gate { auth, scheme }) });
    let explainer = explainer(config);
    let views = Views {
        table: live,
        explain: Arc::new(move |table, question| explainer.explain(table, question)),
        rejects: Arc::new(move || of_rejects.status().table.rejects.to_vec()),
        status: Arc::new(move || status(&of_status)),
        // Whoever has asked us at the last moment means our place, which is taken.
        health: Arc::new(move || match replaced.is_replaced() {
            true => Health::Ready,
            false => health(life.phase(), &draining, of_health.stale()),
        }),
        certificates,
        conditions: Arc::new(move || conditions::of(&of_targets.load().table)),
        overrides,
        config_json: config.json.as_str().into(),
        effective_json: serde_json::to_string(&config.effective).unwrap_or_default().into(),
        metrics: Some(metrics),
        operations: Arc::new(operations),
        login,
        version: VERSION,
    };
    State::new(admin.clone(), views)
}

/// What answers where a request would go.
fn explainer(config: &Config) -> Explainer {
    let plain = config.listeners.iter().filter(|listener| listener.proto == Proto::Http);
    let port = |addr: &str| addr.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let plain = plain.filter_map(|listener| Some((port(&listener.addr)?, listener.redirect)));
    Explainer::new(config.proxy.clone(), plain.collect())
}

fn health(phase: Phase, draining: &Draining, stale: Option<SystemTime>) -> Health {
    match phase {
        Phase::Starting => Health::Unready("waiting for the first routing table".into()),
        Phase::Serving if draining.is_on() => Health::Unready("draining".into()),
        Phase::Serving | Phase::Replaced => match stale {
            None => Health::Ready,
            Some(at) => {
                let age = at.elapsed().unwrap_or_default().as_secs();
                Health::Stale(format!("stale: routes saved {age} s ago, Consul does not answer"))
            }
        },
        Phase::Leaving | Phase::Closing | Phase::Ended => Health::Unready("shutting down".into()),
    }
}

fn status(registry: &Registry) -> StatusView {
    let status = registry.status();
    let now = SystemTime::now();
    let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
    let millis = |millis: f64| Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default();
    let sources = status.sources.iter().map(|source| SourceView {
        name: source.name.to_owned(),
        datacenter: source.datacenter.clone(),
        error: source.last_error.clone().filter(|_| source.failures > 0),
        age: source.age_ms.map(Duration::from_millis),
        index: source.index,
        failures: source.failures,
        warning: source.warning.clone(),
    });
    let table = &status.table;
    let changes = table.changes.iter().rev().map(|change| Change {
        at: change.at.unwrap_or(SystemTime::UNIX_EPOCH),
        cause: change.cause.clone(),
        added: change.added,
        removed: change.removed,
        lines: change.lines.clone(),
    });
    let datacenters = status.datacenters.iter().map(|one| DatacenterView {
        name: one.name.clone(),
        own: one.own,
        error: one.last_error.clone(),
        warning: one.warning.clone(),
        age: one.age_ms.map(Duration::from_millis),
        failures: one.failures,
        services: one.services,
        instances: one.instances,
        contact: one.contact.map(|contact| (contact.last, contact.known_leader)),
    });
    StatusView {
        sources: sources.collect(),
        datacenters: datacenters.collect(),
        stale: status.stale.map(since),
        table_age: table.built.map(since),
        lag: table.lag_ms.map(millis),
        builds: table.builds,
        build: millis(table.build_ms),
        services: table.services,
        instances: table.instances,
        contact: registry.contact().map(|contact| (contact.last, contact.known_leader)),
        changes: changes.collect(),
    }
}

/// The KV store behind the override pages.
struct Store {
    keys: registry::Overrides,
    registry: Arc<Registry>,
}

impl Overrides for Store {
    fn paths(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(async { Ok(self.keys.paths().await?.unwrap_or_default()) })
    }

    fn read<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Override, BoxError>> {
        Box::pin(async {
            let read = self.keys.read(suffix).await?;
            Ok(Override { value: read.value, version: read.version })
        })
    }

    fn write<'a>(&'a self, suffix: &'a str, value: &'a str, version: u64) -> BoxFuture<'a, Result<Written, BoxError>> {
        Box::pin(async move {
            Ok(match self.keys.write(suffix, value, version).await? {
                registry::Written::Done => Written::Done,
                registry::Written::Mismatch => Written::Conflict,
            })
        })
    }

    fn history<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Vec<registry::Past>, BoxError>> {
        Box::pin(async move { Ok(self.keys.history(suffix).await?) })
    }

    fn past<'a>(&'a self, suffix: &'a str, id: &'a str) -> BoxFuture<'a, Result<String, BoxError>> {
        Box::pin(async move { Ok(self.keys.past(suffix, id).await?) })
    }

    fn preview<'a>(
        &'a self,
        suffix: &'a str,
        value: &'a str,
    ) -> BoxFuture<'a, Result<Option<registry::Preview>, BoxError>> {
        Box::pin(async move { Ok(self.registry.preview(suffix, value).await?) })
    }
}
