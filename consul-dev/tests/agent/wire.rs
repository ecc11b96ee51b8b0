//! One HTTP exchange per connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn index(&self) -> u64 {
        self.header("x-consul-index").expect("an index").parse().unwrap()
    }
}

/// The error says what the connection did instead of answering.
pub(crate) async fn try_call(addr: SocketAddr, method: &str, target: &str, body: &str) -> Result<Answer, String> {
    let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", addr.to_string())
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
    connection.abort();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

pub(crate) async fn call(addr: SocketAddr, method: &str, target: &str, body: &str) -> Answer {
    let answer = tokio::time::timeout(Duration::from_secs(30), try_call(addr, method, target, body)).await;
    answer.expect("an answer in time").unwrap_or_else(|e| panic!("{method} {target}: {e}"))
}

pub(crate) async fn get(addr: SocketAddr, target: &str) -> Answer {
    call(addr, "GET", target, "").await
}

/// PUT that must succeed.
pub(crate) async fn put(addr: SocketAddr, target: &str, body: &str) -> Answer {
    let answer = call(addr, "PUT", target, body).await;
    assert_eq!(answer.status, 200, "PUT {target}: {}", answer.text());
    answer
}

/// Wait until `probe` gives a value, at most `seconds`.
pub(crate) async fn until<T>(seconds: u64, what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {seconds} s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
