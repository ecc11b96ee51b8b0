//! How much a route and its targets take: requests under way, queues, rates.

use std::time::{Duration, Instant};

use crate::proxy::{Proxy, Start};
use crate::routing::all;
use crate::testing::client::Client;
use crate::testing::origin::{self, Gate, Origin};
use crate::testing::{PATIENCE, client, until};

async fn ask(proxy: &Proxy, path: &str) -> Client {
    let mut client = proxy.client().await;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
    client
}

#[tokio::test]
async fn a_target_gets_no_more_than_it_may_have_and_others_wait() {
    let (origin, gate) = (Origin::start("o").await, Gate::new());
    origin.always(origin::reply(200, &[], "o").behind(&gate));
    let options = "maxconn=2 maxpending=3 queuetimeout=30s";
    let proxy = Start::routes(format!("route add s / {} opts \"{options}\"", origin.url())).start().await;
    let mut clients = Vec::new();
    for n in 0..2 {
        clients.push(ask(&proxy, "/").await);
        origin.wait(n + 1).await;
    }
    for _ in 0..3 {
        clients.push(ask(&proxy, "/").await);
    }
    until(PATIENCE, "three that wait", async || {
        proxy.page("/api/targets").await.text().contains(r#""in_flight":2,"waiting":3"#).then_some(())
    })
    .await;
    let refused = proxy.get("h", "/").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(origin.seen().len(), 2);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().await.status, 200);
    }
    assert_eq!(proxy.get("h", "/").await.status, 200);
}

#[tokio::test]
async fn who_waits_too_long_is_sent_away_and_who_goes_makes_room() {
    let (origin, gate) = (Origin::start("o").await, Gate::new());
    origin.on("/held", origin::reply(200, &[], "o").behind(&gate));
    let options = "maxconn=1 queuetimeout=200ms";
    let proxy = Start::routes(format!("route add s / {} opts \"{options}\"", origin.url())).start().await;
    let held = ask(&proxy, "/held").await;
    origin.wait(1).await;
    let begun = Instant::now();
    assert_eq!(proxy.get("h", "/").await.status, 503);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    drop(held);
    proxy.answers("h", "/", 200).await;
}

#[tokio::test]
async fn a_full_target_is_passed_over() {
    let (one, two, gate) = (Origin::start("one").await, Origin::start("two").await, Gate::new());
    one.always(origin::reply(200, &[], "one").behind(&gate));
    let routes: String = [&one, &two].map(|o| format!("route add s / {} opts \"maxconn=1\"\n", o.url())).concat();
    let proxy = Start::routes(routes).property("proxy.strategy", "rr").start().await;
    let mut held = ask(&proxy, "/").await;
    if one.seen().is_empty() && tokio::time::timeout(Duration::from_millis(200), held.response()).await.is_ok() {
        held = ask(&proxy, "/").await;
    }
    one.wait(1).await;
    for _ in 0..10 {
        assert_eq!(proxy.get("h", "/").await.text(), "two");
    }
    gate.open();
    assert_eq!(held.response().await.text(), "one");
}

#[tokio::test]
async fn a_route_has_its_own_limit() {
    let (origin, gate) = (Origin::start("o").await, Gate::new());
    origin.on("/held", origin::reply(200, &[], "o").behind(&gate));
    let proxy = Start::routes(format!("route add s / {} opts \"routemaxconn=2\"", origin.url())).start().await;
    let mut clients = [ask(&proxy, "/held").await, ask(&proxy, "/held").await];
    origin.wait(2).await;
    let refused = proxy.get("h", "/").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().await.status, 200);
    }
    proxy.answers("h", "/", 200).await;
}

#[tokio::test]
async fn rates_of_a_route_of_clients_and_of_keys() {
    let origin = Origin::start("o").await;
    let lines: String = [
        ("whole", "rate=2/h burst=3"),
        ("client", "rate=2/h burst=3 ratekey=ip"),
        ("key", "rate=2/h burst=3 ratekey=header:X-Key"),
    ]
    .map(|(host, options)| format!("route add s {host}/ {} opts \"{options}\"\n", origin.url()))
    .concat();
    let start = Start::routes(lines).property("proxy.addr", "ADDR,MORE;proto=prometheus");
    let start = start.property("metrics.target", "prometheus").property("proxy.trusted", "127.0.0.1/32");
    let proxy = start.start().await;
    for (host, header, same) in
        [("whole", "X-Other", true), ("client", "X-Forwarded-For", false), ("key", "X-Key", false)]
    {
        let mut client = proxy.client().await;
        let mut good = Vec::new();
        for value in ["1.2.3.4", "5.6.7.8"] {
            let mut count = 0;
            for _ in 0..6 {
                client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{header}: {value}\r\n\r\n")).await;
                let response = client.response().await;
                count += u32::from(response.status == 200);
                if response.status != 200 {
                    let wait: u64 = response.header("retry-after").expect("Retry-After").parse().expect("seconds");
                    assert!(response.status == 429 && (1700..=1800).contains(&wait), "{response:?}");
                }
            }
            good.push(count);
        }
        assert_eq!(good, if same { [3, 0] } else { [3, 3] }, "{host}");
    }
    let text = client::get(proxy.more, "h", "/metrics").await.text();
    assert!(text.contains("ferrio_limited_total") && text.contains("reason=\"rate\""), "{text}");
}

#[tokio::test]
async fn a_rate_holds_over_all_workers() {
    let origin = Origin::start("o").await;
    let options = "rate=1/h burst=50";
    let proxy = Start::routes(format!("route add s / {} opts \"{options}\"", origin.url())).start().await;
    let clients = (0..8).map(async |_| {
        let mut client = proxy.client().await;
        for _ in 0..20 {
            client.get("h", "/").await;
        }
    });
    all(clients).await;
    assert_eq!(origin.seen().len(), 50);
}
