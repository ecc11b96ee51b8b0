//! The routes of one host, and what kind of host it is.

use std::sync::Arc;

use super::command::is_ipv6_host;
use super::glob::Glob;
use super::route_paths::PathKey;
use super::tree::Tree;
use super::{Class, Matcher, Route};

/// The routes of one host. Tables share it until one of its routes changes.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) key: Arc<str>,
    pub(super) kind: Arc<Kind>,
    /// What HTTP requests can get, by path.
    pub(super) http: Tree<Few>,
    /// What is left: TCP targets and routes of a bare port, by path and class.
    pub(super) other: Tree<Arc<Route>>,
}

pub(super) enum Kind {
    /// Serves whatever host is asked for.
    Hostless,
    /// `:80`, whatever the host.
    Port,
    Literal,
    Pattern(Box<Pattern>),
}

pub(super) struct Pattern {
    /// Candidates are tried in descending order of this: the reversed host, and the port behind it as it is.
    pub(super) rank: Box<[u8]>,
    /// On plain connections, and on TLS: the default port may be left out.
    pub(super) forms: [Form; 2],
}

pub(super) enum Form {
    /// `*` and this, reversed.
    Suffix(Box<[u8]>),
    /// Every host.
    Everything,
    Glob(Glob),
}

impl Kind {
    /// The error says what is wrong with the pattern.
    pub(super) fn of(host: &str, globs: bool) -> Result<Self, String> {
        if host.is_empty() {
            return Ok(Self::Hostless);
        }
        if host.starts_with(':') {
            return Ok(Self::Port);
        }
        if !globs || is_ipv6_host(host) || !Glob::is_pattern(host.as_bytes()) {
            return Ok(Self::Literal);
        }
        let form = |tls| Form::of(without_default_port(host, tls));
        let wrong = |why| format!("host {host:?} is no pattern: {why}");
        let forms = [form(false).map_err(wrong)?, form(true).map_err(wrong)?];
        Ok(Self::Pattern(Box::new(Pattern { rank: rank(host), forms })))
    }
}

impl Form {
    fn of(pattern: &str) -> Result<Self, String> {
        let rest = pattern.trim_start_matches('*');
        if rest.is_empty() {
            return Ok(Self::Everything);
        }
        if rest.len() < pattern.len() && is_plain_suffix(rest) {
            return Ok(Self::Suffix(rest.bytes().rev().collect()));
        }
        Glob::parse(pattern.as_bytes()).map(Self::Glob)
    }

    /// Everything but suffixes, which are looked up.
    pub(super) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Suffix(_) => false,
            Self::Everything => true,
            Self::Glob(glob) => glob.matches(host),
        }
    }
}

/// Can longer suffixes simply go before shorter ones? Then that is their order by rank, too: it takes characters that
/// sort behind the star, and a host name, for the port is not reversed in a rank.
fn is_plain_suffix(suffix: &str) -> bool {
    let name = suffix.split_once(':').map_or(suffix, |(name, _)| name);
    suffix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b))
        && suffix.matches(':').count() <= 1
        && name.bytes().any(|b| !b.is_ascii_digit())
}

fn rank(pattern: &str) -> Box<[u8]> {
    let (host, port) = match pattern.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && !port.contains(']') => (host, Some(port)),
        _ => (pattern, None),
    };
    let mut rank: Vec<u8> = host.chars().rev().collect::<String>().into_bytes();
    if let Some(port) = port {
        rank.push(b':');
        rank.extend_from_slice(port.as_bytes());
    }
    rank.into()
}

/// A host as it is compared: the port of the protocol is as good as none.
pub(super) fn without_default_port(host: &str, tls: bool) -> &str {
    host.strip_suffix(default_port(tls)).unwrap_or(host)
}

pub(super) fn default_port(tls: bool) -> &'static str {
    if tls { ":443" } else { ":80" }
}

