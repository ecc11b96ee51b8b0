//! What a route does beside forwarding: who may use it, and how its responses are coded.

use std::io::Read as _;

use crate::proxy::Start;
use crate::testing::client::Response;
use crate::testing::origin::{self, Gate, Origin, reply};

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

fn unzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("gzip");
    text
}

#[tokio::test]
async fn another_service_decides() {
    let (target, service) = (Origin::start("target").await, Origin::start("service").await);
    service.on("/check", reply(204, &[("X-User", "me"), ("X-Other", "no")], ""));
    let routes = format!("route add t /x {} opts \"auth=f strip=/x\"", target.url());
    let scheme = format!("name=f;type=forward;url={}check;copy=X-User|X-Role", service.url());
    let proxy = Start::routes(routes).property("proxy.auth", scheme).one_worker().start().await;

    let lines =
        "X-Role: admin\r\nConnection: X-User\r\nCookie: a=b\r\nIf-None-Match: \"x\"\r\nX-Forwarded-Uri: /open\r\n";
    assert_eq!(proxy.raw(get("/x/a%20b/../c?q=1", lines)).await.text(), "target");
    let seen = target.last();
    assert_eq!((seen.header("x-user"), seen.header("x-role"), seen.header("x-other")), (Some("me"), None, None));
    let asked = service.last();
    assert_eq!((asked.method(), asked.target()), ("GET", "/check"));
    assert_eq!(asked.header("x-forwarded-uri"), Some("/x/c?q=1"));
    assert_eq!((asked.header("x-forwarded-method"), asked.header("x-forwarded-host")), (Some("GET"), Some("h")));
    assert_eq!((asked.header("cookie"), asked.header("if-none-match")), (Some("a=b"), None));
    assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));

    // A body is for the target alone.
    let post = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(proxy.raw(post).await.status, 200);
    assert_eq!((&target.last().body.bytes[..], service.last().body.bytes.len()), (&b"body"[..], 0));
    assert_eq!(service.accepted(), 1, "the connection is kept");

    let count = target.seen().len();
    service.on("/check", reply(302, &[("Location", "https://login/"), ("Set-Cookie", "s=1")], "go there"));
    let login = proxy.raw(get("/x", "")).await;
    assert_eq!(
        (login.status, login.header("location"), login.header("set-cookie")),
        (302, Some("https://login/"), Some("s=1"))
    );
    assert_eq!(login.text(), "go there");
    service.on("/check", reply(500, &[], "broken"));
    assert_eq!(proxy.status(get("/x", "")).await, 503);
    service.on("/check", origin::hang_up());
    assert_eq!(proxy.status(get("/x", "")).await, 503);
    drop(service);
    assert_eq!(proxy.status(get("/x", "")).await, 503);
    assert_eq!(target.seen().len(), count, "requests that were not let in");
    proxy.ends_well().await;
}

#[tokio::test]
async fn proxies_of_ones_own_need_not_be_allowed() {
    let target = Origin::start("target").await;
    let routes = format!("route add t / {} opts \"allow=ip:10.0.0.0/8\"", target.url());
    let proxy = Start::routes(routes).property("proxy.trusted", "127.0.0.0/8").start().await;
    for (lines, status) in [
        ("X-Forwarded-For: 10.1.1.1\r\n", 200),
        ("X-Forwarded-For: 10.1.1.1, 127.0.0.5\r\n", 200),
        ("X-Forwarded-For: 10.1.1.1, 8.8.8.8\r\n", 403),
        ("X-Forwarded-For: 10.1.1.1\r\nX-Forwarded-For: 8.8.8.8\r\n", 403),
        ("X-Forwarded-For: unknown\r\n", 403),
        ("", 403),
    ] {
        assert_eq!(proxy.status(get("/", lines)).await, status, "{lines}");
    }
}

