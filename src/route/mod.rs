//! From tags and text to a table of routes, and from a request to its targets.
//!
//! Pure: no I/O, no clock, no log, no metrics. Everything random or counted comes in as an argument.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

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

/// Something that could not be used, and why. It cost only itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    pub origin: Origin,
    /// The tag or line as it was written.
    pub text: String,
    /// What is wrong and how to write it right.
    pub reason: String,
}

/// A command and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub origin: Origin,
    pub command: Command,
}

/// `entries` are usable, `rejects` are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    pub entries: Vec<Entry>,
    pub rejects: Vec<Reject>,
}

/// One instance of a service, as the tags are read for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    pub service: Arc<str>,
    /// `<node>/<service id>`: service ids are unique per node only.
    pub id: Arc<str>,
    pub address: String,
    pub port: u16,
    pub tags: Vec<String>,
}

/// Reads the route tags of an instance. `datacenter` is the value of `$DC`.
pub fn parse_tags(_instance: &Instance, _prefix: &str, _datacenter: &str) -> Parsed {
    todo!()
}

/// Reads commands in the route language. `origin` names the place of a line, counted from 1.
pub fn parse_text(_text: &str, _origin: impl Fn(u32) -> Origin) -> Parsed {
    todo!()
}

/// A route definition as custom registries send it in JSON.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Definition {
    pub cmd: String,
    pub service: String,
    pub src: String,
    pub dst: String,
    pub weight: f64,
    pub tags: Option<Vec<String>>,
    pub opts: Option<std::collections::BTreeMap<String, String>>,
}

/// Turns definitions of a custom registry into commands.
pub fn parse_definitions(_definitions: Vec<Definition>) -> Parsed {
    todo!()
}

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    // Add(Add), Delete(Delete), Weight(SetWeight): filled in by the owner of this folder
}

/// How request paths are compared with route paths (`proxy.matcher`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matcher {
    #[default]
    Prefix,
    IPrefix,
    Glob,
}

/// How a target is chosen (`proxy.strategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    Random,
    RoundRobin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub matcher: Matcher,
    /// Host patterns are globs (`glob.matching.disabled=false`).
    pub globs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { matcher: Matcher::Prefix, globs: true }
    }
}

/// Builds tables, and builds again only the hosts that a change touches.
pub struct Builder {}

/// What a build gave.
pub struct Built {
    pub table: Arc<Table>,
    /// Commands that cannot be applied (a `route weight` without a match, say). Those found while parsing are not in it.
    pub rejects: Vec<Reject>,
}

impl Builder {
    pub fn new(_settings: Settings) -> Self {
        todo!()
    }

    /// Replaces everything that one service contributes. No entries: the service is gone.
    pub fn service(&mut self, _name: &str, _entries: Vec<Entry>) {
        todo!()
    }

    /// Replaces the commands that are applied after those of all services, in order.
    pub fn manual(&mut self, _entries: Vec<Entry>) {
        todo!()
    }

    pub fn build(&mut self) -> Built {
        todo!()
    }

    /// The commands in force as text: service commands sorted descending, then `manual` in order. One command per line.
    /// This is what `log.routes.format=delta` and `all` show.
    pub fn source_lines(&self) -> Vec<String> {
        todo!()
    }
}

/// Lines that differ, `- old` and `+ new`, in order.
pub fn diff(_old: &[String], _new: &[String]) -> Vec<String> {
    todo!()
}

/// An immutable routing table.
#[derive(Default)]
pub struct Table {}

/// Who asks: HTTP requests never see TCP targets, and the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Http,
    Tcp,
}

impl Table {
    /// Every route that fits, the most specific first: hosts in order, then paths. Most callers take the first.
    /// `host` as the client sent it; `path` decoded and cleaned (see [`path`]).
    pub fn http<'t>(&'t self, _host: &str, _tls: bool, _path: &[u8]) -> impl Iterator<Item = &'t Route> + 't {
        std::iter::empty()
    }

    /// The route of exactly this host key (`:1234`, `10.0.0.1:1234` or a server name), for the TCP family.
    pub fn tcp(&self, _host: &str) -> Option<&Route> {
        todo!()
    }

    /// All routes: hosts ascending (the empty one first), paths descending. The order of `/api/routes`.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::empty()
    }

    /// `(routes, targets)`
    pub fn size(&self) -> (usize, usize) {
        todo!()
    }

    /// The table in the route language, as `/api/routes?raw` shows it.
    pub fn listing(&self) -> String {
        todo!()
    }

    /// The table as a tree, as `log.routes.format=detail` shows it.
    pub fn tree(&self) -> String {
        todo!()
    }

    /// The names of `register=` options in the table.
    pub fn aliases(&self) -> BTreeSet<Arc<str>> {
        todo!()
    }
}

/// Targets that serve one host and path.
pub struct Route {
    pub class: Class,
    /// Lower case; may be empty, may carry a port, may be a pattern.
    pub host: Arc<str>,
    /// As written. Empty for routes of a port.
    pub path: Arc<str>,
    pub targets: Box<[Target]>,
    /// State of this (class, host, path) that outlives the table, hung on by its owner before the table is published.
    pub state: Slot,
}

/// What decides between the targets of a route.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// Any number, evenly distributed over the whole range.
    Random(u64),
    /// The n-th request of this route.
    Nth(u64),
}

impl Route {
    /// What makes two routes the same across tables: class, host and path.
    pub fn identity(&self) -> u128 {
        todo!()
    }

