//! Talking to targets that fail, dawdle, break off, or move.

use std::time::{Duration, Instant};

use crate::proxy::{Proxy, Start};
use crate::routing::all;
use crate::testing::origin::{self, Gate, Origin, Script, TcpOrigin};
use crate::testing::wire::Framing;
use crate::testing::{PATIENCE, free_addr, soon, until};

/// One worker, one target.
async fn in_front_of(origin: &Origin) -> Proxy {
    Start::routes(format!("route add o / {}", origin.url())).one_worker().start().await
}

#[tokio::test]
async fn a_kept_connection_that_its_target_closes_costs_no_request() {
    let idle = Duration::from_millis(100);
    for script in [origin::reply(200, &[], "o").close_idle(idle), origin::reply(200, &[], "o").reset_idle(idle)] {
        let origin = Origin::start("o").await;
        origin.always(script);
        // Connections are not shared between services.
        let routes: String = (0..8).map(|n| format!("route add s{n} /{n} {}\n", origin.url())).collect();
        let proxy = Start::routes(routes).one_worker().start().await;
        let clients = (0..8).map(async |number| {
            let mut client = proxy.client().await;
            for turn in 0..12 {
                // Around the very moment at which the target closes.
                tokio::time::sleep(Duration::from_millis(95 + (number + turn) % 10)).await;
                assert_eq!(client.get("h", &format!("/{number}")).await.status, 200);
            }
        });
        all(clients).await;
        assert!(origin.accepted() > 8, "the target closed nothing: {}", origin.accepted());
    }
}

#[tokio::test]
async fn a_response_with_a_length_and_chunks_was_cut_at_the_length() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let chunks = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    origin.on("/both", origin::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n{chunks}")).close());
    let response = proxy.get("h", "/both").await;
    assert_eq!((response.status, response.text()), (200, "hello".into()));
    assert_eq!(response.header("content-length"), None);
}

#[tokio::test]
async fn an_equal_length_twice_ended_the_connection_of_a_head_request() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    origin.on("/twice", origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n").close());
    assert_eq!(proxy.status("HEAD /twice HTTP/1.1\r\nHost: h\r\n\r\n").await, 200);
}

#[tokio::test]
async fn a_compressed_transfer_lost_the_name_of_its_coding() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    origin.on("/gzip", origin::raw(format!("{head}2\r\nxx\r\n0\r\n\r\n")).close());
    assert_eq!(proxy.get("h", "/gzip").await.status, 502);
}

#[tokio::test]
async fn what_may_have_been_processed_is_not_sent_again() {
    let (post, delete) = ("POST /x HTTP/1.1\r\nContent-Length: 4\r\n", "DELETE /x HTTP/1.1\r\n");
    for (request, body, copies, status) in [
        (post, "body", 1, 502),
        ("PUT /x HTTP/1.1\r\nContent-Length: 0\r\n", "", 1, 502),
        (delete, "", 1, 502),
        ("GET /x HTTP/1.1\r\n", "", 2, 200),
        ("GET /x HTTP/1.1\r\nContent-Length: 4\r\n", "body", 1, 502),
        ("POST /x HTTP/1.1\r\nIdempotency-Key: 1\r\n", "", 2, 200),
    ] {
        let origin = Origin::start("o").await;
        let proxy = in_front_of(&origin).await;
        let mut client = proxy.client().await;
        assert_eq!(client.get("h", "/").await.status, 200);
        // Reads it all, then closes without an answer; another one gets its answer.
        origin.once("/x", origin::hang_up());
        client.send(format!("{request}Host: h\r\n\r\n{body}")).await;
        assert_eq!(client.response().await.status, status, "{request}");
        assert_eq!(origin.seen().len() - 1, copies, "{request}");
    }
}

#[tokio::test]
async fn a_target_that_closes_every_connection_is_not_tried_for_ever() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    assert_eq!(client.get("h", "/").await.status, 200);
    for (turn, script) in [origin::hang_up(), origin::reset()].into_iter().enumerate() {
        origin.always(script);
        let before = origin.accepted();
        assert_eq!(client.get("h", "/").await.status, 502);
        assert!(origin.accepted() - before <= 1 + usize::from(turn == 0), "{}", origin.accepted());
    }
}

