//! Which traces are looked at, where nobody has decided before us.

use std::num::NonZeroU128;

/// A part of all traces, 0 to 1. The id of a trace decides: everybody who samples by the same ratio takes the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Of 2^63.
    bound: u64,
}

impl Ratio {
    pub const ALL: Self = Self { bound: WHOLE };

    /// `None` if it is none of 0 to 1.
    pub fn new(part: f64) -> Option<Self> {
        // Exact for 1, and as close as such a number can be else.
        (0.0..=1.0).contains(&part).then_some(Self { bound: (part * WHOLE as f64) as u64 })
    }

    /// The lower 64 bits count, without the last one, as with the samplers of OpenTelemetry's libraries.
    pub(super) fn takes(self, trace: NonZeroU128) -> bool {
        (trace.get() as u64) >> 1 < self.bound
    }
}

const WHOLE: u64 = 1 << 63;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_decide() {
        for (part, id, want) in [
            (0.0, 1, false),
            (1.0, u128::MAX, true),
            (1.0, 1, true),
            (0.5, 0x7fff_ffff_ffff_ffff, true),
            (0.5, 0x8000_0000_0000_0000, false),
            // The upper half says nothing.
            (0.5, u128::MAX << 64 | 1, true),
            (0.25, 0x3fff_ffff_ffff_ffff, true),
            (0.25, 0x4000_0000_0000_0000, false),
            // 2^-63 of all.
            (f64::from_bits(0x3c00_0000_0000_0000), 1, true),
            (f64::from_bits(0x3c00_0000_0000_0000), 2, false),
        ] {
            assert_eq!(Ratio::new(part).unwrap().takes(NonZeroU128::new(id).unwrap()), want, "{part} {id:x}");
        }
        for part in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::new(part), None, "{part}");
        }
    }

    #[test]
    fn a_tenth_is_a_tenth() {
        let (ratio, mut random) = (Ratio::new(0.1).unwrap(), fastrand::Rng::with_seed(7));
        let taken = (0..100_000).filter(|_| ratio.takes(NonZeroU128::new(random.u128(1..)).unwrap())).count();
        assert!((9_500..10_500).contains(&taken), "{taken}");
    }
}
