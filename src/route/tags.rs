//! `urlprefix-` tags of an instance. One tag is one route; a bad one costs only itself.
//!
//! Commands are made from the parts of a tag, never through text, so nothing in a tag can be taken for another command.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command::Draft;
use super::weight::parse_number;
use super::{
    Command, Destination, Instance, Named, Origin, Parsed, Redirect, Reject, Remark, Scheme, Source, Weight, options,
    pending,
};

/// Reads the route tags of an instance. `datacenter` is the value of `$DC`, unless the instance has a datacenter of its own.
pub fn parse_tags(instance: &Instance, prefix: &str, datacenter: &str) -> Parsed {
    parse_tags_with(instance, prefix, datacenter, &Named::default())
}

/// The same with entries that `options=NAME` can name. An option of a tag wins over that of the entry which the tag
/// names, and that over the instance's own.
pub fn parse_tags_with(instance: &Instance, prefix: &str, datacenter: &str, named: &Named) -> Parsed {
    let trimmed = || instance.tags.iter().map(|tag| tag.trim());
    let service_tags: Arc<[Arc<str>]> = trimmed().filter(|tag| !tag.starts_with(prefix)).map(Into::into).collect();
    let datacenter = instance.datacenter.as_ref().map_or(datacenter, |datacenter| &datacenter.name);
    let mut reader = Reader { instance, datacenter, named, service_tags, destinations: BTreeMap::new() };
    let mut parsed = Parsed::default();
    for tag in trimmed() {
        if let Some(rest) = tag.strip_prefix(prefix) {
            let origin =
                Origin::Tag { service: instance.service.clone(), instance: instance.id.clone(), tag: tag.into() };
            let result = reader.command(rest.trim());
            parsed.put(origin, tag, result);
        } else if is_nearly_a_route(tag, prefix) {
            let origin =
                Origin::Tag { service: instance.service.clone(), instance: instance.id.clone(), tag: tag.into() };
            let reason = format!("does not begin with {prefix:?}, so it is no route; was that meant?");
            parsed.rejects.push(Reject { advice: true, ..Reject::new(origin, tag, reason) });
        }
    }
    parsed
}

/// The letters of the prefix in either case, perhaps one of them left out or two that have changed places, then something that
/// may be a source, with any marks between them. Letters and digits in their place are somebody else's prefix.
pub fn is_nearly_a_route(tag: &str, prefix: &str) -> bool {
    let letters = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let want = letters(prefix);
    if want.len() < SHORTEST_PREFIX {
        return false;
    }
    let mark = |c: char| matches!(c, '-' | '_' | ':' | '/' | '.' | '=' | ' ');
    tag.match_indices(mark).take(MARKS).any(|(at, _)| {
        let rest = tag[at..].trim_start_matches(|c| mark(c) && c != '/');
        let source = rest.starts_with('/') || rest.contains('/') || rest.starts_with(|c: char| c.is_ascii_digit());
        source && is_slip(&want, &letters(&tag[..at]))
    })
}

fn is_slip(want: &[u8], given: &[u8]) -> bool {
    let same = want.iter().zip(given).take_while(|(a, b)| a == b).count();
    match (&want[same..], &given[same..]) {
        ([], []) => true,
        ([_, want @ ..], given) if want == given => true,
        ([a, b, want @ ..], [c, d, given @ ..]) => (a, b, want) == (d, c, given),
        _ => false,
    }
}

/// Of a prefix with fewer letters nobody can say what is like it.
const SHORTEST_PREFIX: usize = 5;
/// In which the prefix must have ended.
const MARKS: usize = 4;

/// Does a route tag ask to be served by instances that are down, if nobody else is there?
pub fn fails_open(tag: &str) -> bool {
    options::split(tag).get(FAIL_OPEN).is_some_and(|value| value == "true")
}

/// The option for that.
pub const FAIL_OPEN: &str = "failopen";

/// The highest number that a priority can have.
const LAST_RESORT: &str = "4294967295";

struct Reader<'a> {
    instance: &'a Instance,
    datacenter: &'a str,
    named: &'a Named,
    service_tags: Arc<[Arc<str>]>,
    /// Shared by the routes of the instance.
    destinations: BTreeMap<&'static str, Arc<Destination>>,
}

/// An option as it stands somewhere.
struct Given {
    key: String,
    value: String,
    /// Without `=`.
    bare: bool,
}

