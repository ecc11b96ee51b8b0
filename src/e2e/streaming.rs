//! Whatever comes piece by piece goes on piece by piece, in either direction, and tunnels begin without a loss.

use flate2::read::GzDecoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::proxy::Start;
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::origin::{self, Gate, Origin, TcpOrigin};
use crate::testing::{PATIENCE, soon, until};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

#[tokio::test]
async fn a_handshake_without_an_answer_is_a_gateway_timeout() {
    let origin = Origin::start("o").await;
    origin.always(origin::hang());
    let proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.responseheadertimeout", "200ms")
        .start()
        .await;
    let mut client = proxy.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{UPGRADE}\r\n")).await;
    assert_eq!(client.response().await.status, 504);
    // Nothing of it is left on the connection.
    origin.always(origin::reply(200, &[], "o"));
    assert_eq!(client.get("h", "/").await.text(), "o");
    proxy.ends_well().await;
}

#[tokio::test]
async fn websockets_go_to_targets_with_tls() {
    let ca = Ca::new();
    // One that would rather speak HTTP/2.
    let origin = Origin::start_tls("o", ca.server(&ca.leaf(&["o.test"]), &["h2", "http/1.1"])).await;
    origin.always(origin::websocket());
    let url = format!("https://{}/", origin.addr());
    let proxy = Start::routes(format!("route add o / {url} opts \"proto=https tlsskipverify=true\"")).start().await;
    let mut client = proxy.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{UPGRADE}\r\n")).await;
    assert_eq!(client.response().await.status, 101);
    client.send("frame").await;
    assert_eq!(client.exact(5).await, b"frame");
    proxy.ends_well().await;
}

#[tokio::test]
async fn forwarding_headers_of_an_upgrade_are_those_of_any_request() {
    let origin = Origin::start("o").await;
    origin.always(origin::websocket());
    let proxy = Start::routes(format!("route add o / {}", origin.url())).start().await;
    let mut client = proxy.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.9\r\n{UPGRADE}\r\n")).await;
    assert_eq!(client.response().await.status, 101);
    let seen = origin.last();
    assert_eq!(seen.head.all("x-forwarded-for"), ["192.0.2.9, 127.0.0.1"]);
    assert_eq!(seen.head.all("x-forwarded-proto"), ["http"]);
}

#[tokio::test]
async fn what_comes_with_the_handshake_is_not_lost() {
    let target = TcpOrigin::start(async |mut tcp: TcpStream| {
        let until = async |tcp: &mut TcpStream, read: &mut Vec<u8>, end: &[u8]| {
            while !read.ends_with(end) && tcp.read_buf(read).await.unwrap_or(0) > 0 {}
        };
        let mut read = Vec::new();
        until(&mut tcp, &mut read, b"\r\n\r\n").await;
        let answer = format!("HTTP/1.1 101 Switching Protocols\r\n{UPGRADE}\r\nfrom target");
        let _ = tcp.write_all(answer.as_bytes()).await;
        until(&mut tcp, &mut read, b"from client").await;
        let _ = tcp.write_all(b", heard").await;
    })
    .await;
    let proxy = Start::routes(format!("route add o / http://{}/", target.addr())).start().await;
    let mut client = proxy.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{UPGRADE}\r\nfrom client")).await;
    assert_eq!(client.final_head().await.0.word(1), "101");
    assert_eq!(client.exact(18).await, b"from target, heard");
}

