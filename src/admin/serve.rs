//! Connections: how many, how long, how large.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::stall::Impatient;
use super::{State, answer};
use crate::life::{Phase, Watch};

/// Serves until [`Phase::Closing`], then ends idle connections, finishes requests under way, and returns. While the
/// process is only leaving, everything is still served: `/health` must be there to say so.
pub async fn serve(listener: TcpListener, state: Arc<State>, mut life: Watch) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = life.reached(Phase::Closing) => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, client)) => {
                connections.spawn(serve_connection(stream, Some(client.ip()), state.clone(), life.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "admin listener: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection: of a socket, or with TLS already done. Ends as [`serve`] does.
/// `client`: who is at the other end.
pub async fn serve_connection<IO>(io: IO, client: Option<IpAddr>, state: Arc<State>, mut life: Watch)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(_permit) = state.connections.try_acquire() else {
        tracing::debug!("admin listener: too many connections");
        return;
    };
    let listen = &state.config.listen;
    let or = |configured: Duration, default| if configured.is_zero() { default } else { configured };
    let (head, write) = (or(listen.read_timeout, HEAD_TIMEOUT), or(listen.write_timeout, WRITE_TIMEOUT));

    let caller = Arc::new(answer::Caller { life: life.clone(), client });
    let service = service_fn(|request| {
        let (state, caller) = (state.clone(), caller.clone());
        async move {
            let mut answer = answer::answer(&state, &caller, request).await;
            if caller.life.phase() >= Phase::Replaced {
                // The next request is for whoever has taken over.
                answer.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    // While the last requests are finished there is one answer for whoever asks whether we are well.
    let late = life.phase() >= Phase::Closing;
    let until = if late { Phase::Ended } else { Phase::Closing };
    let connection = http1::Builder::new()
        .keep_alive(!late)
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(HEAD_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(Impatient::new(io, write)), service);
    let mut connection = pin!(connection);

    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = life.reached(until) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "admin connection");
    }
}

/// For a person, a few scripts and the health checks of Consul this is plenty.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// Also bounds how long a kept-alive connection may be idle. Longer than the ten seconds between Consul's checks.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const HEAD_MAX: usize = 64 * 1024;
/// Out of descriptors: closing some takes somebody else a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
