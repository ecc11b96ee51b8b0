//! Whether and how the body of a response is compressed for its client.
//!
//! What a client accepts is read from the request, before it goes to the target; what may be compressed is known with the
//! head of the response.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue, VARY,
};
use http::{Method, StatusCode, request, response};
use regex::Regex;

/// Compression of responses (`proxy.gzip.*`, `proxy.compress`).
#[derive(Clone, Debug)]
pub struct Compression {
    /// Searched in the whole `Content-Type`, not anchored.
    pub types: Regex,
    /// Bodies that are known to be smaller stay as they are. Bytes; default 0.
    pub min_size: u64,
    /// What is offered, the preferred one first.
    pub codings: Vec<Coding>,
}

impl PartialEq for Compression {
    fn eq(&self, other: &Self) -> bool {
        self.types.as_str() == other.types.as_str()
            && (self.min_size, &self.codings) == (other.min_size, &other.codings)
    }
}

impl Eq for Compression {}

/// A content coding (RFC 9110, section 8.4.1; RFC 7932; RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// As in `Accept-Encoding` and in `proxy.compress`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
}

/// What a request says about the coding of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// `None`: the response stays as it is, although others of this resource may not.
    coding: Option<Coding>,
}

impl Compression {
    pub(crate) fn wish(&self, request: &request::Parts) -> Wish {
        let headers = &request.headers;
        let plain = request.method == Method::HEAD
            // Events are for now, and their readers seldom unpack as they go.
            || contains(headers, &ACCEPT, b"text/event-stream")
            || forbids_transform(headers);
        Wish { coding: if plain { None } else { accepted(headers, &self.codings) } }
    }

    /// Changes the head of a response, whose body has `length` bytes if that is known. The coding that the body must get.
    pub(crate) fn apply(&self, wish: Wish, head: &mut response::Parts, length: Option<u64>) -> Option<Coding> {
        vary(&mut head.headers);
        let coding = wish.coding?;
        if !self.fits(head, length) {
            return None;
        }
        let headers = &mut head.headers;
        headers.remove(CONTENT_LENGTH);
        // Ranges count bytes of what the target has, not of what is sent here.
        headers.remove(ACCEPT_RANGES);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        weaken(headers);
        Some(coding)
    }

    fn fits(&self, head: &response::Parts, length: Option<u64>) -> bool {
        let headers = &head.headers;
        let has_whole_body = !head.status.is_informational()
            && !matches!(
                head.status,
                StatusCode::NO_CONTENT
                    | StatusCode::RESET_CONTENT
                    | StatusCode::PARTIAL_CONTENT
                    | StatusCode::NOT_MODIFIED
            );
        let large_enough = length.is_none_or(|length| length > 0 && length >= self.min_size);
        has_whole_body
            && large_enough
            && !headers.contains_key(CONTENT_ENCODING)
            && !forbids_transform(headers)
            // These vouch for the very bytes.
            && !DIGESTS.iter().any(|name| headers.contains_key(name))
            && self.is_type(headers)
    }

    fn is_type(&self, headers: &HeaderMap) -> bool {
        let kind = headers.get(CONTENT_TYPE).map_or(Ok(""), HeaderValue::to_str).unwrap_or_default();
        let begins = |with: &str| kind.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        !begins("text/event-stream") && !begins("application/grpc") && self.types.is_match(kind)
    }
}

