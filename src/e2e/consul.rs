//! Consul and the table: what the agent says becomes traffic, and its troubles do not. Tests that need no fault run against
//! the real Consul and against the development agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consul_dev::{Agent, Config, Fault, Rule};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::consul::Consul;
use crate::testing::origin::{self, Origin, TcpOrigin};
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, client, free_addr, until};

/// Each of these functions as a test on both kinds of Consul.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod real {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Consul::real().await).await;
            })*
        }
        mod dev {
            $(#[tokio::test]
            async fn $name() {
                let agent = super::agent().await;
                super::$name(&super::Consul::at(agent.addr())).await;
            })*
        }
    };
}

on_both! {
    every_kind_of_change_is_seen_in_traffic
    a_bad_override_costs_itself
    keys_below_the_overrides_are_read_in_order
    warnings_count_only_where_they_are_accepted
    the_address_of_the_node_stands_in
    odd_services_harm_nobody
    all_checks_or_one
    another_node_with_the_same_id_is_another_instance
    a_failing_node_takes_its_services_along
    it_registers_once_and_leaves_nothing_behind
    a_start_that_fails_registers_nothing
    aliases_are_registered_as_long_as_a_tag_asks
    instances_that_come_and_go_lose_no_request
}

async fn agent() -> Agent {
    agent_at("127.0.0.1:0".parse().expect("an address")).await
}

async fn agent_at(addr: std::net::SocketAddr) -> Agent {
    let config = Config { addr, shortest_interval: Duration::from_millis(100), ..Config::default() };
    Agent::start(config).await.expect("a free port on loopback")
}

async fn every_kind_of_change_is_seen_in_traffic(consul: &Consul) {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let proxy = Start::consul(consul).start().await;
    let web = |port: u16, tag: &str| {
        json!({ "ID": "web-1", "Name": "web", "Address": "127.0.0.1", "Port": port, "Tags": [tag],
            "Check": { "CheckID": "c", "TTL": "1h", "Status": "passing" } })
    };
    proxy.answers("h", "/web", 404).await;
    consul.register(web(a.port(), "urlprefix-/web")).await;
    proxy.serves("h", "/web", "a").await;
    consul.check("c", "fail").await;
    proxy.answers("h", "/web", 404).await;
    consul.check("c", "pass").await;
    proxy.serves("h", "/web", "a").await;
    consul.maintenance("web-1", true).await;
    proxy.answers("h", "/web", 404).await;
    consul.maintenance("web-1", false).await;
    proxy.serves("h", "/web", "a").await;
    consul.register(web(b.port(), "urlprefix-/web")).await;
    proxy.serves("h", "/web", "b").await;
    consul.register(web(b.port(), "urlprefix-/other")).await;
    proxy.serves("h", "/other", "b").await;
    proxy.answers("h", "/web", 404).await;
    consul.deregister("web-1").await;
    proxy.answers("h", "/other", 404).await;
}

async fn a_bad_override_costs_itself(consul: &Consul) {
    let (web, ok) = (Origin::start("web").await, Origin::start("ok").await);
    let url = ok.url();
    let text = format!("route weight gone /x weight 0.5\nrout add typo\nroute add ok /ok {url}\n");
    consul.kv_put("fabio/config", &text).await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    let proxy = Start::consul(consul).start().await;
    // From a cold start, and for what comes later.
    proxy.serves("h", "/ok", "ok").await;
    proxy.serves("h", "/web", "web").await;
    consul.put("new-1", "new", web.addr(), &["urlprefix-/new"], &["passing"]).await;
    proxy.serves("h", "/new", "web").await;
    let rejects = proxy.page("/api/rejects").await.text();
    assert!(rejects.contains("rout add typo") && rejects.contains("fabio/config"), "{rejects}");
    consul.kv_put("fabio/config", &format!("route add ok /ok {url}\nroute add fixed /fixed {url}\n")).await;
    proxy.serves("h", "/fixed", "ok").await;
    // Told after the table is in service.
    let none = async || (proxy.page("/api/rejects").await.text().trim() == "[]").then_some(());
    until(PATIENCE, "no rejects", none).await;
}

