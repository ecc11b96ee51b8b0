//! What listeners count beside the series of targets.

use std::sync::Arc;
use std::time::Duration;

use super::Shard;
use super::push::{Journal, Observation};
use super::series::{Buckets, Counter, Sample, Series};

/// Counters of the HTTP listeners.
pub struct HttpSeries {
    pub(super) not_found: Counter,
    /// By status, 300 to 399.
    redirects: Box<[Counter]>,
    pub(super) websockets: Arc<Counter>,
    enabled: bool,
}

impl HttpSeries {
    pub(super) fn new(shards: usize, enabled: bool) -> Self {
        Self {
            not_found: Counter::new(shards),
            redirects: (0..100).map(|_| Counter::new(shards)).collect(),
            websockets: Arc::new(Counter::new(shards)),
            enabled,
        }
    }

    /// `notfound`: a request, or a connection of the TCP family, without a route.
    pub fn not_found(&self, shard: Shard) {
        if self.enabled {
            self.not_found.add(shard, 1);
        }
    }

    /// `http.redirect.count`. `code`: 300 to 399, others are not counted.
    pub fn redirected(&self, shard: Shard, code: u16) {
        if self.enabled
            && let Some(counter) = code.checked_sub(300).and_then(|at| self.redirects.get(usize::from(at)))
        {
            counter.add(shard, 1);
        }
    }

    /// `ws.conn`: one more until the guard is dropped.
    pub fn websocket(&self, shard: Shard) -> OpenWebSocket {
        self.websockets.add(shard, 1);
        OpenWebSocket { count: self.websockets.clone(), shard }
    }

    /// Status and count of the redirects that were answered.
    pub(super) fn redirects(&self) -> impl Iterator<Item = (usize, i64)> {
        self.redirects.iter().enumerate().map(|(at, counter)| (300 + at, counter.get())).filter(|(_, n)| *n > 0)
    }
}

/// An open WebSocket; see [`HttpSeries::websocket`].
pub struct OpenWebSocket {
    count: Arc<Counter>,
    shard: Shard,
}

impl Drop for OpenWebSocket {
    fn drop(&mut self) {
        self.count.sub(self.shard, 1);
    }
}

/// What is counted of gRPC calls.
pub struct GrpcSeries {
    /// Accepted connections of grpc and grpcs listeners.
    pub conn: Counter,
    /// Calls without a route.
    pub no_route: Counter,
    calls: Series,
    buckets: Arc<Buckets>,
    enabled: bool,
    /// Somebody wants each call.
    journal: Option<Arc<Journal>>,
}

impl GrpcSeries {
    pub(super) fn new(shards: usize, buckets: Arc<Buckets>, enabled: bool, journal: Option<Arc<Journal>>) -> Self {
        Self {
            conn: Counter::new(shards),
            no_route: Counter::new(shards),
            calls: Series::new(shards),
            buckets,
            enabled,
            journal,
        }
    }

    /// A finished call. Statuses that gRPC does not have count as unknown.
    pub fn finished(&self, shard: Shard, status: u16, took: Duration) {
        let status = if usize::from(status) < GRPC_CODES.len() { status } else { UNKNOWN };
        if self.enabled {
            self.calls.observe(&self.buckets, shard, status, took);
        }
        if let Some(journal) = &self.journal {
            journal.put(Observation { labels: None, code: status, took });
        }
    }

    /// Names of statuses with their calls.
    pub(super) fn codes(&self) -> Vec<(&'static str, Sample)> {
        let codes = self.calls.read(&self.buckets).codes.into_iter();
        codes.map(|(code, sample)| (grpc_code(code), sample)).collect()
    }
}

/// The name of a status.
pub(super) fn grpc_code(status: u16) -> &'static str {
    GRPC_CODES.get(usize::from(status)).copied().unwrap_or(GRPC_CODES[usize::from(UNKNOWN)])
}

const UNKNOWN: u16 = 2;

/// As grpc-go names the statuses.
const GRPC_CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Counters of the TCP family: `tcp.*` (tcp, tcp-dynamic) and `tcp_sni.*` (tcp+sni, https+tcp+sni).
pub struct TcpSeries {
    /// Accepted connections.
    pub conn: Counter,
    /// Targets that could not be reached; with SNI also unreadable ClientHellos and those without a name.
    pub conn_fail: Counter,
    /// Connections without a route. Those count in `notfound`, too.
    pub no_route: Counter,
}

impl TcpSeries {
    pub(super) fn new(shards: usize) -> Self {
        Self { conn: Counter::new(shards), conn_fail: Counter::new(shards), no_route: Counter::new(shards) }
    }
}
