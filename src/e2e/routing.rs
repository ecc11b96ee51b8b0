//! Which target a request reaches, with which path; and redirects. Routes come from a file.

use crate::proxy::Start;
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::origin::{self, Origin};
use crate::testing::until;
use crate::testing::wire::Head;

#[tokio::test]
async fn plain_http_is_redirected_and_https_is_served() {
    let web = Origin::start("web").await;
    let (ca, url) = (Ca::new(), web.url());
    let leaf = ca.leaf(&["app.example.com"]);
    let routes = format!(
        "route add web app.example.com:80/ https://app.example.com$path opts \"redirect=301\"\n\
         route add web app.example.com/ {url}\n"
    );
    let source = format!("cs=c;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display());
    let proxy = Start::routes(routes).property("proxy.cs", source).property("proxy.addr", "ADDR,MORE;cs=c");
    let proxy = proxy.start().await;

    let plain = proxy.get("app.example.com", "/a").await;
    assert_eq!((plain.status, plain.header("location")), (301, Some("https://app.example.com/a")));
    let mut tls = Client::connect_tls(proxy.more, "app.example.com", ca.client(&[])).await;
    assert_eq!(tls.get("app.example.com", "/a").await.text(), "web");
}

#[tokio::test]
async fn a_host_with_a_port_falls_back_to_the_host_when_that_is_wanted() {
    let (bare, ported) = (Origin::start("bare").await, Origin::start("ported").await);
    let routes = format!("route add a app.example.com/ {}\n", bare.url());
    let both = format!("{routes}route add b app.example.com:9999/ {}\n", ported.url());
    for (setting, routes, expected) in [
        ("exact", &routes, (404, "")),
        ("strip", &routes, (200, "bare")),
        ("exact", &both, (200, "ported")),
        ("strip", &both, (200, "ported")),
    ] {
        let proxy = Start::routes(routes).property("proxy.matchhostport", setting).start().await;
        let response = proxy.get("app.example.com:9999", "/").await;
        assert_eq!((response.status, response.text().as_str()), expected, "{setting}: {routes}");
    }
}

#[tokio::test]
async fn the_target_uri_wins_over_host() {
    let a = Origin::start("a").await;
    let proxy = Start::routes(format!("route add a a.example.com/x {}", a.url())).start().await;
    let response = proxy.raw("GET http://a.example.com/x?q=1 HTTP/1.1\r\nHost: b.example.com\r\n\r\n").await;
    assert_eq!(response.text(), "a");
    let seen = a.last();
    assert_eq!((seen.target(), seen.header("host")), ("/x?q=1", Some("a.example.com")));
}

#[tokio::test]
async fn http_requests_never_go_to_tcp_targets() {
    let (web, tcp) = (Origin::start("web").await, Origin::start("tcp").await);
    let routes = format!("route add w h.example.com/ {}\nroute add t h.example.com/ tcp://{}\n", web.url(), tcp.addr());
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for _ in 0..100 {
        assert_eq!(client.get("h.example.com", "/").await.text(), "web");
    }
    assert_eq!(tcp.accepted(), 0);
}

#[tokio::test]
async fn escapes_go_on_as_they_came_and_detours_are_resolved() {
    let origin = Origin::start("o").await;
    let url = origin.url();
    let routes = format!(
        "route add d /my%20docs {url}\nroute add o /a {url}\nroute add s /strip {url} opts \"strip=/strip\"\n\
         route add p /pre {url} opts \"prepend=/x%2Fy\"\n"
    );
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for (sent, arrives) in [
        ("/my%20docs/a", "/my%20docs/a"),
        ("/a/%E4%BD%A0", "/a/%E4%BD%A0"),
        ("/a/%e4%bd%a0", "/a/%e4%bd%a0"),
        ("/a;x=1", "/a;x=1"),
        ("/a?", "/a?"),
        ("/a?x=1&x=2;%zz&&", "/a?x=1&x=2;%zz&&"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%252Fb", "/a%252Fb"),
        ("/a//b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/strip/a%2Fb%20c", "/a%2Fb%20c"),
        ("/pre/it's", "/x%2Fy/pre/it's"),
    ] {
        let response = client.get("h", sent).await;
        assert_eq!((response.status, origin.last().target()), (200, arrives), "{sent}");
    }
    for refused in ["/a?x=a b", "/a b"] {
        assert_eq!(proxy.status(format!("GET {refused} HTTP/1.1\r\nHost: h\r\n\r\n")).await, 400, "{refused}");
    }
}

#[tokio::test]
async fn strip_leaves_a_path_and_tells_the_prefix() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add o /foo {} opts \"strip=/foo\"", origin.url())).start().await;
    let mut client = proxy.client().await;
    for (sent, arrives) in
        [("/foo", "/"), ("/foo/", "/"), ("/foo?x=1", "/?x=1"), ("/foobar", "/bar"), ("/foo/x/", "/x/")]
    {
        client.send(format!("GET {sent} HTTP/1.1\r\nHost: h\r\nX-Forwarded-Prefix: /mine\r\n\r\n")).await;
        assert_eq!(client.response().await.status, 200);
        let seen = origin.last();
        assert_eq!((seen.target(), seen.header("x-forwarded-prefix")), (arrives, Some("/foo")), "{sent}");
    }
}

