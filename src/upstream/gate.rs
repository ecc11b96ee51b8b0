//! How many requests a place has at the same time, and who waits for one of them to end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

use super::Endpoint;

/// Counts requests under way of those routes that have a limit. The limit itself is the route's.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicUsize,
    waiting: AtomicUsize,
    left: Notify,
}

/// A request that is under way. Dropped, it makes room for another one.
#[derive(Debug)]
pub struct Permit(Arc<Endpoint>);

/// Why a request may not be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// As many wait as may wait.
    Queue,
    /// It has waited for too long.
    Waited,
}

impl Full {
    /// The option that is to blame.
    pub fn name(self) -> &'static str {
        match self {
            Full::Queue => "maxpending",
            Full::Waited => "queuetimeout",
        }
    }
}

impl Gate {
    pub fn is_full(&self, limit: usize) -> bool {
        self.inside.load(SeqCst) >= limit
    }

    /// Requests under way, and those that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.inside.load(SeqCst), self.waiting.load(SeqCst))
    }

    fn try_enter(&self, limit: usize) -> bool {
        self.inside.fetch_update(SeqCst, SeqCst, |inside| (inside < limit).then_some(inside + 1)).is_ok()
    }
}

impl Endpoint {
    /// Waits until fewer than `limit` requests are under way. Who waits stands in a queue, with up to `queue` places.
    pub async fn enter(self: Arc<Self>, limit: usize, queue: usize, patience: Duration) -> Result<Permit, Full> {
        let gate = &self.gate;
        // Nobody overtakes those who wait, as far as that is known.
        if gate.waiting.load(SeqCst) == 0 && gate.try_enter(limit) {
            return Ok(Permit(self));
        }
        if gate.waiting.fetch_update(SeqCst, SeqCst, |waiting| (waiting < queue).then_some(waiting + 1)).is_err() {
            // The queue has no places at all perhaps, but there may be room.
            return if queue == 0 && gate.try_enter(limit) { Ok(Permit(self)) } else { Err(Full::Queue) };
        }
        let waiting = Waiting(gate);
        let entered = tokio::time::timeout(patience, async {
            loop {
                let mut left = pin!(gate.left.notified());
                // From now on each one who leaves wakes another one of those who wait.
                left.as_mut().enable();
                if gate.try_enter(limit) {
                    return;
                }
                left.await;
            }
        })
        .await;
        drop(waiting);
        match entered {
            Ok(()) => Ok(Permit(self)),
            Err(_) => Err(Full::Waited),
        }
    }
}

struct Waiting<'a>(&'a Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let gate = &self.0.gate;
        gate.inside.fetch_sub(1, SeqCst);
        if gate.waiting.load(SeqCst) > 0 {
            gate.left.notify_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn endpoint() -> Arc<Endpoint> {
        Arc::new(Endpoint::new(1, "h", 1, None))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_waits_enters_when_somebody_leaves() {
        let place = endpoint();
        let first = place.clone().enter(1, 1, LONG).await.unwrap();
        assert!(place.gate.is_full(1) && !place.gate.is_full(2));
        let second = tokio::spawn(place.clone().enter(1, 1, LONG));
        while place.gate.counts() != (1, 1) {
            tokio::task::yield_now().await;
        }
        assert_eq!(place.clone().enter(1, 1, LONG).await.unwrap_err(), Full::Queue);
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert_eq!(place.gate.counts(), (1, 0));
        drop(second);
        assert_eq!(place.gate.counts(), (0, 0));
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let place = endpoint();
        let permit = place.clone().enter(1, 5, LONG).await.unwrap();
        let waited = place.clone().enter(1, 5, Duration::from_millis(10)).await;
        assert_eq!(waited.unwrap_err(), Full::Waited);
        // Given up half-way.
        let gone = tokio::time::timeout(Duration::from_millis(10), place.clone().enter(1, 5, LONG)).await;
        assert!(gone.is_err());
        assert_eq!(place.gate.counts(), (1, 0));
        drop(permit);
        assert!(place.clone().enter(1, 0, LONG).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_limit_holds_and_all_get_their_turn() {
        let place = endpoint();
        let most = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (place, most) = (place.clone(), most.clone());
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let permit = place.clone().enter(3, 1000, LONG).await.unwrap();
                        most.fetch_max(place.gate.counts().0, SeqCst);
                        tokio::task::yield_now().await;
                        drop(permit);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((place.gate.counts(), most.load(SeqCst)), ((0, 0), 3));
    }
}
