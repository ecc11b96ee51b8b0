//! The vocabulary of the tests: real peers on loopback, which do exactly what a test tells them and show what they saw.
//!
//! Belongs to no product build. The library compiles it for its unit tests and src/e2e/main.rs for the whole-program
//! tests, so it names nothing of ours but itself. Helpers panic with what they were waiting for: in a test, that is the
//! report. Nothing here waits longer than [`PATIENCE`].

// Each of the two test targets uses a part of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

pub(crate) mod acme;
pub(crate) mod certs;
pub(crate) mod client;
pub(crate) mod consul;
pub(crate) mod ferrio;
pub(crate) mod h2;
pub(crate) mod origin;
pub(crate) mod process;
pub(crate) mod wire;

/// How long anything on this machine may take before it counts as hanging. Long, because test machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks until `check` gives a value, and panics with `what` when that takes longer than `within`.
///
/// For a plain condition: `until(PATIENCE, "two connections", async || (origin.open() == 2).then_some(()))`.
pub(crate) async fn until<T>(within: Duration, what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The output of `future`, or a panic with `what` when that takes longer than [`PATIENCE`].
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// An address on loopback with a port that was free a moment ago, for processes that cannot be given port 0.
pub(crate) fn free_addr() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port on loopback")
}

/// Several of them, all different.
pub(crate) fn free_addrs<const N: usize>() -> [SocketAddr; N] {
    let held: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    held.each_ref().map(|l| l.local_addr().expect("a bound socket has an address"))
}
