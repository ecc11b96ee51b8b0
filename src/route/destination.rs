//! Where a target is: a URL that is kept as it was written, and its parts.
//!
//! Not a URL library: nothing is normalised but the case of the scheme, and variables of redirects (`$host`, `$path`)
//! may stand where a host or a path stands.

use std::net::Ipv6Addr;

use super::Class;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
    Ws,
    Wss,
    Tcp,
    /// TCP through TLS.
    Tcps,
    Udp,
    Grpc,
    Grpcs,
}

impl Scheme {
    fn from_name(name: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Ws, Self::Wss, Self::Tcp, Self::Tcps, Self::Udp, Self::Grpc, Self::Grpcs]
            .into_iter()
            .find(|scheme| scheme.name().eq_ignore_ascii_case(name))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Tcp => "tcp",
            Self::Tcps => "tcps",
            Self::Udp => "udp",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    /// Who asks for targets of this scheme.
    pub fn class(self) -> Class {
        match self {
            Self::Tcp | Self::Tcps => Class::Tcp,
            Self::Udp => Class::Udp,
            _ => Class::Http,
        }
    }

    /// 0 where there is none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::Ws | Self::Grpc => 80,
            Self::Https | Self::Wss | Self::Grpcs => 443,
            Self::Tcp | Self::Tcps | Self::Udp => 0,
        }
    }
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
    /// `unix:/path`: HTTP over the socket with this path. The host is `localhost` then.
    pub socket: Option<Box<str>>,
}

impl Destination {
    /// Reads an absolute URL. The error says how to write it right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("route: invalid target. {:?}: {why}", super::excerpt(text));
        if text.is_empty() {
            return Err("route: target must not be empty".to_owned());
        }
        if text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(wrong("a URL has no blanks and no control characters".to_owned()));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::of_socket(path).map_err(wrong);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong(without_scheme(text)));
        };
        let Some(scheme) = Scheme::from_name(scheme) else {
            return Err(wrong(format!(
                "scheme {scheme:?} is unknown; write http, https, grpc, grpcs, ws, wss, tcp, tcps or udp"
            )));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        // What stands before an `@` is for logging in, and nobody does so with a URL.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
        let (host, port) = split_authority(authority).map_err(wrong)?;
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        if let Some(escape) = broken_escape(path) {
            return Err(wrong(format!("{escape:?} in the path is no percent-escape; write %25 for a percent sign")));
        }
        let port = port.unwrap_or(scheme.default_port());
        if scheme.class() != Class::Http && port == 0 {
            let scheme = scheme.name();
            return Err(wrong(format!("a {scheme} target needs a port; write {scheme}://{authority}:1234")));
        }
        let mut kept = scheme.name().to_owned();
        kept.push_str(&text[scheme.name().len()..]);
        Ok(Self {
            text: kept,
            scheme,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: path.to_owned(),
            query,
            socket: None,
        })
    }

    /// What follows `unix:`. Nothing can follow the path of the socket.
    fn of_socket(path: &str) -> Result<Self, String> {
        // An empty authority may be written, as in file:///path (RFC 8089).
        let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
        if !path.starts_with('/') || path.ends_with('/') || path.len() > MAX_SOCKET {
            return Err(format!(
                "a socket is written unix:/run/app.sock, with at most {MAX_SOCKET} bytes behind the colon"
            ));
        }
        Ok(Self {
            text: format!("unix:{path}"),
            scheme: Scheme::Http,
            host: "localhost".to_owned(),
            port: 80,
            authority: "localhost".to_owned(),
            path: String::new(),
            query: None,
            socket: Some(path.into()),
        })
    }

    /// The destination of an instance: `path` is `/` or empty. The error says what is wrong with address or port.
    pub(super) fn of_instance(scheme: Scheme, address: &str, port: u16, path: &str) -> Result<Self, String> {
        if let Some(path) = address.trim().strip_prefix("unix:") {
            if scheme != Scheme::Http || path.chars().any(|c| c.is_control() || c == ' ') {
                return Err("over a Unix socket only plain HTTP is spoken; leave proto= out".to_owned());
            }
            return Self::of_socket(path);
        }
        if port == 0 {
            return Err("the instance has no port (0); register it with the port it listens on".to_owned());
        }
        let address = address.trim();
        if address.is_empty() {
            return Err("neither the instance nor its node has an address".to_owned());
        }
        if address.contains(|c: char| c.is_control() || c.is_whitespace() || "/?#@\"<>\\".contains(c)) {
            return Err(format!(
                "the address of the instance, {:?}, is no host name or IP address",
                super::excerpt(address)
            ));
        }
        let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
        let authority = if bare.contains(':') {
            // A zone is written with its percent sign escaped in a URL (RFC 6874).
            let zoned = if bare.contains("%25") { bare.to_owned() } else { bare.replacen('%', "%25", 1) };
            format!("[{zoned}]:{port}")
        } else {
            format!("{bare}:{port}")
        };
        Ok(Self {
            text: format!("{}://{authority}{path}", scheme.name()),
            scheme,
            host: bare.replacen("%25", "%", 1),
            port,
            authority,
            path: path.to_owned(),
            query: None,
            socket: None,
        })
    }

    pub fn is_grpc(&self) -> bool {
        matches!(self.scheme, Scheme::Grpc | Scheme::Grpcs)
    }

    /// Equal but for one trailing slash: what `route del` compares.
    pub(super) fn same_place(&self, other: &Self) -> bool {
        let bare = |d: &Self| d.text.strip_suffix('/').unwrap_or(&d.text).len();
        self.text[..bare(self)] == other.text[..bare(other)]
    }

    /// What follows the number sign. Only redirects have a use for it.
    pub(super) fn fragment(&self) -> Option<&str> {
        self.text.split_once('#').map(|(_, fragment)| fragment)
    }
}

