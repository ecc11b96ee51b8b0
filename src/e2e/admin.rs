//! What operators ask and change while it runs: through the admin API of the real program.

use serde_json::{Value, json};

use crate::proxy::{Proxy, Start};
use crate::testing::client::{self, Client, Response};
use crate::testing::consul::Consul;
use crate::testing::origin::Origin;
use crate::testing::{PATIENCE, until};

async fn put(proxy: &Proxy, target: &str, body: Value) -> Response {
    client::request(proxy.admin, "PUT", "admin", target, &body.to_string()).await
}

async fn page(proxy: &Proxy, target: &str) -> Value {
    let text = proxy.page(target).await.text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{target}: {error}: {text}"))
}

#[tokio::test]
async fn what_is_disabled_is_gone_in_every_process_until_it_is_enabled() {
    let consul = Consul::real().await;
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    consul.put("web-a", "web", a.addr(), &["urlprefix-/web"], &["passing"]).await;
    consul.put("web-b", "web", b.addr(), &["urlprefix-/web"], &["passing"]).await;
    let (here, there) = (Start::consul(&consul).start().await, Start::consul(&consul).start().await);
    let first = page(&here, "/api/table").await[0]["targets"][0]["instance"].clone();
    let reply =
        put(&here, "/api/control/disable", json!({"service": "web", "instance": first, "for": "1h", "reason": "slow"}))
            .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let targets = async |proxy: &Proxy| page(proxy, "/api/routes").await.as_array().map_or(0, Vec::len);
    for proxy in [&here, &there] {
        until(PATIENCE, "one target", async || (targets(proxy).await == 1).then_some(())).await;
    }
    let known = page(&there, "/api/control").await;
    assert_eq!((&known["disabled"][0]["reason"], &known["shared"]), (&json!("slow"), &json!(true)));
    let stored = consul.kv_get("ferrio/disabled/fabio/config").await.expect("a list");
    assert!(stored.contains("slow"), "{stored}");

    // A process that starts later knows of it, and the service as a whole can go, too.
    let late = Start::consul(&consul).start().await;
    until(PATIENCE, "one target", async || (targets(&late).await == 1).then_some(())).await;
    put(&late, "/api/control/disable", json!({"service": "web"})).await;
    here.answers("h", "/web", 404).await;
    assert_eq!(put(&there, "/api/control/enable", json!({"service": "web"})).await.status, 200);
    assert_eq!(put(&there, "/api/control/enable", json!({"service": "web", "instance": first})).await.status, 200);
    for proxy in [&here, &there, &late] {
        until(PATIENCE, "both targets", async || (targets(proxy).await == 2).then_some(())).await;
    }
    let timeline = page(&here, "/api/timeline").await;
    assert!(timeline["changes"][0]["cause"].as_str().is_some_and(|cause| cause.contains("by hand")), "{timeline}");
}

