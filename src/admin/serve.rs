//! Connections: how many, how long, how large.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::stall::Impatient;
use super::{State, answer};

/// Serves until `stop` becomes true, then ends idle connections, finishes requests under way, and returns.
///
/// `stop` is the end of the admin listener, not the beginning of the drain: while the process drains, `/health` must
/// still be there to say so.
pub async fn serve(listener: TcpListener, state: Arc<State>, mut stop: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let watched = stop.clone();
    let accepted = async {
        loop {
            // First a place, then a connection: those beyond the limit wait in the kernel's queue.
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "admin listener: cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
            let (state, stop) = (state.clone(), watched.clone());
            connections.spawn(async move {
                let _permit = permit;
                serve_connection(stream, state, stop).await;
            });
        }
    };
    tokio::select! {
        () = accepted => {}
        () = stopped(&mut stop) => {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection: of a socket, or with TLS already done. Ends as [`serve`] does.
pub async fn serve_connection<IO>(io: IO, state: Arc<State>, mut stop: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let listen = &state.config.listen;
    let or = |configured: Duration, default| if configured.is_zero() { default } else { configured };
    let (head, write) = (or(listen.read_timeout, HEAD_TIMEOUT), or(listen.write_timeout, WRITE_TIMEOUT));

    let service = service_fn(|request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer::answer(&state, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(HEAD_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(Impatient::new(io, write)), service);
    let mut connection = pin!(connection);

    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "admin connection");
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same as `true`.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// For a person, a few scripts and the health checks of Consul this is plenty.
const CONNECTIONS_MAX: usize = 512;
/// Also bounds how long a kept-alive connection may be idle. Longer than the ten seconds between Consul's checks.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const HEAD_MAX: usize = 64 * 1024;
/// Out of descriptors: closing some takes somebody else a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
