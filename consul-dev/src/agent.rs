//! The agent: its configuration, its life, and the state that its connections share.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::checks;
use crate::definition::{AgentCheck, Definition, Probe, Refusal, ServiceDefinition};
use crate::faults::Faults;
use crate::go_text::parse_duration;
use crate::local::Local;
use crate::random;
use crate::records::{Check, Node, Service};
use crate::store::{Registration, Store};

/// How an agent is to be started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the HTTP API listens; port 0 takes a free one. Default `127.0.0.1:0`.
    pub addr: SocketAddr,
    /// Default `dc1`.
    pub datacenter: String,
    /// Default `consul-dev`.
    pub node_name: String,
    /// Services that are there from the start, and again after [`Agent::restart_empty`]. Default none.
    pub definitions: Vec<Definition>,
    /// Indent all JSON, as `consul agent -dev` does. Default on.
    pub pretty: bool,
    /// The port that `/v1/status/leader` and the service `consul` name; nothing listens there. Default 8300.
    pub server_port: u16,
    /// Checks run at most this often, as in Consul. Default 1 s; tests may want less.
    pub shortest_interval: Duration,
    /// How often services are looked for that were critical for too long. Default 30 s.
    pub reap_interval: Duration,
    /// `DeregisterCriticalServiceAfter` is at least this. Default 1 min.
    pub shortest_reap: Duration,
    /// A session expires when it was not renewed for its TTL times this. Default 2.
    pub session_ttl_factor: f64,
    /// More connections than this wait until others have ended. Default 1024.
    pub max_connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addr: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            datacenter: "dc1".to_owned(),
            node_name: "consul-dev".to_owned(),
            definitions: Vec::new(),
            pretty: true,
            server_port: 8300,
            shortest_interval: Duration::from_secs(1),
            reap_interval: Duration::from_secs(30),
            shortest_reap: Duration::from_secs(60),
            session_ttl_factor: 2.0,
            max_connections: 1024,
        }
    }
}

/// A running agent. Dropping it ends it.
#[derive(Debug)]
pub struct Agent {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Agent {
    /// Bind, register the definitions and serve, on the current tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(config: Config) -> io::Result<Self> {
        let listener = TcpListener::bind(config.addr).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(config));
        shared.register_definitions();
        let tasks = vec![
            tokio::spawn(crate::api::serve(listener, Arc::clone(&shared))),
            tokio::spawn(tend(Arc::clone(&shared))),
        ];
        Ok(Self { addr, shared, tasks })
    }

    /// The address that the API listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The faults to inject, and the requests seen.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Lose everything and begin again with low indexes, as `consul agent -dev` does when it is restarted: connections
    /// are cut, but the listener stays.
    pub fn restart_empty(&self) {
        self.shared.restart();
    }

    /// Keep everything, but move all indexes down so that the newest becomes `last`, as after the restore of a snapshot.
    /// Waiting queries return.
    pub fn reset_indexes(&self, last: u64) {
        self.shared.write(|state| {
            state.store.shift_to(last);
            state.generation += 1;
        });
    }

    /// Stop listening, cut all connections and end all checks.
    pub async fn stop(mut self) {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // Cancelled is what it shall be.
            let _ = task.await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.write(|state| state.local = Local::new(""));
    }
}

/// What all connections and checks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) node_id: String,
    pub(crate) faults: Faults,
    state: Mutex<State>,
    /// Counts changes, so that blocking queries know when to look again.
    changed: watch::Sender<u64>,
    /// Counts restarts; every connection ends with the one it began in.
    restarts: watch::Sender<u64>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) local: Local,
    /// Another one means that the indexes of before mean nothing any more.
    pub(crate) generation: u64,
    /// When each session with a TTL ends unless it is renewed.
    expiry: BTreeMap<String, Instant>,
}

impl Shared {
    fn new(config: Config) -> Self {
        let node_id = random::uuid();
        let state = Mutex::new(State::new(&config, &node_id));
        Self {
            config,
            node_id,
            state,
            faults: Faults::default(),
            changed: watch::Sender::new(0),
            restarts: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves at worst one write half done; the agent is for development and goes on.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.lock())
    }

    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let version = |state: &State| (state.store.index(), state.generation);
        let before = version(&state);
        let result = write(&mut state);
        let changed = version(&state) != before;
        drop(state);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
        result
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn restarts(&self) -> watch::Receiver<u64> {
        self.restarts.subscribe()
    }

    fn restart(self: &Arc<Self>) {
        self.write(|state| {
            let generation = state.generation + 1;
            *state = State::new(&self.config, &self.node_id);
            state.generation = generation;
            // Before anybody who waits can look: a real agent that restarts gives no last answers.
            self.restarts.send_modify(|count| *count += 1);
        });
        self.register_definitions();
    }

    fn register_definitions(self: &Arc<Self>) {
        for definition in &self.config.definitions {
            self.register_service(definition.decode(), false);
        }
    }

    pub(crate) fn register_service(self: &Arc<Self>, definition: ServiceDefinition, replace: bool) {
        self.write(|state| {
            let started = state.local.add_service(&mut state.store, definition, replace);
            for (id, check) in started {
                self.run_check(&mut state.local, &id, check);
            }
        });
    }

