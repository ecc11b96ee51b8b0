#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::consul::Token;
use crate::registry::testing::{Fake, Fault, Real, Recorder, config as address_config, svc};
use crate::registry::{Announce, ConsulConfig, CustomConfig, RoutesLog, Written};
use crate::route::Settings;

fn config(backend: Backend) -> Config {
    Config {
        backend,
        timeout: Duration::from_secs(10),
        retry: Duration::from_millis(50),
        settings: Settings::default(),
        log: RoutesLog::Off,
        state: None,
    }
}

fn consul(client: crate::consul::Config) -> ConsulConfig {
    ConsulConfig {
        client,
        kv_path: "fabio/config".into(),
        page_path: "fabio/noroute.html".into(),
        options_path: String::new(),
        error_pages_path: String::new(),
        tag_prefix: "urlprefix-".into(),
        allow: Default::default(),
        service_status: vec!["passing".into()],
        checks_all: false,
        keep_unhealthy: false,
        down_page_path: String::new(),
        connect: String::new(),
        datacenters: vec![],
        service_monitors: 1,
        poll_interval: Duration::ZERO,
        register: true,
        announce: Announce {
            name: "fabio".into(),
            addr: "127.0.0.1:9998".into(),
            local_ip: None,
            check_scheme: "http".into(),
            tags: vec!["edge".into()],
            check_interval: Duration::from_secs(1),
            check_timeout: Duration::from_secs(3),
            check_tls_skip_verify: false,
        },
    }
}

struct Running {
    registry: Registry,
    tables: Arc<Recorder>,
}

async fn run(config: Config) -> Result<Running, Error> {
    let tables = Arc::new(Recorder::default());
    Ok(Running { registry: start(config, tables.clone()).await?, tables })
}

async fn run_fake(fake: &Fake) -> Running {
    let running = run(config(Backend::Consul(Box::new(consul(fake.config()))))).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), running.registry.ready()).await.unwrap();
    running
}

