//! Faults on demand, and the record of requests.

use std::time::{Duration, Instant};

use consul_dev::{Agent, Config, Definition, Fault, Rule};
use serde_json::json;

use crate::wire::{call, get, put, try_call};

async fn start() -> Agent {
    let agent = Agent::start(Config { definitions: Definition::samples(), ..Config::default() }).await.unwrap();
    put(agent.addr(), "/v1/kv/key", "value").await;
    agent.faults().forget();
    agent
}

#[tokio::test]
async fn answers_that_are_wrong() {
    let agent = start().await;
    let (addr, faults) = (agent.addr(), agent.faults());
    let usual = get(addr, "/v1/health/state/any").await;

    faults.add(Rule::new(Fault::Error(503, "no".into())).path("/v1/health/").method("GET"));
    assert_eq!(get(addr, "/v1/health/state/any").await.text(), "no");
    assert_eq!(get(addr, "/v1/health/state/any").await.status, 503);
    assert_eq!(get(addr, "/v1/catalog/services").await.status, 200);
    faults.clear();
    assert_eq!(get(addr, "/v1/health/state/any").await.text(), usual.text());

    faults.add(Rule::new(Fault::Error(500, "once".into())).times(1));
    assert_eq!(get(addr, "/v1/kv/key").await.status, 500);
    assert_eq!(get(addr, "/v1/kv/key").await.status, 200);

    faults.add(Rule::new(Fault::Empty));
    for (target, status, body) in [
        ("/v1/health/state/any", 200, "[]\n"),
        ("/v1/catalog/services", 200, "{}\n"),
        ("/v1/kv/key", 404, ""),
        ("/v1/kv/key?raw", 404, ""),
        ("/v1/kv/?recurse", 404, ""),
    ] {
        let answer = get(addr, target).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (status, body), "{target}");
        assert!(answer.index() > 0);
    }
    faults.clear();

    faults.add(Rule::new(Fault::IndexReset(3)).path("/v1/health/"));
    assert_eq!(get(addr, "/v1/health/state/any").await.index(), 3);
    faults.clear();

    faults.add(Rule::new(Fault::DropIndexHeader));
    assert_eq!(get(addr, "/v1/health/state/any").await.header("x-consul-index"), None);
    faults.clear();

    faults.add(Rule::new(Fault::Filtered));
    let answer = get(addr, "/v1/health/state/any").await;
    assert_eq!(answer.header("x-consul-results-filtered-by-acls"), Some("true"));
}

/// As a server without leader answered that was tried.
#[tokio::test]
async fn no_leader() {
    let agent = start().await;
    let addr = agent.addr();
    agent.faults().add(Rule::new(Fault::LeaderLoss));
    for (method, target, with_meta) in [
        ("GET", "/v1/catalog/services", true),
        ("GET", "/v1/health/state/any?stale", true),
        ("GET", "/v1/session/list", true),
        ("GET", "/v1/kv/key", false),
        ("PUT", "/v1/kv/key", false),
        ("PUT", "/v1/session/create", false),
    ] {
        let answer = call(addr, method, target, "").await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (500, "No cluster leader"), "{target}");
        assert_eq!(answer.header("x-consul-knownleader"), with_meta.then_some("false"), "{target}");
    }
    assert_eq!(get(addr, "/v1/status/leader").await.json(), json!(""));
    assert_eq!(get(addr, "/v1/agent/services").await.status, 200);
}

