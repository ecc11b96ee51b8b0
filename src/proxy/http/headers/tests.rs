#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::net::TlsInfo;
use crate::proxy::Sts;
use crate::route::Strategy;

fn config() -> Config {
    Config {
        strategy: Strategy::Random,
        no_route_status: 404,
        local_ip: String::new(),
        client_ip_header: String::new(),
        tls_header: String::new(),
        tls_header_value: String::new(),
        request_id_header: String::new(),
        sts: Sts::default(),
        trusted: None,
        strip_port: false,
        max_headers: 512,
        max_header_size: 256 * 1024,
        max_target_size: 64 * 1024,
        grpc_max_received: 4 << 20,
        grpc_max_sent: 4 << 20,
        retry_budget: 20,
        retry_buffer: 64 * 1024,
        max_body: 0,
        farewell: Default::default(),
        websocket_idle_timeout: std::time::Duration::ZERO,
        compression: None,
        flush_interval: std::time::Duration::ZERO,
        global_flush_interval: std::time::Duration::ZERO,
    }
}

fn peer(tls: Option<(u16, u16)>) -> Peer {
    Peer {
        remote: "1.2.3.4:5555".parse().unwrap(),
        local: "127.0.0.1:80".parse().unwrap(),
        tls: tls.map(|(version, cipher)| Arc::new(TlsInfo { version, cipher, server_name: None, client: None })),
    }
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn sorted(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect();
    lines.sort();
    lines
}

/// Plain connection, nothing sent, nothing configured.
const PLAIN: [(&str, &str); 5] = [
    ("forwarded", "for=1.2.3.4; proto=http; httpproto=http/1.1"),
    ("x-forwarded-for", "1.2.3.4"),
    ("x-forwarded-port", "80"),
    ("x-forwarded-proto", "http"),
    ("x-real-ip", "1.2.3.4"),
];
/// TLS 1.2 with 0xc02b.
const TLS: [(&str, &str); 5] = [
    ("forwarded", "for=1.2.3.4; proto=https; httpproto=http/1.1; tlsver=tls12; tlscipher=0xc02b"),
    ("x-forwarded-for", "1.2.3.4"),
    ("x-forwarded-port", "443"),
    ("x-forwarded-proto", "https"),
    ("x-real-ip", "1.2.3.4"),
];

struct Case {
    name: &'static str,
    tls: Option<(u16, u16)>,
    host: &'static str,
    strip: Option<&'static str>,
    set: fn(&mut Config),
    sent: &'static [(&'static str, &'static str)],
    base: &'static [(&'static str, &'static str)],
    /// Replaces or adds to the base.
    expected: &'static [(&'static str, &'static str)],
}

const CASE: Case =
    Case { name: "", tls: None, host: "", strip: None, set: |_| {}, sent: &[], base: &PLAIN, expected: &[] };

#[test]
fn who_the_client_is() {
    let https = Some((0x0303, 0xc02b));
    let cases = [
        Case { name: "plain", ..CASE },
        Case { name: "tls", tls: https, base: &TLS, ..CASE },
        Case { name: "strip", strip: Some("/foo"), expected: &[("x-forwarded-prefix", "/foo")], ..CASE },
        Case {
            name: "strip replaces the client's prefix",
            strip: Some("/foo"),
            sent: &[("x-forwarded-prefix", "/evil")],
            expected: &[("x-forwarded-prefix", "/foo")],
            ..CASE
        },
        Case {
            name: "websocket, in any spelling",
            sent: &[("upgrade", "WebSocket")],
            expected: &[("upgrade", "WebSocket"), ("forwarded", "for=1.2.3.4; proto=ws; httpproto=http/1.1")],
            ..CASE
        },
        Case {
            name: "websocket over tls",
            tls: https,
            base: &TLS,
            sent: &[("upgrade", "websocket")],
            expected: &[
                ("upgrade", "websocket"),
                ("forwarded", "for=1.2.3.4; proto=wss; httpproto=http/1.1; tlsver=tls12; tlscipher=0xc02b"),
            ],
            ..CASE
        },
        Case {
            name: "client ip header",
            set: |c| c.client_ip_header = "Client-IP".into(),
            sent: &[("client-ip", "6.6.6.6")],
            expected: &[("client-ip", "1.2.3.4")],
            ..CASE
        },
        Case {
            name: "client ip header that is X-Forwarded-For neither doubles nor loses anything",
            set: |c| c.client_ip_header = "X-Forwarded-For".into(),
            sent: &[("x-forwarded-for", "9.9.9.9")],
            expected: &[("x-forwarded-for", "9.9.9.9, 1.2.3.4")],
            ..CASE
        },
        Case {
            name: "local ip",
            set: |c| c.local_ip = "5.6.7.8".into(),
            expected: &[("forwarded", "for=1.2.3.4; proto=http; by=5.6.7.8; httpproto=http/1.1")],
            ..CASE
        },
        Case {
            name: "tls 1.0 as a number",
            tls: Some((0x0301, 0xc023)),
            base: &TLS,
            expected: &[("forwarded", "for=1.2.3.4; proto=https; httpproto=http/1.1; tlsver=tls10; tlscipher=0xc023")],
            ..CASE
        },
        Case {
            name: "tls 1.3",
            tls: Some((0x0304, 0x1303)),
            base: &TLS,
            expected: &[("forwarded", "for=1.2.3.4; proto=https; httpproto=http/1.1; tlsver=tls13; tlscipher=0x1303")],
            ..CASE
        },
        Case {
            name: "unknown tls version",
            tls: Some((0x0300, 1)),
            base: &TLS,
            expected: &[("forwarded", "for=1.2.3.4; proto=https; httpproto=http/1.1; tlsver=0x0300; tlscipher=0x0001")],
            ..CASE
        },
        Case {
            name: "forwarded is extended",
            set: |c| c.local_ip = "5.6.7.8".into(),
            sent: &[("forwarded", "for=9.9.9.9; proto=http; by=8.8.8.8")],
            expected: &[("forwarded", "for=9.9.9.9; proto=http; by=8.8.8.8; by=5.6.7.8; httpproto=http/1.1")],
            ..CASE
        },
        Case {
            name: "tls header with an empty value",
            tls: https,
            base: &TLS,
            set: |c| c.tls_header = "Secure".into(),
            expected: &[("secure", "")],
            ..CASE
        },
        Case {
            name: "tls header replaces the client's",
            tls: https,
            base: &TLS,
            set: |c| {
                c.tls_header = "Secure".into();
                c.tls_header_value = "true".into();
            },
            sent: &[("secure", "on"), ("secure", "off")],
            expected: &[("secure", "true")],
            ..CASE
        },
        Case {
            name: "tls header is removed from plain requests",
            set: |c| {
                c.tls_header = "Secure".into();
                c.tls_header_value = "true".into();
            },
            sent: &[("secure", "on")],
            ..CASE
        },
        Case {
            name: "scheme from x-forwarded-proto",
            sent: &[("x-forwarded-proto", "some value")],
            expected: &[
                ("x-forwarded-proto", "some value"),
                ("forwarded", "for=1.2.3.4; proto=some value; httpproto=http/1.1"),
            ],
            ..CASE
        },
        Case {
            name: "scheme from forwarded",
            sent: &[("forwarded", "for=1.2.3.4; proto=some value")],
            expected: &[
                ("x-forwarded-proto", "some value"),
                ("forwarded", "for=1.2.3.4; proto=some value; httpproto=http/1.1"),
            ],
            ..CASE
        },
        Case {
            name: "httpproto is not proto",
            sent: &[("forwarded", "for=1.2.3.4; httpproto=http/2.0; proto=https")],
            expected: &[
                ("x-forwarded-proto", "https"),
                ("forwarded", "for=1.2.3.4; httpproto=http/2.0; proto=https; httpproto=http/1.1"),
            ],
            ..CASE
        },
        Case {
            name: "both given: neither is changed",
            sent: &[("forwarded", "for=1.2.3.4; proto=some value"), ("x-forwarded-proto", "other value")],
            expected: &[
                ("x-forwarded-proto", "other value"),
                ("forwarded", "for=1.2.3.4; proto=some value; httpproto=http/1.1"),
            ],
            ..CASE
        },
        Case {
            name: "host with a port",
            host: "5.6.7.8:1234",
            expected: &[("x-forwarded-port", "1234"), ("x-forwarded-host", "5.6.7.8:1234")],
            ..CASE
        },
        Case {
            name: "port and host of the client are kept",
            host: "5.6.7.8:1234",
            sent: &[("x-forwarded-port", "4444"), ("x-forwarded-host", "9.10.11.12:1")],
            expected: &[("x-forwarded-port", "4444"), ("x-forwarded-host", "9.10.11.12:1")],
            ..CASE
        },
        Case {
            name: "real ip of the client is kept",
            sent: &[("x-real-ip", "6.6.6.6")],
            expected: &[("x-real-ip", "6.6.6.6")],
            ..CASE
        },
        Case {
            name: "several lines are folded",
            sent: &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "192.0.2.2")],
            expected: &[("x-forwarded-for", "192.0.2.1, 192.0.2.2, 1.2.3.4")],
            ..CASE
        },
    ];
    for case in &cases {
        let mut config = config();
        (case.set)(&mut config);
        let mut headers = map(case.sent);
        let peer = peer(case.tls);
        let (present, told) = (Present::of(&headers), Told::default());
        let facts = Facts { peer: &peer, host: case.host, version: Version::HTTP_11, present, told: &told };
        Rules::new(&config).introduce(&mut headers, &facts);
        if let Some(strip) = case.strip {
            tell_prefix(&mut headers, strip);
        }
        let mut expected = map(case.base);
        for (name, value) in case.expected {
            expected.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(sorted(&headers), sorted(&expected), "{}", case.name);
    }
    assert_eq!(cases.len(), 24);
}

