//! Commands as the builder keeps them: with their lines, and by where they have a say.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::route::target::identity;
use crate::route::{Add, Command, Entry, Known, Origin, Reject, Source};

/// An entry and what is worked out once for it.
pub(super) struct Prepared {
    pub(super) entry: Entry,
    pub(super) line: Box<str>,
    /// 0 unless it adds a target.
    pub(super) identity: u128,
    /// Why it may not be applied.
    pub(super) refused: Option<Box<str>>,
}

/// Commands after those of all services, in order, and where each has a say.
#[derive(Default)]
pub(super) struct Manual {
    pub(super) commands: Vec<Arc<Prepared>>,
    pub(super) at: HashMap<Source, Vec<u32>>,
    /// Deletions without a source, by service, and those by tags alone.
    pub(super) of_service: HashMap<Arc<str>, Vec<u32>>,
    pub(super) anywhere: Vec<u32>,
}

impl Prepared {
    pub(super) fn new(entry: Entry, known: &Known) -> Self {
        let line = entry.command.to_string().into();
        let (identity, refused) = match &entry.command {
            Command::Add(add) => (identity(add), known.objection(add).map(Into::into)),
            _ => (0, None),
        };
        Self { entry, line, identity, refused }
    }

    pub(super) fn add(&self) -> Option<&Add> {
        match &self.entry.command {
            Command::Add(add) => Some(add),
            _ => None,
        }
    }

    /// The order of targets: descending by line. Of equal lines one becomes the target, and always the same.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.line.cmp(&self.line).then_with(|| self.entry.origin.cmp(&other.entry.origin))
    }

    pub(super) fn reject(&self, why: &str) -> Reject {
        let text = match &self.entry.origin {
            Origin::Tag { tag, .. } => tag,
            _ => &*self.line,
        };
        Reject::new(self.entry.origin.clone(), text, why)
    }
}

impl Manual {
    pub(super) fn new(entries: Vec<Entry>, known: &Known) -> Self {
        let mut manual = Self::default();
        for (entry, index) in entries.into_iter().zip(0..) {
            let source = match &entry.command {
                Command::Add(add) => Some(&add.source),
                Command::Weight(set) => Some(&set.source),
                Command::Delete(delete) => delete.source.as_ref(),
            };
            match (source, &entry.command) {
                (Some(source), _) => manual.at.entry(source.clone()).or_default().push(index),
                (None, Command::Delete(delete)) => match &delete.service {
                    Some(service) => manual.of_service.entry(service.clone()).or_default().push(index),
                    None => manual.anywhere.push(index),
                },
                (None, _) => {}
            }
            manual.commands.push(Arc::new(Prepared::new(entry, known)));
        }
        manual
    }

    /// In order.
    pub(super) fn commands_for(&self, source: &Source, adds: &[Arc<Prepared>]) -> Vec<u32> {
        let mut indices = self.at.get(source).cloned().unwrap_or_default();
        if !self.of_service.is_empty() {
            let own = indices.iter().map(|i| &self.commands[*i as usize]);
            let services: HashSet<_> = adds.iter().chain(own).filter_map(|p| p.add()).map(|add| &add.service).collect();
            indices.extend(services.into_iter().filter_map(|service| self.of_service.get(service)).flatten());
        }
        indices.extend(&self.anywhere);
        indices.sort_unstable();
        indices
    }
}

/// Do two lists of indices mean the same entries in the same order?
pub(super) fn same_entries(old: &Manual, before: &[u32], new: &Manual, after: &[u32]) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|(a, b)| old.commands[*a as usize].entry == new.commands[*b as usize].entry)
}
