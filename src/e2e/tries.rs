//! Requests that are tried again, and those that must not be: instances that refuse, reset, hang, fail, or break off.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::proxy::{Proxy, Start};
use crate::routing::all;
use crate::testing::client;
use crate::testing::origin::{self, Gate, Origin, Script};
use crate::testing::{PATIENCE, free_addr, until};

/// A route with these targets, all with these options.
fn routes(targets: &[String], options: &str) -> String {
    targets.iter().map(|target| format!("route add s / {target} opts \"{options}\"\n")).collect()
}

/// Two instances that work and one that does this, behind a route with these options.
async fn one_bad_of_three(bad: Script, options: &str) -> (Proxy, [Origin; 3]) {
    let origins = [Origin::start("a").await, Origin::start("b").await, Origin::start("bad").await];
    origins[2].always(bad);
    let targets: Vec<String> = origins.iter().map(Origin::url).collect();
    let proxy = Start::routes(routes(&targets, options)).property("proxy.strategy", "rr").start().await;
    (proxy, origins)
}

/// The value of a series in the metrics, summed over its labels.
async fn metric(proxy: &Proxy, name: &str) -> f64 {
    let text = client::get(proxy.more, "h", "/metrics").await.text();
    text.lines()
        .filter(|line| line.starts_with(name))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[tokio::test]
async fn an_instance_that_refuses_fails_no_request() {
    let origins = [Origin::start("a").await, Origin::start("b").await];
    let targets = [origins[0].url(), format!("http://{}/", free_addr()), origins[1].url()];
    let start = Start::routes(routes(&targets, "")).property("proxy.addr", "ADDR,MORE;proto=prometheus");
    let proxy = start.property("metrics.target", "prometheus").property("proxy.strategy", "rr").start().await;
    let mut client = proxy.client().await;
    for n in 0..60 {
        // Nothing of them was sent, so it does not matter which method or how large.
        let body = "x".repeat(n * 5000);
        client.send(format!("POST /{n} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
        assert_eq!(client.response().await.status, 200);
    }
    let seen: Vec<_> = origins.iter().flat_map(Origin::seen).collect();
    assert_eq!(seen.len(), 60);
    assert!(
        seen.iter().all(|seen| seen.body.bytes.len() == seen.target()[1..].parse::<usize>().expect("a number") * 5000)
    );
    // Five failures, or a few more of several workers; then it is left alone.
    let errors = metric(&proxy, "ferrio_upstream_errors_total").await;
    assert!((5.0..=10.0).contains(&errors), "{errors}");
    assert_eq!(metric(&proxy, "ferrio_upstream_retries_total").await, errors);
    assert_eq!(metric(&proxy, "ferrio_upstream_ejections_total").await, 1.0);
    assert!(proxy.ferrio.stderr().contains("is passed over"), "{}", proxy.ferrio.stderr());
}

#[tokio::test]
async fn no_get_fails_while_one_instance_of_three_is_bad() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    let mut scripts = vec![
        ("hang", origin::hang()),
        ("500", origin::reply(500, &[], "broken")),
        ("reset", origin::reset()),
        ("hang up", origin::hang_up()),
        ("early", origin::hang_up().early()),
        ("garbage", origin::raw("\x15\x03\x01\0\x02\x02\x50garbage\r\n\r\n").close()),
        ("idle", origin::reply(200, &[], "bad").close_idle(Duration::from_millis(1))),
        ("idle reset", origin::reply(200, &[], "bad").reset_idle(Duration::from_millis(1))),
    ];
    // Every place in the head where a response can end.
    for at in (1..whole.len()).step_by(4) {
        scripts.push(("closed", origin::raw(&whole[..at]).close()));
        scripts.push(("reset", origin::raw(&whole[..at]).reset()));
        scripts.push(("stuck", origin::raw(&whole[..at]).wait(Duration::from_secs(60))));
    }
    for (name, script) in scripts {
        let (proxy, origins) = one_bad_of_three(script, "retry=2 trytimeout=300ms").await;
        let clients = (0..4).map(async |_| {
            let mut client = proxy.client().await;
            for _ in 0..10 {
                let response = client.get("h", "/x").await;
                assert_eq!(response.status, 200, "{name}");
            }
        });
        all(clients).await;
        let asked = origins[2].seen().len();
        assert!(asked > 0, "{name}: the bad one was not asked at all");
    }
}

#[tokio::test]
async fn a_safe_request_whose_target_dies_goes_to_another_one_without_being_asked() {
    for (name, script) in [
        ("reset", origin::reset()),
        ("hang up", origin::hang_up()),
        ("half a head", origin::raw("HTTP/1.1 200 OK\r\nConte").close()),
    ] {
        let (proxy, origins) = one_bad_of_three(script.clone(), "eject=off").await;
        let mut client = proxy.client().await;
        for _ in 0..12 {
            assert_eq!(client.get("h", "/x").await.status, 200, "{name}");
        }
        assert!(origins[2].seen().len() >= 2, "{name}: {}", origins[2].seen().len());
        let mut failed = 0;
        for _ in 0..12 {
            client.send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx").await;
            failed += u32::from(client.response().await.status == 502);
        }
        assert!(failed >= 2, "{name}: {failed}");
        // One that kills whoever gets it is not carried from one to the next.
        for origin in &origins {
            origin.always(script.clone());
        }
        let before: usize = origins.iter().map(|origin| origin.seen().len()).sum();
        assert_eq!(client.get("h", "/x").await.status, 502, "{name}");
        let after: usize = origins.iter().map(|origin| origin.seen().len()).sum();
        assert!(after - before <= 4, "{name}: {before} {after}");
        let (off, _origins) = one_bad_of_three(script, "eject=off retry=off").await;
        let mut client = off.client().await;
        let mut failed = 0;
        for _ in 0..12 {
            failed += u32::from(client.get("h", "/x").await.status == 502);
        }
        assert!(failed >= 2, "{name}: {failed}");
    }
}

#[tokio::test]
async fn posts_are_never_executed_twice() {
    let body = "x".repeat(1000);
    for (name, script) in [
        ("hang", origin::hang()),
        ("500", origin::reply(500, &[], "")),
        ("503", origin::reply(503, &[], "")),
        ("reset", origin::reset()),
        ("hang up", origin::hang_up()),
        ("half", origin::raw("HTTP/1.1 200 OK\r\nConte").close()),
        ("idle", origin::reply(200, &[], "bad").close_idle(Duration::from_millis(1))),
        ("idle reset", origin::reply(200, &[], "bad").reset_idle(Duration::from_millis(1))),
    ] {
        let (proxy, origins) = one_bad_of_three(script, "retry=2 trytimeout=300ms").await;
        let mut client = proxy.client().await;
        let mut failed = 0;
        for n in 0..15 {
            client.send(format!("POST /{n} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{body}")).await;
            failed += u32::from(client.response().await.status != 200);
        }
        let mut times: HashMap<String, usize> = HashMap::new();
        for seen in origins.iter().flat_map(Origin::seen) {
            *times.entry(seen.target().to_owned()).or_default() += 1;
        }
        assert!(times.values().all(|times| *times == 1), "{name}: {times:?}");
        // Each failure was one that the bad instance has seen, or may have.
        assert!(failed as usize <= 5 && (failed > 0 || name.starts_with("idle")), "{name}: {failed}");
    }
}

#[tokio::test]
async fn a_body_is_sent_again_if_it_was_kept() {
    for (options, length, method, status, copies) in [
        ("retry=1", 60_000, "PUT", 200, 2),
        ("retry=1", 70_000, "PUT", 500, 1),
        ("retry=1", 60_000, "POST", 500, 1),
        ("retry=1 retrymethods=post", 60_000, "POST", 200, 2),
        ("retry=1 retrymethods=get", 10, "PUT", 500, 1),
        ("retry=1 retryon=503", 10, "PUT", 500, 1),
        ("retry=0", 10, "PUT", 500, 1),
        ("", 10, "PUT", 500, 1),
    ] {
        for chunked in [false, true] {
            let origin = Origin::start("fine").await;
            origin.once("/x", origin::reply(500, &[], ""));
            // One instance: it is the one that is tried again.
            let proxy = Start::routes(routes(&[origin.url()], options)).start().await;
            let body: String = (0..length).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
            let mut client = proxy.client().await;
            if chunked {
                client.send(format!("{method} /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")).await;
                for piece in body.as_bytes().chunks(7777) {
                    client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
                }
                client.send("0\r\n\r\n").await;
            } else {
                client.send(format!("{method} /x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")).await;
            }
            assert_eq!(client.response().await.status, status, "{options} {method} {length}");
            let seen = origin.seen();
            assert_eq!(seen.len(), copies, "{options} {method} {length}");
            assert!(seen.iter().all(|seen| seen.body.bytes == body.as_bytes()));
        }
    }
}

#[tokio::test]
async fn each_try_is_made_for_its_target() {
    let (first, second) = (Origin::start("first").await, Origin::start("second").await);
    first.always(origin::reply(503, &[], ""));
    let routes = format!(
        "route add s /foo {} opts \"strip=/foo retry=1 reqadd=X-One:1 host=one.test\"\nroute add s /foo {} opts \"prepend=/bar retry=1 reqadd=X-Two:2 reqdel=X-Mine\"",
        first.url(),
        second.url()
    );
    let proxy = Start::routes(routes).property("proxy.strategy", "rr").one_worker().start().await;
    let mut client = proxy.client().await;
    while first.seen().is_empty() {
        client.send("GET /foo/x?q=1 HTTP/1.1\r\nHost: h\r\nX-Mine: m\r\n\r\n").await;
        assert_eq!(client.response().await.text(), "second");
    }
    let (one, two) = (first.last(), second.last());
    assert_eq!((one.target(), two.target()), ("/x?q=1", "/bar/foo/x?q=1"));
    assert_eq!((one.header("x-one"), two.header("x-one")), (Some("1"), None));
    assert_eq!((one.header("x-two"), two.header("x-two")), (None, Some("2")));
    assert_eq!((one.header("x-mine"), two.header("x-mine")), (Some("m"), None));
    assert_eq!((one.header("host"), two.header("host")), (Some("one.test"), Some("h")));
    assert_eq!((one.header("x-forwarded-prefix"), two.header("x-forwarded-prefix")), (Some("/foo"), None));
    assert_eq!(two.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn another_target_has_its_own_rules() {
    let open = Origin::start("open").await;
    let closed = free_addr();
    let routes = format!("route add s / http://{closed}/\nroute add s / {} opts \"allow=ip:10.0.0.0/8\"", open.url());
    let proxy = Start::routes(routes).property("proxy.strategy", "rr").start().await;
    for _ in 0..6 {
        let status = proxy.get("h", "/").await.status;
        assert!(matches!(status, 403 | 502), "{status}");
    }
    assert!(open.seen().is_empty());
}

#[tokio::test]
async fn a_head_that_was_passed_on_is_not_taken_back() {
    let script = origin::chunked(&[]).chunk("hello").wait(Duration::from_millis(50)).reset();
    let (proxy, origins) = one_bad_of_three(script, "retry=2 trytimeout=300ms").await;
    for _ in 0..6 {
        let mut client = proxy.client().await;
        client.send("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let text = String::from_utf8_lossy(&client.rest().await).into_owned();
        if text.contains("hello") {
            assert!(!text.ends_with("0\r\n\r\n"), "a clean end: {text}");
        }
    }
    assert_eq!(origins[2].seen().len(), 2);
}

#[tokio::test]
async fn times_of_a_route() {
    let origin = Origin::start("o").await;
    origin.on("/late", origin::reply(200, &[], "late").after(Duration::from_secs(30)));
    origin.on("/slow", origin::chunked(&[]).chunk("x").wait(Duration::from_secs(30)).end(&[]));
    let lines: String = ["trytimeout=200ms", "timeout=200ms", "headertimeout=200ms", "retry=2 trytimeout=100ms"]
        .iter()
        .enumerate()
        .map(|(n, options)| format!("route add s h{n}/ {} opts \"{options}\"\n", origin.url()))
        .collect();
    let proxy = Start::routes(lines).start().await;
    for host in 0..4 {
        assert_eq!(proxy.get(&format!("h{host}"), "/late").await.status, 504, "{host}");
        assert_eq!(proxy.get(&format!("h{host}"), "/").await.text(), "o", "{host}");
    }
    let late = origin.seen().iter().filter(|seen| seen.target() == "/late").count();
    assert_eq!(late, 3 + 3);
    let mut client = proxy.client().await;
    client.send("GET /slow HTTP/1.1\r\nHost: h1\r\n\r\n").await;
    let text = String::from_utf8_lossy(&client.rest().await).into_owned();
    assert!(text.contains("1\r\nx\r\n") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn the_time_of_a_route_is_that_of_its_queue_and_of_its_authentication_too() {
    let (origin, service, gate) = (Origin::start("o").await, Origin::start("auth").await, Gate::new());
    origin.on("/held", origin::reply(200, &[], "o").behind(&gate));
    service.always(origin::reply(200, &[], "").behind(&gate));
    let lines: String = [
        ("queue", "maxconn=1 queuetimeout=30s timeout=200ms"),
        ("short", "maxconn=1 queuetimeout=100ms timeout=30s"),
        ("auth", "auth=f timeout=200ms"),
        ("held", "maxconn=1"),
    ]
    .map(|(host, options)| format!("route add s {host}/ {} opts \"{options}\"\n", origin.url()))
    .concat();
    let scheme = format!("name=f;type=forward;url={};timeout=30s", service.url());
    let proxy = Start::routes(lines).property("proxy.auth", scheme).start().await;
    let mut held = proxy.client().await;
    held.send("GET /held HTTP/1.1\r\nHost: held\r\n\r\n").await;
    origin.wait(1).await;
    let begun = Instant::now();
    for (host, status) in [("queue", 504), ("short", 503), ("auth", 504)] {
        assert_eq!(proxy.get(host, "/").await.status, status, "{host}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!((origin.seen().len(), service.seen().len()), (1, 1));
    gate.open();
    assert_eq!(held.response().await.status, 200);
    assert_eq!(proxy.get("auth", "/").await.status, 200);
}

#[tokio::test]
async fn an_ejected_instance_comes_back() {
    let (proxy, origins) =
        one_bad_of_three(origin::reply(500, &[], ""), "retry=1 ejecttime=300ms ejectmax=300ms").await;
    let mut client = proxy.client().await;
    for _ in 0..30 {
        assert_eq!(client.get("h", "/").await.status, 200);
    }
    assert!(origins[2].seen().len() <= 6, "{}", origins[2].seen().len());
    let slow = format!("route add new /new {} opts \"slowstart=1h\"", origins[0].url());
    let bad = format!("route add s / http://{}/\n", free_addr());
    let other = Start::routes(format!("{bad}{slow}")).start().await;
    for _ in 0..6 {
        assert_eq!(other.get("h", "/").await.status, 502);
    }
    let conditions = other.page("/api/targets").await.text();
    for part in [r#""state":"ejected","reason":"connections""#, r#""path":"/new""#, r#""state":"slow_start""#] {
        assert!(conditions.contains(part), "{part}: {conditions}");
    }
    origins[2].always(origin::reply(200, &[], "bad"));
    proxy.serves("h", "/", "bad").await;
    let before = origins[2].seen().len();
    for _ in 0..30 {
        assert_eq!(client.get("h", "/").await.status, 200);
    }
    assert_eq!(origins[2].seen().len() - before, 10);
}

#[tokio::test]
async fn where_all_instances_fail_retries_do_not_pile_up() {
    let origins = [Origin::start("a").await, Origin::start("b").await, Origin::start("c").await];
    for origin in &origins {
        origin.always(origin::reply(503, &[], ""));
    }
    let targets: Vec<String> = origins.iter().map(Origin::url).collect();
    let proxy = Start::routes(routes(&targets, "retry=3")).start().await;
    let clients = (0..8).map(async |_| {
        let mut client = proxy.client().await;
        for _ in 0..200 {
            assert_eq!(client.get("h", "/").await.status, 503);
        }
    });
    all(clients).await;
    let seen: usize = origins.iter().map(|origin| origin.seen().len()).sum();
    assert!((1600 + 100..1600 * 5 / 4).contains(&seen), "{seen}");
    until(PATIENCE, "the end of it", async || {
        origins.iter().for_each(|origin| origin.always(origin::reply(200, &[], "x")));
        (proxy.get("h", "/").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_target_whose_check_fails_is_passed_over() {
    let origins = [Origin::start("a").await, Origin::start("b").await];
    origins[1].on("/health", origin::reply(503, &[], ""));
    let targets: Vec<String> = origins.iter().map(Origin::url).collect();
    let options = "check=http:/health checkinterval=100ms checktimeout=5s";
    let proxy = Start::routes(routes(&targets, options)).property("proxy.strategy", "rr").start().await;
    until(PATIENCE, "the end of requests to b", async || {
        let mut bodies = Vec::new();
        for _ in 0..4 {
            bodies.push(proxy.get("h", "/").await.text());
        }
        bodies.iter().all(|body| body == "a").then_some(())
    })
    .await;
    assert!(proxy.page("/api/targets").await.text().contains(r#""reason":"probe""#));
    origins[1].on("/health", origin::reply(204, &[], ""));
    proxy.serves("h", "/", "b").await;
    let probe = origins[0].seen().into_iter().find(|seen| seen.target() == "/health").expect("a probe");
    assert_eq!(probe.header("host"), Some(origins[0].addr().to_string().as_str()));
}
