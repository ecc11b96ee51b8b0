//! What is rare about a target: errors, retries, ejections, refusals by limits, each by reason.
//!
//! Kept apart from the series of requests: most targets have none of it and pay a pointer, and what is rare need not be
//! counted by each worker for itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::names;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Ejection,
    Error,
    Limited,
    Retry,
}

impl Trouble {
    /// In order of their names.
    pub(super) const ALL: [Self; 4] = [Self::Limited, Self::Ejection, Self::Error, Self::Retry];

    pub(super) fn name(self) -> &'static str {
        match self {
            Trouble::Ejection => names::UPSTREAM_EJECTIONS,
            Trouble::Error => names::UPSTREAM_ERRORS,
            Trouble::Limited => names::LIMITED,
            Trouble::Retry => names::UPSTREAM_RETRIES,
        }
    }

    pub(super) fn help(self) -> &'static str {
        names::OWN.iter().find(|own| own.name == self.name()).map_or("", |own| own.help)
    }
}

/// What, why, and how often.
pub(crate) type Count = (Trouble, &'static str, u64);

/// The counts of one target, in the order in which they came up: a list that only grows, of a few fixed reasons.
#[derive(Default)]
pub(super) struct Troubles(OnceLock<Box<Node>>);

struct Node {
    kind: Trouble,
    reason: &'static str,
    count: AtomicU64,
    next: OnceLock<Box<Node>>,
}

impl Troubles {
    pub(super) fn add(&self, kind: Trouble, reason: &'static str) {
        let mut slot = &self.0;
        loop {
            let node =
                slot.get_or_init(|| Box::new(Node { kind, reason, count: AtomicU64::new(0), next: OnceLock::new() }));
            if node.kind == kind && node.reason == reason {
                node.count.fetch_add(1, Relaxed);
                return;
            }
            slot = &node.next;
        }
    }

    /// In order of reasons.
    pub(super) fn read(&self) -> Vec<Count> {
        let nodes = std::iter::successors(self.0.get(), |node| node.next.get());
        let mut counts: Vec<_> = nodes.map(|node| (node.kind, node.reason, node.count.load(Relaxed))).collect();
        counts.sort_unstable_by_key(|(_, reason, _)| *reason);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_kind_is_counted_for_itself() {
        let troubles = Troubles::default();
        assert_eq!(troubles.read(), []);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        troubles.add(Trouble::Error, "connect");
                        troubles.add(Trouble::Retry, "connect");
                        troubles.add(Trouble::Error, "closed");
                    }
                });
            }
        });
        let read = troubles.read();
        assert_eq!(read.len(), 3, "{read:?}");
        assert!(read.contains(&(Trouble::Retry, "connect", 400)) && read.contains(&(Trouble::Error, "closed", 400)));
    }
}
