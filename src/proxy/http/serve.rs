//! One client connection that speaks HTTP/1.1: requests until it ends, then perhaps a tunnel.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body as _;

use super::body::Body;
use super::{Client, ClientHeaders, Worker, answer, h2, tunnel};
use crate::http1::{Begun, Downstream, Encoder, Framing, HeadError, Limits, ResponseLine, give_map, is_bodiless};
use crate::life::{Lease, Phase, Watch};
use crate::net::{Deadline, Filled, Peer, Splice, Stream};
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
    /// Every request gets a redirect to the same URL with TLS at this port.
    pub redirect: Option<u16>,
    /// What targets are told about the certificate of the client.
    pub client_headers: ClientHeaders,
    /// Set where challenges of a CA are answered.
    pub challenge: Option<Challenge>,
    /// For gRPC: HTTP/2 only, and calls only.
    pub grpc: bool,
    /// HTTP/2 by prior knowledge, without TLS.
    pub h2c: bool,
    /// Set on listeners with TLS.
    pub misdirected: Option<Misdirected>,
}

/// What a CA that has sent a challenge wants to read at this path, if somebody waits for it (RFC 8555 section 8.3).
pub type Challenge = Rc<dyn Fn(&str) -> Option<Arc<str>>>;

/// Is a request for this authority on the wrong connection, one that was made to this address for another server name?
pub type Misdirected = Rc<dyn Fn(Option<&str>, IpAddr, &str) -> bool>;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until it ends. From [`Phase::Closing`] on only the request under way is finished.
pub async fn serve(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, life: Watch) {
    // In boxes of their own: connections that speak HTTP/1.1 are to be small.
    if stream.is_h2() || listener.grpc || listener.h2c {
        return Box::pin(serve_h2(stream, peer, listener, worker, life)).await;
    }
    serve_http1(stream, peer, listener, worker, life).await;
}

/// Where HTTP/2 is or may be spoken.
async fn serve_h2(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, life: Watch) {
    if listener.grpc {
        worker.metrics.grpc().conn.add(worker.shard, 1);
    }
    if peer.tls.is_some() {
        return h2::serve(stream, peer, listener, worker, life).await;
    }
    let limit = if listener.grpc { PREFACE } else { listener.idle_timeout };
    let mut closing = life.clone();
    let begun = tokio::select! {
        begun = h2::speaks_h2(stream, limit) => begun,
        // Nobody waits for somebody who has said nothing.
        () = closing.reached(Phase::Closing) => None,
    };
    match begun {
        None => {}
        Some((stream, true)) => h2::serve(stream, peer, listener, worker, life).await,
        Some((stream, false)) if listener.grpc => h2::refuse(stream).await,
        Some((stream, false)) => serve_http1(stream, peer, listener, worker, life).await,
    }
}

async fn serve_http1(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, life: Watch) {
    let config = &worker.config;
    let limits = Limits { lines: config.max_headers, bytes: config.max_header_size };
    let mut session = Session {
        wire: Downstream::new(stream, limits, listener.read_timeout),
        closing: worker.closing(&life).lease(),
        // Accepted at the very end: one request is served, then the connection ends.
        last: life.phase() >= Phase::Closing,
        limit: Deadline::default(),
        client: Client { worker, listener, peer, told: Rc::default(), tunnel: RefCell::new(None) },
    };
    if let Err(error) = session.run().await {
        // Clients come and go; this is of interest only to whoever looks at one of them.
        tracing::debug!("{}: {error}", session.client.peer.remote);
        return;
    }
    let Some(tunnel) = session.client.tunnel.take() else { return };
    let Some((stream, read)) = session.wire.into_parts() else { return };
    Box::pin(tunnel::run(&session.client, stream, &read, tunnel, life)).await;
}

struct Session {
    client: Client,
    wire: Downstream,
    closing: Lease,
    last: bool,
    /// `wt`: the whole response must be out by then.
    limit: Deadline,
}

/// What is known of a request once it was handed on.
struct Asked {
    method: Method,
    version: Version,
    persists: bool,
}

