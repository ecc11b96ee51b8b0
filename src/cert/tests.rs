#![allow(clippy::unwrap_used)]
//! Sources against what they read from: files, an HTTP server, a real Consul.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::testing::{Authority, Leaf, config, serve};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + 20 * SECOND;
    while !done().await {
        assert!(Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(kind: Kind, env: &Env) -> Arc<Source> {
    start(&CertSource { refresh: SECOND, ..config(kind) }, env).await.unwrap()
}

/// The names of the served certificates, without folders.
pub(super) fn served(source: &Source) -> Vec<String> {
    let short = |entry: Entry| entry.name.rsplit('/').next().unwrap().to_owned();
    source.report().certificates.into_iter().map(short).collect()
}

/// Whether this certificate is served for its name.
pub(super) fn serves(source: &Source, leaf: &Leaf) -> bool {
    let names = Facts::of(leaf.der()).unwrap().names;
    let asked = Asked { name: Some(&names[0]), strict: true, ..Asked::default() };
    match source.store().select(&asked) {
        Selection::Found(key) => key.cert[0].as_ref() == leaf.der(),
        _ => false,
    }
}

fn put(dir: &Path, name: &str, leaf: &Leaf) {
    std::fs::write(dir.join(format!("{name}-cert.pem")), &leaf.cert).unwrap();
    std::fs::write(dir.join(format!("{name}-key.pem")), &leaf.key).unwrap();
}

#[tokio::test]
async fn a_directory_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("certs");
    let authority = Authority::new("ca");
    let (a, b) = (authority.leaf(&["a.test"]), authority.leaf(&["b.test"]));
    let source = run(Kind::Path { cert: root.clone(), client_ca: None }, &Env::of(&[])).await;
    assert!(source.report().error.unwrap().contains("no such file"));
    std::fs::create_dir(&root).unwrap();
    put(&root, "a", &a);
    until("the first set", async || serves(&source, &a)).await;

    put(&root, "b", &b);
    std::fs::write(root.join("broken-cert.pem"), "not a certificate\n").unwrap();
    std::fs::write(root.join("broken-key.pem"), "not a key\n").unwrap();
    until("another one", async || serves(&source, &b)).await;
    until("a report", async || !source.report().problems.is_empty()).await;
    assert_eq!(served(&source), ["a-cert.pem", "b-cert.pem"]);
    assert!(source.report().problems[0].to_string().ends_with("broken-cert.pem: no CERTIFICATE block"));

    for half in ["cert", "key"] {
        std::fs::remove_file(root.join(format!("a-{half}.pem"))).unwrap();
    }
    until("the end of the first one", async || served(&source) == ["b-cert.pem"]).await;

    // Emptied, then gone: what was good stays.
    for file in std::fs::read_dir(&root).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    until("a complaint", async || source.report().error.is_some_and(|error| error.contains("is empty"))).await;
    assert!(serves(&source, &b));
    std::fs::remove_dir(&root).unwrap();
    until("a complaint", async || source.report().error.is_some_and(|error| error.contains("no such file"))).await;
    assert!(serves(&source, &b));

    std::fs::create_dir(&root).unwrap();
    put(&root, "a", &a);
    until("a new set", async || served(&source) == ["a-cert.pem"]).await;
    let report = source.report();
    assert_eq!((report.error, report.problems.len()), (None, 0));
    assert!(report.age.unwrap() < 10 * SECOND);
}

#[tokio::test]
async fn a_directory_that_is_loaded_once_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    put(dir.path(), "a", &authority.leaf(&["a.test"]));
    let kind = Kind::Path { cert: dir.path().into(), client_ca: None };
    let source = start(&config(kind), &Env::of(&[])).await.unwrap();
    put(dir.path(), "b", &authority.leaf(&["b.test"]));
    // Longer than the shortest time between two looks.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(served(&source), ["a-cert.pem"]);
}