#[tokio::test]
async fn strip_holds_for_websockets() {
    let origin = Origin::start("o").await;
    origin.always(origin::websocket());
    let proxy = Start::routes(format!("route add o /ws {} opts \"strip=/ws\"", origin.url())).start().await;
    let mut client = proxy.client().await;
    client.send("GET /ws/chat?room=1 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    assert_eq!(origin.last().target(), "/chat?room=1");
}

#[tokio::test]
async fn redirects() {
    let app = Origin::start("app").await;
    let routes = format!(
        "route add a /old https://new.example.com$path opts \"strip=/old redirect=302\"\n\
         route add a /comma https://x.example.com/?a=1,2 opts \"redirect=301\"\n\
         route add a :80/everything https://$host$path opts \"redirect=301\"\n\
         route add a h.example.com/ https://h.example.com$path opts \"redirect=301\"\n\
         route add a / {}\n",
        app.url()
    );
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for (host, target, status, location) in [
        ("h", "/old/a?b=c", 302, Some("https://new.example.com/a?b=c")),
        ("h", "/comma", 301, Some("https://x.example.com/?a=1,2")),
        ("any.example.com", "/everything/x", 301, Some("https://any.example.com/everything/x")),
        ("h.example.com", "/a", 301, Some("https://h.example.com/a")),
        ("h", "/a", 200, None),
    ] {
        let response = client.get(host, target).await;
        assert_eq!((response.status, response.header("location")), (status, location), "{host}{target}");
    }
    // Behind a balancer that ends TLS the redirect would lead to itself: the next route serves.
    client.send("GET /a HTTP/1.1\r\nHost: h.example.com\r\nX-Forwarded-Proto: https\r\n\r\n").await;
    assert_eq!(client.response().await.text(), "app");
}

#[tokio::test]
async fn a_redirect_to_itself_without_another_route_is_no_route() {
    let routes = "route add a / https://h.example.com opts \"redirect=301\"";
    let proxy = Start::routes(routes).start().await;
    let request = "GET / HTTP/1.1\r\nHost: h.example.com\r\nX-Forwarded-Proto: https\r\n\r\n";
    assert_eq!(proxy.status(request).await, 404);
}

#[tokio::test]
async fn a_faulty_redirect_serves_nothing_and_is_shown() {
    let app = Origin::start("app").await;
    let url = app.url();
    let routes = format!(
        "route add a /bad {url} opts \"redirect=999\"\nroute add a /worse {url} opts \"redirect=abc\"\n\
         route add a /good {url}\n"
    );
    let proxy = Start::routes(routes).start().await;
    for (target, status) in [("/bad", 404), ("/worse", 404), ("/good", 200)] {
        assert_eq!(proxy.get("h", target).await.status, status, "{target}");
    }
    let rejects = proxy.page("/api/rejects").await.text();
    assert!(rejects.contains("/bad") && rejects.contains("/worse"), "{rejects}");
}

#[tokio::test]
async fn concurrent_redirects_do_not_mix() {
    let proxy = Start::routes("route add a / https://$host$path opts \"redirect=302\"").start().await;
    let clients = (0..32).map(async |number| {
        let mut client = proxy.client().await;
        for turn in 0..50 {
            let response = client.get(&format!("h{number}"), &format!("/{number}/{turn}")).await;
            let expected = format!("https://h{number}/{number}/{turn}");
            assert_eq!(response.header("location"), Some(expected.as_str()));
        }
    });
    all(clients).await;
}

#[tokio::test]
async fn options_follow_the_chosen_instance() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let routes = format!(
        "route add w /x {} opts \"host=a.internal\"\nroute add w /x {} opts \"host=b.internal strip=/x\"\n",
        a.url(),
        b.url()
    );
    let proxy = Start::routes(routes).property("proxy.strategy", "rr").start().await;
    let mut client = proxy.client().await;
    for _ in 0..10 {
        client.get("h", "/x/y").await;
    }
    for (origin, expected) in [(&a, ("/x/y", Some("a.internal"))), (&b, ("/y", Some("b.internal")))] {
        let seen = origin.seen();
        assert_eq!(seen.len(), 5);
        assert!(seen.iter().all(|seen| (seen.target(), seen.header("host")) == expected), "{expected:?}");
    }
}

