//! gRPC: all kinds of calls, and their outcomes when something fails.

use std::sync::Arc;
use std::time::Duration;

use h2::Reason;

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::h2::{Answer, H2Client, H2Origin, Served, message, next, send_data, status};
use crate::testing::origin::Origin;
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, free_addr, soon, until};

const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc")];

/// Serves calls: what they do is their method.
async fn serve(mut served: Served) {
    let path = served.head.uri.path().to_owned();
    match path.rsplit('/').next().unwrap_or_default() {
        // Each message is sent back when it comes.
        "Echo" => {
            let Some(mut stream) = served.head(&[GRPC, &[("x-meta", "head")]].concat(), false) else { return };
            while let Some(Ok(data)) = served.body.data().await {
                let _ = served.body.flow_control().release_capacity(data.len());
                if send_data(&mut stream, data, false).await.is_err() {
                    return;
                }
            }
            let mut fields = status(0, "");
            fields.insert("x-tail-bin", "AAEC".parse().expect("a value"));
            let _ = stream.send_trailers(fields);
        }
        "Fail" => {
            let _ = served.read().await;
            served.head(&[GRPC, &[("grpc-status", "9"), ("grpc-message", "not%20now")]].concat(), true);
        }
        "Hang" => {
            let _ = served.read().await;
            let _ = std::future::poll_fn(|cx| served.respond.poll_reset(cx)).await;
        }
        "Large" => {
            let _ = served.read().await;
            let Some(mut stream) = served.head(GRPC, false) else { return };
            let _ = send_data(&mut stream, message("small").into(), false).await;
            let _ = send_data(&mut stream, message(vec![0; 5_000_000]).into(), false).await;
            let _ = stream.send_trailers(status(0, ""));
        }
        "Slow" => {
            let _ = served.read().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let Some(mut stream) = served.head(GRPC, false) else { return };
            let _ = send_data(&mut stream, message("late").into(), false).await;
            let _ = stream.send_trailers(status(0, ""));
        }
        "Reset" => {
            let Some(mut stream) = served.head(GRPC, false) else { return };
            let _ = send_data(&mut stream, message("one").into(), false).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            stream.send_reset(Reason::ENHANCE_YOUR_CALM);
        }
        _ => {
            served.head(&[GRPC, &[("grpc-status", "12")]].concat(), true);
        }
    }
}

/// A plain listener for gRPC in front of these routes.
async fn listening(routes: String) -> Proxy {
    let start = Start::routes(routes).one_worker().property("proxy.addr", "ADDR;proto=grpc,MORE;proto=prometheus");
    start.property("metrics.target", "prometheus").property("metrics.prefix", "p").start().await
}

async fn call(client: &H2Client, path: &str, body: &[u8]) -> Answer {
    client.send(client.call("any:1", path), body).await
}