#[tokio::test]
async fn certificates_out_of_their_time_are_served_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    put(dir.path(), "a", &authority.leaf_valid(&["a.test"], -9, -1));
    put(dir.path(), "b", &authority.leaf_valid(&["b.test"], 1, 9));
    put(dir.path(), "c", &authority.leaf(&["c.test"]));
    let source = run(Kind::Path { cert: dir.path().into(), client_ca: None }, &Env::of(&[])).await;
    let validity: Vec<_> = source.report().certificates.iter().map(|entry| entry.validity).collect();
    assert_eq!(validity, [Validity::Expired, Validity::NotYet, Validity::Valid]);
}

/// A server with files, which notes what it is asked for.
struct Files {
    addr: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Path and query to status, more header lines, and body.
    files: HashMap<String, (u16, String, String)>,
    /// Heads.
    requests: Vec<String>,
    down: bool,
}

impl Files {
    async fn new() -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let state = shared.clone();
        let addr = serve(move |request| {
            let mut state = state.lock().unwrap();
            state.requests.push(request.head.clone());
            if state.down {
                return None;
            }
            let missing = (404, String::new(), "nothing here".to_owned());
            let (mut status, headers, mut body) = state.files.get(&request.path).cloned().unwrap_or(missing);
            let tag = headers.strip_prefix("ETag: ").map(str::trim);
            if tag.is_some() && request.header("if-none-match") == tag {
                (status, body) = (304, String::new());
            }
            Some((status, headers, body))
        });
        Self { addr: addr.await, shared }
    }

    fn put(&self, path: &str, body: &str) {
        self.answer(path, 200, "", body);
    }

    fn answer(&self, path: &str, status: u16, headers: &str, body: &str) {
        self.shared.lock().unwrap().files.insert(path.into(), (status, headers.into(), body.into()));
    }

    fn down(&self, down: bool) {
        self.shared.lock().unwrap().down = down;
    }

    /// What was asked for since the last call.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().unwrap().requests)
    }
}

#[tokio::test]
async fn a_list_and_the_files_beside_it() {
    let authority = Authority::new("ca");
    let (a, b) = (authority.leaf(&["a.test"]), authority.leaf(&["b.test"]));
    let (server, other) = (Files::new().await, Files::new().await);
    server.put("/certs/list?v=1", "a-cert.pem\r\na-key.pem\n\n/b.pem\n");
    server.put("/certs/a-cert.pem?v=1", &a.cert);
    server.put("/certs/a-key.pem?v=1", &a.key);
    server.answer("/certs/b.pem?v=1", 302, &format!("Location: http://{}/elsewhere\r\n", other.addr), "");
    other.answer("/elsewhere", 200, "ETag: \"1\"\r\n", &format!("{}{}", b.cert, b.key));
    let url = format!("http://user:pass@{}/certs/list?v=1", server.addr);
    let mut config = CertSource { refresh: SECOND, ..config(Kind::Http { cert: url, client_ca: None }) };
    config.header = Some(("X-Api".into(), "secret".into()));
    let source = start(&config, &Env::of(&[])).await.unwrap();
    assert_eq!(served(&source), ["a-cert.pem", "b.pem"]);
    assert_eq!(source.report().place, format!("http://{}/certs/list", server.addr));
    for request in server.requests() {
        assert!(request.contains("\r\nx-api: secret\r\n"), "{request}");
        assert!(request.contains("\r\nauthorization: basic "), "{request}");
    }
    // Secrets are for the configured server.
    let request = &other.requests()[0];
    assert!(!request.contains("x-api") && !request.contains("authorization"), "{request}");
    until("a second round", async || other.requests().iter().any(|r| r.contains("if-none-match: \"1\""))).await;
    assert_eq!(source.report().problems, []);

    // One file fails: its certificate stays, and others change.
    server.answer("/certs/a-key.pem?v=1", 500, "", "oops");
    let newer = authority.leaf(&["b.test"]);
    other.answer("/elsewhere", 200, "ETag: \"2\"\r\n", &format!("{}{}", newer.cert, newer.key));
    until("the newer one", async || serves(&source, &newer)).await;
    assert!(serves(&source, &a));
    assert!(source.report().problems[0].to_string().ends_with("a-cert.pem: status 500"));

    // An error page is no list.
    server.answer("/certs/list?v=1", 503, "", "b.pem\n");
    until("a complaint", async || source.report().error.is_some_and(|error| error.contains("status 503"))).await;
    server.down(true);
    until("a complaint", async || source.report().error.is_some_and(|error| !error.contains("status"))).await;
    let error = source.report().error.unwrap();
    assert!(!error.contains("pass") && !error.contains("v=1"), "{error}");
    assert!(serves(&source, &a) && serves(&source, &newer));
    server.down(false);
    server.put("/certs/list?v=1", "b.pem\n");
    until("the end of trouble", async || served(&source) == ["b.pem"]).await;
    assert_eq!(source.report().error, None);
}

