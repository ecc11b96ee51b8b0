//! From host and path of a request to routes, the most specific first.
//!
//! Hosts are tried in this order: the literal host with the default port, the literal host, patterns by rank, hosts that
//! are a bare port, the empty host. Of each host all routes whose path fits are given, then the next host is tried.

use std::sync::Arc;

use super::host::{Form, Host, Kind, default_port};
use super::route_paths::folded;
use super::table::before;
use super::tree::{Backward, Folded, Forward, Key};
use super::{Matcher, Route, Table};

/// See [`Table::http`].
pub struct Candidates<'t, 'r> {
    table: &'t Table,
    name: Name,
    tls: bool,
    path: &'r [u8],
    /// The path in lower case, where that takes more than ASCII.
    folded: Option<Box<[u8]>>,
    stage: Stage,
    /// The host whose paths are tried.
    here: Option<&'t Host>,
    /// What of it has been given.
    paths: Paths<'t>,
    suffixes: Suffixes<'t>,
    /// The next general pattern to try, and the one that fits and waits for its place.
    general: usize,
    waiting: Option<&'t Arc<Host>>,
    port: Option<&'t Host>,
}

enum Stage {
    WithPort,
    Literal,
    Patterns,
    Hostless,
    Done,
}

/// Prefixes: routes whose key is longer than the limit are done, and of that key as many as `index`. Otherwise: all
/// routes from the last one up are done.
#[derive(Default)]
struct Paths<'t> {
    limit: Option<usize>,
    index: usize,
    last: Option<&'t Route>,
}

struct Suffixes<'t> {
    limit: Option<usize>,
    index: usize,
    waiting: Option<&'t Arc<Host>>,
}

impl<'t, 'r> Candidates<'t, 'r> {
    pub(super) fn new(table: &'t Table, host: &str, tls: bool, path: &'r [u8]) -> Self {
        let folded = (table.matcher == Matcher::IPrefix && !path.is_ascii()).then(|| folded(path).into());
        Self {
            table,
            name: Name::new(host, tls),
            tls,
            path,
            folded,
            stage: Stage::WithPort,
            here: None,
            paths: Paths::default(),
            suffixes: Suffixes { limit: Some(usize::MAX), index: 0, waiting: None },
            general: 0,
            waiting: None,
            port: None,
        }
    }

    fn next_host(&mut self) -> Option<&'t Host> {
        loop {
            let found = match self.stage {
                Stage::WithPort => {
                    self.stage = Stage::Literal;
                    let some = self.table.default_ports[usize::from(self.tls)] > 0;
                    if some { self.literal(self.name.with_port()) } else { None }
                }
                Stage::Literal => {
                    self.stage = Stage::Patterns;
                    self.port = self.port_host();
                    self.literal(self.name.host())
                }
                Stage::Patterns => {
                    let found = self.next_pattern();
                    if found.is_none() {
                        self.stage = Stage::Hostless;
                    }
                    found
                }
                Stage::Hostless => {
                    self.stage = Stage::Done;
                    self.table.hostless.as_deref()
                }
                Stage::Done => return None,
            };
            if found.is_some() {
                return found;
            }
        }
    }

    fn literal(&self, key: &[u8]) -> Option<&'t Host> {
        let host = self.table.hosts.get(key)?;
        matches!(*host.kind, Kind::Literal).then_some(host)
    }

    /// The host that is the port of the request alone.
    fn port_host(&self) -> Option<&'t Host> {
        if self.table.ports == 0 {
            return None;
        }
        let host = self.table.hosts.get(self.name.port(self.tls))?;
        (!host.http.is_empty()).then_some(host)
    }

    fn next_pattern(&mut self) -> Option<&'t Host> {
        let patterns = &self.table.patterns[usize::from(self.tls)];
        let name = self.name.host();
        if self.waiting.is_none() {
            let rest = patterns.general.get(self.general..).unwrap_or_default();
            let fits = |host: &Arc<Host>| form(host, self.tls).is_some_and(|form| form.matches(name));
            match rest.iter().position(fits) {
                Some(at) => {
                    self.waiting = Some(&rest[at]);
                    self.general += at + 1;
                }
                None => self.general = patterns.general.len(),
            }
        }
        let suffixes = &mut self.suffixes;
        if suffixes.waiting.is_none()
            && let Some(limit) = suffixes.limit
        {
            match patterns.suffixes.deepest(Backward(name), limit) {
                None => suffixes.limit = None,
                Some((depth, hosts)) => {
                    suffixes.waiting = hosts.get(suffixes.index);
                    suffixes.index += 1;
                    suffixes.limit = Some(depth);
                    if suffixes.index >= hosts.len() {
                        suffixes.index = 0;
                        suffixes.limit = depth.checked_sub(1);
                    }
                }
            }
        }
        match (suffixes.waiting, self.waiting) {
            (Some(suffix), Some(general)) if before(suffix, general).is_lt() => suffixes.waiting.take().map(|h| &**h),
            (Some(_), None) => suffixes.waiting.take().map(|h| &**h),
            // Whatever names a host goes before a bare port, and a bare port before what names nothing.
            (_, Some(general)) if self.port.is_none() || !matches!(form(general, self.tls), Some(Form::Everything)) => {
                self.waiting.take().map(|h| &**h)
            }
            _ => self.port.take(),
        }
    }

    fn next_path(&mut self, host: &'t Host) -> Option<&'t Route> {
        match self.table.matcher {
            Matcher::Prefix => {
                let (depth, few) = host.http.deepest(Forward(self.path), self.paths.limit?)?;
                let routes = few.routes();
                let route = routes.get(self.paths.index)?;
                self.paths.index += 1;
                self.paths.limit = Some(depth);
                if self.paths.index == routes.len() {
                    self.paths.index = 0;
                    self.paths.limit = depth.checked_sub(1);
                }
                Some(route)
            }
            Matcher::IPrefix => {
                let next = match &self.folded {
                    Some(folded) => next_after(host, Forward(folded), self.path, self.paths.last),
                    None => next_after(host, Folded(self.path), self.path, self.paths.last),
                }?;
                self.paths.last = Some(next);
                Some(next)
            }
            Matcher::Glob => {
                let next = next_after(host, Forward(self.path), self.path, self.paths.last)?;
                self.paths.last = Some(next);
                Some(next)
            }
        }
    }
}

