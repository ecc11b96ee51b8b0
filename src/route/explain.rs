//! Why a request goes where it goes: what was asked as the table understands it, the routes in the order in which they are
//! tried, and those that came close. For people: takes its time, and is never on the path of a request.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

use super::path::{self, Cleaned};
use super::{Access, Class, HostOption, Redirect, Route, Scheme, Table, Target};

mod close;

use close::near_misses;

/// A request, as far as routing looks at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// As a `Host` header has it.
    pub host: String,
    pub tls: bool,
    /// As it would stand in a request line, without the query.
    pub path: String,
    pub query: Option<String>,
    /// The peer and what is in `X-Forwarded-For`, if anything is known about them.
    pub clients: Vec<IpAddr>,
    /// For routes that have conditions, as are the headers.
    pub method: Method,
    pub headers: HeaderMap,
}

impl Question {
    /// Reads a URL as people write it: `https://host/path?query`, `host/path`, or `/path` for any host.
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = url.trim();
        let (tls, rest) = match url.split_once("://") {
            None => (false, url),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("ws") => {
                (false, rest)
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss") => {
                (true, rest)
            }
            Some((scheme, _)) => {
                return Err(format!("{:?} is no scheme of HTTP; write http:// or https://", super::excerpt(scheme)));
            }
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if host.is_empty() && path.is_empty() {
            return Err("there is no URL; write https://host/path".to_owned());
        }
        if host.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control()) {
            return Err(format!("{:?} is no host", super::excerpt(host)));
        }
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (path, None),
        };
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { host: host.to_owned(), tls, path: path.to_owned(), query, ..Self::default() })
    }

    /// Takes a header of the request into account.
    pub fn header(&mut self, name: &str, value: &str) {
        let value = value.trim();
        if let (Ok(name), Ok(value)) = (name.trim().parse::<HeaderName>(), HeaderValue::from_str(value)) {
            self.headers.append(name, value);
        }
        match name.trim().to_ascii_lowercase().as_str() {
            "host" => self.host = value.to_owned(),
            "x-forwarded-for" => {
                self.clients.extend(value.split(',').filter_map(|one| one.trim().parse::<IpAddr>().ok()))
            }
            _ => {}
        }
    }
}

impl Question {
    /// As conditions look at it; `None` if its query cannot stand in a request.
    fn request(&self) -> Option<http::Request<()>> {
        let target = format!("/?{}", self.query.as_deref().unwrap_or_default());
        let mut request = http::Request::builder().method(self.method.clone()).uri(target).body(()).ok()?;
        request.headers_mut().clone_from(&self.headers);
        Some(request)
    }
}

/// What becomes of a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Lower case, without the port that goes without saying.
    pub host: String,
    pub tls: bool,
    /// Decoded and cleaned: what routes are compared with.
    pub path: String,
    pub query: Option<String>,
    pub outcome: Outcome,
    /// The outcome in a sentence.
    pub summary: String,
    /// Which of the candidates is taken.
    pub chosen: Option<usize>,
    /// Routes that fit, in the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Routes that do not fit, the nearest first.
    pub close: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// To one of the targets.
    Forward,
    Redirect,
    /// 403: `allow` and `deny` keep this client out of every target.
    Denied,
    /// 503: all targets have weight 0.
    NoTarget,
    /// 404, or what `proxy.noroutestatus` says.
    NoRoute,
}

/// A route, and what speaks for it or against it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// `http`, `tcp` or `udp`.
    pub class: String,
    pub host: String,
    pub path: String,
    /// Why it fits or does not.
    pub reason: String,
    pub targets: Vec<Choice>,
}

/// A target of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub service: String,
    /// `<node>/<service id>`, if it comes from a tag.
    pub instance: Option<String>,
    pub destination: String,
    pub tags: Vec<String>,
    /// Of the requests for this route, 0 to 1.
    pub share: f64,
    /// As written.
    pub options: Vec<(String, String)>,
    /// What the target would be asked for; `None` for redirects.
    pub forward: Option<String>,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// What else is decided here: access, login, changes to the request. A sentence each.
    pub notes: Vec<String>,
    /// `allow` and `deny` let this client in; `None`: there are no rules, or no client is given.
    pub permitted: Option<bool>,
    /// The schemes that ask who it is.
    pub auth: Option<String>,
}