#[tokio::test]
async fn all_kinds_of_calls_pass() {
    let origin = H2Origin::start(serve).await;
    let proxy = listening(format!("route add o / grpc://{}", origin.addr())).await;
    let client = H2Client::connect(proxy.addr).await;
    // One message, several, several in and one out would not differ here: messages both ways, one by one, show all.
    let request =
        client.call("any", "/p.S/Echo").header("x-a", "1").header("x-b-bin", "AAE=").header("grpc-encoding", "gzip");
    let (answer, mut stream) = client.open(request, false).await.expect("open");
    let mut answer = std::pin::pin!(answer);
    // The head comes before any message (fabio holds it back).
    let response = soon("the head", &mut answer).await.expect("a response");
    assert_eq!((response.status().as_u16(), &response.headers()["x-meta"]), (200, &"head".parse().expect("a value")));
    let mut received = response.into_body();
    for text in ["one", "two", "not protobuf \u{0}\u{ff}"] {
        send_data(&mut stream, message(text).into(), false).await.expect("open");
        assert_eq!(next(&mut received).await.expect("a message").expect("open"), message(text));
    }
    send_data(&mut stream, bytes::Bytes::new(), true).await.expect("open");
    assert!(next(&mut received).await.is_none());
    let trailers = soon("trailers", received.trailers()).await.expect("open").expect("trailers");
    assert!(trailers["grpc-status"] == "0" && trailers["x-tail-bin"] == "AAEC", "{trailers:?}");

    let head = origin.last();
    for (name, value) in [
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-a", "1"),
        ("x-b-bin", "AAE="),
        ("grpc-encoding", "gzip"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(head.headers[name], value, "{name}");
    }
    assert_eq!(head.uri.authority().map(|a| a.to_string()), Some(origin.addr().to_string()), "as fabio");

    let failed = call(&client, "/p.S/Fail", &message("x")).await;
    assert_eq!((failed.status, failed.grpc(), failed.header("grpc-message")), (200, Some(9), Some("not%20now")));
    assert!(failed.trailers.is_none(), "trailers only");
    assert_eq!(call(&client, "/grpc.health.v1.Health/Check", &message("")).await.grpc(), Some(12));
    let broken = call(&client, "/p.S/Reset", &message("x")).await;
    assert_eq!((broken.status, broken.grpc(), broken.body), (200, Some(8), message("one")));
}

#[tokio::test]
async fn outcomes_of_our_own_are_statuses() {
    let origin = H2Origin::start(serve).await;
    let routes = format!(
        "route add o /p.S/ grpc://{0}\nroute add gone /gone/ grpc://{1}\nroute add d /denied/ grpc://{0} opts \"deny=ip:127.0.0.0/8\"\n\
         route add a /auth/ grpc://{0} opts \"auth=none\"\nroute add z /zero/ grpc://{0} weight 0\nroute weight z /zero/ weight 0\n\
         route add u /plain/ http://{0}",
        origin.addr(),
        free_addr(),
    );
    let proxy = listening(routes).await;
    let client = H2Client::connect(proxy.addr).await;
    for (path, code, text) in [
        ("/nobody/M", 5, "no route found"),
        ("/gone/M", 14, "target unavailable"),
        ("/denied/M", 7, "access denied"),
        ("/auth/M", 16, "authorization failed"),
        ("/short", 12, "malformed method name"),
    ] {
        let answer = call(&client, path, &message("x")).await;
        assert_eq!(
            (answer.status, answer.grpc(), answer.header("grpc-message")),
            (200, Some(code), Some(text)),
            "{path}"
        );
        assert!(answer.trailers.is_none() && answer.body.is_empty(), "{path}");
        assert_eq!(answer.header("content-type"), Some("application/grpc"), "{path}");
    }
    // Any target is taken to speak gRPC on such a listener, as in fabio.
    assert_eq!(call(&client, "/plain/Echo", &message("x")).await.grpc(), Some(0));

    for (method, kind, status) in [("POST", "text/plain", 415), ("GET", "application/grpc", 405)] {
        let answer = client.send(client.request(method, "h", "/p.S/Echo").header("content-type", kind), b"").await;
        assert_eq!(answer.status, status, "{method} {kind}");
        assert!(answer.grpc().is_some(), "{method} {kind}");
    }
    let seen = origin.seen().len();
    assert_eq!(seen, 1);

    let page = crate::testing::client::get(proxy.more, "h", "/metrics").await.text();
    for line in [
        "p_grpc_noroute 1",
        "p_grep_status_count{code=\"NotFound\"} 1",
        "p_grpc_status_count{code=\"Unavailable\"} 1",
        "p_grpc_status_count{code=\"OK\"} 1",
        "p_grpc_requests_count 6",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
    }
    assert!(page.contains("\np_grpc_conn "), "{page}");
    assert!(!page.contains("p_notfound") && !page.contains("p_http_status"), "{page}");
}

#[tokio::test]
async fn hosts_and_paths_decide() {
    let (a, b, any) = (H2Origin::start(serve).await, H2Origin::start(serve).await, H2Origin::start(serve).await);
    let line = |host: &str, origin: &H2Origin| format!("route add s{host} {host}/ grpc://{}\n", origin.addr());
    let proxy = listening(line("a.example.com", &a) + &line("b.example.com", &b) + &line("", &any)).await;
    let client = H2Client::connect(proxy.addr).await;
    for (authority, dsthost, origin) in [
        ("a.example.com:443", None, &a),
        ("a.example.com", None, &a),
        ("B.example.com:50051", None, &b),
        ("c.example.com", None, &any),
        ("127.0.0.1:1", Some("b.example.com"), &b),
        ("a.example.com", Some("b.example.com"), &b),
        ("a.example.com", Some("nobody"), &any),
    ] {
        let before = origin.seen().len();
        let mut request = client.call(authority, "/p.S/Echo");
        if let Some(host) = dsthost {
            request = request.header("dsthost", host);
        }
        assert_eq!(client.send(request, &message("x")).await.grpc(), Some(0), "{authority} {dsthost:?}");
        assert_eq!(origin.seen().len(), before + 1, "{authority} {dsthost:?}");
    }
}

#[tokio::test]
async fn one_tls_port_serves_calls_and_pages() {
    let (calls, pages) = (H2Origin::start(serve).await, Origin::start("page").await);
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let routes = format!("route add c / grpc://{}\nroute add p / {}", calls.addr(), pages.url());
    let proxy = Start::routes(routes)
        .property(
            "proxy.cs",
            format!("cs=c;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .property("proxy.addr", "ADDR;cs=c")
        .start()
        .await;
    let client = H2Client::connect_tls(proxy.addr, "a.test", ca.client(&["h2"])).await;
    for _ in 0..5 {
        assert_eq!(call_to(&client, "a.test", "/p.S/Echo").await.grpc(), Some(0));
        assert_eq!(client.get("a.test", "/p.S/Echo").await.text(), "page");
        let mut old = Client::connect_tls(proxy.addr, "a.test", ca.client(&["http/1.1"])).await;
        assert_eq!(old.get("a.test", "/").await.text(), "page");
    }
    // What pages send to call services goes where pages go, if there is such a place.
    let web = client.request("POST", "a.test", "/p.S/Echo").header("content-type", "application/grpc-web+proto");
    assert_eq!(client.send(web, b"x").await.text(), "page");
}

async fn call_to(client: &H2Client, authority: &str, path: &str) -> Answer {
    client.send(client.call(authority, path), &message("x")).await
}

#[tokio::test]
async fn grpc_web_passes_to_grpc_targets() {
    let origin = H2Origin::start(async |mut served: Served| {
        let Ok(body) = served.read().await else { return };
        let kind = served.head.headers["content-type"].to_str().unwrap_or_default().to_owned();
        served.reply(&[("content-type", &kind)], body).await;
    })
    .await;
    let proxy = Start::routes(format!("route add o / grpc://{}", origin.addr())).start().await;
    let mut client = proxy.client().await;
    client.send("POST /p.S/M HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 4\r\n\r\nAAAA").await;
    let response = client.response().await;
    assert_eq!(
        (response.header("content-type"), response.text().as_str()),
        (Some("application/grpc-web-text"), "AAAA")
    );
    // A page is no call.
    assert_eq!(proxy.get("h", "/").await.status, 500);
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test]
async fn deadlines_and_cancellation_reach_the_target() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let origin = H2Origin::start(move |mut served: Served| {
        let tell = tell.clone();
        async move {
            if served.head.uri.path().ends_with("/Stream") {
                let Some(mut stream) = served.head(GRPC, false) else { return };
                let _ = send_data(&mut stream, message("one").into(), false).await;
                let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await.ok();
                let _ = tell.send(reason);
            } else {
                let reason = std::future::poll_fn(|cx| served.respond.poll_reset(cx)).await.ok();
                let _ = tell.send(reason);
            }
        }
    })
    .await;
    let proxy = listening(format!("route add o / grpc://{}", origin.addr())).await;
    let client = H2Client::connect(proxy.addr).await;
    for path in ["/p.S/Hang", "/p.S/Stream"] {
        let begun = std::time::Instant::now();
        let request = client.call("h", path).header("grpc-timeout", "300m");
        let answer = client.send(request, &message("x")).await;
        assert_eq!((answer.status, answer.grpc()), (200, Some(4)), "{path}");
        assert!(begun.elapsed() >= Duration::from_millis(290), "{path}");
        assert_eq!(soon("the end at the target", told.recv()).await, Some(Some(Reason::CANCEL)), "{path}");
        assert_eq!(origin.last().headers["grpc-timeout"], "300m");

        let (answer, mut stream) = client.open(client.call("h", path), false).await.expect("open");
        let before = origin.seen().len();
        send_data(&mut stream, message("x").into(), false).await.expect("open");
        until(PATIENCE, "the call", async || (origin.seen().len() >= before).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.send_reset(Reason::CANCEL);
        drop(answer);
        assert_eq!(soon("the end at the target", told.recv()).await, Some(Some(Reason::CANCEL)), "{path}");
    }
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn messages_have_a_largest_size() {
    let origin = H2Origin::start(serve).await;
    let routes = format!("route add o / grpc://{}", origin.addr());
    let proxy = listening(routes.clone()).await;
    let client = H2Client::connect(proxy.addr).await;
    let large = message(vec![1; 5_000_000]);
    let cut = call(&client, "/p.S/Echo", &large).await;
    assert_eq!((cut.status, cut.grpc()), (200, Some(8)));
    let cut = call(&client, "/p.S/Large", &message("x")).await;
    assert_eq!((cut.status, cut.grpc(), cut.body), (200, Some(8), message("small")));
    // Several small ones are no large one.
    let many = message(vec![1; 3_000_000]).repeat(3);
    assert_eq!(call(&client, "/p.S/Echo", &many).await.body.len(), many.len());

    let more = Start::routes(routes)
        .property("proxy.addr", "ADDR;proto=grpc")
        .property("proxy.grpcmaxrxmsgsize", 6_000_000)
        .property("proxy.grpcmaxtxmsgsize", 6_000_000)
        .start()
        .await;
    let client = H2Client::connect(more.addr).await;
    let whole = call(&client, "/p.S/Echo", &large).await;
    assert_eq!((whole.grpc(), whole.body.len()), (Some(0), large.len()));
}

#[tokio::test]
async fn tls_targets_have_a_name_of_their_own() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["inner.test"]);
    let names = Arc::new(std::sync::Mutex::new(Vec::new()));
    let origin = H2Origin::start_with(Some(ca.server(&leaf, &["h2"])), h2::server::Builder::new(), {
        let names = names.clone();
        move |served: Served| {
            names.lock().expect("no panic").push(served.head.uri.to_string());
            serve(served)
        }
    })
    .await;
    let routes = format!(
        "route add o /p.S/ grpcs://{0} opts \"tlsskipverify=true grpcservername=inner.test\"\nroute add v /v/ grpcs://{0}",
        origin.addr()
    );
    let proxy = listening(routes).await;
    let client = H2Client::connect(proxy.addr).await;
    assert_eq!(call(&client, "/p.S/Echo", &message("x")).await.grpc(), Some(0));
    assert_eq!(*names.lock().expect("no panic"), ["https://inner.test/p.S/Echo"]);
    assert_eq!(call(&client, "/v/Echo", &message("x")).await.grpc(), Some(14), "its certificate is nobody's");
}

#[tokio::test]
async fn calls_are_finished_when_it_ends() {
    let origin = H2Origin::start(serve).await;
    let routes = format!("route add o / grpc://{}", origin.addr());
    let start = Start::routes(routes).property("proxy.addr", "ADDR;proto=grpc").property("proxy.shutdownwait", "10s");
    let mut proxy = start.start().await;
    let client = H2Client::connect(proxy.addr).await;
    let slow = call(&client, "/p.S/Slow", b"");
    let end = async {
        until(PATIENCE, "the call", async || (!origin.seen().is_empty()).then_some(())).await;
        proxy.signal(Signal::TERM);
        until(PATIENCE, "GOAWAY", async || client.sender.clone().ready().await.is_err().then_some(())).await;
    };
    let (answer, ()) = tokio::join!(slow, end);
    assert_eq!((answer.grpc(), answer.body), (Some(0), message("late")));
    assert_eq!(proxy.ferrio.stop().await, Some(0));
}

#[tokio::test]
async fn what_is_no_http2_is_told_so_on_a_grpc_listener() {
    let origin = H2Origin::start(serve).await;
    let proxy = listening(format!("route add o / grpc://{}", origin.addr())).await;
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!((response.status, response.text().as_str()), (400, "This port speaks HTTP/2 only.\n"));
    client.closed().await;
}

#[tokio::test]
async fn rewriting_applies_to_calls() {
    let origin = H2Origin::start(serve).await;
    let o = origin.addr();
    let routes = format!("route add o /api/ grpc://{o} opts \"strip=/api host=b.test\"");
    let proxy = listening(routes).await;
    let client = H2Client::connect(proxy.addr).await;
    assert_eq!(call(&client, "/api/p.S/Echo", &message("x")).await.grpc(), Some(0));
    assert_eq!(origin.last().uri, "http://b.test/p.S/Echo");
}

#[tokio::test]
async fn servers_are_asked_for_their_health_as_grpc_does() {
    // What it answers about each service.
    async fn serve(mut served: Served) {
        let asked = served.read().await.unwrap_or_default();
        if served.head.uri.path() != "/grpc.health.v1.Health/Check" {
            return served.reply(GRPC, "other").await;
        }
        let serving = match asked.get(7..).unwrap_or_default() {
            b"good" => 1,
            b"bad" => 2,
            _ => {
                served.head(&[GRPC, &[("grpc-status", "5")]].concat(), true);
                return;
            }
        };
        let Some(mut stream) = served.head(GRPC, false) else { return };
        let _ = send_data(&mut stream, message([8, serving]).into(), false).await;
        let _ = stream.send_trailers(status(0, ""));
    }
    let (mut routes, mut origins) = (String::new(), Vec::new());
    for service in ["good", "bad", "unknown"] {
        let origin = H2Origin::start(serve).await;
        let options = format!("proto=grpc check=grpc:{service} checkinterval=100ms checktimeout=5s");
        routes += &format!("route add {service} {service}/ grpc://{}/ opts \"{options}\"\n", origin.addr());
        origins.push(origin);
    }
    // Behind a PROXY header that nobody is named in.
    let picky = crate::testing::origin::TcpOrigin::start(async |mut tcp: tokio::net::TcpStream| {
        let mut header = [0; 15];
        let read = tokio::io::AsyncReadExt::read_exact(&mut tcp, &mut header).await;
        if read.is_ok() && header == *b"PROXY UNKNOWN\r\n" {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut tcp, answer).await;
        }
    })
    .await;
    let options = "pxyproto=true check=http:/ checkinterval=100ms checktimeout=5s";
    routes += &format!("route add picky picky/ http://{}/ opts \"{options}\"\n", picky.addr());
    let mut proxy = listening(routes).await;
    for (service, why) in [("bad", "NOT_SERVING"), ("unknown", "does not know this service")] {
        let line = format!("~ {service} ");
        proxy.ferrio.process().says(PATIENCE, &line).await;
        let said = proxy.ferrio.stderr();
        assert!(said.lines().any(|text| text.contains(&line) && text.contains(why)), "{said}");
    }
    let said = proxy.ferrio.stderr();
    assert!(!said.contains("~ good ") && !said.contains("~ picky "), "{said}");
}
