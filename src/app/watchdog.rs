//! Signs of life for a service manager: sent while every worker still turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::life::{Notify, Phase, Watch};

/// When each worker was last seen.
pub(super) struct Pulses {
    since: Instant,
    workers: Box<[AtomicU64]>,
    /// How long the manager waits.
    limit: Duration,
}

impl Pulses {
    /// `None`: nobody wants to know.
    pub(super) fn new(notify: &Notify, workers: usize) -> Option<Arc<Self>> {
        let limit = notify.watchdog()?;
        let workers = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Some(Arc::new(Self { since: Instant::now(), workers, limit }))
    }

    /// Runs on the worker of this number.
    pub(super) async fn beat(self: Arc<Self>, worker: usize) {
        loop {
            let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.workers[worker].store(now, Ordering::Relaxed);
            tokio::time::sleep(self.limit / 4).await;
        }
    }

    /// Runs in the control plane. A worker that hangs silences it, and the manager starts us again.
    pub(super) async fn tell(self: Arc<Self>, notify: Notify, mut life: Watch) {
        loop {
            // Workers end one by one then, which proxy.shutdownwait bounds.
            let leaving = life.phase() >= Phase::Replaced;
            match self.late(self.since.elapsed()).filter(|_| !leaving) {
                None => notify.alive(),
                Some(worker) => tracing::error!("worker {worker} has not moved for {:?}", self.limit),
            }
            tokio::select! {
                () = life.reached(Phase::Ended) => return,
                () = tokio::time::sleep(self.limit / 3) => {}
            }
        }
    }

    /// A worker that was not seen for too long.
    fn late(&self, now: Duration) -> Option<usize> {
        let late =
            |seen: &AtomicU64| now.saturating_sub(Duration::from_millis(seen.load(Ordering::Relaxed))) > self.limit;
        self.workers.iter().position(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_hangs_is_found() {
        let pulses = Pulses {
            since: Instant::now(),
            workers: [0, 5000].map(AtomicU64::new).into(),
            limit: Duration::from_secs(2),
        };
        assert_eq!(pulses.late(Duration::from_secs(1)), None);
        assert_eq!(pulses.late(Duration::from_secs(6)), Some(0));
        pulses.workers[0].store(6000, Ordering::Relaxed);
        assert_eq!(pulses.late(Duration::from_secs(6)), None);
    }
}
