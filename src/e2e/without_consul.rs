//! Starts while Consul is away, with and without what an earlier process has kept, and too many clients.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::proxy::{Proxy, Start};
use crate::testing::client::Client;
use crate::testing::consul::Consul;
use crate::testing::origin::Origin;
use crate::testing::{PATIENCE, free_addr, until};

/// A folder that outlives a process, and not the test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> State {
        let dir = std::env::temp_dir().join(format!("ferrio-e2e-state-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        State(dir)
    }

    fn start(&self, consul: &Consul) -> Start {
        let dir = self.0.display();
        Start::consul(consul).property("runtime.statedir", dir).property("registry.timeout", "2s")
    }

    async fn holds(&self, text: &str) {
        let file = self.0.join("routes.state");
        until(PATIENCE, text, async || {
            std::fs::read_to_string(&file).is_ok_and(|all| all.contains(text)).then_some(())
        })
        .await;
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn health(proxy: &Proxy) -> String {
    let answer = proxy.page("/health").await;
    assert_eq!(answer.status, 200);
    answer.text()
}

async fn status(proxy: &Proxy) -> Value {
    serde_json::from_str(&proxy.page("/api/status").await.text()).expect("JSON")
}

fn web(port: u16) -> Value {
    json!({ "ID": "web-1", "Name": "web", "Address": "127.0.0.1", "Port": port, "Tags": ["urlprefix-/web"],
        "Check": { "CheckID": "c", "TTL": "1h", "Status": "passing" } })
}

/// The second process starts while Consul says nothing, and hears of a change when it does again.
async fn serves_and_catches_up(state: &State, consul: &Consul, away: impl AsyncFn(bool)) {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    consul.register(web(a.port())).await;
    let proxy = state.start(consul).start().await;
    proxy.serves("h", "/web", "a").await;
    assert_eq!(health(&proxy).await, "OK\n");
    assert!(status(&proxy).await.get("stale").is_none());
    state.holds("urlprefix-/web").await;
    proxy.ends_well().await;

    away(true).await;
    let proxy = state.start(consul).start().await;
    proxy.serves("h", "/web", "a").await;
    assert!(health(&proxy).await.starts_with("OK (stale: "));
    assert_eq!(status(&proxy).await["stale"], true);
    assert!(proxy.ferrio.stderr().contains("Serving the last known ones of 1 services"), "{}", proxy.ferrio.stderr());

    away(false).await;
    consul.register(web(b.port())).await;
    proxy.serves("h", "/web", "b").await;
    until(PATIENCE, "no longer stale", async || (health(&proxy).await == "OK\n").then_some(())).await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_start_while_the_real_consul_hangs_serves_what_was_known() {
    let (state, consul) = (State::new("real"), Consul::real().await);
    serves_and_catches_up(&state, &consul, async |away| if away { consul.freeze() } else { consul.thaw() }).await;
}

#[tokio::test]
async fn a_start_without_the_development_agent_serves_what_was_known() {
    let addr = free_addr();
    let config = || consul_dev::Config { addr, ..consul_dev::Config::default() };
    let agent = std::cell::RefCell::new(Some(consul_dev::Agent::start(config()).await.expect("a free port")));
    let (state, consul) = (State::new("dev"), Consul::at(addr));
    serves_and_catches_up(&state, &consul, async |away| {
        if away {
            drop(agent.take());
        } else {
            let again = until(PATIENCE, "the port", async || consul_dev::Agent::start(config()).await.ok()).await;
            agent.replace(Some(again));
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_of_somebody_else_is_said_and_not_used() {
    let state = State::new("foreign");
    std::fs::create_dir_all(&state.0).expect("a folder");
    std::fs::write(state.0.join("routes.state"), "route add web /web http://127.0.0.1:1/\n").expect("a file");
    let mut proxy = state.start(&Consul::at(free_addr())).property("registry.timeout", "300ms").spawn();
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(1));
    let said = proxy.ferrio.stderr();
    assert!(said.contains("routes.state are not used: this is no file of ferrio's"), "{said}");
}

#[tokio::test]
async fn one_client_too_many_is_closed_and_counted() {
    let web = Origin::start("web").await;
    let routes = format!("route add web / http://{}/", web.addr());
    let start = Start::routes(routes).property("proxy.maxclients.source", 2).property("proxy.maxclients.listener", 3);
    let proxy = start.property("proxy.addr", "ADDR,MORE;proto=prometheus").start().await;
    proxy.serves("h", "/", "web").await;
    let mut seats = Vec::new();
    for source in ["127.0.0.7", "127.0.0.7", "127.0.0.8"] {
        let mut client = Client::connect_from(source, proxy.addr).await;
        until(PATIENCE, "a place", async || {
            // That of the client before may not be free yet.
            client.try_send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.ok()
        })
        .await;
        assert_eq!(client.response().await.status, 200, "{source}");
        seats.push(client);
    }
    // The fourth of the listener, and then the third of one address.
    Client::connect_from("127.0.0.9", proxy.addr).await.closed().await;
    seats.pop();
    until(PATIENCE, "the third of a source", async || {
        Client::connect_from("127.0.0.7", proxy.addr).await.closed().await;
        let series = crate::testing::client::get(proxy.more, "h", "/metrics").await.text();
        let counted = |reason: &str| {
            series.lines().any(|l| l.starts_with("ferrio_connections_refused_total") && l.contains(reason))
        };
        (counted(r#"reason="listener""#) && counted(r#"reason="source""#)).then_some(())
    })
    .await;
    drop(seats);
    proxy.serves("h", "/", "web").await;
}
