//! Consistent hashing by weighted rendezvous: every target draws a number from the key and its own name, and the best
//! draw wins.
//!
//! Chosen over a ring of points, jump hashing and Maglev's table: only keys of a target that leaves move, and as many as
//! its share; weights are exact; there is no table to keep for each route and to build for each change, and nothing to
//! allocate. It costs some nanoseconds for each target of the route, where a table would cost memory for each route.

/// Collects draws.
pub(super) struct Race {
    key: u64,
    equal: bool,
    best: Option<(usize, f64, u64)>,
}

impl Race {
    /// `equal`: all shares are the same and need not be looked at.
    pub(super) fn new(key: u64, equal: bool) -> Self {
        Self { key, equal, best: None }
    }

    /// `place` is the stable hash of the target's name.
    pub(super) fn enter(&mut self, index: usize, place: u64, share: f64) {
        let draw = mix(self.key ^ place);
        // The time until something happens at a rate of `share`: the earliest one is each with the probability of its
        // part of all rates. Grows as the draw falls, so with equal shares the highest draw is the earliest.
        let time = if self.equal { 0.0 } else { (53.0 - ((draw >> 11) as f64 + 0.5).log2()) / share };
        let better = match self.best {
            None => true,
            Some((_, best, other)) => time < best || (time == best && draw > other),
        };
        if better {
            self.best = Some((index, time, draw));
        }
    }

    pub(super) fn winner(&self) -> Option<usize> {
        self.best.map(|(index, ..)| index)
    }
}

/// How many requests of all that are in flight, this one among them, a target with this share may have before it is
/// passed over.
pub(super) fn limit(requests: u64, share: f64) -> u64 {
    ((requests as f64 * share * SLACK).ceil() as u64).max(ALWAYS)
}

/// The same on every machine and in every version (FNV-1a, then mixed): processes that do not know of each other must
/// come to the same target.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // 0xff is in no text, so parts cannot run into each other.
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    mix(hash)
}

/// Every bit of the result depends on every bit of the number (the finalizer of SplitMix64).
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A quarter above the average: more would bound little, less would move many keys.
const SLACK: f64 = 1.25;
/// So few are no load: two clicks at the same time are not to move a key.
const ALWAYS: u64 = 8;
