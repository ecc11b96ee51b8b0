//! The HTTP side: connections, faults, and from request to answer. What a path means is in `routes`.

mod agent;
mod answer;
mod blocking;
mod catalog;
mod filter;
mod health;
mod kv;
mod routes;
mod sessions;
mod status;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::agent::Shared;
use crate::faults::Fault;

use answer::{Answer, Payload, Reply};

/// Serve connections until the task is aborted, which cuts them.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.config.max_connections));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely; some may come free.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            connection(stream, shared).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Small answers; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let mut restarts = shared.restarts();
    let service = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        _ = restarts.changed() => {}
        result = connection => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            }
        }
    }
}

/// The error ends the connection without an answer.
async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Response<Reply>> {
    let (parts, body) = request.into_parts();
    let faults = shared.faults.take(&parts);
    let mut answer = match before(&parts, &faults).await {
        Some(answer) => answer,
        None => match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => routes::answer(&shared, &parts, body.to_bytes()).await,
            Err(error) if error.is::<LengthLimitError>() => {
                Answer::text(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large").closing()
            }
            Err(error) => return Err(io::Error::other(error)),
        },
    };
    let cut = after(&mut answer, &faults);
    let pretty = shared.config.pretty || parts.uri.query().is_some_and(|query| query.contains("pretty"));
    render(answer, pretty, cut)
}

/// Faults that come before the answer is made. `Some` is the answer.
async fn before(request: &Parts, faults: &[Fault]) -> Option<Answer> {
    for fault in faults {
        match fault {
            Fault::Error(status, text) => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Some(Answer::text(status, text.clone()));
            }
            Fault::Hang => match std::future::pending::<Infallible>().await {},
            Fault::Slow(delay) => tokio::time::sleep(*delay).await,
            Fault::LeaderLoss => {
                if let Some(answer) = leaderless(request) {
                    return Some(answer);
                }
            }
            Fault::Empty | Fault::Cut | Fault::IndexReset(_) | Fault::DropIndexHeader | Fault::Filtered => {}
        }
    }
    None
}

/// What a server answers that knows no leader; `None` if it does not need one.
fn leaderless(request: &Parts) -> Option<Answer> {
    let path = request.uri.path();
    if path.starts_with("/v1/agent/") || path == "/v1/catalog/datacenters" {
        return None;
    }
    match path {
        "/v1/status/leader" => return Some(Answer::json("".into())),
        "/v1/status/peers" => return Some(Answer::json(Vec::<String>::new().into())),
        _ => {}
    }
    let answer = Answer::error("No cluster leader");
    let with_meta = ["/v1/catalog/", "/v1/health/", "/v1/session/"].iter().any(|prefix| path.starts_with(prefix));
    Some(if with_meta && request.method == http::Method::GET { answer.unknown_leader() } else { answer })
}

/// Faults in the answer. Returns whether it is to be cut.
fn after(answer: &mut Answer, faults: &[Fault]) -> bool {
    let mut cut = false;
    for fault in faults {
        match fault {
            Fault::Empty => answer.make_empty(),
            Fault::Cut => cut = true,
            Fault::IndexReset(index) => answer.set_index(Some(*index)),
            Fault::DropIndexHeader => answer.set_index(None),
            Fault::Filtered => answer.header("x-consul-results-filtered-by-acls", "true"),
            Fault::Error(..) | Fault::Hang | Fault::Slow(_) | Fault::LeaderLoss => {}
        }
    }
    cut
}

fn render(answer: Answer, pretty: bool, cut: bool) -> io::Result<Response<Reply>> {
    let mut response = Response::builder().status(answer.status);
    let (content_type, bytes) = match answer.payload {
        Payload::None => (None, Bytes::new()),
        Payload::Json(value) => (Some("application/json"), answer::json_text(&value, pretty).into()),
        Payload::Text(text) => (Some("text/plain; charset=utf-8"), text.into()),
        Payload::Page(text) => (Some("text/html; charset=utf-8"), text.into()),
        Payload::Raw(bytes) => (Some("text/plain"), bytes),
    };
    if let Some(content_type) = content_type {
        response = response.header(header::CONTENT_TYPE, content_type);
    }
    for (name, value) in answer.headers {
        let value = HeaderValue::from_str(&value).map_err(io::Error::other)?;
        response = response.header(HeaderName::from_static(name), value);
    }
    let reply = match (cut, bytes.len()) {
        (false, _) => Reply::whole(bytes),
        (true, 0) => return Err(io::Error::other("cut before the answer")),
        (true, _) => Reply::half(bytes),
    };
    response.body(reply).map_err(io::Error::other)
}

/// The largest body that is read.
const MAX_BODY: usize = 8 * 1024 * 1024;
