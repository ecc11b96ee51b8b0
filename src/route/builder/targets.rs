//! The targets of one place while commands are applied to it, in order.

use std::collections::HashSet;

use super::commands::Prepared;
use crate::route::target::sameness;
use crate::route::{Add, Class, Target, Weight};

/// The targets of a place while commands are applied.
#[derive(Default)]
pub(super) struct Targets<'a> {
    list: Vec<(&'a Prepared, &'a Add, Weight)>,
    /// Kept up only for long lists, and made anew after anything but adding.
    seen: HashSet<(u128, u64)>,
}

impl<'a> Targets<'a> {
    pub(super) fn push(&mut self, prepared: &'a Prepared) {
        let Some(add) = prepared.add() else { return };
        let weight = add.weight;
        if self.list.len() < LONG {
            if self.list.iter().any(|(_, other, current)| *current == weight && same_target(add, other)) {
                return;
            }
        } else {
            if self.seen.is_empty() {
                self.seen.extend(self.list.iter().map(|(_, other, current)| key_of(other, *current)));
            }
            if !self.seen.insert(key_of(add, weight)) {
                return;
            }
        }
        self.list.push((prepared, add, weight));
    }

    pub(super) fn remove(&mut self, fits: impl Fn(&Add) -> bool) {
        self.seen.clear();
        self.list.retain(|(_, add, _)| !fits(add));
    }

    /// Divides the weight between the targets that fit, for each class of its own. False if there are none.
    pub(super) fn set_weight(&mut self, weight: Weight, fits: impl Fn(&Add) -> bool) -> bool {
        self.seen.clear();
        let mut any = false;
        for class in Class::ALL {
            let fitting = |add: &Add| add.class() == class && fits(add);
            let count = self.list.iter().filter(|(_, add, _)| fitting(add)).count();
            for (_, _, current) in self.list.iter_mut().filter(|(_, add, _)| fitting(add)) {
                *current = weight.part_of(count);
                any = true;
            }
        }
        any
    }

    pub(super) fn by_class(self) -> impl Iterator<Item = (Class, Vec<Target>)> {
        Class::ALL.into_iter().filter_map(move |class| {
            let own = self.list.iter().filter(|(_, add, _)| add.class() == class);
            let targets: Vec<_> =
                own.map(|(prepared, add, weight)| Target::new(add, *weight, prepared.identity)).collect();
            (!targets.is_empty()).then_some((class, targets))
        })
    }
}

/// Do two commands give one target, weights aside?
fn same_target(a: &Add, b: &Add) -> bool {
    a.service == b.service
        && a.destination.text == b.destination.text
        && a.tags == b.tags
        && a.options.raw == b.options.raw
}

/// Equal for what [`same_target`] finds equal, with equal weights.
fn key_of(add: &Add, weight: Weight) -> (u128, u64) {
    (sameness(add), weight.number().unwrap_or(-1.0).to_bits())
}

/// From here on a list of targets is no longer searched one by one.
const LONG: usize = 16;
