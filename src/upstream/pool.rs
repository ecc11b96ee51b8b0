//! Idle connections, kept by each worker for itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::directory::Endpoint;
use super::{Config, Error, connect};
use crate::net::Stream;

/// The pools of one worker. Cheap to clone; never leaves its thread.
#[derive(Clone)]
pub struct Pools(Rc<Inner>);

struct Inner {
    config: Config,
    idle: RefCell<HashMap<u64, Vec<Idle>, BuildHasherDefault<IdHasher>>>,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Pools {
    pub fn new(config: Config) -> Self {
        Self(Rc::new(Inner { config, idle: RefCell::default() }))
    }

    pub(super) fn config(&self) -> &Config {
        &self.0.config
    }

    /// An idle connection that is still good, the most recently used first.
    pub(super) fn reuse(&self, endpoint: &Endpoint, cx: &mut Context<'_>) -> Option<Box<Connection>> {
        let mut pools = self.0.idle.borrow_mut();
        let idle = pools.get_mut(&endpoint.id)?;
        while let Some(Idle { mut connection, since }) = idle.pop() {
            if !self.expired(since) && connection.is_open(cx) {
                return Some(connection);
            }
        }
        None
    }

    /// A connection for nobody else, with TLS if the endpoint asks for it. `preamble` is sent before anything else.
    pub async fn connect(&self, endpoint: &Endpoint, preamble: &[u8]) -> Result<Stream, Error> {
        connect::connect(endpoint, endpoint.tls.as_ref(), &self.0.config, preamble).await
    }

    /// As [`Self::connect`], without TLS whatever the endpoint asks for.
    pub async fn connect_plain(&self, endpoint: &Endpoint, preamble: &[u8]) -> Result<Stream, Error> {
        connect::connect(endpoint, None, &self.0.config, preamble).await
    }

    pub(super) async fn fresh(&self, endpoint: &Endpoint, preamble: &[u8]) -> Result<Box<Connection>, Error> {
        let stream = self.connect(endpoint, preamble).await?;
        Ok(Box::new(Connection::new(stream, endpoint.id, preamble.is_empty())))
    }

    pub(super) fn put_back(&self, mut connection: Box<Connection>) {
        connection.rest();
        let mut pools = self.0.idle.borrow_mut();
        let idle = pools.entry(connection.endpoint).or_default();
        if idle.len() < self.0.config.max_idle {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    fn expired(&self, since: Instant) -> bool {
        let limit = self.0.config.idle_timeout;
        !limit.is_zero() && since.elapsed() >= limit
    }

    /// Closes what has been idle too long or was closed by its target. Runs until its worker ends.
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
                idle.retain_mut(|idle| !self.expired(idle.since) && idle.connection.is_open(&mut cx));
                !idle.is_empty()
            });
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
struct IdHasher(u64);

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
