//! One client connection that speaks HTTP/2: streams, each with a request of its own.
//!
//! What a request means is not known here. A request is brought into the form in which HTTP/1.1 has it (Host instead of
//! `:authority`, a path as its target), and a response loses what belongs to HTTP/1.1 connections only.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Parts as UriParts;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::Body;
use super::serve::Listener;
use super::{Client, Worker};
use crate::life::{Phase, Watch};
use crate::net::{Peer, Stream};
use crate::upstream::Inbound;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until it ends. From [`Phase::Closing`] on the client is told to go away (RFC 9113, section 6.8),
/// and the streams that it has begun are finished.
pub(super) async fn serve(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, mut life: Watch) {
    let mut builder = http2::Builder::new(Local);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .max_header_list_size(u32::try_from(worker.config.max_header_size).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let remote = peer.remote;
    let idle = listener.idle_timeout;
    let streams = Rc::new(Streams::default());
    let service = {
        let streams = streams.clone();
        service_fn(move |request| {
            let open = streams.clone().open();
            let client = Client {
                worker: worker.clone(),
                listener: listener.clone(),
                peer: peer.clone(),
                tunnel: RefCell::new(None),
            };
            answer(client, request, open)
        })
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = life.reached(Phase::Closing) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Somebody who has not even said what is spoken here is not waited for.
                () = streams.idle(LAST_WORDS) => Ok(()),
            }
        }
        () = streams.idle(idle) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = streams.idle(LAST_WORDS) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("{remote}: {error}");
    }
}

async fn answer(client: Client, mut request: Request<Incoming>, open: Open) -> Result<Response<Body>, Error> {
    let wt = client.listener.write_timeout;
    let deadline = (!wt.is_zero()).then(|| Instant::now() + wt);
    let head_only = *request.method() == Method::HEAD;
    to_http1(&mut request);
    let response = match deadline {
        None => client.handle(request.map(Inbound::Http2)).await,
        Some(deadline) => tokio::time::timeout_at(deadline, client.handle(request.map(Inbound::Http2)))
            .await
            .map_err(|_| "the response took longer than the listener's wt")?,
    };
    let (mut head, mut body) = response.into_parts();
    remove_connection_headers(&mut head.headers);
    head.version = Version::HTTP_2;
    if head_only && !http_body::Body::is_end_stream(&body) {
        if let Some(length) = http_body::Body::size_hint(&body).exact() {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        body = body.without_content();
    }
    Ok(Response::from_parts(head, body.with_deadline(deadline).on_done(move || drop(open))))
}

/// `:authority` becomes Host, and the target a path. A Host that says something else makes two of them, which is refused
/// as it is on HTTP/1.1 (RFC 9113, section 8.3.1). Crumbs of cookies are put together (section 8.2.3).
fn to_http1<B>(request: &mut Request<B>) {
    join_cookies(request.headers_mut());
    if *request.method() == Method::CONNECT {
        return;
    }
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(authority)) = authority {
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) || host.is_empty();
        if request.headers().get_all(HOST).iter().all(same) {
            request.headers_mut().insert(HOST, authority);
        } else {
            request.headers_mut().append(HOST, authority);
        }
    }
    if let Some(path_and_query) = request.uri().path_and_query().cloned() {
        let mut parts = UriParts::default();
        parts.path_and_query = Some(path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(cookie) = HeaderValue::from_maybe_shared(bytes::Bytes::from(crumbs.join(&b"; "[..]))) {
        headers.insert(COOKIE, cookie);
    }
}

/// RFC 9113, section 8.2.2.
fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in [&CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &KEEP_ALIVE, &PROXY_CONNECTION] {
        headers.remove(name);
    }
}

/// The streams of a connection, as far as idling is concerned.
#[derive(Default)]
struct Streams {
    open: Cell<usize>,
    changed: Notify,
}

/// A stream. Dropping it ends it.
struct Open(Rc<Streams>);

impl Streams {
    fn open(self: Rc<Self>) -> Open {
        self.open.set(self.open.get() + 1);
        self.changed.notify_one();
        Open(self)
    }

    /// Ends once there was no stream for so long; 0: never.
    async fn idle(&self, limit: Duration) {
        if limit.is_zero() {
            return std::future::pending().await;
        }
        loop {
            if self.open.get() > 0 {
                self.changed.notified().await;
            } else if tokio::time::timeout(limit, self.changed.notified()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.changed.notify_one();
    }
}

/// Streams are tasks of the worker's own thread.
#[derive(Clone, Copy)]
struct Local;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

const STREAMS: u32 = 250;
/// Streams that a client has reset before they were looked at (rapid reset, CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Streams that we have reset for what the client did wrong (CVE-2025-8671).
const ERROR_RESETS: usize = 1024;
/// A slow target, and a client that sends to it, cost no more than this.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Of a stream whose client does not read.
const SEND_BUFFER: usize = 64 * 1024;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// From GOAWAY to the end of a connection without streams.
const LAST_WORDS: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_becomes_host() {
        for (authority, hosts, result) in [
            ("a.com", &[][..], &["a.com"][..]),
            ("a.com:8443", &["a.com:8443"], &["a.com:8443"]),
            ("a.com", &["A.com"], &["a.com"]),
            ("a.com", &["b.com"], &["b.com", "a.com"]),
            ("a.com", &["a.com", "b.com"], &["a.com", "b.com", "a.com"]),
        ] {
            let mut request = Request::get(format!("https://{authority}/x?q=1"));
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let mut request = request.body(()).expect("valid");
            to_http1(&mut request);
            let got: Vec<_> = request.headers().get_all(HOST).iter().collect();
            assert_eq!(got, result, "{authority} {hosts:?}");
            assert_eq!(request.uri(), "/x?q=1");
        }
    }

    #[test]
    fn crumbs_become_one_cookie() {
        for (crumbs, cookie) in [(&["a=1", "b=2", "c=3"][..], &["a=1; b=2; c=3"][..]), (&["a=1"], &["a=1"]), (&[], &[])]
        {
            let mut headers = HeaderMap::new();
            for crumb in crumbs {
                headers.append(COOKIE, HeaderValue::from_static(crumb));
            }
            join_cookies(&mut headers);
            assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), cookie);
        }
    }
}
