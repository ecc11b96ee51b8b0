//! Who may ask for what, and what every answer carries.

use super::*;

#[tokio::test]
async fn read_write_statuses() {
    let admin = start(Access::ReadWrite, "").await;
    admin
        .statuses(&[
            ("/api/manual", 200),
            ("/api/manual/x", 200),
            ("/api/paths", 200),
            ("/api/config", 200),
            ("/api/routes", 200),
            ("/api/version", 200),
            ("/api/rejects", 200),
            ("/api/certificates", 200),
            ("/manual", 200),
            ("/manual/x/y", 200),
            ("/routes", 200),
            ("/health", 200),
            ("/assets/logo.svg", 200),
            ("/assets/logo.bw.svg", 200),
            ("/assets/none", 404),
            ("/assets/", 404),
            ("/favicon.ico", 404),
            ("/", 303),
            ("/anything", 303),
            ("/api/manualx", 303),
            ("/manualx", 303),
            ("/routes/", 303),
            ("/metrics", 303),
            ("/assets", 303),
        ])
        .await;
    assert_eq!(admin.get("/").await.header("location"), "/routes");
}

#[tokio::test]
async fn read_only_statuses() {
    let admin = start(Access::ReadOnly, "").await;
    admin
        .statuses(&[
            ("/api/manual", 403),
            ("/api/manual/x", 403),
            ("/api/paths", 403),
            ("/api/config", 200),
            ("/api/routes", 200),
            ("/api/version", 200),
            ("/api/rejects", 200),
            ("/api/certificates", 200),
            ("/manual", 403),
            ("/manual/x", 403),
            ("/%6danual", 403),
            ("/routes", 200),
            ("/health", 200),
            ("/assets/logo.svg", 200),
            ("/assets/logo.bw.svg", 200),
            ("/", 303),
        ])
        .await;
    assert_eq!(admin.get("/manual").await.body, "Forbidden\n");
    for method in ["PUT", "POST", "DELETE", "HEAD"] {
        assert_eq!(admin.send(method, "/api/manual", "", &edit("# x", 0)).await.status, 403, "{method}");
    }
    assert_eq!(admin.put("/api/manual?force=true", &edit("# x", 0)).await.status, 403);
    assert_eq!(admin.world.key(""), None);
    assert!(!admin.get("/routes").await.body.contains("data-writable=\"true\""));
}

#[tokio::test]
async fn closed_statuses() {
    let admin = start(Access::Closed, "").await;
    for target in ["/", "/api/config", "/api/routes", "/api/version", "/routes", "/manual", "/assets/app.js", "/x"] {
        let reply = admin.get(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (403, "Forbidden\n"), "{target}");
    }
    admin.statuses(&[("/health", 200)]).await;
}

#[tokio::test]
async fn everything_but_health_is_below_the_base_path() {
    for path in ["/lb", "lb", "/lb/", "lb//"] {
        let admin = start(Access::ReadWrite, path).await;
        admin
            .statuses(&[
                ("/lb/api/routes", 200),
                ("/lb/api/config", 200),
                ("/lb/api/manual/x", 200),
                ("/lb/routes", 200),
                ("/lb/manual", 200),
                ("/lb/assets/app.js", 200),
                ("/lb/", 303),
                ("/lb/x", 303),
                ("/lb/health", 303),
                ("/lb", 307),
                ("/health", 200),
                ("/routes", 404),
                ("/api/routes", 404),
                ("/lbx", 404),
                ("/", 404),
            ])
            .await;
        assert_eq!(admin.get("/lb/").await.header("location"), "/lb/routes");
        assert_eq!(admin.get("/lb?a=b").await.header("location"), "/lb/?a=b");
        assert_eq!(admin.get("/").await.body, "404 page not found\n");
        assert_eq!(admin.get("/lb").await.header("location"), "/lb/");
        for page in ["/lb/routes", "/lb/manual/x"] {
            let body = admin.get(page).await.body;
            for part in body.split(['"', '\'']).filter(|part| part.starts_with('/')) {
                assert!(part.starts_with("/lb") || part == "/x", "{page} refers to {part}");
            }
            assert!(body.contains("\"/lb/assets/v1.2.3/app.js"), "{body}");
        }
    }
}

#[tokio::test]
async fn detours_lead_to_the_clean_path() {
    let admin = start(Access::ReadWrite, "").await;
    for (target, location) in [
        ("//routes", "/routes"),
        ("//evil.com/x", "/evil.com/x"),
        ("/a/../routes?filter=x", "/routes?filter=x"),
        ("/api/manual/%2e%2e/config", "/api/config"),
        ("/api/manual//a%20b", "/api/manual/a%20b"),
    ] {
        let reply = admin.get(target).await;
        assert_eq!((reply.status, reply.header("location")), (307, location), "{target}");
    }
    admin.statuses(&[("/%zz", 400), ("/%ff", 400), ("/%0d%0aX:%20y", 303)]).await;
}

#[tokio::test]
async fn one_host_header() {
    let admin = start(Access::ReadWrite, "").await;
    for (head, status) in [
        ("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400),
        ("GET /health HTTP/1.0\r\n\r\n", 200),
        ("GET http://a/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
    ] {
        assert_eq!(admin.raw(head.as_bytes()).await.status, status, "{head:?}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_protection() {
    let admin = start(Access::ReadWrite, "").await;
    for target in ["/routes", "/manual", "/api/config", "/api/manual", "/assets/app.js", "/", "/health", "/favicon.ico"]
    {
        let reply = admin.get(target).await;
        let csp = reply.header("content-security-policy");
        assert!(csp.contains("default-src 'none'") && csp.contains("frame-ancestors 'none'"), "{target}: {csp}");
        assert!(!csp.contains("unsafe"), "{csp}");
        assert_eq!(reply.header("x-frame-options"), "DENY", "{target}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{target}");
    }
    assert_eq!(admin.get("/api/config").await.header("cache-control"), "no-store");
}

#[tokio::test]
async fn health_says_why_not() {
    let admin = start(Access::Closed, "/lb").await;
    let reply = admin.get("/health").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "OK\n"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    *admin.world.unready.lock().unwrap() = Some("draining".into());
    let reply = admin.get("/health").await;
    assert_eq!((reply.status, reply.body.as_str()), (503, "draining\n"));
    *admin.world.unready.lock().unwrap() = None;
    admin.statuses(&[("/health", 200)]).await;
}
