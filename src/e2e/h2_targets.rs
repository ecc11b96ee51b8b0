//! HTTP/2 to targets: `proto=h2`, `proto=h2c`, grpc:// and grpcs://.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use h2::Reason;

use crate::proxy::Start;
use crate::testing::certs::Ca;
use crate::testing::client::{self, Client};
use crate::testing::h2::{H2Client, H2Origin, Served, collect, next, send_data};
use crate::testing::origin::{self, Origin};
use crate::testing::{PATIENCE, soon, until};

async fn echo(mut served: Served) {
    if let Ok(body) = served.read().await {
        let path = served.head.uri.path().to_owned();
        served.reply(&[("x-path", &path)], body).await;
    }
}

fn h2c(origin: &H2Origin) -> String {
    format!("route add o / http://{}/ opts \"proto=h2c\"", origin.addr())
}

#[tokio::test]
async fn requests_share_a_connection() {
    let origin = H2Origin::start(echo).await;
    let proxy = Start::routes(h2c(&origin)).one_worker().start().await;
    let clients = (0..50).map(async |n: usize| {
        let body = n.to_string();
        let response = client::request(proxy.addr, "POST", "a.com", &format!("/{n}"), &body).await;
        assert_eq!((response.status, response.text()), (200, body));
        assert_eq!(response.header("x-path"), Some(format!("/{n}").as_str()));
    });
    futures(clients).await;
    assert_eq!(origin.accepted(), 1);
    let head = origin.last();
    assert_eq!(head.uri.authority().map(|a| a.as_str()), Some("a.com"));
    assert_eq!(head.uri.scheme_str(), Some("http"));
    for name in ["host", "connection", "transfer-encoding", "upgrade"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    assert_eq!(head.headers["x-forwarded-for"], "127.0.0.1");
    let length = head.uri.path().len() - 1;
    assert_eq!(head.headers["content-length"], length.to_string().as_str());
}

/// All of them at once.
async fn futures<T>(all: impl IntoIterator<Item = impl Future<Output = T>>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn more_streams_than_a_target_allows_get_more_connections() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waiting = Arc::new(AtomicUsize::new(0));
    let serve = {
        let (gate, waiting) = (gate.clone(), waiting.clone());
        move |mut served: Served| {
            let (gate, waiting) = (gate.clone(), waiting.clone());
            async move {
                waiting.fetch_add(1, Ordering::SeqCst);
                let _ = gate.acquire().await.map(|permit| permit.forget());
                served.reply(&[], "o").await;
            }
        }
    };
    let origin = H2Origin::start_with(None, builder, serve).await;
    let proxy = Start::routes(h2c(&origin)).one_worker().property("proxy.idleconntimeout", "400ms").start().await;
    let clients = futures((0..7).map(async |_| assert_eq!(proxy.get("h", "/").await.text(), "o")));
    let all = async {
        until(PATIENCE, "all seven", async || (waiting.load(Ordering::SeqCst) == 7).then_some(())).await;
        assert_eq!(origin.accepted(), 4);
        gate.add_permits(100);
    };
    tokio::join!(clients, all);
    assert_eq!(proxy.get("h", "/").await.text(), "o");
    assert_eq!(origin.accepted(), 4, "a kept one is used");
    until(PATIENCE, "idle ones to be closed", async || (origin.open() == 0).then_some(())).await;
    assert_eq!(proxy.get("h", "/").await.text(), "o");
}

#[tokio::test]
async fn tls_targets_agree_on_a_protocol() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["127.0.0.1"]);
    let h2 = H2Origin::start_with(Some(ca.server(&leaf, &["h2"])), h2::server::Builder::new(), echo).await;
    let http1 = Origin::start_tls("one", ca.server(&leaf, &["http/1.1"])).await;
    let silent = Origin::start_tls("silent", ca.server(&leaf, &[])).await;
    let line =
        |name: &str, addr| format!("route add {name} /{name} https://{addr}/ opts \"proto=h2 tlsskipverify=true\"\n");
    let routes = line("two", h2.addr()) + &line("one", http1.addr()) + &line("silent", silent.addr());
    let proxy = Start::routes(routes).one_worker().start().await;
    for _ in 0..3 {
        assert_eq!(client::request(proxy.addr, "POST", "h", "/two", "2").await.text(), "2");
        assert_eq!(proxy.get("h", "/one").await.text(), "one");
        assert_eq!(proxy.get("h", "/silent").await.text(), "silent");
    }
    assert_eq!((h2.accepted(), http1.accepted(), silent.accepted()), (1, 1, 1));
    assert_eq!(h2.last().uri.scheme_str(), Some("https"));
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_and_others_are_not() {
    let seen = Arc::new(AtomicUsize::new(0));
    let serve = {
        let seen = seen.clone();
        move |mut served: Served| {
            let number = seen.fetch_add(1, Ordering::SeqCst);
            async move {
                match served.head.uri.path() {
                    "/refused" if number == 0 => served.reset(Reason::REFUSED_STREAM),
                    "/always" => served.reset(Reason::REFUSED_STREAM),
                    "/broken" => served.reset(Reason::INTERNAL_ERROR),
                    _ => served.reply(&[], "o").await,
                }
            }
        }
    };
    let origin = H2Origin::start(serve).await;
    let proxy = Start::routes(h2c(&origin)).one_worker().start().await;
    for (method, path, status, times) in [
        ("POST", "/refused", 200, 2),
        ("GET", "/always", 502, 3),
        ("POST", "/broken", 502, 1),
        ("GET", "/broken", 502, 1),
    ] {
        seen.store(0, Ordering::SeqCst);
        assert_eq!(client::request(proxy.addr, method, "h", path, "").await.status, status, "{method} {path}");
        assert_eq!(seen.load(Ordering::SeqCst), times, "{method} {path}");
    }
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn what_is_no_http2_is_a_bad_gateway() {
    let http1 = Origin::start("one").await;
    let mute = crate::testing::origin::TcpOrigin::start(async |mut tcp: tokio::net::TcpStream| {
        let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
    })
    .await;
    let gone = crate::testing::free_addr();
    let line = |name: &str, addr| format!("route add {name} /{name} http://{addr}/ opts \"proto=h2c\"\n");
    let routes = line("one", http1.addr()) + &line("mute", mute.addr()) + &line("gone", gone);
    let proxy = Start::routes(routes).property("proxy.dialtimeout", "500ms").start().await;
    for (path, status) in [("/one", 502), ("/mute", 504), ("/gone", 502)] {
        let clients = (0..10).map(async |_| assert_eq!(proxy.get("h", path).await.status, status, "{path}"));
        futures(clients).await;
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn large_bodies_and_trailers_go_both_ways() {
    let origin = H2Origin::start(async |mut served: Served| {
        let Ok(body) = served.read().await else { return };
        let sum = served.body.trailers().await.ok().flatten().and_then(|fields| fields.get("x-up").cloned());
        let Some(mut stream) = served.head(&[("trailer", "x-down")], false) else { return };
        let _ = crate::testing::h2::send_data(&mut stream, body.into(), false).await;
        let mut fields = http::HeaderMap::new();
        fields.insert("x-down", sum.unwrap_or(http::HeaderValue::from_static("none")));
        let _ = stream.send_trailers(fields);
    })
    .await;
    let proxy = Start::routes(h2c(&origin)).start().await;
    let mut client = proxy.client().await;
    let piece = "x".repeat(100_000);
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Up\r\n\r\n")
        .await;
    for _ in 0..20 {
        client.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
    }
    client.send("0\r\nX-Up: 7\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!(response.body.bytes.len(), 2_000_000);
    assert_eq!(response.body.trailers.one("x-down"), Some("7"));
}

#[tokio::test]
async fn a_conversation_goes_on_piece_by_piece() {
    // The answer begins before the request ends, and each piece waits for the one before it.
    let origin = H2Origin::start(async |mut served: Served| {
        let Some(mut stream) = served.head(&[], false) else { return };
        while let Some(Ok(piece)) = next(&mut served.body).await {
            if send_data(&mut stream, piece, false).await.is_err() {
                return;
            }
        }
        let _ = stream.send_data(Default::default(), true);
    })
    .await;
    let proxy = Start::routes(h2c(&origin)).start().await;
    let mut client = proxy.client().await;
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.line.starts_with("HTTP/1.1 200"), "{}", head.line);
    for piece in ["one", "two", "three", "four"] {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        client.send(chunk.as_str()).await;
        assert_eq!(client.exact(chunk.len()).await, chunk.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.exact(5).await, b"0\r\n\r\n");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_clean_end_anywhere() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let origin = H2Origin::start(move |mut served: Served| {
        let tell = tell.clone();
        async move {
            match served.head.uri.path() {
                "/down" => {
                    let Some(mut stream) = served.head(&[], false) else { return };
                    let _ = stream.send_data("half".into(), false);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    stream.send_reset(Reason::INTERNAL_ERROR);
                }
                _ => drop(tell.send(served.read().await.err().and_then(|error| error.reason()))),
            }
        }
    })
    .await;
    let proxy = Start::routes(h2c(&origin)).start().await;
    let mut client = proxy.client().await;
    client.send("GET /down HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let head = client.head().await;
    assert!(client.wire.body(&head, false).await.is_err());

    let mut client = proxy.client().await;
    client.send("POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf").await;
    until(PATIENCE, "the request", async || origin.seen().iter().any(|r| r.uri.path() == "/up").then_some(())).await;
    drop(client);
    assert_eq!(soon("the end of the upload", told.recv()).await, Some(Some(Reason::CANCEL)));
}

#[tokio::test]
async fn websockets_of_http2_targets_use_http1() {
    let origin = Origin::start("o").await;
    origin.always(origin::websocket());
    let routes = format!("route add o / {} opts \"proto=h2c\"", origin.url());
    let proxy = Start::routes(routes).start().await;
    let mut client = Client::connect(proxy.addr).await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    client.send("frame").await;
    assert_eq!(client.exact(5).await, b"frame");
}

#[tokio::test]
async fn proxy_headers_make_a_connection_for_each_request() {
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let target = {
        let heads = heads.clone();
        crate::testing::origin::TcpOrigin::start(move |mut tcp: tokio::net::TcpStream| {
            let heads = heads.clone();
            async move {
                use tokio::io::AsyncReadExt as _;
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    let Ok(byte) = tcp.read_u8().await else { return };
                    line.push(byte);
                }
                heads.lock().expect("no panic").push(String::from_utf8_lossy(&line).into_owned());
                let Ok(mut connection) = h2::server::handshake(tcp).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut stream = respond.send_response(http::Response::new(()), false).expect("open");
                    let _ = stream.send_data(bytes::Bytes::from_static(b"o"), true);
                }
            }
        })
        .await
    };
    let routes = format!("route add o / http://{}/ opts \"proto=h2c pxyproto=true\"", target.addr());
    let proxy = Start::routes(routes).one_worker().start().await;
    for _ in 0..2 {
        assert_eq!(proxy.get("h", "/").await.text(), "o");
    }
    let heads = heads.lock().expect("no panic").clone();
    assert!(heads.len() == 2 && heads.iter().all(|line| line.starts_with("PROXY TCP4 127.0.0.1 ")), "{heads:?}");
}

#[tokio::test]
async fn slow_clients_do_not_hold_up_others_on_their_connection() {
    let origin = H2Origin::start(async |mut served: Served| match served.head.uri.path() {
        "/large" => served.reply(&[], vec![b'x'; 8_000_000]).await,
        _ => served.reply(&[], "o").await,
    })
    .await;
    let proxy = Start::routes(h2c(&origin)).one_worker().start().await;
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut client = proxy.client().await;
        client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.head().await;
        slow.push(client);
    }
    for _ in 0..20 {
        assert_eq!(proxy.get("h", "/").await.text(), "o");
    }
    assert_eq!(origin.accepted(), 1);
    let first = slow.first_mut().expect("forty of them");
    assert_eq!(first.exact(8_000_000).await.len(), 8_000_000);
}

#[tokio::test]
async fn trailers_carry_nothing_about_the_message() {
    let origin = H2Origin::start(async |mut served: Served| {
        if served.read().await.is_err() {
            return;
        }
        let fields = served.body.trailers().await.ok().flatten().unwrap_or_default();
        let names: Vec<_> = fields.keys().map(|name| name.as_str().to_owned()).collect();
        let Some(mut stream) = served.head(&[("x-names", &names.join(" "))], false) else { return };
        let _ = stream.send_data("body".into(), false);
        let mut fields = http::HeaderMap::new();
        for name in ["x-sum", "content-length", "host", "content-type"] {
            fields.insert(http::HeaderName::from_static(name), http::HeaderValue::from_static("1"));
        }
        let _ = stream.send_trailers(fields);
    })
    .await;
    let proxy = Start::routes(h2c(&origin)).property("proxy.addr", "ADDR;h2c=true").start().await;
    let client = H2Client::connect(proxy.addr).await;
    let (answer, mut stream) = client.open(client.request("POST", "h", "/"), false).await.expect("open");
    let mut fields = http::HeaderMap::new();
    for name in ["x-up", "content-length", "host", "trailer"] {
        fields.insert(http::HeaderName::from_static(name), http::HeaderValue::from_static("1"));
    }
    stream.send_trailers(fields).expect("open");
    let answer = collect(soon("a response", answer).await.expect("a response")).await.expect("all of it");
    assert_eq!((answer.header("x-names"), answer.text().as_str()), (Some("x-up"), "body"));
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-sum"]);
}

#[tokio::test]
async fn small_messages_may_wait_for_a_slow_target() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let mut builder = h2::server::Builder::new();
    builder.data_frame_budget(100_000_000);
    let serve = {
        let gate = gate.clone();
        move |mut served: Served| {
            let gate = gate.clone();
            async move {
                let _ = gate.acquire().await.map(|permit| permit.forget());
                let length = served.read().await.map_or(0, |body| body.len());
                served.reply(&[], length.to_string()).await;
            }
        }
    };
    let origin = H2Origin::start_with(None, builder, serve).await;
    let proxy = Start::routes(h2c(&origin)).property("proxy.addr", "ADDR;h2c=true").start().await;
    let client = H2Client::connect(proxy.addr).await;
    let (answer, mut stream) = client.open(client.request("POST", "h", "/"), false).await.expect("open");
    for _ in 0..10_000 {
        send_data(&mut stream, bytes::Bytes::from_static(b"small!"), false).await.expect("open");
    }
    send_data(&mut stream, bytes::Bytes::new(), true).await.expect("open");
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.add_permits(1);
    let answer = collect(soon("a response", answer).await.expect("a response")).await.expect("all of it");
    assert_eq!(answer.text(), "60000");
}

#[tokio::test]
async fn a_connection_that_is_told_to_go_takes_no_new_requests() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let served = Arc::new(AtomicUsize::new(0));
    let serving = {
        let served = served.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(tcp).await else { return };
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        // Each connection takes two, and goes after the first.
                        connection.graceful_shutdown();
                        served.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(async move {
                            if request.uri().path() == "/slow" {
                                tokio::time::sleep(Duration::from_millis(300)).await;
                            }
                            if let Ok(mut stream) = respond.send_response(http::Response::new(()), false) {
                                let _ = stream.send_data(bytes::Bytes::from_static(b"o"), true);
                            }
                        });
                    }
                });
            }
        })
    };
    let routes = format!("route add o / http://{addr}/ opts \"proto=h2c\"");
    let proxy = Start::routes(routes).one_worker().start().await;
    let slow = proxy.get("h", "/slow");
    let others = async {
        until(PATIENCE, "the slow one", async || (served.load(Ordering::SeqCst) == 1).then_some(())).await;
        for _ in 0..10 {
            let response = client::request(proxy.addr, "POST", "h", "/", "x").await;
            assert_eq!((response.status, response.text().as_str()), (200, "o"));
        }
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert_eq!(slow.text(), "o");
    serving.abort();
}
