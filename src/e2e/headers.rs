//! What targets are told about clients, what is kept, and who is let in.

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::origin::{self, Origin};

#[tokio::test]
async fn the_tls_header_is_ours_alone() {
    let (origin, ca) = (Origin::start("o").await, Ca::new());
    let leaf = ca.leaf(&["h"]);
    let source = format!("cs=c;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display());
    let proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.cs", source)
        .property("proxy.addr", "ADDR,MORE;cs=c")
        .property("proxy.header.tls", "X-TLS")
        .property("proxy.header.tls.value", "yes")
        .start()
        .await;
    let spoofed = "GET / HTTP/1.1\r\nHost: h\r\nX-TLS: on\r\nx-tls: on\r\n\r\n";
    proxy.raw(spoofed).await;
    assert_eq!(origin.last().header("x-tls"), None);

    let mut tls = Client::connect_tls(proxy.more, "h", ca.client(&[])).await;
    tls.send(spoofed).await;
    tls.response().await;
    let seen = origin.last();
    assert_eq!(seen.header("x-tls"), Some("yes"));
    assert_eq!((seen.header("x-forwarded-proto"), seen.header("x-forwarded-port")), (Some("https"), Some("443")));
    let forwarded = seen.header("forwarded").expect("a header");
    assert!(forwarded.contains("; proto=https") && forwarded.contains("; tlsver=tls13"), "{forwarded}");
}

#[tokio::test]
async fn forwarding_headers() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add o / {}", origin.url())).property("proxy.localip", "192.0.2.99");
    let proxy = proxy.start().await;
    let client = &mut proxy.client().await;
    for (sent, name, arrives) in [
        ("Host: h", "X-Forwarded-For", "127.0.0.1"),
        (
            "Host: h\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2",
            "X-Forwarded-For",
            "192.0.2.1, 192.0.2.2, 127.0.0.1",
        ),
        // Not even by naming them in Connection can a client have them removed.
        (
            "Host: h\r\nConnection: X-Forwarded-For, close\r\nX-Forwarded-For: 192.0.2.1",
            "X-Forwarded-For",
            "192.0.2.1, 127.0.0.1",
        ),
        ("Host: h", "X-Real-Ip", "127.0.0.1"),
        ("Host: h\r\nX-Real-Ip: 192.0.2.1", "X-Real-Ip", "192.0.2.1"),
        ("Host: h:8080", "X-Forwarded-Port", "8080"),
        ("Host: h", "X-Forwarded-Port", "80"),
        ("Host: [2001:db8::1]", "X-Forwarded-Port", "80"),
        ("Host: [2001:db8::1]:8080", "X-Forwarded-Port", "8080"),
        ("Host: h:8080", "X-Forwarded-Host", "h:8080"),
        ("Host: h", "X-Forwarded-Proto", "http"),
        ("Host: h\r\nX-Forwarded-Proto: https", "X-Forwarded-Proto", "https"),
        ("Host: h", "Forwarded", "for=127.0.0.1; proto=http; by=192.0.2.99; httpproto=http/1.1"),
        (
            "Host: h\r\nX-Forwarded-Proto: https",
            "Forwarded",
            "for=127.0.0.1; proto=https; by=192.0.2.99; httpproto=http/1.1",
        ),
        ("Host: h\r\nForwarded: for=1.2.3.4; proto=https", "X-Forwarded-Proto", "https"),
        (
            "Host: h\r\nForwarded: for=1.2.3.4; proto=https",
            "Forwarded",
            "for=1.2.3.4; proto=https; by=192.0.2.99; httpproto=http/1.1",
        ),
    ] {
        client.send(format!("GET / HTTP/1.1\r\n{sent}\r\n\r\n")).await;
        client.response().await;
        assert_eq!(origin.last().header(name), Some(arrives), "{name} for {sent}");
        if sent.contains("close") {
            *client = proxy.client().await;
        }
    }
}

#[tokio::test]
async fn a_client_ip_header_that_is_x_forwarded_for_loses_nothing() {
    let origin = Origin::start("o").await;
    for (name, list) in [("X-Forwarded-For", "192.0.2.1, 127.0.0.1"), ("X-Client", "127.0.0.1")] {
        let proxy = Start::routes(format!("route add o / {}", origin.url())).property("proxy.header.clientip", name);
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: 192.0.2.1\r\n\r\n");
        proxy.start().await.raw(request).await;
        assert_eq!(origin.last().header(name), Some(list));
    }
}

#[tokio::test]
async fn the_host_that_a_target_sees() {
    let origin = Origin::start("o").await;
    let (url, addr) = (origin.url(), origin.addr().to_string());
    let routes = format!(
        "route add o /same {url}\nroute add o /name {url} opts \"host=foo.internal\"\n\
         route add o /dst {url} opts \"host=dst\"\n"
    );
    let proxy = Start::routes(routes).start().await;
    let mut client = proxy.client().await;
    for (path, host) in [("/same", "h.example.com:81"), ("/name", "foo.internal"), ("/dst", &addr)] {
        client.get("h.example.com:81", path).await;
        let seen = origin.last();
        assert_eq!((seen.header("host"), seen.header("x-forwarded-host")), (Some(host), Some("h.example.com:81")));
    }
}

#[tokio::test]
async fn host_dst_over_tls_asks_for_the_name_of_the_target() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["localhost"]);
    let origin = Origin::start_tls("secure", ca.server(&leaf, &["http/1.1"])).await;
    let routes =
        format!("route add o / https://localhost:{}/ opts \"proto=https host=dst tlsskipverify=true\"", origin.port());
    let proxy = Start::routes(routes).start().await;
    assert_eq!(proxy.get("h", "/").await.text(), "secure");
    assert_eq!(origin.last().header("host"), Some(format!("localhost:{}", origin.port()).as_str()));
}

