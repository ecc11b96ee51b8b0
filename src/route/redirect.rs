//! Routes that answer with a redirect: where to, and when that would be a loop.

use super::path::{Cleaned, push_escape};
use super::{Scheme, Target};

/// The `redirect=` option. The URL is the destination of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 300 to 399.
    pub code: u16,
}

impl Redirect {
    /// Reads the value of the option.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        if value.contains(',') {
            return Err(format!(
                "redirect={value:?}: in a command the URL is the destination; write route add <service> <source> <URL> opts \"redirect=301\""
            ));
        }
        match value.parse() {
            Ok(code @ 300..=399) if value.len() == 3 => Ok(Self { code }),
            _ => Err(format!("redirect={value:?} is no code from 300 to 399")),
        }
    }

    /// The Location for a request: `host` as the client sent it, `path` and `query` as they came (escapes kept).
    /// Bytes that a header cannot carry are percent-encoded. Without a host where the URL needs one, it is relative.
    pub fn location(&self, target: &Target, host: &str, path: &Cleaned<'_>, query: Option<&str>) -> String {
        let destination = &*target.destination;
        let (authority, written) = match destination.authority.strip_suffix("$path") {
            Some(authority) => (authority, "$path"),
            None => (destination.authority.as_str(), destination.path.as_str()),
        };
        let mut location = String::with_capacity(128);
        if !(host.is_empty() && authority.contains("$host")) {
            location.push_str(destination.scheme.name());
            location.push_str("://");
            match authority.split_once("$host") {
                Some((before, after)) => {
                    push(&mut location, before);
                    push_host(&mut location, host);
                    push(&mut location, after);
                }
                None => push(&mut location, authority),
            }
        }

        // `/$path` and `$path` mean the same: the path of a request brings its own slash.
        let place = written.find("/$path").map(|at| (at, at + 6)).or(written.find("$path").map(|at| (at, at + 5)));
        let start = location.len();
        match place {
            None => push(&mut location, written),
            Some((from, to)) => {
                push(&mut location, &written[..from]);
                if let Some(prefix) = target.options.prepend.as_deref().filter(|prefix| *prefix != "/") {
                    push(&mut location, prefix);
                }
                let stripped = target.options.strip.as_deref().and_then(|prefix| path.without(prefix));
                push(&mut location, stripped.unwrap_or(&path.raw));
                push(&mut location, &written[to..]);
            }
        }
        // What strip leaves may lack its slash, and must not become a part of the host.
        if !location[start..].starts_with('/') {
            location.insert(start, '/');
        }
        // Two slashes at the beginning of a relative URL would name another host.
        while location.starts_with("//") {
            location.remove(0);
        }

        let own = destination.query.as_deref();
        let query = if place.is_some() { own.filter(|own| !own.is_empty()).or(query) } else { own };
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            location.push('?');
            push(&mut location, query);
        }
        if let Some(fragment) = destination.fragment() {
            location.push('#');
            push(&mut location, fragment);
        }
        location
    }

    /// Is `location` the URL that the client used, query aside? `scheme` is what the client spoke, as far as known
    /// (X-Forwarded-Proto or the connection's own), `host` its Host header, `path` its raw path.
    pub fn loops(location: &str, scheme: &str, host: &str, path: &str) -> bool {
        let (place, wanted) = match location.split_once("://") {
            Some((wanted, rest)) => (rest, Some(wanted)),
            None => (location, None),
        };
        let place = &place[..place.find(['?', '#']).unwrap_or(place.len())];
        let (authority, there) = place.split_at(place.find('/').unwrap_or(place.len()));
        let same_server = wanted.is_none_or(|wanted| {
            wanted.eq_ignore_ascii_case(scheme)
                && without_default_port(authority, scheme).eq_ignore_ascii_case(without_default_port(host, scheme))
        });
        same_server && rooted(there) == rooted(path)
    }
}

fn rooted(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

fn without_default_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    let tls = [Scheme::Https, Scheme::Wss].iter().any(|s| s.name().eq_ignore_ascii_case(scheme));
    authority.strip_suffix(if tls { ":443" } else { ":80" }).unwrap_or(authority)
}

/// What a client says its host is must stay a host: nothing of it may begin a path or a user name.
fn push_host(out: &mut String, host: &str) {
    for byte in host.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_escape(out, byte);
        }
    }
}

fn push(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`') {
            out.push(char::from(byte));
        } else {
            push_escape(out, byte);
        }
    }
}
