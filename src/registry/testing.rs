//! For tests of this folder: a scripted Consul, the real one, and a look at what the sources hand over.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Publish;
use super::publish::{Feed, Manual};
use crate::consul::{Client, Config, Consistency, Token};
use crate::route::{Instance, Table};

/// A Consul that does what the test wants. Blocking queries block.
pub(super) struct Fake {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    wan: Wan,
    address: SocketAddr,
    server: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// Other datacenters that can be asked for.
type Wan = Arc<Mutex<BTreeMap<String, (Arc<Mutex<State>>, watch::Sender<u64>)>>>;

#[derive(Default)]
pub(super) struct State {
    index: u64,
    services_index: u64,
    checks_index: u64,
    kv_index: u64,
    pub(super) services: BTreeMap<String, Svc>,
    pub(super) nodes: BTreeMap<String, Vec<(String, String)>>,
    /// The index of each service.
    touched: BTreeMap<String, u64>,
    kv: BTreeMap<String, (Vec<u8>, u64)>,
    pub(super) agent: BTreeMap<String, Value>,
    faults: Vec<(String, Fault)>,
    log: Vec<(Instant, String)>,
    pub(super) tokens: Vec<String>,
    pub(super) filtered: bool,
}

impl State {
    fn touch(&mut self, name: &str) {
        self.touched.insert(name.into(), self.index);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Svc {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) node: String,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) tags: Vec<String>,
    pub(super) kind: String,
    pub(super) checks: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    Hang,
    Status(u16, &'static str),
    /// Close without an answer.
    Cut,
    Delay(Duration),
    /// An empty list (or object) with this index.
    Empty(u64),
    /// The right answer with this index.
    Index(Option<u64>),
    /// The first half of the body.
    Half,
    /// Every other request fails with 500.
    EveryOther(Arc<std::sync::atomic::AtomicUsize>),
}

/// A passing instance with one route tag.
pub(super) fn svc(name: &str, id: &str, port: u16) -> Svc {
    Svc {
        name: name.into(),
        id: id.into(),
        node: "n1".into(),
        address: "10.0.0.1".into(),
        port,
        tags: vec![format!("urlprefix-/{name}")],
        checks: vec![(format!("service:{id}"), "passing".into())],
        ..Svc::default()
    }
}

impl Fake {
    pub(super) async fn start() -> Self {
        let state = State { index: 10, services_index: 10, checks_index: 10, kv_index: 10, ..State::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            state: Arc::new(Mutex::new(state)),
            changed: watch::Sender::new(0),
            wan: Wan::default(),
            address: listener.local_addr().unwrap(),
            server: Mutex::new(None),
        };
        fake.serve(listener);
        fake
    }

    pub(super) fn config(&self) -> Config {
        config(&self.address.to_string())
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.config()).unwrap()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on this one answers for the other with `dc=`; the faults and the log of such requests are those of the other.
    pub(super) fn join(&self, datacenter: &str, other: &Fake) {
        self.wan.lock().unwrap().insert(datacenter.into(), (other.state.clone(), other.changed.clone()));
    }

    pub(super) fn part(&self, datacenter: &str) {
        self.wan.lock().unwrap().remove(datacenter);
    }

    pub(super) fn put(&self, svc: Svc) {
        self.write(|state| {
            state.touch(&svc.name);
            let key = format!("{}/{}", svc.node, svc.id);
            let old = state.services.insert(key, svc.clone());
            let old = old.unwrap_or_default();
            state.services_index = state.index;
            if old.checks != svc.checks || old.tags != svc.tags {
                state.checks_index = state.index;
            }
        });
    }

    pub(super) fn remove(&self, key: &str) {
        self.write(|state| {
            let gone = state.services.remove(key).unwrap();
            state.touch(&gone.name);
            (state.services_index, state.checks_index) = (state.index, state.index);
        });
    }

    pub(super) fn check(&self, key: &str, status: &str) {
        self.write(|state| {
            let svc = state.services.get_mut(key).unwrap();
            svc.checks[0].1 = status.into();
            let name = svc.name.clone();
            state.touch(&name);
            state.checks_index = state.index;
        });
    }

    pub(super) fn node_check(&self, node: &str, id: &str, status: &str) {
        self.write(|state| {
            let checks = state.nodes.entry(node.into()).or_default();
            checks.retain(|(i, _)| i != id);
            checks.push((id.into(), status.into()));
            state.checks_index = state.index;
        });
    }