/// The offered coding that the client likes most; among equals the first one offered. `None`: none, or it likes the plain
/// body more. Without the header nothing is assumed, whatever RFC 9110 allows.
fn accepted(headers: &HeaderMap, offered: &[Coding]) -> Option<Coding> {
    let mut given = [None; Coding::ALL.len()];
    let (mut any, mut identity) = (None, None);
    let elements = headers.get_all(ACCEPT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    for element in elements {
        let mut parts = element.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(quality).unwrap_or(1000);
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("*") {
            any = Some(quality);
        } else if is("identity") {
            identity = Some(quality);
        } else if is("x-gzip") {
            given[Coding::Gzip as usize].get_or_insert(quality);
        } else if let Some(coding) = Coding::ALL.into_iter().find(|coding| is(coding.name())) {
            given[coding as usize] = Some(quality);
        }
    }
    let mut best = None;
    for coding in offered {
        let quality = given[*coding as usize].or(any).unwrap_or(0);
        if quality > best.map_or(0, |(quality, _)| quality) {
            best = Some((quality, *coding));
        }
    }
    best.filter(|(quality, _)| identity.is_none_or(|identity| identity <= *quality)).map(|(_, coding)| coding)
}

/// Thousandths, from `q=0.5`. What cannot be read counts as refusal.
fn quality(parameter: &[u8]) -> Option<u16> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let number: Option<f32> = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    let number = number.filter(|number| (0.0..=1.0).contains(number)).unwrap_or(0.0);
    Some((number * 1000.0).round() as u16)
}

