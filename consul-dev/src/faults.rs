//! Faults for tests: what an agent in trouble answers, switched on by rules, and a record of the requests seen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::request::Parts;

/// One thing that can go wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This status with this text.
    Error(u16, String),
    /// No answer at all; the connection stays open.
    Hang,
    /// Success with nothing in it, as if an ACL hid everything: `[]`, `{}`, or for keys 404. Indexes are as usual.
    Empty,
    /// The head and the first half of the body, then the connection is cut; an answer without body is not sent at all.
    Cut,
    /// The usual answer, that much later. A blocking query waits in addition.
    Slow(Duration),
    /// The usual answer, but with this value in `X-Consul-Index`.
    IndexReset(u64),
    /// What a server says that knows no leader: status 500, and an empty leader in `/v1/status/leader`.
    LeaderLoss,
    /// The usual answer without `X-Consul-Index`.
    DropIndexHeader,
    /// The usual answer with `X-Consul-Results-Filtered-By-ACLs: true`, as newer versions of Consul send it.
    Filtered,
}

/// When a fault happens. Made by [`Rule::new`], which means always, and narrowed by the other functions.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    method: Option<String>,
    pattern: String,
    times: Option<usize>,
}

impl Rule {
    /// This fault with every request.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, pattern: String::new(), times: None }
    }

    /// Only with this method.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        Self { method: Some(method.to_owned()), ..self }
    }

    /// Only if the target (path and query) begins like this; `*` stands for any text.
    #[must_use]
    pub fn path(self, pattern: &str) -> Self {
        Self { pattern: pattern.to_owned(), ..self }
    }

    /// Only with the next `times` requests that match.
    #[must_use]
    pub fn times(self, times: usize) -> Self {
        Self { times: Some(times), ..self }
    }

    fn matches(&self, method: &str, target: &str) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method) && begins_like(target, &self.pattern)
    }
}

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// For example `GET`.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
}

impl Seen {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The faults of one agent, and its record of requests. Clones belong to the same agent.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<Rule>,
    seen: VecDeque<Seen>,
    total: u64,
}

impl Faults {
    /// Add a rule. The rules that match a request act together, in the order in which they were added; the first that gives
    /// an answer of its own ends it.
    pub fn add(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    /// Forget all rules. Requests that hang go on hanging.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// The newest requests, oldest first; at most 10,000 are kept.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.iter().cloned().collect()
    }

    /// How many of the recorded requests have this method and a target that begins like this; `*` stands for any text.
    #[must_use]
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        self.lock().seen.iter().filter(|seen| seen.method == method && begins_like(&seen.target, pattern)).count()
    }

    /// How many requests there were, ever.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// Forget the recorded requests.
    pub fn forget(&self) {
        self.lock().seen.clear();
    }

    /// Record a request, and say what shall go wrong with it.
    pub(crate) fn take(&self, request: &Parts) -> Vec<Fault> {
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        let headers = request.headers.iter();
        let seen = Seen {
            method: request.method.to_string(),
            target: target.to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
                .collect(),
        };
        let mut inner = self.lock();
        let mut faults = Vec::new();
        for rule in &mut inner.rules {
            if rule.times == Some(0) || !rule.matches(&seen.method, &seen.target) {
                continue;
            }
            if let Some(times) = &mut rule.times {
                *times -= 1;
            }
            faults.push(rule.fault.clone());
        }
        inner.rules.retain(|rule| rule.times != Some(0));
        inner.total += 1;
        if inner.seen.len() == MAX_SEEN {
            inner.seen.pop_front();
        }
        inner.seen.push_back(seen);
        faults
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn begins_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text.starts_with(pattern),
        Some((head, tail)) => text
            .strip_prefix(head)
            .is_some_and(|rest| rest.char_indices().any(|(at, _)| begins_like(&rest[at..], tail)) || tail.is_empty()),
    }
}

const MAX_SEEN: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (text, pattern, expected) in [
            ("/v1/kv/a", "", true),
            ("/v1/kv/a", "/v1/kv/", true),
            ("/v1/kv/a", "/v1/health", false),
            ("/v1/kv/a?recurse", "/v1/*?recurse", true),
            ("/v1/kv/a", "/v1/*?recurse", false),
            ("/v1/kv/a", "*a", true),
            ("/v1/kv/b", "*a", false),
            ("/v1/kv/", "/v1/kv/*", true),
        ] {
            assert_eq!(begins_like(text, pattern), expected, "{text} {pattern}");
        }
    }
}