#[tokio::test]
async fn two_services_share_a_prefix() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let routes = format!("route add a /x {}\nroute add b /x {}\n", a.url(), b.url());
    let proxy = Start::routes(routes).property("proxy.strategy", "rr").start().await;
    let mut client = proxy.client().await;
    for _ in 0..10 {
        client.get("h", "/x").await;
    }
    assert_eq!((a.seen().len(), b.seen().len()), (5, 5));
}

#[tokio::test]
async fn a_route_whose_targets_all_have_weight_0_is_unavailable() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let routes = format!("route add a /x {} weight 0\nroute add b / {}\n", a.url(), b.url());
    let proxy = Start::routes(routes).start().await;
    assert_eq!(proxy.get("h", "/x").await.status, 503);
    assert_eq!(proxy.get("h", "/y").await.text(), "b");
    assert_eq!((a.seen().len(), b.seen().len()), (0, 1));
}

#[tokio::test]
async fn there_is_no_way_around_a_rule() {
    let (open, closed) = (Origin::start("open").await, Origin::start("closed").await);
    let routes = format!(
        "route add o /public {}\nroute add c /admin {} opts \"deny=ip:127.0.0.0/8\"\n",
        open.url(),
        closed.url()
    );
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for target in [
        "/admin",
        "//admin",
        "/./admin",
        "/%61dmin",
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/public/..%2fadmin",
        "/public%2f..%2fadmin",
        "/public/.%2e/admin",
        "/public/x/../../admin/y",
        "/public//..//admin",
    ] {
        let response = client.get("h", target).await;
        assert!(matches!(response.status, 400 | 403), "{target}: {}", response.status);
    }
    for (sent, arrives) in [("/public/a%2Fb", "/public/a%2Fb"), ("/public/a%252Fb", "/public/a%252Fb")] {
        assert_eq!(client.get("h", sent).await.status, 200);
        assert_eq!(open.last().target(), arrives);
    }
    // What the open service gets is what was checked: no dot segments are left for it to resolve.
    assert!(open.seen().iter().all(|seen| !seen.target().contains("..")));
    assert_eq!(closed.seen().len(), 0);
}

#[tokio::test]
async fn a_target_with_an_ipv6_address_is_reached_and_one_with_a_zone_harms_nobody() {
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        return; // A machine without IPv6.
    };
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let (sent, seen) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.expect("a connection");
        let mut wire = crate::testing::wire::Wire::new(crate::testing::wire::Stream::Plain(tcp));
        let head = wire.head().await.expect("a request").expect("a request");
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nv6").await.expect("the proxy reads");
        let _ = sent.send(head);
    });
    let routes = format!(
        "route add a / http://[::1]:{port}/\nroute add z /zone http://[fe80::1%25nowhere0]:80/\n\
         route add z /zone2 http://[fe80::1%nowhere0]:80/\n"
    );
    let proxy = Start::routes(routes).property("proxy.dialtimeout", "1s").start().await;
    for target in ["/zone", "/zone2"] {
        let status = proxy.get("h", target).await.status;
        assert!(matches!(status, 502 | 504), "{target}: {status}");
    }
    assert_eq!(proxy.get("h.example.com:81", "/").await.text(), "v6");
    let head: Head = seen.await.expect("a request");
    assert_eq!(head.one("host"), Some("h.example.com:81"));
    proxy.ends_well().await;
}

#[tokio::test]
async fn matchers() {
    let (root, x) = (Origin::start("root").await, Origin::start("x").await);
    let routes = format!("route add r / {}\nroute add x /Foo/*/bar {}\n", root.url(), x.url());
    for (matcher, target, expected) in [
        ("prefix", "/other", "root"),
        ("prefix", "/Foo/1/bar", "root"),
        ("prefix", "/Foo/*/bar/y", "x"),
        ("iprefix", "/fOO/*/BAR/y", "x"),
        // Globs fit whole paths: nothing but / is /.
        ("glob", "/", "root"),
        ("glob", "/other", ""),
        ("glob", "/Foo/1/bar", "x"),
        ("glob", "/Foo/1/2/bar", "x"),
        ("glob", "/Foo/1/bar/y", ""),
    ] {
        let proxy = Start::routes(&routes).property("proxy.matcher", matcher).start().await;
        let response = proxy.get("h", target).await;
        assert_eq!(
            (response.status == 404, response.text().as_str()),
            (expected.is_empty(), expected),
            "{matcher} {target}"
        );
        if !expected.is_empty() {
            let origin = if expected == "x" { &x } else { &root };
            assert_eq!(origin.last().target(), target);
        }
    }
}

