//! What requests tell about the health of a place, beside what its registry says: a place that fails again and again is
//! passed over for a while.
//!
//! Written by all workers without a lock. Two that fail at the same moment may both count, or one of them may not: what is
//! decided here is decided by many requests, so that does no harm.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::route::Ejection;

/// Milliseconds since the process began, never 0.
pub type Moment = u64;

/// The present. Reads the clock, so it is asked for only when something depends on it.
pub fn moment() -> Moment {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    1 + u64::try_from(BEGIN.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
}

/// What became of one try, as far as the health of its place is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An answer that the place itself has made.
    Fine,
    /// No connection, or one that ended on a fresh connection before an answer.
    Broken,
    /// 502, 503, 504, or no answer in time.
    Gateway,
    /// Another 5xx: an answer, but no success.
    Failed,
}

/// Why a place is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Connections,
    Gateway,
    SuccessRate,
    /// Its own probe fails (`check=`).
    Probe,
}

impl Reason {
    const ALL: [Self; 4] = [Self::Connections, Self::Gateway, Self::SuccessRate, Self::Probe];

    /// One word for metrics and for the API.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Connections => "connections",
            Reason::Gateway => "gateway_errors",
            Reason::SuccessRate => "success_rate",
            Reason::Probe => "probe",
        }
    }
}

/// A place has just been ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejected {
    pub reason: Reason,
    pub time: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Health {
    /// Broken tries in a row.
    broken: AtomicU32,
    /// Gateway errors in a row.
    gateway: AtomicU32,
    /// The end of the last ejection; 0: there was none.
    until: AtomicU64,
    /// How often in a row, which makes the next one longer.
    times: AtomicU32,
    /// Of the last ejection, as its place in [`Reason::ALL`].
    reason: AtomicU32,
    /// The window of the success rate: its number, its requests, and those that failed.
    window: AtomicU32,
    requests: AtomicU32,
    failures: AtomicU32,
    /// Probes that fail now: a place may have several, of different kinds.
    probe: AtomicU32,
}

impl Health {
    pub fn is_ejected(&self) -> bool {
        let until = self.until.load(Relaxed);
        self.probe.load(Relaxed) != 0 || until != 0 && moment() < until
    }

    /// Why, and for how much longer (`None`: until its probe succeeds).
    pub fn ejection(&self, now: Moment) -> Option<(Reason, Option<Duration>)> {
        if self.probe.load(Relaxed) != 0 {
            return Some((Reason::Probe, None));
        }
        let left = self.until.load(Relaxed).checked_sub(now).filter(|left| *left > 0)?;
        let reason = Reason::ALL[self.reason.load(Relaxed) as usize % Reason::ALL.len()];
        Some((reason, Some(Duration::from_millis(left))))
    }

    /// A probe begins to fail, or ends to: to be told once each time.
    pub fn probe_fails(&self, fails: bool) {
        if fails {
            self.probe.fetch_add(1, Relaxed);
        } else {
            self.probe.fetch_sub(1, Relaxed);
        }
    }

    /// Takes note of a try. `clock` is asked only when it matters.
    pub fn note(&self, verdict: Verdict, rules: &Ejection, clock: impl Fn() -> Moment) -> Option<Ejected> {
        let broken = match verdict {
            Verdict::Broken => self.broken.fetch_add(1, Relaxed).saturating_add(1),
            _ => {
                forget(&self.broken);
                0
            }
        };
        let gateway = match verdict {
            Verdict::Broken | Verdict::Gateway if rules.gateway > 0 => {
                self.gateway.fetch_add(1, Relaxed).saturating_add(1)
            }
            _ => {
                forget(&self.gateway);
                0
            }
        };
        if rules.connections > 0 && broken >= rules.connections {
            return self.eject(Reason::Connections, rules, clock());
        }
        if rules.gateway > 0 && gateway >= rules.gateway {
            return self.eject(Reason::Gateway, rules, clock());
        }
        if rules.success_rate > 0 && self.is_outlier(verdict, rules, clock()) {
            return self.eject(Reason::SuccessRate, rules, clock());
        }
        None
    }

    fn is_outlier(&self, verdict: Verdict, rules: &Ejection, now: Moment) -> bool {
        let window = (now / WINDOW) as u32;
        if self.window.swap(window, Relaxed) != window {
            self.requests.store(0, Relaxed);
            self.failures.store(0, Relaxed);
        }
        let requests = u64::from(self.requests.fetch_add(1, Relaxed).saturating_add(1));
        if verdict == Verdict::Fine {
            return false;
        }
        let failures = u64::from(self.failures.fetch_add(1, Relaxed).saturating_add(1));
        requests >= ENOUGH && (requests.saturating_sub(failures)) * 100 < u64::from(rules.success_rate) * requests
    }

