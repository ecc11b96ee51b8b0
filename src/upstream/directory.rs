//! State that outlives a table: what hangs on the identity of routes and targets.
//!
//! The table is immutable and holds none of this. Before it is published, the control plane hangs a handle on each new
//! route and target; the same identity always gets the same state. The state goes when the last table, request or
//! connection that uses it is gone.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use aws_lc_rs::hmac;

use super::budget::Budget;
use super::gate::Gate;
use super::health::{Ejected, Health, Moment, Verdict, moment};
use super::term::Kept;
use super::{Load, ServiceState, Token, sticky};
use crate::metrics::{Metrics, TargetSeries};
use crate::route::{Destination, Ejection, HostOption, Options, Route, Scheme, Slot, Strategy, Target};

/// What a route remembers: whose turn it is, and its retries.
#[derive(Debug, Default)]
pub struct RouteState {
    turn: AtomicU64,
    budget: OnceLock<Box<Budget>>,
    in_flight: AtomicUsize,
    /// The buckets of its rates, hung on by their owner.
    pub buckets: Slot,
}

/// A request that is under way on a route with `routemaxconn`.
#[derive(Debug)]
pub struct OnRoute(Arc<RouteState>);

impl Drop for OnRoute {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RouteState {
    pub fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// One request more on the route, unless there are as many as there may be.
    pub fn enter(self: Arc<Self>, limit: usize) -> Option<OnRoute> {
        let more = |count| (count < limit).then_some(count + 1);
        let entered = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.is_ok().then(|| OnRoute(self))
    }

    /// How many retries it has had.
    pub fn budget(&self) -> &Budget {
        self.budget.get_or_init(Box::default)
    }
}

/// What is needed to talk to a target, also after its table is gone.
pub struct TargetState {
    pub service: Arc<str>,
    pub destination: Arc<Destination>,
    pub options: Arc<Options>,
    /// Host and path of the route.
    pub host: Arc<str>,
    pub path: Arc<str>,
    pub endpoint: Arc<Endpoint>,
    pub series: Arc<TargetSeries>,
    pub load: Load,
    /// What a sticky cookie calls it; `None`: its route sets none.
    pub token: Option<Token>,
    /// Who gets copies of its requests.
    pub mirror: Option<Arc<ServiceState>>,
    /// That of its datacenter; 0: our own.
    pub(super) rank: u32,
    connections: AtomicUsize,
    /// When it came to be.
    since: Moment,
}

impl TargetState {
    /// May it get a request that could go elsewhere? Not if it is ejected, or full.
    pub fn available(&self) -> bool {
        !self.is_ejected() && !self.is_full()
    }

    /// Passed over because of its failures.
    pub fn is_ejected(&self) -> bool {
        self.endpoint.health.is_ejected()
    }

    /// It has as many requests as it may have.
    pub fn is_full(&self) -> bool {
        let limit = self.options.limits.as_ref().and_then(|limits| limits.in_flight);
        limit.is_some_and(|limit| self.endpoint.gate.is_full(limit))
    }

    /// The part of its share that it gets by now, 0 to 1: less than all during its slow start.
    pub fn ramp(&self) -> f64 {
        let Some(over) = self.options.slow_start else { return 1.0 };
        let old = (moment() - self.since) as f64 / over.as_secs_f64() / 1000.0;
        old.clamp(LEAST_RAMP, 1.0)
    }

    /// Takes note of what became of a try.
    pub fn note(&self, verdict: Verdict) -> Option<Ejected> {
        let rules = self.options.ejection.as_deref().unwrap_or_else(|| Ejection::usual());
        self.endpoint.health.note(verdict, rules, moment)
    }

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
    /// The path of a Unix socket, which is then connected to instead.
    pub socket: Option<Box<str>>,
    /// What requests of all workers have found out about it.
    pub health: Health,
    pub gate: Gate,
    pub(super) kept: Arc<Kept>,
}

impl Endpoint {
    /// `id`: see there.
    pub fn new(id: u64, host: &str, port: u16, tls: Option<TargetTls>) -> Self {
        let (health, gate, kept) = Default::default();
        Self { id, host: host.to_owned(), port, tls, socket: None, health, gate, kept }
    }
}

/// How TLS to a target is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetTls {
    /// Sent as server name and looked for in the certificate.
    pub server_name: String,
    pub skip_verify: bool,
    /// Believed instead of the system's authorities: a name of `proxy.targettls`.
    pub authorities: Option<Arc<str>>,
    /// Who we are: a name of `proxy.targettls`.
    pub certificate: Option<Arc<str>>,
    /// Protocols to offer, the best one first; none: nothing is agreed on.
    pub alpn: Arc<[Arc<str>]>,
    /// The service of the mesh that must answer there; nothing of the above about trust counts then.
    pub mesh: Option<Arc<str>>,
    /// Where that service is; `None`: in our own datacenter.
    pub mesh_datacenter: Option<Arc<str>>,
}