async fn until(what: &str, seconds: f64, holds: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed().as_secs_f64() < seconds, "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// --- start

#[tokio::test]
async fn without_consul_it_gives_up_in_time() {
    let fake = Fake::start().await;
    fake.refuse().await;
    for (name, timeout, least, most) in [("refused", 600, 0.5, 1.5), ("one attempt", 0, 0.0, 0.5)] {
        let mut config = config(Backend::Consul(Box::new(consul(fake.config()))));
        config.timeout = Duration::from_millis(timeout);
        let started = Instant::now();
        let error = run(config).await.err().unwrap();
        assert!(matches!(error, Error::Timeout { .. }), "{name}: {error}");
        assert!((least..most).contains(&started.elapsed().as_secs_f64()), "{name}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn an_attempt_that_hangs_is_bounded() {
    let fake = Fake::start().await;
    fake.fault("/agent/self", Fault::Hang);
    let mut config = config(Backend::Consul(Box::new(consul(fake.config()))));
    config.timeout = Duration::from_millis(300);
    let started = Instant::now();
    assert!(run(config).await.is_err());
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test]
async fn it_waits_for_consul_and_then_serves() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    fake.refuse().await;
    let tables = Arc::new(Recorder::default());
    let config = config(Backend::Consul(Box::new(consul(fake.config()))));
    let starting = tokio::spawn(start(config, tables.clone()));
    tables.stays("no table", 0.5, |t| t.count() == 0).await;
    fake.accept().await;
    let registry = starting.await.unwrap().unwrap();
    registry.ready().await;
    assert!(tables.listing().contains("route add a /a"), "{}", tables.listing());
}

#[tokio::test]
async fn the_first_table_is_complete() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    for slow in ["/v1/health/", "/v1/catalog/", "/v1/kv/"] {
        fake.heal();
        fake.fault(slow, Fault::Delay(Duration::from_millis(400)));
        let r = run_fake(&fake).await;
        assert_eq!(r.tables.count(), 1);
        let listing = r.tables.listing();
        assert!(listing.contains("/a ") && listing.contains("/m "), "{slow}: {listing}");
    }
}

#[tokio::test]
async fn overrides_out_of_reach_do_not_stop_the_start() {
    for (name, fault, most) in [
        ("forbidden", Fault::Status(403, "Permission denied"), 2.0),
        ("failing", Fault::Status(500, "no leader"), 8.0),
        ("hanging", Fault::Hang, 8.0),
    ] {
        let fake = Fake::start().await;
        fake.put(svc("a", "a", 1));
        fake.fault("/v1/kv/", fault);
        let r = run(config(Backend::Consul(Box::new(consul(fake.config()))))).await.unwrap();
        let took = r.tables.until(name, most, |t| t.listing().contains("/a ")).await;
        assert!(name == "forbidden" || took > Duration::from_secs(4), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn never_on_overrides_alone() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    fake.fault("/v1/health/", Fault::Status(403, "Permission denied"));
    let r = run(config(Backend::Consul(Box::new(consul(fake.config()))))).await.unwrap();
    r.tables.stays("closed", 6.5, |t| t.count() == 0).await;
    fake.heal();
    r.tables.until("open", 3.0, |t| t.listing().contains("/a ")).await;
}

#[tokio::test]
async fn with_overrides_only_it_starts() {
    let fake = Fake::start().await;
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    let r = run_fake(&fake).await;
    assert!(r.tables.listing().contains("/m "));
}

// --- the KV store

#[tokio::test]
async fn overrides_and_the_page_come_from_keys() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    let r = run_fake(&fake).await;
    fake.kv("fabio/config/b", Some("route del m /m"));
    fake.kv("fabio/config/a", Some("route add m /m http://10.0.0.9:1/\nroute add n /n http://10.0.0.9:1/"));
    r.tables.shows("/n ").await;
    assert!(!r.tables.listing().contains("/m "), "keys count in their order");
    fake.kv("fabio/config2", Some("route add s /s http://10.0.0.9:1/"));
    fake.kv("fabio/config", Some("route broken\nroute add o /o http://10.0.0.9:1/"));
    r.tables.shows("/o ").await;
    assert!(!r.tables.listing().contains("/s "), "a sibling");
    let status = r.registry.status();
    assert_eq!(status.table.rejects.len(), 1);
    assert!(status.sources.iter().any(|s| s.warning.as_deref().is_some_and(|w| w.contains("fabio/config2"))));
    fake.kv("fabio/config", None);
    r.tables.lacks("/o ").await;
    assert!(r.registry.status().table.rejects.is_empty());
    fake.kv("fabio/noroute.html", Some("<html>none</html>\n"));
    r.tables.until("the page", 2.0, |t| t.page().as_deref() == Some("<html>none</html>")).await;
    fake.kv("fabio/noroute.html", None);
    r.tables.until("no page", 2.0, |t| t.page().as_deref() == Some("")).await;
    assert!(r.tables.listing().contains("/a "));
}

#[tokio::test]
async fn the_api_reads_and_writes_overrides() {
    let fake = Fake::start().await;
    let r = run_fake(&fake).await;
    let overrides = r.registry.overrides();
    assert_eq!(overrides.paths().await.unwrap(), Some(vec![]));
    let missing = overrides.read("/maint").await.unwrap();
    assert_eq!(missing.value, "");
    assert_eq!(
        overrides.write("/maint", " route add m /m http://10.0.0.9:1/ ", missing.version).await.unwrap(),
        Written::Done
    );
    r.tables.shows("/m ").await;
    let read = overrides.read("/maint").await.unwrap();
    assert_eq!(read.value, "route add m /m http://10.0.0.9:1/");
    assert_eq!(overrides.write("/maint", "# one", read.version).await.unwrap(), Written::Done);
    assert_eq!(overrides.write("/maint", "# two", read.version).await.unwrap(), Written::Mismatch);
    assert_eq!(overrides.write("", "# three", 0).await.unwrap(), Written::Done);
    fake.kv("fabio/config2", Some("x"));
    assert_eq!(overrides.paths().await.unwrap(), Some(vec![String::new(), "/maint".into()]));
    assert!(matches!(overrides.read("2").await, Err(Error::Suffix(_))));
    assert_eq!(overrides.check("route add a /a http://a/\nroute ad").len(), 1);
    fake.fault("/v1/kv/", Fault::Status(500, "no leader"));
    assert!(
        overrides.paths().await.is_err()
            && overrides.read("").await.is_err()
            && overrides.write("", "", 1).await.is_err()
    );
}

#[tokio::test]
async fn overrides_survive_what_happens_to_the_store() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    let r = run_fake(&fake).await;
    fake.fault("/v1/kv/", Fault::Status(403, "Permission denied"));
    fake.kv("fabio/config", Some("route add n /n http://10.0.0.9:1/"));
    r.tables.shows("/n ").await;
    r.tables.stays("403", 1.5, |t| t.listing().contains("/n ")).await;
    fake.heal();
    fake.refuse().await;
    fake.forget_everything();
    fake.accept().await;
    r.tables.stays("lost", 3.0, |t| t.listing().contains("/n ") && t.listing().contains("/a ")).await;
    fake.kv("fabio/config", Some("route add o /o http://10.0.0.9:1/"));
    r.tables.shows("/o ").await;
    fake.kv("fabio/config", None);
    r.tables.lacks("/o ").await;
}

// --- what goes over the wire

#[tokio::test]
async fn tokens_and_namespaces() {
    let fake = Fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let mut client = fake.config();
    client.token = Token::File(file.clone());
    client.namespace = Some("team a".into());
    client.partition = Some("p".into());
    let r = run(config(Backend::Consul(Box::new(consul(client))))).await.unwrap();
    r.registry.ready().await;
    r.registry.announce().await;
    until("registered", 2.0, async || !fake.state().agent.is_empty()).await;
    let requests = fake.saw("");
    assert!(requests.len() > 6 && requests.iter().all(|q| q.contains("ns=team%20a") && q.contains("partition=p")));
    assert!(requests.iter().all(|q| !q.contains("first")));
    let tokens = fake.state().tokens.clone();
    assert!(tokens.len() == requests.len() && tokens.iter().all(|t| t == "first"));
    assert!(fake.state().agent.values().all(|r| r["Namespace"] == "team a" && r["Partition"] == "p"));
    std::fs::write(folder.path().join("new"), "second").unwrap();
    std::fs::rename(folder.path().join("new"), &file).unwrap();
    until("the new token", 3.0, async || {
        let _ = r.registry.overrides().paths().await;
        fake.state().tokens.last().is_some_and(|t| t == "second")
    })
    .await;
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let _ = r.registry.overrides().paths().await;
    assert_eq!(fake.state().tokens.last().unwrap(), "second", "a file that is away for a moment");
}

// --- our own registration

#[tokio::test]
async fn we_register_when_told_and_leave_nothing_behind() {
    let fake = Fake::start().await;
    let r = run_fake(&fake).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(fake.saw("PUT").is_empty(), "not before the listeners are open");
    r.registry.announce().await;
    until("registered", 2.0, async || fake.state().agent.len() == 1).await;
    let (id, value) = fake.state().agent.first_key_value().map(|(k, v)| (k.clone(), v.clone())).unwrap();
    assert!(id.starts_with("fabio-") && id.ends_with("-9998"), "{id}");
    assert_eq!(value["Checks"][1]["HTTP"], "http://127.0.0.1:9998/health");
    assert_eq!(
        (&value["Tags"][0], &value["Port"], &value["Checks"][0]["TTL"]),
        (&"edge".into(), &9998.into(), &"15s".into())
    );
    until("the check passes", 2.0, async || fake.saw(&format!("/v1/agent/check/update/{id}-ttl")).len() == 1).await;
    r.registry.deregister().await;
    assert!(fake.state().agent.is_empty());
    fake.put(crate::registry::testing::Svc { tags: vec!["urlprefix-/a register=late".into()], ..svc("a", "a", 1) });
    r.tables.shows("/a ").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(fake.state().agent.is_empty(), "no name comes back after that");
    r.registry.deregister().await;
}

#[tokio::test]
async fn without_registration_nothing_is_written() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    let mut consul = consul(fake.config());
    consul.register = false;
    let r = run(config(Backend::Consul(Box::new(consul)))).await.unwrap();
    r.registry.ready().await;
    r.registry.announce().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    r.registry.deregister().await;
    assert_eq!(fake.saw("PUT"), Vec::<String>::new());
}

