//! Memory of heads that have begun and are not whole.
//!
//! Each may be long (`proxy.maxheadersize`), and whoever sends a thousand of them and never an end must not take a thousand
//! times that. So what goes beyond the size of ordinary heads comes out of one allowance of the process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What one head has taken of the allowance.
#[derive(Debug, Default)]
pub(super) struct Hoard(usize);

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Hoard {
    /// Whether the head may have so many bytes.
    pub(super) fn allows(&mut self, bytes: usize) -> bool {
        if bytes <= ORDINARY + self.0 {
            return true;
        }
        let more = (bytes - ORDINARY).next_multiple_of(STEP) - self.0;
        let taken = TAKEN.fetch_add(more, Ordering::Relaxed) + more;
        if taken > ALLOWANCE {
            TAKEN.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.0 += more;
        true
    }

    /// It is whole, or given up.
    pub(super) fn give_back(&mut self) {
        if self.0 > 0 {
            TAKEN.fetch_sub(std::mem::take(&mut self.0), Ordering::Relaxed);
        }
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        self.give_back();
    }
}

const ORDINARY: usize = 16 * 1024;
const STEP: usize = 16 * 1024;
const ALLOWANCE: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_heads_share_an_allowance_and_ordinary_ones_need_none() {
        let mut long: Vec<Hoard> = (0..64).map(|_| Hoard::default()).collect();
        for hoard in &mut long {
            assert!(hoard.allows(100) && hoard.allows(ORDINARY + 1) && hoard.allows(ORDINARY + 200_000));
        }
        assert_eq!(TAKEN.load(Ordering::Relaxed), 64 * 13 * STEP);
        let mut more: Vec<Hoard> = (0..100).map(|_| Hoard::default()).collect();
        assert!(more.iter_mut().all(|hoard| hoard.allows(ORDINARY)));
        assert!(!more.iter_mut().all(|hoard| hoard.allows(ORDINARY + 200_000)), "the allowance is used up");
        assert!(TAKEN.load(Ordering::Relaxed) <= ALLOWANCE);
        long[0].give_back();
        drop(more);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 63 * 13 * STEP);
        drop(long);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
