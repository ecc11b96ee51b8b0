//! Options of routes and listeners that decide who gets a request, with which path, how much of it, and what an error
//! looks like.

use serde_json::json;

use crate::proxy::Start;
use crate::testing::client::Client;
use crate::testing::consul::Consul;
use crate::testing::origin::{self, Origin};
use crate::testing::{PATIENCE, until};

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

#[tokio::test]
async fn canaries_get_what_is_meant_for_them() {
    let (plain, canary, exact) =
        (Origin::start("plain").await, Origin::start("canary").await, Origin::start("exact").await);
    let routes = format!(
        "route add p /api {}\nroute add c /api {} opts \"header=X-Canary:1\"\nroute add e /api {} opts \"path=exact method=GET query=v=2\"\nroute add w /only {} opts \"cookie=a=b\"",
        plain.url(),
        canary.url(),
        exact.url(),
        canary.url(),
    );
    let proxy = Start::routes(&routes).start().await;
    for (path, lines, body) in [
        ("/api", "", "plain"),
        ("/api/x", "X-Canary: 1\r\n", "canary"),
        ("/api?v=2", "", "exact"),
        ("/api/?v=2", "", "plain"),
        ("/only", "Cookie: x=y; a=b\r\n", "canary"),
    ] {
        assert_eq!(proxy.raw(get(path, lines)).await.text(), body, "{path} {lines}");
    }
    assert_eq!(proxy.status(get("/only", "Cookie: a=c\r\n")).await, 404);
    let shown = proxy.page("/api/routes").await.text();
    assert!(shown.contains("header=X-Canary:1") && shown.contains("path=exact"), "{shown}");
    proxy.set_routes(&routes.replace("X-Canary:1", "X-Canary:2"));
    until(PATIENCE, "the other canary", async || {
        (proxy.raw(get("/api", "X-Canary: 2\r\n")).await.text() == "canary").then_some(())
    })
    .await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn paths_are_rewritten_and_stay_clean() {
    let target = Origin::start("t").await;
    let routes = format!(
        "route add t /old {0} opts \"replace=/old,/pub\"\nroute add t /u {0} opts \"rewrite=^/u/([^/]*)/(.*)$,/users/$1/$2 prepend=/app\"\nroute add t /ws {0} opts \"replace=/ws,/socket\"",
        target.url()
    );
    let proxy = Start::routes(routes).start().await;
    for (asked, sent) in [
        ("/old/a%20b?x=%2f", "/pub/a%20b?x=%2f"),
        ("/old../secret", "/pub../secret"),
        ("/old/%2e%2e/%2e%2e/etc", "/etc"),
        ("/u/me/a?b", "/app/users/me/a?b"),
        ("/u/..%2f..%2fadmin/x", "404"),
        ("/u/.a/..b", "/app/users/.a/..b"),
        ("/ws", "/socket"),
    ] {
        let status = proxy.status(get(asked, "")).await;
        if status == 200 {
            assert_eq!(target.last().target(), sent, "{asked}");
        } else {
            // It is nobody's any more, once it is clean.
            assert!(status == 404 && ["/etc", "404"].contains(&sent), "{asked} {status}");
        }
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let target = Origin::start("t").await;
    let routes = format!(
        "route add t / {0}\nroute add t /small {0} opts \"maxbody=10\"\nroute add t /any {0} opts \"maxbody=0\"\n\
         route add t /again {0} opts \"maxbody=10 retry=2 retrymethods=POST\"",
        target.url()
    );
    let proxy = Start::routes(routes).property("proxy.maxbody", "100").start().await;
    let post = |path: &str, n: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {n}\r\n\r\n{}", "x".repeat(n))
    };
    let chunks = |path: &str, sizes: &[usize]| {
        let chunks: String = sizes.iter().map(|n| format!("{n:x}\r\n{}\r\n", "x".repeat(*n))).collect();
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    };
    for (request, status) in [
        (post("/small", 10), 200),
        (post("/small", 11), 413),
        (post("/", 100), 200),
        (post("/", 101), 413),
        (post("/any", 1000), 200),
        (chunks("/small", &[5, 5]), 200),
        (chunks("/small", &[5, 6]), 413),
        (chunks("/", &[50, 50]), 200),
        (chunks("/", &[50, 51]), 413),
        (chunks("/any", &[500, 500]), 200),
        // What was cut is not sent again as if it were whole.
        (chunks("/again", &[5, 5]), 200),
        (chunks("/again", &[11]), 413),
        (chunks("/again", &[6, 6]), 413),
    ] {
        let count = target.seen().len();
        assert_eq!(proxy.status(&request).await, status, "{request}");
        // A request that is cut never comes to a clean end at the target.
        assert_eq!(target.seen().len() - count, usize::from(status == 200), "{request}");
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_listener_sends_everybody_to_tls() {
    let target = Origin::start("t").await;
    let proxy = Start::routes(format!("route add t / {}", target.url()))
        .property("proxy.addr", "ADDR;redirect=https,MORE;redirect=https:8443")
        .start()
        .await;
    for (request, status, location) in [
        ("GET /a%2fb?c=d HTTP/1.1\r\nHost: A.com:80\r\n\r\n", 301, Some("https://A.com/a%2fb?c=d")),
        ("POST /x HTTP/1.1\r\nHost: a.com\r\nContent-Length: 0\r\n\r\n", 308, Some("https://a.com/x")),
        ("HEAD / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 301, Some("https://[::1]/")),
        ("GET http://b.com/x HTTP/1.1\r\nHost: a.com\r\n\r\n", 301, Some("https://b.com/x")),
        ("GET / HTTP/1.0\r\n\r\n", 400, None),
        // Its balancer speaks TLS with the client.
        ("GET / HTTP/1.1\r\nHost: a.com\r\nX-Forwarded-Proto: https\r\n\r\n", 200, None),
    ] {
        let response = proxy.raw(request).await;
        assert_eq!((response.status, response.header("location")), (status, location), "{request}");
    }
    let mut other = Client::connect(proxy.more).await;
    assert_eq!(other.get("a.com", "/").await.header("location"), Some("https://a.com:8443/"));
    assert_eq!(target.seen().len(), 1);
    proxy.ends_well().await;
}

#[tokio::test]
async fn errors_have_pages_and_options_stand_in_consul() {
    let consul = Consul::real().await;
    let target = Origin::start("t").await;
    consul.kv_put("ferrio/pages/404", "<html>nothing here</html>").await;
    consul.kv_put("ferrio/pages/5xx", "sorry").await;
    consul.kv_put("ferrio/pages/shop.example.com/503", "shop is busy").await;
    consul.kv_put("ferrio/pages/api/403.txt", "not you").await;
    consul.kv_put("ferrio/options/web", "# for people\nrespset = X-From: a b, c|X-More:d").await;
    let register = |id: &str, tags: &[&str], meta: serde_json::Value| {
        json!({ "ID": id, "Name": id, "Address": "127.0.0.1", "Port": target.port(), "Tags": tags, "Meta": meta,
            "Check": { "TTL": "1h", "Status": "passing" } })
    };
    consul
        .register(register("off", &["urlprefix-shop.example.com/ weight=0", "urlprefix-/off weight=0"], json!({})))
        .await;
    consul.register(register("api", &["urlprefix-/api deny=ip:127.0.0.0/8 errorpages=api"], json!({}))).await;
    consul
        .register(register(
            "web",
            &["urlprefix-/web options=web", "urlprefix-/missing options=missing", "urlprefix-/own strip=/own"],
            json!({ "ferrio-reqset": "X-Meta: one two", "ferrio-strip": "/web", "version": "1" }),
        ))
        .await;
    let proxy = Start::consul(&consul)
        .property("registry.consul.errorpagespath", "/ferrio/pages")
        .property("registry.consul.optionspath", "/ferrio/options")
        .start()
        .await;
    proxy.serves("h", "/web/x", "t").await;
    proxy.serves("h", "/own/x", "t").await;
    let web = proxy.get("h", "/web/x").await;
    assert_eq!((web.header("x-from").map(str::trim), web.header("x-more")), (Some("a b, c"), Some("d")));
    let seen = target.last();
    assert_eq!((seen.target(), seen.header("x-meta").map(str::trim)), ("/x", Some("one two")));

    until(PATIENCE, "pages", async || {
        (proxy.get("h", "/nothing").await.text() == "<html>nothing here</html>").then_some(())
    })
    .await;
    for (host, path, status, body) in [
        ("h", "/nothing", 404, "<html>nothing here</html>"),
        ("h", "/missing", 404, "<html>nothing here</html>"),
        ("h", "/off", 503, "sorry"),
        ("shop.example.com", "/", 503, "shop is busy"),
        ("h", "/api", 403, "not you"),
    ] {
        let response = proxy.get(host, path).await;
        assert_eq!((response.status, response.text().as_str()), (status, body), "{host}{path}");
        let kind = if body.starts_with('<') { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
        assert_eq!(response.header("content-type"), Some(kind), "{host}{path}");
        let head = proxy.raw(format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let length = body.len().to_string();
        assert_eq!((head.status, head.header("content-length")), (status, Some(length.as_str())), "{host}{path}");
    }
    let grpc =
        proxy.raw("POST /off HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(grpc.text(), "");

    // All of it is watched.
    consul.kv_put("ferrio/options/missing", "strip=/missing").await;
    proxy.serves("h", "/missing/x", "t").await;
    assert_eq!(target.last().target(), "/x");
    consul.kv_put("ferrio/options/missing", "no option at all").await;
    proxy.answers("h", "/missing/x", 404).await;
    consul.kv_delete("ferrio/pages/shop.example.com").await;
    until(PATIENCE, "the page for everybody", async || {
        (proxy.get("shop.example.com", "/").await.text() == "sorry").then_some(())
    })
    .await;
    consul
        .register(register(
            "web",
            &["urlprefix-/web options=web"],
            json!({ "ferrio-strip": "/web", "ferrio-prepend": "/new" }),
        ))
        .await;
    until(PATIENCE, "metadata alone changes", async || {
        proxy.get("h", "/web/x").await;
        (target.last().target() == "/new/x").then_some(())
    })
    .await;
    proxy.ends_well().await;
}

#[tokio::test]
async fn time_that_is_over_is_no_client_that_went_away() {
    let target = Origin::start("t").await;
    target.always(origin::hang());
    let proxy = Start::routes(format!("route add t / {}", target.url()))
        .property("proxy.addr", "ADDR;wt=200ms")
        .property("log.access.target", "stderr")
        .property("log.access.format", "json")
        .start()
        .await;
    let mut client = proxy.client().await;
    client.send(get("/", "")).await;
    client.closed().await;
    until(PATIENCE, "a line with 504", async || {
        let log = proxy.ferrio.stderr();
        (log.contains("504") && log.contains("write_timeout")).then_some(())
    })
    .await;
}
