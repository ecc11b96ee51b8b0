//! Requests that are odd, ambiguous or hostile: refused, or made unambiguous before anybody else sees them.

use crate::proxy::{Proxy, Start};
use crate::testing::origin::Origin;
use crate::testing::soon;

async fn in_front_of(origin: &Origin) -> Proxy {
    Start::routes(format!("route add o / {}", origin.url())).start().await
}

/// What a raw request gets: its status, or 0 for a close without one.
async fn status(proxy: &Proxy, request: impl AsRef<[u8]>) -> u16 {
    let mut client = proxy.client().await;
    let _ = client.try_send(request).await;
    match soon("a response head", client.wire.head()).await {
        Ok(Some(head)) => head.word(1).parse().expect("a status"),
        _ => 0,
    }
}

#[tokio::test]
async fn a_smuggled_request_is_never_seen_as_one() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for head in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nTransfer-Encoding: identity",
        "Content-Length: 4\r\nTransfer-Encoding: xchunked",
        "Content-Length: 4\r\nTransfer-Encoding : chunked",
        "Content-Length: 4\r\nTransfer-Encoding: chunked, identity",
        "Content-Length: 4\r\nTransfer-Encoding: \x0bchunked",
        "Content-Length: 4\r\nX: y\r\n Transfer-Encoding: chunked",
    ] {
        let mut client = proxy.client().await;
        client.send(format!("POST / HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n0\r\n\r\n{smuggled}")).await;
        client.finish().await;
        client.rest().await;
    }
    for seen in origin.seen() {
        let both = seen.header("content-length").is_some() && seen.header("transfer-encoding").is_some();
        assert!(!both && seen.target() == "/", "{seen:?}");
    }
}

#[tokio::test]
async fn lengths_that_are_none_or_several() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    for (length, expected) in [
        ("Content-Length: 5", &[200][..]),
        ("Content-Length: 5\r\nContent-Length: 5", &[200, 400]),
        ("Content-Length: 5, 5", &[200, 400]),
        ("Content-Length: 5\r\nContent-Length: 6", &[400]),
        ("Content-Length: 5, 6", &[400]),
        ("Content-Length: +5", &[400]),
        ("Content-Length: 0x5", &[400]),
        ("Content-Length: -1", &[400]),
        ("Content-Length: ", &[400]),
        ("Content-Length: 5 5", &[400]),
        ("Content-Length: 100000000000000000000000000005", &[400]),
    ] {
        let got = status(&proxy, format!("POST / HTTP/1.1\r\nHost: h\r\n{length}\r\n\r\nabcde")).await;
        assert!(expected.contains(&got), "{length}: {got}");
    }
    assert!(origin.seen().iter().all(|seen| seen.body.bytes == b"abcde"));
}

#[tokio::test]
async fn fields_and_chunks_that_are_malformed() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    for field in
        ["Host : h", "X : y", " X: y", ": x", "X\0: y", "X: a\0b", "X: a\rb", "X\x0b: y", "X", "X(: y", "\u{e4}: y"]
    {
        let got = status(&proxy, format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n")).await;
        assert!(got == 400 || got == 0, "{field:?}: {got}");
    }
    assert_eq!(origin.seen().len(), 0);
    for (body, accepted) in [
        ("5\r\nabcde\r\n0\r\n\r\n", true),
        ("5;ext\r\nabcde\r\n0\r\n\r\n", true),
        ("5;ext=\"a b\"\r\nabcde\r\n0\r\n\r\n", true),
        ("0x5\r\nabcde\r\n0\r\n\r\n", false),
        ("+5\r\nabcde\r\n0\r\n\r\n", false),
        ("-5\r\nabcde\r\n0\r\n\r\n", false),
        ("fffffffffffffffff\r\nabcde\r\n0\r\n\r\n", false),
        ("4\r\nabcde\r\n0\r\n\r\n", false),
        ("5;a\nb\r\nabcde\r\n0\r\n\r\n", false),
        ("\r\nabcde\r\n0\r\n\r\n", false),
        ("5g\r\nabcde\r\n0\r\n\r\n", false),
    ] {
        let got =
            status(&proxy, format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).await;
        assert_eq!(got == 200, accepted, "{body:?}: {got}");
    }
}

