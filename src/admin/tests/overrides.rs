//! Overrides: reading, writing, and who may.

use super::*;

#[tokio::test]
async fn paths_are_listed() {
    let admin = start(Access::ReadWrite, "").await;
    assert_eq!(admin.get("/api/paths").await.body, "null");
    for suffix in ["", "/a", "/b/<c>"] {
        admin.world.put(suffix, "#", 1);
    }
    assert_eq!(admin.get("/api/paths").await.body, r#"["","/a","/b/\u003cc\u003e"]"#);
    for method in ["HEAD", "PUT", "POST"] {
        let reply = admin.send(method, "/api/paths", "", "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, "GET"), "{method}");
    }
    admin.world.broken.store(true, Ordering::Relaxed);
    let reply = admin.get("/api/paths").await;
    assert_eq!((reply.status, reply.body.as_str()), (500, "no leader <b>\n"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn an_override_is_read_with_its_version() {
    let admin = start(Access::ReadWrite, "").await;
    admin.world.put("", "\n # text <a>  \n\n", 17);
    let reply = admin.get("/api/manual").await;
    assert_eq!(reply.body, r##"{"value":"# text \u003ca\u003e","version":"17"}"##);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(admin.get("/api/manual/none").await.body, r#"{"value":"","version":"17"}"#);
    for method in ["HEAD", "POST", "DELETE", "OPTIONS"] {
        let reply = admin.send(method, "/api/manual/x", "", "").await;
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(reply.body, if method == "HEAD" { "" } else { "not allowed\n" }, "{method}");
        assert_eq!(reply.header("allow"), "GET, PUT");
    }
    admin.world.broken.store(true, Ordering::Relaxed);
    assert_eq!(admin.get("/api/manual").await.status, 500);
}

#[tokio::test]
async fn the_path_of_an_override_is_decoded_and_its_query_ignored() {
    let admin = start(Access::ReadWrite, "").await;
    admin.world.put("/a b", "# spaced", 1);
    admin.world.put("/x?y#z", "# odd", 2);
    for (target, value) in [
        ("/api/manual/a%20b", "# spaced"),
        ("/api/manual/a%20b?x=1", "# spaced"),
        ("/api/manual/x%3Fy%23z", "# odd"),
        ("/api/manual/a%2520b", ""),
    ] {
        let body = admin.get(target).await.body;
        assert!(body.starts_with(&format!("{{\"value\":\"{value}\"")), "{target}: {body}");
    }
    assert_eq!(admin.put("/api/manual/team/n%20w?pretty", &edit("# new", 0)).await.status, 200);
    assert_eq!(admin.world.key("/team/n w").as_deref(), Some("# new"));
}

#[tokio::test]
async fn an_override_is_written_at_its_version_only() {
    let admin = start(Access::ReadWrite, "").await;
    let reply = admin.put("/api/manual", &edit("# one\n", 0)).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(admin.world.key("").as_deref(), Some("# one\n"));
    assert_eq!(admin.put("/api/manual", &edit("# two", 1)).await.status, 200);
    let reply = admin.put("/api/manual", &edit("# three", 1)).await;
    assert_eq!((reply.status, reply.body.as_str()), (409, "version mismatch\n"));
    assert_eq!(admin.put("/api/manual", r##"{"value":"# four"}"##).await.status, 409);
    assert_eq!(admin.world.key("").as_deref(), Some("# two"));
    assert_eq!(admin.put("/api/manual/nv", r##"{"value":"# new"}"##).await.status, 200);
    admin.world.broken.store(true, Ordering::Relaxed);
    let reply = admin.put("/api/manual", &edit("# x", 2)).await;
    assert_eq!((reply.status, reply.body.as_str()), (500, "no leader <b>\n"));
}

#[tokio::test]
async fn bodies_are_read_as_go_reads_them() {
    let admin = start(Access::ReadWrite, "").await;
    for body in [
        "",
        " ",
        "not json",
        "null",
        "[]",
        "\"x\"",
        "{}",
        r#"{"version":"0"}"#,
        r#"{"value":1}"#,
        r#"{"value":null}"#,
        r#"{"value":"x","version":0}"#,
        r#"{"value":"x","version":""}"#,
        r#"{"value":"x","version":"abc"}"#,
        r#"{"value":"x","version":"-1"}"#,
        r#"{"value":"x","version":"+1"}"#,
        r#"{"value":"x","version":"1.0"}"#,
        r#"{"value":"x","version":"99999999999999999999999"}"#,
        r#"{"value":"x""#,
        "{\"value\":\"\u{1}\"}",
    ] {
        let reply = admin.put("/api/manual", body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.body.len() > 3 && reply.body.ends_with('\n'), "{body}: {:?}", reply.body);
        assert_eq!(admin.world.key(""), None, "{body}");
    }
    for (suffix, body) in [
        ("/1", r##"{"value":"# a","version":"0","other":[1]} trailing"##),
        ("/2", r##" {"VALUE":"# a","Version":null}"##),
        ("/3", r##"{"value":"x","value":"# a"}"##),
        ("/4", r##"{"value":"\u0023 a"}"##),
    ] {
        assert_eq!(admin.put(&format!("/api/manual{suffix}"), body).await.status, 200, "{body}");
        assert_eq!(admin.world.key(suffix).as_deref(), Some("# a"), "{body}");
    }
}

#[tokio::test]
async fn a_text_that_does_not_parse_is_not_written() {
    let admin = start(Access::ReadWrite, "").await;
    let bad = edit("# fine\nroute add broken\nroute add s / http://a/\nnonsense", 0);
    let reply = admin.put("/api/manual", &bad).await;
    assert_eq!(reply.status, 400);
    let lines: Vec<_> = reply.body.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("line 2: ") && lines[1].starts_with("line 4: "), "{lines:?}");
    assert_eq!(admin.world.key(""), None);
    assert_eq!(admin.put("/api/manual?force=false", &bad).await.status, 400);
    assert_eq!(admin.put("/api/manual?force=true", &bad).await.status, 200);
    assert!(admin.world.key("").is_some());
}

#[tokio::test]
async fn too_much_is_refused() {
    let admin = start(Access::ReadWrite, "").await;
    let fits = format!("#{}", "<".repeat(512 * 1024 - 1));
    assert_eq!(admin.put("/api/manual", &edit(&fits, 0)).await.status, 200);
    let over = format!("{fits}<");
    assert_eq!(admin.put("/api/manual/x", &edit(&over, 0)).await.status, 413);
    let escaped = format!("{{\"value\":\"#{}\"}}", "\\u003c".repeat(512 * 1024 - 1));
    assert_eq!(admin.put("/api/manual/y", &escaped).await.status, 200);

    let head = "PUT /api/manual HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 999999999\r\n\r\n";
    assert_eq!(admin.raw(head.as_bytes()).await.status, 413);
}

#[tokio::test]
async fn only_our_own_pages_may_write() {
    let admin = start(Access::ReadWrite, "").await;
    for (headers, status) in [
        ("Origin: http://evil.com\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\nOrigin: http://admin.test:9998\r\n", 403),
        ("Origin: http://admin.test:9998\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\nOrigin: http://admin.test:9998\r\n", 200),
        ("", 200),
    ] {
        let version = *admin.world.version.lock().unwrap();
        let before = admin.world.key("");
        let reply = admin.send("PUT", "/api/manual", headers, &edit("# x", version)).await;
        assert_eq!(reply.status, status, "{headers}");
        assert_eq!(admin.world.key("") == before && status == 403, status == 403, "{headers}");
        assert_eq!(reply.header("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn a_backend_without_overrides() {
    let admin = start_with(config(Access::ReadWrite, ""), false).await;
    assert_eq!(admin.get("/api/paths").await.body, "null");
    assert_eq!(admin.get("/api/manual").await.body, r#"{"value":"","version":"0"}"#);
    assert_eq!(admin.put("/api/manual", &edit("# x", 0)).await.status, 409);
}
