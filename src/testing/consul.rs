//! A Consul for tests: the real program, or anything else that answers like it, with the calls that tests need.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::process::{Process, Signal};
use super::{PATIENCE, client, free_addrs, until};

pub(crate) struct Consul {
    /// The real one, in development mode, with its directory; `None` if somebody else has started what answers, our own
    /// development agent for example.
    process: Option<(Process, tempfile::TempDir)>,
    addr: SocketAddr,
    /// Where other datacenters find it; 0 if it is not ours.
    wan: u16,
}

/// A node of the catalog that belongs to no agent, so that nothing repairs what a test writes there.
const NODE: &str = "test-node";

impl Consul {
    /// Starts the real one and waits until it has a leader and knows itself.
    pub(crate) async fn real() -> Consul {
        Self::real_in("dc1").await
    }

    /// The same in another datacenter.
    pub(crate) async fn real_in(datacenter: &str) -> Consul {
        let program = program().await;
        // A port that is free now can be taken a moment later; then Consul ends at once, and others are tried.
        for _ in 0..5 {
            let [http, server, lan, wan] = free_addrs().map(|a| a.port());
            let dir = tempfile::tempdir().expect("a directory");
            let name = format!("test-{}-{http}", std::process::id());
            let config = json!({
                "ports": {
                    "http": http, "https": -1, "grpc": -1, "dns": -1,
                    "server": server, "serf_lan": lan, "serf_wan": wan,
                },
                "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "node_name": name, "log_level": "warn",
                "datacenter": datacenter,
                "disable_update_check": true, "performance": { "raft_multiplier": 1 },
            });
            let file = dir.path().join("consul.json");
            std::fs::write(&file, config.to_string()).expect("a file in an own directory");
            let args = ["agent", "-dev", "-config-file", file.to_str().expect("an ASCII path")];
            let process = Process::start(&program, &args, dir.path(), &[]);
            let addr = SocketAddr::from(([127, 0, 0, 1], http));
            let mut consul = Consul { process: Some((process, dir)), addr, wan };
            if consul.comes_up(&name).await {
                return consul;
            }
        }
        panic!("Consul did not start on five sets of ports");
    }

    /// One that runs already and is not ours to stop.
    pub(crate) fn at(addr: SocketAddr) -> Consul {
        Consul { process: None, addr, wan: 0 }
    }

    async fn comes_up(&mut self, name: &str) -> bool {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some((process, _)) = &mut self.process
                && process.exited().is_some()
            {
                return false;
            }
            // Another program may listen where ours could not: only the agent with our name counts.
            if tokio::net::TcpStream::connect(self.addr).await.is_ok() {
                let (status, leader) = self.call("GET", "/v1/status/leader", "").await;
                if status == 200 && leader.len() > 2 {
                    let (_, own) = self.call("GET", "/v1/agent/self", "").await;
                    let own: Value = serde_json::from_str(&own).unwrap_or_default();
                    if own["Config"]["NodeName"] != name {
                        return false;
                    }
                    let (_, nodes) = self.call("GET", &format!("/v1/health/node/{name}"), "").await;
                    if nodes.contains("serfHealth") {
                        return true;
                    }
                }
            }
            if let Some((process, _)) = &self.process {
                assert!(
                    std::time::Instant::now() < end,
                    "Consul has no leader after {PATIENCE:?}:\n{}",
                    process.said()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `127.0.0.1:PORT`, as `registry.consul.addr` wants it.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes one federation of the two, and waits until this one can ask the other.
    pub(crate) async fn join_wan(&self, other: &Consul, datacenter: &str) {
        self.ok("PUT", &format!("/v1/agent/join/127.0.0.1:{}?wan=1", other.wan), "").await;
        until(PATIENCE, "an answer of the other datacenter", async || {
            let (status, _) = self.call("GET", &format!("/v1/catalog/services?dc={datacenter}"), "").await;
            (status == 200).then_some(())
        })
        .await;
    }

    /// Ends it without a farewell.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops the process without closing anything: connections stay open and nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        match &self.process {
            Some((process, _)) => process.signal(signal),
            None => panic!("not ours to stop"),
        }
    }

    /// Status and body.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let response = client::request(self.addr, method, "consul", path, body).await;
        (response.status, response.text())
    }

