//! Sessions: what locks hang on. When one expires is decided outside; this file says what happens then.

use std::time::{Duration, Instant};

use super::{Store, lower};
use crate::go_text::{format_duration, parse_duration};
use crate::records::{Entry, Session, Stamp};

/// The body of a session creation, defaults filled in.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) lock_delay: Duration,
    pub(crate) behavior: String,
    pub(crate) ttl: String,
    pub(crate) node_checks: Vec<String>,
    pub(crate) service_checks: Vec<String>,
}

impl Store {
    /// Create a session with this id. The error is what Consul answers with status 500.
    pub(crate) fn create_session(&mut self, id: &str, request: SessionRequest) -> Result<(), String> {
        let deletes = match request.behavior.as_str() {
            "" | "release" => false,
            "delete" => true,
            other => return Err(format!("Invalid Behavior setting '{other}'")),
        };
        if !request.ttl.is_empty() {
            let ttl = parse_duration(&request.ttl)
                .ok_or_else(|| format!("Session TTL '{0}' invalid: time: invalid duration {0:?}", request.ttl))?;
            if !ttl.is_zero() && !(MIN_TTL..=MAX_TTL).contains(&ttl) {
                return Err(format!(
                    "Invalid Session TTL '{}', must be between [{}={}]",
                    ttl.as_nanos(),
                    format_duration(MIN_TTL),
                    format_duration(MAX_TTL)
                ));
            }
        }
        let Some(node) = self.node(&request.node) else {
            return Err("Missing node registration".to_owned());
        };
        let node = node.name.clone();
        for id in request.node_checks.iter().chain(&request.service_checks) {
            match self.check(&node, id) {
                None => return Err(format!("Missing check '{id}' registration")),
                Some(check) if check.status == "critical" => {
                    return Err(format!("Check '{id}' is in critical state"));
                }
                Some(_) => {}
            }
        }
        let index = self.next();
        let session = Session {
            id: id.to_owned(),
            name: request.name,
            node,
            lock_delay: request.lock_delay,
            deletes,
            ttl: request.ttl,
            node_checks: request.node_checks,
            service_checks: request.service_checks,
            stamp: Stamp::written(None, index),
        };
        self.sessions.insert(session.id.clone(), session);
        self.tables.sessions = index;
        Ok(())
    }

    /// End a session; one that does not exist is no error.
    pub(crate) fn destroy_session(&mut self, id: &str) {
        let index = self.next();
        self.end_session(id, index, Instant::now());
    }

    fn end_session(&mut self, id: &str, index: u64, now: Instant) {
        let Some(session) = self.sessions.remove(id) else { return };
        self.tables.sessions = index;
        let held: Vec<Entry> = self.entries.values().filter(|entry| entry.session == id).cloned().collect();
        for entry in held {
            if !session.lock_delay.is_zero() {
                self.lock_delays.insert(entry.key.clone(), now + session.lock_delay);
            }
            if session.deletes {
                self.delete_entry(&entry.key, index, now);
            } else {
                let stamp = Stamp::written(Some(entry.stamp), index);
                self.put_entry(Entry { session: String::new(), stamp, ..entry }, index);
            }
        }
    }

    pub(super) fn end_sessions_of_node(&mut self, node: &str, index: u64) {
        self.end_sessions(index, |session| lower(&session.node) == node);
    }

    pub(super) fn end_sessions_of_check(&mut self, node: &str, check: &str, index: u64) {
        self.end_sessions(index, |session| {
            let mut checks = session.node_checks.iter().chain(&session.service_checks);
            session.node.eq_ignore_ascii_case(node) && checks.any(|id| id.eq_ignore_ascii_case(check))
        });
    }

    fn end_sessions(&mut self, index: u64, ends: impl Fn(&Session) -> bool) {
        let ids: Vec<String> = self.sessions.values().filter(|s| ends(s)).map(|s| s.id.clone()).collect();
        for id in ids {
            self.end_session(&id, index, Instant::now());
        }
    }

    pub(crate) fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.get(id)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    pub(crate) fn sessions_index(&self) -> u64 {
        self.tables.sessions
    }
}

/// Whether this is the form of a session id; the error is what Consul answers with status 500.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    const FAILED: &str = "failed session lookup: index error";
    if id.len() != 36 {
        return Err(format!("{FAILED}: UUID must be 36 characters"));
    }
    match id.chars().find(|c| !c.is_ascii_hexdigit() && *c != '-') {
        Some(c) => Err(format!("{FAILED}: Invalid UUID: encoding/hex: invalid byte: U+{:04X} '{c}'", c as u32)),
        None => Ok(()),
    }
}

/// The bounds that Consul's defaults set.
const MIN_TTL: Duration = Duration::from_secs(10);
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