#[tokio::test]
async fn names_and_values_stay_as_they_came() {
    let origin = Origin::start("o").await;
    let cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("x-oDD-name", "")];
    origin.always(origin::reply(200, &cookies, "o"));
    let proxy = Start::routes(format!("route add o / {}", origin.url())).start().await;
    let cookie = format!("c={}", "x".repeat(30_000));
    let response =
        proxy.raw(format!("GET / HTTP/1.1\r\nHost: h\r\nx-aBc-ID: 1\r\nX-Empty:\r\nCookie: {cookie}\r\n\r\n")).await;
    let names: Vec<String> = origin.last().head.fields.into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name == "x-aBc-ID"), "{names:?}");
    assert_eq!(origin.last().header("x-empty"), Some(""));
    assert_eq!(origin.last().header("cookie"), Some(cookie.as_str()));
    assert_eq!(response.head.all("set-cookie"), ["a=1", "b=2"]);
    assert!(response.head.fields.contains(&("x-oDD-name".to_owned(), String::new())), "{:?}", response.head);
}

#[tokio::test]
async fn nothing_is_added_that_was_not_there() {
    let origin = Origin::start("o").await;
    origin.always(origin::reply(200, &[("Date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("Server", "x")], "o"));
    let proxy = Start::routes(format!("route add o / {}", origin.url())).start().await;
    let response = proxy.get("h", "/").await;
    let mut names: Vec<String> = origin.last().head.fields.iter().map(|(name, _)| name.to_lowercase()).collect();
    names.sort();
    let ours = ["forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto"];
    assert_eq!(names, [&ours[..], &["x-real-ip"]].concat());
    let mut fields: Vec<_> = response.head.fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    fields.sort_unstable();
    let expected = [("Content-Length", "1"), ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("Server", "x")];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn access_rules_look_at_the_peer_and_at_everybody_before_it() {
    let origin = Origin::start("o").await;
    let url = origin.url();
    let routes = format!(
        "route add o /a {url} opts \"allow=ip:127.0.1.0/24,ip:10.0.0.0/8,ip:2001:db8::/32\"\n\
         route add o /d {url} opts \"deny=ip:127.0.2.0/24,ip:192.0.2.0/24\"\n\
         route add o /bogus {url} opts \"allow=ip:bogus\"\n\
         route add o /both {url} opts \"allow=ip:127.0.0.0/8 deny=ip:127.0.2.1\"\n"
    );
    let proxy = Start::routes(routes).start().await;
    for (peer, target, forwarded, status) in [
        ("127.0.1.1", "/a", "", 200),
        ("127.0.2.1", "/a", "", 403),
        ("127.0.1.1", "/a", "X-Forwarded-For: 10.1.1.1\r\n", 200),
        ("127.0.1.1", "/a", "X-Forwarded-For: ::ffff:10.1.1.1\r\n", 200),
        ("127.0.1.1", "/a", "X-Forwarded-For: 2001:db8::1, 10.0.0.1\r\n", 200),
        ("127.0.1.1", "/a", "X-Forwarded-For: 192.0.2.1\r\n", 403),
        ("127.0.1.1", "/a", "X-Forwarded-For: 10.0.0.1, 192.0.2.1\r\n", 403),
        ("127.0.1.1", "/a", "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n", 403),
        ("127.0.2.1", "/a", "X-Forwarded-For: 10.0.0.1\r\n", 403),
        ("127.0.1.1", "/d", "", 200),
        ("127.0.2.1", "/d", "", 403),
        ("127.0.1.1", "/d", "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n", 403),
        ("127.0.1.1", "/bogus", "", 403),
        // A rule that cannot be read lets nobody in; nor do two that contradict each other.
        ("127.0.1.1", "/both", "", 403),
    ] {
        let mut client = Client::connect_from(peer, proxy.addr).await;
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{forwarded}\r\n")).await;
        assert_eq!(client.response().await.status, status, "{peer} {target} {forwarded}");
    }
    let rejects = proxy.page("/api/rejects").await.text();
    assert!(rejects.contains("bogus"), "{rejects}");
}

#[tokio::test]
async fn markup_in_a_route_is_text_in_the_pages() {
    let proxy = Start::routes("route add x /<script>alert(1)</script> http://127.0.0.1:1/").start().await;
    for page in ["/routes", "/api/routes"] {
        let response = proxy.page(page).await;
        assert_eq!(response.status, 200, "{page}");
        assert!(!response.text().contains("<script>alert"), "{page}: {}", response.text());
    }
    let policy = proxy.page("/routes").await;
    assert!(policy.header("content-security-policy").is_some_and(|policy| policy.contains("default-src")));
}

#[tokio::test]
async fn nobody_writes_where_only_reading_is_allowed() {
    let status = async |access: &str, request: &str| {
        let proxy = Start::routes("").property("ui.access", access).start().await;
        let admin = Proxy { addr: proxy.admin, ..proxy };
        admin.status(request).await
    };
    let put = "PUT /api/manual/ HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(status("ro", put).await, 403);
    assert!(matches!(status("no", put).await, 403 | 404));
    let foreign =
        "PUT /api/manual/ HTTP/1.1\r\nHost: h\r\nOrigin: http://evil.example.com\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(status("rw", foreign).await, 403);
}

#[tokio::test]
async fn a_route_that_asks_for_an_unknown_scheme_is_closed() {
    let origin = Origin::start("o").await;
    let proxy = Start::routes(format!("route add o / {} opts \"auth=unknown\"", origin.url())).start().await;
    let status = proxy.get("h", "/").await.status;
    // Refused, or not served at all.
    assert!(matches!(status, 401 | 404), "{status}");
    assert_eq!(origin.accepted(), 0);
}
