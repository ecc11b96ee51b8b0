//! HTTP/1.1 byte for byte: what is passed on, what is refused, and what never keeps anybody waiting.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proxy::{Proxy, Start};
use crate::testing::origin::{self, Gate, Origin, TcpOrigin};
use crate::testing::soon;

async fn in_front_of(origin: &Origin) -> Proxy {
    Start::routes(format!("route add o / {}", origin.url())).one_worker().start().await
}

#[tokio::test]
async fn interim_answers_go_ahead_of_the_answer() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    let hints = [("Link", "</a.css>; rel=preload"), ("Connection", "close")];
    origin.on("/x", origin::interim(103, &hints, origin::reply(200, &[], "o").behind(&gate)));
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let hint = client.head().await;
    assert_eq!((hint.word(1), hint.one("link"), hint.one("connection")), ("103", Some("</a.css>; rel=preload"), None));
    gate.open();
    assert_eq!(client.response().await.text(), "o");
    // HTTP/1.0 does not know them.
    client.send("GET /x HTTP/1.0\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.head().await.word(1), "200");
}

#[tokio::test]
async fn trailers_that_nobody_has_announced() {
    let origin = Origin::start("o").await;
    origin.always(origin::chunked(&[]).chunk("abc").end(&[("X-Sum", "1"), ("Set-Cookie", "a=b")]));
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Up: 2\r\nHost: e\r\n\r\n")
        .await;
    let response = client.response().await;
    assert_eq!(response.body.trailers.fields, [("X-Sum".to_owned(), "1".to_owned())]);
    let seen = origin.last().body.trailers;
    assert_eq!((seen.fields.len(), seen.one("x-up")), (1, Some("2")));
    // They can go nowhere in HTTP/1.0, and the connection ends with the body.
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert!(client.rest().await.ends_with(b"\r\n\r\nabc"));
}