async fn keys_below_the_overrides_are_read_in_order(consul: &Consul) {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    // No newline at its end; a byte order mark, CRLF and comments in the next.
    consul.kv_put("fabio/config/10-a", &format!("route add x /x {}", a.url())).await;
    let second = format!("\u{feff}# one\r\n// two\r\nroute add y /y {}\r\nroute del x\r\n", b.url());
    consul.kv_put("fabio/config/20-b", &second).await;
    consul.kv_put("fabio/configX", &format!("route add z /z {}", a.url())).await;
    let proxy = Start::consul(consul).start().await;
    proxy.serves("h", "/y", "b").await;
    proxy.answers("h", "/x", 404).await;
    proxy.answers("h", "/z", 404).await;
    consul.kv_delete("fabio/config/20-b").await;
    proxy.serves("h", "/x", "a").await;
    consul.kv_delete("fabio/config/").await;
    proxy.answers("h", "/x", 404).await;
}

async fn warnings_count_only_where_they_are_accepted(consul: &Consul) {
    let web = Origin::start("web").await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["warning"]).await;
    consul.put("ok-1", "ok", web.addr(), &["urlprefix-/ok"], &["passing"]).await;
    let accepting = Start::consul(consul).property("registry.consul.service.status", "passing,warning");
    accepting.start().await.serves("h", "/web", "web").await;
    let strict = Start::consul(consul).start().await;
    strict.serves("h", "/ok", "web").await;
    strict.answers("h", "/web", 404).await;
}

/// Registers in the catalog: any node, any address.
async fn put(consul: &Consul, node: &str, node_address: &str, service: Value, check: &str) {
    let id = service["ID"].as_str().expect("an id").to_owned();
    let check =
        json!({ "Node": node, "CheckID": format!("{node}-{id}"), "Name": "c", "Status": check, "ServiceID": id });
    let body = json!({ "Node": node, "Address": node_address, "Service": service, "Checks": [check] });
    consul.ok("PUT", "/v1/catalog/register", body).await;
}

async fn the_address_of_the_node_stands_in(consul: &Consul) {
    let web = Origin::start("web").await;
    let service =
        |id: &str, port: u16| json!({ "ID": id, "Service": id, "Port": port, "Tags": [format!("urlprefix-/{id}")] });
    put(consul, "n1", "127.0.0.1", service("web", web.port()), "passing").await;
    put(consul, "n1", "127.0.0.1", service("none", 0), "passing").await;
    let proxy = Start::consul(consul).start().await;
    proxy.serves("h", "/web", "web").await;
    proxy.answers("h", "/none", 404).await;
}

async fn odd_services_harm_nobody(consul: &Consul) {
    let web = Origin::start("web").await;
    let names = ["my svc", "a#b", "weight", "tags", "web\"x", "my.app-v1.2", "-"];
    for (number, name) in names.iter().enumerate() {
        let tag = format!("urlprefix-/odd{number}");
        consul.put(&format!("odd-{number}"), name, web.addr(), &[&tag, "urlprefix-/\u{1}\u{7f}"], &["passing"]).await;
    }
    let tags = [
        "\turlprefix-/tab\tstrip=/tab ",
        " urlprefix-/blank ",
        "urlprefix-",
        "url-prefix:-6080",
        "urlprefix-/x weight=NaN",
    ];
    consul.put("web-1", "web", web.addr(), &tags, &["passing"]).await;
    let null_tags = json!({ "ID": "null", "Service": "null", "Port": 1, "Tags": null });
    put(consul, "n1", "127.0.0.1", null_tags, "passing").await;
    let proxy = Start::consul(consul).start().await;
    for path in ["/tab", "/blank", "/odd5"] {
        proxy.serves("h", path, "web").await;
    }
    proxy.ends_well().await;
}

