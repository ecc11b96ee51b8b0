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

mod live;

use super::*;
use crate::life::{Life, Phase};
use crate::listen;
use crate::metrics::{Metrics, Shard};
use crate::registry::{Disabled, Past, Preview};
use crate::route::{Builder, LiveTable, Origin, Reject, Settings, Snapshot, parse_text};

// --- vocabulary

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

// --- access and paths

#[tokio::test]
async fn read_write_statuses() {
    let admin = start(Access::ReadWrite, "").await;
    admin
        .statuses(&[
            ("/api/manual", 200),
            ("/api/manual/x", 200),
            ("/api/paths", 200),
            ("/api/config", 200),
            ("/api/routes", 200),
            ("/api/version", 200),
            ("/api/rejects", 200),
            ("/api/certificates", 200),
            ("/manual", 200),
            ("/manual/x/y", 200),
            ("/routes", 200),
            ("/health", 200),
            ("/assets/logo.svg", 200),
            ("/assets/logo.bw.svg", 200),
            ("/assets/none", 404),
            ("/assets/", 404),
            ("/favicon.ico", 404),
            ("/", 303),
            ("/anything", 303),
            ("/api/manualx", 303),
            ("/manualx", 303),
            ("/routes/", 303),
            ("/metrics", 303),
            ("/assets", 303),
        ])
        .await;
    assert_eq!(admin.get("/").await.header("location"), "/routes");
}

#[tokio::test]
async fn read_only_statuses() {
    let admin = start(Access::ReadOnly, "").await;
    admin
        .statuses(&[
            ("/api/manual", 403),
            ("/api/manual/x", 403),
            ("/api/paths", 403),
            ("/api/config", 200),
            ("/api/routes", 200),
            ("/api/version", 200),
            ("/api/rejects", 200),
            ("/api/certificates", 200),
            ("/manual", 403),
            ("/manual/x", 403),
            ("/%6danual", 403),
            ("/routes", 200),
            ("/health", 200),
            ("/assets/logo.svg", 200),
            ("/assets/logo.bw.svg", 200),
            ("/", 303),
        ])
        .await;
    assert_eq!(admin.get("/manual").await.body, "Forbidden\n");
    for method in ["PUT", "POST", "DELETE", "HEAD"] {
        assert_eq!(admin.send(method, "/api/manual", "", &edit("# x", 0)).await.status, 403, "{method}");
    }
    assert_eq!(admin.put("/api/manual?force=true", &edit("# x", 0)).await.status, 403);
    assert_eq!(admin.world.key(""), None);
    assert!(!admin.get("/routes").await.body.contains("data-writable=\"true\""));
}

#[tokio::test]
async fn closed_statuses() {
    let admin = start(Access::Closed, "").await;
    for target in ["/", "/api/config", "/api/routes", "/api/version", "/routes", "/manual", "/assets/app.js", "/x"] {
        let reply = admin.get(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (403, "Forbidden\n"), "{target}");
    }
    admin.statuses(&[("/health", 200)]).await;
}

#[tokio::test]
async fn everything_but_health_is_below_the_base_path() {
    for path in ["/lb", "lb", "/lb/", "lb//"] {
        let admin = start(Access::ReadWrite, path).await;
        admin
            .statuses(&[
                ("/lb/api/routes", 200),
                ("/lb/api/config", 200),
                ("/lb/api/manual/x", 200),
                ("/lb/routes", 200),
                ("/lb/manual", 200),
                ("/lb/assets/app.js", 200),
                ("/lb/", 303),
                ("/lb/x", 303),
                ("/lb/health", 303),
                ("/lb", 307),
                ("/health", 200),
                ("/routes", 404),
                ("/api/routes", 404),
                ("/lbx", 404),
                ("/", 404),
            ])
            .await;
        assert_eq!(admin.get("/lb/").await.header("location"), "/lb/routes");
        assert_eq!(admin.get("/lb?a=b").await.header("location"), "/lb/?a=b");
        assert_eq!(admin.get("/").await.body, "404 page not found\n");
        assert_eq!(admin.get("/lb").await.header("location"), "/lb/");
        for page in ["/lb/routes", "/lb/manual/x"] {
            let body = admin.get(page).await.body;
            for part in body.split(['"', '\'']).filter(|part| part.starts_with('/')) {
                assert!(part.starts_with("/lb") || part == "/x", "{page} refers to {part}");
            }
            assert!(body.contains("\"/lb/assets/v1.2.3/app.js"), "{body}");
        }
    }
}

