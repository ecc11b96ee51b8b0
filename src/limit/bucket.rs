//! One token bucket in one word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How fast tokens come, and how many there are at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Nanoseconds from one token to the next. Not 0.
    pub interval: u64,
    /// Tokens of a full bucket. Not 0.
    pub burst: u64,
}

/// Full at first. The word is the nanosecond at which it will be full again.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token, or says in what time there will be one. `now`: nanoseconds since whenever.
    pub fn take(&self, now: u64, pace: Pace) -> Result<(), Duration> {
        let depth = pace.interval.saturating_mul(pace.burst);
        let mut full = self.0.load(Relaxed);
        loop {
            let next = full.max(now).saturating_add(pace.interval);
            if next - now > depth {
                return Err(Duration::from_nanos(next - now - depth));
            }
            match self.0.compare_exchange_weak(full, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => full = other,
            }
        }
    }

    pub(super) fn full_at(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(super) fn fill(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { interval: 100, burst: 3 };

    #[test]
    fn a_burst_then_one_at_a_time() {
        let bucket = Bucket::default();
        let wait = |nanos| Err(Duration::from_nanos(nanos));
        for (now, want) in [
            (1000, Ok(())),
            (1000, Ok(())),
            (1000, Ok(())),
            (1000, wait(100)),
            (1050, wait(50)),
            (1100, Ok(())),
            (1100, wait(100)),
            (9000, Ok(())),
            (9000, Ok(())),
            (9000, Ok(())),
            (9000, wait(100)),
        ] {
            assert_eq!(bucket.take(now, PACE), want, "{now}");
        }
    }

    #[test]
    fn workers_together_get_what_one_would() {
        let bucket = Bucket::default();
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for now in 0..100_000 {
                        taken.fetch_add(u64::from(bucket.take(now, PACE).is_ok()), Relaxed);
                    }
                });
            }
        });
        let taken = taken.load(Relaxed);
        assert!((1000..=1003).contains(&taken), "{taken}");
    }

    #[test]
    fn extremes() {
        let bucket = Bucket::default();
        let pace = Pace { interval: u64::MAX, burst: u64::MAX };
        assert_eq!(bucket.take(u64::MAX, pace), Ok(()));
        assert!(bucket.take(0, Pace { interval: 1, burst: 1 }).is_err());
    }
}
