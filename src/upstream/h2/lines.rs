//! Connections that speak HTTP/2, kept by each worker for itself.
//!
//! A connection takes as many streams as its target allows. When all are in use another one is opened, by one request for
//! all that wait for it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::hash::BuildHasherDefault;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use tokio::sync::Notify;

use super::super::connect::within;
use super::super::connection::Connection;
use super::super::directory::Endpoint;
use super::super::exchange::Exchange;
use super::super::pool::IdHasher;
use super::super::term::Term;
use super::super::tls::Alpn;
use super::super::{Config, Error, Pools};
use super::Protocol;
use crate::net::Stream;

/// The connections of one worker.
#[derive(Default)]
pub(in super::super) struct Lines(RefCell<HashMap<u64, Rc<Place>, BuildHasherDefault<IdHasher>>>);

/// Those to one endpoint.
#[derive(Default)]
struct Place {
    lines: RefCell<Vec<Line>>,
    dial: RefCell<Option<Rc<Dial>>>,
    /// The target has chosen HTTP/1.1, and is not asked again until then.
    http1_until: Cell<Option<Instant>>,
}

struct Line {
    sender: SendRequest<Bytes>,
    state: Rc<State>,
    term: Term,
}

#[derive(Default)]
struct State {
    open: Cell<usize>,
    /// Takes no new streams.
    over: Cell<bool>,
    /// A response has come over it.
    used: Cell<bool>,
    /// When the last stream ended.
    since: Cell<Option<Instant>>,
}

/// The right to one stream of a connection. Dropping it gives it back.
pub(super) struct Lease {
    sender: SendRequest<Bytes>,
    state: Rc<State>,
}

/// What a request goes over.
pub(super) enum Found {
    Line(Lease),
    /// HTTP/1.1 over connections that are shared.
    Shared,
    /// HTTP/1.1 over a connection that was made for it.
    Own(Box<Connection>),
}

/// Opening a connection, on behalf of everybody who waits for it.
#[derive(Default)]
struct Dial {
    result: OnceCell<Result<(), Error>>,
    done: Notify,
}

/// A connection for a request of this exchange.
pub(super) async fn find(exchange: &Exchange<'_>) -> Result<Found, Error> {
    let Exchange { pools, endpoint, protocol, times, .. } = *exchange;
    let begun = Instant::now();
    if !exchange.preamble.is_empty() {
        let opened = open(pools, endpoint, protocol, exchange.preamble, times.connect).await;
        exchange.effort.connect.set(Some(begun.elapsed()));
        return match opened? {
            Opened::H2(mut line) => Ok(Found::Line(line.lease())),
            Opened::Http1(stream) => Ok(Found::Own(pools.http1(stream, endpoint, false))),
        };
    }
    let place = pools.lines().place(endpoint.id);
    for _ in 0..ROUNDS {
        if place.speaks_http1() {
            return Ok(Found::Shared);
        }
        if let Some(lease) = place.free(pools.config()) {
            return Ok(Found::Line(lease));
        }
        let dialled = place.dial(pools, endpoint, protocol, times.connect).await;
        exchange.effort.connect.set(Some(begun.elapsed()));
        dialled?;
    }
    Err(Error::Connect(io::Error::other("the target takes no more streams")))
}

impl Lines {
    fn place(&self, endpoint: u64) -> Rc<Place> {
        self.0.borrow_mut().entry(endpoint).or_default().clone()
    }

    /// Lets go of connections that were without streams for too long, and of those that are over.
    pub(in super::super) fn sweep(&self, config: &Config) {
        self.0.borrow_mut().retain(|_, place| {
            place.lines.borrow_mut().retain(|line| !line.is_over(config) && !line.expired(config.idle_timeout));
            // Somebody who waits holds the place.
            Rc::strong_count(place) > 1 || !place.lines.borrow().is_empty() || place.speaks_http1()
        });
    }
}

impl Place {
    fn speaks_http1(&self) -> bool {
        self.http1_until.get().is_some_and(|until| Instant::now() < until)
    }

    fn free(&self, config: &Config) -> Option<Lease> {
        let mut lines = self.lines.borrow_mut();
        lines.retain(|line| !line.is_over(config));
        lines
            .iter_mut()
            .find(|line| line.state.open.get() < line.sender.current_max_send_streams().min(STREAMS))
            .map(Line::lease)
    }

    /// Waits for a new connection.
    async fn dial(
        self: &Rc<Self>,
        pools: &Pools,
        endpoint: &Arc<Endpoint>,
        protocol: Protocol,
        limit: Duration,
    ) -> Result<(), Error> {
        let dial = self.dial.borrow_mut().get_or_insert_with(|| self.start(pools, endpoint, protocol, limit)).clone();
        loop {
            if let Some(result) = dial.result.get() {
                return match result {
                    Ok(()) => Ok(()),
                    Err(error) => Err(error.again()),
                };
            }
            // Everything is on one thread: nothing happens between looking and waiting.
            dial.done.notified().await;
        }
    }

    /// In a task of its own, because others wait for it even when the request that began it goes away.
    fn start(
        self: &Rc<Self>,
        pools: &Pools,
        endpoint: &Arc<Endpoint>,
        protocol: Protocol,
        limit: Duration,
    ) -> Rc<Dial> {
        let dial = Rc::new(Dial::default());
        let (place, pools, endpoint, ours) = (self.clone(), pools.clone(), endpoint.clone(), dial.clone());
        tokio::task::spawn_local(async move {
            let result = match open(&pools, &endpoint, protocol, &[], limit).await {
                Ok(Opened::H2(line)) => {
                    place.lines.borrow_mut().push(line);
                    Ok(())
                }
                Ok(Opened::Http1(stream)) => {
                    place.http1_until.set(Some(Instant::now() + HTTP1_FOR));
                    pools.put_back(pools.http1(stream, &endpoint, true));
                    Ok(())
                }
                Err(error) => Err(error),
            };
            place.dial.replace(None);
            let _ = ours.result.set(result);
            ours.done.notify_waiters();
        });
        dial
    }
}