impl TargetTls {
    /// As usual: this name, the system's authorities.
    pub fn named(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            skip_verify: false,
            authorities: None,
            certificate: None,
            alpn: Arc::default(),
            mesh: None,
            mesh_datacenter: None,
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
struct EndpointKey {
    service: Arc<str>,
    instance: Option<Arc<str>>,
    host: String,
    port: u16,
    tls: Option<TargetTls>,
    socket: Option<Box<str>>,
}

/// Finds the state of an identity, or makes it. Control plane only.
pub struct Directory {
    metrics: Metrics,
    routes: HashMap<u128, Weak<RouteState>>,
    targets: HashMap<u128, Weak<TargetState>>,
    endpoints: HashMap<EndpointKey, Weak<Endpoint>>,
    /// Those that some route names.
    services: HashMap<Arc<str>, Weak<ServiceState>>,
    /// Routes without a strategy of their own want their targets observed.
    observe: bool,
    sticky_key: hmac::Key,
    next_endpoint: u64,
    /// Sweep for dead entries when that many were made since the last sweep.
    made: usize,
}

impl Directory {
    /// `strategy` is that of routes without one of their own, `sticky_key` the secret of their cookies.
    pub fn new(metrics: Metrics, strategy: &Strategy, sticky_key: &str) -> Self {
        Self {
            services: HashMap::new(),
            observe: strategy.observes(),
            sticky_key: sticky::key(sticky_key),
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
            // With one target there is nothing to choose.
            let wanted = route.strategy().map_or(self.observe, Strategy::observes) && route.targets.len() > 1;
            for target in &route.targets {
                if target.state.is_empty() {
                    let state = self.target(route, target);
                    state.load.observe(wanted);
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
            path: route.path.clone(),
            endpoint: self.endpoint(target),
            series: self.metrics.target(&target.service, &route.host, &route.path, &destination.text),
            destination,
            load: Load::default(),
            token: target.options.sticky.is_some().then(|| Token::of(target, &self.sticky_key)),
            mirror: target.options.mirror.as_ref().map(|mirror| self.service(&mirror.service)),
            rank: target.datacenter.as_ref().map_or(0, |datacenter| datacenter.rank),
            connections: AtomicUsize::new(0),
            since: moment(),
        });
        if let Some(service) = self.services.get(&state.service).and_then(Weak::upgrade) {
            service.join(&state);
        }
        self.targets.insert(identity, Arc::downgrade(&state));
        self.made += 1;
        state
    }

    /// The instances of a service, those that come later among them.
    fn service(&mut self, name: &Arc<str>) -> Arc<ServiceState> {
        if let Some(service) = self.services.get(name).and_then(Weak::upgrade) {
            return service;
        }
        let service = Arc::new(ServiceState::new(name.clone()));
        for target in self.targets.values().filter_map(Weak::upgrade).filter(|target| target.service == *name) {
            service.join(&target);
        }
        self.services.insert(name.clone(), Arc::downgrade(&service));
        service
    }

    fn endpoint(&mut self, target: &Target) -> Arc<Endpoint> {
        let destination = &target.destination;
        let key = EndpointKey {
            service: target.service.clone(),
            instance: target.instance.clone(),
            host: destination.host.clone(),
            port: destination.port,
            tls: (matches!(destination.scheme, Scheme::Https | Scheme::Wss | Scheme::Tcps | Scheme::Grpcs)
                || target.options.reach.as_ref().is_some_and(|reach| reach.connect))
            .then(|| tls_of(target)),
            socket: destination.socket.clone(),
        };
        if let Some(endpoint) = self.endpoints.get(&key).and_then(Weak::upgrade) {
            return endpoint;
        }
        let mut endpoint = Endpoint::new(self.next_endpoint, &key.host, key.port, key.tls.clone());
        endpoint.socket = key.socket.clone();
        let endpoint = Arc::new(endpoint);
        self.next_endpoint += 1;
        self.endpoints.insert(key, Arc::downgrade(&endpoint));
        endpoint
    }

    fn sweep(&mut self) {
        self.routes.retain(|_, state| state.strong_count() > 0);
        self.targets.retain(|_, state| state.strong_count() > 0);
        self.endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        self.services.retain(|_, service| service.strong_count() > 0);
        self.made = 0;
    }
}

fn tls_of(target: &Target) -> TargetTls {
    let (destination, options) = (&target.destination, &target.options);
    let reach = options.reach.as_deref();
    let named = reach.and_then(|reach| reach.server_name.as_deref());
    let server_name = match (named, &options.grpc_server_name, &options.host) {
        (Some(name), _, _) => name.to_owned(),
        (_, Some(name), _) if destination.scheme == Scheme::Grpcs => host_of(name).to_owned(),
        (_, _, Some(HostOption::Name(name))) => host_of(name).to_owned(),
        _ => destination.host.clone(),
    };
    TargetTls {
        server_name,
        skip_verify: options.tls_skip_verify,
        authorities: reach.and_then(|reach| reach.authorities.clone()),
        certificate: reach.and_then(|reach| reach.certificate.clone()),
        alpn: reach.map(|reach| reach.alpn.clone()).unwrap_or_default(),
        mesh: reach.filter(|reach| reach.connect).map(|_| target.service.clone()),
        mesh_datacenter: reach
            .filter(|reach| reach.connect)
            .and(target.datacenter.as_ref())
            .map(|datacenter| datacenter.name.clone()),
    }
}
/// A new target gets something from the first moment on, or it would never warm up.
const LEAST_RAMP: f64 = 0.1;

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
