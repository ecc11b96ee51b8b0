//! WebSockets: how long they may be idle, and how they end when ferrio goes.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::proxy::{Proxy, Start};
use crate::testing::client::Client;
use crate::testing::origin::TcpOrigin;
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, until};

/// A target that agrees to every WebSocket, sends what it is told, and says what it gets.
async fn target() -> (TcpOrigin, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (said, heard) = mpsc::unbounded_channel();
    let origin = TcpOrigin::start(move |mut tcp: TcpStream| {
        let said = said.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = tcp.read_u8().await else { return };
                head.push(byte);
            }
            let agreed = b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x82\x05hello";
            if tcp.write_all(agreed).await.is_err() {
                return;
            }
            let mut all = Vec::new();
            let mut buffer = vec![0; 65_536];
            while let Ok(n @ 1..) = tcp.read(&mut buffer).await {
                all.extend_from_slice(&buffer[..n]);
                // An echo of whole small frames is enough here.
                if all.ends_with(b"echo") && tcp.write_all(b"\x82\x04echo").await.is_err() {
                    break;
                }
            }
            let _ = said.send(all);
        }
    })
    .await;
    (origin, heard)
}

async fn open(proxy: &Proxy, path: &str) -> Client {
    open_with(proxy, path, "").await
}

async fn open_with(proxy: &Proxy, path: &str, fields: &str) -> Client {
    let mut client = proxy.client().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{upgrade}{fields}\r\n")).await;
    assert_eq!(client.response().await.status, 101);
    assert_eq!(client.exact(7).await, b"\x82\x05hello");
    client
}

#[tokio::test]
async fn its_field_alone_opens_one_and_a_wrong_expectation_ends_the_connection() {
    let (target, _heard) = target().await;
    let proxy = Start::routes(format!("route add t / http://{}/", target.addr())).start().await;
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    assert_eq!(client.exact(7).await, b"\x82\x05hello");
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: wonders\r\nContent-Length: 5\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!((response.status, response.header("connection")), (417, Some("close")));
    client.closed().await;
}

const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];

/// A masked close frame with 1001.
fn is_goodbye(bytes: &[u8]) -> bool {
    matches!(bytes, [0x88, 0x82, a, b, _, _, x, y] if x ^ a == 0x03 && y ^ b == 0xe9)
}

#[tokio::test]
async fn both_sides_are_told_when_it_goes() {
    let (target, mut heard) = target().await;
    let mut proxy = Start::routes(format!("route add t / http://{}/", target.addr()))
        .property("proxy.deregistergraceperiod", "0s")
        .property("proxy.shutdownwait", "20s")
        // All hear of it in the same moment.
        .property("runtime.gomaxprocs", 1)
        .property("proxy.websocket.closeframe", "all")
        .start()
        .await;
    let mut quiet = open(&proxy, "/").await;
    let mut amid = open(&proxy, "/").await;
    // A frame whose rest never comes.
    amid.send([0x82, 0x85, 0, 0, 0, 0, b'a']).await;
    let mut late = open(&proxy, "/").await;
    late.send([0x82, 0x84, 0, 0, 0, 0, b'e', b'c']).await;

    let begun = Instant::now();
    proxy.signal(Signal::TERM);
    assert_eq!(quiet.rest().await, GOING_AWAY);
    // The frame is completed first.
    late.send(b"ho\x82\x81\0\0\0\0x").await;
    assert!(late.rest().await.ends_with(GOING_AWAY));
    amid.rest().await;
    let mut ends = Vec::new();
    for client in [quiet, amid, late] {
        drop(client);
        ends.push(heard.recv().await.expect("what the target has heard"));
    }
    assert!(ends.iter().any(|end| is_goodbye(end)), "{ends:?}");
    let completed = ends.iter().find(|end| end.starts_with(&[0x82, 0x84])).expect("the frame");
    assert_eq!(&completed[..10], b"\x82\x84\0\0\0\0echo");
    assert!(is_goodbye(&completed[10..]), "nothing after the frame but the end: {completed:?}");
    let cut = ends.iter().find(|end| end.starts_with(&[0x82, 0x85])).expect("the other frame");
    assert_eq!(cut.len(), 7, "nothing within a frame: {cut:?}");
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "WebSockets are not waited for");
}

#[tokio::test]
async fn browsers_are_told_and_other_clients_see_the_end() {
    let (target, _heard) = target().await;
    let mut proxy = Start::routes(format!("route add t / http://{}/", target.addr()))
        .property("proxy.deregistergraceperiod", "0s")
        .property("proxy.shutdownwait", "20s")
        .start()
        .await;
    let mut program = open(&proxy, "/").await;
    let mut browser = open_with(&proxy, "/", "Origin: http://h\r\n").await;
    proxy.signal(Signal::TERM);
    assert_eq!(browser.rest().await, GOING_AWAY);
    assert_eq!(program.rest().await, b"");
    assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn idle_ones_are_ended() {
    let (target, mut heard) = target().await;
    let routes =
        format!("route add t / http://{0}/\nroute add t /long http://{0}/ opts \"idletimeout=1h\"", target.addr());
    let proxy = Start::routes(routes)
        .property("proxy.websocket.idletimeout", "400ms")
        .property("log.access.target", "stderr")
        .property("log.access.all", "true")
        .start()
        .await;
    let mut long = open(&proxy, "/long").await;
    let mut short = open(&proxy, "/").await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        short.send(b"\x82\x84\0\0\0\0echo").await;
        assert_eq!(short.exact(6).await, b"\x82\x04echo", "one that is used goes on");
    }
    assert_eq!(short.rest().await, GOING_AWAY);
    drop(short);
    assert!(is_goodbye(&heard.recv().await.expect("an end")[40..]));
    long.send(b"\x82\x84\0\0\0\0echo").await;
    assert_eq!(long.exact(6).await, b"\x82\x04echo");
    until(PATIENCE, "a line", async || proxy.ferrio.stderr().contains(" 101 ").then_some(())).await;
}

#[tokio::test]
async fn many_outlive_every_change_of_the_table() {
    let (target, _heard) = target().await;
    let routes = format!("route add t / http://{}/", target.addr());
    let proxy = Start::routes(&routes).start().await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(open(&proxy, "/").await);
    }
    for round in 0..10 {
        let service = format!("route add s{round} /other{round} http://{}/", target.addr());
        // The route of the open ones comes and goes, too.
        proxy.set_routes(&if round % 2 == 0 { service.clone() } else { format!("{routes}\n{service}") });
        until(PATIENCE, "the new table", async || {
            proxy.page("/api/routes").await.text().contains(&format!("other{round}")).then_some(())
        })
        .await;
        for client in &mut clients {
            client.send(b"\x82\x84\0\0\0\0echo").await;
            assert_eq!(client.exact(6).await, b"\x82\x04echo");
        }
    }
}
