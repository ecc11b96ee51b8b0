//! What listeners count beside the series of targets.

use std::sync::Arc;

use super::Shard;
use super::series::Counter;

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