impl<'t> Iterator for Candidates<'t, '_> {
    type Item = &'t Route;

    fn next(&mut self) -> Option<&'t Route> {
        loop {
            if let Some(host) = self.here {
                if let Some(route) = self.next_path(host) {
                    return Some(route);
                }
                self.here = None;
            }
            self.here = Some(self.next_host()?);
            self.paths = Paths { limit: Some(usize::MAX), ..Paths::default() };
        }
    }
}

/// The first route after the last one, of those that fit: paths descending. Their keys are no measure of that order.
fn next_after<'t>(host: &'t Host, key: impl Key, path: &[u8], last: Option<&Route>) -> Option<&'t Route> {
    let mut best: Option<&'t Arc<Route>> = None;
    host.http.walk(key, |_, few| {
        for route in few.routes() {
            if best.is_some_and(|best| best.order(route).is_le()) {
                break;
            }
            let done = last.is_some_and(|last| route.order(last).is_le());
            if !done && route.glob.as_ref().is_none_or(|glob| glob.matches(path)) {
                best = Some(route);
                break;
            }
        }
    });
    best.map(|route| &**route)
}

fn form(host: &Host, tls: bool) -> Option<&Form> {
    match &*host.kind {
        Kind::Pattern(pattern) => Some(&pattern.forms[usize::from(tls)]),
        _ => None,
    }
}

/// The host of a request in lower case and without the default port, which stands behind it again.
struct Name {
    short: [u8; SHORT + 4],
    /// For hosts that are too long for it, or not ASCII.
    long: Box<[u8]>,
    length: usize,
    with_port: usize,
}

impl Name {
    fn new(host: &str, tls: bool) -> Self {
        let port = default_port(tls).as_bytes();
        let mut name = Self { short: [0; SHORT + 4], long: Box::default(), length: 0, with_port: 0 };
        if host.len() > SHORT || !host.is_ascii() {
            let lower = host.to_lowercase();
            let lower = super::host::without_default_port(&lower, tls);
            name.length = lower.len();
            name.long = [lower.as_bytes(), port].concat().into();
        } else {
            name.length = host.len();
            let bytes = &mut name.short[..host.len()];
            bytes.copy_from_slice(host.as_bytes());
            bytes.make_ascii_lowercase();
            if bytes.ends_with(port) {
                name.length -= port.len();
            } else {
                name.short[host.len()..][..port.len()].copy_from_slice(port);
            }
        }
        name.with_port = name.length + port.len();
        name
    }

    fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short } else { &self.long }
    }

    fn host(&self) -> &[u8] {
        &self.bytes()[..self.length]
    }

    fn with_port(&self) -> &[u8] {
        &self.bytes()[..self.with_port]
    }

    /// `:80`: the port that is written, or the default one.
    fn port(&self, tls: bool) -> &[u8] {
        let host = self.host();
        let colon = host.iter().rposition(|b| *b == b':').filter(|at| {
            let digits = &host[at + 1..];
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        });
        colon.map_or(default_port(tls).as_bytes(), |at| &host[at..])
    }
}

const SHORT: usize = 255;
