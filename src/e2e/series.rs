//! How many series there are: as many as what is configured, whatever clients ask for.

use std::collections::BTreeSet;

use crate::proxy::{Proxy, Start};
use crate::testing::origin::Origin;
use crate::testing::{PATIENCE, client, until};

/// All series that are shown, without their values.
async fn series(proxy: &Proxy) -> BTreeSet<String> {
    let text = client::get(proxy.more, "h", "/metrics").await.text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

async fn start(routes: String) -> Proxy {
    let start = Start::routes(routes).property("metrics.target", "prometheus").property("metrics.prefix", "p");
    start.property("proxy.addr", "ADDR,MORE;proto=prometheus").one_worker().start().await
}

#[tokio::test]
async fn what_clients_make_up_makes_no_series() {
    let origin = Origin::start("web").await;
    let proxy = start(format!("route add web /web {}\nroute add api a.test/ {}", origin.url(), origin.url())).await;
    let mut client = proxy.client().await;
    // Each outcome once, so that its series is there.
    assert_eq!(client.get("h", "/web").await.status, 200);
    assert_eq!(client.get("h", "/none").await.status, 404);
    let before = series(&proxy).await;
    for batch in 0..200 {
        let request = |n: usize| {
            let n = batch * 50 + n;
            let path = if n.is_multiple_of(2) { "web/" } else { "" };
            let method = if n.is_multiple_of(3) { format!("M{n}") } else { "GET".to_owned() };
            format!("{method} /{path}p{n}?q={n} HTTP/1.1\r\nHost: h{n}.test\r\nX-Service: s{n}\r\n\r\n")
        };
        client.send((0..50).map(request).collect::<String>()).await;
        for n in 0..50 {
            assert_eq!(client.response().await.status, if (batch * 50 + n).is_multiple_of(2) { 200 } else { 404 });
        }
    }
    let after = series(&proxy).await;
    let made: Vec<&String> = after.difference(&before).filter(|name| !name.contains("_registry_")).collect();
    assert!(made.is_empty(), "{made:?}");
    assert!(
        after.contains(
            "p_route_count{host=\"\",path=\"/web\",service=\"web\",target=\"TARGET\"}"
                .replace("TARGET", &origin.url())
                .as_str()
        )
    );
}

#[tokio::test]
async fn targets_that_left_have_no_series() {
    let origin = Origin::start("web").await;
    let web = format!("route add web /web {}\n", origin.url());
    let proxy = start(web.clone()).await;
    proxy.serves("h", "/web", "web").await;
    let of_targets = async || {
        let all = series(&proxy).await;
        all.into_iter().filter(|name| name.contains("target=") && !name.contains("service=\"web\"")).collect::<Vec<_>>()
    };
    for round in 0..3 {
        // Ever new services at ever new addresses.
        let many = (0..50).map(|n| {
            let (port, service) = (origin.port(), format!("s{round}-{n}"));
            format!("route add {service} {service}.test/ http://127.{round}.0.{}:{port}/\n", n + 1)
        });
        proxy.set_routes(&(web.clone() + &many.collect::<String>()));
        for n in 0..50 {
            let host = format!("s{round}-{n}.test");
            until(PATIENCE, &host, async || (proxy.get(&host, "/").await.status != 404).then_some(())).await;
        }
        assert!(of_targets().await.len() >= 50);
        proxy.set_routes(&web);
        until(PATIENCE, "they are gone", async || of_targets().await.is_empty().then_some(())).await;
    }
    proxy.serves("h", "/web", "web").await;
}
