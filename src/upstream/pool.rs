//! Idle connections, kept by each worker for itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::directory::Endpoint;
use super::exchange::Times;
use super::h2::Lines;
use super::term::Resting;
use super::tls::Alpn;
use super::{Config, Credentials, Error, Resolver, connect};
use crate::net::Stream;

/// The pools of one worker. Cheap to clone; never leaves its thread.
#[derive(Clone)]
pub struct Pools(Rc<Inner>);

struct Inner {
    config: Config,
    shared: Shared,
    idle: RefCell<HashMap<u64, Vec<Idle>, BuildHasherDefault<IdHasher>>>,
    /// Connections that speak HTTP/2.
    lines: Lines,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
    _resting: Resting,
}

/// What the pools of all workers have in common.
#[derive(Clone)]
pub struct Shared {
    pub credentials: Arc<Credentials>,
    pub resolver: Arc<Resolver>,
}

impl Shared {
    /// Reads the files that routes may name.
    pub fn new(config: &Config) -> Result<Self, super::BadFile> {
        let credentials = Arc::new(Credentials::load(config.tls.clone())?);
        Ok(Self { credentials, resolver: Arc::new(Resolver::new(config.names_for)) })
    }
}

impl Pools {
    pub fn new(config: Config, shared: Shared) -> Self {
        Self(Rc::new(Inner { config, shared, idle: RefCell::default(), lines: Lines::default() }))
    }

    pub(super) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn lines(&self) -> &Lines {
        &self.0.lines
    }

    /// An idle connection that is still good, the most recently used first.
    pub(super) fn reuse(&self, endpoint: &Endpoint, cx: &mut Context<'_>) -> Option<Box<Connection>> {
        let mut pools = self.0.idle.borrow_mut();
        let idle = pools.get_mut(&endpoint.id)?;
        while let Some(Idle { mut connection, since, .. }) = idle.pop() {
            if !self.expired(since) && !connection.term.is_over(&self.0.config) && connection.is_open(cx) {
                return Some(connection);
            }
        }
        None
    }

    /// A connection for nobody else, with TLS if the endpoint asks for it. `preamble` is sent before anything else.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
        preamble: &[u8],
        limit: Option<Duration>,
    ) -> Result<Stream, Error> {
        self.connect_for(endpoint, Alpn::Silent, preamble, limit.unwrap_or(self.0.config.dial_timeout)).await
    }

    /// As [`Self::connect`], within `limit` (0: none). With TLS, what is spoken is agreed on.
    pub(super) async fn connect_for(
        &self,
        endpoint: &Endpoint,
        alpn: Alpn,
        preamble: &[u8],
        limit: Duration,
    ) -> Result<Stream, Error> {
        let tls = endpoint.tls.as_ref().map(|tls| (tls, alpn));
        connect::connect(endpoint, tls, &self.0.config, &self.0.shared, limit, preamble).await
    }

    /// As [`Self::connect`], without TLS whatever the endpoint asks for.
    pub async fn connect_plain(
        &self,
        endpoint: &Endpoint,
        preamble: &[u8],
        limit: Option<Duration>,
    ) -> Result<Stream, Error> {
        let (config, shared) = (&self.0.config, &self.0.shared);
        connect::connect(endpoint, None, config, shared, limit.unwrap_or(config.dial_timeout), preamble).await
    }

    /// Where the endpoint is, the best address first. At least one.
    pub async fn resolve(&self, endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
        self.0.shared.resolver.resolve(&endpoint.host, endpoint.port).await
    }

    /// The limits of an exchange where its route asks for nothing else.
    pub fn times(&self) -> Times {
        Times { connect: self.0.config.dial_timeout, head: self.0.config.response_header_timeout }
    }

    pub(super) async fn fresh(
        &self,
        endpoint: &Endpoint,
        preamble: &[u8],
        limit: Duration,
    ) -> Result<Box<Connection>, Error> {
        let stream = self.connect_for(endpoint, Alpn::Http1, preamble, limit).await?;
        Ok(self.http1(stream, endpoint, preamble.is_empty()))
    }

    /// Makes a connection that speaks HTTP/1.1 of a stream. `shared`: not made for one client.
    pub(super) fn http1(&self, stream: Stream, endpoint: &Endpoint, shared: bool) -> Box<Connection> {
        Box::new(Connection::new(stream, endpoint, shared))
    }

    pub(super) fn put_back(&self, mut connection: Box<Connection>) {
        if !connection.shared {
            return;
        }
        let Some(resting) = connection.term.rest(&self.0.config) else { return };
        connection.rest();
        let mut pools = self.0.idle.borrow_mut();
        let idle = pools.entry(connection.endpoint).or_default();
        idle.push(Idle { connection, since: Instant::now(), _resting: resting });
    }

    fn expired(&self, since: Instant) -> bool {
        let limit = self.0.config.idle_timeout;
        !limit.is_zero() && since.elapsed() >= limit
    }

    /// Closes what has been idle too long, is too old, was closed by its target, or belongs to one that is gone. Runs until its worker ends.
    pub async fn sweep(self) {
        let idle = self.0.config.idle_timeout;
        let period = if idle.is_zero() { LONGEST_SWEEP } else { (idle / 4).clamp(SHORTEST_SWEEP, LONGEST_SWEEP) };
        let mut tick = tokio::time::interval(period);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // Nobody waits on idle connections; polling them is how a close by the target is seen.
            let mut cx = Context::from_waker(Waker::noop());
            self.0.idle.borrow_mut().retain(|_, idle| {
                idle.retain_mut(|idle| {
                    let over = self.expired(idle.since) || idle.connection.term.is_over(&self.0.config);
                    !over && idle.connection.is_open(&mut cx)
                });
                !idle.is_empty()
            });
            self.0.lines.sweep(&self.0.config);
        }
    }

    /// Idle connections of all endpoints.
    pub fn idle(&self) -> usize {
        self.0.idle.borrow().values().map(Vec::len).sum()
    }
}

const SHORTEST_SWEEP: Duration = Duration::from_millis(100);
const LONGEST_SWEEP: Duration = Duration::from_secs(1);

/// Endpoint ids are small consecutive numbers: spreading them is all that a hash needs to do.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
