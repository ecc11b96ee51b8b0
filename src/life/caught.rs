//! A future whose panics end nobody else.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// It has panicked, which was told already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Runs it to its end, or to a panic; then it is dropped, so what it shares with others must not be left half changed.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_result() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let late = async {
            tokio::task::yield_now().await;
            panic!("for a test");
        };
        assert_eq!(caught::<_>(late).await.map(|(): ()| ()), Err(Panicked));
    }
}
