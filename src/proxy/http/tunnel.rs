//! Connections that speak something else now: WebSockets and whatever else a target has agreed to.

use std::future::pending;

use super::{Client, Tunnel};
use crate::life::{Phase, Watch};
use crate::net::{Course, End, Farewell as Frames, Limits, Stream, relay_until};
use crate::proxy::Farewell;

/// Moves bytes until the end, or until [`Phase::Closing`]: nobody waits for a WebSocket, but both sides may be told.
/// `ahead` is what was read from the client behind its request.
pub(super) async fn run(client: &Client, mut stream: Stream, ahead: &[u8], tunnel: Tunnel, mut life: Watch) {
    let Tunnel { mut upgraded, mut record, open, browser } = tunnel;
    let worker = &client.worker;
    let idle = record.idle_timeout().unwrap_or(worker.config.websocket_idle_timeout);
    let course = Course {
        limits: Limits { idle, ..Limits::default() },
        from_client: ahead,
        from_target: &upgraded.read,
        farewell: open.is_some().then(|| Frames::going_away(fastrand::u32(..).to_ne_bytes())),
    };
    let mut bytes = (0, 0);
    let moved = |forth, back| bytes = (bytes.0 + forth, bytes.1 + back);
    let told = match worker.config.farewell {
        Farewell::All => true,
        Farewell::Browsers => browser,
        Farewell::Nobody => false,
    };
    let leave = life.reached(Phase::Closing);
    let end = if told {
        relay_until(&mut stream, &mut upgraded.stream, course, &worker.supplies, leave, moved).await
    } else {
        tokio::select! {
            end = relay_until(&mut stream, &mut upgraded.stream, course, &worker.supplies, pending(), moved) => end,
            () = leave => End::Left,
        }
    };
    record.copied(bytes.0, bytes.1);
    if let End::Failed(side, error) = end {
        tracing::debug!("{}: {side:?}: {error}", client.peer.remote);
    }
}