#[tokio::test]
async fn hosts() {
    let (any, named) = (Origin::start("any").await, Origin::start("named").await);
    let routes = format!("route add a / {}\nroute add n h.example.com/ {}\n", any.url(), named.url());
    let proxy = Start::routes(routes).start().await;
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: user@h\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h:99999\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h:x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h:\r\n\r\n", 200),
        ("GET http://user@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET h.example.com HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("GET h.example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ] {
        assert_eq!(status(&proxy, request).await, expected, "{request:?}");
    }
    assert!(any.seen().iter().all(|seen| seen.head.all("host").len() == 1));
    assert_eq!(proxy.raw("GET http://h.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n").await.text(), "named");
}

#[tokio::test]
async fn a_host_with_a_colon_and_no_port_missed_its_routes() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add o h.example.com/ {}", origin.url())).start().await;
    for host in ["h.example.com:", "h.example.com:80", "h.example.com"] {
        assert_eq!(proxy.get(host, "/").await.text(), "o", "{host}");
        assert_eq!(origin.last().header("host"), Some(host));
    }
}

#[tokio::test]
async fn methods() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    for (line, expected, reaches) in [
        ("CONNECT h:443 HTTP/1.1", &[400, 405][..], false),
        ("CONNECT h:443 HTTP/1.0", &[400, 405], false),
        ("PRI * HTTP/2.0", &[400, 505, 0], false),
        ("OPTIONS * HTTP/1.1", &[200], false),
        ("GET * HTTP/1.1", &[400], false),
        ("TRACE / HTTP/1.1", &[200, 405], true),
        ("FOO-BAR / HTTP/1.1", &[200], true),
        ("get / HTTP/1.1", &[200], true),
        ("GET / HTTP/3.0", &[400, 505, 0], false),
        ("GET h/ HTTP/1.1", &[400], false),
        ("GET  / HTTP/1.1", &[400], false),
    ] {
        let before = origin.seen().len();
        let got = status(&proxy, format!("{line}\r\nHost: h\r\n\r\n")).await;
        assert!(expected.contains(&got), "{line}: {got}");
        assert_eq!(origin.seen().len() > before, reaches, "{line}");
        if reaches {
            assert_eq!(origin.last().method(), line.split(' ').next().expect("a word"));
        }
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn nobody_is_upgraded_to_h2c() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let response = proxy
        .raw(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        )
        .await;
    assert_eq!((response.status, response.text().as_str()), (200, "o"));
    let head = origin.last().head;
    for name in ["upgrade", "http2-settings", "connection"] {
        assert!(head.all(name).is_empty(), "{head:?}");
    }
}

#[tokio::test]
async fn limits_of_heads() {
    let origin = Origin::start("o").await;
    let routes = format!("route add o / {}", origin.url());
    let proxy = Start::routes(&routes).start().await;
    let lines = |n: usize| "X: y\r\n".repeat(n);
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let long = |n: usize| format!("X: {}\r\n", "x".repeat(n));
    for (what, request, expected) in [
        ("500 lines", get("/", &lines(500)), 200),
        ("600 lines", get("/", &lines(600)), 431),
        ("200 kB", get("/", &long(200_000)), 200),
        ("300 kB", get("/", &long(300_000)), 431),
        ("8 kB of target", get(&format!("/{}", "x".repeat(8_000)), ""), 200),
        ("100 kB of target", get(&format!("/{}", "x".repeat(100_000)), ""), 414),
    ] {
        assert_eq!(status(&proxy, request).await, expected, "{what}");
    }
    let small = Start::routes(&routes)
        .property("proxy.maxheaders", 10)
        .property("proxy.maxheadersize", 10_000)
        .property("proxy.maxtargetsize", 100);
    let small = small.start().await;
    for (what, request, expected) in [
        ("9 lines", get("/", &lines(8)), 200),
        ("12 lines", get("/", &lines(11)), 431),
        ("9 kB", get("/", &long(9_000)), 200),
        ("11 kB", get("/", &long(11_000)), 431),
        ("70 kB", get("/", &long(70_000)), 431),
        ("200 bytes of target", get(&format!("/{}", "x".repeat(200)), ""), 414),
    ] {
        assert_eq!(status(&small, request).await, expected, "{what}");
    }
}
