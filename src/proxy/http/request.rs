//! What a request asks for: its host and its target, in whatever form they came.

use http::header::{EXPECT, HOST, HeaderMap};
use http::uri::PathAndQuery;
use http::{Extensions, HeaderValue, Method, Request, Version};

use super::answer::Refusal;
use crate::http1::{Present, RawQuery};

/// What is looked up in the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A path of a host. The host is as the client sent it, ASCII, and may be empty.
    Path(HeaderValue),
    /// `OPTIONS *`: about us, not about a target.
    Options,
}

/// Checks what the codecs leave to us. An absolute target wins over Host (RFC 9112, section 3.2.2), and Host is set to it.
///
/// `present`: fields that the request may have.
pub(crate) fn asked<B>(request: &mut Request<B>, present: Present, max_target: usize) -> Result<Asked, Refusal> {
    if *request.method() == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    if present.any(Present::EXPECT) {
        check_expectation(request.headers())?;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let given = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Refusal::MissingHost),
        (None, _) if matches!(request.version(), Version::HTTP_11 | Version::HTTP_2) => {
            return Err(Refusal::MissingHost);
        }
        (None, _) => None,
        (Some(host), None) => Some(host),
    };
    let host = given.map_or(Ok(""), |host| host.to_str()).map_err(|_| Refusal::BadHost)?;
    if !is_host(host) {
        return Err(Refusal::BadHost);
    }
    let uri = request.uri();
    if uri.path_and_query().map_or(0, |target| target.as_str().len()) > max_target {
        return Err(Refusal::TargetTooLong);
    }
    if uri.path() == "*" && *request.method() == Method::OPTIONS {
        return Ok(Asked::Options);
    }
    let Some(authority) = uri.authority() else {
        let path_and_query = uri.path_and_query().map_or("", |target| target.as_str());
        return if path_and_query.starts_with('/') {
            Ok(Asked::Path(given.cloned().unwrap_or(HeaderValue::from_static(""))))
        } else {
            Err(Refusal::BadTarget)
        };
    };
    if uri.scheme().is_none() {
        // `GET host`: that form is for CONNECT only.
        return Err(Refusal::BadTarget);
    }
    let authority = authority.as_str();
    if authority.is_empty() || !is_host(authority) {
        return Err(Refusal::BadHost);
    }
    let authority = HeaderValue::from_str(authority).map_err(|_| Refusal::BadHost)?;
    request.headers_mut().insert(HOST, authority.clone());
    Ok(Asked::Path(authority))
}

fn check_expectation(headers: &HeaderMap) -> Result<(), Refusal> {
    let other = headers.get_all(EXPECT).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if other { Err(Refusal::Expectation) } else { Ok(()) }
}

/// `uri-host [ ":" port ]` (RFC 9110, section 7.2), or nothing.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, rest)) = rest.split_once(']') else { return false };
            if address.split('%').next().is_none_or(|address| address.parse::<std::net::Ipv6Addr>().is_err()) {
                return false;
            }
            match rest.strip_prefix(':') {
                Some(port) => ("", port),
                None if rest.is_empty() => return true,
                None => return false,
            }
        }
        None => text.rsplit_once(':').unwrap_or((text, "")),
    };
    (port.is_empty() || (port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok()))
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&b))
}

/// Path and query for the target: the target's own query stands before the client's.
///
/// `same` is the client's, and used as it is when nothing about it changes.
pub(crate) fn forward_target(same: Option<&PathAndQuery>, path: &str, own_query: Option<&str>) -> Option<PathAndQuery> {
    let query = same.and_then(PathAndQuery::query);
    if own_query.is_none()
        && let Some(same) = same
        && same.path() == path
        // `http://host?query` has none, and the one of the target begins with a slash.
        && same.as_str().starts_with('/')
    {
        return Some(same.clone());
    }
    let mut target =
        String::with_capacity(path.len() + 1 + query.map_or(0, str::len) + own_query.map_or(0, str::len) + 1);
    target.push_str(path);
    let parts = [own_query.filter(|query| !query.is_empty()), query];
    for (number, part) in parts.into_iter().flatten().enumerate() {
        if number == 1 && part.is_empty() {
            continue;
        }
        target.push(if number == 0 { '?' } else { '&' });
        target.push_str(part);
    }
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(target)).ok()
}

/// A query that a `Uri` cannot hold goes on byte for byte, behind the target's own one. Returns what the client sent, if
/// that was changed.
pub(crate) fn keep_query(extensions: &mut Extensions, own_query: Option<&str>) -> Option<RawQuery> {
    let own = own_query.filter(|own| !own.is_empty())?;
    let RawQuery(raw) = extensions.get::<RawQuery>()?;
    let joined = [own.as_bytes(), raw].join(&b'&').into();
    extensions.insert(RawQuery(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, good) in [
            ("", true),
            ("a.com", true),
            ("a.com:80", true),
            ("a.com:", true),
            ("A_b-c.com", true),
            ("[::1]", true),
            ("[2001:db8::1]:8080", true),
            ("*.foo.com", true),
            ("a.com:99999", false),
            ("a.com:x", false),
            ("a b", false),
            ("user@a.com", false),
            ("a.com/x", false),
            ("[::1", false),
            ("[::1]x", false),
            ("[zz]", false),
            ("::1", false),
        ] {
            assert_eq!(is_host(text), good, "{text}");
        }
    }

    #[test]
    fn targets() {
        let pq = |text: &str| PathAndQuery::try_from(text).expect("a target");
        for (client, path, own, target) in [
            ("?y=1", "/", None, "/?y=1"),
            ("/x?c=d", "/x", Some("a=b"), "/x?a=b&c=d"),
            ("/x", "/x", Some("a=b"), "/x?a=b"),
            ("/x?", "/x", None, "/x?"),
            ("/foo/x?", "/x", None, "/x?"),
            ("/foo/x?y", "/x", None, "/x?y"),
            ("/x?y", "/x", None, "/x?y"),
        ] {
            let got = forward_target(Some(&pq(client)), path, own).expect("valid");
            assert_eq!(got.as_str(), target, "{client}");
        }
    }

    #[test]
    fn absolute_form_wins_over_host() {
        let mut request = Request::get("http://a.com/x?q=1").header(HOST, "b.com").body(()).expect("valid");
        let present = Present::of(request.headers());
        assert_eq!(asked(&mut request, present, 100), Ok(Asked::Path(HeaderValue::from_static("a.com"))));
        assert_eq!(request.headers()[HOST], "a.com");
    }
}
