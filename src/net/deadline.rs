//! A time limit that is moved often and seldom reached.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Moving it to a later time costs no timer: the one that there is rings too early, and is set again then.
#[derive(Debug, Default)]
pub struct Deadline {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// From now on; 0 is no limit.
    pub fn within(&mut self, limit: Duration) {
        self.at = (!limit.is_zero()).then(|| Instant::now() + limit);
    }

    pub fn clear(&mut self) {
        self.at = None;
    }

    pub fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Ready when the time is up. Without a limit nobody is woken.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_last_limit_counts() {
        for (limits, expected) in [
            (&[SECOND][..], SECOND),
            (&[SECOND, 5 * SECOND], 5 * SECOND),
            (&[5 * SECOND, SECOND], SECOND),
            (&[5 * SECOND, SECOND, 3 * SECOND], 3 * SECOND),
        ] {
            let mut deadline = Deadline::default();
            let begun = Instant::now();
            for limit in limits {
                deadline.within(*limit);
                assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx).is_pending())).await);
            }
            poll_fn(|cx| deadline.poll(cx)).await;
            assert_eq!(begun.elapsed(), expected, "{limits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit() {
        let mut deadline = Deadline::default();
        deadline.within(SECOND);
        deadline.within(Duration::ZERO);
        let never = poll_fn(|cx| deadline.poll(cx));
        assert!(tokio::time::timeout(10 * SECOND, never).await.is_err());
        assert!(!deadline.is_set());
    }
}
