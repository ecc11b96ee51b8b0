//! The access log as an operator sees it. What each field shows is tested where lines are made.

use crate::proxy::Start;
use crate::testing::origin::{self, Origin};
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, until};

const FORMAT: &str =
    "$request_uri|$response_status|$outcome|$protocol|$upstream_service|$response_body_size|$bytes_received";

async fn lines(read: impl Fn() -> String, count: usize) -> Vec<String> {
    until(PATIENCE, &format!("{count} lines of the access log"), async || {
        let lines: Vec<String> = read().lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn everything_is_logged_if_asked_for() {
    let app = Origin::start("app").await;
    app.on("/cut", origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").close());
    app.on("/ws", origin::websocket());
    let url = app.url();
    let routes = format!(
        "route add app h/ {url}\nroute add r /old http://x/ opts \"redirect=301\"\n\
         route add d /deny {url} opts \"deny=ip:127.0.0.1\"\nroute add gone /gone http://127.0.0.1:1/\n"
    );
    let mut proxy = Start::routes(routes)
        .property("log.access.target", "stdout")
        .property("log.access.format", FORMAT)
        .property("log.access.all", true)
        .one_worker()
        .start()
        .await;
    let (stranger, home) = ("stranger", "h");
    assert_eq!(proxy.get(home, "/a?token=1").await.status, 200);
    assert_eq!(proxy.get(stranger, "/none").await.status, 404);
    assert_eq!(proxy.get(stranger, "/old").await.status, 301);
    assert_eq!(proxy.get(stranger, "/deny").await.status, 403);
    assert_eq!(proxy.get(stranger, "/gone").await.status, 502);
    assert_eq!(proxy.status("GET /bad HTTP/1.1\r\nHost: a b\r\n\r\n").await, 400);
    let mut client = proxy.client().await;
    client.send("GET /cut HTTP/1.1\r\nHost: h\r\n\r\n").await;
    client.rest().await;
    let mut client = proxy.client().await;
    client.send("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    client.send("frame").await;
    assert_eq!(client.exact(5).await, b"frame");
    client.finish().await;
    client.closed().await;
    let got = {
        let process = proxy.ferrio.process();
        lines(|| process.stdout(), 8).await
    };
    let moved = got.iter().find(|line| line.starts_with("/old|")).expect("a redirect");
    assert!(moved.starts_with("/old|301|redirect|http||"), "{moved}");
    for want in [
        "/a?token=1|200|done|http|app|3|",
        "/none|404|no_route|http||0|",
        "/deny|403|denied|http||14|",
        "/gone|502|connect|http|gone|0|",
        "/bad|400|refused|http||22|",
        "/cut|200|cut|http|app|3|",
        "/ws|101|done|websocket|app|5|5",
    ] {
        assert!(got.iter().any(|line| line == want), "no {want} in {got:#?}");
    }
    assert_eq!(got.len(), 8, "{got:#?}");
    proxy.ends_well().await;
}

#[tokio::test]
async fn only_errors_are_logged_if_asked_for() {
    let app = Origin::start("app").await;
    app.on("/bad", origin::reply(500, &[], ""));
    app.on("/call", origin::chunked(&[("Content-Type", "application/grpc")]).chunk("x").end(&[("grpc-status", "5")]));
    app.on("/head", origin::reply(200, &[("grpc-status", "13")], ""));
    let mut proxy = Start::routes(format!("route add app / {}", app.url()))
        .property("log.access.target", "stdout")
        .property("log.access.format", "$request_uri $response_status $grpc_status $protocol")
        .property("log.access.filter", "errors")
        .one_worker()
        .start()
        .await;
    for target in ["/good", "/bad", "/call", "/head"] {
        let mut client = proxy.client().await;
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\r\n"))
            .await;
        client.response().await;
    }
    let process = proxy.ferrio.process();
    let got = lines(|| process.stdout(), 3).await;
    assert_eq!(got, ["/bad 500  grpc", "/call 200 5 grpc", "/head 200 13 grpc"]);
}

#[tokio::test]
async fn a_line_tells_what_it_took() {
    let app = Origin::start("app").await;
    let mut proxy = Start::routes(format!("route add app / {}", app.url()))
        .property("log.access.target", "stdout")
        .property("log.access.format", "$request_uri|$connect_time_ns|$first_byte_time_ns|$retries|$request_id")
        .property("proxy.header.requestid", "X-Request-Id")
        .one_worker()
        .start()
        .await;
    proxy.get("h", "/1").await;
    let process = proxy.ferrio.process();
    let got = lines(|| process.stdout(), 1).await;
    let fields: Vec<&str> = got[0].split('|').collect();
    let seconds = |text: &str| text.parse::<f64>().unwrap_or(-1.0);
    assert!(seconds(fields[1]) > 0.0 && seconds(fields[2]) > seconds(fields[1]), "{got:?}");
    assert_eq!((fields[3], fields[4].len()), ("0", 36), "{got:?}");
}

#[tokio::test]
async fn a_file_is_opened_again_on_hangup_and_complete_at_the_end() {
    let app = Origin::start("app").await;
    let mut proxy = Start::routes(format!("route add app / {}", app.url()))
        .property("log.access.target", "file:access.log")
        .property("log.access.format", "$request_uri")
        .property("log.access.masquery", "token")
        .start()
        .await;
    let path = proxy.ferrio.dir().join("access.log");
    let moved = proxy.ferrio.dir().join("moved.log");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    proxy.get("h", "/1?token=x&y=z").await;
    assert_eq!(lines(|| read(&path), 1).await, ["/1?token=***&y=z"]);
    std::fs::rename(&path, &moved).expect("own directory");
    proxy.ferrio.signal(Signal::HUP);
    until(PATIENCE, "the new file", async || path.exists().then_some(())).await;
    proxy.get("h", "/2").await;
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert_eq!(read(&path), "/2\n");
    assert_eq!(read(&moved).lines().count(), 1);
}
