//! When to look for changes that no list shows.
//!
//! An address or a port that changes alone moves the index of the service names, and nothing else. If neither the checks
//! nor a service that was read have that same index, such a change is likely, and somebody has to look. Two changes in one
//! moment can hide each other: so after moves that came in quick succession somebody has to look in any case, and a single
//! one that was explained is looked after as well, but later.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Audit {
    /// Indexes of moves of the names that were not judged yet, and when the last came.
    moves: Vec<u64>,
    moved: Option<Instant>,
    hiding: bool,
    /// A move was not explained. Services that were read after `since` need not be read again.
    wanted: bool,
    since: Option<Instant>,
    later: Option<Instant>,
    /// Until when the share of time for audits is used up. A few in a row are allowed before that.
    free: Option<Instant>,
    /// After a failure: not before this.
    retry: Option<Instant>,
    /// Indexes of the latest reads, and of the last list of checks with a change.
    reads: VecDeque<u64>,
    checks: u64,
}

impl Audit {
    /// The names have a new index. `hiding`: other moves may have come before it unseen.
    pub(super) fn names_moved(&mut self, now: Instant, index: u64, hiding: bool) {
        self.hiding |= hiding;
        self.moves.push(index);
        self.moved = Some(now);
        if self.moves.len() > MOST_MOVES {
            self.moves.clear();
            self.want();
        }
    }

    /// Whatever is known may be out of date.
    pub(super) fn want(&mut self) {
        self.wanted = true;
        self.since = None;
    }

    /// Something may be out of date.
    pub(super) fn want_later(&mut self, now: Instant) {
        self.later.get_or_insert(now + LATER);
    }

    pub(super) fn service_read(&mut self, index: u64) {
        self.reads.push_back(index);
        if self.reads.len() > 64 {
            self.reads.pop_front();
        }
    }

    pub(super) fn checks_changed(&mut self, index: u64) {
        self.checks = index;
    }

    /// When the moves can be judged, if there are any: the two lists tell of one change at about the same time.
    pub(super) fn settles(&self, lag: Duration) -> Option<Instant> {
        self.moved.map(|at| at + SETTLED + lag)
    }

    /// Judges the moves. To be called when nothing is left to read.
    pub(super) fn judge(&mut self, now: Instant, lag: Duration) {
        if self.settles(lag).is_none_or(|at| at > now) {
            return;
        }
        let since = self.moved.take();
        let hiding = std::mem::take(&mut self.hiding);
        if !hiding && self.moves.iter().all(|index| *index == self.checks || self.reads.contains(index)) {
            self.want_later(now);
        } else if !self.wanted || self.since.is_some() {
            self.wanted = true;
            self.since = since;
        }
        self.moves.clear();
    }

    /// Does without a judgement. Returns when the names moved, if they did.
    pub(super) fn hasten(&mut self) -> Option<Instant> {
        self.moves.clear();
        self.hiding = false;
        self.moved.take()
    }

    /// The earliest time for the next audit, if there was one.
    pub(super) fn allowed(&self) -> Option<Instant> {
        self.free.and_then(|at| at.checked_sub(IN_A_ROW)).max(self.retry)
    }

    /// When the next audit is due.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.wanted { Some(self.allowed().map_or(now, |at| at.max(now))) } else { self.later }
    }

    /// Begins an audit. Returns since when services count as read anew; `None`: none of them does.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        let since = if std::mem::take(&mut self.wanted) { self.since.take() } else { None };
        self.later = None;
        since
    }

    /// It took a share of the time, and so the next ones have to wait.
    pub(super) fn spend(&mut self, now: Instant, time: Duration) {
        self.retry = None;
        self.free = Some(self.free.map_or(now, |at| at.max(now)) + time.min(LATER));
    }

    /// It failed: again after a pause.
    pub(super) fn failed(&mut self, now: Instant, pause: Duration) {
        self.want();
        self.retry = Some(now + pause);
    }
}

const SETTLED: Duration = Duration::from_millis(25);

const LATER: Duration = Duration::from_secs(15);

/// How much of the time for audits may be used in advance.
const IN_A_ROW: Duration = Duration::from_secs(10);

/// More moves than that at a time are not judged one by one.
const MOST_MOVES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LAG: Duration = Duration::ZERO;

    /// When the next audit is due after this, in milliseconds.
    fn due(moves: &[u64], hiding: bool, reads: &[u64], checks: u64) -> Option<u128> {
        let start = Instant::now();
        let mut audit = Audit::default();
        for index in moves {
            audit.names_moved(start, *index, hiding);
        }
        for index in reads {
            audit.service_read(*index);
        }
        audit.checks_changed(checks);
        let now = start + SETTLED;
        audit.judge(now, NO_LAG);
        audit.due(now).map(|at| (at - now).as_millis())
    }

    #[test]
    fn moves_are_explained_or_not() {
        for (name, moves, hiding, reads, checks, expected) in [
            ("nothing happened", &[][..], false, &[][..], 0, None),
            ("a port changed", &[7], false, &[], 5, Some(0)),
            ("a new service was read", &[7], false, &[7], 5, Some(15_000)),
            ("checks changed in the same moment", &[7], false, &[], 7, Some(15_000)),
            ("another service was read", &[7], false, &[6], 5, Some(0)),
            ("one of two is explained", &[7, 8], false, &[8], 5, Some(0)),
            ("others may have come before it", &[7], true, &[7], 7, Some(0)),
        ] {
            assert_eq!(due(moves, hiding, reads, checks), expected, "{name}");
        }
    }

    #[test]
    fn moves_are_judged_when_the_other_list_had_its_time() {
        let start = Instant::now();
        let mut audit = Audit::default();
        audit.names_moved(start, 7, false);
        audit.judge(start, NO_LAG);
        assert_eq!(audit.due(start), None);
        assert_eq!(audit.settles(NO_LAG), Some(start + SETTLED));
        audit.judge(start + SETTLED, NO_LAG);
        assert_eq!(audit.settles(NO_LAG), None);
        assert_eq!(audit.begin(), Some(start), "what was read since then need not be read again");
        audit.names_moved(start, 8, false);
        audit.want();
        audit.judge(start + SETTLED, NO_LAG);
        assert_eq!(audit.begin(), None, "all is out of date");
    }

    #[test]
    fn a_few_may_follow_each_other_and_then_time_is_shared() {
        let mut now = Instant::now();
        let mut audit = Audit::default();
        let mut count = 0;
        for _ in 0..100 {
            audit.want();
            if audit.due(now).is_some_and(|at| at <= now) {
                audit.begin();
                audit.spend(now, Duration::from_secs(4));
                count += 1;
            }
            now += Duration::from_millis(200);
        }
        assert_eq!(count, 8, "3 in a row and 5 in 20 seconds");
    }

    #[test]
    fn a_failed_one_is_repeated_after_a_pause() {
        let now = Instant::now();
        let mut audit = Audit::default();
        audit.failed(now, Duration::from_secs(1));
        assert_eq!(audit.due(now), Some(now + Duration::from_secs(1)));
        // Failures are no debt: what follows them is not late for it.
        let back = now + Duration::from_secs(1);
        audit.spend(back, Duration::from_secs(4));
        audit.want();
        assert_eq!(audit.due(back), Some(back));
    }
}