impl Host {
    pub(super) fn new(key: Arc<str>, kind: Kind) -> Self {
        Self { key, kind: Arc::new(kind), http: Tree::default(), other: Tree::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.http.is_empty() && self.other.is_empty()
    }

    /// Puts a route in, in the place of one with its class, path and conditions.
    pub(super) fn put(&mut self, matcher: Matcher, route: &Arc<Route>) {
        self.set(matcher, route, Some(route));
    }

    /// Takes the route with this one's class, path and conditions out.
    pub(super) fn remove(&mut self, matcher: Matcher, route: &Route) {
        self.set(matcher, route, None);
    }

    fn set(&mut self, matcher: Matcher, place: &Route, route: Option<&Arc<Route>>) {
        if place.class == Class::Http && !place.path.is_empty() {
            // A path that is no pattern cannot be in the index.
            let Ok(PathKey { key, .. }) = PathKey::of(matcher, &place.path) else { return };
            self.http.update(&key, |few| *few = Few::with(few.take(), place, route.cloned()));
        } else {
            self.other.update(&other_key(&place.path, place.class), |place| *place = route.cloned());
        }
    }

    pub(super) fn other(&self, path: &str, class: Class) -> Option<&Arc<Route>> {
        self.other.get(&other_key(path, class))
    }

    /// Paths descending, HTTP before TCP, those with conditions before the plain one.
    pub(super) fn routes(&self) -> Vec<&Arc<Route>> {
        let mut routes = Vec::new();
        self.http.each(|few| routes.extend(few.routes()));
        self.other.each(|route| routes.push(route));
        routes.sort_by(|a, b| b.path.cmp(&a.path).then(a.class.cmp(&b.class)).then_with(|| a.order_here(b)));
        routes
    }
}

fn other_key(path: &str, class: Class) -> Vec<u8> {
    let mut key = path.as_bytes().to_vec();
    key.push(class as u8);
    key
}

/// Routes with the same key: nearly always one. In the order in which they are tried.
#[derive(Clone)]
pub(super) enum Few {
    One(Arc<Route>),
    Many(Vec<Arc<Route>>),
}

impl Few {
    pub(super) fn routes(&self) -> &[Arc<Route>] {
        match self {
            Self::One(route) => std::slice::from_ref(route),
            Self::Many(routes) => routes,
        }
    }

    fn with(few: Option<Self>, place: &Route, route: Option<Arc<Route>>) -> Option<Self> {
        let mut routes = match few {
            None => return route.map(Self::One),
            Some(Self::One(old)) => vec![old],
            Some(Self::Many(routes)) => routes,
        };
        let place = routes.binary_search_by(|old| old.order(place));
        match (place, route) {
            (Ok(at), Some(route)) => routes[at] = route,
            (Ok(at), None) => {
                routes.remove(at);
            }
            (Err(at), Some(route)) => routes.insert(at, route),
            (Err(_), None) => {}
        }
        match routes.len() {
            0 => None,
            1 => routes.pop().map(Self::One),
            _ => Some(Self::Many(routes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (host, want) in [
            ("", "hostless"),
            (":80", "port"),
            ("foo.com", "literal"),
            ("foo.com:80", "literal"),
            ("[2001:db8::1]", "literal"),
            ("[2001:db8::1]:8080", "literal"),
            ("a}b", "literal"),
            ("*.foo.com", "suffix"),
            ("**.foo.com", "suffix"),
            ("*foo.com:8080", "suffix"),
            ("*.foo.com:80", "suffix"),
            ("*", "everything"),
            ("*:80", "everything"),
            ("*:8080", "glob"),
            ("*8080", "glob"),
            ("*.foo.*", "glob"),
            ("?.foo.com", "glob"),
            ("foo.{com,org}", "glob"),
            ("[abc].com", "glob"),
            ("foo\\.com", "glob"),
        ] {
            let kind = Kind::of(host, true).expect(host);
            let got = match &kind {
                Kind::Hostless => "hostless",
                Kind::Port => "port",
                Kind::Literal => "literal",
                Kind::Pattern(pattern) => match pattern.forms[0] {
                    Form::Suffix(_) => "suffix",
                    Form::Everything => "everything",
                    Form::Glob(_) => "glob",
                },
            };
            assert_eq!(got, want, "{host}");
        }
        assert!(matches!(Kind::of("foo[.com", false), Ok(Kind::Literal)));
        assert!(Kind::of("foo[.com", true).is_err());
    }

    #[test]
    fn ranks() {
        for (host, want) in [
            ("*.foo.com", "moc.oof.*"),
            ("*.foo.com:8080", "moc.oof.*:8080"),
            ("*:80", "*:80"),
            ("foo.{com,org}", "}gro,moc{.oof"),
            ("[ab]:1", "]ba[:1"),
        ] {
            assert_eq!(std::str::from_utf8(&rank(host)), Ok(want));
        }
    }
}
