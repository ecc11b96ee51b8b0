//! Which trace a request belongs to.

use std::num::{NonZeroU64, NonZeroU128};

use http::HeaderValue;

use super::sample::Ratio;

/// A request's place in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: NonZeroU128,
    /// Of the request as a whole.
    pub span: NonZeroU64,
    /// The span that it was sent in.
    pub parent: Option<NonZeroU64>,
    /// Spans are wanted, here and by whoever comes behind us.
    pub sampled: bool,
    /// What others have said about this trace (`tracestate`), as it came.
    pub state: Option<HeaderValue>,
    /// Sampled whatever anybody says (B3).
    pub(super) debug: bool,
    /// Its sender says that the trace id is random (W3C Trace Context level 2, section 3.2.2.5.2).
    pub(super) random: bool,
    /// Joined by `traceparent`, so that `tracestate` belongs to it.
    pub(super) w3c: bool,
}

/// What the sender of a request says about its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parent {
    /// `None`: there is a decision, but no trace.
    pub(super) ids: Option<(NonZeroU128, NonZeroU64)>,
    /// `None`: it is left to us.
    pub(super) sampled: Option<bool>,
    pub(super) debug: bool,
    pub(super) random: bool,
    pub(super) w3c: bool,
    pub(super) state: Option<HeaderValue>,
}

impl Context {
    /// The decision of the sender counts; without one, the id decides.
    pub(super) fn new(parent: Option<Parent>, sample: Ratio, random: &mut fastrand::Rng) -> Self {
        let parent = parent.unwrap_or_default();
        let (trace, above) = match parent.ids {
            Some((trace, span)) => (trace, Some(span)),
            None => (trace_id(random), None),
        };
        Self {
            trace,
            span: span_id(random),
            parent: above,
            sampled: parent.sampled.unwrap_or_else(|| sample.takes(trace)),
            state: parent.state,
            debug: parent.debug,
            random: parent.random,
            w3c: parent.w3c,
        }
    }

    /// For a span: the flags of its trace, and whether its parent is elsewhere (bits 8 and 9 of the protocol).
    pub(super) fn flags(&self, remote: bool) -> u32 {
        u32::from(self.flag_bits()) | HAS_IS_REMOTE | if remote { IS_REMOTE } else { 0 }
    }

    /// As in `traceparent`.
    pub(super) fn flag_bits(&self) -> u8 {
        (if self.sampled { SAMPLED } else { 0 }) | (if self.random { RANDOM } else { 0 })
    }
}

fn trace_id(random: &mut fastrand::Rng) -> NonZeroU128 {
    // The half that decides must not be 0 either: others look at it alone.
    let (high, low) = (random.u64(..), random.u64(1..));
    NonZeroU128::new(u128::from(high) << 64 | u128::from(low)).expect("its lower half is at least 1")
}

pub(super) fn span_id(random: &mut fastrand::Rng) -> NonZeroU64 {
    NonZeroU64::new(random.u64(1..)).expect("at least 1")
}

/// So many digits of a number, in lower case.
pub fn hex<const N: usize>(number: u128) -> [u8; N] {
    let mut text = [0; N];
    for (place, digit) in text.iter_mut().rev().enumerate() {
        *digit = DIGITS[(number >> (4 * place)) as usize & 15];
    }
    text
}

/// A number of hex digits; `None` if there is anything else, or nothing. At most 32 digits.
pub(super) fn from_hex(text: &[u8], upper: bool) -> Option<u128> {
    if text.is_empty() || text.len() > 32 {
        return None;
    }
    text.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' if upper => digit - b'A' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// A span id of 16 digits that is not 0.
pub(super) fn span_from_hex(text: &[u8], upper: bool) -> Option<NonZeroU64> {
    let number = from_hex(text, upper).filter(|_| text.len() == 16)?;
    NonZeroU64::new(u64::try_from(number).ok()?)
}

pub(super) const SAMPLED: u8 = 1;
pub(super) const RANDOM: u8 = 2;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const DIGITS: &[u8; 16] = b"0123456789abcdef";