async fn all_checks_or_one(consul: &Consul) {
    let web = Origin::start("web").await;
    consul.put("mixed", "mixed", web.addr(), &["urlprefix-/mixed"], &["passing", "critical"]).await;
    consul.put("none", "none", web.addr(), &["urlprefix-/none"], &[]).await;
    consul.put("good", "good", web.addr(), &["urlprefix-/good"], &["passing", "passing"]).await;
    for (required, status) in [("one", 200), ("all", 404)] {
        let proxy = Start::consul(consul).property("registry.consul.checksRequired", required).start().await;
        proxy.serves("h", "/good", "web").await;
        proxy.answers("h", "/mixed", status).await;
        // Without a check of its own nobody says that it is well.
        proxy.answers("h", "/none", 404).await;
    }
}

async fn another_node_with_the_same_id_is_another_instance(consul: &Consul) {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let service = |port: u16| json!({ "ID": "web", "Service": "web", "Port": port, "Tags": ["urlprefix-/web"] });
    put(consul, "n1", "127.0.0.1", service(a.port()), "passing").await;
    put(consul, "n2", "127.0.0.1", service(b.port()), "critical").await;
    let proxy = Start::consul(consul).property("proxy.strategy", "rr").start().await;
    for _ in 0..6 {
        proxy.serves("h", "/web", "a").await;
    }
    assert_eq!(b.accepted(), 0);
    put(consul, "n2", "127.0.0.1", service(b.port()), "passing").await;
    proxy.serves("h", "/web", "b").await;
}

async fn a_failing_node_takes_its_services_along(consul: &Consul) {
    let web = Origin::start("web").await;
    let service = json!({ "ID": "web", "Service": "web", "Port": web.port(), "Tags": ["urlprefix-/web"] });
    put(consul, "n1", "127.0.0.1", service, "passing").await;
    let serf = async |status: &str| {
        let check = json!({ "Node": "n1", "CheckID": "serfHealth", "Name": "Serf", "Status": status });
        let body = json!({ "Node": "n1", "Address": "127.0.0.1", "SkipNodeUpdate": true, "Check": check });
        consul.ok("PUT", "/v1/catalog/register", body).await;
    };
    serf("passing").await;
    let proxy = Start::consul(consul).start().await;
    proxy.serves("h", "/web", "web").await;
    serf("critical").await;
    proxy.answers("h", "/web", 404).await;
    serf("passing").await;
    proxy.serves("h", "/web", "web").await;
}

/// The instances of `fabio` in the agent.
async fn registered(consul: &Consul, name: &str) -> usize {
    let services = consul.ok("GET", "/v1/agent/services", "").await;
    services.as_object().map_or(0, |all| all.values().filter(|service| service["Service"] == name).count())
}

async fn it_registers_once_and_leaves_nothing_behind(consul: &Consul) {
    // The same addresses in all its lives, as on one machine.
    let admin = free_addr();
    let start = || {
        let start = Start::consul(consul).property("registry.consul.register.enabled", true);
        start.property("ui.addr", admin).property("registry.consul.register.addr", admin)
    };
    let mut first = start().start().await;
    consul.wait_passing("fabio", 1).await;
    first.signal(Signal::KILL);
    first.ferrio.process().wait(PATIENCE).await;
    let mut second = start().start().await;
    consul.wait_passing("fabio", 1).await;
    assert_eq!(registered(consul, "fabio").await, 1, "kill -9 left a ghost");
    assert_eq!(second.ferrio.stop().await, Some(0));
    assert_eq!(registered(consul, "fabio").await, 0);
    // A third that crashes in its own way: it is told to leave while it serves.
    let mut third = start().start().await;
    consul.wait_passing("fabio", 1).await;
    third.signal(Signal::INT);
    assert_eq!(third.ferrio.process().wait(PATIENCE).await.code(), Some(0));
    assert_eq!(registered(consul, "fabio").await, 0);
}