#[tokio::test]
async fn every_byte_of_a_query_arrives() {
    let origin = Origin::start("o").await;
    let routes = format!("route add o / {0}\nroute add o /own {0}/?own=1\n", origin.url());
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for (target, arrives) in [
        ("/x?a=\"<b>\\^`{|}", "/x?a=\"<b>\\^`{|}"),
        ("/x?a=%3C<", "/x?a=%3C<"),
        ("/a/../x?q=</../>", "/x?q=</../>"),
        ("http://h/x?<", "/x?<"),
        ("/own?a=<", "/own?own=1&a=<"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        assert_eq!(client.response().await.status, 200, "{target}");
        assert_eq!(origin.last().target(), arrives, "{target}");
    }
}

/// A target that answers what `script` says as soon as it has seen a head, and gives back how the body began.
pub(crate) async fn eager(script: &'static [u8]) -> TcpOrigin {
    TcpOrigin::start(move |mut tcp: TcpStream| async move {
        let mut read = vec![0; 4096];
        let mut all = Vec::new();
        while !all.windows(4).any(|end| end == b"\r\n\r\n") {
            match tcp.read(&mut read).await {
                Ok(length @ 1..) => all.extend_from_slice(&read[..length]),
                _ => return,
            }
        }
        let _ = tcp.write_all(script).await;
        while tcp.read(&mut read).await.is_ok_and(|length| length > 0) {}
    })
    .await
}

#[tokio::test]
async fn the_target_decides_whether_a_client_that_asks_first_goes_on() {
    const HEAD: &str = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    // No from the target.
    let no = eager(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Start::routes(format!("route add o / http://{}/", no.addr())).start().await;
    let mut client = proxy.client().await;
    client.send(HEAD).await;
    assert_eq!(client.head().await.word(1), "413");
    client.closed().await;
    // Yes from the target.
    let yes = eager(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let proxy = Start::routes(format!("route add o / http://{}/", yes.addr())).start().await;
    let mut client = proxy.client().await;
    client.send(HEAD).await;
    assert_eq!(client.head().await.word(1), "100");
    // A target that knows nothing of it.
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client.send(HEAD).await;
    assert_eq!(soon("100", client.head()).await.word(1), "100");
    client.send("hello").await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(origin.last().body.bytes, b"hello");
    // A client that does not wait, either.
    let begun = Instant::now();
    client.send(format!("{HEAD}hello")).await;
    assert_eq!(client.response().await.status, 200);
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    // Nobody to ask.
    let proxy = Start::routes("").start().await;
    let mut client = proxy.client().await;
    client.send(HEAD).await;
    assert_eq!(client.head().await.word(1), "404");
}

#[tokio::test]
async fn our_own_early_answer_reaches_a_client_that_still_sends() {
    let proxy = Start::routes("").start().await;
    for head in ["POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n", "GET / HTTP/1.1\r\nHost : h\r\n\r\n"]
    {
        let mut client = proxy.client().await;
        client.send(head).await;
        for _ in 0..300 {
            client.send(vec![b'x'; 10_000]).await;
        }
        let response = client.response().await;
        assert!(matches!(response.status, 404 | 400), "{}", response.status);
        assert_eq!(response.header("connection"), Some("close"));
    }
    // A short rest is no reason to end the connection.
    let mut client = proxy.client().await;
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n").await;
        assert_eq!(client.response().await.status, 404);
        client.send("hello").await;
    }
}

#[tokio::test]
async fn a_target_that_takes_nothing_is_given_up() {
    let stuck = TcpOrigin::start(|tcp: TcpStream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(tcp);
    })
    .await;
    let proxy = Start::routes(format!("route add o / http://{}/", stuck.addr()))
        .property("proxy.requestwritetimeout", "500ms")
        .start()
        .await;
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n").await;
    let piece = vec![b'x'; 100_000];
    while let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(200), client.wire.send(&piece)).await {}
    assert_eq!(soon("an answer", client.head()).await.word(1), "504");
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_ended() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    for (bytes, status) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], "400"),
        (b"GET / HTTP/1.1\nHost: h\n\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: y\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nabcde\r\n0\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;;\r\nabcde\r\n0\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"\r\nabcde\r\n0\r\n\r\n", "400"),
        (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
    ] {
        let mut client = proxy.client().await;
        client.send(bytes).await;
        let head = soon("an answer", client.head()).await;
        assert_eq!((head.word(1), head.one("connection")), (status, Some("close")), "{}", bytes.escape_ascii());
        soon("the end", client.rest()).await;
    }
    // Nothing of it was seen as a whole request.
    assert_eq!(origin.seen().len(), 0);
    // Empty lines before a request are none, however they come.
    let mut client = proxy.client().await;
    client.send_slowly("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.response().await.status, 200);
    // The longest length there is, is one: it ends with the connection.
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\nabc").await;
    client.finish().await;
    soon("the end", client.rest()).await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_target_cannot_have_the_protection_of_its_answer_removed() {
    let origin = Origin::start("o").await;
    let fields = [
        ("Connection", "Set-Cookie, Content-Security-Policy, X-Hop"),
        ("Set-Cookie", "a=b"),
        ("Content-Security-Policy", "default-src 'none'"),
        ("X-Hop", "1"),
    ];
    origin.always(origin::reply(200, &fields, "o"));
    let proxy = in_front_of(&origin).await;
    let response = proxy.get("h", "/").await;
    assert_eq!(response.header("set-cookie"), Some("a=b"));
    assert_eq!(response.header("content-security-policy"), Some("default-src 'none'"));
    assert_eq!((response.header("x-hop"), response.header("connection")), (None, None));
}

#[tokio::test]
async fn large_bodies_arrive_whole_both_ways() {
    let origin = Origin::start("o").await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    origin.on("/length", origin::reply(200, &[], &body));
    origin.on("/chunked", body.chunks(70_001).fold(origin::chunked(&[]), |script, piece| script.chunk(piece)).end(&[]));
    origin.on("/small", body[..100_000].chunks(11).fold(origin::chunked(&[]), |s, piece| s.chunk(piece)).end(&[]));
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    for (path, length) in [("/length", body.len()), ("/chunked", body.len()), ("/small", 100_000)] {
        assert!(client.get("h", path).await.body.bytes == body[..length], "{path}");
    }
    client.send(format!("POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    client.send(&body).await;
    assert_eq!(client.response().await.status, 200);
    assert!(origin.last().body.bytes == body);
    client.send("POST /up HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for piece in body.chunks(50_000) {
        client.send([format!("{:X};a=b\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.response().await.status, 200);
    assert!(origin.last().body.bytes == body);
    assert_eq!(origin.accepted(), 1, "the connection to the target was kept");
}
