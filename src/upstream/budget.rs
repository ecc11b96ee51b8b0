//! How many retries a route may have: a part of its requests, so that retries cannot pile up where everything is slow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Moment;

/// Requests and retries of the last ten seconds, one slot each.
///
/// A slot holds the second that it is about, requests and retries in one word, so that it changes as a whole.
#[derive(Debug, Default)]
pub struct Budget([AtomicU64; SECONDS as usize]);

impl Budget {
    /// A request has come.
    pub fn request(&self, now: Moment) {
        self.add(now, 1 << RETRY_BITS);
    }

    /// May there be one more retry, of so many percent of the requests? Then it is counted.
    ///
    /// Workers that ask at the same moment may get one more each than there should be.
    pub fn retry(&self, now: Moment, percent: u32) -> bool {
        let second = now / 1000;
        let (mut requests, mut retries) = (0, 0);
        for slot in &self.0 {
            let slot = slot.load(Relaxed);
            if second.wrapping_sub(slot >> (2 * RETRY_BITS)) & STAMP < SECONDS {
                requests += (slot >> RETRY_BITS) & COUNT;
                retries += slot & COUNT;
            }
        }
        let allowed = requests.saturating_mul(u64::from(percent)) / 100 + FLOOR * SECONDS;
        if retries >= allowed {
            return false;
        }
        self.add(now, 1);
        true
    }

    fn add(&self, now: Moment, what: u64) {
        let second = now / 1000;
        let stamp = (second & STAMP) << (2 * RETRY_BITS);
        let slot = &self.0[(second % SECONDS) as usize];
        let add = |old: u64| {
            if old >> (2 * RETRY_BITS) != second & STAMP {
                return Some(stamp + what);
            }
            let count = if what == 1 { old & COUNT } else { (old >> RETRY_BITS) & COUNT };
            (count < COUNT).then_some(old + what)
        };
        // None: as many as can be counted in a second.
        let _ = slot.fetch_update(Relaxed, Relaxed, add);
    }
}

/// The length of the window.
const SECONDS: u64 = 10;
/// Retries per second that are always allowed, or a route with few requests would have none.
const FLOOR: u64 = 5;
const RETRY_BITS: u32 = 24;
const COUNT: u64 = (1 << RETRY_BITS) - 1;
/// What is left for the second. It comes round after 18 hours; a slot that nobody has touched for exactly so long counts again,
/// for ten seconds.
const STAMP: u64 = (1 << (64 - 2 * RETRY_BITS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(budget: &Budget, now: Moment, asked: usize) -> usize {
        (0..asked).filter(|_| budget.retry(now, 20)).count()
    }

    #[test]
    fn a_fifth_of_the_requests_and_a_few() {
        for (requests, want) in [(0, 50), (100, 70), (10_000, 2050)] {
            let budget = Budget::default();
            (0..requests).for_each(|_| budget.request(5000));
            assert_eq!(granted(&budget, 5999, 5000), want);
            assert_eq!(granted(&budget, 6000, 100), 0, "used up");
        }
    }

    #[test]
    fn the_window_slides() {
        let budget = Budget::default();
        (0..1000).for_each(|_| budget.request(1000));
        assert_eq!(granted(&budget, 10_500, 1000), 250);
        // The requests are forgotten, the retries are not yet.
        assert_eq!(granted(&budget, 11_500, 1000), 0);
        assert_eq!(granted(&budget, 20_000, 1000), 50);
    }

    #[test]
    fn everything_fails_and_the_load_stays_bounded() {
        let budget = Budget::default();
        let mut sent = 0;
        for n in 0..60_000u64 {
            let now = 1 + n;
            budget.request(now);
            sent += 1;
            for _ in 0..2 {
                sent += usize::from(budget.retry(now, 20));
            }
        }
        assert!((sent as f64) < 60_000.0 * 1.25, "{sent}");
    }
}