#[tokio::test]
async fn hosts_without_regard_to_case_and_patterns_after_names() {
    let (exact, pattern) = (Origin::start("exact").await, Origin::start("pattern").await);
    let routes = format!(
        "route add e App.Example.COM/Path {}\nroute add p *.example.com/ {}\nroute add s *.edge.example.com/ {}\n",
        exact.url(),
        pattern.url(),
        exact.url()
    );
    for disabled in [false, true] {
        let proxy = Start::routes(&routes).property("glob.matching.disabled", disabled).start().await;
        assert_eq!(proxy.get("aPP.example.com", "/Path").await.text(), "exact");
        assert_eq!(proxy.get("app.example.com", "/path").await.text(), if disabled { "" } else { "pattern" });
        assert_eq!(proxy.get("a.edge.example.com", "/").await.text(), if disabled { "" } else { "exact" });
        assert_eq!(proxy.get("a.example.com", "/").await.text(), if disabled { "" } else { "pattern" });
    }
}

#[tokio::test]
async fn turns_go_on_over_changes_of_the_table() {
    let origins: Vec<Origin> = {
        let mut origins = Vec::new();
        for number in 0..5 {
            origins.push(Origin::start(&number.to_string()).await);
        }
        origins
    };
    let lines: String = origins.iter().map(|origin| format!("route add w /w {}\n", origin.url())).collect();
    let proxy = Start::routes(&lines).property("proxy.strategy", "rr").one_worker().start().await;
    let mut client = proxy.client().await;
    for turn in 0..4 {
        for _ in 0..12 {
            client.get("h", "/w").await;
        }
        proxy.set_routes(&format!("{lines}route add other /turn{turn} {}\n", origins[0].url()));
        proxy.serves("h", &format!("/turn{turn}"), "0").await;
    }
    for origin in &origins {
        let count = origin.seen().iter().filter(|seen| seen.target() == "/w").count();
        assert!((8..=12).contains(&count), "{count} of 48");
    }
}

#[tokio::test]
async fn a_large_table_is_built_without_a_pause_and_logged_in_a_few_lines() {
    let origin = Origin::start("o").await;
    let many: String = (0..20_000)
        .map(|n| format!("route add s{n} h{n}.example.com/p{n} http://10.0.0.1:{}/\n", 1 + n % 60_000))
        .collect();
    let text = format!("{many}route add o / {}\n", origin.url());
    let proxy = Start::routes(&text).start().await;
    proxy.serves("h", "/", "o").await;
    let said = proxy.ferrio.stderr().len();
    proxy.set_routes(&text.replacen("h7.example.com/p7 ", "h7.example.com/changed ", 1));
    let mut client = proxy.client().await;
    let begun = std::time::Instant::now();
    let mut slowest = std::time::Duration::ZERO;
    until(crate::testing::PATIENCE, "the change in the log", async || {
        let asked = std::time::Instant::now();
        assert_eq!(client.get("h", "/").await.text(), "o");
        slowest = slowest.max(asked.elapsed());
        proxy.ferrio.stderr()[said..].contains("h7.example.com/changed").then_some(())
    })
    .await;
    assert!(slowest < std::time::Duration::from_secs(1), "a request waited {slowest:?} of {:?}", begun.elapsed());
    let lines = proxy.ferrio.stderr()[said..].lines().count();
    assert!(lines < 6, "{lines} lines:\n{}", &proxy.ferrio.stderr()[said..]);
}

#[tokio::test]
async fn changes_are_not_logged_when_nobody_wants_it() {
    let origin = Origin::start("o").await;
    let line = |path: &str| format!("route add o {path} {}\n", origin.url());
    let proxy = Start::routes(line("/a")).property("log.routes.format", "none").start().await;
    proxy.set_routes(&line("/b"));
    proxy.serves("h", "/b", "o").await;
    assert!(!proxy.ferrio.stderr().contains("route add"), "{}", proxy.ferrio.stderr());
}

/// Runs them side by side.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), false)).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in &mut futures {
            *done = *done || future.as_mut().poll(cx).is_ready();
        }
        if futures.iter().all(|(_, done)| *done) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