    pub(crate) fn register_check(self: &Arc<Self>, check: AgentCheck) -> Result<(), Refusal> {
        self.write(|state| {
            let id = state.local.add_check(&mut state.store, check.clone()).map_err(Refusal::Unable)?;
            self.run_check(&mut state.local, &id, check);
            Ok(())
        })
    }

    fn run_check(self: &Arc<Self>, local: &mut Local, id: &str, check: AgentCheck) {
        let weak = Arc::downgrade(self);
        if let Some(task) = checks::start(weak, id.to_owned(), check, self.config.shortest_interval) {
            local.set_runner(id, task);
        }
    }

    /// Somebody reports the state of a TTL check; `false` if there is no such check.
    pub(crate) fn report(self: &Arc<Self>, id: &str, status: &str, output: &str) -> bool {
        let output = checks::capped_output(output);
        self.write(|state| {
            let Some(Probe::Ttl(ttl)) = state.local.probe(id) else { return false };
            let task = checks::expire(Arc::downgrade(self), id.to_owned(), *ttl, output.clone());
            state.local.set_runner(id, task);
            state.local.update_check(&mut state.store, id, status, &output)
        })
    }

    /// Begin or renew the time that a session has.
    pub(crate) fn touch_session(&self, state: &mut State, id: &str) {
        let ttl = state.store.session(id).and_then(|session| parse_duration(&session.ttl));
        if let Some(ttl) = ttl.filter(|ttl| !ttl.is_zero()) {
            let expiry = Instant::now() + ttl.mul_f64(self.config.session_ttl_factor);
            state.expiry.insert(id.to_owned(), expiry);
        }
    }
}

impl State {
    /// The catalog as it is after the start of a one-server cluster: this node, its health, and Consul itself.
    fn new(config: &Config, node_id: &str) -> Self {
        let mut store = Store::new(FIRST_INDEX);
        let address = "127.0.0.1".to_owned();
        let node = Node {
            id: node_id.to_owned(),
            name: config.node_name.clone(),
            address: address.clone(),
            ..Node::default()
        };
        let meta = [
            ("non_voter", "false"),
            ("raft_version", "3"),
            ("serf_protocol_current", "2"),
            ("serf_protocol_max", "5"),
            ("serf_protocol_min", "1"),
            ("version", VERSION),
        ];
        let consul = Service {
            node: node.name.clone(),
            id: "consul".to_owned(),
            name: "consul".to_owned(),
            port: config.server_port.into(),
            weights: (1, 1),
            meta: Some(meta.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
            ..Service::default()
        };
        let health = Check {
            node: node.name.clone(),
            id: "serfHealth".to_owned(),
            name: "Serf Health Status".to_owned(),
            status: "passing".to_owned(),
            output: "Agent alive and reachable".to_owned(),
            ..Check::default()
        };
        let names = ["lan", "lan_ipv4", "wan", "wan_ipv4"];
        let complete = Node {
            tagged_addresses: Some(names.map(|name| (name.to_owned(), address.clone())).into()),
            meta: Some([("consul-network-segment".to_owned(), String::new())].into()),
            ..node.clone()
        };
        // In two steps, as the leader and then the agent itself do it: the node is newer than the service.
        let first = Registration { node, service: Some(consul), checks: vec![health], ..Registration::default() };
        let second = Registration { node: complete, ..Registration::default() };
        for registration in [first, second] {
            store.register(registration).expect("names a service and a check, both complete");
        }
        let local = Local::new(&config.node_name);
        Self { store, local, generation: 0, expiry: BTreeMap::new() }
    }
}

/// What has to be done as time goes by.
async fn tend(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    let start = Instant::now();
    let (mut reaped, mut synced) = (start, start);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let expired: Vec<String> = shared.read(|state| {
            let expired = state.expiry.iter().filter(|(_, at)| **at <= now);
            expired.map(|(id, _)| id.clone()).collect()
        });
        for id in expired {
            shared.write(|state| {
                state.expiry.remove(&id);
                if state.store.session(&id).is_some() {
                    state.store.destroy_session(&id);
                }
            });
        }
        let reap = now.duration_since(reaped) >= shared.config.reap_interval;
        let sync = now.duration_since(synced) >= FULL_SYNC;
        if reap {
            reaped = now;
        }
        if sync {
            synced = now;
        }
        shared.write(|state| {
            state.local.tend(&mut state.store, now);
            if reap {
                state.local.reap(&mut state.store, now, shared.config.shortest_reap);
            }
            if sync {
                state.local.full_sync(&mut state.store);
            }
        });
    }
}

/// The version of Consul whose behaviour this is.
pub(crate) const VERSION: &str = "1.8.7";

/// Where a new one-server cluster is when its node is registered.
const FIRST_INDEX: u64 = 10;

/// How precisely sessions expire and held-back outputs are written.
const TICK: Duration = Duration::from_millis(100);

/// As often as Consul compares an agent's whole state with the catalog.
const FULL_SYNC: Duration = Duration::from_secs(60);
