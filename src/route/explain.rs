//! Questions about where a request goes, the form of the answers, and what the table alone can say. The proxy answers them,
//! since it does more with a request than looking into the table (`proxy::http::explain`).

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

use super::{Route, Table};

mod close;

pub use close::near_misses;

/// A request, as far as routing looks at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// As a `Host` header has it.
    pub host: String,
    pub tls: bool,
    /// As it would stand in a request line, without the query.
    pub path: String,
    pub query: Option<String>,
    /// Who has sent it to us: the client, or a balancer before us. `None`: it is not said.
    pub peer: Option<IpAddr>,
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
        if name.trim().eq_ignore_ascii_case("host") {
            self.host = value.to_owned();
        }
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
    /// What ferrio answers; `None`: the target does.
    pub status: Option<u16>,
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
    /// ferrio answers by itself, before it looks for a route or in place of the target.
    Answered,
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
    /// `None`: our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
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

/// The host of a request as routes are compared with it: in lower case, without the port that goes without saying.
pub fn asked_host(host: &str, tls: bool) -> String {
    super::host::without_default_port(&host.to_lowercase(), tls).to_owned()
}

/// Why the host and the path of a request fit a route that the table has given for it.
pub fn why(table: &Table, route: &Route) -> String {
    let host = match &*route.host {
        "" => "serves every host".to_owned(),
        host if host.starts_with(':') => format!("serves every host on port {}", &host[1..]),
        host if host.contains(['*', '?', '{', '[']) => format!("host pattern {host} fits"),
        host => format!("host {host} is the one"),
    };
    let path = match table.matcher {
        super::Matcher::Prefix => format!("the path begins with {}", route.path),
        super::Matcher::IPrefix => format!("the path begins with {}, whatever the case", route.path),
        super::Matcher::Glob => format!("the path fits the pattern {}", route.path),
    };
    format!("{host}, {path}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_people_write_them() {
        for (url, host, tls, path, query) in [
            ("http://h/p", "h", false, "/p", None),
            ("HTTPS://user:word@h:8443/p?q=1#f", "h:8443", true, "/p", Some("q=1")),
            ("h", "h", false, "/", None),
            ("h?q", "h", false, "/", Some("q")),
            ("/p/x", "", false, "/p/x", None),
            (" wss://[::1]:1/ ", "[::1]:1", true, "/", None),
        ] {
            let got = Question::parse(url).unwrap();
            let want = Question {
                host: host.into(),
                tls,
                path: path.into(),
                query: query.map(Into::into),
                ..Question::default()
            };
            assert_eq!(got, want, "{url}");
        }
        for url in ["", "   ", "ftp://h/", "http://", "http://a b/"] {
            assert!(Question::parse(url).is_err(), "{url:?}");
        }
        let mut question = Question::parse("http://h/").unwrap();
        question.header("HOST", " other ");
        assert_eq!((question.host.as_str(), question.headers.len()), ("other", 1));
    }
}