    /// As `call`; panics on any other status than 200. The body as JSON, `Null` if it is none.
    pub(crate) async fn ok(&self, method: &str, path: &str, body: impl ToString) -> Value {
        let (status, text) = self.call(method, path, &body.to_string()).await;
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    // The catalog: one synchronous write, any state of checks, nothing to wait for.

    /// Registers a service at `addr` with these tags and one check per state in `checks` (`passing`, `critical`, ...).
    pub(crate) async fn put(&self, id: &str, name: &str, addr: SocketAddr, tags: &[&str], checks: &[&str]) {
        let checks: Vec<Value> = checks
            .iter()
            .enumerate()
            .map(|(i, state)| {
                json!({ "Node": NODE, "CheckID": format!("{id}-check-{i}"), "Name": format!("check {i}"), "Status": state, "ServiceID": id })
            })
            .collect();
        let service =
            json!({ "ID": id, "Service": name, "Address": addr.ip().to_string(), "Port": addr.port(), "Tags": tags });
        let body = json!({ "Node": NODE, "Address": "127.0.0.1", "Service": service, "Checks": checks });
        self.ok("PUT", "/v1/catalog/register", body).await;
    }

    /// Sets one check: `check` is its number as in `put`.
    pub(crate) async fn put_check(&self, id: &str, check: usize, state: &str) {
        let check = json!({ "Node": NODE, "CheckID": format!("{id}-check-{check}"), "Name": format!("check {check}"), "Status": state, "ServiceID": id });
        let body = json!({ "Node": NODE, "Address": "127.0.0.1", "SkipNodeUpdate": true, "Check": check });
        self.ok("PUT", "/v1/catalog/register", body).await;
    }

    pub(crate) async fn drop(&self, id: &str) {
        self.ok("PUT", "/v1/catalog/deregister", json!({ "Node": NODE, "ServiceID": id })).await;
    }

    // The agent: as applications do it. The catalog follows a moment later.

    pub(crate) async fn register(&self, definition: Value) {
        self.ok("PUT", "/v1/agent/service/register", definition).await;
    }

    pub(crate) async fn deregister(&self, id: &str) {
        self.ok("PUT", &format!("/v1/agent/service/deregister/{id}"), "").await;
    }

    /// Status of a TTL check: `pass`, `warn` or `fail`.
    pub(crate) async fn check(&self, id: &str, status: &str) {
        self.ok("PUT", &format!("/v1/agent/check/{status}/{id}"), "").await;
    }

    pub(crate) async fn maintenance(&self, service: &str, enable: bool) {
        self.ok("PUT", &format!("/v1/agent/service/maintenance/{service}?enable={enable}"), "").await;
    }

    // Keys and values.

    pub(crate) async fn kv_put(&self, key: &str, value: &str) {
        let done = self.ok("PUT", &format!("/v1/kv/{key}"), value).await;
        assert_eq!(done, Value::Bool(true), "KV {key}");
    }

    pub(crate) async fn kv_get(&self, key: &str) -> Option<String> {
        let (status, text) = self.call("GET", &format!("/v1/kv/{key}"), "").await;
        if status == 404 {
            return None;
        }
        let entries: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("KV {key}: {e}: {text}"));
        let value = entries[0]["Value"].as_str().unwrap_or_default();
        Some(String::from_utf8_lossy(&STANDARD.decode(value).expect("Consul encodes values")).into_owned())
    }

    pub(crate) async fn kv_delete(&self, key: &str) {
        self.ok("DELETE", &format!("/v1/kv/{key}?recurse=true"), "").await;
    }

    /// Waits for the `n` instances of a service that health queries must see.
    pub(crate) async fn wait_passing(&self, service: &str, n: usize) -> Vec<Value> {
        until(PATIENCE, &format!("{n} passing instances of {service}"), async || {
            let found = self.ok("GET", &format!("/v1/health/service/{service}?passing=true"), "").await;
            found.as_array().filter(|a| a.len() == n).cloned()
        })
        .await
    }
}

/// Where the real Consul is: as `scripts/check` says, else as `scripts/consul` does.
pub(crate) async fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("FERRIO_TEST_CONSUL") {
        return path.into();
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/consul");
    let output =
        tokio::process::Command::new(&script).output().await.unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last() {
        Some(path) if output.status.success() => path.into(),
        _ => panic!("{} found no Consul: {}", script.display(), String::from_utf8_lossy(&output.stderr)),
    }
}