/// Explains what the table does with a request over HTTP.
pub fn explain(table: &Table, question: &Question) -> Explanation {
    let cleaned = path::clean(&question.path);
    let scheme = if question.tls { "https" } else { "http" };
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut taken = None;
    let request = question.request();
    let is_plain = question.method == http::Method::GET && question.headers.is_empty();
    let head = request.unwrap_or_else(|| plain(question)).into_parts().0;
    for route in table.http(&question.host, question.tls, &cleaned.decoded) {
        if candidates.len() == CANDIDATES {
            break;
        }
        let mut candidate = describe(route, question, &cleaned);
        candidate.reason = fit(route, table.matcher);
        let loops = |target: &Target| {
            target.options.redirect.as_ref().is_some_and(|redirect| {
                let location = redirect.location(target, &question.host, &cleaned, question.query.as_deref());
                Redirect::loops(&location, scheme, &question.host, &cleaned.raw)
            })
        };
        if let Some(conditions) = &route.conditions {
            candidate.reason.push_str(&format!(", only with {}", conditions.text().trim_end()));
        }
        let usable: Vec<&Target> = route.targets.iter().filter(|target| target.share > 0.0).collect();
        let fits = route.fits(&head, &cleaned.decoded);
        if !fits && is_plain {
            candidate.reason.push_str("; passed over, because a GET without headers does not fulfil its conditions");
        } else if !fits {
            let conditions = route.conditions.as_ref().map_or("", |conditions| conditions.text());
            candidate
                .reason
                .push_str(&format!("; passed over, because the request does not meet its conditions: {conditions}"));
        } else if taken.is_none() && !usable.is_empty() && usable.iter().all(|target| loops(target)) {
            candidate.reason.push_str("; passed over, because its redirect leads to the same URL");
        } else if taken.is_some() {
            candidate.reason.push_str("; not reached, because one before it is taken");
        } else {
            taken = Some((candidates.len(), route));
        }
        candidates.push(candidate);
    }

    let (outcome, summary) = match taken {
        None => (Outcome::NoRoute, format!("No route fits {}{}.", question.host, cleaned.raw)),
        Some((at, route)) => decide(route, &candidates[at]),
    };
    Explanation {
        host: super::host::without_default_port(&question.host.to_lowercase(), question.tls).to_owned(),
        tls: question.tls,
        path: String::from_utf8_lossy(&cleaned.decoded).into_owned(),
        query: question.query.clone(),
        outcome,
        summary,
        chosen: taken.map(|(at, _)| at),
        close: near_misses(table, question, &cleaned),
        candidates,
    }
}

/// The request that is asked about, as far as it is known.
fn plain(question: &Question) -> http::Request<()> {
    let mut request = http::Request::new(());
    let target = format!("/?{}", question.query.as_deref().unwrap_or_default());
    if let Ok(target) = target.parse() {
        *request.uri_mut() = target;
    }
    request
}

fn decide(route: &Route, candidate: &Candidate) -> (Outcome, String) {
    let place = format!("{}{}", route.host, route.path);
    let usable: Vec<&Choice> = candidate.targets.iter().filter(|target| target.share > 0.0).collect();
    let Some(first) = usable.first() else {
        return (Outcome::NoTarget, format!("Route {place} is taken, but all of its targets have weight 0: 503."));
    };
    if usable.iter().all(|target| target.permitted == Some(false)) {
        return (Outcome::Denied, format!("Route {place} is taken, and its access rules keep this client out: 403."));
    }
    let login = first.auth.as_ref().map(|names| format!(", once {names} lets the client in")).unwrap_or_default();
    if let (1, Some(location)) = (usable.len(), &first.location) {
        return (Outcome::Redirect, format!("Route {place} redirects to {location}{login}."));
    }
    match usable.len() {
        1 => {
            (Outcome::Forward, format!("Route {place} sends it to {} of {}{login}.", first.destination, first.service))
        }
        n => (Outcome::Forward, format!("Route {place} sends it to one of {n} targets by their shares{login}.")),
    }
}

