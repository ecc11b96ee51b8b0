//! What can be said about routes: the structured form of the route language.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::{Class, Datacenter, Destination, Options, Remark, Scheme, Weight, pending, quote};

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `route add`
    Add(Add),
    /// `route del`
    Delete(Delete),
    /// `route weight`
    Weight(SetWeight),
}

/// Adds a target to a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    pub service: Arc<str>,
    /// `<node>/<service id>`, if it comes from a tag.
    pub instance: Option<Arc<str>>,
    /// That of the instance; `None`: our own.
    pub datacenter: Option<Arc<Datacenter>>,
    pub source: Source,
    pub destination: Arc<Destination>,
    pub weight: Weight,
    pub tags: Arc<[Arc<str>]>,
    pub options: Arc<Options>,
}

/// Removes the targets that fit all that is given; nothing given removes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    pub service: Option<Arc<str>>,
    pub source: Option<Source>,
    /// Compared as text, but for one trailing slash.
    pub destination: Option<Arc<Destination>>,
    /// All of them must be there.
    pub tags: Arc<[Arc<str>]>,
}

/// Sets the weight that the targets of a route which fit get together.
#[derive(Clone, Debug, PartialEq)]
pub struct SetWeight {
    pub service: Option<Arc<str>>,
    pub source: Source,
    pub weight: Weight,
    /// All of them must be there.
    pub tags: Arc<[Arc<str>]>,
}

/// Host and path of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Lower case; may be empty, carry a port, be a pattern, or be a port alone (`:1234`).
    pub host: Arc<str>,
    /// Begins with a slash, or is empty for the route of a port.
    pub path: Arc<str>,
}

impl Source {
    /// Reads `host/path`, `/path`, `host`, `:port` or `:port/path`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("route: prefix must not be empty; write host/path, /path or :port".to_owned());
        }
        if text.chars().any(char::is_control) {
            return Err("a source has no tabs, line breaks or other control characters".to_owned());
        }
        if text.len() > MAX_SOURCE {
            return Err(format!("a source has at most {MAX_SOURCE} bytes, this one has {}", text.len()));
        }
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        if let Some(port) = host.strip_prefix(':') {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            if !digits || !port.parse::<u16>().is_ok_and(|port| port > 0) {
                return Err(format!("{port:?} is not a port between 1 and 65535; write :1234, host/path or /path"));
            }
            return Ok(Self { host: host.into(), path: path.into() });
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { host: host.to_lowercase().into(), path: path.into() })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        f.write_str(&self.path)
    }
}

/// Is it `[address]` or `[address]:port` with a true IPv6 address? To a pattern matcher it would be a list of characters.
pub(super) fn is_ipv6_host(host: &str) -> bool {
    let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    address.parse::<Ipv6Addr>().is_ok()
        && (port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit())))
}

/// The parts of a `route add` before they are checked against each other.
pub(super) struct Draft {
    pub(super) service: Arc<str>,
    pub(super) instance: Option<Arc<str>>,
    pub(super) datacenter: Option<Arc<Datacenter>>,
    pub(super) source: Source,
    pub(super) destination: Arc<Destination>,
    pub(super) weight: Weight,
    pub(super) tags: Arc<[Arc<str>]>,
    pub(super) options: BTreeMap<String, String>,
}

impl Draft {
    /// The command, and what the operator must know about it though it is usable.
    pub(super) fn check(self) -> Result<(Command, Option<Remark>), String> {
        if self.service.is_empty() {
            return Err("the name of the service is empty".to_owned());
        }
        if self.options.iter().any(|(key, value)| [key, value].iter().any(|text| text.chars().any(char::is_control))) {
            return Err("options have no line breaks and no other control characters".to_owned());
        }
        pending::check(&self.options, self.destination.scheme)?;
        check_http2(self.options.get("proto").map(String::as_str), self.destination.scheme)?;
        let (options, warning) = Options::parse(self.options)?;
        let redirects = !matches!(self.destination.scheme, Scheme::Grpc | Scheme::Grpcs)
            && self.destination.scheme.class() == Class::Http;
        if options.redirect.is_some() && !redirects {
            let scheme = self.destination.scheme.name();
            return Err(format!("a redirect needs an http or https URL, not {scheme}"));
        }
        let http = self.destination.scheme.class() == Class::Http && !self.source.path.is_empty();
        if options.conditions.is_some() && !http {
            return Err(
                "path=, method=, header=, query= and cookie= are for routes of HTTP requests, which have a path"
                    .to_owned(),
            );
        }
        let idle = || http.then(|| never_asked_for(&self.source.path)).flatten().map(Remark::Idle);
        let warning = warning.or_else(idle);
        let add = Add {
            service: self.service,
            instance: self.instance,
            datacenter: self.datacenter,
            source: self.source,
            destination: self.destination,
            weight: self.weight,
            tags: self.tags,
            options,
        };
        Ok((Command::Add(add), warning))
    }
}

/// Paths are looked up without dot segments and double slashes, so a route cannot have them.
fn never_asked_for(path: &str) -> Option<String> {
    let flaw = if path.contains("//") {
        "a double slash"
    } else if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        "a dot segment"
    } else {
        return None;
    };
    Some(format!("no request has this path: it has {flaw}, and is looked up without; write host/path or /path"))
}

