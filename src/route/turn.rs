//! Whose turn it is: the targets of a route by their shares.
//!
//! Equal shares go round in order. Unequal ones stand in a binary tree that halves the sum of the shares at each fork. The
//! n-th request of a fork goes left when `round(n * part)` steps up, so a fork needs no memory of the past, and is never
//! more than half a request off. With parts near one half the errors of the forks above add up to less than about one
//! request, for any shares, over any number of requests.

/// What decides between the targets of a route.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// Any number, evenly distributed over the whole range.
    Random(u64),
    /// The n-th request of this route.
    Nth(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Turns {
    Nobody,
    /// All of this many targets, equally.
    All(u32),
    /// Some of the targets, equally.
    Some(Box<[u32]>),
    /// The first one is the root.
    Weighted(Box<[Fork]>),
}

#[derive(Clone, Debug)]
pub(super) struct Fork {
    /// The part of the requests of this fork that goes left, in units of 2^-64.
    part: u64,
    /// The point of the whole range, in the same units, where left ends and right begins.
    boundary: u64,
    left: Side,
    right: Side,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Target(u32),
    Fork(u32),
}

impl Turns {
    pub(super) fn new(shares: &[f64]) -> Self {
        let mut active: Vec<(u32, f64)> = (0..).zip(shares.iter().copied()).filter(|(_, share)| *share > 0.0).collect();
        let Some(&(_, first)) = active.first() else { return Self::Nobody };
        if active.iter().all(|(_, share)| (share - first).abs() <= first * 1e-9) {
            return if active.len() == shares.len() {
                Self::All(active.len() as u32)
            } else {
                Self::Some(active.into_iter().map(|(target, _)| target).collect())
            };
        }
        // Heavy ones first: then they are near the root, where errors are small.
        active.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut grower = Grower::new(&active);
        grower.grow(0, active.len());
        Self::Weighted(grower.forks.into())
    }

    /// The index of the target.
    pub(super) fn pick(&self, turn: Turn) -> Option<usize> {
        match self {
            Self::Nobody => None,
            Self::All(count) => Some(one_of(*count as usize, turn)),
            Self::Some(targets) => Some(targets[one_of(targets.len(), turn)] as usize),
            Self::Weighted(forks) => Some(descend(forks, turn) as usize),
        }
    }
}

fn one_of(count: usize, turn: Turn) -> usize {
    match turn {
        Turn::Nth(n) => (n % count as u64) as usize,
        Turn::Random(r) => ((u128::from(r) * count as u128) >> 64) as usize,
    }
}

fn descend(forks: &[Fork], mut turn: Turn) -> u32 {
    let mut fork = &forks[0];
    loop {
        let side = match turn {
            Turn::Random(r) => {
                if r < fork.boundary {
                    fork.left
                } else {
                    fork.right
                }
            }
            Turn::Nth(n) => {
                let lefts = |n: u128| ((n * u128::from(fork.part) + HALF) >> 64) as u64;
                let before = lefts(u128::from(n));
                if lefts(u128::from(n) + 1) > before {
                    turn = Turn::Nth(before);
                    fork.left
                } else {
                    turn = Turn::Nth(n - before);
                    fork.right
                }
            }
        };
        match side {
            Side::Target(target) => return target,
            Side::Fork(next) => fork = &forks[next as usize],
        }
    }
}

struct Grower<'a> {
    /// Descending by share.
    active: &'a [(u32, f64)],
    /// The sum of the shares from here on. Summed from the small end, so that small ones are not lost.
    sums: Vec<f64>,
    forks: Vec<Fork>,
}

impl<'a> Grower<'a> {
    fn new(active: &'a [(u32, f64)]) -> Self {
        let mut sums = vec![0.0; active.len() + 1];
        for (i, (_, share)) in active.iter().enumerate().rev() {
            sums[i] = sums[i + 1] + share;
        }
        Self { active, sums, forks: Vec::with_capacity(active.len() - 1) }
    }

    fn sum(&self, from: usize, to: usize) -> f64 {
        self.sums[from] - self.sums[to]
    }

    fn grow(&mut self, from: usize, to: usize) -> Side {
        if to - from == 1 {
            return Side::Target(self.active[from].0);
        }
        let total = self.sum(from, to);
        let middle = if total > self.sums[0] * NEGLIGIBLE {
            // The first place where the left part is at least half, or the one before if that is nearer.
            let at = (from + 1..to - 1).find(|at| self.sum(from, *at) * 2.0 >= total).unwrap_or(to - 1);
            let nearer = at > from + 1 && total - 2.0 * self.sum(from, at - 1) < 2.0 * self.sum(from, at) - total;
            if nearer { at - 1 } else { at }
        } else {
            // Shares so small that nobody will count them; only the depth must stay small.
            from + (to - from) / 2
        };
        let part = self.sum(from, middle) / total;
        let part = if part.is_finite() { part } else { 0.5 };
        let boundary = 1.0 - self.sums[middle] / self.sums[0];
        let index = self.forks.len();
        let nobody = Side::Target(0);
        self.forks.push(Fork { part: fixed(part), boundary: fixed(boundary), left: nobody, right: nobody });
        self.forks[index].left = self.grow(from, middle);
        self.forks[index].right = self.grow(middle, to);
        Side::Fork(index as u32)
    }
}

