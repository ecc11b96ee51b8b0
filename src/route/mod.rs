//! From tags and text to a table of routes, and from a request to its targets.
//!
//! Pure: no I/O, no clock, no log, no metrics. Everything random or counted comes in as an argument.
//!
//! ```text
//! tags, text, JSON --> Entry (a Command and its Origin) --> Builder --> Table --> LiveTable
//! host, TLS, path  --> Table::http --> Route --> pick --> Target
//! ```

mod access;
mod allow;
mod balance;
mod builder;
mod command;
mod datacenter;
mod definition;
mod destination;
mod diff;
mod edits;
mod error_pages;
mod explain;
mod glob;
mod host;
mod known;
mod language;
mod listing;
mod live;
mod lookup;
mod options;
pub mod path;
mod pending;
mod quote;
mod redirect;
mod route_paths;
mod table;
mod tags;
mod target;
#[cfg(test)]
mod tests;
mod tree;
mod turn;
mod weight;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use access::Access;
pub use allow::Allow;
pub use balance::{Circumstances, HashKey, Strategy, stable_hash};
pub use builder::{Builder, Built, Delta};
pub use command::{Add, Command, Delete, SetWeight, Source};
pub use datacenter::{Datacenter, Priority};
pub use definition::{Definition, parse_definitions, parse_json};
pub use destination::{Destination, Scheme};
pub use diff::diff;
pub use edits::{Cors, Edits, HeaderEdits};
pub use error_pages::ErrorPages;
pub use explain::{Candidate, Choice, Explanation, Outcome, Question, asked_host, near_misses, why};
pub use known::Known;
pub use language::parse_text;
pub use live::{LiveTable, Slot, Snapshot};
pub use lookup::Candidates;
pub(crate) use options::held;
pub use options::{
    Balance, Check, CheckKind, Conditions, Ejection, HostOption, Limits, Mirror, Named, Options, ProxyVersion, Rate,
    RateKey, Reach, Rewrite, SameSite, Sticky, TAG_OPTIONS, TagOption, Tries, nearest_option, tag_option, tag_table,
};
pub use redirect::Redirect;
pub use table::Table;
pub use tags::{FAIL_OPEN, fails_open, is_nearly_a_route, parse_tags, parse_tags_with};
pub use target::{Route, Target};
pub use turn::Turn;
pub use weight::Weight;

/// The place a command was read from; every reject names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A service tag in Consul. `instance` is `<node>/<service id>`.
    Tag { service: Arc<str>, instance: Arc<str>, tag: Arc<str> },
    /// A line of a KV override.
    Key { key: Arc<str>, line: u32 },
    /// A line of a file.
    File { path: Arc<str>, line: u32 },
    /// A line of `registry.static.routes`.
    Static { line: u32 },
    /// An element of the array that a custom registry sent, counted from 0.
    Custom { index: u32 },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag { service, instance, .. } => write!(f, "a tag of service {service:?}, instance {instance:?}"),
            Self::Key { key, line } => write!(f, "key {key:?}, line {line}"),
            Self::File { path, line } => write!(f, "file {path:?}, line {line}"),
            Self::Static { line } => write!(f, "registry.static.routes, line {line}"),
            Self::Custom { index } => write!(f, "element {index} of the custom registry"),
        }
    }
}

/// Something that could not be used, and why. It cost only itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    pub origin: Origin,
    /// The tag or line as it was written, cut after 1 kB.
    pub text: String,
    /// What is wrong and how to write it right.
    pub reason: String,
    /// Nothing was left out because of it: something that was meant has no effect.
    pub advice: bool,
}

/// What must be known about a command that is usable.
#[derive(Debug, PartialEq)]
enum Remark {
    /// Its route lets nobody in.
    Closed(String),
    /// A part of it has no effect.
    Idle(String),
}

impl Reject {
    pub(crate) fn new(origin: Origin, text: &str, reason: impl Into<String>) -> Self {
        Self { origin, text: excerpt(text), reason: reason.into(), advice: false }
    }
}

/// A command and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub origin: Origin,
    pub command: Command,
}

/// `entries` are usable, `rejects` are not. An `allow` or `deny` that cannot be read gives both: the entry denies
/// everybody, the reject says why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    pub entries: Vec<Entry>,
    pub rejects: Vec<Reject>,
}

impl Parsed {
    fn put(&mut self, origin: Origin, text: &str, result: Result<(Command, Option<Remark>), String>) {
        match result {
            Ok((command, warning)) => {
                let (reason, advice) = match warning {
                    None => (None, false),
                    Some(Remark::Closed(reason)) => (Some(reason), false),
                    Some(Remark::Idle(reason)) => (Some(reason), true),
                };
                let told = reason.map(|reason| Reject { advice, ..Reject::new(origin.clone(), text, reason) });
                self.rejects.extend(told);
                self.entries.push(Entry { origin, command });
            }
            Err(reason) => self.rejects.push(Reject::new(origin, text, reason)),
        }
    }
}

/// One instance of a service, as the tags are read for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    pub service: Arc<str>,
    /// `<node>/<service id>`: service ids are unique per node only. Of another datacenter see [`Datacenter::name_instance`].
    pub id: Arc<str>,
    /// `None`: our own.
    pub datacenter: Option<Arc<Datacenter>>,
    pub address: String,
    pub port: u16,
    pub tags: Vec<String>,
    /// Options for all of its routes, from elsewhere than its tags.
    pub options: BTreeMap<String, String>,
    /// It is known and must not get anything: its routes are there with weight 0.
    pub down: bool,
}

/// How request paths are compared with route paths (`proxy.matcher`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matcher {
    /// The request path starts with the route path.
    #[default]
    Prefix,
    /// The same, whatever the case.
    IPrefix,
    /// The route path is a pattern for the whole request path.
    Glob,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub matcher: Matcher,
    /// Host patterns are globs (`glob.matching.disabled=false`).
    pub globs: bool,
    pub known: Known,
}

impl Default for Settings {
    fn default() -> Self {
        Self { matcher: Matcher::Prefix, globs: true, known: Known::default() }
    }
}

/// Who asks: HTTP requests never see TCP targets, and the reverse; datagrams are a third kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Http,
    Tcp,
    Udp,
}

/// The beginning of a text that may be megabytes long.
pub(crate) fn excerpt(text: &str) -> String {
    if text.len() <= EXCERPT {
        return text.to_owned();
    }
    let mut cut = text[..text.floor_char_boundary(EXCERPT)].to_owned();
    cut.push('…');
    cut
}

/// Enough to recognise a line by; KV values may be 512 kB, and rejects are kept, logged and shown.
const EXCERPT: usize = 1024;