fn fit(route: &Route, matcher: super::Matcher) -> String {
    let host = match &*route.host {
        "" => "serves every host".to_owned(),
        host if host.starts_with(':') => format!("serves every host on port {}", &host[1..]),
        host if host.contains(['*', '?', '{', '[']) => format!("host pattern {host} fits"),
        host => format!("host {host} is the one"),
    };
    let path = match matcher {
        super::Matcher::Prefix => format!("the path begins with {}", route.path),
        super::Matcher::IPrefix => format!("the path begins with {}, whatever the case", route.path),
        super::Matcher::Glob => format!("the path fits the pattern {}", route.path),
    };
    format!("{host}, {path}")
}

fn describe(route: &Route, question: &Question, cleaned: &Cleaned<'_>) -> Candidate {
    let class = match route.class {
        Class::Http => "http",
        Class::Tcp => "tcp",
        Class::Udp => "udp",
    };
    Candidate {
        class: class.to_owned(),
        host: route.host.to_string(),
        path: route.path.to_string(),
        reason: String::new(),
        targets: route.targets.iter().map(|target| choice(target, question, cleaned)).collect(),
    }
}

fn choice(target: &Target, question: &Question, cleaned: &Cleaned<'_>) -> Choice {
    let options = &*target.options;
    let location = options
        .redirect
        .as_ref()
        .map(|redirect| redirect.location(target, &question.host, cleaned, question.query.as_deref()));
    let forward =
        (location.is_none() && matches!(target.destination.scheme, Scheme::Http | Scheme::Https)).then(|| {
            let mut asked = cleaned.forward(options).into_owned();
            if let Some(query) = question.query.as_deref().or(target.destination.query.as_deref()) {
                asked.push('?');
                asked.push_str(query);
            }
            asked
        });
    let ruled = options.access != Access::Everyone;
    let known = !question.clients.is_empty();
    let permitted = match options.access {
        Access::Nobody => Some(false),
        _ => (ruled && known).then(|| question.clients.iter().all(|client| options.access.permits(*client))),
    };
    Choice {
        service: target.service.to_string(),
        instance: target.instance.as_ref().map(ToString::to_string),
        destination: target.destination.text.clone(),
        tags: target.tags.iter().map(ToString::to_string).collect(),
        share: target.share,
        options: options.raw.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        forward,
        location,
        notes: notes(target, permitted),
        permitted,
        auth: options.auth.clone(),
    }
}

fn notes(target: &Target, permitted: Option<bool>) -> Vec<String> {
    let options = &*target.options;
    let mut notes = Vec::new();
    match (&options.access, permitted) {
        (Access::Everyone, _) => {}
        (Access::Nobody, _) => notes.push("its access rules cannot be read, so nobody is let in".to_owned()),
        (_, Some(true)) => notes.push("its access rules let this client in".to_owned()),
        (_, Some(false)) => notes.push("its access rules keep this client out".to_owned()),
        (_, None) => notes.push("whether the client is let in depends on its address (allow, deny)".to_owned()),
    }
    if let Some(names) = &options.auth {
        notes.push(format!("asks who the client is: auth={names}"));
    }
    if let Some(prefix) = &options.strip {
        notes.push(format!("takes {prefix} off the path"));
    }
    if let Some(prefix) = &options.prepend {
        notes.push(format!("puts {prefix} before the path"));
    }
    match &options.host {
        Some(HostOption::Destination) => notes.push(format!("sends Host: {}", target.destination.authority)),
        Some(HostOption::Name(name)) => notes.push(format!("sends Host: {name}")),
        None => {}
    }
    if options.tls_skip_verify {
        notes.push("does not verify the certificate of the target".to_owned());
    }
    if target.share == 0.0 {
        notes.push("gets no requests: weight 0".to_owned());
    }
    notes
}

/// Of one question. A table can have any number of routes for a path.
const CANDIDATES: usize = 100;

#[cfg(test)]
mod tests;