#[tokio::test]
async fn a_faulty_target_is_a_bad_gateway() {
    let origin = Origin::start("o").await;
    origin.on("/garbage", origin::raw("\x15\x03\x01\0\x02\x02\x50garbage\r\n\r\n").close());
    origin.on("/half", origin::raw("HTTP/1.1 200 OK\r\nContent-Le").close());
    origin.on("/large", origin::head(200, &[("X", &"x".repeat(2 << 20))]).close());
    origin.on("/many", origin::head(200, &vec![("X", "y"); 600]).close());
    origin.on("/nothing", origin::hang_up());
    origin.on("/reset", origin::reset());
    origin.on("/negative", origin::raw("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").close());
    origin.on("/two", origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx").close());
    let closed = free_addr();
    let routes = format!("route add c /closed http://{closed}/\nroute add o / {}", origin.url());
    let proxy = Start::routes(routes).start().await;
    let paths = ["/closed", "/garbage", "/half", "/large", "/many", "/nothing", "/reset", "/negative", "/two"];
    for path in paths {
        let response = proxy.get("h", path).await;
        assert_eq!((response.status, response.text().as_str()), (502, ""), "{path}");
    }
    let cookies = vec![("Set-Cookie", "a=b"); 120];
    origin.on("/cookies", origin::reply(200, &cookies, ""));
    assert_eq!(proxy.get("h", "/cookies").await.head.all("set-cookie").len(), 120);
    proxy.ends_well().await;
}

#[tokio::test]
async fn responses_without_a_body_have_none_and_keep_the_connection() {
    let origin = Origin::start("o").await;
    for status in [204, 304] {
        let head = format!("HTTP/1.1 {status} Status\r\nTransfer-Encoding: chunked\r\nETag: \"x\"\r\n\r\n");
        origin.on(&format!("/{status}"), origin::raw(head));
    }
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    for status in [204, 304, 204] {
        let begun = Instant::now();
        let response = client.get("h", &format!("/{status}")).await;
        assert_eq!((response.status, response.header("etag")), (status, Some("\"x\"")));
        assert_eq!((response.header("transfer-encoding"), response.header("content-length")), (None, None));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    assert_eq!(client.get("h", "/").await.text(), "o");
}

#[tokio::test]
async fn a_target_that_does_not_answer_in_time_is_a_gateway_timeout() {
    let origin = Origin::start("o").await;
    origin.on("/slow", origin::reply(200, &[], "late").after(Duration::from_secs(20)));
    let pauses = (0..6).fold(origin::chunked(&[]), |script, _| script.wait(Duration::from_millis(200)).chunk("x"));
    origin.on("/stream", pauses.end(&[]));
    let full = Full::new();
    let routes = format!("route add f /full http://{}/\nroute add o / {}", full.addr(), origin.url());
    let proxy = Start::routes(routes)
        .property("proxy.responseheadertimeout", "500ms")
        .property("proxy.dialtimeout", "500ms")
        .start()
        .await;
    for path in ["/slow", "/full"] {
        let begun = Instant::now();
        assert_eq!(proxy.get("h", path).await.status, 504, "{path}");
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(450) && took < Duration::from_secs(5), "{path}: {took:?}");
    }
    assert_eq!(proxy.get("h", "/stream").await.text(), "xxxxxx");
}

/// A listener whose queue is full: connecting to it takes for ever, as to an address that nobody has.
struct Full {
    listener: socket2::Socket,
    _waiting: Vec<socket2::Socket>,
}

impl Full {
    fn new() -> Full {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).expect("a free port on loopback");
        listener.listen(0).expect("a bound socket");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let connect = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_nonblocking(true).expect("an open socket");
            let _ = socket.connect(&addr);
            socket
        };
        let waiting = (0..4).map(connect).collect();
        Full { listener, _waiting: waiting }
    }

    fn addr(&self) -> std::net::SocketAddr {
        self.listener.local_addr().ok().and_then(|addr| addr.as_socket()).expect("a bound socket has an address")
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_off_for_the_client_too() {
    let origin = Origin::start("o").await;
    let length = origin::head(200, &[("Content-Length", "1000")]).send("x".repeat(500));
    let chunked = origin::chunked(&[]).chunk("x".repeat(500));
    let pause = Duration::from_millis(50);
    let cases: [(&str, Script); 6] = [
        ("/length", length.clone().wait(pause).close()),
        ("/length-reset", length.clone().wait(pause).reset()),
        ("/length-at-once", length.close()),
        ("/chunked", chunked.clone().wait(pause).close()),
        ("/chunked-reset", chunked.wait(pause).reset()),
        ("/until-close-reset", origin::head(200, &[]).send("x".repeat(500)).wait(pause).reset()),
    ];
    for (path, script) in &cases {
        origin.on(path, script.clone());
    }
    let proxy = in_front_of(&origin).await;
    for (path, _) in &cases {
        let mut client = proxy.client().await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        // When all of it comes at once, the head may be lost with the rest.
        let Ok(Some(head)) = client.wire.head().await else { continue };
        let body = client.wire.body(&head, false).await;
        assert!(head.word(1) == "200" && body.is_err(), "{path}: a clean end: {head:?} {body:?}");
        assert!(!client.rest().await.ends_with(b"0\r\n\r\n"), "{path}");
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn listeners_cut_clients_that_dawdle_but_not_those_that_progress() {
    let origin = Origin::start("o").await;
    let proxy =
        Start::routes(format!("route add o / {}", origin.url())).property("proxy.addr", "ADDR;rt=600ms;it=300ms");
    let proxy = proxy.start().await;
    let began = Instant::now();
    // A head that drips.
    let mut drip = proxy.client().await;
    for byte in b"GET / HTTP/1.1\r\nHost: h\r\nX-Long: xxxxxxxxxx" {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if drip.try_send([*byte]).await.is_err() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "never closed");
    }
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    // A kept connection that is idle.
    let mut idle = proxy.client().await;
    assert_eq!(idle.get("h", "/").await.status, 200);
    let since = Instant::now();
    idle.closed().await;
    assert!(since.elapsed() > Duration::from_millis(250), "{:?}", since.elapsed());
    // An upload that takes longer than rt and moves all the time.
    let mut upload = proxy.client().await;
    upload.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n").await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(120)).await;
        upload.send("x").await;
    }
    assert_eq!(upload.response().await.status, 200);
    assert_eq!(origin.last().body.bytes, b"xxxxxxxxxx");
}

#[tokio::test]
async fn bodies_keep_their_framing() {
    let origin = Origin::start("o").await;
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    for (request, body, framing, length) in [
        ("DELETE / HTTP/1.1\r\nContent-Length: 3\r\n", "abc", Framing::Length, Some("3")),
        ("GET / HTTP/1.1\r\nContent-Length: 3\r\n", "abc", Framing::Length, Some("3")),
        ("GET / HTTP/1.1\r\n", "", Framing::None, None),
        ("DELETE / HTTP/1.1\r\n", "", Framing::None, None),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\n", "", Framing::Length, Some("0")),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", Framing::Chunked, None),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "3;a=b\r\nabc\r\n0\r\n\r\n", Framing::Chunked, None),
    ] {
        client.send(format!("{request}Host: h\r\n\r\n{body}")).await;
        assert_eq!(client.response().await.status, 200, "{request}");
        let seen = origin.last();
        assert_eq!((seen.body.framing, seen.header("content-length")), (framing, length), "{request}");
        assert_eq!(seen.body.bytes, if body.is_empty() { &b""[..] } else { b"abc" }, "{request}");
    }
}