/// A number between 0 and 1 in units of 2^-64, never 0.
fn fixed(number: f64) -> u64 {
    // The cast saturates.
    ((number * 2f64.powi(64)) as u64).max(1)
}

const HALF: u128 = 1 << 63;
/// Once in 10^15 requests.
const NEGLIGIBLE: f64 = 1e-15;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sequence(shares: &[f64], count: u64) -> Vec<usize> {
        let turns = Turns::new(shares);
        (0..count).map(|n| turns.pick(Turn::Nth(n)).unwrap()).collect()
    }

    #[test]
    fn equal_shares_go_round_in_order() {
        assert_eq!(sequence(&[0.5, 0.5], 6), [0, 1, 0, 1, 0, 1]);
        assert_eq!(sequence(&[1.0 / 3.0; 3], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(sequence(&[0.5, 0.0, 0.5], 4), [0, 2, 0, 2]);
        assert_eq!(sequence(&[0.0, 1.0], 3), [1, 1, 1]);
    }

    #[test]
    fn nobody() {
        assert_eq!(Turns::new(&[]).pick(Turn::Nth(0)), None);
        assert_eq!(Turns::new(&[0.0, 0.0]).pick(Turn::Random(7)), None);
    }

    #[test]
    fn any_hundred_turns_keep_to_the_weights() {
        for (share, range) in [(0.35, 32..=38), (0.2, 19..=21), (0.5001, 49..=51)] {
            let picks = sequence(&[share, 1.0 - share], 2000);
            for window in picks.windows(100) {
                let count = window.iter().filter(|t| **t == 0).count();
                assert!(range.contains(&count), "{share}: {count}");
            }
        }
    }

    #[test]
    fn tiny_weights_get_their_turn() {
        let mut shares = vec![0.999 / 499.0; 499];
        shares.push(0.001);
        let picks = sequence(&shares, 100_000);
        for (target, share) in shares.iter().enumerate() {
            let count = picks.iter().filter(|t| **t == target).count() as f64;
            assert!((count - share * 100_000.0).abs() <= 2.0 && count > 0.0);
        }
        let picks = sequence(&[0.00001, 0.99999], 200_000);
        assert_eq!(picks.iter().filter(|t| **t == 0).count(), 2);
    }

    #[test]
    fn extremes() {
        for shares in [&[1.0, 1e-300, 1e-300, 1e-310][..], &[0.5, f64::MIN_POSITIVE, 0.25], &[1e-320, 1.0]] {
            let turns = Turns::new(shares);
            for n in [0, 1, 2, u64::MAX - 1, u64::MAX] {
                assert!(turns.pick(Turn::Nth(n)).unwrap() < shares.len());
                assert!(turns.pick(Turn::Random(n)).unwrap() < shares.len());
            }
        }
        // A chain of halves is deep, but not without bounds.
        let chain: Vec<f64> = (0..3000).map(|n| 0.5f64.powi(n)).collect();
        assert!(Turns::new(&chain).pick(Turn::Nth(u64::MAX)).unwrap() < 3000);
    }

    proptest! {
        #[test]
        fn no_prefix_is_far_off(weights in prop::collection::vec(0.001f64..10.0, 1..40)) {
            let sum: f64 = weights.iter().sum();
            let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
            let turns = Turns::new(&shares);
            let mut counts = vec![0.0; shares.len()];
            for n in 0..3000u64 {
                counts[turns.pick(Turn::Nth(n)).unwrap()] += 1.0;
                for (count, share) in counts.iter().zip(&shares) {
                    let off: f64 = count - share * (n + 1) as f64;
                    prop_assert!(off.abs() <= 2.0, "{} off after {}", off, n + 1);
                }
            }
        }

        #[test]
        fn random_numbers_follow_the_shares(weights in prop::collection::vec(0.01f64..1.0, 1..10)) {
            let sum: f64 = weights.iter().sum();
            let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
            let turns = Turns::new(&shares);
            let mut counts = vec![0.0; shares.len()];
            for n in 0..10_000u64 {
                counts[turns.pick(Turn::Random(n * (u64::MAX / 10_000))).unwrap()] += 1.0;
            }
            for (count, share) in counts.iter().zip(&shares) {
                prop_assert!((count / 10_000.0 - share).abs() < 0.001);
            }
        }
    }
}
