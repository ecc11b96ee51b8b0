//! Accepting connections, and nothing lost at the end.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use crate::metrics::names;

/// Hands each connection to `each` until `end`. Then those that wait in the queue are taken as well, because closing the
/// socket would reset them.
pub async fn accept(listener: TcpListener, end: impl Future<Output = ()>, mut each: impl FnMut(TcpStream, SocketAddr)) {
    let mut end = std::pin::pin!(end);
    let mut complaint: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut end => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                prepare(&stream);
                each(stream, addr);
            }
            Err(error) if is_clients(&error) => {}
            Err(error) => {
                metrics::counter!(names::ACCEPT_ERRORS).increment(1);
                // Mostly out of descriptors: connections have to end before more can come in.
                if complaint.is_none_or(|last| last.elapsed() > COMPLAIN_EVERY) {
                    complaint = Some(Instant::now());
                    let addr = listener.local_addr().map_or_else(|_| "?".into(), |addr| addr.to_string());
                    tracing::error!("cannot accept connections on {addr}: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, addr)) = listener.accept() {
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        if let Ok(stream) = TcpStream::from_std(stream) {
            prepare(&stream);
            each(stream, addr);
        }
    }
}

/// Neither option can fail on a live socket; on a dead one the first read tells.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keep_alive);
}

/// The connection is gone already; the next one may be fine.
fn is_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// As fabio.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