async fn a_start_that_fails_registers_nothing(consul: &Consul) {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let start = Start::consul(consul).property("registry.consul.register.enabled", true);
    let addr = taken.local_addr().expect("a bound socket has an address");
    let mut proxy = start.property("proxy.addr", addr).spawn();
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(1));
    assert!(proxy.ferrio.stderr().contains("in use"), "{}", proxy.ferrio.stderr());
    assert_eq!(registered(consul, "fabio").await, 0);
}

async fn aliases_are_registered_as_long_as_a_tag_asks(consul: &Consul) {
    let web = Origin::start("web").await;
    let tag = "urlprefix-/web register=alias";
    consul.put("web-1", "web", web.addr(), &[tag], &["passing"]).await;
    let proxy = Start::consul(consul).property("registry.consul.register.enabled", true).start().await;
    until(PATIENCE, "the alias", async || (registered(consul, "alias").await == 1).then_some(())).await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    until(PATIENCE, "the alias to go", async || (registered(consul, "alias").await == 0).then_some(())).await;
    assert_eq!(registered(consul, "fabio").await, 1);
    proxy.ends_well().await;
    assert_eq!(registered(consul, "fabio").await, 0);
}

async fn instances_that_come_and_go_lose_no_request(consul: &Consul) {
    let (steady, moving) = (Origin::start("steady").await, Origin::start("moving").await);
    consul.put("steady", "web", steady.addr(), &["urlprefix-/web"], &["passing"]).await;
    let proxy = Start::consul(consul).start().await;
    proxy.serves("h", "/web", "steady").await;
    let requests = async {
        let mut client = proxy.client().await;
        let mut served = 0;
        while moving.seen().len() < 50 || served < 300 {
            assert_eq!(client.get("h", "/web").await.status, 200);
            served += 1;
        }
    };
    let changes = async {
        loop {
            consul.put("moving", "web", moving.addr(), &["urlprefix-/web"], &["passing"]).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            consul.drop("moving").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = requests => {}
        () = changes => {}
    }
}

// What follows needs an agent that can be told to fail.

#[tokio::test]
async fn nothing_is_written_when_it_must_not_register() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let web = Origin::start("web").await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    agent.faults().forget();
    let mut proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/web", "web").await;
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert!(agent.faults().count("GET", "/v1/") > 3);
    assert_eq!(agent.faults().seen().iter().filter(|seen| seen.method != "GET").count(), 0);
}

#[tokio::test]
async fn a_token_without_a_right_loses_nothing_and_floods_no_log() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let web = Origin::start("web").await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    agent.faults().add(Rule::new(Fault::Error(403, "Permission denied".into())).path("/v1/kv/"));
    let proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/web", "web").await;
    // Then nothing may be read at all.
    agent.faults().add(Rule::new(Fault::Error(403, "Permission denied".into())).path("/v1/"));
    agent.reset_indexes(2_000);
    let before = agent.faults().total();
    until(PATIENCE, "some refusals", async || (agent.faults().total() > before + 6).then_some(())).await;
    assert_eq!(proxy.get("h", "/web").await.text(), "web");
    let lines = proxy.ferrio.stderr().lines().filter(|line| line.contains("Permission denied")).count();
    assert!((1..=12).contains(&lines), "{lines} lines:\n{}", proxy.ferrio.stderr());
}

#[tokio::test]
async fn listeners_open_when_consul_has_come() {
    let web = Origin::start("web").await;
    let addr = free_addr();
    let mut proxy = Start::consul_at(addr).spawn();
    proxy.ferrio.process().says(PATIENCE, "Error initializing backend").await;
    assert!(tokio::net::TcpStream::connect(proxy.addr).await.is_err(), "open before the first table");
    let agent = agent_at(addr).await;
    Consul::at(agent.addr()).put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    proxy.ferrio.listening().await;
    proxy.serves("h", "/web", "web").await;
}