impl Session {
    /// Until the connection ends, or changes its protocol.
    async fn run(&mut self) -> Result<(), Error> {
        loop {
            let listener = &self.client.listener;
            self.wire.idle(listener.idle_timeout);
            let head = poll_fn(|cx| match self.wire.poll_head(cx, listener.read_timeout) {
                Poll::Pending if !self.last && self.closing.poll(cx) && self.wire.is_quiet() => Poll::Ready(Ok(None)),
                polled => polled,
            });
            match head.await {
                Ok(Some((parts, begun))) => {
                    if !self.exchange(parts, begun).await? {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(HeadError::Io(error)) => return Err(error.into()),
                Err(HeadError::TimedOut) => return Err("no request in time".into()),
                Err(HeadError::Flaw(flaw)) => {
                    tracing::debug!("{}: {flaw}", self.client.peer.remote);
                    let asked = Asked { method: Method::GET, version: Version::HTTP_11, persists: false };
                    self.limit.within(listener.write_timeout);
                    self.send(asked, answer::flawed(flaw)).await?;
                    self.linger().await;
                    return Ok(());
                }
            }
        }
    }

    /// True if another request may follow.
    async fn exchange(&mut self, parts: request::Parts, begun: Begun) -> Result<bool, Error> {
        let listener = &self.client.listener;
        let asked = Asked { method: parts.method.clone(), version: parts.version, persists: begun.persists };
        self.limit.within(listener.write_timeout);
        let response = {
            let request = Request::from_parts(parts, Inbound::Http1(self.wire.clone()));
            let mut handling = pin!(self.client.handle(request, begun.present));
            poll_fn(|cx| {
                if let Poll::Ready(response) = handling.as_mut().poll(cx) {
                    return Poll::Ready(Ok(response));
                }
                // Interim answers.
                if let Poll::Ready(Err(error)) = self.wire.poll_flush(cx) {
                    return Poll::Ready(Err(Error::from(error)));
                }
                if self.limit.poll(cx).is_ready() {
                    return Poll::Ready(Err(TOO_LONG.into()));
                }
                self.wire.poll_gone(cx, listener.half_close).map(|()| Err(GONE.into()))
            })
            .await?
        };
        if !self.send(asked, response).await? {
            if self.client.tunnel.borrow().is_none() && !(self.wire.is_over() && self.wire.is_quiet()) {
                self.linger().await;
            }
            return Ok(false);
        }
        if !self.wire.is_over() && !self.drain().await {
            self.linger().await;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends a response. True if the connection can go on with another request.
    async fn send(&mut self, asked: Asked, response: Response<Body>) -> Result<bool, Error> {
        let (mut parts, body) = response.into_parts();
        let upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let (framing, mut encoder) = frame(&asked, parts.status, &mut parts.headers, &body);
        let mut close = !asked.persists || self.last || self.client.worker.parting.get() || encoder == Encoder::Close;
        if !upgraded {
            // Ours only: what a target says about its own connection was taken out.
            close |= parts.headers.remove(CONNECTION).is_some();
            close |= self.wire.has_failed() || self.wire.is_waiting();
            close |= self.wire.left().is_some_and(|left| left > DRAINED as u64);
        }
        let line = ResponseLine { version: asked.version, status: parts.status, framing, close: close && !upgraded };
        self.wire.answer(line, &parts.headers, body.spelling());
        // Its values hold the memory that the response was read into.
        give_map(parts.headers);
        if let Some(at) = body.deadline() {
            self.limit.no_later_than(at);
        }
        let mut body = if encoder == Encoder::None { body.without_content() } else { body };
        let mut going = !body.is_end_stream();
        if !going {
            self.wire.end(&mut encoder, None)?;
        }
        let half_close = self.client.listener.half_close;
        let mut broken: Option<Error> = None;
        let mut splice = Splice::default();
        poll_fn(|cx| {
            loop {
                let mut waits = false;
                if going || splice.holds() {
                    match self.poll_bulk(cx, &mut splice, &mut encoder, &mut body) {
                        Poll::Ready(Ok(true)) => {
                            going = !body.is_end_stream();
                            continue;
                        }
                        Poll::Ready(Ok(false)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => waits = true,
                    }
                }
                while !waits && going && self.wire.has_room() {
                    let frame = match Pin::new(&mut body).poll_frame(cx) {
                        Poll::Pending => {
                            waits = true;
                            break;
                        }
                        Poll::Ready(frame) => frame.transpose(),
                    };
                    let put = frame.and_then(|frame| self.put(&mut encoder, &body, frame));
                    going = put.unwrap_or_else(|error| {
                        broken = Some(error);
                        false
                    });
                }
                match self.wire.poll_flush(cx) {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::from(error))),
                    Poll::Ready(Ok(())) if !going && !splice.holds() => {
                        return Poll::Ready(broken.take().map_or(Ok(()), Err));
                    }
                    Poll::Ready(Ok(())) if !waits => continue,
                    _ => {}
                }
                if self.limit.poll(cx).is_ready() {
                    return Poll::Ready(Err(TOO_LONG.into()));
                }
                return self.wire.poll_gone(cx, half_close).map(|()| Err(GONE.into()));
            }
        })
        .await
        .inspect_err(|_| {
            if encoder == Encoder::Close {
                self.wire.reset();
            }
        })?;
        splice.rest(&self.client.worker.supplies);
        Ok(!close && !upgraded)
    }

    /// Moves what comes in bulk from one plain connection to another without reading it. False if there is no such thing
    /// now: then it goes on by frames.
    fn poll_bulk(
        &self,
        cx: &mut Context<'_>,
        splice: &mut Splice,
        encoder: &mut Encoder,
        body: &mut Body,
    ) -> Poll<Result<bool, Error>> {
        if splice.holds() {
            ready!(self.wire.poll_spliced(cx, splice))?;
            return Poll::Ready(Ok(true));
        }
        if !matches!(encoder, Encoder::Length(_)) {
            return Poll::Ready(Ok(false));
        }
        let Some((from, left)) = body.bulk() else { return Poll::Ready(Ok(false)) };
        if !self.wire.is_bare() {
            return Poll::Ready(Ok(false));
        }
        match ready!(splice.poll_fill(cx, from, &self.client.worker.supplies, left)) {
            Ok(Filled::Bytes(length)) => {
                body.passed(length);
                encoder.passed(length as u64)?;
                if body.is_end_stream() {
                    self.wire.end(encoder, None)?;
                }
                Poll::Ready(Ok(true))
            }
            // What is wrong with it shows in reading.
            Ok(Filled::Ended | Filled::Refused) | Err(_) => Poll::Ready(Ok(false)),
        }
    }

    /// Puts a piece of a response into the outbox. True if more is to come.
    fn put(
        &self,
        encoder: &mut Encoder,
        body: &Body,
        frame: Option<http_body::Frame<bytes::Bytes>>,
    ) -> Result<bool, Error> {
        let trailers = match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) => {
                self.wire.data(encoder, data)?;
                if !body.is_end_stream() {
                    return Ok(true);
                }
                None
            }
            Some(Err(frame)) => frame.into_trailers().ok(),
            None => None,
        };
        self.wire.end(encoder, trailers.as_ref())?;
        Ok(false)
    }

    /// Throws away what is left of a request that was answered early. False if that is too much.
    async fn drain(&mut self) -> bool {
        let mut budget = DRAINED;
        let mut limit = Deadline::default();
        limit.within(DRAINING);
        poll_fn(|cx| match self.wire.poll_drain(cx, &mut budget) {
            Poll::Pending => limit.poll(cx).map(|()| false),
            drained => drained,
        })
        .await
    }

    async fn linger(&mut self) {
        let (mut ended, mut budget) = (false, LINGERED);
        let mut limit = Deadline::default();
        limit.within(if self.closing.is_raised() { DRAINING } else { LINGERING });
        poll_fn(|cx| match self.wire.poll_linger(cx, &mut ended, &mut budget) {
            Poll::Pending => limit.poll(cx),
            done => done,
        })
        .await;
    }
}

/// Until a gRPC client has begun, as in fabio.
const PREFACE: Duration = Duration::from_secs(120);
/// What is to be said about the length of a body, and how it is sent. What the fields say already is not said again.
fn frame(asked: &Asked, status: StatusCode, headers: &mut HeaderMap, body: &Body) -> (Option<Framing>, Encoder) {
    let exact = body.size_hint().exact();
    if is_bodiless(&asked.method, status) {
        let ours = asked.method == Method::HEAD && !headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream();
        return (exact.filter(|_| ours).map(Framing::Length), Encoder::None);
    }
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match (exact, said) {
        (Some(exact), said) if said == Some(exact) => (None, Encoder::Length(exact)),
        (None, Some(said)) => (None, Encoder::Length(said)),
        (Some(exact), _) => {
            headers.remove(CONTENT_LENGTH);
            (Some(Framing::Length(exact)), Encoder::Length(exact))
        }
        (None, None) if asked.version == Version::HTTP_11 => (Some(Framing::Chunked), Encoder::Chunked),
        (None, None) => (None, Encoder::Close),
    }
}

const TOO_LONG: &str = "the response took longer than the listener's wt, or the route's timeout";
const GONE: &str = "the client has gone away";
/// What is left of an upload that was answered early: so much is read for the sake of the connection.
const DRAINED: usize = 64 * 1024;
const DRAINING: Duration = Duration::from_secs(1);
/// After the last answer of a connection that still sends.
const LINGERED: usize = 16 * 1024 * 1024;
const LINGERING: Duration = Duration::from_secs(5);
