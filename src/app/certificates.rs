//! What certificate sources that order from a CA need of the rest: the names of the table, and who answers challenges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cert::Kind;
use crate::cert::acme::{Challenges, Surroundings};
use crate::config::Config;
use crate::life::{Phase, Watch};
use crate::listen::Proto;
use crate::route::{Class, LiveTable, Table};

/// One for all sources.
pub(super) struct Orders {
    /// `None`: no source orders anything.
    surroundings: Option<Surroundings>,
    hosts: watch::Sender<Option<Arc<[String]>>>,
}

impl Orders {
    pub(super) fn new(config: &Config) -> Self {
        let (hosts, seen) = watch::channel(None);
        let any = config.cert_sources.iter().any(|source| matches!(source.kind, Kind::Acme { .. }));
        let plain = config.listeners.iter().any(|listener| listener.proto == Proto::Http);
        let surroundings = any.then(|| Surroundings { challenges: Arc::default(), hosts: seen, plain });
        Self { surroundings, hosts }
    }

    pub(super) fn surroundings(&self) -> Option<Surroundings> {
        self.surroundings.clone()
    }

    pub(super) fn challenges(&self) -> Option<Arc<Challenges>> {
        self.surroundings.as_ref().map(|surroundings| surroundings.challenges.clone())
    }

    /// Now that listeners are open: tells sources the names of the table, each time they change.
    pub(super) fn follow(self, live: Arc<LiveTable>, mut tables: watch::Receiver<()>, mut life: Watch) {
        if self.surroundings.is_none() {
            return;
        }
        tokio::spawn(async move {
            loop {
                tables.borrow_and_update();
                let snapshot = live.load_full();
                // Large tables take a moment.
                let names = tokio::task::spawn_blocking(move || hosts(&snapshot.table)).await.unwrap_or_default();
                self.hosts.send_if_modified(|known| {
                    let changed = known.as_deref() != Some(&names[..]);
                    if changed {
                        *known = Some(names.into());
                    }
                    changed
                });
                tokio::time::sleep(PAUSE).await;
                tokio::select! {
                    changed = tables.changed() => if changed.is_err() { return },
                    () = life.reached(Phase::Leaving) => return,
                }
            }
        });
    }
}

/// Tables can change many times a second, and an order takes seconds anyway.
const PAUSE: Duration = Duration::from_millis(500);

/// Exact host names of HTTP routes, without ports. Those of TCP routes belong to targets that end TLS themselves.
fn hosts(table: &Table) -> Vec<String> {
    let http = table.routes().filter(|route| route.class == Class::Http && !route.targets.is_empty());
    let names = http.filter_map(|route| {
        let host = match route.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &route.host,
        };
        (!host.is_empty() && !host.contains(['*', '?', '[', '{', ':'])).then(|| host.trim_end_matches('.').to_owned())
    });
    names.collect::<BTreeSet<String>>().into_iter().collect()
}
