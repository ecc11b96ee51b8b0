//! How busy a target is and how long it takes to answer, as strategies want to know it.
//!
//! Written by all workers without a lock, and only for targets of routes whose strategy looks at it. Two that write at the
//! same moment may lose one of two measurements, which are many.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::TargetState;

/// On a cache line of its own: it is written with each request, and what stands beside it is only read.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load {
    observed: AtomicBool,
    in_flight: AtomicU32,
    /// Seconds, as the bits of an `f64`; 0: not known.
    latency: AtomicU64,
    /// When it was measured, in microseconds.
    at: AtomicU64,
}

impl Load {
    /// From now on requests are counted, or no longer. Control plane only.
    pub(super) fn observe(&self, wanted: bool) {
        self.observed.store(wanted, Relaxed);
    }

    /// Requests that are not over.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Seconds to the response head, lately; 0: not known. What was measured long ago counts less and less, so that a
    /// target that was slow is tried again.
    pub fn latency(&self, now: Tick) -> f64 {
        let latency = f64::from_bits(self.latency.load(Relaxed));
        if latency == 0.0 { 0.0 } else { latency * self.weight(now) }
    }

    /// Takes a measurement in: a higher one at once, a lower one gradually (peak EWMA).
    pub fn measured(&self, took: Duration, now: Tick) {
        let took = took.as_secs_f64().max(f64::MIN_POSITIVE);
        let old = f64::from_bits(self.latency.load(Relaxed));
        let new = if old == 0.0 || took >= old {
            took
        } else {
            let weight = self.weight(now);
            old * weight + took * (1.0 - weight)
        };
        self.latency.store(new.to_bits(), Relaxed);
        self.at.store(now.0, Relaxed);
    }

    /// How much of the last measurement is left.
    fn weight(&self, now: Tick) -> f64 {
        let age = now.0.saturating_sub(self.at.load(Relaxed));
        (-(age as f64) / MEMORY).exp()
    }
}

/// Microseconds since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

impl Tick {
    pub fn now() -> Self {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        Self(BEGIN.elapsed().as_micros() as u64)
    }
}

/// A request that a target has not finished. Counts until it is dropped.
pub struct Flight {
    target: Arc<TargetState>,
    begun: Instant,
    answered: bool,
}

impl TargetState {
    /// `None` if nobody wants to know.
    pub fn begin(self: &Arc<Self>) -> Option<Flight> {
        if !self.load.observed.load(Relaxed) {
            return None;
        }
        self.load.in_flight.fetch_add(1, Relaxed);
        Some(Flight { target: self.clone(), begun: Instant::now(), answered: false })
    }
}

impl Flight {
    /// The response head is there, or it is known that there will be none. A target that fails quickly must not look like
    /// a fast one.
    pub fn answered(&mut self, failed: bool) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let took = self.begun.elapsed();
        self.target.load.measured(if failed { took.max(FAILURE) } else { took }, Tick::now());
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.target.load.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Microseconds in which a measurement comes down to about a third of its weight.
pub(crate) const MEMORY: f64 = 10e6;
/// Longer than most answers take.
const FAILURE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_count_at_once_and_fade() {
        let load = Load::default();
        let at = |seconds: u64| Tick(seconds * 1_000_000);
        assert_eq!(load.latency(at(5)), 0.0);
        load.measured(Duration::from_millis(10), at(5));
        assert_eq!(load.latency(at(5)), 0.01);
        load.measured(Duration::from_millis(100), at(5));
        assert_eq!(load.latency(at(5)), 0.1);
        load.measured(Duration::from_millis(10), at(6));
        let after = load.latency(at(6));
        assert!(after < 0.1 && after > 0.09, "{after}");
        assert!(load.latency(at(36)) < 0.006);
        // A clock that stands still or goes back changes nothing.
        assert_eq!(load.latency(at(1)), after);
    }
}