#[tokio::test]
async fn the_limit_of_connections_is_about_idle_ones() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    origin.always(origin::reply(200, &[], "o").behind(&gate));
    let routes = format!("route add o / {}", origin.url());
    let proxy = Start::routes(routes).one_worker().property("proxy.maxconn", 10).start().await;
    let clients = (0..200).map(async |_| assert_eq!(proxy.get("h", "/").await.status, 200));
    let opened = async {
        until(PATIENCE, "200 connections at once", async || (origin.open() == 200).then_some(())).await;
        gate.open();
    };
    tokio::join!(all(clients), opened);
    until(PATIENCE, "the rest to be closed", async || (origin.open() <= 10).then_some(())).await;
    until(PATIENCE, "files to be closed", async || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", proxy.ferrio.id())).expect("a running process").count();
        (open < 80).then_some(())
    })
    .await;
}

#[tokio::test]
async fn interim_answers_do_not_take_the_place_of_the_answer() {
    let origin = Origin::start("o").await;
    for status in [102, 103, 199] {
        let script = origin::interim(status, &[("Link", "</a>")], origin::reply(200, &[], "final"));
        origin.on(&format!("/{status}"), script);
    }
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    for status in [102, 103, 199] {
        let response = client.get("h", &format!("/{status}")).await;
        assert_eq!((response.status, response.text().as_str()), (200, "final"), "{status}");
    }
}

#[tokio::test]
async fn trailers_go_both_ways() {
    let origin = Origin::start("o").await;
    let fields = [("X-Sum", "1"), ("Content-Length", "9"), ("Host", "evil"), ("Transfer-Encoding", "chunked")];
    origin.always(origin::chunked(&[("Trailer", "X-Sum")]).chunk("abc").end(&fields));
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\n\
             Trailer: X-Up\r\n\r\n3\r\nabc\r\n0\r\nX-Up: 2\r\nContent-Length: 1\r\nHost: evil\r\n\r\n",
        )
        .await;
    let response = client.response().await;
    assert_eq!(response.body.trailers.fields, [("X-Sum".to_owned(), "1".to_owned())]);
    let seen = origin.last().body;
    assert_eq!(seen.trailers.fields.len(), 1, "{:?}", seen.trailers);
    assert_eq!(seen.trailers.one("x-up"), Some("2"));
}

