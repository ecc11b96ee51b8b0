//! What certificates have to do with the rest: what is shown of them, and what sources that order from a CA need: the names
//! of the table, and who answers challenges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::edge::{Edge, Sources};
use crate::admin::{CertificateSourceView, CertificateView, CertificatesView, WaitingView};
use crate::cert::acme::{Challenges, Surroundings};
use crate::cert::{self, Kind, Validity};
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

/// What the admin pages show, as of when it is called.
pub(super) fn view(sources: &Sources, edges: &[Arc<Edge>]) -> Arc<dyn Fn() -> CertificatesView + Send + Sync> {
    let mut all: Vec<Arc<cert::Source>> = sources.certificates.values().cloned().collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    let edges = edges.to_vec();
    Arc::new(move || CertificatesView {
        sources: all.iter().map(|source| source_view(source.report())).collect(),
        listeners: edges.iter().filter_map(|edge| edge.view()).collect(),
    })
}

fn source_view(report: cert::Report) -> CertificateSourceView {
    let certificates = report.certificates.into_iter().map(|entry| CertificateView {
        name: entry.name,
        subject: entry.facts.subject,
        issuer: entry.facts.issuer,
        serial: entry.facts.serial,
        names: entry.facts.names,
        not_before: entry.facts.not_before,
        not_after: entry.facts.not_after,
        fingerprint: entry.facts.fingerprint,
        state: match entry.validity {
            Validity::Valid => "valid",
            Validity::NotYet => "not yet valid",
            Validity::Expired => "expired",
        },
    });
    let waiting = report.waiting.into_iter();
    CertificateSourceView {
        name: report.name,
        kind: report.kind,
        place: report.place,
        age: report.age,
        changed: report.changed,
        error: report.error,
        certificates: certificates.collect(),
        problems: report.problems.into_iter().map(|problem| (problem.name, problem.error.to_string())).collect(),
        waiting: waiting.map(|each| WaitingView { name: each.name, reason: each.reason, next: each.next }).collect(),
    }
}

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