#[tokio::test]
async fn without_consul_it_gives_up_after_the_timeout() {
    let start = Start::consul_at(free_addr()).property("registry.timeout", "300ms").property("registry.retry", "50ms");
    let mut proxy = start.spawn();
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(1));
    assert!(proxy.ferrio.stderr().contains("Timeout registering backend"), "{}", proxy.ferrio.stderr());
}

#[tokio::test]
async fn overrides_that_come_late_are_waited_for_and_wipe_nothing() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let (web, manual) = (Origin::start("web").await, Origin::start("manual").await);
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    consul.kv_put("fabio/config", &format!("route add m /m {}\nroute del gone", manual.url())).await;
    agent.faults().add(Rule::new(Fault::Slow(Duration::from_millis(700))).path("/v1/kv/").times(2));
    let proxy = Start::consul(&consul).start().await;
    // The first table has both.
    assert_eq!(proxy.get("h", "/m").await.text(), "manual");
    assert_eq!(proxy.get("h", "/web").await.text(), "web");
    consul.kv_delete("fabio").await;
    proxy.answers("h", "/m", 404).await;
    assert_eq!(proxy.get("h", "/web").await.text(), "web");
}

#[tokio::test]
async fn troubles_of_consul_are_none_of_the_traffic() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let web = Origin::start("web").await;
    for name in ["a", "b", "c", "d"] {
        consul.put(name, name, web.addr(), &[&format!("urlprefix-/{name}")], &["passing"]).await;
    }
    let proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/a", "web").await;
    let rule = |fault: Fault, path: &str| Rule::new(fault).path(path).method("GET");
    let error = |path: &str| rule(Fault::Error(500, "rpc error: No cluster leader".into()), path);
    for (number, (what, rules)) in [
        ("errors", vec![error("/v1/")]),
        ("no leader", vec![rule(Fault::LeaderLoss, "/v1/")]),
        ("half of the reads", vec![error("/v1/health/service/a"), error("/v1/health/service/c")]),
        ("cut answers", vec![rule(Fault::Cut, "/v1/")]),
        ("filtered to nothing", vec![rule(Fault::Empty, "/v1/health"), rule(Fault::Empty, "/v1/catalog")]),
        ("index 1", vec![rule(Fault::IndexReset(1), "/v1/")]),
        ("no index", vec![rule(Fault::DropIndexHeader, "/v1/")]),
    ]
    .into_iter()
    .enumerate()
    {
        let before = agent.faults().total();
        rules.into_iter().for_each(|rule| agent.faults().add(rule));
        // Waiting queries come back with this, and go on under the fault.
        consul.put("noise", "noise", web.addr(), &[&format!("urlprefix-/noise{number}")], &["passing"]).await;
        let mut client = proxy.client().await;
        let end = std::time::Instant::now() + Duration::from_millis(700);
        while std::time::Instant::now() < end {
            for name in ["/a", "/b", "/c", "/d"] {
                let response = client.get("h", name).await;
                assert_eq!(response.status, 200, "{what}: {name}");
            }
        }
        let asked = agent.faults().total() - before;
        assert!((1..150).contains(&asked), "{what}: {asked} questions");
        agent.faults().clear();
        // Good again: what is new is seen.
        let fresh = format!("/fresh{number}");
        consul.put(&fresh[1..], &fresh[1..], web.addr(), &[&format!("urlprefix-{fresh}")], &["passing"]).await;
        proxy.serves("h", &fresh, "web").await;
    }
    // And what is really gone goes.
    consul.drop("a").await;
    proxy.answers("h", "/a", 404).await;
}