    fn eject(&self, reason: Reason, rules: &Ejection, now: Moment) -> Option<Ejected> {
        let last = self.until.load(Relaxed);
        if last > now {
            // Requests that were under way when it was ejected.
            return None;
        }
        let longest = millis(rules.longest);
        let times = if last == 0 || now - last > longest { 0 } else { self.times.load(Relaxed) };
        let time = millis(rules.time).saturating_mul(1 << times.min(20)).min(longest).max(1);
        if self.until.compare_exchange(last, now.saturating_add(time), Relaxed, Relaxed).is_err() {
            return None;
        }
        self.times.store(times.saturating_add(1), Relaxed);
        self.reason.store(Reason::ALL.iter().position(|r| *r == reason).unwrap_or_default() as u32, Relaxed);
        // Back again, it is on probation: one failure more ejects it again, one success clears it.
        self.broken.store(rules.connections.saturating_sub(1), Relaxed);
        self.gateway.store(rules.gateway.saturating_sub(1), Relaxed);
        self.requests.store(0, Relaxed);
        self.failures.store(0, Relaxed);
        Some(Ejected { reason, time: Duration::from_millis(time) })
    }
}

/// Writes only if there is something to write: the usual request leaves the cache line as it is.
fn forget(count: &AtomicU32) {
    if count.load(Relaxed) != 0 {
        count.store(0, Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds over which the success rate is taken.
const WINDOW: u64 = 10_000;
/// Requests in a window that a rate is worth looking at.
const ENOUGH: u64 = 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn note(health: &Health, rules: &Ejection, now: Moment, verdicts: &[Verdict]) -> Vec<Ejected> {
        verdicts.iter().filter_map(|verdict| health.note(*verdict, rules, || now)).collect()
    }

    #[test]
    fn failures_in_a_row_eject_and_a_success_in_between_does_not() {
        use Verdict::{Broken, Failed, Fine, Gateway};
        let rules = Ejection { connections: 3, gateway: 0, ..Ejection::default() };
        let gateway = Ejection { gateway: 2, ..rules.clone() };
        for (rules, verdicts, want) in [
            (&rules, &[Broken, Broken, Broken][..], Some(Reason::Connections)),
            (&rules, &[Broken, Broken, Fine, Broken, Broken], None),
            (&rules, &[Broken, Broken, Failed, Broken], None),
            (&rules, &[Gateway, Gateway, Gateway, Gateway], None),
            (&gateway, &[Gateway, Gateway], Some(Reason::Gateway)),
            (&gateway, &[Gateway, Broken], Some(Reason::Gateway)),
            (&gateway, &[Gateway, Failed, Gateway], None),
        ] {
            let health = Health::default();
            let ejected = note(&health, rules, 1000, verdicts);
            assert_eq!(ejected.first().map(|ejected| ejected.reason), want, "{verdicts:?}");
            assert_eq!(health.ejection(1001).map(|(reason, _)| reason), want);
        }
        let off = Ejection { connections: 0, ..Ejection::default() };
        assert_eq!(note(&Health::default(), &off, 1, &[Broken; 100]), []);
    }

    #[test]
    fn ejections_grow_up_to_a_cap_and_are_forgotten() {
        let rules = Ejection {
            connections: 2,
            time: Duration::from_secs(1),
            longest: Duration::from_secs(4),
            ..Ejection::default()
        };
        let health = Health::default();
        let mut now = 1;
        for seconds in [1, 2, 4, 4] {
            let ejected = note(&health, &rules, now, &[Verdict::Broken, Verdict::Broken]);
            assert_eq!(ejected, [Ejected { reason: Reason::Connections, time: Duration::from_secs(seconds) }]);
            assert_eq!(note(&health, &rules, now + 1, &[Verdict::Broken; 5]), [], "while it is out");
            now += seconds * 1000;
            assert_eq!(health.ejection(now), None);
        }
        // On probation one failure is enough.
        assert_eq!(note(&health, &rules, now, &[Verdict::Broken]).len(), 1);
        now += 4000;
        assert_eq!(note(&health, &rules, now, &[Verdict::Fine, Verdict::Broken]), []);
        now += 4001;
        let ejected = note(&health, &rules, now, &[Verdict::Broken]);
        assert_eq!(ejected[0].time, Duration::from_secs(1));
    }

    #[test]
    fn a_low_success_rate_ejects_when_there_are_enough_requests() {
        let rules = Ejection { connections: 0, success_rate: 80, ..Ejection::default() };
        let health = Health::default();
        let mut out = Vec::new();
        for n in 0..40 {
            let verdict = if n % 4 == 0 { Verdict::Failed } else { Verdict::Fine };
            out.extend(health.note(verdict, &rules, || 5).map(|ejected| (n, ejected.reason)));
        }
        assert_eq!(out.first(), Some(&(20, Reason::SuccessRate)), "{out:?}");
        let health = Health::default();
        for n in 0..200u64 {
            let verdict = if n % 4 == 0 { Verdict::Failed } else { Verdict::Fine };
            // Ten in a window say nothing.
            assert_eq!(health.note(verdict, &rules, || 1 + n * 1000), None);
        }
    }

    #[test]
    fn a_probe_that_fails_ejects_until_it_succeeds() {
        let health = Health::default();
        health.probe_fails(true);
        health.probe_fails(true);
        health.probe_fails(false);
        assert!(health.is_ejected(), "there is another one");
        health.probe_fails(false);
        assert!(!health.is_ejected());
    }
}
