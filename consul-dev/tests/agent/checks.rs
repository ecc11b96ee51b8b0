//! Checks that run, and what happens as time goes by.

use std::time::Duration;

use bytes::Bytes;
use consul_dev::{Agent, Config};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::side_by_side::Pair;
use crate::wire::{call, get, put, until};

/// Answers `/<status>` with that status; 302 leads to `/200`, and `/slow` takes longer than any check waits.
async fn origin() -> u16 {
    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        if path == "slow" {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let status: StatusCode = path.parse().unwrap_or(StatusCode::OK);
        let told = format!(
            "{} {} {}",
            request.method(),
            request.headers().get("x-a").map_or("-", |value| value.to_str().unwrap()),
            request.headers()["user-agent"].to_str().unwrap()
        );
        let mut response = Response::builder().status(status);
        if status == StatusCode::FOUND {
            response = response.header("location", "/200");
        }
        let body = if status == StatusCode::NO_CONTENT { String::new() } else { told };
        Ok(response.body(Full::new(Bytes::from(body))).unwrap())
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_and_outputs_are_consuls() {
    let pair = Pair::start().await;
    let port = origin().await;
    let url = |path: &str| format!("http://127.0.0.1:{port}/{path}");
    let mut checks: Vec<Value> = ["200", "204", "302", "404", "429", "500"]
        .iter()
        .map(|status| json!({"CheckID": format!("h{status}"), "HTTP": url(status), "Interval": "1s"}))
        .collect();
    checks.extend([
        json!({"CheckID": "slow", "HTTP": url("slow"), "Interval": "1s", "Timeout": "200ms"}),
        json!({"CheckID": "post", "HTTP": url("200"), "Method": "POST", "Body": "b", "Header": {"X-A": ["v"]}, "Interval": "1s"}),
        json!({"CheckID": "refused", "HTTP": "http://127.0.0.1:1/", "Interval": "1s"}),
        json!({"CheckID": "scheme", "HTTP": "ftp://127.0.0.1:1/", "Interval": "1s"}),
        json!({"CheckID": "tcp", "TCP": format!("127.0.0.1:{port}"), "Interval": "1s"}),
        json!({"CheckID": "tcp-name", "TCP": format!("localhost:{port}"), "Interval": "1s"}),
        json!({"CheckID": "tcp-refused", "TCP": "127.0.0.1:1", "Interval": "1s"}),
        json!({"CheckID": "tcp-wrong", "TCP": "nonsense", "Interval": "1s"}),
        json!({"CheckID": "ttl", "TTL": "1s", "Status": "passing"}),
    ]);
    let count = checks.len();
    let body = json!({"Name": "checked", "Port": port, "Checks": checks}).to_string();
    pair.same("PUT", "/v1/agent/service/register", &body).await;
    for addr in [pair.real, pair.dev] {
        until(15, "the first run of all checks", async || {
            let Value::Object(checks) = get(addr, "/v1/agent/checks").await.json() else { return None };
            (checks.len() == count && checks.values().all(|check| check["Output"] != "")).then_some(())
        })
        .await;
    }
    pair.same("GET", "/v1/agent/checks", "").await;
    pair.same_but_indexes("/v1/health/checks/checked", &[]).await;
    // A TTL that ran out once can be reported again, and says what was last known when it runs out once more.
    pair.same("PUT", "/v1/agent/check/pass/ttl?note=back", "").await;
    for addr in [pair.real, pair.dev] {
        until(5, "the next end of the TTL", async || {
            let output = get(addr, "/v1/agent/checks").await.json()["ttl"]["Output"].to_string();
            output.contains("expired").then_some(())
        })
        .await;
    }
    pair.same("GET", "/v1/agent/checks", "").await;
}

/// Consul takes twice the TTL, and so it is with the lock that the session holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_not_renewed_ends() {
    let pair = Pair::start().await;
    let body = r#"{"Name": "short", "TTL": "10s", "Behavior": "delete"}"#;
    let (real, dev) = pair.same("PUT", "/v1/session/create", body).await;
    let lasts = async |addr, id: Value| {
        let id = id["ID"].as_str().unwrap().to_owned();
        put(addr, &format!("/v1/kv/lock?acquire={id}"), "x").await;
        let begun = std::time::Instant::now();
        until(40, "the end of the session", async || {
            let sessions = get(addr, "/v1/session/list").await;
            (sessions.json() == json!([])).then_some(())
        })
        .await;
        assert_eq!(get(addr, "/v1/kv/lock").await.status, 404);
        begun.elapsed().as_secs_f64()
    };
    let (real, dev) = tokio::join!(lasts(pair.real, real.json()), lasts(pair.dev, dev.json()));
    assert!((real - dev).abs() < 2.0, "Consul after {real} s, consul-dev after {dev} s");
}

#[tokio::test]
async fn a_renewed_session_stays() {
    let config = Config { session_ttl_factor: 0.05, ..Config::default() };
    let agent = Agent::start(config).await.unwrap();
    let addr = agent.addr();
    let id = put(addr, "/v1/session/create", r#"{"TTL": "10s"}"#).await.json()["ID"].as_str().unwrap().to_owned();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        put(addr, &format!("/v1/session/renew/{id}"), "").await;
    }
    until(5, "its end", async || {
        (get(addr, &format!("/v1/session/info/{id}")).await.json() == json!([])).then_some(())
    })
    .await;
    assert_eq!(call(addr, "PUT", &format!("/v1/session/renew/{id}"), "").await.status, 404);
}

#[tokio::test]
async fn a_service_that_is_critical_for_too_long_is_removed() {
    let quick = Duration::from_millis(50);
    let config =
        Config { shortest_interval: quick, reap_interval: quick, shortest_reap: quick * 4, ..Config::default() };
    let agent = Agent::start(config).await.unwrap();
    let addr = agent.addr();
    let check = r#"{"HTTP": "http://127.0.0.1:1/", "Interval": "50ms", "DeregisterCriticalServiceAfter": "100ms"}"#;
    for (id, check) in [("goes", check), ("stays", r#"{"TTL": "1s", "DeregisterCriticalServiceAfter": "1h"}"#)] {
        put(addr, "/v1/agent/service/register", &format!(r#"{{"Name": "{id}", "Check": {check}}}"#)).await;
    }
    until(10, "the removal", async || (get(addr, "/v1/catalog/service/goes").await.json() == json!([])).then_some(()))
        .await;
    assert_eq!(get(addr, "/v1/catalog/service/stays").await.json().as_array().unwrap().len(), 1);
    assert_eq!(get(addr, "/v1/health/checks/goes").await.json(), json!([]));
}

#[tokio::test]
async fn a_check_ends_with_its_service() {
    let config = Config { shortest_interval: Duration::from_millis(20), ..Config::default() };
    let agent = Agent::start(config).await.unwrap();
    let addr = agent.addr();
    let check = r#"{"CheckID": "c", "TCP": "127.0.0.1:1", "Interval": "20ms", "Status": "passing"}"#;
    put(addr, "/v1/agent/service/register", &format!(r#"{{"Name": "a", "Check": {check}}}"#)).await;
    put(addr, "/v1/agent/service/deregister/a", "").await;
    let index = get(addr, "/v1/health/state/any").await.index();
    let answer = get(addr, &format!("/v1/health/state/any?index={index}&wait=200ms")).await;
    assert_eq!(answer.index(), index, "something still writes: {}", answer.text());
}