#[tokio::test]
async fn every_piece_of_a_response_goes_on_at_once() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.gzip.contenttype", "^text/css")
        .start()
        .await;
    for (kind, accept) in [
        ("text/event-stream", "text/event-stream, */*"),
        ("text/event-stream", "*/*"),
        ("application/x-ndjson", "application/json"),
    ] {
        let gates = [Gate::new(), Gate::new()];
        let events = origin::chunked(&[("Content-Type", kind)]).chunk("first").gate(&gates[0]).chunk("second");
        origin.always(events.gate(&gates[1]).end(&[]));
        let mut client = proxy.client().await;
        client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nAccept: {accept}\r\nAccept-Encoding: gzip\r\n\r\n")).await;
        client.final_head().await;
        assert_eq!(soon("an event", client.chunk()).await, Some(b"first".to_vec()), "{kind}");
        gates[0].open();
        assert_eq!(soon("an event", client.chunk()).await, Some(b"second".to_vec()), "{kind}");
        gates[1].open();
        assert_eq!(client.chunk().await, None);
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_compressed_response_is_logged_and_counted_as_it_was_sent() {
    let origin = Origin::start("o").await;
    let text = "body { color: red }\n".repeat(500);
    origin.always(origin::reply(200, &[("Content-Type", "text/css")], &text));
    let mut proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.gzip.contenttype", "^text/css")
        .property("log.access.target", "stdout")
        .property("log.access.format", "$request_uri $response_status $response_body_size $upstream_service")
        .start()
        .await;
    let mut client = proxy.client().await;
    client.send("GET /a.css HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let mut plain = String::new();
    std::io::Read::read_to_string(&mut GzDecoder::new(&response.body.bytes[..]), &mut plain).expect("gzip");
    assert_eq!(plain, text);
    let line = format!("/a.css 200 {} o\n", response.body.bytes.len());
    let process = proxy.ferrio.process();
    until(PATIENCE, &line, async || process.stdout().contains(&line).then_some(())).await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn chunks_of_any_size_pass_both_ways() {
    let origin = Origin::start("o").await;
    let answer = "Transfer-Encoding: chunked\r\n\r\n1;a=\"b\"\r\nx\r\n1\r\ny\r\n0\r\n\r\n";
    origin.always(origin::raw(format!("HTTP/1.1 200 OK\r\n{answer}")));
    let proxy = Start::routes(format!("route add o / {}", origin.url())).start().await;
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;ext\r\na\r\n").await;
    client.send_slowly("1\r\nb\r\n0\r\n\r\n").await;
    assert_eq!(client.response().await.text(), "xy");
    assert_eq!(origin.last().body.bytes, b"ab");
    // HTTP/1.0 knows no chunks: the end of the connection is the end of the body.
    let mut old = Client::connect(proxy.addr).await;
    old.send("GET / HTTP/1.0\r\nHost: h\r\n\r\n").await;
    let rest = old.rest().await;
    assert!(rest.ends_with(b"\r\n\r\nxy") && !rest.windows(8).any(|word| word == b"chunked\r"), "{rest:?}");
    proxy.ends_well().await;
}

#[tokio::test]
async fn websockets_of_every_kind_of_listener_and_target() {
    let ca = Ca::new();
    let (own, theirs) = (ca.leaf(&["h"]), ca.leaf(&["o.test"]));
    let (plain, tls) = (Origin::start("o").await, Origin::start_tls("o", ca.server(&theirs, &["http/1.1"])).await);
    for origin in [&plain, &tls] {
        origin.always(origin::websocket());
    }
    let wss = format!("https://{}/", tls.addr());
    let routes = format!(
        "route add o /plain {0}\nroute add o /tls {wss} opts \"proto=https tlsskipverify=true\"\n\
         route add o /foo {0} opts \"strip=/foo\"\nroute add o /bar {0} opts \"prepend=/foo\"\n\
         route add o /old {0} opts \"strip=/old prepend=/new\"\n",
        plain.url()
    );
    let proxy = Start::routes(routes)
        .property("proxy.cs", format!("cs=c;type=file;cert={};key={}", own.cert_path.display(), own.key_path.display()))
        .property("proxy.addr", "ADDR,MORE;cs=c")
        .property("proxy.gzip.contenttype", ".*")
        .start()
        .await;
    for secure in [false, true] {
        for (asked, arrives, origin) in [
            ("/plain", "/plain", &plain),
            ("/tls", "/tls", &tls),
            ("/foo/strip", "/strip", &plain),
            ("/bar/baz", "/foo/bar/baz", &plain),
            ("/old/world", "/new/world", &plain),
        ] {
            let mut client = if secure {
                Client::connect_tls(proxy.more, "h", ca.client(&["http/1.1"])).await
            } else {
                proxy.client().await
            };
            client.send(format!("GET {asked} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n{UPGRADE}\r\n")).await;
            assert_eq!(client.response().await.status, 101, "{asked}");
            client.send("there and back").await;
            assert_eq!(client.exact(14).await, b"there and back", "{asked}");
            assert_eq!(origin.last().target(), arrives);
        }
    }
    proxy.ends_well().await;
}