/// TLS is what the scheme says, so an option cannot promise or deny it.
fn check_http2(proto: Option<&str>, scheme: Scheme) -> Result<(), String> {
    match (proto, scheme) {
        (Some("h2"), Scheme::Http) => {
            Err("proto=h2 is HTTP/2 with TLS; write the destination as https://, or proto=h2c without TLS".to_owned())
        }
        (Some("h2c"), Scheme::Https) => {
            Err("proto=h2c is HTTP/2 without TLS; write the destination as http://, or proto=h2 with TLS".to_owned())
        }
        _ => Ok(()),
    }
}

impl Add {
    pub fn class(&self) -> Class {
        self.destination.scheme.class()
    }
}

impl Delete {
    pub(super) fn fits(&self, add: &Add) -> bool {
        let something = self.service.is_some() || !self.tags.is_empty();
        something
            && self.service.as_ref().is_none_or(|service| *service == add.service)
            && self.source.as_ref().is_none_or(|source| *source == add.source)
            && self.destination.as_ref().is_none_or(|destination| destination.same_place(&add.destination))
            && has_all(&add.tags, &self.tags)
    }
}

impl SetWeight {
    /// The source is not looked at.
    pub(super) fn fits(&self, add: &Add) -> bool {
        self.service.as_ref().is_none_or(|service| *service == add.service) && has_all(&add.tags, &self.tags)
    }
}

impl fmt::Display for Command {
    /// The command in the route language, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::with_capacity(96);
        match self {
            Self::Add(add) => {
                line.push_str("route add ");
                quote::word(&mut line, &add.service);
                push_source(&mut line, &add.source);
                line.push(' ');
                quote::word(&mut line, &add.destination.text);
                if let Some(weight) = add.weight.number() {
                    push_weight(&mut line, weight);
                }
                push_tags(&mut line, &add.tags);
                push_options(&mut line, &add.options);
            }
            Self::Delete(delete) => {
                line.push_str("route del");
                if let Some(service) = &delete.service {
                    line.push(' ');
                    quote::word(&mut line, service);
                }
                if let Some(source) = &delete.source {
                    push_source(&mut line, source);
                }
                if let Some(destination) = &delete.destination {
                    line.push(' ');
                    quote::word(&mut line, &destination.text);
                }
                if delete.service.is_none() && delete.tags.is_empty() {
                    line.push_str(" tags \"\"");
                }
                push_tags(&mut line, &delete.tags);
            }
            Self::Weight(set) => {
                line.push_str("route weight");
                if let Some(service) = &set.service {
                    line.push(' ');
                    quote::word(&mut line, service);
                }
                push_source(&mut line, &set.source);
                push_weight(&mut line, set.weight.number().unwrap_or(-1.0));
                if set.service.is_none() && set.tags.is_empty() {
                    line.push_str(" tags \"\"");
                }
                push_tags(&mut line, &set.tags);
            }
        }
        f.write_str(&line)
    }
}

fn push_source(line: &mut String, source: &Source) {
    line.push(' ');
    quote::word(line, &source.host);
    quote::word(line, &source.path);
}

fn push_weight(line: &mut String, weight: f64) {
    use std::fmt::Write as _;
    let plain = weight == 0.0 || (1e-9..1e15).contains(&weight.abs());
    let _ = if plain { write!(line, " weight {weight}") } else { write!(line, " weight {weight:e}") };
}

pub(super) fn push_tags(line: &mut String, tags: &[Arc<str>]) {
    if tags.is_empty() {
        return;
    }
    line.push_str(" tags \"");
    for (i, tag) in tags.iter().enumerate() {
        if i > 0 {
            line.push(',');
        }
        quote::quoted(line, tag);
    }
    line.push('"');
}

pub(super) fn push_options(line: &mut String, options: &Options) {
    if options.raw.is_empty() {
        return;
    }
    line.push_str(" opts \"");
    quote::plain(line, &options.text());
    line.push('"');
}

fn has_all(tags: &[Arc<str>], wanted: &[Arc<str>]) -> bool {
    wanted.iter().all(|tag| tags.contains(tag))
}

/// Longer than any request path that gets through elsewhere, and a bound for the depth of the path index.
const MAX_SOURCE: usize = 2048;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        for (text, host, path) in [
            ("/", "", "/"),
            ("/Foo", "", "/Foo"),
            ("Foo.COM/Bar", "foo.com", "/Bar"),
            ("foo.com", "foo.com", "/"),
            ("10.0.0.1:999", "10.0.0.1:999", "/"),
            (":1234", ":1234", ""),
            (":80/", ":80", "/"),
            (":80/x", ":80", "/x"),
            ("[2001:DB8::1]:8080/", "[2001:db8::1]:8080", "/"),
            ("*.foo.com/", "*.foo.com", "/"),
        ] {
            let source = Source::parse(text).unwrap();
            assert_eq!((&*source.host, &*source.path), (host, path), "{text}");
        }
        for text in ["", ":", ":0", ":x", ":70000", ":12 34", ":+1", "/a\tb", "/a\nb", &"/".repeat(3000)] {
            assert!(Source::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ipv6_hosts() {
        for host in ["[::1]", "[2001:db8::1]:8080", "[::ffff:1.2.3.4]"] {
            assert!(is_ipv6_host(host), "{host}");
        }
        for host in ["[abc]", "[::1", "::1", "[a-z].com", "[::1].com", "[::1]:x"] {
            assert!(!is_ipv6_host(host), "{host}");
        }
    }
}