#[tokio::test]
async fn answers_that_do_not_come() {
    let agent = start().await;
    let (addr, faults) = (agent.addr(), agent.faults());

    faults.add(Rule::new(Fault::Slow(Duration::from_millis(200))));
    let begun = Instant::now();
    assert_eq!(get(addr, "/v1/kv/key").await.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    faults.clear();

    faults.add(Rule::new(Fault::Hang));
    let hanging = tokio::time::timeout(Duration::from_millis(200), try_call(addr, "GET", "/v1/kv/key", "")).await;
    assert!(hanging.is_err(), "{hanging:?}");
    faults.clear();

    faults.add(Rule::new(Fault::Cut));
    assert!(try_call(addr, "GET", "/v1/health/state/any", "").await.is_err());
    assert!(try_call(addr, "GET", "/v1/kv/none", "").await.is_err());
    faults.clear();
    assert_eq!(get(addr, "/v1/kv/key").await.status, 200);
}

#[tokio::test]
async fn requests_are_recorded() {
    let agent = start().await;
    let addr = agent.addr();
    get(addr, "/v1/kv/key?raw").await;
    put(addr, "/v1/kv/other", "x").await;
    let faults = agent.faults();
    let seen = faults.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].method.as_str(), seen[0].target.as_str()), ("GET", "/v1/kv/key?raw"));
    assert_eq!(seen[0].header("Host"), Some(addr.to_string().as_str()));
    assert_eq!(
        (faults.count("GET", "/v1/*raw"), faults.count("PUT", ""), faults.count("GET", "/v1/health")),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn a_restart_loses_everything_but_the_definitions() {
    let agent = start().await;
    let addr = agent.addr();
    for number in 0..50 {
        put(addr, &format!("/v1/kv/{number}"), "x").await;
    }
    let index = get(addr, "/v1/kv/0").await.index();
    put(addr, "/v1/agent/service/register", r#"{"Name": "lost"}"#).await;
    let target = format!("/v1/kv/0?index={}&wait=60s", index + 1000);
    let waiting = tokio::spawn(async move { try_call(addr, "GET", &target, "").await.map(|answer| answer.status) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    agent.restart_empty();
    let cut = tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("connections are cut").unwrap();
    assert!(cut.is_err(), "{cut:?}");
    let answer = get(addr, "/v1/kv/0").await;
    assert_eq!(answer.status, 404);
    assert!(answer.index() < index);
    let services = get(addr, "/v1/catalog/services").await.json();
    assert!(services.get("hello").is_some() && services.get("lost").is_none(), "{services}");
}

#[tokio::test]
async fn indexes_that_go_back() {
    let agent = start().await;
    let addr = agent.addr();
    for number in 0..50 {
        put(addr, "/v1/kv/key", &number.to_string()).await;
    }
    let before = get(addr, "/v1/kv/key").await;
    let target = format!("/v1/kv/key?index={}&wait=60s", before.index());
    let waiting = tokio::spawn(async move { get(addr, &target).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    agent.reset_indexes(20);
    let woken = tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("waiting ends").unwrap();
    assert_eq!((woken.index(), woken.json()[0]["Value"].clone()), (20, before.json()[0]["Value"].clone()));
    put(addr, "/v1/kv/key", "new").await;
    assert_eq!(get(addr, "/v1/kv/key").await.index(), 21);
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let agent = start().await;
    let body = "x".repeat(8 * 1024 * 1024 + 1);
    // The answer may come while the body is still being sent.
    if let Ok(answer) = try_call(agent.addr(), "PUT", "/v1/catalog/register", &body).await {
        assert_eq!(answer.status, 413);
    }
    assert_eq!(get(agent.addr(), "/v1/kv/key").await.status, 200);
}

/// More connections than allowed wait until others end.
#[tokio::test]
async fn connections_are_bounded() {
    let agent = Agent::start(Config { max_connections: 2, ..Config::default() }).await.unwrap();
    let addr = agent.addr();
    let idle =
        [tokio::net::TcpStream::connect(addr).await.unwrap(), tokio::net::TcpStream::connect(addr).await.unwrap()];
    tokio::time::sleep(Duration::from_millis(50)).await;
    let waits = tokio::time::timeout(Duration::from_millis(200), try_call(addr, "GET", "/v1/status/leader", "")).await;
    assert!(waits.is_err());
    drop(idle);
    assert_eq!(get(addr, "/v1/status/leader").await.status, 200);
}

#[tokio::test]
async fn nothing_answers_after_the_end() {
    let agent = start().await;
    let addr = agent.addr();
    agent.stop().await;
    assert!(try_call(addr, "GET", "/v1/status/leader", "").await.is_err());
}
