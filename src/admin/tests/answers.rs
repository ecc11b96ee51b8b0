//! What the API gives, to the letter.

use super::*;

#[tokio::test]
async fn version_is_text() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/version").await;
    assert_eq!((reply.body.as_str(), reply.header("content-type")), ("1.2.3", "text/plain; charset=utf-8"));
    let reply = admin.send("HEAD", "/api/version", "", "").await;
    assert_eq!((reply.status, reply.body.as_str(), reply.header("content-length")), (200, "", "5"));
}

#[tokio::test]
async fn config_is_compact_or_pretty() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/config").await;
    assert_eq!(reply.body, r#"{"UI":{"Title":"\u003ct\u003e\u0026"},"Buckets":[0.005,10],"Peers":null,"Map":{}}"#);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    let pretty = "{\n    \"UI\": {\n        \"Title\": \"\\u003ct\\u003e\\u0026\"\n    },\n    \"Buckets\": [\n        0.005,\n        10\n    ],\n    \"Peers\": null,\n    \"Map\": {}\n}";
    for query in ["?pretty", "?pretty=0", "?x=1&pretty="] {
        assert_eq!(admin.get(&format!("/api/config{query}")).await.body, pretty, "{query}");
    }
    assert_eq!(admin.send("POST", "/api/config", "", "").await.status, 200);
}

#[tokio::test]
async fn an_empty_table_is_an_empty_array() {
    let admin = start(Access::ReadOnly, "").await;
    let reply = admin.get("/api/routes").await;
    assert_eq!((reply.body.as_str(), reply.header("content-type")), ("[]", "application/json; charset=utf-8"));
    assert_eq!(admin.get("/api/rejects").await.body, "[]");
}

#[tokio::test]
async fn routes_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    admin.world.routes(
        "route add svc-a foo.com/x http://1.2.3.4:80/ weight 0.25 tags \"a,b\" opts \"strip=/x host=dst\"\n\
         route add svc-b foo.com/x http://1.2.3.5:80/\n\
         route add svc-c /<b> http://1.2.3.6:80/?a=1&b=2",
    );
    let reply = admin.get("/api/routes").await;
    let want = concat!(
        r#"[{"service":"svc-c","host":"","path":"/\u003cb\u003e","src":"/\u003cb\u003e","dst":"http://1.2.3.6:80/?a=1\u0026b=2","opts":"","cmd":"route add","weight":1,"rate1":0,"pct99":0},"#,
        r#"{"service":"svc-a","host":"foo.com","path":"/x","src":"foo.com/x","dst":"http://1.2.3.4:80/","opts":"host=dst strip=/x","cmd":"route add","tags":["a","b"],"weight":0.25,"rate1":0,"pct99":0},"#,
        r#"{"service":"svc-b","host":"foo.com","path":"/x","src":"foo.com/x","dst":"http://1.2.3.5:80/","opts":"","cmd":"route add","weight":0.75,"rate1":0,"pct99":0}]"#,
    );
    assert_eq!(reply.body, want);
    assert!(admin.get("/api/routes?pretty").await.body.starts_with("[\n    {\n        \"service\": \"svc-c\",\n"));

    for query in ["?raw", "?raw=0", "?pretty&raw"] {
        let reply = admin.get(&format!("/api/routes{query}")).await;
        assert_eq!(reply.header("content-type"), "text/plain");
        assert_eq!(reply.body, format!("{}\n", admin.world.table.load().table.listing()), "{query}");
    }

    // What was put into words for one table is not shown for the next.
    admin.world.routes("route add svc-z /z http://1.2.3.4:80/");
    let body = admin.get("/api/routes").await.body;
    assert!(body.starts_with(r#"[{"service":"svc-z""#) && !body.contains("svc-a"), "{body}");
}

#[tokio::test]
async fn certificates_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    assert_eq!(admin.get("/api/certificates").await.body, r#"{"sources":[],"listeners":[]}"#);
    let certificate = CertificateView {
        name: "a-cert.pem".into(),
        subject: "CN=a,O=<b>".into(),
        issuer: "CN=ca".into(),
        serial: "0a:ff".into(),
        names: vec!["a.test".into()],
        not_before: 1_700_000_000,
        not_after: 1_800_000_000,
        fingerprint: "00ff".into(),
        state: "valid",
    };
    let waiting = |next| WaitingView { name: "b.test".into(), reason: "refused".into(), next };
    let source = CertificateSourceView {
        name: "edge".into(),
        kind: "acme",
        place: "https://ca/dir".into(),
        age: Some(Duration::from_millis(1500)),
        changed: Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(7)),
        error: Some("no answer".into()),
        certificates: vec![certificate],
        problems: vec![("x.pem".into(), "no key".into())],
        waiting: vec![waiting(Some(9)), waiting(None)],
    };
    let listener = TlsListenerView {
        addr: ":443".into(),
        source: "edge".into(),
        resumed: 1,
        results: vec![("ok", 3), ("failed", 0)],
        ciphers: vec![("tls13", "TLS13_AES_128_GCM_SHA256", 3)],
    };
    *admin.world.certificates.lock().unwrap() = CertificatesView { sources: vec![source], listeners: vec![listener] };
    let want = concat!(
        r#"{"sources":[{"name":"edge","type":"acme","place":"https://ca/dir","age":1.5,"changed":7,"error":"no answer","#,
        r#""certificates":[{"name":"a-cert.pem","subject":"CN=a,O=\u003cb\u003e","issuer":"CN=ca","serial":"0a:ff","#,
        r#""names":["a.test"],"notBefore":1700000000,"notAfter":1800000000,"fingerprint":"00ff","state":"valid"}],"#,
        r#""problems":[{"name":"x.pem","reason":"no key"}],"#,
        r#""waiting":[{"name":"b.test","reason":"refused","next":9},{"name":"b.test","reason":"refused"}]}],"#,
        r#""listeners":[{"addr":":443","source":"edge","resumed":1,"handshakes":[{"result":"ok","count":3},"#,
        r#"{"result":"failed","count":0}],"#,
        r#""ciphers":[{"version":"tls13","cipher":"TLS13_AES_128_GCM_SHA256","count":3}]}]}"#,
    );
    assert_eq!(admin.get("/api/certificates").await.body, want);
}