#[tokio::test]
async fn detours_lead_to_the_clean_path() {
    let admin = start(Access::ReadWrite, "").await;
    for (target, location) in [
        ("//routes", "/routes"),
        ("//evil.com/x", "/evil.com/x"),
        ("/a/../routes?filter=x", "/routes?filter=x"),
        ("/api/manual/%2e%2e/config", "/api/config"),
        ("/api/manual//a%20b", "/api/manual/a%20b"),
    ] {
        let reply = admin.get(target).await;
        assert_eq!((reply.status, reply.header("location")), (307, location), "{target}");
    }
    admin.statuses(&[("/%zz", 400), ("/%ff", 400), ("/%0d%0aX:%20y", 303)]).await;
}

#[tokio::test]
async fn one_host_header() {
    let admin = start(Access::ReadWrite, "").await;
    for (head, status) in [
        ("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400),
        ("GET /health HTTP/1.0\r\n\r\n", 200),
        ("GET http://a/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
    ] {
        assert_eq!(admin.raw(head.as_bytes()).await.status, status, "{head:?}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_protection() {
    let admin = start(Access::ReadWrite, "").await;
    for target in ["/routes", "/manual", "/api/config", "/api/manual", "/assets/app.js", "/", "/health", "/favicon.ico"]
    {
        let reply = admin.get(target).await;
        let csp = reply.header("content-security-policy");
        assert!(csp.contains("default-src 'none'") && csp.contains("frame-ancestors 'none'"), "{target}: {csp}");
        assert!(!csp.contains("unsafe"), "{csp}");
        assert_eq!(reply.header("x-frame-options"), "DENY", "{target}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{target}");
    }
    assert_eq!(admin.get("/api/config").await.header("cache-control"), "no-store");
}

// --- reading

#[tokio::test]
async fn health_says_why_not() {
    let admin = start(Access::Closed, "/lb").await;
    let reply = admin.get("/health").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "OK\n"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    *admin.world.unready.lock().unwrap() = Some("draining".into());
    let reply = admin.get("/health").await;
    assert_eq!((reply.status, reply.body.as_str()), (503, "draining\n"));
    *admin.world.unready.lock().unwrap() = None;
    admin.statuses(&[("/health", 200)]).await;
}

#[tokio::test]
async fn version_is_text() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/version").await;
    assert_eq!((reply.body.as_str(), reply.header("content-type")), ("1.2.3", "text/plain; charset=utf-8"));
    let reply = admin.send("HEAD", "/api/version", "", "").await;
    assert_eq!((reply.status, reply.body.as_str(), reply.header("content-length")), (200, "", "5"));
}

#[tokio::test]
async fn config_is_compact_or_pretty() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/config").await;
    assert_eq!(reply.body, r#"{"UI":{"Title":"\u003ct\u003e\u0026"},"Buckets":[0.005,10],"Peers":null,"Map":{}}"#);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    let pretty = "{\n    \"UI\": {\n        \"Title\": \"\\u003ct\\u003e\\u0026\"\n    },\n    \"Buckets\": [\n        0.005,\n        10\n    ],\n    \"Peers\": null,\n    \"Map\": {}\n}";
    for query in ["?pretty", "?pretty=0", "?x=1&pretty="] {
        assert_eq!(admin.get(&format!("/api/config{query}")).await.body, pretty, "{query}");
    }
    assert_eq!(admin.send("POST", "/api/config", "", "").await.status, 200);
}

#[tokio::test]
async fn an_empty_table_is_an_empty_array() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/routes").await;
    assert_eq!((reply.body.as_str(), reply.header("content-type")), ("[]", "application/json; charset=utf-8"));
    assert_eq!(admin.get("/api/rejects").await.body, "[]");
}

#[tokio::test]
async fn routes_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    admin.world.routes(
        "route add svc-a foo.com/x http://1.2.3.4:80/ weight 0.25 tags \"a,b\" opts \"strip=/x host=dst\"\n\
         route add svc-b foo.com/x http://1.2.3.5:80/\n\
         route add svc-c /<b> http://1.2.3.6:80/?a=1&b=2",
    );
    let reply = admin.get("/api/routes").await;
    let want = concat!(
        r#"[{"service":"svc-c","host":"","path":"/\u003cb\u003e","src":"/\u003cb\u003e","dst":"http://1.2.3.6:80/?a=1\u0026b=2","opts":"","cmd":"route add","weight":1,"rate1":0,"pct99":0},"#,
        r#"{"service":"svc-a","host":"foo.com","path":"/x","src":"foo.com/x","dst":"http://1.2.3.4:80/","opts":"host=dst strip=/x","cmd":"route add","tags":["a","b"],"weight":0.25,"rate1":0,"pct99":0},"#,
        r#"{"service":"svc-b","host":"foo.com","path":"/x","src":"foo.com/x","dst":"http://1.2.3.5:80/","opts":"","cmd":"route add","weight":0.75,"rate1":0,"pct99":0}]"#,
    );
    assert_eq!(reply.body, want);
    assert!(admin.get("/api/routes?pretty").await.body.starts_with("[\n    {\n        \"service\": \"svc-c\",\n"));

    for query in ["?raw", "?raw=0", "?pretty&raw"] {
        let reply = admin.get(&format!("/api/routes{query}")).await;
        assert_eq!(reply.header("content-type"), "text/plain");
        assert_eq!(reply.body, format!("{}\n", admin.world.table.load().table.listing()), "{query}");
    }

    // What was put into words for one table is not shown for the next.
    admin.world.routes("route add svc-z /z http://1.2.3.4:80/");
    let body = admin.get("/api/routes").await.body;
    assert!(body.starts_with(r#"[{"service":"svc-z""#) && !body.contains("svc-a"), "{body}");
}

#[tokio::test]
async fn certificates_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    assert_eq!(admin.get("/api/certificates").await.body, r#"{"sources":[],"listeners":[]}"#);
    let certificate = CertificateView {
        name: "a-cert.pem".into(),
        subject: "CN=a,O=<b>".into(),
        issuer: "CN=ca".into(),
        serial: "0a:ff".into(),
        names: vec!["a.test".into()],
        not_before: 1_700_000_000,
        not_after: 1_800_000_000,
        fingerprint: "00ff".into(),
        state: "valid",
    };
    let waiting = |next| WaitingView { name: "b.test".into(), reason: "refused".into(), next };
    let source = CertificateSourceView {
        name: "edge".into(),
        kind: "acme",
        place: "https://ca/dir".into(),
        age: Some(Duration::from_millis(1500)),
        changed: Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(7)),
        error: Some("no answer".into()),
        certificates: vec![certificate],
        problems: vec![("x.pem".into(), "no key".into())],
        waiting: vec![waiting(Some(9)), waiting(None)],
    };
    let listener = TlsListenerView {
        addr: ":443".into(),
        source: "edge".into(),
        resumed: 1,
        results: vec![("ok", 3), ("failed", 0)],
        ciphers: vec![("tls13", "TLS13_AES_128_GCM_SHA256", 3)],
    };
    *admin.world.certificates.lock().unwrap() = CertificatesView { sources: vec![source], listeners: vec![listener] };
    let want = concat!(
        r#"{"sources":[{"name":"edge","type":"acme","place":"https://ca/dir","age":1.5,"changed":7,"error":"no answer","#,
        r#""certificates":[{"name":"a-cert.pem","subject":"CN=a,O=\u003cb\u003e","issuer":"CN=ca","serial":"0a:ff","#,
        r#""names":["a.test"],"notBefore":1700000000,"notAfter":1800000000,"fingerprint":"00ff","state":"valid"}],"#,
        r#""problems":[{"name":"x.pem","reason":"no key"}],"#,
        r#""waiting":[{"name":"b.test","reason":"refused","next":9},{"name":"b.test","reason":"refused"}]}],"#,
        r#""listeners":[{"addr":":443","source":"edge","resumed":1,"handshakes":[{"result":"ok","count":3},"#,
        r#"{"result":"failed","count":0}],"#,
        r#""ciphers":[{"version":"tls13","cipher":"TLS13_AES_128_GCM_SHA256","count":3}]}]}"#,
    );
    assert_eq!(admin.get("/api/certificates").await.body, want);
}

#[tokio::test]
async fn rejects_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    let reject = |origin, text: &str| Reject { origin, text: text.into(), reason: "why & how".into() };
    *admin.world.rejects.lock().unwrap() = vec![
        reject(
            Origin::Tag { service: "s".into(), instance: "n/s-1".into(), tag: "urlprefix-/<script>".into() },
            "urlprefix-/<script>",
        ),
        reject(Origin::Key { key: "fabio/config/x".into(), line: 7 }, "route ad"),
        reject(Origin::File { path: "/etc/r".into(), line: 1 }, "a"),
        reject(Origin::Static { line: 2 }, "b"),
        reject(Origin::Custom { index: 0 }, "c"),
    ];
    let want = concat!(
        r#"[{"origin":"tag","service":"s","instance":"n/s-1","tag":"urlprefix-/\u003cscript\u003e","text":"urlprefix-/\u003cscript\u003e","reason":"why \u0026 how"},"#,
        r#"{"origin":"key","key":"fabio/config/x","line":7,"text":"route ad","reason":"why \u0026 how"},"#,
        r#"{"origin":"file","file":"/etc/r","line":1,"text":"a","reason":"why \u0026 how"},"#,
        r#"{"origin":"static","line":2,"text":"b","reason":"why \u0026 how"},"#,
        r#"{"origin":"custom","index":0,"text":"c","reason":"why \u0026 how"}]"#,
    );
    assert_eq!(admin.get("/api/rejects").await.body, want);
}

#[tokio::test]
async fn status_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    *admin.world.status.lock().unwrap() = StatusView {
        sources: vec![
            SourceView {
                name: "consul services".into(),
                age: Some(Duration::from_millis(1500)),
                ..SourceView::default()
            },
            SourceView {
                name: "consul kv".into(),
                error: Some("<refused>".into()),
                failures: 2,
                ..SourceView::default()
            },
        ],
        table_age: Some(Duration::from_micros(61_000_400)),
        contact: Some((Duration::from_millis(20), true)),
        lag: None,
        changes: vec![Change {
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            cause: "service x".into(),
            added: 1,
            removed: 0,
            lines: vec!["+ x".into()],
        }],
        ..StatusView::default()
    };
    *admin.world.unready.lock().unwrap() = Some("no table yet".into());
    let want = concat!(
        r#"{"version":"1.2.3","ready":false,"reason":"no table yet","table":{"routes":0,"targets":0,"age":61,"lag":null,"#,
        r#""build":null,"builds":0,"rejects":0,"services":0,"instances":0},"consul":{"known_leader":true,"last_contact":0.02},"#,
        r#""sources":[{"name":"consul services","up":true,"age":1.5,"index":0,"failures":0},"#,
        r#"{"name":"consul kv","up":false,"age":null,"index":0,"failures":2,"error":"\u003crefused\u003e"}],"#,
        r#""changes":[{"at":1700000000.123,"cause":"service x","added":1,"removed":0,"lines":["+ x"]}]}"#,
    );
    assert_eq!(admin.get("/api/status").await.body, want);
}

