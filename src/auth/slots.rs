//! Room for work that would stall a worker: slow password hashes run beside it, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

pub(super) struct Slots {
    running: Arc<Semaphore>,
    /// Running and waiting.
    entered: AtomicUsize,
}

/// Nobody else gets in for now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Default for Slots {
    /// Half of the processors: the others go on serving those who are in.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { running: Arc::new(Semaphore::new((processors / 2).max(1))), entered: AtomicUsize::new(0) }
    }
}

impl Slots {
    /// Runs `work` once a slot is free, unless `known` has an answer by then: others may have waited for the same.
    pub(super) async fn run(
        &self,
        known: impl Fn() -> Option<bool>,
        work: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool, Full> {
        let _entry = self.enter()?;
        let Ok(permit) = self.running.clone().acquire_owned().await else { return Err(Full) };
        if let Some(known) = known() {
            return Ok(known);
        }
        // The slot is held until the work is done, also if nobody waits for it any more.
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        Ok(done.await.unwrap_or(false))
    }

    fn enter(&self) -> Result<Entry<'_>, Full> {
        let entry = Entry(&self.entered);
        if self.entered.fetch_add(1, Ordering::Relaxed) >= MOST { Err(Full) } else { Ok(entry) }
    }
}

struct Entry<'a>(&'a AtomicUsize);

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With a hash of 100 ms: the last one waits for some seconds.
const MOST: usize = 128;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_so_many_wait() {
        let slots = Slots::default();
        assert_eq!(slots.run(|| None, || true).await, Ok(true));
        let entries: Vec<_> = (0..MOST).map(|_| slots.enter().unwrap()).collect();
        assert_eq!(slots.run(|| None, || true).await, Err(Full));
        drop(entries);
        assert_eq!(slots.run(|| Some(false), || true).await, Ok(false));
    }
}
