//! The state that Consul's servers would share: catalog, key-value pairs and sessions, each table with the index of its
//! last change. Which write moves which index was taken from Consul 1.8.7, oddities included, because that decides
//! which blocking queries return.
//!
//! Pure: no clock but the one handed in, no locks, no waiting.

mod catalog;
mod kv;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::records::{Check, Entry, Node, Service, Session};

pub(crate) use catalog::Registration;
pub(crate) use kv::Write;
pub(crate) use sessions::{SessionRequest, check_id};

/// A name and an id within it, both in lower case: Consul's tables do not tell case apart.
type Key = (String, String);

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The index of the last write, whether it changed anything or not.
    index: u64,
    tables: Tables,
    nodes: BTreeMap<String, Node>,
    services: BTreeMap<Key, Service>,
    checks: BTreeMap<Key, Check>,
    /// Which (node, service id) have a service name: name to keys.
    by_name: BTreeMap<String, BTreeSet<Key>>,
    entries: BTreeMap<String, Entry>,
    /// Deleted keys, or prefixes, with the index of their deletion.
    tombstones: BTreeMap<String, kv::Tombstone>,
    sessions: BTreeMap<String, Session>,
    /// Keys that nobody may lock before that time.
    lock_delays: BTreeMap<String, Instant>,
}

/// The index of the last change of each table, and of each service.
#[derive(Debug, Default)]
struct Tables {
    nodes: u64,
    services: u64,
    checks: u64,
    entries: u64,
    sessions: u64,
    /// By service name in lower case.
    service: BTreeMap<String, u64>,
    /// When the last instance of any service went away; `None` before the first time.
    extinction: Option<u64>,
}

impl Store {
    /// An empty store whose next write has the index `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self { index: first.saturating_sub(1), ..Self::default() }
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    fn next(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    /// Move every index by the same distance, so that the last write becomes `last` (or as near as the oldest record
    /// allows). What a restored snapshot or a rebuilt cluster looks like to its clients.
    pub(crate) fn shift_to(&mut self, last: u64) {
        let distance = self.index.saturating_sub(last);
        let shift = |index: &mut u64| *index = index.saturating_sub(distance).max(1);
        let tables = &mut self.tables;
        shift(&mut self.index);
        for table in
            [&mut tables.nodes, &mut tables.services, &mut tables.checks, &mut tables.entries, &mut tables.sessions]
        {
            shift(table);
        }
        tables.service.values_mut().for_each(shift);
        tables.extinction.iter_mut().for_each(shift);
        self.tombstones.values_mut().for_each(|t| shift(&mut t.index));
        let stamps = (self.nodes.values_mut().map(|r| &mut r.stamp))
            .chain(self.services.values_mut().map(|r| &mut r.stamp))
            .chain(self.checks.values_mut().map(|r| &mut r.stamp))
            .chain(self.entries.values_mut().map(|r| &mut r.stamp))
            .chain(self.sessions.values_mut().map(|r| &mut r.stamp));
        for stamp in stamps {
            shift(&mut stamp.create);
            shift(&mut stamp.modify);
        }
    }
}

fn lower(name: &str) -> String {
    name.to_lowercase()
}

fn key(node: &str, id: &str) -> Key {
    (lower(node), lower(id))
}

#[cfg(test)]
mod tests;