#[tokio::test]
async fn aliases_come_and_go_with_their_routes() {
    let fake = Fake::start().await;
    let alias = |name: &str, tag: &str| crate::registry::testing::Svc { tags: vec![tag.into()], ..svc(name, name, 1) };
    fake.put(alias("a", "urlprefix-/a register=alpha"));
    fake.kv("fabio/config", Some("route add b /b http://10.0.0.9:1/ opts \"register=beta\""));
    let mut consul = consul(fake.config());
    consul.register = false;
    let r = run(config(Backend::Consul(Box::new(consul)))).await.unwrap();
    r.registry.ready().await;
    r.registry.announce().await;
    let names = || {
        let state = fake.state();
        state.agent.values().map(|v| v["Name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("both", 2.0, async || names() == ["alpha", "beta"]).await;
    fake.kv("fabio/config", Some("route add broken\nroute add b /b http://10.0.0.9:1/ opts \"register=beta\""));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(names(), ["alpha", "beta"], "a bad line elsewhere");
    fake.remove("n1/a");
    until("alpha gone", 2.0, async || names() == ["beta"]).await;
    fake.put(alias("a", "urlprefix-/a register=gamma"));
    until("gamma", 2.0, async || names() == ["beta", "gamma"]).await;
    r.registry.deregister().await;
    assert!(names().is_empty());
}

#[tokio::test]
async fn a_slow_agent_delays_no_table_and_no_exit() {
    let fake = Fake::start().await;
    let r = run_fake(&fake).await;
    r.registry.announce().await;
    until("registered", 2.0, async || fake.state().agent.len() == 1).await;
    fake.fault("/v1/agent/", Fault::Hang);
    fake.put(crate::registry::testing::Svc { tags: vec!["urlprefix-/a register=alpha".into()], ..svc("a", "a", 1) });
    assert!(r.tables.shows("/a ").await < Duration::from_secs(1));
    let started = Instant::now();
    r.registry.deregister().await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_agent_that_forgot_us_is_told_again() {
    let fake = Fake::start().await;
    let r = run_fake(&fake).await;
    r.registry.announce().await;
    until("registered", 2.0, async || fake.state().agent.len() == 1).await;
    fake.state().agent.clear();
    until("again", 12.0, async || fake.state().agent.len() == 1).await;
    r.registry.deregister().await;
}

#[tokio::test]
async fn real_consul_registration_and_overrides() {
    let real = Real::start().await;
    let mut consul = consul(address_config(&real.address));
    consul.announce.addr = "127.0.0.1:39998".into();
    let r = run(config(Backend::Consul(Box::new(consul)))).await.unwrap();
    r.registry.ready().await;
    r.registry.announce().await;
    until("registered", 3.0, async || real.get("/v1/agent/services").await.unwrap().to_string().contains("fabio-"))
        .await;
    real.agent("w1", "web", 80, &["urlprefix-/web register=alias"]).await;
    r.tables.shows("route add web /web http://10.0.0.1:80/").await;
    until("the alias", 3.0, async || real.get("/v1/agent/services").await.unwrap().to_string().contains("alias-"))
        .await;

    let overrides = r.registry.overrides();
    assert_eq!(overrides.paths().await.unwrap(), Some(vec![]));
    let empty = overrides.read("/x y").await.unwrap();
    assert_eq!(
        overrides.write("/x y", "route add m /m http://10.0.0.9:1/", empty.version).await.unwrap(),
        Written::Done
    );
    let took = r.tables.shows("/m ").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let read = overrides.read("/x y").await.unwrap();
    assert_eq!(read.value, "route add m /m http://10.0.0.9:1/");
    assert_eq!(overrides.write("/x y", "#", read.version + 1).await.unwrap(), Written::Mismatch);
    assert_eq!(overrides.write("/x y", "#", read.version).await.unwrap(), Written::Done);
    r.tables.lacks("/m ").await;
    assert_eq!(overrides.paths().await.unwrap(), Some(vec!["/x y".into()]));

    r.registry.deregister().await;
    let services = real.get("/v1/agent/services").await.unwrap().to_string();
    assert!(!services.contains("fabio-") && !services.contains("alias-"), "{services}");
}

// --- other back-ends

#[tokio::test]
async fn static_routes() {
    let routes = "route add s /a http://10.0.0.1:1/\nroute add\nroute add s foo.com/ http://10.0.0.1:1/".to_owned();
    let r = run(config(Backend::Static { routes, page: "<html>".into() })).await.unwrap();
    r.registry.ready().await;
    assert!(r.tables.listing().contains("/a ") && r.tables.listing().contains("foo.com/"));
    assert_eq!((r.tables.page().as_deref(), r.registry.status().table.rejects.len()), (Some("<html>"), 1));
    let overrides = r.registry.overrides();
    assert_eq!(overrides.paths().await.unwrap(), None);
    assert_eq!(overrides.read("").await.unwrap(), Default::default());
    assert_eq!(overrides.write("", "# x", 0).await.unwrap(), Written::Mismatch);
    r.registry.announce().await;
    tokio::time::timeout(Duration::from_secs(1), r.registry.deregister()).await.unwrap();
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn files_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (path, page) = (folder.path().join("routes"), folder.path().join("page"));
    std::fs::write(&path, "# comment\nroute add s /a http://10.0.0.1:1/\n").unwrap();
    let backend = Backend::File { path: path.clone(), page: None };
    let r = run(config(backend)).await.unwrap();
    r.registry.ready().await;
    assert!(r.tables.listing().contains("/a ") && r.tables.page().as_deref() == Some(""));
    replace(&path, "route add s /b http://10.0.0.1:1/\nroute broken");
    r.tables.shows("/b ").await;
    assert!(!r.tables.listing().contains("/a "));
    std::fs::remove_file(&path).unwrap();
    r.tables.stays("a file that vanished", 1.2, |t| t.listing().contains("/b ")).await;
    assert!(r.registry.status().sources[0].failures > 0);
    replace(&path, "route add s /c http://10.0.0.1:1/");
    r.tables.shows("/c ").await;

    std::fs::write(&page, "one").unwrap();
    let r = run(config(Backend::File { path: path.clone(), page: Some(page.clone()) })).await.unwrap();
    r.registry.ready().await;
    assert_eq!(r.tables.page().as_deref(), Some("one"));
    replace(&page, "two");
    r.tables.until("the page", 2.0, |t| t.page().as_deref() == Some("two")).await;

    let mut missing = config(Backend::File { path: folder.path().join("none"), page: None });
    missing.timeout = Duration::from_millis(200);
    assert!(matches!(run(missing).await, Err(Error::Timeout { .. })));
}

/// A web server that answers with what it is told, and counts.
async fn web() -> (std::net::SocketAddr, Arc<Mutex<String>>, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, count) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)));
    let (told, counted) = (answer.clone(), count.clone());
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            let n = socket.read(&mut buffer).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&buffer[..n]).into_owned();
            counted.fetch_add(1, Ordering::Relaxed);
            assert!(head.starts_with("GET /routes?q=1 HTTP/1.1\r\n"), "{head}");
            let text = told.lock().unwrap().clone();
            let (status, body) = if text.is_empty() { ("500 X", String::new()) } else { ("200 OK", text) };
            let length = body.len();
            let _ = socket
                .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
                .await;
        }
    });
    (address, answer, count)
}

