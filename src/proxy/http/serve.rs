//! One client connection: requests until it ends, then perhaps a tunnel.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::Body;
use super::{Client, Tunnel, Worker, h2};
use crate::life::{Phase, Watch};
use crate::net::{Clock, Peer, Stream, Timed, tunnel};
use crate::upstream::Inbound;

/// What all connections of one listener share.
#[derive(Clone)]
pub struct Listener {
    /// `rt`; 0: no limit.
    pub read_timeout: Duration,
    /// `wt`; 0: no limit.
    pub write_timeout: Duration,
    /// `it`, or `rt` if that is not set; 0: no limit.
    pub idle_timeout: Duration,
    /// A client that has closed its sending side still gets its answer.
    pub half_close: bool,
    /// Set on listeners with TLS.
    pub misdirected: Option<Misdirected>,
}

/// Is a request for this authority on the wrong connection, one that was made for another server name?
pub type Misdirected = Rc<dyn Fn(Option<&str>, &str) -> bool>;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until it ends. From [`Phase::Closing`] on only the request under way is finished.
pub async fn serve(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, mut life: Watch) {
    if stream.is_h2() {
        // In a box of its own: connections that speak HTTP/1.1 are to be small.
        return Box::pin(h2::serve(stream, peer, listener, worker, life)).await;
    }
    let clock = Rc::new(Clock::default());
    clock.idle(listener.idle_timeout, listener.read_timeout);
    let io = TokioIo::new(Timed::new(stream, clock.clone()));
    let config = &worker.config;
    // Accepted at the very end: one request is served, then the connection ends.
    let last = life.phase() >= Phase::Closing;
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(!last)
        .half_close(listener.half_close)
        .preserve_header_case(true)
        .title_case_headers(true)
        .max_headers(config.max_headers)
        .max_header_size(config.max_header_size)
        .max_buf_size(config.max_header_size.max(MIN_BUFFER) + SLACK)
        // Times are kept by the clock, which tells idling from reading a head.
        .header_read_timeout(None);
    let client = Rc::new(Client { worker: worker.clone(), listener, peer, clock, tunnel: RefCell::new(None) });
    let service = {
        let client = client.clone();
        service_fn(move |request| {
            let client = client.clone();
            async move { answer(client, request).await }
        })
    };
    let mut connection = builder.serve_connection(io, service);
    let ended = {
        let mut connection = Pin::new(&mut connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = life.reached(Phase::Closing), if !last => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        // Clients come and go; this is of interest only to whoever looks at one of them.
        tracing::debug!("{}: {error}", client.peer.remote);
        return;
    }
    let Some(Tunnel { mut upgraded, mut record, _open }) = client.tunnel.take() else { return };
    let parts = connection.into_parts();
    client.clock.unlimited();
    client.clock.write_until(None);
    let mut stream = parts.io.into_inner();
    tokio::select! {
        copied = tunnel(&mut stream, &mut upgraded.stream, &parts.read_buf, &upgraded.read) => {
            match copied {
                Ok(copied) => record.copied(copied.forth, copied.back),
                Err(error) => tracing::debug!("{}: {error}", client.peer.remote),
            }
        }
        () = life.reached(Phase::Closing) => {}
    }
}

async fn answer(
    client: Rc<Client>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Body>, Error> {
    let listener = &client.listener;
    if http_body::Body::is_end_stream(request.body()) {
        client.clock.unlimited();
    } else {
        client.clock.each(listener.read_timeout);
    }
    let deadline = (!listener.write_timeout.is_zero()).then(|| Instant::now() + listener.write_timeout);
    client.clock.write_until(deadline);
    let response = match deadline {
        None => client.handle(request.map(Inbound::Http1)).await,
        Some(deadline) => tokio::time::timeout_at(deadline, client.handle(request.map(Inbound::Http1)))
            .await
            .map_err(|_| "the response took longer than the listener's wt")?,
    };
    let clock = client.clock.clone();
    let (idle, head) = (listener.idle_timeout, listener.read_timeout);
    let is_tunnel = client.tunnel.borrow().is_some();
    Ok(response.map(|body| {
        body.with_deadline(deadline).on_done(move || {
            if !is_tunnel {
                clock.idle(idle, head);
            }
        })
    }))
}

/// hyper asks for at least this much.
const MIN_BUFFER: usize = 8192;
/// The buffer must hold a whole head and some more, or a head at its limit could not be told from a longer one.
const SLACK: usize = 16 * 1024;
