//! Heads: those of requests as HTTP/1.1 has them, those of responses without what HTTP/2 does not have.

use http::header::{CONNECTION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::Parts as UriParts;
use http::{Method, Request, Uri};

/// `:authority` becomes Host, and the target a path. A Host that says something else makes two of them, which is refused
/// as it is on HTTP/1.1 (RFC 9113, section 8.3.1). Crumbs of cookies are put together (section 8.2.3).
pub(super) fn to_http1<B>(request: &mut Request<B>) {
    join_cookies(request.headers_mut());
    if *request.method() == Method::CONNECT {
        return;
    }
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(authority)) = authority {
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) || host.is_empty();
        if request.headers().get_all(HOST).iter().all(same) {
            request.headers_mut().insert(HOST, authority);
        } else {
            request.headers_mut().append(HOST, authority);
        }
    }
    if let Some(path_and_query) = request.uri().path_and_query().cloned() {
        let mut parts = UriParts::default();
        parts.path_and_query = Some(path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(cookie) = HeaderValue::from_maybe_shared(bytes::Bytes::from(crumbs.join(&b"; "[..]))) {
        headers.insert(COOKIE, cookie);
    }
}

/// RFC 9113, section 8.2.2.
pub(super) fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in [&CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &KEEP_ALIVE, &PROXY_CONNECTION] {
        headers.remove(name);
    }
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_becomes_host() {
        for (authority, hosts, result) in [
            ("a.com", &[][..], &["a.com"][..]),
            ("a.com:8443", &["a.com:8443"], &["a.com:8443"]),
            ("a.com", &["A.com"], &["a.com"]),
            ("a.com", &["b.com"], &["b.com", "a.com"]),
            ("a.com", &["a.com", "b.com"], &["a.com", "b.com", "a.com"]),
        ] {
            let mut request = Request::get(format!("https://{authority}/x?q=1"));
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let mut request = request.body(()).expect("valid");
            to_http1(&mut request);
            let got: Vec<_> = request.headers().get_all(HOST).iter().collect();
            assert_eq!(got, result, "{authority} {hosts:?}");
            assert_eq!(request.uri(), "/x?q=1");
        }
    }

    #[test]
    fn crumbs_become_one_cookie() {
        for (crumbs, cookie) in [(&["a=1", "b=2", "c=3"][..], &["a=1; b=2; c=3"][..]), (&["a=1"], &["a=1"]), (&[], &[])]
        {
            let mut headers = HeaderMap::new();
            for crumb in crumbs {
                headers.append(COOKIE, HeaderValue::from_static(crumb));
            }
            join_cookies(&mut headers);
            assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), cookie);
        }
    }
}