#[tokio::test]
async fn an_agent_that_lost_everything_drops_nothing_that_comes_back() {
    let addr = free_addr();
    let agent = agent_at(addr).await;
    let consul = Consul::at(addr);
    let web = Origin::start("web").await;
    let put =
        async |name: &str| consul.put(name, name, web.addr(), &[&format!("urlprefix-/{name}")], &["passing"]).await;
    put("a").await;
    put("b").await;
    let proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/a", "web").await;
    agent.restart_empty();
    let mut client = proxy.client().await;
    let end = std::time::Instant::now() + Duration::from_secs(2);
    let mut back = false;
    while std::time::Instant::now() < end {
        for path in ["/a", "/b"] {
            assert_eq!(client.get("h", path).await.status, 200, "{path}");
        }
        if !back && end - std::time::Instant::now() < Duration::from_secs(1) {
            back = true;
            put("a").await;
            put("b").await;
        }
    }
    consul.drop("b").await;
    proxy.answers("h", "/b", 404).await;
    assert_eq!(client.get("h", "/a").await.status, 200);
}

#[tokio::test]
async fn the_namespace_is_asked_for_everywhere() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    // Consul without namespaces refuses such requests; what is asked is all that matters here.
    let _proxy = Start::consul(&consul).property("registry.consul.namespace", "team-a").spawn();
    let about = until(PATIENCE, "requests", async || {
        let mut seen = agent.faults().seen();
        seen.retain(|seen| !seen.target.starts_with("/v1/agent/self"));
        (seen.len() >= 4).then_some(seen)
    })
    .await;
    for seen in about {
        assert!(seen.target.contains("ns=team-a"), "{}", seen.target);
    }
}

#[tokio::test]
async fn a_service_that_fails_is_without_routes_as_in_fabio() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let (api, rest) = (Origin::start("api").await, Origin::start("rest").await);
    consul.put("api-1", "api", api.addr(), &["urlprefix-/api"], &["passing"]).await;
    consul.put("rest-1", "rest", rest.addr(), &["urlprefix-/"], &["passing"]).await;
    let proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/api", "api").await;
    consul.put_check("api-1", 0, "critical").await;
    proxy.serves("h", "/api", "rest").await;
}

#[tokio::test]
async fn an_address_that_moves_to_another_service_serves_that_one() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let place = Origin::start("place").await;
    consul.put("one", "web", place.addr(), &["urlprefix-web.example.com/"], &["passing"]).await;
    let proxy = Start::consul(&consul).one_worker().start().await;
    proxy.serves("web.example.com", "/", "place").await;
    consul.put("two", "api", place.addr(), &["urlprefix-api.example.com/"], &["passing"]).await;
    consul.drop("one").await;
    place.always(origin::reply(200, &[], "api"));
    proxy.answers("web.example.com", "/", 404).await;
    proxy.serves("api.example.com", "/", "api").await;
    let seen = place.seen();
    for seen in &seen {
        let first = seen.header("host") == Some("web.example.com");
        assert!(!seen_with(place.seen(), seen.connection, !first), "one connection for two services");
    }
}

fn seen_with(all: Vec<origin::Seen>, connection: usize, web: bool) -> bool {
    all.iter().any(|s| s.connection == connection && (s.header("host") == Some("web.example.com")) == web)
}

#[tokio::test]
async fn health_follows_the_first_table() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    agent.faults().add(Rule::new(Fault::Error(500, "rpc error: No cluster leader".into())).path("/v1/catalog"));
    let proxy: Proxy = Start::consul(&consul).spawn();
    let health = async || match tokio::net::TcpStream::connect(proxy.admin).await {
        Ok(_) => Some(client::get(proxy.admin, "admin", "/health").await.status),
        Err(_) => None,
    };
    until(PATIENCE, "an answer of /health", async || health().await.filter(|status| *status == 503)).await;
    assert!(tokio::net::TcpStream::connect(proxy.addr).await.is_err(), "open before the first table");
    agent.faults().clear();
    until(PATIENCE, "readiness", async || health().await.filter(|status| *status == 200)).await;
    assert_eq!(proxy.get("h", "/").await.status, 404);
}

