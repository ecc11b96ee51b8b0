//! Real sockets against a state with fakes behind it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

mod answers;
mod connections;
mod html;
mod live;
mod overrides;
mod statuses;

use super::*;
use crate::life::{Life, Phase};
use crate::listen;
use crate::metrics::{Metrics, Shard};
use crate::registry::{Disabled, Past, Preview};
use crate::route::{Builder, LiveTable, Origin, Reject, Settings, Snapshot, parse_text};

/// An admin listener on a port of its own.
struct Admin {
    address: std::net::SocketAddr,
    life: Life,
    task: JoinHandle<()>,
    world: Arc<World>,
    metrics: Metrics,
}

/// What the views show.
#[derive(Default)]
struct World {
    table: Arc<LiveTable>,
    rejects: Mutex<Vec<Reject>>,
    certificates: Mutex<CertificatesView>,
    status: Mutex<StatusView>,
    unready: Mutex<Option<String>>,
    keys: Mutex<BTreeMap<String, (String, u64)>>,
    version: Mutex<u64>,
    broken: AtomicBool,
    draining: AtomicBool,
    level: Mutex<String>,
    reloads: AtomicUsize,
    disabled: Mutex<Vec<Disabled>>,
}

impl Overrides for World {
    fn paths(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(async { self.works(|| self.keys.lock().unwrap().keys().cloned().collect()) })
    }

    fn read<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Override, BoxError>> {
        Box::pin(async move {
            self.works(|| match self.keys.lock().unwrap().get(suffix) {
                Some((value, version)) => Override { value: value.trim().into(), version: *version },
                None => Override { value: String::new(), version: *self.version.lock().unwrap() },
            })
        })
    }

    fn write<'a>(&'a self, suffix: &'a str, value: &'a str, version: u64) -> BoxFuture<'a, Result<Written, BoxError>> {
        Box::pin(async move {
            self.works(|| {
                let mut keys = self.keys.lock().unwrap();
                if keys.get(suffix).is_some_and(|(_, at)| *at != version) {
                    return Written::Conflict;
                }
                let mut next = self.version.lock().unwrap();
                *next += 1;
                keys.insert(suffix.into(), (value.into(), *next));
                Written::Done
            })
        })
    }

    fn history<'a>(&'a self, suffix: &'a str) -> BoxFuture<'a, Result<Vec<Past>, BoxError>> {
        Box::pin(async move { self.works(|| vec![Past { id: format!("7{suffix}"), at: 1500 }]) })
    }

    fn past<'a>(&'a self, _: &'a str, id: &'a str) -> BoxFuture<'a, Result<String, BoxError>> {
        Box::pin(async move { self.works(|| format!("was {id}")) })
    }

    fn preview<'a>(&'a self, suffix: &'a str, value: &'a str) -> BoxFuture<'a, Result<Option<Preview>, BoxError>> {
        Box::pin(async move {
            let lines = vec![format!("+ {suffix} {value}")];
            self.works(|| Some(Preview { rejects: vec![], added: 1, removed: 0, lines }))
        })
    }
}

impl Operations for World {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn drain(&self, on: bool) {
        self.draining.store(on, Ordering::Relaxed);
    }

    fn log_level(&self) -> String {
        self.level.lock().unwrap().clone()
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        if level == "LOUD" {
            return Err("no level".into());
        }
        *self.level.lock().unwrap() = level.into();
        Ok(())
    }

    fn reload(&self) -> Result<(), String> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn disabled(&self) -> Vec<Disabled> {
        self.disabled.lock().unwrap().clone()
    }

    fn disable(&self, entry: Disabled) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async { self.works(|| self.disabled.lock().unwrap().push(entry)) })
    }

    fn enable<'a>(&'a self, service: &'a str, instance: Option<&'a str>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            self.works(|| {
                let mut all = self.disabled.lock().unwrap();
                let before = all.len();
                all.retain(|one| one.service != service || one.instance.as_deref() != instance);
                all.len() < before
            })
        })
    }
}

/// Lets in whoever says the word.
struct Word;

impl Login for Word {
    fn check<'a>(&'a self, headers: &'a http::HeaderMap) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(async {
            match headers.get("authorization").map(|value| value.as_bytes()) {
                Some(b"word") => Ok(()),
                Some(_) => Err(Refused::Unavailable),
                None => Err(Refused::Unauthorized(vec![http::HeaderValue::from_static("Basic realm=\"x\"")])),
            }
        })
    }
}

impl World {
    fn works<T>(&self, answer: impl FnOnce() -> T) -> Result<T, BoxError> {
        if self.broken.load(Ordering::Relaxed) { Err("no leader <b>".into()) } else { Ok(answer()) }
    }

    fn key(&self, suffix: &str) -> Option<String> {
        Some(self.keys.lock().unwrap().get(suffix)?.0.clone())
    }

