//! State that outlives a table: what hangs on the identity of routes and targets.
//!
//! The table is immutable and holds none of this. Before it is published, the control plane hangs a handle on each new
//! route and target; the same identity always gets the same state. The state goes when the last table, request or
//! connection that uses it is gone.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::metrics::{Metrics, TargetSeries};
use crate::route::{Destination, HostOption, Options, Route, Scheme, Target};

/// What a route remembers: whose turn it is.
#[derive(Debug, Default)]
pub struct RouteState {
    turn: AtomicU64,
}

impl RouteState {
    pub fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

/// What is needed to talk to a target, also after its table is gone.
pub struct TargetState {
    pub service: Arc<str>,
    pub destination: Arc<Destination>,
    pub options: Arc<Options>,
    /// Host of the route.
    pub host: Arc<str>,
    pub endpoint: Arc<Endpoint>,
    pub series: Arc<TargetSeries>,
    connections: AtomicUsize,
}

impl TargetState {
    /// The set of pages for our own errors.
    pub fn page_set(&self) -> &str {
        self.options.error_pages.as_deref().unwrap_or(&self.host)
    }

    /// Counts one connection or session until the guard is dropped.
    pub fn enter(self: Arc<Self>) -> Entered {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Entered(self)
    }

    /// Connections of the TCP family and UDP sessions that are open now, on all workers.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// See [`TargetState::enter`].
pub struct Entered(Arc<TargetState>);

impl Deref for Entered {
    type Target = TargetState;

    fn deref(&self) -> &TargetState {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place to connect to. Targets of several routes that lead to the same instance in the same way share one, and with
/// it the pooled connections. Another service at the same address has its own.
#[derive(Debug)]
pub struct Endpoint {
    /// Never used twice in a process.
    pub id: u64,
    pub host: String,
    pub port: u16,
    pub tls: Option<TargetTls>,
}

/// How TLS to a target is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetTls {
    /// Sent as server name and looked for in the certificate.
    pub server_name: String,
    pub skip_verify: bool,
}

#[derive(PartialEq, Eq, Hash)]
struct EndpointKey {
    service: Arc<str>,
    instance: Option<Arc<str>>,
    host: String,
    port: u16,
    tls: Option<TargetTls>,
}

/// Finds the state of an identity, or makes it. Control plane only.
pub struct Directory {
    metrics: Metrics,
    routes: HashMap<u128, Weak<RouteState>>,
    targets: HashMap<u128, Weak<TargetState>>,
    endpoints: HashMap<EndpointKey, Weak<Endpoint>>,
    next_endpoint: u64,
    /// Sweep for dead entries when that many were made since the last sweep.
    made: usize,
}

impl Directory {
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            routes: HashMap::new(),
            targets: HashMap::new(),
            endpoints: HashMap::new(),
            next_endpoint: 1,
            made: 0,
        }
    }

    /// Hangs state on everything in `routes` that has none yet.
    pub fn attach<'t>(&mut self, routes: impl IntoIterator<Item = &'t Route>) {
        for route in routes {
            if route.state.is_empty() {
                let state = self.route(route.identity());
                route.state.fill(state);
            }
            for target in &route.targets {
                if target.state.is_empty() {
                    let state = self.target(route, target);
                    target.state.fill(state);
                }
            }
        }
        if self.made > 1000 + self.targets.len() / 2 {
            self.sweep();
        }
    }

    fn route(&mut self, identity: u128) -> Arc<RouteState> {
        if let Some(state) = self.routes.get(&identity).and_then(Weak::upgrade) {
            return state;
        }
        let state = Arc::new(RouteState::default());
        self.routes.insert(identity, Arc::downgrade(&state));
        self.made += 1;
        state
    }

    fn target(&mut self, route: &Route, target: &Target) -> Arc<TargetState> {
        // The same target on another route counts in other series.
        let identity = target.identity() ^ route.identity().rotate_left(1);
        if let Some(state) = self.targets.get(&identity).and_then(Weak::upgrade) {
            return state;
        }
        let destination = target.destination.clone();
        let state = Arc::new(TargetState {
            service: target.service.clone(),
            options: target.options.clone(),
            host: route.host.clone(),
            endpoint: self.endpoint(target),
            series: self.metrics.target(&target.service, &route.host, &route.path, &destination.text),
            destination,
            connections: AtomicUsize::new(0),
        });
        self.targets.insert(identity, Arc::downgrade(&state));
        self.made += 1;
        state
    }

    fn endpoint(&mut self, target: &Target) -> Arc<Endpoint> {
        let destination = &target.destination;
        let key = EndpointKey {
            service: target.service.clone(),
            instance: target.instance.clone(),
            host: destination.host.clone(),
            port: destination.port,
            tls: matches!(destination.scheme, Scheme::Https | Scheme::Wss | Scheme::Tcps).then(|| TargetTls {
                server_name: match &target.options.host {
                    Some(HostOption::Name(name)) => host_of(name).to_owned(),
                    _ => destination.host.clone(),
                },
                skip_verify: target.options.tls_skip_verify,
            }),
        };
        if let Some(endpoint) = self.endpoints.get(&key).and_then(Weak::upgrade) {
            return endpoint;
        }
        let endpoint =
            Arc::new(Endpoint { id: self.next_endpoint, host: key.host.clone(), port: key.port, tls: key.tls.clone() });
        self.next_endpoint += 1;
        self.endpoints.insert(key, Arc::downgrade(&endpoint));
        endpoint
    }

    fn sweep(&mut self) {
        self.routes.retain(|_, state| state.strong_count() > 0);
        self.targets.retain(|_, state| state.strong_count() > 0);
        self.endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        self.made = 0;
    }
}

/// A name from a Host header without its port.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_has_no_port() {
        for (authority, host) in [("a.com", "a.com"), ("a.com:443", "a.com"), ("[::1]:8443", "::1"), ("[::1]", "::1")] {
            assert_eq!(host_of(authority), host, "{authority}");
        }
    }
}
