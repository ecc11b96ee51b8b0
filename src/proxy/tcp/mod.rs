//! Connections that are passed on as they are: find a target, connect to it, move bytes until the end.
//!
//! Accepting, the PROXY header and TLS are somebody else's; so is what to do with a connection that has no route here.

mod connection;
mod ended;
mod find;
mod hello;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use connection::Connection;
pub use ended::{Ended, Hook, Reason};
pub use find::{Candidates, Found};
pub use hello::{Hello, read_hello};

use crate::metrics::{Metrics, Shard, TcpSeries};
use crate::net::Supplies;
use crate::route::{LiveTable, Strategy};
use crate::upstream::Pools;

/// What all connections, and sessions of datagrams, of one worker share. Never leaves its thread.
pub struct Worker {
    live: Arc<LiveTable>,
    strategy: Strategy,
    pub(super) pools: Pools,
    pub(super) metrics: Metrics,
    pub(super) shard: Shard,
    supplies: Supplies,
    hook: Option<Hook>,
}

impl Worker {
    /// `hook` hears of the end of each connection.
    pub fn new(
        live: Arc<LiveTable>,
        strategy: Strategy,
        pools: Pools,
        metrics: Metrics,
        shard: Shard,
        hook: Option<Hook>,
    ) -> Self {
        Self { live, strategy, pools, metrics, shard, supplies: Supplies::default(), hook }
    }

    /// Tells whoever wants to know.
    pub(super) fn ended(&self, ended: &Ended<'_>) {
        tracing::debug!(
            "{}: {} {} after {:?}, {} bytes from it and {} to it",
            ended.remote,
            ended.target.map_or("", |target| &target.destination.text),
            ended.reason,
            ended.took,
            ended.from_client,
            ended.from_target,
        );
        if let Some(hook) = &self.hook {
            hook(ended);
        }
    }

    fn series(&self, family: Family) -> &TcpSeries {
        match family {
            Family::Port | Family::Datagrams => self.metrics.tcp(),
            Family::ServerName => self.metrics.tcp_sni(),
        }
    }
}

/// What all connections of one listener share.
#[derive(Clone, Debug)]
pub struct Listener {
    pub family: Family,
    /// `rt`; 0: no limit. Longest time in which nothing moves in either direction.
    pub idle_timeout: Duration,
    /// `wt`; 0: no limit. Longest time in which the client takes none of the bytes that wait for it.
    pub write_timeout: Duration,
}

/// What a connection is routed by, and which series count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// tcp and tcp-dynamic: the port, or address and port, that the client has connected to.
    Port,
    /// tcp+sni and https+tcp+sni: the name that the client asks for.
    ServerName,
    /// udp: the port, and sessions instead of connections.
    Datagrams,
}

/// The worker and the listener of a connection.
#[derive(Clone)]
pub struct Place {
    pub worker: Rc<Worker>,
    pub listener: Rc<Listener>,
}