    pub(super) fn kv(&self, key: &str, value: Option<&str>) {
        self.write(|state| {
            match value {
                Some(value) => state.kv.insert(key.into(), (value.into(), state.index)),
                None => state.kv.remove(key),
            };
            state.kv_index = state.index;
        });
    }

    /// As after the loss of all data: nothing there, and indexes start again.
    pub(super) fn forget_everything(&self) {
        self.write(|state| {
            state.services.clear();
            state.kv.clear();
            state.index = 3;
            (state.services_index, state.checks_index, state.kv_index) = (3, 3, 3);
        });
    }

    /// The first fault whose pattern is in the path counts. An empty pattern: all of them.
    pub(super) fn fault(&self, pattern: &str, fault: Fault) {
        self.state().faults.insert(0, (pattern.into(), fault));
    }

    pub(super) fn heal(&self) {
        self.state().faults.clear();
    }

    /// Closes all connections and refuses new ones.
    pub(super) async fn refuse(&self) {
        let server = self.server.lock().unwrap().take();
        if let Some(server) = server {
            server.abort();
            let _ = server.await;
        }
    }

    pub(super) async fn accept(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(e) if Instant::now() > deadline => panic!("{e}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.serve(listener);
    }

    /// Requests so far that contain this.
    pub(super) fn saw(&self, pattern: &str) -> Vec<String> {
        self.state().log.iter().filter(|(_, r)| r.contains(pattern)).map(|(_, r)| r.clone()).collect()
    }

    pub(super) fn times(&self, pattern: &str) -> Vec<Instant> {
        self.state().log.iter().filter(|(_, r)| r.contains(pattern)).map(|(at, _)| *at).collect()
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        state.index += 1;
        change(&mut state);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    fn serve(&self, listener: TcpListener) {
        let (state, changed, wan) = (self.state.clone(), self.changed.clone(), self.wan.clone());
        *self.server.lock().unwrap() = Some(tokio::spawn(async move {
            // They end with the server.
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (state, changed, wan) = (state.clone(), changed.clone(), wan.clone());
                connections.spawn(async move {
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let service = hyper::service::service_fn(|request| answer(request, &state, &changed, &wan));
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        }));
    }
}

async fn answer(
    request: Request<Incoming>,
    state: &Arc<Mutex<State>>,
    changes: &watch::Sender<u64>,
    wan: &Wan,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let parameter =
        |name: &str| query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
    let other = match parameter("dc") {
        None => None,
        Some(name) => match wan.lock().unwrap().get(&name) {
            Some(other) => Some(other.clone()),
            None => {
                state.lock().unwrap().log.push((Instant::now(), format!("{} {}", head.method, head.uri)));
                return Ok(Response::builder().status(500).body(Full::from("No path to datacenter"))?);
            }
        },
    };
    let (state, changes) = other.as_ref().map_or((state, changes), |(state, changes)| (state, changes));
    let fault = {
        let mut state = state.lock().unwrap();
        state.log.push((Instant::now(), format!("{} {}", head.method, head.uri)));
        let token = head.headers.get("x-consul-token").map(|v| v.to_str().unwrap().to_owned());
        state.tokens.extend(token);
        state.faults.iter().find(|(pattern, _)| path.contains(pattern.as_str())).map(|(_, fault)| fault.clone())
    };
    match &fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Cut) => return Err("cut".into()),
        Some(Fault::Status(code, text)) => {
            return Ok(Response::builder().status(*code).body(Full::from(*text))?);
        }
        Some(Fault::EveryOther(n)) if n.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) => {
            return Ok(Response::builder().status(500).body(Full::from("every other"))?);
        }
        Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
        _ => {}
    }
    if head.method == Method::PUT {
        let answer = put(&mut state.lock().unwrap(), &path, &parameter, &body);
        changes.send_modify(|n| *n += 1);
        return Ok(answer);
    }
    if let Some(index) = parameter("index").and_then(|i| i.parse::<u64>().ok()) {
        let mut changed = changes.subscribe();
        let wait = parameter("wait").map_or(300, |w| w.trim_end_matches('s').parse().unwrap());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(wait);
        while get(&state.lock().unwrap(), &path, &query).1 <= index {
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                _ => break,
            }
        }
    }
    let (value, index, filtered) = {
        let state = state.lock().unwrap();
        let (value, index) = get(&state, &path, &query);
        (value, index, state.filtered)
    };
    let (value, index) = match fault {
        Some(Fault::Empty(index)) => (value.map(|v| if v.is_object() { json!({}) } else { json!([]) }), Some(index)),
        Some(Fault::Index(index)) => (value, index),
        _ => (value, Some(index)),
    };
    let mut response = Response::builder();
    if let Some(index) = index {
        response = response.header("X-Consul-Index", index);
    }
    if filtered {
        response = response.header("X-Consul-Results-Filtered-By-ACLs", "true");
    }
    let Some(value) = value else { return Ok(response.status(404).body(Full::default())?) };
    let mut text = value.to_string();
    if matches!(fault, Some(Fault::Half)) {
        text.truncate(text.len() / 2);
    }
    Ok(response.body(Full::from(text))?)
}

fn put(
    state: &mut State,
    path: &str,
    parameter: &dyn Fn(&str) -> Option<String>,
    body: &[u8],
) -> Response<Full<Bytes>> {
    let ok = |text: &'static str| Response::new(Full::from(text));
    if let Some(key) = path.strip_prefix("/v1/kv/") {
        let cas: u64 = parameter("cas").unwrap().parse().unwrap();
        if state.kv.get(key).map_or(0, |(_, index)| *index) != cas {
            return ok("false");
        }
        state.index += 1;
        state.kv_index = state.index;
        state.kv.insert(key.into(), (body.to_vec(), state.index));
        return ok("true");
    }
    if path == "/v1/agent/service/register" {
        let value: Value = serde_json::from_slice(body).unwrap();
        state.agent.insert(value["ID"].as_str().unwrap().to_owned(), value);
    } else if let Some(id) = path.strip_prefix("/v1/agent/service/deregister/") {
        state.agent.remove(id);
    }
    ok("")
}

fn get(state: &State, path: &str, query: &str) -> (Option<Value>, u64) {
    let check = |svc: &Svc, (id, status): &(String, String)| json!({"Node": svc.node, "CheckID": id, "Status": status, "ServiceID": svc.id, "ServiceName": svc.name, "ServiceTags": svc.tags});
    let node_check = |node: &str, (id, status): &(String, String)| json!({"Node": node, "CheckID": id, "Status": status, "ServiceID": "", "ServiceName": "", "ServiceTags": null});
    let service = |svc: &Svc| {
        json!({"ID": svc.id, "Service": svc.name, "Tags": svc.tags, "Address": svc.address, "Port": svc.port, "Kind": svc.kind,
               "ModifyIndex": 1})
    };
    let node_checks =
        |node: &str| state.nodes.get(node).into_iter().flatten().map(|c| node_check(node, c)).collect::<Vec<_>>();
    let most = state.services_index.max(state.checks_index);
    let path = percent_encoding::percent_decode_str(path).decode_utf8().unwrap().into_owned();
    match path.as_str() {
        "/v1/agent/self" => (Some(json!({"Config": {"Datacenter": "dc1"}})), 0),
        "/v1/agent/services" => {
            let all = state.agent.iter().map(|(id, v)| {
                (id.clone(), json!({"ID": id, "Service": v["Name"], "Tags": v["Tags"], "Address": v["Address"], "Port": v["Port"]}))
            });
            (Some(Value::Object(all.collect())), 0)
        }
        "/v1/catalog/services" => {
            let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for svc in state.services.values() {
                all.entry(&svc.name).or_default().extend(svc.tags.iter().map(String::as_str));
            }
            (Some(json!(all)), state.services_index)
        }
        "/v1/health/state/any" => {
            let services = state.services.values().flat_map(|svc| svc.checks.iter().map(move |c| check(svc, c)));
            let nodes = state.nodes.keys().flat_map(|node| node_checks(node));
            (Some(services.chain(nodes).collect()), state.checks_index)
        }
        "/v1/internal/ui/nodes" => {
            let mut nodes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
            for svc in state.services.values() {
                nodes.entry(&svc.node).or_default().push(service(svc));
            }
            let all = nodes
                .into_iter()
                .map(|(node, services)| json!({"Node": node, "Address": "10.0.0.9", "Services": services}));
            (Some(all.collect()), most)
        }
        _ => match (path.strip_prefix("/v1/health/service/"), path.strip_prefix("/v1/kv/")) {
            (Some(name), _) => {
                let entries = state.services.values().filter(|svc| svc.name == name).map(|svc| {
                    let mut checks: Vec<Value> = svc.checks.iter().map(|c| check(svc, c)).collect();
                    checks.extend(node_checks(&svc.node));
                    json!({"Node": {"Node": svc.node, "Address": "10.0.0.9"}, "Service": service(svc), "Checks": checks})
                });
                (Some(entries.collect()), state.touched.get(name).copied().unwrap_or(most))
            }
            (_, Some(key)) => {
                let found: Vec<_> = match query.contains("recurse") || query.contains("keys") {
                    true => state.kv.iter().filter(|(k, _)| k.starts_with(key)).collect(),
                    false => state.kv.iter().filter(|(k, _)| *k == key).collect(),
                };
                if found.is_empty() {
                    return (None, state.kv_index);
                }
                let pair = |(key, (value, index)): &(&String, &(Vec<u8>, u64))| {
                    use base64::Engine;
                    let text = base64::engine::general_purpose::STANDARD.encode(value);
                    json!({"Key": key, "Value": text, "ModifyIndex": index})
                };
                let all = match query.contains("keys") {
                    true => found.iter().map(|(k, _)| json!(k)).collect(),
                    false => found.iter().map(pair).collect(),
                };
                (Some(all), state.kv_index)
            }
            _ => (None, 0),
        },
    }
}

pub(super) fn config(address: &str) -> Config {
    Config {
        addr: address.to_owned(),
        scheme: "http".into(),
        path_prefix: String::new(),
        token: Token::None,
        namespace: None,
        partition: None,
        datacenter: None,
        consistency: Consistency::Consistent,
        tls: Default::default(),
    }
}

/// A real agent in development mode.
pub(super) struct Real {
    program: PathBuf,
    child: tokio::process::Child,
    pub(super) address: String,
    http: reqwest::Client,
    folder: tempfile::TempDir,
}

impl Real {
    pub(super) async fn start() -> Self {
        let program = crate::testing::consul::program().await;
        let folder = tempfile::tempdir().unwrap();
        let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let http = port();
        let ports = json!({"http": http, "https": -1, "grpc": -1, "dns": -1, "server": port(), "serf_lan": port(), "serf_wan": port()});
        let config = json!({"ports": ports, "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "log_level": "warn",
            "datacenter": "dc1", "node_name": "agent", "disable_update_check": true, "performance": {"raft_multiplier": 1}});
        let file = folder.path().join("consul.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let child = Self::spawn(&program, folder.path());
        let address = format!("127.0.0.1:{http}");
        let settings = crate::fetch::Settings { direct: true, idle_connections: 4, ..Default::default() };
        let http = crate::fetch::Client::new(settings).unwrap().current();
        let real = Self { program, child, address, http, folder };
        real.answers().await;
        real
    }

    fn spawn(program: &Path, folder: &Path) -> tokio::process::Child {
        tokio::process::Command::new(program)
            .args(["agent", "-dev", "-config-file"])
            .arg(folder.join("consul.json"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    pub(super) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// After [`Real::kill`]. In development mode nothing survives.
    pub(super) async fn restart(&mut self) {
        self.child = Self::spawn(&self.program, self.folder.path());
        self.answers().await;
    }

    async fn answers(&self) {
        let real = self;
        let deadline = Instant::now() + Duration::from_secs(30);
        while !real.get("/v1/health/state/any").await.is_some_and(|v| v.to_string().contains("serfHealth")) {
            assert!(Instant::now() < deadline, "Consul does not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        self.http.get(format!("http://{}{path}", self.address)).send().await.ok()?.json().await.ok()
    }

    pub(super) async fn put(&self, path: &str, body: Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let sent = self.http.put(format!("http://{}{path}", self.address)).body(body).send().await.unwrap();
        let status = sent.status();
        assert!(status.is_success(), "{path}: {status} {}", sent.text().await.unwrap());
    }

    /// Straight into the catalog, on a node that no agent owns. `check`: none leaves existing ones alone.
    pub(super) async fn catalog(&self, id: &str, name: &str, port: u16, tags: &[&str], check: Option<&str>) {
        let mut body = json!({"Node": "node", "Address": "127.0.0.1",
            "Service": {"ID": id, "Service": name, "Address": "10.0.0.1", "Port": port, "Tags": tags}});
        if let Some(status) = check {
            body["Check"] = json!({"Node": "node", "CheckID": format!("{id}-check"), "Name": "c", "Status": status, "ServiceID": id});
        }
        self.put("/v1/catalog/register", body).await;
    }

    pub(super) async fn agent(&self, id: &str, name: &str, port: u16, tags: &[&str]) {
        let body = json!({"ID": id, "Name": name, "Address": "10.0.0.1", "Port": port, "Tags": tags,
            "Checks": [{"CheckID": format!("{id}:0"), "TTL": "30m", "Status": "passing"}]});
        self.put("/v1/agent/service/register", body).await;
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// What the sources have handed over so far, seen instead of a table.
pub(super) struct View {
    feed: Feed,
    pub(super) services: HashMap<String, Vec<Instance>>,
    pub(super) manual: Option<Manual>,
    pub(super) page: Option<String>,
    pub(super) services_known: bool,
    pub(super) manual_known: bool,
}

impl View {
    pub(super) fn new(feed: &Feed) -> Self {
        Self {
            feed: feed.clone(),
            services: HashMap::new(),
            manual: None,
            page: None,
            services_known: false,
            manual_known: false,
        }
    }

    pub(super) fn look(&mut self) {
        let taken = self.feed.take();
        for (giver, instances) in taken.services {
            match instances.is_empty() {
                true => self.services.remove(&giver.to_string()),
                false => self.services.insert(giver.to_string(), instances.to_vec()),
            };
        }
        if taken.manual.is_some() {
            self.manual = taken.manual;
        }
        if let Some(page) = taken.page {
            self.page = Some(page.to_string());
        }
        (self.services_known, self.manual_known) = (taken.services_known, taken.manual_known);
    }

    /// Waits until this holds; returns how long that took.
    pub(super) async fn until(&mut self, what: &str, seconds: f64, holds: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            self.look();
            if holds(self) {
                return started.elapsed();
            }
            assert!(
                started.elapsed().as_secs_f64() < seconds,
                "not within {seconds} s: {what}; there is {:?}",
                self.names()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Fails if this does not hold all the time.
    pub(super) async fn stays(&mut self, what: &str, seconds: f64, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed().as_secs_f64() < seconds {
            self.look();
            assert!(holds(self), "after {:?}: {what}; there is {:?}", started.elapsed(), self.names());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `name:port port`, sorted.
    pub(super) fn names(&self) -> String {
        let mut all: Vec<String> = self
            .services
            .iter()
            .map(|(name, list)| {
                let ports: Vec<String> = list.iter().map(|i| i.port.to_string()).collect();
                format!("{name}:{}", ports.join(" "))
            })
            .collect();
        all.sort();
        all.join(", ")
    }

    pub(super) fn is(&self, expected: &str) -> bool {
        self.names() == expected
    }
}

/// Takes tables as the program does, and remembers them.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Vec<Published>>);

type Published = (Instant, Arc<Table>, Arc<str>);

impl Publish for Recorder {
    fn publish(&self, table: Arc<Table>, page: Arc<str>) {
        self.0.lock().unwrap().push((Instant::now(), table, page));
    }
}

impl Recorder {
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(super) fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(super) fn times(&self) -> Vec<Instant> {
        self.0.lock().unwrap().iter().map(|(at, _, _)| *at).collect()
    }

    /// The table in force as text, one line per target; empty before the first.
    pub(super) fn listing(&self) -> String {
        self.0.lock().unwrap().last().map(|(_, table, _)| table.listing()).unwrap_or_default()
    }

    pub(super) fn table(&self) -> Option<Arc<Table>> {
        self.0.lock().unwrap().last().map(|(_, table, _)| table.clone())
    }

    pub(super) fn page(&self) -> Option<String> {
        self.0.lock().unwrap().last().map(|(_, _, page)| page.to_string())
    }

    pub(super) async fn until(&self, what: &str, seconds: f64, holds: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !holds(self) {
            assert!(
                started.elapsed().as_secs_f64() < seconds,
                "not within {seconds} s: {what}; there is\n{}",
                self.listing()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        started.elapsed()
    }

    pub(super) async fn shows(&self, text: &str) -> Duration {
        self.until(text, 3.0, |r| r.listing().contains(text)).await
    }

    pub(super) async fn lacks(&self, text: &str) -> Duration {
        self.until(text, 3.0, |r| !r.listing().contains(text)).await
    }

    pub(super) async fn stays(&self, what: &str, seconds: f64, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed().as_secs_f64() < seconds {
            assert!(holds(self), "after {:?}: {what}; there is\n{}", started.elapsed(), self.listing());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Runs something and returns what it logged.
pub(super) fn logged(run: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}
