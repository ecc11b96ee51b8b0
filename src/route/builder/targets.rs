//! The targets of one place while commands are applied to it, in order.

use std::collections::HashSet;

use super::commands::Prepared;
use crate::route::target::sameness;
use crate::route::{Add, Class, Conditions, Datacenter, Target, Weight};

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

    /// Divides the weight between the targets that fit, for each kind and datacenter of its own. False if there are none.
    pub(super) fn set_weight(&mut self, weight: Weight, fits: impl Fn(&Add) -> bool) -> bool {
        self.seen.clear();
        let mut any = false;
        let mut shared: Vec<(Kind<'_>, Option<&Datacenter>)> = Vec::new();
        for (_, add, _) in self.list.iter().filter(|(_, add, _)| fits(add)) {
            let own = (Kind::of(add), add.datacenter.as_deref());
            if !shared.contains(&own) {
                shared.push(own);
            }
        }
        for own in shared {
            let fitting = |add: &Add| (Kind::of(add), add.datacenter.as_deref()) == own && fits(add);
            let count = self.list.iter().filter(|(_, add, _)| fitting(add)).count();
            for (_, _, current) in self.list.iter_mut().filter(|(_, add, _)| fitting(add)) {
                *current = weight.part_of(count);
                any = true;
            }
        }
        any
    }

    /// What becomes a route each.
    pub(super) fn by_kind(self) -> impl Iterator<Item = (Class, Vec<Target>)> {
        self.kinds().into_iter().map(move |kind| {
            let own = self.list.iter().filter(|(_, add, _)| Kind::of(add) == kind);
            (kind.class, own.map(|(prepared, add, weight)| Target::new(add, *weight, prepared.identity)).collect())
        })
    }

    /// In order: HTTP first, those with more conditions first. Nearly always one.
    fn kinds(&self) -> Vec<Kind<'a>> {
        let mut kinds = Vec::new();
        for (_, add, _) in &self.list {
            let kind = Kind::of(add);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.sort_by(|a, b| a.class.cmp(&b.class).then_with(|| Conditions::order(a.conditions, b.conditions)));
        kinds
    }
}

/// Targets of one kind make one route.
#[derive(Clone, Copy, PartialEq)]
struct Kind<'a> {
    class: Class,
    conditions: Option<&'a Conditions>,
}

impl<'a> Kind<'a> {
    fn of(add: &'a Add) -> Self {
        Self { class: add.class(), conditions: add.options.conditions.as_deref() }
    }
}

/// Do two commands give one target, weights aside?
fn same_target(a: &Add, b: &Add) -> bool {
    a.service == b.service
        && a.datacenter == b.datacenter
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
