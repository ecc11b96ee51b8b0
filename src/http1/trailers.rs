//! Fields behind a body.

use http::header::{self, HeaderMap, HeaderName};

/// May a field stand behind a body? Not if it says where a message ends or goes, who somebody is, or what the content is:
/// whoever reads it has acted by then (RFC 9110, section 6.5.1).
pub fn is_trailer(name: &HeaderName) -> bool {
    let text = name.as_str();
    !(FORBIDDEN.contains(name) || PREFIXES.iter().any(|prefix| text.starts_with(prefix)) || OTHERS.contains(&text))
}

/// Drops what may not stand there.
pub(super) fn retain(trailers: &mut HeaderMap) {
    while let Some(name) = trailers.keys().find(|name| !is_trailer(name)).cloned() {
        trailers.remove(name);
    }
}

const PREFIXES: [&str; 5] = ["content-", "x-forwarded-", "if-", "access-control-", "proxy-"];
const OTHERS: [&str; 3] = ["keep-alive", "x-real-ip", "trailers"];
const FORBIDDEN: [HeaderName; 25] = [
    header::TRANSFER_ENCODING,
    header::HOST,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    header::COOKIE,
    header::SET_COOKIE,
    header::FORWARDED,
    header::CACHE_CONTROL,
    header::PRAGMA,
    header::RANGE,
    header::MAX_FORWARDS,
    header::AGE,
    header::DATE,
    header::EXPIRES,
    header::LOCATION,
    header::RETRY_AFTER,
    header::VARY,
    header::WARNING,
    header::ORIGIN,
    header::STRICT_TRANSPORT_SECURITY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, allowed) in [
            ("x-sum", true),
            ("grpc-status", true),
            ("etag", true),
            ("server-timing", true),
            ("content-length", false),
            ("content-type", false),
            ("host", false),
            ("authorization", false),
            ("x-forwarded-for", false),
            ("set-cookie", false),
            ("transfer-encoding", false),
        ] {
            assert_eq!(is_trailer(&HeaderName::from_static(name)), allowed, "{name}");
        }
    }
}