/// Caches must not give this response to clients that accept something else.
fn vary(headers: &mut HeaderMap) {
    let named = headers
        .get_all(VARY)
        .iter()
        .flat_map(|line| line.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"));
    if !named {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// The bytes are others now, the meaning is not (RFC 9110, section 8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) else { return };
    let weak = [b"W/", tag.as_bytes()].concat();
    if let Ok(weak) = HeaderValue::from_bytes(&weak) {
        headers.insert(ETAG, weak);
    }
}

fn forbids_transform(headers: &HeaderMap) -> bool {
    headers
        .get_all(CACHE_CONTROL)
        .iter()
        .flat_map(|line| line.as_bytes().split(|b| *b == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

fn contains(headers: &HeaderMap, name: &HeaderName, word: &[u8]) -> bool {
    headers
        .get_all(name)
        .iter()
        .any(|value| value.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
}

const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::{Request, Response};

    use super::*;

    fn compression(types: &str, codings: &[Coding]) -> Compression {
        Compression { types: Regex::new(types).unwrap(), min_size: 0, codings: codings.to_vec() }
    }

    fn request(lines: &[(&str, &str)]) -> request::Parts {
        let mut builder = Request::get("/");
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn response(status: u16, lines: &[(&str, &str)]) -> response::Parts {
        let mut builder = Response::builder().status(status);
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_a_client_accepts() {
        use Coding::{Brotli, Gzip, Zstd};
        for (lines, offered, want) in [
            (&["gzip"][..], &[Gzip][..], Some(Gzip)),
            (&[], &[Gzip], None),
            (&[""], &[Gzip], None),
            (&["br, identity"], &[Gzip], None),
            (&["gzip;q=0, identity"], &[Gzip], None),
            (&["gzip; q=0.0"], &[Gzip], None),
            (&["GZIP ;Q=0.001"], &[Gzip], Some(Gzip)),
            (&["x-gzip"], &[Gzip], Some(Gzip)),
            (&["gzip;q=0, x-gzip"], &[Gzip], None),
            (&["*"], &[Gzip], Some(Gzip)),
            (&["*;q=0"], &[Gzip], None),
            (&["gzip;q=0, *"], &[Gzip], None),
            (&["*;q=0, gzip"], &[Gzip], Some(Gzip)),
            (&["identity, gzip;q=0.5"], &[Gzip], None),
            (&["identity;q=0.5, gzip;q=0.5"], &[Gzip], Some(Gzip)),
            (&["deflate", "gzip"], &[Gzip], Some(Gzip)),
            (&["gzip;q=high"], &[Gzip], None),
            (&["gzip;q=nan"], &[Gzip], None),
            (&["gzip, deflate, br, zstd"], &[Brotli, Zstd, Gzip], Some(Brotli)),
            (&["gzip, br;q=0.9, zstd;q=0.95"], &[Brotli, Zstd, Gzip], Some(Gzip)),
            (&["br;q=0.9, zstd;q=0.95"], &[Brotli, Zstd, Gzip], Some(Zstd)),
            (&["none"], &[Gzip], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(accepted(&headers, offered), want, "{lines:?}");
        }
    }

    #[test]
    fn what_is_compressed() {
        let text = ("content-type", "text/plain");
        for (name, status, lines, length, want) in [
            ("text", 200, &[text][..], Some(10), true),
            ("unknown length", 200, &[text], None, true),
            ("an error page", 500, &[text], Some(10), true),
            ("empty", 200, &[text], Some(0), false),
            ("no type", 200, &[], Some(10), false),
            ("another type", 200, &[("content-type", "image/png")], Some(10), false),
            ("partial", 206, &[text], Some(10), false),
            ("no content", 204, &[text], None, false),
            ("not modified", 304, &[text], None, false),
            ("encoded", 200, &[text, ("content-encoding", "br")], Some(10), false),
            ("no-transform", 200, &[text, ("cache-control", "public, No-Transform")], Some(10), false),
            ("digest", 200, &[text, ("content-digest", "sha-256=:x:")], Some(10), false),
            ("events", 200, &[("content-type", "text/event-stream; charset=utf-8")], None, false),
        ] {
            let mut head = response(status, lines);
            let rules = compression("^text/", &[Coding::Gzip]);
            let got = rules.apply(Wish { coding: Some(Coding::Gzip) }, &mut head, length);
            assert_eq!(got.is_some(), want, "{name}");
            assert_eq!(head.headers.get_all(VARY).iter().collect::<Vec<_>>(), ["Accept-Encoding"], "{name}");
        }
    }

    #[test]
    fn small_bodies_stay() {
        let rules = Compression { min_size: 100, ..compression("", &[Coding::Gzip]) };
        for (length, want) in [(Some(99), false), (Some(100), true), (None, true)] {
            assert_eq!(rules.fits(&response(200, &[]), length), want, "{length:?}");
        }
    }

    #[test]
    fn what_the_head_says_afterwards() {
        let rules = compression("^text/", &[Coding::Gzip]);
        for (tag, want) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\""), ("bad", "bad")] {
            let mut head = response(
                200,
                &[
                    ("content-type", "text/plain"),
                    ("etag", tag),
                    ("content-length", "10"),
                    ("accept-ranges", "bytes"),
                    ("vary", "Origin, accept-encoding"),
                ],
            );
            rules.apply(Wish { coding: Some(Coding::Gzip) }, &mut head, Some(10)).unwrap();
            assert_eq!(head.headers[ETAG], want);
            assert_eq!(head.headers[CONTENT_ENCODING], "gzip");
            assert_eq!(head.headers[VARY], "Origin, accept-encoding");
            assert!(!head.headers.contains_key(CONTENT_LENGTH) && !head.headers.contains_key(ACCEPT_RANGES));
        }
    }

    #[test]
    fn requests_that_want_it_plain() {
        let rules = compression("", &[Coding::Gzip]);
        for (lines, want) in [
            (&[("accept-encoding", "gzip")][..], true),
            (&[("accept-encoding", "gzip"), ("accept", "text/html, text/event-stream")], false),
            (&[("accept-encoding", "gzip"), ("cache-control", "no-transform")], false),
        ] {
            assert_eq!(rules.wish(&request(lines)).coding.is_some(), want, "{lines:?}");
        }
        let mut head = request(&[("accept-encoding", "gzip")]);
        head.method = Method::HEAD;
        assert_eq!(rules.wish(&head).coding, None);
    }

    #[test]
    fn the_expression_of_the_manual() {
        let sample = compression(
            r"^(text/.*|application/(javascript|json|font-woff|xml)|.*\+(json|xml))(;.*)?$",
            &[Coding::Gzip],
        );
        let types = [
            ("text/foo", true),
            ("text/plain", true),
            ("application/json", true),
            ("application/javascript", true),
            ("application/font-woff", true),
            ("application/xml", true),
            ("vendor/vendor.foo+json", true),
            ("vendor/vendor.foo+xml", true),
            ("image/jpg", false),
            ("video/mp4", false),
        ];
        for (kind, want) in types {
            for kind in [kind.to_owned(), format!("{kind}; charset=UTF-8")] {
                assert_eq!(sample.fits(&response(200, &[("content-type", &kind)]), None), want, "{kind}");
            }
        }
    }
}