impl Reader<'_> {
    fn command(&mut self, rest: &str) -> Result<(Command, Option<Remark>), String> {
        if rest.chars().any(|c| c.is_control() && c != '\t') {
            return Err("a route tag has no line breaks and no control characters but tabs between options".to_owned());
        }
        let (source, rest) = rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()));
        if source.is_empty() {
            return Err(
                "host and path are missing behind the prefix; write <prefix>host/path, <prefix>/path or <prefix>:port"
                    .to_owned(),
            );
        }
        let source = self.source(source)?;

        let mut scheme = Scheme::Http;
        let mut redirect = None;
        let mut weight = Weight::Automatic;
        let mut kept = BTreeMap::new();
        for Given { key, value, bare } in self.given(rest)? {
            match (key.as_str(), value.as_str()) {
                ("proto", value @ ("tcp" | "tcps" | "udp" | "https" | "grpc" | "grpcs" | "h2" | "h2c")) => {
                    if let Some(reason) = pending::reason("proto", value) {
                        return Err(reason.to_owned());
                    }
                    scheme = match value {
                        "tcp" => Scheme::Tcp,
                        "tcps" => Scheme::Tcps,
                        "udp" => Scheme::Udp,
                        "grpc" => Scheme::Grpc,
                        "grpcs" => Scheme::Grpcs,
                        "h2c" => Scheme::Http,
                        _ => Scheme::Https,
                    };
                    redirect = None;
                    // The last one counts.
                    kept.remove("proto");
                    if matches!(value, "h2" | "h2c") {
                        kept.insert(key, value.to_owned());
                    }
                }
                ("weight", "") if !bare => weight = Weight::Automatic,
                ("weight", value) if !bare => weight = Weight::from_number(parse_number(value)?),
                ("redirect", value) => {
                    let Some((code, url)) = value.split_once(',') else {
                        return Err(format!("\"redirect={value}\" has no URL; write redirect=301,https://host$path"));
                    };
                    Redirect::parse(code)?;
                    redirect = Some(Arc::new(Destination::parse(url)?));
                    kept.insert(key, code.to_owned());
                }
                _ => {
                    kept.insert(key, value);
                }
            }
        }
        if self.instance.down {
            if kept.get(FAIL_OPEN).is_some_and(|value| value == "true") {
                // Behind everybody who is well.
                kept.insert("priority".into(), LAST_RESORT.into());
            } else {
                weight = Weight::Excluded;
            }
        }
        let destination = match redirect {
            Some(url) => url,
            None => self.destination(scheme)?,
        };
        Draft {
            service: self.instance.service.clone(),
            instance: Some(self.instance.id.clone()),
            datacenter: self.instance.datacenter.clone(),
            source,
            destination,
            weight,
            tags: self.service_tags.clone(),
            options: kept,
        }
        .check()
    }

    /// All options of a tag, those that count more behind the others.
    fn given(&self, tag: &str) -> Result<Vec<Given>, String> {
        let own = |token: &str| {
            let (key, value) = options::pair(token);
            Given { key, value, bare: !token.contains('=') }
        };
        let tag: Vec<Given> = tag.split_whitespace().map(own).collect();
        let instance = &self.instance.options;
        let name = tag.iter().rev().find(|given| given.key == Named::OPTION).map(|given| &given.value);
        let entry = match name.or_else(|| instance.get(Named::OPTION)) {
            None => None,
            Some(name) => Some(self.named.options(name)?),
        };
        let elsewhere = instance.iter().chain(entry.into_iter().flatten());
        let elsewhere = elsewhere.map(|(key, value)| Given { key: key.clone(), value: value.clone(), bare: false });
        Ok(elsewhere.chain(tag).filter(|given| given.key != Named::OPTION).collect())
    }

    fn source(&self, text: &str) -> Result<Source, String> {
        match text.split_once('/') {
            Some((host, path)) if !host.starts_with(':') => {
                let host = self.expand(host);
                Source::parse(&format!("{host}/{}", self.expand(path)))
            }
            _ => Source::parse(text),
        }
    }

    fn destination(&mut self, scheme: Scheme) -> Result<Arc<Destination>, String> {
        if let Some(known) = self.destinations.get(scheme.name()) {
            return Ok(known.clone());
        }
        let path = if scheme == Scheme::Http { "/" } else { "" };
        let made = Destination::of_instance(scheme, &self.instance.address, self.instance.port, path)?;
        let made = Arc::new(made);
        self.destinations.insert(scheme.name(), made.clone());
        Ok(made)
    }

    /// Replaces `$NAME` and `${NAME}`. Only `DC` has a value. Go's rules for what is a name.
    fn expand(&self, text: &str) -> String {
        let value = |name: &str| if name == "DC" { self.datacenter } else { "" };
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            if let Some(inner) = after.strip_prefix('{') {
                match inner.split_once('}') {
                    Some((name, after)) => {
                        out.push_str(value(name));
                        rest = after;
                    }
                    None => rest = inner,
                }
                continue;
            }
            let special = |c: char| "*#$@!?-".contains(c) || c.is_ascii_digit();
            let length = match after.chars().next() {
                Some(c) if special(c) => 1,
                _ => after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len()),
            };
            if length == 0 {
                out.push('$');
            }
            let (name, after) = after.split_at(length);
            out.push_str(value(name));
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::is_nearly_a_route;

    #[test]
    fn prefixes_that_were_meant() {
        for (tag, nearly) in [
            ("urlprefix:/bb", true),
            ("urlprefix_/bb", true),
            ("urlprefix/bb", true),
            ("url-prefix-/aa", true),
            ("url-prefix:-6080", true),
            ("URLPREFIX-/cc", true),
            ("Urlprefix-a.com/", true),
            ("urlprefx-/a", true),
            ("urlperfix-a.com/", true),
            ("urlprefix", false),
            ("urlprefix-", false),
            ("urlprefixb-/a", false),
            ("version-1.2/3", false),
            ("http://a.com/", false),
            ("é-/x", false),
            ("", false),
        ] {
            assert_eq!(is_nearly_a_route(tag, "urlprefix-"), nearly, "{tag}");
        }
        assert!(!is_nearly_a_route("lb:/x", "lb-"));
    }
}