#[test]
fn what_one_request_says_is_not_said_of_the_next() {
    let (rules, peer, told) = (Rules::new(&config()), peer(None), Told::default());
    for (sent, version, expected) in [
        (&[("x-forwarded-proto", "https")][..], Version::HTTP_11, "for=1.2.3.4; proto=https; httpproto=http/1.1"),
        (&[], Version::HTTP_11, "for=1.2.3.4; proto=http; httpproto=http/1.1"),
        (&[("forwarded", "for=9.9.9.9")], Version::HTTP_11, "for=9.9.9.9; httpproto=http/1.1"),
        (&[("upgrade", "websocket")], Version::HTTP_11, "for=1.2.3.4; proto=ws; httpproto=http/1.1"),
        (&[], Version::HTTP_10, "for=1.2.3.4; proto=http; httpproto=http/1.0"),
        (&[], Version::HTTP_11, "for=1.2.3.4; proto=http; httpproto=http/1.1"),
    ] {
        let mut headers = map(sent);
        let present = Present::of(&headers);
        rules.introduce(&mut headers, &Facts { peer: &peer, host: "a", version, present, told: &told });
        assert_eq!(headers[FORWARDED], expected, "{sent:?}");
    }
}

#[test]
fn ports() {
    for (host, tls, expected) in [
        ("", false, "80"),
        (":", false, "80"),
        ("1.2.3.4:5678", false, "5678"),
        ("1.2.3.4", false, "80"),
        ("1.2.3.4", true, "443"),
        ("1.2.3.4:", false, "80"),
        ("1.2.3.4:", true, "443"),
        ("[::1]:8080", false, "8080"),
        ("[2001:db8::1]", false, "80"),
        ("[2001:db8::1]", true, "443"),
    ] {
        assert_eq!(port(host, tls), expected, "{host}");
    }
}

