//! The peers of the tests are themselves tested, or a test could pass because its peer does nothing.

use std::time::Duration;

use serde_json::json;

use crate::testing::certs::Ca;
use crate::testing::client::{self, Client};
use crate::testing::consul::Consul;
use crate::testing::origin::{self, Gate, Origin, TcpOrigin, reply};
use crate::testing::process::{Process, Signal};
use crate::testing::wire::Framing;
use crate::testing::{PATIENCE, free_addr, until};

#[tokio::test]
async fn an_origin_records_requests_as_they_came() {
    let origin = Origin::start("a").await;
    let mut client = Client::connect(origin.addr()).await;
    client.send("POST /x?y=%2f HTTP/1.1\r\nhOST: h\r\nx-A: 1\r\nX-a:  2 \r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send_slowly("3\r\nabc\r\n1;ext\r\nd\r\n0\r\nT: end\r\n\r\nGET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.response().await.text(), "a");
    assert_eq!(client.response().await.text(), "a", "pipelined");

    let seen = origin.wait(2).await;
    assert_eq!((seen.method(), seen.target(), seen.connection), ("GET", "/", 0));
    let first = &origin.seen()[0];
    assert_eq!((first.method(), first.target(), first.peer), ("POST", "/x?y=%2f", client.local_addr()));
    let names: Vec<&str> = first.head.fields.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["hOST", "x-A", "X-a", "Transfer-Encoding"]);
    assert_eq!(first.head.all("X-A"), ["1", "2"]);
    assert_eq!((&first.body.bytes[..], first.body.framing), (&b"abcd"[..], Framing::Chunked));
    assert_eq!(first.body.trailers.one("t"), Some("end"));
}

#[tokio::test]
async fn an_origin_follows_its_script() {
    let origin = Origin::start("a").await;
    let gate = Gate::new();
    origin.on("/chunks", origin::chunked(&[]).chunk("one").gate(&gate).chunk("two").end(&[("X", "y")]));
    origin.on("/close", origin::until_close("all"));
    origin.on("/early", origin::interim(103, &[("Link", "</a>")], reply(404, &[("X", "y")], "no")));
    origin.on("/hang-up", origin::hang_up());
    origin.on("/idle", reply(200, &[], "i").close_idle(Duration::from_millis(20)));
    origin.on("/half", origin::raw("HTTP/1.1 200 OK\r\nContent-Le").close());

    let mut client = Client::connect(origin.addr()).await;
    client.send("GET /chunks HTTP/1.1\r\n\r\n").await;
    client.final_head().await;
    assert_eq!(client.chunk().await.as_deref(), Some(&b"one"[..]));
    gate.open();
    assert_eq!(client.chunk().await.as_deref(), Some(&b"two"[..]));
    assert_eq!(client.chunk().await, None);

    let early = client.get("h", "/early").await;
    assert_eq!((early.status, early.header("x"), early.text().as_str()), (404, Some("y"), "no"));
    assert_eq!(early.interim[0].one("link"), Some("</a>"));

    client.send("HEAD / HTTP/1.1\r\n\r\n").await;
    let head = client.response_to("HEAD").await;
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some("1"), ""));

    assert_eq!(client.get("h", "/idle").await.text(), "i");
    client.closed().await;
    let close = client::get(origin.addr(), "h", "/close").await;
    assert_eq!((close.text().as_str(), close.body.framing), ("all", Framing::UntilClose));
    for path in ["/hang-up", "/half"] {
        let mut client = Client::connect(origin.addr()).await;
        client.send(format!("GET {path} HTTP/1.1\r\n\r\n")).await;
        assert!(!client.rest().await.ends_with(b"\r\n\r\n"), "{path}");
    }
    until(PATIENCE, "no connection open", async || (origin.open() == 0).then_some(())).await;
    assert_eq!(origin.accepted(), 4);
}

#[tokio::test]
async fn resets_are_resets() {
    let origin = Origin::start("a").await;
    origin.always(origin::reset());
    let mut client = Client::connect(origin.addr()).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    let error = client.wire.rest().await.expect_err("a reset is no end of stream");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn tunnels_echo() {
    let origin = Origin::start("a").await;
    origin.always(origin::websocket());
    let mut client = Client::connect(origin.addr()).await;
    client.send("GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x01\x02").await;
    assert_eq!(client.response().await.status, 101);
    client.send("frame").await;
    assert_eq!(client.exact(7).await, b"\x01\x02frame");

    let raw = TcpOrigin::echo().await;
    let mut client = Client::connect_from("127.0.0.9", raw.addr()).await;
    assert_eq!(client.local_addr().ip().to_string(), "127.0.0.9");
    client.send("abc").await;
    client.finish().await;
    assert_eq!(client.rest().await, b"abc");
    let first = TcpOrigin::banner("220 ready\r\n").await;
    assert_eq!(Client::connect(first.addr()).await.exact(11).await, b"220 ready\r\n");
}

#[tokio::test]
async fn certificates_are_believed_by_those_who_trust_their_authority() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test", "127.0.0.1"]);
    let origin = Origin::start_tls("secure", ca.server(&leaf, &["http/1.1"])).await;
    let mut client = Client::connect_tls(origin.addr(), "a.test", ca.client(&[])).await;
    assert_eq!(client.get("a.test", "/").await.text(), "secure");
    let refused = [("a.test", Ca::new().client(&[])), ("b.test", ca.client(&[]))];
    for (name, config) in refused {
        assert!(Client::connect(origin.addr()).await.try_tls(name, config).await.is_err(), "{name}");
    }
    assert!(std::fs::read_to_string(&leaf.cert_path).is_ok_and(|pem| pem == leaf.cert_pem));
}

#[tokio::test]
async fn a_process_is_heard_and_signalled() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "trap 'echo bye; exit 3' TERM; echo ready >&2; while :; do sleep 0.02; done";
    let mut shell = Process::start("/bin/sh".as_ref(), &["-c", script], dir.path(), &[("A", "b")]);
    shell.says(PATIENCE, "ready").await;
    shell.signal(Signal::TERM);
    assert_eq!(shell.wait(PATIENCE).await.code(), Some(3));
    assert_eq!(shell.stdout(), "bye\n");
}

#[tokio::test]
async fn a_real_consul_keeps_what_it_is_told() {
    let consul = Consul::real().await;
    let addr = free_addr();
    consul.put("web-1", "web", addr, &["urlprefix-/web"], &["passing", "critical"]).await;
    consul.wait_passing("web", 0).await;
    consul.put_check("web-1", 1, "passing").await;
    let found = consul.wait_passing("web", 1).await;
    assert_eq!(found[0]["Service"]["Tags"], json!(["urlprefix-/web"]));
    assert_eq!(found[0]["Service"]["Port"], json!(addr.port()));
    consul.drop("web-1").await;
    consul.wait_passing("web", 0).await;

    consul
        .register(json!({ "ID": "api-1", "Name": "api", "Port": 1, "Check": { "CheckID": "c", "TTL": "60s" } }))
        .await;
    consul.check("c", "pass").await;
    consul.wait_passing("api", 1).await;
    consul.maintenance("api-1", true).await;
    consul.wait_passing("api", 0).await;
    consul.deregister("api-1").await;

    consul.kv_put("fabio/config", "route add a / http://a/").await;
    assert_eq!(consul.kv_get("fabio/config").await.as_deref(), Some("route add a / http://a/"));
    consul.kv_delete("fabio").await;
    assert_eq!(consul.kv_get("fabio/config").await, None);
}