    /// The target whose turn it is by weight. `None` if every target is excluded by `weight 0`.
    pub fn pick(&self, _turn: Turn) -> Option<&Target> {
        todo!()
    }
}

/// One destination of a route.
pub struct Target {
    pub service: Arc<str>,
    /// `<node>/<service id>`, if it comes from a tag.
    pub instance: Option<Arc<str>>,
    pub tags: Arc<[Arc<str>]>,
    pub destination: Arc<Destination>,
    pub options: Arc<Options>,
    /// As configured.
    pub weight: Weight,
    /// The share of the route's requests, 0 to 1.
    pub share: f64,
    /// State of this identity that outlives the table, hung on by its owner before the table is published.
    pub state: Slot,
}

impl Target {
    /// What makes two targets the same across tables: service, instance, destination and options. Stable in a process.
    pub fn identity(&self) -> u128 {
        todo!()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    #[default]
    Automatic,
    /// Above 0.
    Fixed(f64),
    /// An explicit 0: no requests.
    Excluded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
    Ws,
    Wss,
    Tcp,
    Grpc,
    Grpcs,
}

/// Where a target is, as written and in parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Exactly as written (scheme in lower case).
    pub text: String,
    pub scheme: Scheme,
    /// Without brackets. For a redirect it may hold variables.
    pub host: String,
    /// The scheme's own when none was written (80, 443); 0 when there is none.
    pub port: u16,
    /// `host[:port]` as written: what `host=dst` sends.
    pub authority: String,
    pub path: String,
    /// Without the question mark.
    pub query: Option<String>,
}

/// Options of a target, raw and parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// As written, in order of keys.
    pub raw: std::collections::BTreeMap<String, String>,
    pub strip: Option<String>,
    /// With its leading slash.
    pub prepend: Option<String>,
    pub host: Option<HostOption>,
    pub redirect: Option<Redirect>,
    pub access: Access,
    /// Name of a scheme in `proxy.auth`.
    pub auth: Option<String>,
    pub tls_skip_verify: bool,
    pub proxy_protocol: bool,
    pub register: Option<Arc<str>>,
}

impl Options {
    /// `k=v k=v`, in order of keys; a key without a value is printed `k=`.
    pub fn text(&self) -> String {
        todo!()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOption {
    /// The address of the target.
    Destination,
    Name(String),
}

/// Who may use a target, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Everyone,
    // Allow(..), Deny(..): filled in by the owner of this folder
}

impl Access {
    /// Nobody is shut out.
    pub fn is_open(&self) -> bool {
        *self == Access::Everyone
    }

    /// IPv4 addresses written as IPv6 (`::ffff:10.1.1.1`) count as IPv4.
    pub fn permits(&self, _address: IpAddr) -> bool {
        todo!()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 300 to 399.
    pub code: u16,
}

impl Redirect {
    /// True if the location is where the client is already.
    pub fn loops(
        &self,
        _location: &str,
        _scheme: &str,
        _host: &str,
        _path: &path::Cleaned<'_>,
        _query: Option<&str>,
    ) -> bool {
        todo!()
    }

    /// The Location for a request: `host` as the client sent it, `path` and `query` as they came (escapes kept).
    /// Bytes that a header cannot carry are percent-encoded.
    pub fn location(&self, _target: &Target, _host: &str, _path: &path::Cleaned<'_>, _query: Option<&str>) -> String {
        todo!()
    }
}

/// A place to hang state on. The table never looks inside.
#[derive(Default)]
pub struct Slot(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Slot {
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Does nothing if something hangs there already.
    pub fn fill(&self, state: Arc<dyn Any + Send + Sync>) {
        let _ = self.0.set(state);
    }

    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get()?.downcast_ref()
    }

    /// The handle itself, to keep it beyond the table.
    pub fn share<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::downcast(self.0.get()?.clone()).ok()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Slot(empty)" } else { "Slot(filled)" })
    }
}

/// What the data plane reads: a table and the page for requests without a route.
#[derive(Default)]
pub struct Snapshot {
    pub table: Arc<Table>,
    /// The no-route page; empty when there is none.
    pub page: Arc<str>,
}

/// The one current [`Snapshot`]. Readers never wait.
#[derive(Default)]
pub struct LiveTable(arc_swap::ArcSwap<Snapshot>);

impl LiveTable {
    /// Take it once per request, and drop it before waiting for anything.
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.0.load()
    }

    pub fn load_full(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    pub fn store(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}

/// Request paths: decoded once for matching, cleaned of dot segments and double slashes, escapes kept for forwarding.
pub mod path {
    use std::borrow::Cow;

    /// A request path in its two forms.
    pub struct Cleaned<'a> {
        /// Cleaned, escapes as they came. This is what is forwarded.
        pub raw: Cow<'a, str>,
        /// Cleaned and decoded once. This is what is matched. Need not be UTF-8.
        pub decoded: Cow<'a, [u8]>,
    }

    /// Empty becomes `/`. Without escapes, double slashes and dot segments nothing is copied.
    pub fn clean(_raw: &str) -> Cleaned<'_> {
        todo!()
    }

    impl Cleaned<'_> {
        /// The raw path without a decoded prefix, always with a leading slash; `None` if it is no prefix.
        pub fn strip(&self, _prefix: &str) -> Option<Cow<'_, str>> {
            todo!()
        }

        /// The path to send: `strip`, then `prepend`.
        pub fn forward(&self, _options: &super::Options) -> Cow<'_, str> {
            todo!()
        }
    }
}
