//! Signals, and how it leaves; and who it says it is when it starts.

use std::cell::Cell;
use std::time::{Duration, Instant};

use consul_dev::{Agent, Config, Fault, Rule};

use crate::proxy::Start;
use crate::routing::all;
use crate::testing::client::{self, Client};
use crate::testing::consul::Consul;
use crate::testing::origin::{self, Gate, Origin};
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, until};

#[tokio::test]
async fn leaving_under_load_fails_no_request() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let (web, gate) = (Origin::start("web").await, Gate::new());
    web.on("/long", origin::chunked(&[]).chunk("begin").gate(&gate).chunk("end").end(&[]));
    consul.put("web-1", "web", web.addr(), &["urlprefix-/"], &["passing"]).await;
    let mut proxy = Start::consul(&consul)
        .property("registry.consul.register.enabled", true)
        .property("proxy.deregistergraceperiod", "1s")
        .property("proxy.shutdownwait", "10s")
        .start()
        .await;
    let (addr, admin) = (proxy.addr, proxy.admin);
    proxy.serves("h", "/", "web").await;
    consul.wait_passing("fabio", 1).await;
    let mut download = proxy.client().await;
    download.send("GET /long HTTP/1.1\r\nHost: h\r\n\r\n").await;
    download.final_head().await;

    // The balancer before it: picks it as long as it is healthy.
    let (healthy, served) = (Cell::new(true), Cell::new(0));
    let balancer = async {
        while client::get(admin, "admin", "/health").await.status == 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        healthy.set(false);
    };
    // 200 requests a second, half of them on new connections.
    let load = (0..4).map(async |_| {
        let mut kept: Client = Client::connect(addr).await;
        while healthy.get() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(kept.get("h", "/").await.text(), "web");
            assert_eq!(client::get(addr, "h", "/").await.text(), "web");
            served.set(served.get() + 2);
        }
    });
    let leave = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        proxy.signal(Signal::TERM);
        until(PATIENCE, "to be gone from Consul", async || {
            let services = consul.ok("GET", "/v1/agent/services", "").await;
            (!services.to_string().contains("\"fabio\"")).then_some(())
        })
        .await;
        assert!(!healthy.get() || client::get(admin, "admin", "/health").await.status != 200);
        assert_eq!(client::get(addr, "h", "/").await.text(), "web", "it serves after leaving");
    };
    tokio::join!(balancer, all(load), leave);
    assert!(served.get() > 100, "{}", served.get());

    // Nobody new is let in any more; what is under way is finished.
    until(PATIENCE, "a closed door", async || tokio::net::TcpStream::connect(addr).await.is_err().then_some(())).await;
    let health = client::get(admin, "admin", "/health").await;
    assert_eq!((health.status, health.text().trim()), (503, "shutting down"), "said until the end");
    gate.open();
    let mut body = Vec::new();
    while let Some(chunk) = download.chunk().await {
        body.extend(chunk);
    }
    assert_eq!(body, b"beginend");
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn what_is_not_finished_in_time_is_cut() {
    let origin = Origin::start("o").await;
    origin.always(origin::hang());
    for wait in ["0s", "700ms"] {
        let start = Start::routes(format!("route add o / {}", origin.url())).property("proxy.shutdownwait", wait);
        let mut proxy = start.start().await;
        let seen = origin.seen().len();
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
        origin.wait(seen + 1).await;
        let begun = Instant::now();
        assert_eq!(proxy.ferrio.stop().await, Some(0));
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(5) && (wait == "0s" || took > Duration::from_millis(650)),
            "{wait}: {took:?}"
        );
        client.closed().await;
    }
}

#[tokio::test]
async fn idle_connections_do_not_hold_it_up() {
    let origin = Origin::start("o").await;
    let start = Start::routes(format!("route add o / {}", origin.url())).property("proxy.shutdownwait", "30s");
    let mut proxy = start.start().await;
    let (mut kept, silent) = (proxy.client().await, proxy.client().await);
    assert_eq!(kept.get("h", "/").await.text(), "o");
    let begun = Instant::now();
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    kept.closed().await;
    drop(silent);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let origin = Origin::start("o").await;
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::TERM), (Signal::TERM, Signal::INT)] {
        let start = Start::routes(format!("route add o / {}", origin.url()));
        let mut proxy = start.property("proxy.deregistergraceperiod", "1h").start().await;
        let begun = Instant::now();
        proxy.signal(first);
        proxy.ferrio.process().says(PATIENCE, "Caught").await;
        // The first means what it says.
        assert_eq!(proxy.get("h", "/").await.text(), "o");
        proxy.signal(second);
        assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn other_signals_do_not_end_it() {
    let origin = Origin::start("o").await;
    let mut proxy = Start::routes(format!("route add o / {}", origin.url())).start().await;
    for signal in [Signal::HUP, Signal::PIPE, Signal::HUP] {
        proxy.signal(signal);
        assert_eq!(proxy.get("h", "/").await.text(), "o");
    }
    proxy.ferrio.process().says(PATIENCE, "Caught SIGHUP. Ignoring").await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_signal_before_the_first_table_ends_it_at_once() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    agent.faults().add(Rule::new(Fault::Error(500, "rpc error: No cluster leader".into())).path("/v1/catalog"));
    let consul = Consul::at(agent.addr());
    let mut proxy = Start::consul(&consul).property("registry.consul.register.enabled", true).spawn();
    proxy.ferrio.process().says(PATIENCE, "Waiting for first routing table").await;
    let begun = Instant::now();
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(agent.faults().count("PUT", "/v1/agent/service/register"), 0);
}

#[tokio::test]
async fn a_dead_consul_delays_the_end_by_seconds_only() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let mut proxy = Start::consul(&consul).property("registry.consul.register.enabled", true).start().await;
    until(PATIENCE, "its registration", async || (agent.faults().count("PUT", "/v1/agent/check/") > 0).then_some(()))
        .await;
    agent.faults().add(Rule::new(Fault::Hang).method("PUT"));
    let begun = Instant::now();
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn nobody_was_told_that_it_runs_as_root() {
    let root = rustix::process::getuid().is_root();
    for (insecure, word) in [(false, "say so with -insecure"), (true, "Running as root, as -insecure says")] {
        let mut proxy = Start::routes("").property("insecure", insecure).start().await;
        if root {
            proxy.ferrio.process().says(PATIENCE, word).await;
        } else {
            assert!(!proxy.ferrio.stderr().contains(word), "{}", proxy.ferrio.stderr());
        }
        proxy.ends_well().await;
    }
}
