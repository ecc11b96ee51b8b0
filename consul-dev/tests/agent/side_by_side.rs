//! A real Consul and our agent next to each other, and what of their answers has to be equal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use consul_dev::{Agent, Config, Definition};
use serde_json::{Value, json};

use crate::wire::{Answer, call, get, try_call, until};

const NODE: &str = "pair";

/// Both, empty, with the same names and ports where names and ports show.
pub(crate) struct Pair {
    pub(crate) real: SocketAddr,
    pub(crate) dev: SocketAddr,
    _agent: Agent,
    _process: Process,
}

struct Process {
    child: Child,
    folder: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Pair {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// With the definitions of this folder, if any.
    pub(crate) async fn start_with(definitions: Option<&Path>) -> Self {
        let ports: [u16; 4] = free_ports();
        let folder = std::env::temp_dir().join(format!("consul-dev-{}-{}", std::process::id(), ports[0]));
        std::fs::create_dir_all(&folder).unwrap();
        let [http, server, lan, wan] = ports;
        let config = json!({
            "ports": {"http": http, "https": -1, "grpc": -1, "dns": -1, "server": server, "serf_lan": lan, "serf_wan": wan},
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "log_level": "warn",
            "datacenter": "dc1",
            "node_name": NODE,
            "disable_update_check": true,
        });
        let file = folder.join("consul.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(real_consul());
        command.args(["agent", "-dev", "-config-file"]).arg(&file);
        if let Some(definitions) = definitions {
            command.arg("-config-dir").arg(definitions);
        }
        // Without a data folder Consul takes `./services` for services that it saved itself, and fails on other files there.
        command.current_dir(&folder);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let process = Process { child, folder };
        let real = SocketAddr::from(([127, 0, 0, 1], http));
        until(30, "the start of Consul", async || {
            // The node is complete once its own agent has written it, which is after the leader did.
            let nodes = try_call(real, "GET", "/v1/catalog/nodes", "").await.ok()?;
            nodes.text().contains("consul-network-segment").then_some(())
        })
        .await;
        let config = Config {
            node_name: NODE.to_owned(),
            server_port: server,
            definitions: definitions.map(|folder| Definition::read_folder(folder).unwrap()).unwrap_or_default(),
            ..Config::default()
        };
        let agent = Agent::start(config).await.unwrap();
        Self { real, dev: agent.addr(), _agent: agent, _process: process }
    }

    /// Send the same to both. Retries reads until both agree, for a moment: the real agent writes to its catalog a little
    /// after it answered. Panics with both answers if they do not.
    pub(crate) async fn same(&self, method: &str, target: &str, body: &str) -> (Answer, Answer) {
        self.same_as(method, target, target, body).await
    }

    /// As `same`, with a target for each, the real one first.
    pub(crate) async fn same_as(&self, method: &str, real: &str, dev: &str, body: &str) -> (Answer, Answer) {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let (ours, theirs) = (call(self.dev, method, dev, body).await, call(self.real, method, real, body).await);
            let (left, right) = (comparable(dev, &ours), comparable(real, &theirs));
            if left == right {
                return (theirs, ours);
            }
            if method != "GET" || Instant::now() > deadline {
                panic!("{method} {real} {body}\n  Consul:     {right}\n  consul-dev: {left}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Read from both until they agree on everything but indexes, whose order depends on chance, and these members.
    pub(crate) async fn same_but_indexes(&self, target: &str, members: &[&str]) -> Value {
        let plain = async |addr| {
            let mut value = get(addr, target).await.json();
            walk(&mut value, &mut |key, value| {
                if INDEXES.contains(&key) || members.contains(&key) {
                    *value = Value::Null;
                }
            });
            value
        };
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let (real, dev) = (plain(self.real).await, plain(self.dev).await);
            if real == dev {
                return real;
            }
            assert!(Instant::now() < deadline, "GET {target}\n  Consul:     {real}\n  consul-dev: {dev}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until both agree on the order of the indexes of all these reads.
    pub(crate) async fn same_indexes(&self, targets: &[&str], after: &str) {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let (mut real, mut dev) = (Vec::new(), Vec::new());
            for target in targets {
                real.push(get(self.real, target).await.index());
                dev.push(get(self.dev, target).await.index());
            }
            let (left, right) = (ranks(&dev), ranks(&real));
            if left == right {
                return;
            }
            if Instant::now() > deadline {
                let rows = targets.iter().zip(real.iter().zip(&dev)).map(|(t, (r, d))| format!("  {r:5} {d:5} {t}"));
                let rows: Vec<String> = rows.collect();
                panic!("after {after}: indexes of Consul, of consul-dev\n{}", rows.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The path that the script prints, which finds or fetches a real Consul.
fn real_consul() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/consul");
    let output = Command::new(&script).output().expect("the script runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().last().unwrap_or_default();
    assert!(output.status.success() && Path::new(path).is_file(), "{} gives no Consul: {output:?}", script.display());
    path.into()
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// What has to be equal: status, headers that mean something, and the body with identifiers hidden, indexes as ranks, and
/// lists in order where Consul gives none.
fn comparable(target: &str, answer: &Answer) -> String {
    let names = [
        "content-type",
        "x-consul-index",
        "x-consul-knownleader",
        "x-consul-lastcontact",
        "x-consul-effective-consistency",
        "x-content-type-options",
        "content-security-policy",
        "allow",
        "location",
        "vary",
        "connection",
    ];
    let mut headers = BTreeMap::new();
    for name in names {
        if let Some(value) = answer.header(name) {
            headers.insert(name, if name == "x-consul-index" { "present".to_owned() } else { value.to_owned() });
        }
    }
    let body = match serde_json::from_slice::<Value>(&answer.body) {
        Err(_) => hide_ids(&answer.text()),
        Ok(mut value) => {
            let mut indexes: BTreeSet<u64> = BTreeSet::new();
            walk(&mut value, &mut |key, value| {
                if INDEXES.contains(&key) {
                    indexes.extend(value.as_u64());
                }
            });
            indexes.extend(answer.header("x-consul-index").map(|_| answer.index()));
            let rank = |index: u64| indexes.iter().position(|known| *known == index).unwrap();
            headers
                .insert("index rank", answer.header("x-consul-index").map_or(0, |_| rank(answer.index())).to_string());
            walk(&mut value, &mut |key, value| {
                if INDEXES.contains(&key) {
                    *value = json!(format!("rank {}", rank(value.as_u64().unwrap())));
                }
                if key == "ContentHash" {
                    *value = json!("hash");
                }
            });
            if target.starts_with("/v1/catalog/services")
                && let Value::Object(members) = &mut value
            {
                for tags in members.values_mut().filter_map(Value::as_array_mut) {
                    tags.sort_by_key(Value::to_string);
                }
            }
            if target.starts_with("/v1/session/")
                && let Value::Array(sessions) = &mut value
            {
                sessions.sort_by_key(|session| session["Name"].to_string());
            }
            hide_ids(&value.to_string())
        }
    };
    format!("{} {headers:?} {body}", answer.status.as_u16())
}

const INDEXES: [&str; 2] = ["CreateIndex", "ModifyIndex"];

fn walk(value: &mut Value, visit: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(members) => {
            for (key, value) in members {
                visit(key, value);
                walk(value, visit);
            }
        }
        _ => {}
    }
}

fn hide_ids(text: &str) -> String {
    let mut hidden = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.get(..36).is_some_and(is_uuid) {
            hidden.push_str("<uuid>");
            rest = &rest[36..];
            continue;
        }
        let length = rest.chars().next().map_or(0, char::len_utf8);
        hidden.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    hidden
}

fn is_uuid(text: &str) -> bool {
    text.char_indices().all(|(at, c)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() })
}

fn ranks(indexes: &[u64]) -> Vec<usize> {
    let known: BTreeSet<u64> = indexes.iter().copied().collect();
    indexes.iter().map(|index| known.iter().position(|k| k == index).unwrap()).collect()
}
