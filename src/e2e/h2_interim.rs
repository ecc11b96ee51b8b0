//! Interim answers over HTTP/2 (RFC 9110, section 15.2; RFC 9113, section 8.1), from and to either protocol.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use h2::client::ResponseFuture;
use http::{HeaderMap, Response};

use crate::codec::eager;
use crate::proxy::{Proxy, Start};
use crate::testing::h2::{H2Client, H2Origin, Served, collect, send_data};
use crate::testing::origin::Origin;
use crate::testing::soon;

/// In front of whoever the route leads to, with HTTP/2 by prior knowledge.
async fn h2c(route: String) -> (Proxy, H2Client) {
    let proxy = Start::routes(route).property("proxy.addr", "ADDR;h2c=true").start().await;
    let client = H2Client::connect(proxy.addr).await;
    (proxy, client)
}

async fn interim(answer: &mut ResponseFuture) -> Option<Response<()>> {
    let next = soon("an interim answer", poll_fn(|cx| answer.poll_informational(cx))).await;
    next.map(|response| response.expect("whole"))
}

fn post(client: &H2Client) -> http::request::Builder {
    client.request("POST", "h", "/").header("expect", "100-continue").header("content-length", "5")
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on() {
    // The target knows nothing of it.
    let origin = Origin::start("o").await;
    let (_proxy, client) = h2c(format!("route add o / http://{}/", origin.addr())).await;
    let (mut answer, mut stream) = client.open(post(&client), false).await.expect("a stream");
    let go_on = interim(&mut answer).await.expect("100");
    assert_eq!((go_on.status().as_u16(), go_on.headers()), (100, &HeaderMap::new()));
    send_data(&mut stream, "hello".into(), true).await.expect("sent");
    assert_eq!(soon("an answer", answer).await.expect("an answer").status(), 200);
    assert_eq!(origin.last().body.bytes, b"hello");
    // One that does not wait is not waited for.
    let begun = Instant::now();
    assert_eq!(client.send(post(&client), b"hello").await.status, 200);
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_target_decides_whether_it_goes_on() {
    let no = eager(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await;
    let (_proxy, client) = h2c(format!("route add o / http://{}/", no.addr())).await;
    let (mut answer, _stream) = client.open(post(&client), false).await.expect("a stream");
    assert!(interim(&mut answer).await.is_none(), "told to go on");
    assert_eq!(soon("an answer", answer).await.expect("an answer").status(), 413);
    // Nobody to ask.
    let (_proxy, client) = h2c(String::new()).await;
    let (mut answer, _stream) = client.open(post(&client), false).await.expect("a stream");
    assert!(interim(&mut answer).await.is_none(), "told to go on");
    assert_eq!(soon("an answer", answer).await.expect("an answer").status(), 404);
}

#[tokio::test]
async fn early_hints_of_a_target_arrive() {
    let hints = eager(
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Own: 1\r\nConnection: x-own\r\n\r\n\
          HTTP/1.1 100 Continue\r\n\r\n\
          HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let (_proxy, client) = h2c(format!("route add o / http://{}/", hints.addr())).await;
    let (mut answer, _) = client.open(client.request("GET", "h", "/"), true).await.expect("a stream");
    for link in ["</a.css>", "</b.css>"] {
        let early = interim(&mut answer).await.expect("103");
        assert_eq!(early.status(), 103);
        assert_eq!(early.headers().len(), 1, "{early:?}");
        assert_eq!(early.headers()["link"], link);
    }
    assert!(interim(&mut answer).await.is_none());
    let answer = soon("an answer", answer).await.expect("an answer");
    assert_eq!(collect(answer).await.expect("whole").text(), "ok");
}

async fn hinting(mut served: Served) {
    let early = Response::builder().status(103).header("link", "</a.css>").body(()).expect("valid");
    let _ = served.respond.send_informational(early);
    served.reply(&[], "ok").await;
}

#[tokio::test]
async fn those_of_a_target_that_speaks_http2_arrive_at_either_client() {
    let origin = H2Origin::start(hinting).await;
    let (proxy, client) = h2c(format!("route add o / http://{}/ opts \"proto=h2c\"", origin.addr())).await;
    let (mut answer, _) = client.open(client.request("GET", "h", "/"), true).await.expect("a stream");
    assert_eq!(interim(&mut answer).await.expect("103").headers()["link"], "</a.css>");
    assert_eq!(soon("an answer", answer).await.expect("an answer").status(), 200);

    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let early = soon("103", client.head()).await;
    assert_eq!((early.word(1), early.one("link")), ("103", Some("</a.css>")));
    assert_eq!(client.response().await.text(), "ok");
    // HTTP/1.0 has no such thing.
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.0\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.response().await.status, 200);
}

#[tokio::test]
async fn a_target_without_end_of_them_is_given_up() {
    let origin = H2Origin::start(|mut served: Served| async move {
        loop {
            let early = Response::builder().status(103).body(()).expect("valid");
            if served.respond.send_informational(early).is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (_proxy, client) = h2c(format!("route add o / http://{}/ opts \"proto=h2c\"", origin.addr())).await;
    assert_eq!(client.get("h", "/").await.status, 502);
}

#[tokio::test]
async fn an_extended_connect_has_the_limits_of_other_requests() {
    let silent = eager(b"").await;
    let proxy = Start::routes(format!("route add o / http://{}/", silent.addr()))
        .property("proxy.addr", "ADDR;h2c=true;wt=500ms")
        .property("proxy.maxheaders", "20")
        .start()
        .await;
    let client = H2Client::connect(proxy.addr).await;
    let connect = |fields: usize| {
        let mut request = http::Request::builder()
            .method("CONNECT")
            .uri("http://h/")
            .extension(h2::ext::Protocol::from_static("websocket"));
        for number in 0..fields {
            request = request.header(format!("x-{number}"), "1");
        }
        request
    };
    // Once the settings of the proxy are known.
    let many = (0..30).fold(client.request("GET", "h", "/"), |get, number| get.header(format!("x-{number}"), "1"));
    assert_eq!(client.send(many, b"").await.status, 431);
    let (answer, _stream) = client.open(connect(30), false).await.expect("a stream");
    assert_eq!(soon("an answer", answer).await.expect("an answer").status(), 431);
    let (answer, _stream) = client.open(connect(0), false).await.expect("a stream");
    let error = soon("a reset", answer).await.expect_err("no answer in time");
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
}