/// The kernel takes 107 bytes.
const MAX_SOCKET: usize = 107;

/// Host without brackets, and port. The host of a redirect may end in `$path`.
fn split_authority(authority: &str) -> Result<(&str, Option<u16>), String> {
    if authority.contains(|c: char| "\"<>\\^`{|}".contains(c) || c.is_whitespace()) {
        return Err(format!("{authority:?} is no host name"));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
            let address = host.split_once('%').map_or(host, |(address, _zone)| address);
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("{address:?} is no IPv6 address"));
            }
            (host, port)
        }
        None => {
            if authority.matches(':').count() > 1 {
                return Err("an IPv6 address goes in brackets, as in http://[2001:db8::1]:80/".to_owned());
            }
            authority.split_at(authority.find(':').unwrap_or(authority.len()))
        }
    };
    if host.is_empty() {
        return Err("there is no host".to_owned());
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(format!("port {digits} is not between 1 and 65535")),
        },
        Some(text) if text.contains("$path") => {
            return Err(format!("{text:?} is no port; put a slash before $path, as in :8080/$path"));
        }
        _ => return Err(format!("{port:?} is no port")),
    };
    Ok((host, port))
}

fn without_scheme(text: &str) -> String {
    if text.starts_with("//") {
        return format!("the scheme is missing; write http:{text}");
    }
    if let Some(path) = text.strip_prefix('/') {
        return format!("scheme and host are missing; write a full URL, as in http://host:port/{path}");
    }
    if let Some(port) = text.strip_prefix(':') {
        return format!("scheme and host are missing; write http://host:{port}");
    }
    let slash = if text.contains('/') { "" } else { "/" };
    format!("the scheme is missing; write http://{text}{slash}")
}

