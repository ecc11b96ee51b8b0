//! Talking to targets: state that outlives a table, connecting, keeping connections, exchanging a request for a response.

mod allowance;
mod connect;
mod connection;
mod directory;
mod error;
mod exchange;
mod inbound;
mod pool;
mod tls;
mod upload;

use std::time::Duration;

pub use directory::{Directory, Endpoint, Entered, RouteState, TargetState, TargetTls};
pub use error::{Error, Side};
pub use exchange::{Effort, Exchange, Received, ResponseBody, Upgraded};
pub use inbound::{Inbound, RequestBody};
pub use pool::Pools;
pub use tls::prepare;

/// Why a body is not whole.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `proxy.dialtimeout`; 0: no limit.
    pub dial_timeout: Duration,
    /// `proxy.responseheadertimeout`: request sent to response head; 0: no limit.
    pub response_header_timeout: Duration,
    /// `proxy.requestwritetimeout`: longest time in which a target takes nothing of a request; 0: no limit.
    pub write_timeout: Duration,
    /// `proxy.keepalivetimeout`: TCP keep-alive period; `None`: off.
    pub keep_alive: Option<Duration>,
    /// `proxy.idleconntimeout`; 0: never.
    pub idle_timeout: Duration,
    /// `proxy.maxconn`: idle connections kept per target.
    pub max_idle: usize,
    /// Header lines in one response head.
    pub max_headers: usize,
    /// Bytes in one response head.
    pub max_header_size: usize,
}
