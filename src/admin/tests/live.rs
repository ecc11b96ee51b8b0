//! Explanations, live numbers, and control.

use super::*;

fn json(reply: &Reply) -> serde_json::Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

#[tokio::test]
async fn a_url_is_explained() {
    let admin = start(Access::ReadOnly, "/lb").await;
    admin.world.routes("route add web www.test/a http://10.0.0.1:80/ opts \"allow=ip:10.0.0.0/8\"");
    let ask = |query: &str| format!("/lb/api/explain?{query}");
    let got = json(&admin.get(&ask("url=http%3A%2F%2Fwww.test%2Fa%2Fb%3Fq%3D1&method=POST")).await);
    assert_eq!((&got["outcome"], &got["chosen"], &got["method"]), (&"forward".into(), &0.into(), &"POST".into()));
    assert_eq!(got["candidates"][0]["targets"][0]["forward"], "/a/b?q=1");
    let got = json(&admin.get(&ask("url=/a/b&header=Host:+www.test&client=11.1.1.1")).await);
    assert_eq!(got["outcome"], "denied");
    let got = json(&admin.get(&ask("url=www.test/A")).await);
    assert_eq!((got["outcome"].as_str(), got["close"].as_array().map(Vec::len)), (Some("no-route"), Some(1)));
    for bad in ["", "url=", "url=ftp://x/", "url=/a&client=me", "url=/a&header=Host"] {
        assert_eq!(admin.get(&ask(bad)).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn the_table_has_everything_by_route() {
    let admin = start(Access::ReadOnly, "").await;
    admin.world.routes("route add a h.test/ http://a:1/ weight 0.25 tags \"x\"\nroute add b h.test/ http://b:1/\nroute add t :5 tcp://c:5");
    let got = json(&admin.get("/api/table").await);
    let h = got.as_array().unwrap().iter().find(|route| route["host"] == "h.test").unwrap();
    assert_eq!((h["class"].as_str(), h["targets"][0]["fixed"].as_f64()), (Some("http"), Some(0.25)));
    assert_eq!((h["targets"][1]["share"].as_f64(), &h["targets"][0]["tags"][0]), (Some(0.75), &"x".into()));
    assert!(got.as_array().unwrap().iter().any(|route| route["class"] == "tcp"));
}

/// Reads an event stream until `wanted` is in it.
async fn until_event(socket: &mut TcpStream, wanted: &str) -> String {
    let mut seen = String::new();
    let work = async {
        let mut buffer = [0; 4096];
        while !seen.contains(wanted) {
            let n = socket.read(&mut buffer).await.unwrap();
            assert!(n > 0, "ended: {seen}");
            seen.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        }
    };
    timeout(Duration::from_secs(20), work).await.expect("the event in time");
    seen
}

#[tokio::test]
async fn traffic_and_changes_arrive_as_events() {
    let admin = start(Access::ReadOnly, "").await;
    let target = admin.metrics.target("web", "a.test", "/", "http://10.0.0.1/");
    let mut socket = TcpStream::connect(admin.address).await.unwrap();
    socket.write_all(b"GET /api/events HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let head = until_event(&mut socket, "retry").await;
    assert!(head.contains("Content-Type: text/event-stream"), "{head}");
    let counting = tokio::spawn({
        let target = target.clone();
        async move {
            loop {
                target.observe(Shard(0), 200, Duration::from_millis(3));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let stats = until_event(&mut socket, "event: stats").await;
    assert!(stats.contains("event: stats"));
    admin.world.status.lock().unwrap().builds = 7;
    until_event(&mut socket, "event: table\ndata: {\"builds\":7").await;
    let full = json(&admin.get("/api/stats").await);
    assert!(full["routes"][0]["targets"][0]["rate"].as_f64().unwrap() > 0.0, "{full}");
    assert_eq!(full["routes"][0]["targets"][0]["service"], "web");
    counting.abort();

    // An open stream does not hold up the end.
    admin.life.advance(Phase::Closing);
    timeout(Duration::from_secs(10), admin.task).await.expect("an end in time").unwrap();
}

#[tokio::test]
async fn control_changes_what_it_says() {
    let admin = start(Access::ReadWrite, "").await;
    let before = json(&admin.get("/api/control").await);
    assert_eq!((&before["draining"], &before["disabled"]), (&false.into(), &serde_json::json!([])));
    let done = json(&admin.put("/api/control/drain", r#"{"on":true}"#).await);
    assert_eq!(done["draining"], true);
    assert_eq!(json(&admin.put("/api/control/log", r#"{"level":"DEBUG"}"#).await)["log_level"], "DEBUG");
    assert_eq!(admin.put("/api/control/reload", "").await.status, 200);
    assert_eq!(admin.world.reloads.load(Ordering::Relaxed), 1);
    let entry = r#"{"service":"web","instance":"n/web-1","for":"30m","reason":"slow"}"#;
    let done = json(&admin.put("/api/control/disable", entry).await);
    assert_eq!(
        (&done["disabled"][0]["instance"], &done["disabled"][0]["by"]),
        (&"n/web-1".into(), &"127.0.0.1".into())
    );
    assert_eq!(admin.put("/api/control/enable", r#"{"service":"web"}"#).await.status, 404);
    assert_eq!(admin.put("/api/control/enable", r#"{"service":"web","instance":"n/web-1"}"#).await.status, 200);
    for (target, body, status) in [
        ("/api/control/drain", "{}", 400),
        ("/api/control/drain", "nonsense", 400),
        ("/api/control/log", r#"{"level":"LOUD"}"#, 400),
        ("/api/control/disable", r#"{"for":"1h"}"#, 400),
        ("/api/control/none", "", 404),
        ("/api/control", "", 405),
    ] {
        assert_eq!(admin.put(target, body).await.status, status, "{target} {body}");
    }
    assert_eq!(admin.get("/api/control/drain").await.status, 405);
    admin.world.broken.store(true, Ordering::Relaxed);
    assert_eq!(admin.put("/api/control/disable", entry).await.status, 500);
}

#[tokio::test]
async fn nobody_else_controls() {
    let locked = start(Access::ReadOnly, "").await;
    assert_eq!(locked.get("/api/control").await.status, 200);
    assert_eq!(locked.put("/api/control/drain", r#"{"on":true}"#).await.status, 403);
    for path in ["/api/history", "/api/history/x"] {
        assert_eq!(locked.get(path).await.status, 403, "{path}");
    }
    assert_eq!(locked.send("POST", "/api/manual/preview", "", &edit("x", 0)).await.status, 403);

    let admin = start(Access::ReadWrite, "").await;
    let send = async |host: &str, headers: &str| {
        let body = r#"{"on":true}"#;
        let request = format!(
            "PUT /api/control/drain HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        admin.raw(request.as_bytes()).await.status
    };
    for (host, headers, status) in [
        ("lb.test", "", 200),
        ("lb.test", "Origin: http://lb.test\r\n", 200),
        ("lb.test", "Origin: http://evil.com\r\n", 403),
        ("lb.test", "Sec-Fetch-Site: cross-site\r\n", 403),
        // A name of somebody else that leads here (DNS rebinding).
        ("evil.com:9998", "Origin: http://evil.com:9998\r\n", 403),
        ("evil.com:9998", "Origin: http://evil.com:9998\r\nSec-Fetch-Site: same-origin\r\n", 403),
        ("10.0.0.1:9998", "Origin: http://10.0.0.1:9998\r\n", 200),
        ("lb.example.com", "", 200),
    ] {
        assert_eq!(send(host, headers).await, status, "{host} {headers}");
    }
}

#[tokio::test]
async fn configured_hosts_are_the_only_ones() {
    let mut config = config(Access::ReadWrite, "");
    config.hosts = vec!["lb.example.com".into()];
    let admin = start_with(config, true).await;
    let get = async |host: &str, path: &str| {
        admin.raw(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await.status
    };
    for (host, path, status) in [
        ("lb.example.com:9998", "/api/config", 200),
        ("127.0.0.1", "/api/config", 200),
        ("lb.test", "/api/config", 403),
        ("lb.test", "/health", 200),
    ] {
        assert_eq!(get(host, path).await, status, "{host}{path}");
    }
}

#[tokio::test]
async fn a_login_guards_everything_but_health() {
    let mut config = config(Access::ReadWrite, "");
    config.auth = Some("staff".into());
    let admin = start_with(config, true).await;
    let paths = ["/", "/routes", "/api/config", "/api/control", "/api/events", "/api/manual", "/assets/app.js"];
    for path in paths {
        let reply = admin.get(path).await;
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Basic realm=\"x\""), "{path}");
    }
    assert_eq!(admin.get("/health").await.status, 200);
    assert_eq!(admin.send("GET", "/api/config", "Authorization: word\r\n", "").await.status, 200);
    assert_eq!(admin.send("GET", "/api/config", "Authorization: other\r\n", "").await.status, 503);
}

#[tokio::test]
async fn overrides_have_a_past_and_a_preview() {
    let admin = start(Access::ReadWrite, "").await;
    assert_eq!(admin.get("/api/history/x").await.body, r#"[{"id":"7/x","at":1.5}]"#);
    assert_eq!(admin.get("/api/history?id=42").await.body, r#"{"id":"42","value":"was 42"}"#);
    let body = r#"{"suffix":"/x","value":"route del a"}"#;
    let reply = admin.send("POST", "/api/manual/preview", "", body).await;
    assert_eq!(reply.body, r#"{"added":1,"removed":0,"lines":["+ /x route del a"],"rejects":[]}"#);
    assert_eq!(admin.world.key("/preview"), None);
    assert_eq!(admin.send("POST", "/api/manual", "", body).await.status, 405);
}

#[tokio::test]
async fn the_timeline_can_be_cut() {
    let admin = start(Access::ReadOnly, "").await;
    let change = |at: u64| Change {
        at: UNIX_EPOCH + Duration::from_secs(at),
        cause: format!("service s{at}"),
        added: 1,
        removed: 0,
        lines: vec!["+ <x>".into()],
    };
    admin.world.status.lock().unwrap().changes = vec![change(30), change(20), change(10)];
    for (query, want) in [
        ("", vec![30, 20, 10]),
        ("?since=15", vec![30, 20]),
        ("?since=15&until=25", vec![20]),
        ("?limit=1", vec![30]),
        ("?since=x", vec![30, 20, 10]),
    ] {
        let got = json(&admin.get(&format!("/api/timeline{query}")).await);
        let at: Vec<u64> =
            got["changes"].as_array().unwrap().iter().map(|c| c["at"].as_f64().unwrap() as u64).collect();
        assert_eq!(at, want, "{query}");
    }
    let effective = admin.get("/api/config/effective").await;
    assert!(effective.body.contains("\\u003ct\\u003e"), "{}", effective.body);
}
