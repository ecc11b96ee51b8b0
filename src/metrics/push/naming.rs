//! What series are called by whom.

use std::fmt::Write as _;

use super::Series;
use crate::metrics::names;
use crate::metrics::prefix::Template;

/// `metrics.prefix` and `metrics.names`.
pub(crate) struct Naming {
    prefix: String,
    /// The prefix with a dot behind it, unless it is empty or has one.
    dotted: String,
    routes: Template,
}

impl Naming {
    /// A template that is none was refused before; the default stands in for it.
    pub(crate) fn new(prefix: &str, routes: &str) -> Self {
        let routes = parse(routes).or_else(|_| parse("")).expect("the default is a template");
        let mut dotted = prefix.to_owned();
        if !dotted.is_empty() && !dotted.ends_with('.') {
            dotted.push('.');
        }
        Self { prefix: prefix.to_owned(), dotted, routes }
    }

    /// `h.fabio.requests`, and with `keys` the names of the labels behind it.
    pub(super) fn dotted_keys(&self, series: &Series, keys: bool) -> String {
        let mut name = format!("{}.{}", self.prefix, series.name);
        for (key, _) in series.labels.iter().filter(|_| keys) {
            let _ = write!(name, ".{key}");
        }
        name
    }

    /// `h.fabio.requests`
    pub(super) fn bare(&self, series: &Series) -> String {
        format!("{}{}", self.dotted, series.name)
    }

    /// Labels as levels of the name: `h.fabio.requests.service.svc-a`; routes by their template.
    pub(super) fn flat(&self, series: &Series) -> String {
        let tail = match series.name {
            names::ROUTE => self.route(series),
            names::ROUTE_RX => self.route(series) + ".rx",
            names::ROUTE_TX => self.route(series) + ".tx",
            name => {
                let mut tail = name.to_owned();
                for (key, value) in &series.labels {
                    let _ = write!(tail, ".{key}.{value}");
                }
                tail
            }
        };
        legal(&format!("{}{tail}", self.dotted))
    }

    /// As [`flat`](Self::flat), with Circonus' separator behind the prefix.
    pub(super) fn ticked(&self, series: &Series) -> String {
        let flat = self.flat(series);
        let tail = flat.strip_prefix(&legal(&self.dotted)).unwrap_or(&flat);
        format!("{}`{tail}", self.prefix)
    }

    fn route(&self, series: &Series) -> String {
        self.routes.render(|field| field_of(field, Some(series))).unwrap_or_default()
    }
}

/// A template for the names of routes; empty is the default. The error says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Template, String> {
    let text = if text.is_empty() { DEFAULT_NAMES } else { text };
    let template = Template::parse(text)?;
    template.render(|field| field_of(field, None))?;
    Ok(template)
}

fn field_of(field: &str, series: Option<&Series>) -> Option<String> {
    let label = |key: &str| -> &str {
        series.and_then(|series| series.labels.iter().find(|(k, _)| *k == key)).map_or("", |(_, value)| value)
    };
    let target = label("target");
    let (scheme, rest) = target.split_once("://").unwrap_or(("", target));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(match field {
        ".Service" => label("service").to_owned(),
        ".Host" => label("host").to_owned(),
        ".Path" => label("path").to_owned(),
        ".TargetURL" | ".TargetURL.String" => target.to_owned(),
        ".TargetURL.Scheme" => scheme.to_owned(),
        ".TargetURL.Host" => host.to_owned(),
        ".TargetURL.Hostname" => match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => host,
        }
        .trim_matches(['[', ']'])
        .to_owned(),
        ".TargetURL.Port" => match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.to_owned(),
            _ => String::new(),
        },
        ".TargetURL.Path" => path.split(['?', '#']).next().unwrap_or_default().to_owned(),
        ".TargetURL.RawQuery" => path.split('#').next().and_then(|p| p.split_once('?')).map_or("", |q| q.1).to_owned(),
        _ => return None,
    })
}

/// A name that no line format takes for something else.
fn legal(name: &str) -> String {
    name.replace(|c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | '|' | '@' | '#'), "_")
}

/// What a tag of DogStatsD or of a line may hold; a comma would begin the next one.
pub(super) fn tag_value(value: &str) -> String {
    value.replace(|c: char| c.is_control() || matches!(c, ',' | '|' | '\u{2028}' | '\u{2029}'), "_")
}

const DEFAULT_NAMES: &str = "{{clean .Service}}.{{clean .Host}}.{{clean .Path}}.{{clean .TargetURL.Host}}";

#[cfg(test)]
mod tests {
    use super::*;

    fn route(service: &str, host: &str, path: &str, target: &str) -> Series {
        let labels = [("service", service), ("host", host), ("path", path), ("target", target)];
        Series { name: names::ROUTE, labels: labels.map(|(key, value)| (key, value.into())).to_vec() }
    }

    #[test]
    fn routes_are_named_as_in_fabio() {
        let naming = Naming::new("", "");
        for (service, host, path, target, want) in [
            ("s", "h", "p", "http://foo.com/bar", "s.h.p.foo_com"),
            ("s", "", "p", "http://foo.com/bar", "s._.p.foo_com"),
            ("s", "", "", "http://foo.com/bar", "s._._.foo_com"),
            ("", "", "", "http://foo.com/bar", "_._._.foo_com"),
            ("", "", "", "http://foo.com:1234/bar", "_._._.foo_com_1234"),
            ("", "", "", "http://1.2.3.4:1234/bar", "_._._.1_2_3_4_1234"),
            (
                "testservice",
                "www.example.com",
                "/",
                "http://10.1.2.3:12345/",
                "testservice.www_example_com./.10_1_2_3_12345",
            ),
            ("s", "h", "/a b|c\n#@", "http://h/", "s.h./a_b_c___.h"),
        ] {
            assert_eq!(naming.flat(&route(service, host, path, target)), want);
        }
    }

    #[test]
    fn templates_of_routes_are_honoured_and_checked() {
        let series = route("svc", "h", "/p", "https://u@[::1]:80/x?q#f");
        for (template, want) in [
            ("{{.Service}}", Ok("svc")),
            ("{{.TargetURL.Scheme}}-{{.TargetURL.Hostname}}-{{.TargetURL.Port}}", Ok("https-__1-80")),
            ("{{.TargetURL.Path}}?{{.TargetURL.RawQuery}}", Ok("/x?q")),
            ("{{clean .Nope}}", Err("can't evaluate field .Nope")),
            ("{{", Err("unclosed action")),
        ] {
            match want {
                Ok(want) => assert_eq!(Naming::new("", template).flat(&series), want),
                Err(why) => assert_eq!(parse(template).err().as_deref(), Some(why)),
            }
        }
    }
}
