//! Buckets for many keys, in a table of fixed size.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Bucket, Pace};

/// A bucket for each key of late. When there are more keys than places, a key takes the place of the one whose bucket will
/// be full first: mostly it is full already, and nothing is forgotten. Otherwise that key gets more than its rate.
///
/// Two workers that give the same place to two keys at once do no more harm than that.
#[derive(Debug)]
pub struct Keys {
    sets: Box<[[Place; WAYS]]>,
    /// Of this process alone, so that nobody can choose keys that meet in one set.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Place {
    /// The hash of the key; 0: nobody's.
    key: AtomicU64,
    bucket: Bucket,
}

impl Default for Keys {
    fn default() -> Self {
        Self { sets: (0..SETS).map(|_| Default::default()).collect(), hasher: RandomState::new() }
    }
}

impl Keys {
    /// As [`Bucket::take`], for this key.
    pub fn take(&self, key: impl Hash, now: u64, pace: Pace) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(key).max(1);
        let set = &self.sets[hash as usize % SETS];
        if let Some(place) = set.iter().find(|place| place.key.load(Relaxed) == hash) {
            return place.bucket.take(now, pace);
        }
        let place = set.iter().min_by_key(|place| place.bucket.full_at()).expect("a set has places");
        place.key.store(hash, Relaxed);
        place.bucket.fill();
        place.bucket.take(now, pace)
    }
}

/// 16,384 keys in 256 kB.
const SETS: usize = 2048;
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { interval: 1000, burst: 2 };

    #[test]
    fn each_key_has_its_own_bucket() {
        let keys = Keys::default();
        for key in 0..5000 {
            assert_eq!((keys.take(key, 1, PACE), keys.take(key, 1, PACE)), (Ok(()), Ok(())));
        }
        let refused = (0..5000).filter(|key| keys.take(key, 1, PACE).is_err()).count();
        // Some sets are fuller than others.
        assert!(refused > 4900, "{refused}");
        assert_eq!(keys.take(1, 1 + 1000, PACE), Ok(()));
    }

    #[test]
    fn old_keys_make_room() {
        let keys = Keys::default();
        for key in 0..200_000u64 {
            assert_eq!(keys.take(key, key * 1000, PACE), Ok(()), "{key}");
        }
        let last = 199_999_000;
        assert_eq!(keys.take(199_999u64, last, PACE), Ok(()));
        assert!(keys.take(199_999u64, last, PACE).is_err());
    }
}