// --- overrides

#[tokio::test]
async fn paths_are_listed() {
    let admin = start(Access::ReadWrite, "").await;
    assert_eq!(admin.get("/api/paths").await.body, "null");
    for suffix in ["", "/a", "/b/<c>"] {
        admin.world.put(suffix, "#", 1);
    }
    assert_eq!(admin.get("/api/paths").await.body, r#"["","/a","/b/\u003cc\u003e"]"#);
    for method in ["HEAD", "PUT", "POST"] {
        let reply = admin.send(method, "/api/paths", "", "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, "GET"), "{method}");
    }
    admin.world.broken.store(true, Ordering::Relaxed);
    let reply = admin.get("/api/paths").await;
    assert_eq!((reply.status, reply.body.as_str()), (500, "no leader <b>\n"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn an_override_is_read_with_its_version() {
    let admin = start(Access::ReadWrite, "").await;
    admin.world.put("", "\n # text <a>  \n\n", 17);
    let reply = admin.get("/api/manual").await;
    assert_eq!(reply.body, r##"{"value":"# text \u003ca\u003e","version":"17"}"##);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(admin.get("/api/manual/none").await.body, r#"{"value":"","version":"17"}"#);
    for method in ["HEAD", "POST", "DELETE", "OPTIONS"] {
        let reply = admin.send(method, "/api/manual/x", "", "").await;
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(reply.body, if method == "HEAD" { "" } else { "not allowed\n" }, "{method}");
        assert_eq!(reply.header("allow"), "GET, PUT");
    }
    admin.world.broken.store(true, Ordering::Relaxed);
    assert_eq!(admin.get("/api/manual").await.status, 500);
}

#[tokio::test]
async fn the_path_of_an_override_is_decoded_and_its_query_ignored() {
    let admin = start(Access::ReadWrite, "").await;
    admin.world.put("/a b", "# spaced", 1);
    admin.world.put("/x?y#z", "# odd", 2);
    for (target, value) in [
        ("/api/manual/a%20b", "# spaced"),
        ("/api/manual/a%20b?x=1", "# spaced"),
        ("/api/manual/x%3Fy%23z", "# odd"),
        ("/api/manual/a%2520b", ""),
    ] {
        let body = admin.get(target).await.body;
        assert!(body.starts_with(&format!("{{\"value\":\"{value}\"")), "{target}: {body}");
    }
    assert_eq!(admin.put("/api/manual/team/n%20w?pretty", &edit("# new", 0)).await.status, 200);
    assert_eq!(admin.world.key("/team/n w").as_deref(), Some("# new"));
}

#[tokio::test]
async fn an_override_is_written_at_its_version_only() {
    let admin = start(Access::ReadWrite, "").await;
    let reply = admin.put("/api/manual", &edit("# one\n", 0)).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(admin.world.key("").as_deref(), Some("# one\n"));
    assert_eq!(admin.put("/api/manual", &edit("# two", 1)).await.status, 200);
    let reply = admin.put("/api/manual", &edit("# three", 1)).await;
    assert_eq!((reply.status, reply.body.as_str()), (409, "version mismatch\n"));
    assert_eq!(admin.put("/api/manual", r##"{"value":"# four"}"##).await.status, 409);
    assert_eq!(admin.world.key("").as_deref(), Some("# two"));
    assert_eq!(admin.put("/api/manual/nv", r##"{"value":"# new"}"##).await.status, 200);
    admin.world.broken.store(true, Ordering::Relaxed);
    let reply = admin.put("/api/manual", &edit("# x", 2)).await;
    assert_eq!((reply.status, reply.body.as_str()), (500, "no leader <b>\n"));
}

#[tokio::test]
async fn bodies_are_read_as_go_reads_them() {
    let admin = start(Access::ReadWrite, "").await;
    for body in [
        "",
        " ",
        "not json",
        "null",
        "[]",
        "\"x\"",
        "{}",
        r#"{"version":"0"}"#,
        r#"{"value":1}"#,
        r#"{"value":null}"#,
        r#"{"value":"x","version":0}"#,
        r#"{"value":"x","version":""}"#,
        r#"{"value":"x","version":"abc"}"#,
        r#"{"value":"x","version":"-1"}"#,
        r#"{"value":"x","version":"+1"}"#,
        r#"{"value":"x","version":"1.0"}"#,
        r#"{"value":"x","version":"99999999999999999999999"}"#,
        r#"{"value":"x""#,
        "{\"value\":\"\u{1}\"}",
    ] {
        let reply = admin.put("/api/manual", body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.body.len() > 3 && reply.body.ends_with('\n'), "{body}: {:?}", reply.body);
        assert_eq!(admin.world.key(""), None, "{body}");
    }
    for (suffix, body) in [
        ("/1", r##"{"value":"# a","version":"0","other":[1]} trailing"##),
        ("/2", r##" {"VALUE":"# a","Version":null}"##),
        ("/3", r##"{"value":"x","value":"# a"}"##),
        ("/4", r##"{"value":"\u0023 a"}"##),
    ] {
        assert_eq!(admin.put(&format!("/api/manual{suffix}"), body).await.status, 200, "{body}");
        assert_eq!(admin.world.key(suffix).as_deref(), Some("# a"), "{body}");
    }
}

#[tokio::test]
async fn a_text_that_does_not_parse_is_not_written() {
    let admin = start(Access::ReadWrite, "").await;
    let bad = edit("# fine\nroute add broken\nroute add s / http://a/\nnonsense", 0);
    let reply = admin.put("/api/manual", &bad).await;
    assert_eq!(reply.status, 400);
    let lines: Vec<_> = reply.body.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("line 2: ") && lines[1].starts_with("line 4: "), "{lines:?}");
    assert_eq!(admin.world.key(""), None);
    assert_eq!(admin.put("/api/manual?force=false", &bad).await.status, 400);
    assert_eq!(admin.put("/api/manual?force=true", &bad).await.status, 200);
    assert!(admin.world.key("").is_some());
}

#[tokio::test]
async fn too_much_is_refused() {
    let admin = start(Access::ReadWrite, "").await;
    let fits = format!("#{}", "<".repeat(512 * 1024 - 1));
    assert_eq!(admin.put("/api/manual", &edit(&fits, 0)).await.status, 200);
    let over = format!("{fits}<");
    assert_eq!(admin.put("/api/manual/x", &edit(&over, 0)).await.status, 413);
    let escaped = format!("{{\"value\":\"#{}\"}}", "\\u003c".repeat(512 * 1024 - 1));
    assert_eq!(admin.put("/api/manual/y", &escaped).await.status, 200);

    let head = "PUT /api/manual HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 999999999\r\n\r\n";
    assert_eq!(admin.raw(head.as_bytes()).await.status, 413);
}

#[tokio::test]
async fn only_our_own_pages_may_write() {
    let admin = start(Access::ReadWrite, "").await;
    for (headers, status) in [
        ("Origin: http://evil.com\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\nOrigin: http://admin.test:9998\r\n", 403),
        ("Origin: http://admin.test:9998\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\nOrigin: http://admin.test:9998\r\n", 200),
        ("", 200),
    ] {
        let version = *admin.world.version.lock().unwrap();
        let before = admin.world.key("");
        let reply = admin.send("PUT", "/api/manual", headers, &edit("# x", version)).await;
        assert_eq!(reply.status, status, "{headers}");
        assert_eq!(admin.world.key("") == before && status == 403, status == 403, "{headers}");
        assert_eq!(reply.header("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn a_backend_without_overrides() {
    let admin = start_with(config(Access::ReadWrite, ""), false).await;
    assert_eq!(admin.get("/api/paths").await.body, "null");
    assert_eq!(admin.get("/api/manual").await.body, r#"{"value":"","version":"0"}"#);
    assert_eq!(admin.put("/api/manual", &edit("# x", 0)).await.status, 409);
}

// --- pages

#[tokio::test]
async fn pages_refer_only_to_what_is_served_here() {
    let admin = start(Access::ReadWrite, "").await;
    let mut seen = 0;
    for page in ["/routes", "/manual", "/manual/team/x", "/plain"] {
        let reply = admin.get(page).await;
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8", "{page}");
        for attribute in [" href=\"", " src=\""] {
            for part in reply.body.split(attribute).skip(1) {
                let target = part.split('"').next().unwrap();
                assert!(target.starts_with('/') && !target.starts_with("//") || target == "#main", "{target}");
                if target.contains("/assets/") {
                    let reply = admin.get(target).await;
                    assert_eq!(reply.status, 200, "{target}");
                    assert!(!reply.header("content-type").is_empty());
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 14);
}

#[tokio::test]
async fn nothing_configured_or_asked_for_becomes_markup() {
    let evil = "\"'><script>alert(1)</script>";
    let mut config = config(Access::ReadWrite, "");
    config.title = evil.into();
    config.color = evil.into();
    config.source_link =
        SourceLink { enabled: true, new_tab: false, scheme: evil.into(), host: evil.into(), port: evil.into() };
    let admin = start_with(config, true).await;
    for target in ["/routes", "/manual/%22%27%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"] {
        let body = admin.get(target).await.body;
        assert!(!body.contains("<script>") && !body.contains("alert(1)<"), "{body}");
        assert!(body.contains("<title>ferrio - &#34;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>"), "{body}");
        assert!(body.contains("class=\"bar light-green\""), "{body}");
    }
    let body = admin.get("/manual/%3Cb%3E").await.body;
    assert!(body.contains("data-suffix=\"/&lt;b&gt;\""), "{body}");
}

#[tokio::test]
async fn the_plain_page_has_the_routes_as_text() {
    let admin = start(Access::ReadOnly, "/lb").await;
    admin
        .world
        .routes("route add web /<b> http://10.0.0.1:80/ opts \"strip=/x\"\nroute add web /<b> http://10.0.0.2:80/");
    let body = admin.get("/lb/plain").await.body;
    assert!(body.contains("<td>/&lt;b&gt;</td><td>web</td><td>http://10.0.0.1:80/</td>"), "{body}");
    assert!(body.contains("<td>strip=/x</td><td>50.00%</td>") && !body.contains("<script"), "{body}");
    for page in pages::PAGES {
        let reply = admin.get(&format!("/lb{page}")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/html; charset=utf-8"), "{page}");
    }
}

#[tokio::test]
async fn title_of_the_pages() {
    let admin = start(Access::ReadWrite, "").await;
    assert!(admin.get("/routes").await.body.contains("<title>ferrio</title>"));
}

// --- connections

#[tokio::test]
async fn stopping_ends_idle_connections_and_returns() {
    let admin = start(Access::ReadWrite, "").await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut buffer = [0; 4096];
    let n = idle.read(&mut buffer).await.unwrap();
    assert!(buffer[..n].starts_with(b"HTTP/1.1 200 OK\r\n"));
    admin.life.advance(Phase::Leaving);
    admin.statuses(&[("/health", 200)]).await;
    admin.life.advance(Phase::Closing);
    timeout(Duration::from_secs(10), admin.task).await.expect("serve returns").unwrap();
    assert_eq!(idle.read(&mut buffer).await.unwrap(), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let admin = start(Access::ReadWrite, "").await;
    let mut open = Vec::new();
    for _ in 0..super::serve::CONNECTIONS_MAX {
        let mut socket = TcpStream::connect(admin.address).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(socket.read(&mut [0; 64]).await.unwrap() > 0);
        open.push(socket);
    }
    let mut over = TcpStream::connect(admin.address).await.unwrap();
    assert_eq!(over.read(&mut [0; 64]).await.unwrap_or(0), 0);
    drop(open);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let mut socket = TcpStream::connect(admin.address).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        if matches!(socket.read(&mut [0; 64]).await, Ok(n) if n > 0) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "places do not become free");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let mut config = config(Access::ReadWrite, "");
    config.listen.read_timeout = Duration::from_millis(50);
    let admin = start_with(config, true).await;
    let mut slow = TcpStream::connect(admin.address).await.unwrap();
    slow.write_all(b"GET /health HT").await.unwrap();
    let mut bytes = Vec::new();
    let end = timeout(Duration::from_secs(10), slow.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "still open");
    assert!(!bytes.starts_with(b"HTTP/1.1 200"), "{bytes:?}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let admin = start(Access::ReadWrite, "").await;
    let request = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert_eq!(admin.raw(request.as_bytes()).await.status, 431);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_given_up() {
    let (ours, theirs) = tokio::io::duplex(16);
    let mut stream = super::stall::Impatient::new(ours, Duration::from_millis(50));
    let result = timeout(Duration::from_secs(10), stream.write_all(&[0; 64])).await.expect("given up");
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    drop(theirs);
}