fn custom(address: &str) -> CustomConfig {
    CustomConfig {
        host: address.into(),
        scheme: "http".into(),
        path: "routes".into(),
        query: "q=1".into(),
        skip_verify: false,
        timeout: Duration::from_secs(2),
        poll_interval: Duration::from_millis(50),
        page: "<html>custom</html>".into(),
    }
}

#[tokio::test]
async fn custom_routes_are_polled() {
    let (address, answer, count) = web().await;
    let say = |text: &str| *answer.lock().unwrap() = text.into();
    say(
        r#"[{"cmd":"route add","service":"s","src":"/a","dst":"http://10.0.0.1:1/","weight":0.5,"tags":["t"],"opts":{"strip":"/a"}}]"#,
    );
    let r = run(config(Backend::Custom(custom(&address.to_string())))).await.unwrap();
    r.registry.ready().await;
    assert!(r.tables.listing().contains("strip=/a") && r.tables.page().as_deref() == Some("<html>custom</html>"));
    say(r#"[{"cmd":"route add","service":"s2","src":"/a","dst":"http://10.0.0.1:1/"},{"cmd":"nonsense"}]"#);
    r.tables.shows("add s2 ").await;
    assert!(!r.tables.listing().contains("strip") && !r.tables.listing().contains("tags"), "{}", r.tables.listing());
    // The status is written after the table is published.
    r.tables.until("the reject", 3.0, |_| r.registry.status().table.rejects.len() == 1).await;
    let tables = r.tables.count();
    for bad in ["", "[", "{}", "\"x\""] {
        say(bad);
        let before = count.load(Ordering::Relaxed);
        until(bad, 3.0, async || count.load(Ordering::Relaxed) > before + 2).await;
        assert!(r.tables.listing().contains("add s2 "), "{bad}");
    }
    assert_eq!(r.tables.count(), tables, "polls without a change publish nothing");
    say("null");
    r.tables.until("empty", 2.0, |t| t.listing().is_empty()).await;
}

#[tokio::test]
async fn a_custom_source_that_never_answers_ends_the_start() {
    let (address, _, _) = web().await;
    let mut config = config(Backend::Custom(custom(&address.to_string())));
    config.timeout = Duration::from_millis(300);
    assert!(matches!(run(config).await, Err(Error::Timeout { backend: "custom", .. })));
}

mod datacenters;
mod stale;