/// The first percent sign that two hexadecimal digits do not follow, with what follows it.
fn broken_escape(path: &str) -> Option<&str> {
    path.match_indices('%').find_map(|(at, _)| {
        let valid = path.as_bytes().get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        (!valid).then(|| &path[at..path.ceil_char_boundary(at + 3)])
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        for (text, kept, host, port, authority, path, query) in [
            ("http://h:1/", "http://h:1/", "h", 1, "h:1", "/", None),
            ("HTTP://Host", "http://Host", "Host", 80, "Host", "", None),
            ("tcp://1.2.3.4:5", "tcp://1.2.3.4:5", "1.2.3.4", 5, "1.2.3.4:5", "", None),
            ("https://h", "https://h", "h", 443, "h", "", None),
            ("https://h:/x", "https://h:/x", "h", 443, "h:", "/x", None),
            ("wss://h/p?a=b", "wss://h/p?a=b", "h", 443, "h", "/p", Some("a=b")),
            ("http://h?a=b#c?d", "http://h?a=b#c?d", "h", 80, "h", "", Some("a=b")),
            ("http://[::1]:8080/", "http://[::1]:8080/", "::1", 8080, "[::1]:8080", "/", None),
            (
                "http://[fe80::1%25eth0]/",
                "http://[fe80::1%25eth0]/",
                "fe80::1%25eth0",
                80,
                "[fe80::1%25eth0]",
                "/",
                None,
            ),
            ("http://my_host:80/", "http://my_host:80/", "my_host", 80, "my_host:80", "/", None),
            ("http://h$path", "http://h$path", "h$path", 80, "h$path", "", None),
            ("https://$host:8443/$path", "https://$host:8443/$path", "$host", 8443, "$host:8443", "/$path", None),
            ("http://u:p@h/", "http://u:p@h/", "h", 80, "h", "/", None),
        ] {
            let d = Destination::parse(text).unwrap();
            assert_eq!(
                (d.text.as_str(), d.host.as_str(), d.port, d.authority.as_str(), d.path.as_str(), d.query.as_deref()),
                (kept, host, port, authority, path, query),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_say_how_to_write_it() {
        for (text, hint) in [
            ("", "must not be empty"),
            ("1.2.3.4:5000", "write http://1.2.3.4:5000/"),
            ("my_host:80", "write http://my_host:80/"),
            ("localhost:5000", "write http://localhost:5000/"),
            ("localhost:5000/x", "write http://localhost:5000/x"),
            (":5000", "write http://host:5000"),
            ("/new", "write a full URL, as in http://host:port/new"),
            ("//h/x", "write http://h/x"),
            ("http://h:8080$path", "put a slash before $path"),
            ("http://::1/", "brackets"),
            ("http://h:80:80/", "brackets"),
            ("http://[::1/", "not closed"),
            ("http://[zz]/", "no IPv6 address"),
            ("http://h:0/", "between 1 and 65535"),
            ("http://h:65536/", "between 1 and 65535"),
            ("http://h:1e3/", "no port"),
            ("http://h:+1/", "no port"),
            ("http://[::1]x/", "no port"),
            ("http:///x", "no host"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("tcp://h", "write tcp://h:1234"),
            ("ftp://h/", "scheme \"ftp\" is unknown"),
            ("http://h/%zz", "no percent-escape"),
            ("http://h/%4", "no percent-escape"),
            ("http://h/%é", "no percent-escape"),
            ("http://h/a\nb", "control"),
            ("http://h\"/", "no host name"),
        ] {
            let error = Destination::parse(text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn instances() {
        for (address, port, text, host) in [
            ("1.1.1.1", 2222, "http://1.1.1.1:2222/", "1.1.1.1"),
            ("fe80::1", 2222, "http://[fe80::1]:2222/", "fe80::1"),
            ("[fe80::1]", 80, "http://[fe80::1]:80/", "fe80::1"),
            ("fe80::1%eth0", 2222, "http://[fe80::1%25eth0]:2222/", "fe80::1%eth0"),
            ("web.internal", 1, "http://web.internal:1/", "web.internal"),
        ] {
            let d = Destination::of_instance(Scheme::Http, address, port, "/").unwrap();
            assert_eq!((d.text.as_str(), d.host.as_str(), d.port), (text, host, port));
        }
        for (address, port) in [("1.1.1.1", 0), ("", 1), ("a b", 1), ("a/b", 1), ("a\n", 1), ("a\nb", 1)] {
            assert_eq!(
                Destination::of_instance(Scheme::Http, address, port, "/").is_err(),
                address != "a\n",
                "{address:?}"
            );
        }
    }

    #[test]
    fn same_place_forgives_one_slash() {
        let same = |a, b| Destination::parse(a).unwrap().same_place(&Destination::parse(b).unwrap());
        assert!(same("http://a", "http://a/"));
        assert!(same("http://a/x/", "http://a/x"));
        assert!(same("HTTP://a", "http://a"));
        assert!(!same("http://a", "http://a//"));
        assert!(!same("http://a", "http://A"));
        assert!(!same("http://a", "https://a"));
    }
}
