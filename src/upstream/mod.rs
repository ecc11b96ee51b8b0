//! Talking to targets: state that outlives a table, connecting, keeping connections, exchanging a request for a response.

mod allowance;
mod body;
mod budget;
mod connect;
mod connection;
mod directory;
mod error;
mod exchange;
mod gate;
mod h2;
mod health;
mod inbound;
mod kept;
mod load;
mod pool;
mod probe;
mod resolve;
mod response;
mod services;
mod sticky;
mod term;
mod tls;
mod upload;

use std::time::Duration;

pub use body::RequestBody;
pub use budget::Budget;
pub use directory::{Directory, Endpoint, Entered, OnRoute, RouteState, TargetState, TargetTls};
pub use error::{Error, Side};
pub use exchange::{Effort, Exchange, Times, Upgraded, is_repeatable};
pub use gate::{Full, Gate, Permit};
pub use h2::{Protocol, presentable};
pub use health::{Ejected, Health, Moment, Reason, Verdict, moment};
pub use inbound::{H2Inbound, Inbound};
pub use load::{Flight, Load, Tick};
pub use pool::{Pools, Shared};
pub use probe::probe;
pub use resolve::Resolver;
pub use response::ResponseBody;
pub use services::ServiceState;
pub use sticky::Token;
pub use tls::{BadFile, Credentials, Mesh, TlsFiles, prepare};

/// Why a body is not whole.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// `proxy.maxconn`: idle connections kept per target, by all workers together.
    pub max_idle: usize,
    /// Header lines in one response head.
    pub max_headers: usize,
    /// Bytes in one response head.
    pub max_header_size: usize,
    /// `proxy.connmaxage`: a connection that is older gets no new requests; 0: no limit.
    pub max_age: Duration,
    /// `proxy.connmaxrequests`: requests on one connection; 0: no limit.
    pub max_requests: u64,
    /// `proxy.dnsttl`: how long the addresses of a name are used before it is looked up again.
    pub names_for: Duration,
    /// `proxy.targettls`
    pub tls: Vec<TlsFiles>,
    /// `proxy.stickykey`
    pub sticky_key: Box<str>,
}
