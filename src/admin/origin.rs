//! Who may change something: whoever is not a page of another site.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// Whether a request that changes something comes from our own pages, or from no browser at all.
///
/// A browser says in `Sec-Fetch-Site` how the page that asks is related to us; no page can forge it. Older browsers send
/// an `Origin` at least. Programs send neither.
pub(super) fn is_ours(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        // `none`: the user did it, without a page.
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), headers.get(HOST).map(|h| h.to_str())) else { return false };
    // Our scheme is not known here: TLS may have ended in front of us.
    origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_our_pages_and_programs() {
        for (headers, want) in [
            (&[][..], true),
            (&[("host", "a:9998")], true),
            (&[("host", "a:9998"), ("origin", "http://a:9998")], true),
            (&[("host", "a:9998"), ("origin", "https://A:9998")], true),
            (&[("host", "a:9998"), ("origin", "http://a")], false),
            (&[("host", "a:9998"), ("origin", "http://evil.com")], false),
            (&[("host", "a:9998"), ("origin", "http://a:9998.evil.com")], false),
            (&[("host", "a:9998"), ("origin", "null")], false),
            (&[("origin", "http://a")], false),
            (&[("host", "a"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "inside"), ("origin", "http://outside"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "a"), ("sec-fetch-site", "none")], true),
            (&[("host", "a"), ("origin", "http://a"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "a"), ("sec-fetch-site", "same-site")], false),
            (&[("host", "a"), ("sec-fetch-site", "")], false),
        ] {
            let map = headers.iter().map(|(k, v)| (k.parse().expect("name"), HeaderValue::from_static(v))).collect();
            assert_eq!(is_ours(&map), want, "{headers:?}");
        }
    }
}
