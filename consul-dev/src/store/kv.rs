//! The key-value store, with locks.

use std::ops::Bound;
use std::time::{Duration, Instant};

use super::{Store, sessions};
use crate::records::{Entry, Stamp};

#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) index: u64,
    at: Instant,
}

/// What a PUT or DELETE asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Set,
    /// Only if the key's index is this one; 0 means that it must not exist.
    Cas(u64),
    /// Set and take the lock for this session.
    Acquire(String),
    /// Set and give back the lock of this session.
    Release(String),
}

/// How long a deleted key still has an index, as in Consul.
const TOMBSTONE_TTL: Duration = Duration::from_secs(15 * 60);

impl Store {
    /// Write a key. `Ok(false)`: the condition did not hold. The error is what Consul answers with status 500.
    pub(crate) fn kv_put(
        &mut self,
        key: &str,
        value: Vec<u8>,
        flags: u64,
        write: &Write,
        now: Instant,
    ) -> Result<bool, String> {
        let old = self.entries.get(key).cloned();
        let mut entry = Entry { key: key.to_owned(), value, flags, ..Entry::default() };
        if let Some(old) = &old {
            entry.session.clone_from(&old.session);
            entry.stamp = old.stamp;
        }
        match write {
            Write::Set => {}
            Write::Cas(0) if old.is_some() => return Ok(false),
            Write::Cas(0) => {}
            Write::Cas(wanted) if old.as_ref().is_none_or(|old| old.stamp.modify != *wanted) => return Ok(false),
            Write::Cas(_) => {}
            Write::Acquire(session) => {
                self.lock_delays.retain(|_, until| *until > now);
                if self.lock_delays.contains_key(key) {
                    return Ok(false);
                }
                if session.is_empty() {
                    return Err("missing session".to_owned());
                }
                sessions::check_id(session)?;
                if !self.sessions.contains_key(session) {
                    return Err(format!("invalid session {session:?}"));
                }
                let (holder, count) = old.as_ref().map_or(("", 0), |old| (old.session.as_str(), old.lock_index));
                entry.lock_index = match holder {
                    "" => count + 1,
                    holder if holder == session => count,
                    _ => return Ok(false),
                };
                entry.session.clone_from(session);
            }
            Write::Release(session) => {
                if session.is_empty() {
                    return Err("missing session".to_owned());
                }
                match &old {
                    Some(old) if old.session == *session => entry.lock_index = old.lock_index,
                    _ => return Ok(false),
                }
                entry.session.clear();
            }
        }
        let index = self.next();
        if old.as_ref() == Some(&entry) {
            return Ok(true);
        }
        self.put_entry(Entry { stamp: Stamp::written(old.map(|old| old.stamp), index), ..entry }, index);
        Ok(true)
    }

    pub(super) fn put_entry(&mut self, entry: Entry, index: u64) {
        self.entries.insert(entry.key.clone(), entry);
        self.tables.entries = index;
    }

    /// Delete a key; with `Write::Cas` only at that index. A key that does not exist counts as deleted.
    pub(crate) fn kv_delete(&mut self, key: &str, cas: Option<u64>, now: Instant) -> bool {
        let index = self.next();
        let Some(old) = self.entries.get(key) else { return true };
        if cas.is_some_and(|cas| cas != old.stamp.modify) {
            return false;
        }
        self.delete_entry(key, index, now);
        true
    }

    pub(super) fn delete_entry(&mut self, key: &str, index: u64, now: Instant) {
        self.entries.remove(key);
        self.bury(key, index, now);
        self.tables.entries = index;
    }

    pub(crate) fn kv_delete_tree(&mut self, prefix: &str, now: Instant) {
        let index = self.next();
        let keys: Vec<String> = self.kv_list(prefix).map(|entry| entry.key.clone()).collect();
        if keys.is_empty() {
            return;
        }
        for key in keys {
            self.entries.remove(&key);
        }
        if !prefix.is_empty() {
            self.bury(prefix, index, now);
        }
        self.tables.entries = index;
    }

    fn bury(&mut self, key: &str, index: u64, now: Instant) {
        self.tombstones.retain(|_, tombstone| now.duration_since(tombstone.at) < TOMBSTONE_TTL);
        self.tombstones.insert(key.to_owned(), Tombstone { index, at: now });
    }

    pub(crate) fn kv_get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn kv_list<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Entry> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.entries.range::<str, _>(from).map(|(_, entry)| entry).take_while(move |e| e.key.starts_with(prefix))
    }

    /// The index of one key, or of the whole store if the key does not exist.
    pub(crate) fn key_index(&self, key: &str) -> u64 {
        self.entries.get(key).map_or(self.tables.entries, |entry| entry.stamp.modify)
    }

    /// The index of everything under a prefix, deletions included; of the whole store if there never was anything.
    pub(crate) fn prefix_index(&self, prefix: &str) -> u64 {
        if prefix.is_empty() {
            return self.tables.entries;
        }
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let buried = self.tombstones.range::<str, _>(from).take_while(|(key, _)| key.starts_with(prefix));
        let living = self.kv_list(prefix).map(|entry| entry.stamp.modify);
        living.chain(buried.map(|(_, tombstone)| tombstone.index)).max().unwrap_or(self.tables.entries)
    }
}