#[tokio::test]
async fn places_that_cannot_be_places_stop_the_start() {
    for (kind, part) in [
        (Kind::Http { cert: "ftp://x/y".into(), client_ca: None }, "http://"),
        (Kind::Http { cert: "nonsense".into(), client_ca: None }, "certificate list"),
        (Kind::Consul { cert: "http://h:1/path".into(), client_ca: None }, "missing prefix: /v1/kv/"),
        (Kind::Consul { cert: "http://h:1/v1/kv/x".into(), client_ca: Some("x".into()) }, "invalid url"),
    ] {
        let error = start(&config(kind), &Env::of(&[])).await.err().expect(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// A real agent in development mode.
struct Consul {
    process: tokio::process::Child,
    addr: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Consul {
    async fn new() -> Self {
        let program = crate::testing::consul::program().await;
        // A free port can be taken by somebody else before the agent binds it: then it ends, and others are tried.
        for _ in 0..5 {
            let held: Vec<_> = (0..4).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
            drop(held);
            let dir = tempfile::tempdir().unwrap();
            let name = format!("cert-{}-{}", std::process::id(), ports[0]);
            let text = serde_json::json!({
                "ports": { "http": ports[0], "https": -1, "grpc": -1, "dns": -1,
                           "server": ports[1], "serf_lan": ports[2], "serf_wan": ports[3] },
                "bind_addr": "127.0.0.1", "node_name": name, "log_level": "err", "disable_update_check": true,
                "performance": { "raft_multiplier": 1 },
            });
            let file = dir.path().join("consul.json");
            std::fs::write(&file, text.to_string()).unwrap();
            let process = tokio::process::Command::new(&program)
                .args(["agent", "-dev", "-config-file"])
                .arg(&file)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let mut consul = Consul { process, addr: SocketAddr::from(([127, 0, 0, 1], ports[0])), _dir: dir };
            let deadline = Instant::now() + 20 * SECOND;
            while consul.process.try_wait().unwrap().is_none() && Instant::now() < deadline {
                let own = consul.call("GET", "/v1/agent/self", "").await.is_some_and(|text| text.contains(&name));
                if own && consul.call("PUT", "/v1/kv/ready", "x").await.is_some_and(|text| text == "true") {
                    return consul;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        panic!("Consul did not start");
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.addr).await.ok()?;
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(body.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.trim().to_owned())
    }

    async fn put(&self, key: &str, value: &str) {
        assert_eq!(self.call("PUT", &format!("/v1/kv/{key}"), value).await.as_deref(), Some("true"));
    }

    async fn delete(&self, prefix: &str) {
        assert!(self.call("DELETE", &format!("/v1/kv/{prefix}?recurse"), "").await.is_some());
    }

    async fn pair(&self, name: &str, leaf: &Leaf) {
        self.put(&format!("ssl/{name}-cert.pem"), &leaf.cert).await;
        self.put(&format!("ssl/{name}-key.pem"), &leaf.key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kv_store_of_consul() {
    let consul = Consul::new().await;
    let authority = Authority::new("ca");
    let (a, b) = (authority.leaf(&["a.test"]), authority.leaf(&["b.test"]));
    let wild = authority.leaf(&["*.wild.test"]);
    consul.put("ca/own.pem", &authority.pem()).await;
    let url = |path: &str| format!("http://{}/v1/kv/{path}", consul.addr);
    let kind = Kind::Consul { cert: url("ssl?token=unused"), client_ca: Some(url("ca")) };
    let source = start(&config(kind), &Env::of(&[])).await.unwrap();
    assert_eq!(source.report().place, url("ssl"));
    assert!(source.report().error.is_none() && served(&source).is_empty());

    consul.pair("a", &a).await;
    until("a certificate", async || serves(&source, &a)).await;
    consul.pair("b", &b).await;
    // Names with a star are keys like others.
    consul.pair("*.wild.test", &wild).await;
    until("others", async || serves(&source, &b)).await;
    let asked = Asked { name: Some("x.wild.test"), strict: true, ..Asked::default() };
    until("the wildcard", async || matches!(source.store().select(&asked), Selection::Found(_))).await;

    // A key of another certificate: the pair keeps what it had.
    consul.put("ssl/a-key.pem", &b.key).await;
    until("a problem", async || !source.report().problems.is_empty()).await;
    assert!(serves(&source, &a) && serves(&source, &b));
    let newer = authority.leaf(&["a.test"]);
    consul.pair("a", &newer).await;
    until("a renewed certificate", async || serves(&source, &newer)).await;
    until("no problem", async || source.report().problems.is_empty()).await;

    consul.delete("ssl/b").await;
    until("the end of one", async || !serves(&source, &b)).await;
    consul.delete("ssl").await;
    until("a complaint", async || source.report().error.is_some_and(|error| error.contains("is empty"))).await;
    assert!(serves(&source, &newer));

    let authorities = source.authorities().unwrap();
    let before = authorities.generation();
    consul.put("ca/own.pem", &Authority::new("other").pem()).await;
    until("other authorities", async || authorities.generation() > before).await;
    let before = authorities.generation();
    consul.delete("ca").await;
    // Nobody is let in, or kept out, because a key was deleted.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(authorities.generation(), before);

    let mut consul = consul;
    consul.process.kill().await.unwrap();
    until("an error", async || source.report().error.is_some_and(|error| !error.contains("is empty"))).await;
    assert!(serves(&source, &newer));
}

/// Many certificates: a change costs what has changed.
#[tokio::test]
async fn two_thousand_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let leaf = |n: usize| authority.leaf(&[&format!("host{n}.test")]);
    for n in 0..2000 {
        put(dir.path(), &format!("{n:04}"), &leaf(n));
    }
    let source = run(Kind::Path { cert: dir.path().into(), client_ca: None }, &Env::of(&[])).await;
    until("all of them", async || source.store().certificates().len() == 2000).await;
    let before = source.store().certificates();
    let begun = Instant::now();
    let newer = leaf(77);
    put(dir.path(), "0077", &newer);
    until("the change", async || serves(&source, &newer)).await;
    // Polling every second, and a build without optimisation.
    assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
    let after = source.store().certificates();
    let same = before.iter().zip(after.iter()).filter(|(a, b)| Arc::ptr_eq(&a.pair, &b.pair)).count();
    assert_eq!((after.len(), same), (2000, 1999));
}

#[tokio::test]
async fn what_is_exported() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let (a, b) = (authority.leaf(&["a.test"]), authority.leaf_valid(&["b.test"], -9, -1));
    put(dir.path(), "a", &a);
    put(dir.path(), "b", &b);
    std::fs::write(dir.path().join("c-key.pem"), "x").unwrap();
    let source = run(Kind::Path { cert: dir.path().into(), client_ca: None }, &Env::of(&[])).await;
    metrics::with_local_recorder(&recorder, || source.observe());
    let text = handle.render();
    let not_after = Facts::of(a.der()).unwrap().not_after;
    let name = dir.path().join("a-cert.pem").display().to_string();
    for line in [
        "ferrio_cert_certificates{source=\"test\"} 2".to_owned(),
        "ferrio_cert_invalid{source=\"test\"} 1".to_owned(),
        "ferrio_cert_problems{source=\"test\"} 1".to_owned(),
        "ferrio_cert_source_up{source=\"test\"} 1".to_owned(),
        format!("ferrio_cert_not_after_timestamp_seconds{{source=\"test\",name=\"{name}\"}} {not_after}"),
    ] {
        assert!(text.lines().any(|have| have == line), "no {line} in\n{text}");
    }
}
