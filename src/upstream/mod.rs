//! Talking to targets: state that outlives a table, choosing, connecting, pooling.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `proxy.dialtimeout`; 0: no limit.
    pub dial_timeout: Duration,
    /// `proxy.responseheadertimeout`: request sent to response head; 0: no limit.
    pub response_header_timeout: Duration,
    /// `proxy.keepalivetimeout`: TCP keep-alive period; `None`: off.
    pub keep_alive: Option<Duration>,
    /// `proxy.idleconntimeout`; 0: never.
    pub idle_timeout: Duration,
    /// `proxy.maxconn`: idle connections kept per target.
    pub max_idle: usize,
}
