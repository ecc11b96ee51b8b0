//! Large bodies, which go from a plain target to a plain client without being read.

use crate::proxy::{Proxy, Start};
use crate::testing::origin::{self, Gate, Origin};
use crate::testing::{PATIENCE, until};

/// More than both sockets and a pipe hold.
const SIZE: usize = 24 << 20;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 7 + i / 251) as u8).collect()
}

async fn in_front_of(origin: &Origin) -> Proxy {
    Start::routes(format!("route add o / {}", origin.url()))
        .property("log.access.target", "stdout")
        .property("log.access.format", "$response_status $response_body_size $upstream_addr")
        .one_worker()
        .start()
        .await
}

#[tokio::test]
async fn a_large_body_arrives_whole_and_its_connections_are_used_again() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    let data = bytes();
    origin.on("/large", origin::reply(200, &[], &data));
    // In two parts, and the second one is small at first.
    let length = SIZE.to_string();
    let parts = origin::head(200, &[("Content-Length", &length)]).send(&data[..SIZE / 2]).gate(&gate);
    origin.on("/parts", parts.send(&data[SIZE / 2..SIZE / 2 + 10]).send(&data[SIZE / 2 + 10..]));
    let mut proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    for target in ["/large", "/parts", "/large"] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        let (head, _) = client.final_head().await;
        assert_eq!(head.one("content-length"), Some(&*length));
        // A reader that takes its time.
        let first = client.exact(1000).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if target == "/parts" {
            let half = client.exact(SIZE / 2 - 1000).await;
            assert!(half == data[1000..SIZE / 2], "{target}: other bytes");
            gate.open();
            let rest = client.exact(SIZE - SIZE / 2).await;
            assert!(rest == data[SIZE / 2..], "{target}: other bytes");
        } else {
            let rest = client.exact(SIZE - 1000).await;
            assert!(first == data[..1000] && rest == data[1000..], "{target}: other bytes");
        }
    }
    assert_eq!(origin.accepted(), 1, "the connection to the target was kept");
    let line = format!("200 {SIZE} {}\n", origin.addr());
    let mut logged = async || (proxy.ferrio.process().stdout().matches(&line).count() == 3).then_some(());
    until(PATIENCE, "three lines in the log", async || logged().await).await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_large_body_that_is_cut_ends_the_connection() {
    let origin = Origin::start("o").await;
    let data = bytes();
    let length = SIZE.to_string();
    let begun = || origin::head(200, &[("Content-Length", &length)]).send(&data[..SIZE - 1]);
    origin.on("/closes", begun().close());
    origin.on("/resets", begun().reset());
    let proxy = in_front_of(&origin).await;
    for target in ["/closes", "/resets"] {
        let mut client = proxy.client().await;
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        client.final_head().await;
        let got = client.rest().await;
        assert!(got.len() < SIZE && data.starts_with(&got), "{target}: {} bytes", got.len());
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_client_that_goes_away_costs_its_target_nothing_more() {
    let origin = Origin::start("o").await;
    origin.always(origin::reply(200, &[], bytes()));
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    client.final_head().await;
    client.exact(100_000).await;
    drop(client);
    until(PATIENCE, "the end of the connection", async || (origin.open() == 0).then_some(())).await;
    proxy.ends_well().await;
}
