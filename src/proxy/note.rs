//! Taking note of how a target did, and saying so when it is passed over from now on.

use crate::upstream::{TargetState, Verdict};

/// What became of a try at a target.
pub(super) fn note(target: &TargetState, verdict: Verdict) {
    let Some(ejected) = target.note(verdict) else { return };
    target.series.ejected(ejected.reason.name());
    tracing::warn!(
        "~ {} {} is passed over for {:?}: {}",
        target.service,
        target.destination.text,
        ejected.time,
        ejected.reason.name(),
    );
}
