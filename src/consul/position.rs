//! Where a blocking query stands: which index to ask with, and what an answer's index means.
//!
//! See "Implementation Details" of HashiCorp's page about blocking queries: an index that went backwards starts over,
//! and 0 never goes into a blocking query.

use std::time::Duration;

/// What the index of an answer says about its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to compare with: the first answer, or the first after a reset.
    First,
    Moved,
    /// The wait ran out.
    Same,
    /// Consul was restored or replaced; what it says now counts.
    Reset,
    /// No usable index. The content counts, but blocking is not possible.
    Missing,
}

#[derive(Clone, Debug, Default)]
pub struct Position {
    last: u64,
    /// After a failure, one query does not block, so that the answer comes when the server is back.
    probing: bool,
}

impl Position {
    /// `None`: ask without an index, which is answered at once.
    pub fn ask(&self) -> Option<u64> {
        (self.last > 0 && !self.probing).then_some(self.last)
    }

    pub fn failed(&mut self) {
        self.probing = true;
    }

    pub fn answered(&mut self, index: u64) -> Step {
        self.probing = false;
        let step = match index {
            0 => Step::Missing,
            _ if self.last == 0 => Step::First,
            n if n < self.last => Step::Reset,
            n if n == self.last => Step::Same,
            _ => Step::Moved,
        };
        self.last = if step == Step::Reset { 0 } else { index };
        step
    }

    pub fn index(&self) -> u64 {
        self.last
    }
}

/// How long to wait after a failed attempt that took `took`. Attempts lie 1 to 2 s apart, so that no read is repeated
/// more than once a second; one that blocked longer than that is repeated almost at once. `random` lies in 0..1.
pub(super) fn pause_after_failure(failures: u32, took: Duration, random: f64) -> Duration {
    let (from, spread) = match failures {
        0 | 1 => (1.0, 0.2),
        2 => (1.2, 0.4),
        _ => (1.5, 0.5),
    };
    let gap = Duration::from_secs_f64(from + spread * random);
    gap.saturating_sub(took).max(Duration::from_secs_f64(0.02 + 0.08 * random))
}

/// How long to wait after an answer that came after `took`: only a server that does not block as asked is slowed down.
pub(super) fn pause_after_answer(step: Step, took: Duration) -> Duration {
    match step {
        Step::First | Step::Moved => Duration::ZERO,
        Step::Same | Step::Reset | Step::Missing => Duration::from_secs(1).saturating_sub(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_rules() {
        use Step::*;
        // name, (answered index, step, next question)
        type Case = (&'static str, &'static [(u64, Step, Option<u64>)]);
        let cases: &[Case] = &[
            ("grows", &[(5, First, Some(5)), (9, Moved, Some(9)), (9, Same, Some(9))]),
            (
                "goes backwards",
                &[(500, First, Some(500)), (20, Reset, None), (20, First, Some(20)), (21, Moved, Some(21))],
            ),
            ("is always 0", &[(0, Missing, None), (0, Missing, None)]),
            ("becomes 0", &[(7, First, Some(7)), (0, Missing, None), (7, First, Some(7))]),
            ("is 1", &[(1, First, Some(1)), (1, Same, Some(1))]),
        ];
        for (name, steps) in cases {
            let mut position = Position::default();
            assert_eq!(position.ask(), None, "{name}");
            for (i, (index, step, next)) in steps.iter().enumerate() {
                assert_eq!(position.answered(*index), *step, "{name} {i}");
                assert_eq!(position.ask(), *next, "{name} {i}");
            }
        }
    }

    #[test]
    fn a_failure_asks_without_blocking_but_remembers_the_index() {
        let mut position = Position::default();
        position.answered(50);
        position.failed();
        assert_eq!(position.ask(), None);
        assert_eq!(position.answered(20), Step::Reset);
        position.answered(20);
        position.failed();
        assert_eq!(position.answered(20), Step::Same);
        assert_eq!(position.ask(), Some(20));
    }

    #[test]
    fn attempts_lie_one_to_two_seconds_apart() {
        for failures in 1..10 {
            for random in [0.0, 0.5, 0.999] {
                for took in [0, 10, 900] {
                    let took = Duration::from_millis(took);
                    let gap = took + pause_after_failure(failures, took, random);
                    assert!((1.0..=2.0).contains(&gap.as_secs_f64()), "{failures} {random} {took:?}: {gap:?}");
                }
                let cut = pause_after_failure(failures, Duration::from_secs(30), random);
                assert!(cut <= Duration::from_millis(100), "{cut:?}");
            }
        }
    }

    #[test]
    fn a_server_that_does_not_block_is_asked_once_a_second() {
        let quick = Duration::from_millis(1);
        for step in [Step::Same, Step::Reset, Step::Missing] {
            assert!(pause_after_answer(step, quick) >= Duration::from_millis(999), "{step:?}");
            assert_eq!(pause_after_answer(step, Duration::from_secs(30)), Duration::ZERO);
        }
        assert_eq!(pause_after_answer(Step::Moved, quick), Duration::ZERO);
    }
}