#[tokio::test]
async fn lists_that_were_emptied_were_not_asked_for_again_until_something_changed() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let web = Origin::start("web").await;
    consul.put("a", "a", web.addr(), &["urlprefix-/a"], &["passing"]).await;
    let mut proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/a", "web").await;
    for path in ["/v1/health", "/v1/catalog"] {
        agent.faults().add(Rule::new(Fault::Empty).path(path).method("GET"));
    }
    // The first change ends queries that were asked before.
    for name in ["b", "c"] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        consul.put(name, name, web.addr(), &[&format!("urlprefix-/{name}")], &["passing"]).await;
    }
    proxy.ferrio.process().says(PATIENCE, "leaves out what was always there").await;
    // The right to read comes back, and nothing else happens.
    agent.faults().clear();
    let good = std::time::Instant::now();
    proxy.serves("h", "/c", "web").await;
    assert!(good.elapsed() < Duration::from_secs(8), "{:?}", good.elapsed());
    assert_eq!(proxy.get("h", "/a").await.text(), "web");
}

#[tokio::test]
async fn consul_may_speak_tls_and_ask_for_a_certificate_which_may_be_replaced() {
    let agent = agent().await;
    let consul = Consul::at(agent.addr());
    let web = Origin::start("web").await;
    consul.put("web-1", "web", web.addr(), &["urlprefix-/web"], &["passing"]).await;
    let ca = Ca::new();
    let (server, first, second) = (ca.leaf(&["localhost"]), ca.leaf(&["first"]), ca.leaf(&["second"]));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca.pem().as_bytes()).flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has both versions")
        .with_client_cert_verifier(verifier.expect("one authority"))
        .with_single_cert(server.chain(), server.key())
        .expect("a key that fits");

    // Ends TLS before the agent, notes who came, and hangs up when told.
    let (acceptor, behind) = (TlsAcceptor::from(Arc::new(config)), agent.addr());
    let (shown, cut) = (Arc::new(Mutex::new(Vec::new())), tokio::sync::watch::channel(()).0);
    let (noted, hang_up) = (shown.clone(), cut.clone());
    let front = TcpOrigin::start(move |tcp: tokio::net::TcpStream| {
        let (acceptor, noted, mut hang_up) = (acceptor.clone(), noted.clone(), hang_up.subscribe());
        async move {
            let Ok(mut tls) = acceptor.accept(tcp).await else { return };
            let certificate = tls.get_ref().1.peer_certificates().expect("one was asked for")[0].to_vec();
            noted.lock().expect("no panic").push(certificate);
            let mut plain = tokio::net::TcpStream::connect(behind).await.expect("the agent");
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut tls, &mut plain) => {}
                _ = hang_up.changed() => {}
            }
        }
    })
    .await;
    let (cert, key) = (first.cert_path.clone(), first.key_path.clone());
    let start = |authority: &Ca| {
        Start::consul(&consul)
            .property("registry.consul.addr", format!("https://localhost:{}", front.addr().port()))
            .property("registry.consul.tls.cafile", authority.path().display())
            .property("registry.consul.tls.certfile", cert.display())
            .property("registry.consul.tls.keyfile", key.display())
            .property("registry.timeout", "2s")
    };
    let proxy = start(&ca).start().await;
    proxy.serves("h", "/web", "web").await;
    let last = || shown.lock().expect("no panic").last().cloned();
    assert_eq!(last(), Some(first.chain()[0].to_vec()));

    std::fs::write(&key, &second.key_pem).expect("an own file");
    std::fs::write(&cert, &second.cert_pem).expect("an own file");
    cut.send_replace(());
    until(PATIENCE, "the new certificate", async || (last() == Some(second.chain()[0].to_vec())).then_some(())).await;
    consul.put("new-1", "new", web.addr(), &["urlprefix-/new"], &["passing"]).await;
    proxy.serves("h", "/new", "web").await;

    let mut stranger = start(&Ca::new()).spawn();
    assert_eq!(stranger.ferrio.process().wait(PATIENCE).await.code(), Some(1));
}