    fn put(&self, suffix: &str, value: &str, version: u64) {
        self.keys.lock().unwrap().insert(suffix.into(), (value.into(), version));
        *self.version.lock().unwrap() = version;
    }

    fn routes(&self, text: &str) {
        let parsed = parse_text(text, |line| Origin::Static { line });
        assert_eq!(parsed.rejects, []);
        let mut builder = Builder::new(Settings::default());
        builder.manual(parsed.entries);
        self.table.store(Snapshot { table: builder.build().table, page: "".into(), ..Snapshot::default() });
    }
}

fn config(access: Access, path: &str) -> Config {
    Config {
        listen: listen::Config {
            addr: "127.0.0.1:0".into(),
            proto: listen::Proto::Http,
            cert_source: None,
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            proxy_protocol: false,
            proxy_header_timeout: Duration::ZERO,
            proxy_trusted: Vec::new(),
            half_close: false,
            h2c: false,
            redirect: None,
            client_auth: Default::default(),
            client_headers: false,
            strict_match: false,
            tls_min: 0,
            tls_max: 0,
            tls_ciphers: Vec::new(),
            refresh: Duration::ZERO,
        },
        access,
        path: path.into(),
        title: String::new(),
        color: "light-green".into(),
        source_link: SourceLink {
            enabled: false,
            new_tab: true,
            scheme: "http".into(),
            host: String::new(),
            port: String::new(),
        },
        hosts: Vec::new(),
        auth: None,
    }
}

fn counting() -> crate::metrics::Config {
    crate::metrics::Config {
        targets: vec![],
        prefix: String::new(),
        names: String::new(),
        interval: Duration::from_secs(30),
        addresses: Default::default(),
        circonus_url: String::new(),
        prometheus_subsystem: String::new(),
        prometheus_path: "/metrics".into(),
        prometheus_buckets: vec![0.01, 0.1],
    }
}

async fn start(access: Access, path: &str) -> Admin {
    start_with(config(access, path), true).await
}

async fn start_with(config: Config, overrides: bool) -> Admin {
    let world = Arc::new(World::default());
    let metrics = Metrics::watched(&counting(), 1);
    let seen = |world: &Arc<World>| world.clone();
    let (a, b, c, d) = (seen(&world), seen(&world), seen(&world), seen(&world));
    let proxy = crate::config::inspect(Vec::new(), std::iter::empty()).config.unwrap().proxy;
    let explainer = crate::proxy::http::Explainer::new(proxy, Vec::new());
    let views = Views {
        explain: Arc::new(move |table, question| explainer.explain(table, question)),
        table: world.table.clone(),
        rejects: Arc::new(move || a.rejects.lock().unwrap().clone()),
        status: Arc::new(move || b.status.lock().unwrap().clone()),
        health: Arc::new(move || match &*c.unready.lock().unwrap() {
            None => Health::Ready,
            Some(reason) => Health::Unready(reason.clone()),
        }),
        certificates: Arc::new(move || d.certificates.lock().unwrap().clone()),
        conditions: Arc::new(Vec::new),
        overrides: if overrides { Some(world.clone()) } else { None },
        config_json: r#"{"UI":{"Title":"<t>&"},"Buckets":[0.005,10],"Peers":null,"Map":{}}"#.into(),
        effective_json: r#"[{"key":"ui.title","value":"<t>","source":"default"}]"#.into(),
        metrics: Some(metrics.clone()),
        operations: world.clone(),
        login: config.auth.is_some().then(|| -> Arc<dyn Login> { Arc::new(Word) }),
        version: "1.2.3",
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let life = Life::new();
    let task = tokio::spawn(serve(listener, State::new(config, views), life.watch()));
    Admin { address, life, task, world, metrics }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| line.split_once(": ").map(|(k, v)| (k.to_lowercase(), v.to_string())).unwrap();
        Self { status, headers: lines.map(header).collect(), body: body.into() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }
}

impl Admin {
    async fn raw(&self, request: &[u8]) -> Reply {
        let work = async {
            let mut socket = TcpStream::connect(self.address).await.unwrap();
            socket.write_all(request).await.unwrap();
            let mut bytes = Vec::new();
            let _ = socket.read_to_end(&mut bytes).await;
            Reply::parse(&bytes)
        };
        timeout(Duration::from_secs(20), work).await.expect("an answer in time")
    }

    async fn send(&self, method: &str, target: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: admin.test:9998\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        self.raw(request.as_bytes()).await
    }

    async fn get(&self, target: &str) -> Reply {
        self.send("GET", target, "", "").await
    }

    async fn put(&self, target: &str, body: &str) -> Reply {
        self.send("PUT", target, "", body).await
    }

    async fn statuses(&self, want: &[(&str, u16)]) {
        for (target, status) in want {
            assert_eq!(self.get(target).await.status, *status, "GET {target}");
        }
    }
}

fn edit(value: &str, version: u64) -> String {
    serde_json::json!({ "value": value, "version": version.to_string() }).to_string()
}