impl Line {
    /// Takes no new streams.
    fn is_over(&self, config: &Config) -> bool {
        self.state.over.get() || self.term.is_over(config)
    }

    fn lease(&mut self) -> Lease {
        self.term.request();
        self.state.open.set(self.state.open.get() + 1);
        Lease { sender: self.sender.clone(), state: self.state.clone() }
    }

    fn expired(&self, idle: Duration) -> bool {
        let idle_since = self.state.since.get().filter(|_| self.state.open.get() == 0);
        !idle.is_zero() && idle_since.is_some_and(|since| since.elapsed() >= idle)
    }
}

impl Lease {
    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    pub(super) fn is_used(&self) -> bool {
        self.state.used.get()
    }

    pub(super) fn used(&self) {
        self.state.used.set(true);
    }

    /// Nobody else gets a stream of this connection.
    pub(super) fn is_over(&self) {
        self.state.over.set(true);
    }

    pub(super) fn is_over_if(&self, over: bool) {
        if over {
            self.is_over();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.state.open.set(self.state.open.get() - 1);
        self.state.since.set(Some(Instant::now()));
    }
}

enum Opened {
    H2(Line),
    Http1(Stream),
}

/// Opens a connection, within `limit` (0: none) for all that it takes until the target has said how many streams it
/// allows.
async fn open(
    pools: &Pools,
    endpoint: &Endpoint,
    protocol: Protocol,
    preamble: &[u8],
    limit: Duration,
) -> Result<Opened, Error> {
    let alpn = if protocol == Protocol::Either { Alpn::Either } else { Alpn::H2 };
    let opening = async {
        let stream = pools.connect_for(endpoint, alpn, preamble, limit).await?;
        // A target that was asked for HTTP/2 only and says nothing is believed to speak it, as gRPC servers without ALPN do.
        if protocol == Protocol::Either && endpoint.tls.is_some() && !stream.is_h2() {
            return Ok(Opened::Http1(stream));
        }
        start(pools, endpoint, stream).await.map(Opened::H2)
    };
    within(limit, opening).await.unwrap_or(Err(Error::ConnectTimeout))
}

async fn start(pools: &Pools, endpoint: &Endpoint, stream: Stream) -> Result<Line, Error> {
    let config = pools.config();
    let (sender, connection) = h2::client::Builder::new()
        .enable_push(false)
        // Until the target has said how many it allows.
        .initial_max_send_streams(0)
        .max_header_list_size(u32::try_from(config.max_header_size).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(SMALL_FRAMES)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(|error| Error::Closed(error.into()))?;
    let mut connection = Box::pin(connection);
    poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(Err(error)) if error.is_io() => Poll::Ready(Err(Error::Closed(error.into()))),
        Poll::Ready(Err(error)) => Poll::Ready(Err(Error::Malformed(error.into()))),
        Poll::Ready(Ok(())) => Poll::Ready(Err(Error::Closed("the target closed the connection".into()))),
        Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    let state = Rc::new(State::default());
    state.since.set(Some(Instant::now()));
    tokio::task::spawn_local(drive(connection, state.clone()));
    Ok(Line { sender, state, term: Term::new(endpoint) })
}

/// Moves bytes until the connection ends. Ends by itself once nobody holds the connection and no stream is open.
async fn drive(mut connection: Pin<Box<h2::client::Connection<Stream, Bytes>>>, state: Rc<State>) {
    let mut pings = connection.ping_pong();
    let mut asked = false;
    let mut next = Instant::now() + PING_EVERY;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("a connection to a target ended: {error}");
                }
                break;
            }
            () = pong(&mut pings), if asked => {
                asked = false;
                next = Instant::now() + PING_EVERY;
            }
            () = tokio::time::sleep_until(next.into()) => {
                // Its streams end with an error.
                if asked {
                    tracing::debug!("a target does not answer pings");
                    break;
                }
                let ping = |pings: &mut PingPong| pings.send_ping(Ping::opaque()).is_ok();
                asked = state.open.get() > 0 && pings.as_mut().is_some_and(ping);
                next = Instant::now() + if asked { PING_TIMEOUT } else { PING_EVERY };
            }
        }
    }
    state.over.set(true);
}

async fn pong(pings: &mut Option<PingPong>) {
    match pings {
        // An error ends the connection as well, which is seen there.
        Some(pings) => drop(poll_fn(|cx| pings.poll_pong(cx)).await),
        None => std::future::pending().await,
    }
}

/// Each opens a connection for at least one stream.
const ROUNDS: usize = 1000;
/// How long a target that has chosen HTTP/1.1 is not asked again.
const HTTP1_FOR: Duration = Duration::from_secs(60);
/// Streams of a connection, if the target allows so many.
const STREAMS: usize = 100;
/// A slow client, and a target that sends to it, cost no more than this.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Room for all of them: slow clients must not hold up the others on their connection.
const CONNECTION_WINDOW: u32 = (STREAMS as u32 + 1) * STREAM_WINDOW;
const SEND_BUFFER: usize = 64 * 1024;
/// What small messages that wait for slow clients may cost beside their bytes, 256 each.
const SMALL_FRAMES: usize = 32 * 1024 * 1024;
const ERROR_RESETS: usize = 1024;
/// While there are streams.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