#[tokio::test]
async fn a_disabled_service_comes_back_by_itself() {
    let origin = Origin::start("a").await;
    let proxy = Start::routes(format!("route add web /web {}", origin.url())).start().await;
    proxy.serves("h", "/web", "a").await;
    let reply = put(&proxy, "/api/control/disable", json!({"service": "web", "for": "2s"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    proxy.answers("h", "/web", 404).await;
    proxy.serves("h", "/web", "a").await;
    assert_eq!(page(&proxy, "/api/control").await["disabled"], json!([]));
}

#[tokio::test]
async fn overrides_are_previewed_and_their_past_is_kept() {
    let consul = Consul::real().await;
    let origin = Origin::start("web").await;
    consul.put("web-1", "web", origin.addr(), &["urlprefix-/web"], &["passing"]).await;
    consul.kv_put("fabio/config", "# before ferrio").await;
    let proxy = Start::consul(&consul).start().await;
    proxy.serves("h", "/web", "web").await;
    let text =
        format!("route del web\nroute add new /new {}\nroute weight gone /x weight 0.5\nroute ad\n", origin.url());
    let body = json!({"suffix": "", "value": text}).to_string();
    let preview = client::request(proxy.admin, "POST", "admin", "/api/manual/preview", &body).await;
    let preview: Value = serde_json::from_str(&preview.text()).expect("JSON");
    assert_eq!((&preview["added"], &preview["removed"]), (&json!(1), &json!(1)), "{preview}");
    assert!(preview["lines"][0].as_str().is_some_and(|line| line.starts_with("- route add web /web")), "{preview}");
    let lines: Vec<_> = preview["rejects"].as_array().expect("a list").iter().map(|reject| &reject["line"]).collect();
    assert_eq!(lines, [4, 3], "{preview}");
    assert_eq!(proxy.get("h", "/web").await.status, 200, "nothing has changed");

    for text in ["# one", "# two"] {
        let version = page(&proxy, "/api/manual").await["version"].clone();
        let reply = put(&proxy, "/api/manual", json!({"value": text, "version": version})).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let past = page(&proxy, "/api/history").await;
    let past = past.as_array().expect("a list");
    let mut texts = Vec::new();
    for one in past {
        let id = one["id"].as_str().expect("an id");
        texts.push(page(&proxy, &format!("/api/history?id={id}")).await["value"].clone());
    }
    assert_eq!(texts, ["# two", "# one", "# before ferrio"]);
    assert_eq!(page(&proxy, "/api/paths").await, json!([""]), "what is kept is no override");

    let status = page(&proxy, "/api/status").await;
    assert_eq!(status["consul"]["known_leader"], true, "{status}");
    assert!(status["table"]["lag"].as_f64().is_some_and(|lag| lag < 60.0), "{status}");
}

#[tokio::test]
async fn a_url_is_explained_and_traffic_is_seen() {
    let origin = Origin::start("a").await;
    let proxy = Start::routes(format!("route add web h.test/web {} opts \"strip=/web\"", origin.url())).start().await;
    let explained = page(&proxy, "/api/explain?url=http://h.test/web/x").await;
    assert_eq!(
        (&explained["outcome"], &explained["candidates"][0]["targets"][0]["forward"]),
        (&json!("forward"), &json!("/x"))
    );
    let close = page(&proxy, "/api/explain?url=http://h.test/Web").await;
    assert_eq!((&close["outcome"], &close["close"][0]["path"]), (&json!("no-route"), &json!("/web")));

    let mut events = Client::connect(proxy.admin).await;
    events.send("GET /api/events HTTP/1.1\r\nHost: admin\r\n\r\n").await;
    assert_eq!(events.head().await.one("content-type"), Some("text/event-stream"));
    let seen = until(PATIENCE, "traffic in the numbers", async || {
        proxy.get("h.test", "/web/1").await;
        let stats = page(&proxy, "/api/stats").await;
        stats["total"]["rate"].as_f64().is_some_and(|rate| rate > 0.0).then_some(stats)
    })
    .await;
    assert_eq!(seen["routes"][0]["targets"][0]["service"], "web", "{seen}");
    until(PATIENCE, "an event", async || {
        let chunk = events.chunk().await.expect("a stream without end");
        String::from_utf8_lossy(&chunk).contains("event: stats").then_some(())
    })
    .await;
    // An open stream does not keep the process.
    proxy.ends_well().await;
}

#[tokio::test]
async fn draining_is_said_and_taken_back_and_the_log_can_be_louder() {
    let origin = Origin::start("a").await;
    let proxy = Start::routes(format!("route add web /web {}", origin.url())).start().await;
    put(&proxy, "/api/control/drain", json!({"on": true})).await;
    let health = proxy.page("/health").await;
    assert_eq!((health.status, health.text().trim()), (503, "draining"));
    assert_eq!(proxy.get("h", "/web").await.status, 200);
    put(&proxy, "/api/control/drain", json!({"on": false})).await;
    assert_eq!(proxy.page("/health").await.status, 200);
    assert_eq!(put(&proxy, "/api/control/log", json!({"level": "debug"})).await.status, 200);
    assert_eq!(page(&proxy, "/api/control").await["log_level"], "DEBUG");
    assert_eq!(put(&proxy, "/api/control/log", json!({"level": "loud"})).await.status, 400);
    assert_eq!(put(&proxy, "/api/control/reload", Value::Null).await.status, 200);
    until(PATIENCE, "SIGHUP in the log", async || proxy.ferrio.stderr().contains("SIGHUP").then_some(())).await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn the_pages_can_ask_for_a_password() {
    let start =
        Start::routes("route add web /web http://127.0.0.1:1/").file("users", "me:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
    let start = start.property("proxy.auth", "name=staff;type=basic;file=users;realm=ops").property("ui.auth", "staff");
    let proxy = start.start().await;
    let refused = proxy.page("/api/routes").await;
    assert_eq!((refused.status, refused.header("www-authenticate").is_some()), (401, true));
    until(PATIENCE, "health without a password", async || (proxy.page("/health").await.status == 200).then_some(()))
        .await;
    let mut client = Client::connect(proxy.admin).await;
    // me:password
    client.send("GET /api/routes HTTP/1.1\r\nHost: admin\r\nAuthorization: Basic bWU6cGFzc3dvcmQ=\r\n\r\n").await;
    assert_eq!(client.response().await.status, 200);
}

#[tokio::test]
async fn every_value_says_where_it_comes_from() {
    let proxy = Start::routes("").property("ui.title", "<b>").property("registry.consul.token", "s3cret").start().await;
    let all = page(&proxy, "/api/config/effective").await;
    let of =
        |key: &str| all.as_array().expect("a list").iter().find(|one| one["key"] == key).cloned().unwrap_or_default();
    assert_eq!(of("ui.title")["value"], "<b>");
    assert!(of("ui.title")["source"].as_str().is_some_and(|source| source.contains("fabio.properties:")), "{all}");
    assert_eq!((&of("proxy.strategy")["source"], &of("proxy.strategy")["default"]), (&json!("default"), &json!(true)));
    assert!(!all.to_string().contains("s3cret"));
}