#[tokio::test]
async fn rejects_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    let reject = |origin, text: &str| Reject { origin, text: text.into(), reason: "why & how".into() };
    *admin.world.rejects.lock().unwrap() = vec![
        reject(
            Origin::Tag { service: "s".into(), instance: "n/s-1".into(), tag: "urlprefix-/<script>".into() },
            "urlprefix-/<script>",
        ),
        reject(Origin::Key { key: "fabio/config/x".into(), line: 7 }, "route ad"),
        reject(Origin::File { path: "/etc/r".into(), line: 1 }, "a"),
        reject(Origin::Static { line: 2 }, "b"),
        reject(Origin::Custom { index: 0 }, "c"),
    ];
    let want = concat!(
        r#"[{"origin":"tag","service":"s","instance":"n/s-1","tag":"urlprefix-/\u003cscript\u003e","text":"urlprefix-/\u003cscript\u003e","reason":"why \u0026 how"},"#,
        r#"{"origin":"key","key":"fabio/config/x","line":7,"text":"route ad","reason":"why \u0026 how"},"#,
        r#"{"origin":"file","file":"/etc/r","line":1,"text":"a","reason":"why \u0026 how"},"#,
        r#"{"origin":"static","line":2,"text":"b","reason":"why \u0026 how"},"#,
        r#"{"origin":"custom","index":0,"text":"c","reason":"why \u0026 how"}]"#,
    );
    assert_eq!(admin.get("/api/rejects").await.body, want);
}

#[tokio::test]
async fn status_to_the_letter() {
    let admin = start(Access::ReadOnly, "").await;
    *admin.world.status.lock().unwrap() = StatusView {
        sources: vec![
            SourceView {
                name: "consul services".into(),
                age: Some(Duration::from_millis(1500)),
                ..SourceView::default()
            },
            SourceView {
                name: "consul kv".into(),
                error: Some("<refused>".into()),
                failures: 2,
                ..SourceView::default()
            },
        ],
        table_age: Some(Duration::from_micros(61_000_400)),
        contact: Some((Duration::from_millis(20), true)),
        lag: None,
        changes: vec![Change {
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            cause: "service x".into(),
            added: 1,
            removed: 0,
            lines: vec!["+ x".into()],
        }],
        ..StatusView::default()
    };
    *admin.world.unready.lock().unwrap() = Some("no table yet".into());
    let want = concat!(
        r#"{"version":"1.2.3","ready":false,"reason":"no table yet","table":{"routes":0,"targets":0,"age":61,"lag":null,"#,
        r#""build":null,"builds":0,"rejects":0,"services":0,"instances":0},"consul":{"known_leader":true,"last_contact":0.02},"#,
        r#""sources":[{"name":"consul services","up":true,"age":1.5,"index":0,"failures":0},"#,
        r#"{"name":"consul kv","up":false,"age":null,"index":0,"failures":2,"error":"\u003crefused\u003e"}],"#,
        r#""changes":[{"at":1700000000.123,"cause":"service x","added":1,"removed":0,"lines":["+ x"]}]}"#,
    );
    assert_eq!(admin.get("/api/status").await.body, want);
}
