//! One client connection that speaks HTTP/2: streams, each with a request of its own.
//!
//! What a request means is not known here. A request is brought into the form in which HTTP/1.1 has it (see `head`), and a
//! response loses what belongs to HTTP/1.1 connections only.

mod flood;
mod head;
mod preface;
mod stream;
mod websocket;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::{Ping, PingPong, Reason};
use tokio::sync::Notify;

use super::serve::Listener;
use super::{Client, Worker};
use crate::life::{Phase, Watch};
use crate::net::{Peer, Stream};

pub(super) use preface::{refuse, speaks_h2};

/// Serves a connection until it ends. From [`Phase::Closing`] on the client is told to go away (RFC 9113, section 6.8),
/// and the streams that it has begun are finished.
pub(super) async fn serve(stream: Stream, peer: Peer, listener: Rc<Listener>, worker: Rc<Worker>, mut life: Watch) {
    let remote = peer.remote;
    let flood = Rc::new(flood::Budget::default());
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        .max_header_list_size(u32::try_from(worker.config.max_header_size).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(SMALL_FRAMES)
        .enable_connect_protocol();
    let idle = listener.idle_timeout;
    let begin = if idle.is_zero() { BEGIN } else { idle.min(BEGIN) };
    let handshake = builder.handshake::<_, Bytes>(flood::Counted::new(stream, flood.clone()));
    let mut connection = match tokio::time::timeout(begin, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!("{remote}: {error}"),
        Err(_) => return tracing::debug!("{remote}: HTTP/2 did not begin in time"),
    };
    let mut pings = Pings::new(connection.ping_pong());
    let streams = Rc::new(Streams::default());
    let mut idling = pin!(streams.idle(idle));
    let mut leaving = false;
    let told = Rc::new(super::headers::Told::default());
    loop {
        let leave = tokio::select! {
            biased;
            () = flood.exceeded() => {
                tracing::debug!("{remote}: a flood of HTTP/2 frames");
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                let _ = tokio::time::timeout(LAST_WORDS, poll_fn(|cx| connection.poll_closed(cx))).await;
                return;
            }
            accepted = connection.accept() => match accepted {
                None => return,
                Some(Err(error)) => return tracing::debug!("{remote}: {error}"),
                Some(Ok((request, respond))) => {
                    let client = Client {
                        worker: worker.clone(),
                        listener: listener.clone(),
                        peer: peer.clone(),
                        told: told.clone(),
                        tunnel: RefCell::new(None),
                    };
                    let (open, life) = (streams.clone().open(), life.clone());
                    tokio::task::spawn_local(async move {
                        stream::serve(client, request, respond, life).await;
                        drop(open);
                    });
                    false
                }
            },
            () = life.reached(Phase::Replaced), if !leaving => true,
            () = &mut idling => {
                if leaving {
                    return;
                }
                true
            }
            () = pings.unanswered() => return tracing::debug!("{remote}: does not answer pings"),
        };
        if leave {
            leaving = true;
            connection.graceful_shutdown();
            // Somebody who has not even said what is spoken here is not waited for.
            idling.set(streams.idle(LAST_WORDS));
        }
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

/// Asks now and then whether the client is still there.
struct Pings {
    pings: Option<PingPong>,
    asked: bool,
    next: tokio::time::Instant,
}

impl Pings {
    fn new(pings: Option<PingPong>) -> Self {
        Self { pings, asked: false, next: tokio::time::Instant::now() + PING_EVERY }
    }

    /// Can be dropped and called again at any time.
    async fn unanswered(&mut self) {
        let Some(pings) = &mut self.pings else { return std::future::pending().await };
        loop {
            tokio::select! {
                biased;
                pong = poll_fn(|cx| pings.poll_pong(cx)), if self.asked => {
                    self.asked = false;
                    self.next = tokio::time::Instant::now() + PING_EVERY;
                    if pong.is_err() {
                        // The connection says why.
                        return std::future::pending().await;
                    }
                }
                () = tokio::time::sleep_until(self.next) => {
                    if self.asked {
                        return;
                    }
                    self.asked = pings.send_ping(Ping::opaque()).is_ok();
                    self.next = tokio::time::Instant::now() + if self.asked { PING_TIMEOUT } else { PING_EVERY };
                }
            }
        }
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
/// What small messages that wait for a slow target may cost beside their bytes, 256 each. The default would end connections
/// of gRPC clients that stream messages of a few bytes.
const SMALL_FRAMES: usize = 8 * 1024 * 1024;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Until the client has said that it speaks HTTP/2.
const BEGIN: Duration = Duration::from_secs(120);
/// From GOAWAY to the end of a connection without streams.
const LAST_WORDS: Duration = Duration::from_secs(1);
