//! Services that were read newer than the lists that tell which ones changed.
//!
//! A read gives the state of one moment, and that can be later than the last answers of the two lists. Published as it
//! is, such a change would be seen before older ones of other services that are still on their way. So it waits for the
//! lists, which answer at once, for something did happen.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Overtaking {
    /// The newest index that was read, and when the first read was newer than both lists.
    newest: u64,
    since: Option<Instant>,
    /// When the first of the lists had come as far.
    reached: Option<Instant>,
}

impl Overtaking {
    pub(super) fn read(&mut self, now: Instant, index: u64, names: u64, checks: u64) {
        if index > self.newest {
            self.newest = index;
            self.reached = None;
        }
        if index > names.max(checks) {
            self.since.get_or_insert(now);
        }
    }

    /// A list answered.
    pub(super) fn listed(&mut self, now: Instant, index: u64) {
        if self.since.is_some() && index >= self.newest {
            self.reached.get_or_insert(now);
        }
    }

    /// Until when the lists are to be waited for at most; `None`: they are not behind, or were waited for long enough.
    pub(super) fn until(&self, now: Instant, names: u64, checks: u64) -> Option<Instant> {
        let since = self.since?;
        if names.min(checks) >= self.newest {
            return None;
        }
        // Many changes move one of the lists only: then the other has nothing to say.
        let other = self.reached.map_or(since + LISTS, |at| at + OTHER_LIST);
        Some(other.min(since + LISTS)).filter(|at| *at > now)
    }
}

/// The longest that a change waits for the lists.
const LISTS: Duration = Duration::from_millis(250);

/// How long the second list is waited for when the first has come.
const OTHER_LIST: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_the_lists_it_overtook() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        // (name, reads, list that answered with this index, names, checks, look at, until)
        type Row = (&'static str, &'static [u64], Option<u64>, u64, u64, u64, Option<u64>);
        let rows: &[Row] = &[
            ("nothing was read", &[], None, 5, 5, 0, None),
            ("as new as the names", &[5], None, 5, 3, 0, None),
            ("as new as the checks", &[5], None, 3, 5, 0, None),
            ("newer than both", &[6], None, 5, 4, 0, Some(250)),
            ("one list came", &[6], Some(6), 6, 4, 0, Some(25)),
            ("one came, and the other had its time", &[6], Some(6), 6, 4, 25, None),
            ("both came", &[6], Some(6), 6, 6, 0, None),
            ("a list came, but not as far", &[6, 8], Some(7), 7, 4, 0, Some(250)),
            ("no list came", &[6], None, 5, 4, 250, None),
        ];
        for &(name, reads, listed, names, checks, at, expected) in rows {
            let mut overtaking = Overtaking::default();
            for index in reads {
                overtaking.read(start, *index, if listed.is_some() { 5 } else { names }, checks);
            }
            if let Some(index) = listed {
                overtaking.listed(start, index);
            }
            assert_eq!(overtaking.until(ms(at), names, checks), expected.map(ms), "{name}");
        }
    }
}
