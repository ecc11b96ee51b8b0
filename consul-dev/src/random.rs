//! Randomness for identifiers and for spreading in time; nothing here needs to be secret.

use std::hash::{BuildHasher, Hasher, RandomState};

fn bits() -> u64 {
    // Every `RandomState` has keys of its own, seeded by the system.
    RandomState::new().build_hasher().finish()
}

/// A fraction from 0 up to, but without, 1.
pub(crate) fn fraction() -> f64 {
    (bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// A random identifier in the form of a UUID.
pub(crate) fn uuid() -> String {
    let (high, low) = (bits(), bits());
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
