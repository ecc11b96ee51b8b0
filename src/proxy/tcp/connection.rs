//! One connection, from the moment when it is known to be ours.

use std::time::Duration;

use tokio::time::Instant;

use super::{Candidates, Ended, Found, Place, Reason};
use crate::net::client_hello::ClientHello;
use crate::net::{End, Limits, Peer, Side, Stream, relay};
use crate::proxy::{note, preamble};
use crate::route::Scheme;
use crate::upstream::{Entered, Verdict};

/// Counts from accepting to the end, whatever the end is. Dropped before it is over, it was cut.
pub struct Connection {
    place: Place,
    peer: Peer,
    server_name: Option<Box<str>>,
    target: Option<Entered>,
    begun: Instant,
    from_client: u64,
    from_target: u64,
    reason: Reason,
}

impl Connection {
    pub fn new(place: Place, peer: Peer) -> Self {
        let worker = &place.worker;
        worker.series(place.listener.family).conn.add(worker.shard, 1);
        Self {
            place,
            peer,
            server_name: None,
            target: None,
            begun: Instant::now(),
            from_client: 0,
            from_target: 0,
            reason: Reason::Shutdown,
        }
    }

    pub fn asked_for(&mut self, server_name: &str) {
        self.server_name = Some(server_name.into());
    }

    /// TLS was terminated, so there is more to tell about the client.
    pub fn secured(&mut self, peer: Peer) {
        self.peer = peer;
    }

    /// It is over before it began.
    pub fn close(mut self, reason: Reason) {
        let worker = &self.place.worker;
        let series = worker.series(self.place.listener.family);
        match reason {
            Reason::NoRoute => {
                series.no_route.add(worker.shard, 1);
                worker.metrics.http().not_found(worker.shard);
            }
            Reason::NoName => series.conn_fail.add(worker.shard, 1),
            _ => {}
        }
        self.reason = reason;
    }

    /// Where it may go; `None`: it was closed.
    pub fn admit(mut self, found: Found) -> Option<(Self, Candidates)> {
        match found {
            Found::Targets(candidates) => return Some((self, candidates)),
            Found::Denied(target) => {
                self.target = Some(target.enter());
                self.close(Reason::Denied);
            }
            Found::Nothing | Found::Nobody => self.close(Reason::NoRoute),
        }
        None
    }

    /// Connects to a target; `hello` is what the client said to it. `None`: there is none to be had, and it was closed.
    pub async fn connect(mut self, candidates: Candidates, hello: Option<&ClientHello>) -> Option<(Self, Stream)> {
        let Candidates { first, others } = candidates;
        let mut slow = 0;
        for target in std::iter::once(first).chain(others) {
            let preamble = preamble(target.options.proxy_protocol, &self.peer, hello);
            let target = target.enter();
            let pools = &self.place.worker.pools;
            // Routes of a port may lead to HTTP targets, of which host and port count, as in fabio.
            let mesh = target.endpoint.tls.as_ref().is_some_and(|tls| tls.mesh.is_some());
            let limit = target.options.tries.as_ref().and_then(|tries| tries.connect);
            let begun = Instant::now();
            let connected = if mesh || target.destination.scheme == Scheme::Tcps {
                pools.connect(&target.endpoint, &preamble, limit).await
            } else {
                pools.connect_plain(&target.endpoint, &preamble, limit).await
            };
            match connected {
                Ok(stream) => {
                    note(&target, Verdict::Fine);
                    self.target = Some(target);
                    return Some((self, stream));
                }
                Err(error) => {
                    let worker = &self.place.worker;
                    worker.series(self.place.listener.family).conn_fail.add(worker.shard, 1);
                    tracing::warn!("{} {}: {}", target.service, target.destination.text, error.chain());
                    note(&target, Verdict::Broken);
                    self.target = Some(target);
                    slow += u32::from(begun.elapsed() >= SLOW);
                    if slow >= SLOW_ONES {
                        break;
                    }
                }
            }
        }
        self.close(Reason::Unreachable);
        None
    }

    /// Moves bytes until the end.
    pub async fn relay(mut self, mut client: Stream, mut target: Stream) {
        let listener = &self.place.listener;
        let route = self.target.as_ref().and_then(|target| target.options.idle_timeout);
        let limits = Limits { idle: route.unwrap_or(listener.idle_timeout), write: listener.write_timeout };
        let end = {
            let worker = self.place.worker.clone();
            let counts = (&mut self.from_client, &mut self.from_target);
            let series = self.target.as_ref().map(|target| target.series.clone());
            let shard = worker.shard;
            let moved = |from_client, from_target| {
                *counts.0 += from_client;
                *counts.1 += from_target;
                if let Some(series) = &series {
                    series.bytes(shard, from_target, from_client);
                }
            };
            relay(&mut client, &mut target, limits, &worker.supplies, moved).await
        };
        self.reason = match &end {
            End::Done | End::Left => Reason::Done,
            End::Idle => Reason::Idle,
            End::Stuck => Reason::Stuck,
            End::Failed(Side::Client, _) => Reason::ClientFailed,
            End::Failed(Side::Target, _) => Reason::TargetFailed,
        };
        if let End::Failed(side, error) = end {
            tracing::debug!("{}: {side:?}: {error}", self.peer.remote);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let worker = &self.place.worker;
        let ended = Ended {
            family: self.place.listener.family,
            remote: self.peer.remote,
            local: self.peer.local,
            server_name: self.server_name.as_deref(),
            tls: self.peer.tls.as_deref(),
            target: self.target.as_deref(),
            from_client: self.from_client,
            from_target: self.from_target,
            took: self.begun.elapsed(),
            reason: self.reason,
        };
        worker.ended(&ended);
    }
}

/// Targets that take so long to fail are the kind that keeps a client waiting: more than a few of them are a general outage.
const SLOW: Duration = Duration::from_secs(1);
const SLOW_ONES: u32 = 3;