#[tokio::test]
async fn compression_holds_nothing_back() {
    let (target, gate) = (Origin::start("target").await, Gate::new());
    let script = origin::chunked(&[("Content-Type", "text/plain")]).chunk("one").gate(&gate).chunk("two").end(&[]);
    target.on("/", script);
    let proxy = Start::routes(format!("route add t / {}", target.url()))
        .property("proxy.gzip.contenttype", "^text/")
        .start()
        .await;
    let mut client = proxy.client().await;
    client.send(get("/", "Accept-Encoding: gzip\r\n")).await;
    client.final_head().await;
    let mut packed = client.chunk().await.expect("the first part");
    let mut begun = [0; 3];
    flate2::read::GzDecoder::new(&packed[..]).read_exact(&mut begun).expect("what was sent so far can be read");
    assert_eq!(&begun, b"one");
    gate.open();
    while let Some(chunk) = client.chunk().await {
        packed.extend_from_slice(&chunk);
    }
    assert_eq!(unzip(&packed), "onetwo");
}

#[tokio::test]
async fn codings_are_chosen_by_client_and_route() {
    let target = Origin::start("target").await;
    let text = "hello ".repeat(100);
    target.always(reply(200, &[("Content-Type", "text/plain"), ("ETag", "\"a\""), ("Accept-Ranges", "bytes")], &text));
    let routes = format!("route add t / {0}\nroute add u /off {0} opts \"compress=off\"", target.url());
    let proxy = Start::routes(routes).property("proxy.compress", "zstd,br,gzip").start().await;
    for (path, accept, coding) in [
        ("/", "gzip, br, zstd", Some("zstd")),
        ("/", "gzip, br", Some("br")),
        ("/", "gzip, br;q=0.5", Some("gzip")),
        ("/", "deflate", None),
        ("/off", "gzip", None),
    ] {
        let response: Response = proxy.raw(get(path, &format!("Accept-Encoding: {accept}\r\n"))).await;
        assert_eq!(response.header("content-encoding"), coding, "{path} {accept}");
        assert_eq!(response.header("vary"), (path == "/").then_some("Accept-Encoding"), "{path} {accept}");
        let tag = if coding.is_some() { "W/\"a\"" } else { "\"a\"" };
        assert_eq!(response.header("etag"), Some(tag), "{path} {accept}");
        match coding {
            Some("gzip") => assert_eq!(unzip(&response.body.bytes), text),
            Some(_) => assert!(response.body.bytes.len() < 100),
            None => assert_eq!(response.text(), text),
        }
    }
}

#[tokio::test]
async fn a_route_changes_headers() {
    let target = Origin::start("target").await;
    target.always(reply(200, &[("Server", "x"), ("Access-Control-Allow-Origin", "*")], "ok"));
    let options =
        "reqset=X-Env:prod%20one reqdel=Cookie respdel=Server respset=X-A:b secure=true cors=https://a.com auth=none";
    let open = options.replace(" auth=none", "");
    let routes = format!("route add t / {0} opts \"{open}\"\nroute add t /closed {0} opts \"{options}\"", target.url());
    let proxy = Start::routes(routes).start().await;
    let response = proxy.raw(get("/", "Cookie: a=b\r\nX-Env: dev\r\nOrigin: https://a.com\r\n")).await;
    let seen = target.last();
    assert_eq!((seen.header("x-env"), seen.header("cookie")), (Some("prod one"), None));
    assert_eq!((response.header("server"), response.header("x-a")), (None, Some("b")));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.head.all("access-control-allow-origin"), ["https://a.com"]);
    let other = proxy.raw(get("/", "Origin: https://b.com\r\n")).await;
    assert_eq!((other.header("access-control-allow-origin"), other.header("vary")), (None, Some("Origin")));
    let ask = "OPTIONS /closed HTTP/1.1\r\nHost: h\r\nOrigin: https://a.com\r\nAccess-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-b\r\n\r\n";
    let count = target.seen().len();
    let asked = proxy.raw(ask).await;
    assert_eq!((asked.status, asked.header("access-control-allow-methods")), (204, Some("PUT")));
    assert_eq!(asked.header("access-control-allow-headers"), Some("x-b"));
    assert_eq!(proxy.status(get("/closed", "")).await, 401);
    assert_eq!(target.seen().len(), count);
    proxy.ends_well().await;
}