#[test]
fn connection_removes_what_it_names_but_not_what_we_rely_on() {
    let mut config = config();
    config.request_id_header = "X-Request-ID".into();
    let mut headers = map(&[
        ("connection", "keep-alive, x-forwarded-for, legit, X-Request-Id"),
        ("connection", "content-length,host , te"),
        ("legit", "1"),
        ("x-forwarded-for", "3.3.3.3"),
        ("x-request-id", "me"),
        ("content-length", "5"),
        ("host", "a"),
        ("te", "gzip, trailers"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("trailer", "x-sum"),
        ("other", "2"),
    ]);
    let present = Present::of(&headers);
    Rules::new(&config).remove_hop_by_hop(&mut headers, present);
    let left =
        ["content-length: 5", "host: a", "other: 2", "trailer: x-sum", "x-forwarded-for: 3.3.3.3", "x-request-id: me"];
    assert_eq!(sorted(&headers), left);
}

#[test]
fn trailers_are_taken_or_not() {
    for (te, expected) in [("trailers", Some("trailers")), ("gzip, Trailers", Some("trailers")), ("gzip", None)] {
        let mut headers = map(&[("te", te)]);
        let present = Present::of(&headers);
        Rules::new(&config()).remove_hop_by_hop(&mut headers, present);
        assert_eq!(headers.get(TE).map(|value| value.to_str().unwrap()), expected, "{te}");
    }
}

#[test]
fn strict_transport_security_on_tls_only() {
    for (tls, sts, expected) in [
        (true, Sts { max_age: 31_536_000, subdomains: false, preload: false }, Some("max-age=31536000")),
        (
            true,
            Sts { max_age: 31_536_000, subdomains: true, preload: true },
            Some("max-age=31536000; includeSubdomains; preload"),
        ),
        (true, Sts { max_age: 0, subdomains: true, preload: true }, None),
        (false, Sts { max_age: 31_536_000, subdomains: false, preload: false }, None),
    ] {
        let mut config = config();
        config.sts = sts;
        let mut headers = HeaderMap::new();
        Rules::new(&config).secure_transport(&mut headers, &peer(tls.then_some((0x0304, 0x1301))));
        let got = headers.get(STRICT_TRANSPORT_SECURITY).map(|value| value.to_str().unwrap());
        assert_eq!(got, expected);
    }
}

#[test]
fn only_trusted_networks_may_speak_for_others() {
    let lines: &[(&str, &str)] = &[
        ("x-forwarded-for", "9.9.9.9"),
        ("x-real-ip", "9.9.9.9"),
        ("forwarded", "for=9.9.9.9"),
        ("x-forwarded-proto", "https"),
        ("other", "1"),
    ];
    for (trusted, kept) in
        [(None, 5), (Some("1.2.3.0/24"), 5), (Some("10.0.0.0/8"), 1), (Some("::ffff:1.2.3.4/128"), 1)]
    {
        let mut config = config();
        config.trusted = trusted.map(|network| vec![network.parse().unwrap()]);
        let mut headers = map(lines);
        Rules::new(&config).distrust(&mut headers, &peer(None));
        assert_eq!(headers.len(), kept, "{trusted:?}");
    }
}

#[test]
fn who_asks_for_an_upgrade() {
    for (connection, protocol, asked) in [
        ("Upgrade", "websocket", true),
        ("keep-alive, upgrade", "WebSocket", true),
        ("Upgrade", "echo/1", true),
        ("keep-alive", "websocket", true),
        ("keep-alive", "echo/1", false),
        ("Upgrade", "", false),
        ("Upgrade, HTTP2-Settings", "h2c", false),
        ("Upgrade", "websocket, h2c", false),
    ] {
        let headers = map(&[("connection", connection), ("upgrade", protocol)]);
        assert_eq!(upgrade(&headers, Version::HTTP_11, &Method::GET).is_some(), asked, "{connection}; {protocol}");
    }
    let headers = map(&[("connection", "upgrade"), ("upgrade", "websocket")]);
    assert!(upgrade(&headers, Version::HTTP_10, &Method::GET).is_none());
}