#[tokio::test]
async fn an_upgrade_with_lengths_in_its_answer_is_an_upgrade() {
    let origin = Origin::start("o").await;
    let echo = TcpOrigin::start(async |mut tcp: tokio::net::TcpStream| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut head = vec![0; 4096];
        let n = tcp.read(&mut head).await.unwrap_or(0);
        let odd: &[u8] = if head[..n].starts_with(b"GET /te") {
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n"
        } else {
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"
        };
        let _ = tcp.write_all(odd).await;
        let (mut from, mut to) = tcp.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let routes = format!(
        "route add e /ws http://{0}/\nroute add e /te http://{0}/\nroute add o / {1}",
        echo.addr(),
        origin.url()
    );
    let proxy = Start::routes(routes).start().await;
    for path in ["/ws", "/te"] {
        let mut client = proxy.client().await;
        client
            .send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
            .await;
        let response = client.response().await;
        assert_eq!(response.status, 101, "{path}");
        assert_eq!((response.header("content-length"), response.header("transfer-encoding")), (None, None), "{path}");
        client.send("frame").await;
        assert_eq!(client.exact(5).await, b"frame", "{path}");
    }
}

#[tokio::test]
async fn after_a_refused_upgrade_requests_are_routed_again() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    a.always(origin::reply(403, &[], "no"));
    let routes = format!("route add a /ws {}\nroute add b /b {}", a.url(), b.url());
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    client
        .send("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n")
        .await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.text().as_str()), (403, "no"));
    assert_eq!(client.response().await.text(), "b");
    assert_eq!(client.get("h", "/b").await.text(), "b");
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_uploads() {
    let origin = Origin::start("o").await;
    origin.always(origin::reply(413, &[], "too much").early().wait(Duration::from_millis(50)).close());
    let proxy = in_front_of(&origin).await;
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n").await;
    // As much as anybody takes.
    let piece = vec![b'x'; 10_000];
    for _ in 0..1000 {
        if tokio::time::timeout(Duration::from_millis(300), client.wire.send(&piece)).await.is_ok_and(|r| r.is_ok()) {
            continue;
        }
        break;
    }
    let response = client.response().await;
    assert_eq!((response.status, response.text().as_str()), (413, "too much"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_by_their_targets() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    a.always(origin::reply(200, &[], "a").after(Duration::from_millis(100)));
    let routes = format!("route add a /a {}\nroute add b /b {}", a.url(), b.url());
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    let line = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(["/a", "/b", "/a", "/b"].map(line).concat()).await;
    for body in ["a", "b", "a", "b"] {
        assert_eq!(client.response().await.text(), body);
    }
}

#[tokio::test]
async fn an_address_that_changes_its_owner_gets_connections_of_its_own() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add web / {}", origin.url())).one_worker().start().await;
    let mut client = proxy.client().await;
    for _ in 0..3 {
        client.get("h", "/").await;
    }
    assert_eq!(origin.accepted(), 1);
    proxy.set_routes(&format!("route add api /api {}", origin.url()));
    proxy.answers("h", "/", 404).await;
    client.get("h", "/api").await;
    assert_eq!(origin.last().connection, 1, "a connection of the former owner was used");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_request() {
    let (ended, mut end) = tokio::sync::mpsc::channel(1);
    let silent = TcpOrigin::start(move |mut tcp: tokio::net::TcpStream| {
        let ended = ended.clone();
        async move {
            let read = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
            let _ = ended.send(read.is_ok_and(|n| n > 0)).await;
        }
    })
    .await;
    let proxy = Start::routes(format!("route add s / http://{}/", silent.addr())).start().await;
    let mut client = proxy.client().await;
    client.send("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(tokio::time::timeout(Duration::from_millis(100), end.recv()).await.is_err(), "ended before the client");
    drop(client);
    soon("the end of the request at its target", end.recv()).await;
}

#[tokio::test]
async fn a_tunnel_outlives_the_time_limits_of_requests() {
    let origin = Origin::start("o").await;
    origin.always(origin::websocket());
    let start = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.addr", "ADDR;rt=300ms;wt=300ms;it=300ms");
    let proxy = start.property("proxy.responseheadertimeout", "300ms").start().await;
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    client.send("still here").await;
    assert_eq!(client.exact(10).await, b"still here");
}
