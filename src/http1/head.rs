//! From bytes to heads.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{EXPECT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request, response};

use super::framing::persists;
use super::target::target;
use super::{Flaw, Framing, Present, Spelling, buffers, request_framing, response_framing};

/// What a request begins with.
#[derive(Debug)]
pub struct RequestHead {
    pub parts: request::Parts,
    pub framing: Framing,
    /// Fields that it may have.
    pub present: Present,
    pub spelling: Spelling,
    /// The client would send another request afterwards.
    pub persists: bool,
    /// The client waits with its body until it is told to go on (RFC 9110, section 10.1.1).
    pub expects: bool,
}

/// What a response begins with.
#[derive(Debug)]
pub struct ResponseHead {
    pub parts: response::Parts,
    pub framing: Framing,
    pub spelling: Spelling,
    /// The target would take another request afterwards.
    pub persists: bool,
}

/// `head` is a whole head with its empty line, as [`super::Scan`] finds it; `lines`: most fields that it may have.
pub fn request(head: &Bytes, lines: usize) -> Result<RequestHead, Flaw> {
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut few) {
        Err(httparse::Error::TooManyHeaders) if lines > FEW => {
            let mut many = Vec::new();
            many.resize_with(lines, MaybeUninit::uninit);
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(head, &mut many);
            read_request(head, &request, parsed, lines)
        }
        parsed => read_request(head, &request, parsed, lines),
    }
}

fn read_request(
    head: &Bytes,
    request: &httparse::Request<'_, '_>,
    parsed: httparse::Result<usize>,
    lines: usize,
) -> Result<RequestHead, Flaw> {
    if head.starts_with(PREFACE) {
        return Err(Flaw::Malformed("HTTP/2 is not spoken here"));
    }
    check(parsed, head)?;
    let (Some(method), Some(path), Some(version)) = (request.method, request.path, request.version) else {
        return Err(Flaw::Malformed("half a head"));
    };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.version = version_of(version);
    parts.method = Method::from_bytes(method.as_bytes()).map_err(|_| Flaw::Malformed("a malformed method"))?;
    if path.len() > LONGEST_TARGET {
        return Err(Flaw::TargetTooLong);
    }
    let (uri, raw) = target(head.slice_ref(path.as_bytes())).ok_or(Flaw::Malformed("a malformed target"))?;
    parts.uri = uri;
    if let Some(raw) = raw {
        parts.extensions.insert(raw);
    }
    let mut spelling = Spelling::default();
    // Some more are put in on the way.
    parts.headers = read_fields(head, request.headers, lines, 10, Some(&mut spelling))?;
    let present = Present::of(&parts.headers);
    let framing = request_framing(parts.version, &mut parts.headers, present)?;
    let persists = persists(parts.version, &parts.headers, present);
    let expects = parts.version == Version::HTTP_11
        && framing != Framing::None
        && present.any(Present::EXPECT)
        && parts.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Ok(RequestHead { parts, framing, present, spelling, persists, expects })
}

/// As [`request()`], for the response to a request with this method.
pub fn response(head: &Bytes, method: &Method, lines: usize) -> Result<ResponseHead, Flaw> {
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut response, head, &mut few) {
        Err(httparse::Error::TooManyHeaders) if lines > FEW => {
            let mut many = Vec::new();
            many.resize_with(lines, MaybeUninit::uninit);
            let mut response = httparse::Response::new(&mut []);
            let parsed = config.parse_response_with_uninit_headers(&mut response, head, &mut many);
            read_response(head, method, &response, parsed, lines)
        }
        parsed => read_response(head, method, &response, parsed, lines),
    }
}

fn read_response(
    head: &Bytes,
    method: &Method,
    response: &httparse::Response<'_, '_>,
    parsed: httparse::Result<usize>,
    lines: usize,
) -> Result<ResponseHead, Flaw> {
    check(parsed, head)?;
    let (Some(code), Some(version)) = (response.code, response.version) else {
        return Err(Flaw::Malformed("half a head"));
    };
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.version = version_of(version);
    parts.status = StatusCode::from_u16(code).map_err(|_| Flaw::Malformed("a malformed status"))?;
    let mut spelling = Spelling::default();
    if let Some(reason) = response.reason
        && Some(reason) != parts.status.canonical_reason()
    {
        spelling.reason = Some(head.slice_ref(reason.as_bytes()));
    }
    parts.headers = read_fields(head, response.headers, lines, 4, Some(&mut spelling))?;
    let present = Present::of(&parts.headers);
    let (framing, last) = response_framing(method, parts.status, parts.version, &mut parts.headers, present)?;
    let persists = !last && persists(parts.version, &parts.headers, present);
    Ok(ResponseHead { parts, framing, spelling, persists })
}

/// The fields of a section without a first line, its empty line included.
pub(super) fn fields(section: &Bytes, lines: usize) -> Result<HeaderMap, Flaw> {
    let mut raw = vec![httparse::EMPTY_HEADER; lines];
    match httparse::parse_headers(section, &mut raw) {
        Ok(httparse::Status::Complete((length, raw))) if length == section.len() => {
            read_fields(section, raw, lines, 0, None)
        }
        Err(httparse::Error::TooManyHeaders) => Err(Flaw::TooLarge),
        _ => Err(Flaw::Malformed("malformed fields")),
    }
}

fn read_fields(
    head: &Bytes,
    raw: &[httparse::Header<'_>],
    lines: usize,
    more: usize,
    mut spelling: Option<&mut Spelling>,
) -> Result<HeaderMap, Flaw> {
    if raw.len() > lines {
        return Err(Flaw::TooLarge);
    }
    let mut headers = buffers::take_map();
    headers.try_reserve(raw.len() + more).map_err(|_| Flaw::TooLarge)?;
    for field in raw {
        let name =
            HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Flaw::Malformed("a malformed field name"))?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value))
            .map_err(|_| Flaw::Malformed("a malformed field value"))?;
        if let Some(spelling) = &mut spelling {
            spelling.note(&name, field.name.as_bytes(), head);
        }
        headers.try_append(name, value).map_err(|_| Flaw::TooLarge)?;
    }
    Ok(headers)
}

/// All of the head was understood, and nothing but it was there.
fn check(parsed: httparse::Result<usize>, head: &Bytes) -> Result<(), Flaw> {
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => Ok(()),
        Ok(_) => Err(Flaw::Malformed("half a head")),
        Err(httparse::Error::TooManyHeaders) => Err(Flaw::TooLarge),
        Err(httparse::Error::Version) if names_version(head) => Err(Flaw::Version),
        Err(httparse::Error::Version) => Err(Flaw::Malformed("a malformed first line")),
        Err(httparse::Error::HeaderName) => Err(Flaw::Malformed("a malformed field name")),
        Err(httparse::Error::HeaderValue) => Err(Flaw::Malformed("a malformed field value")),
        Err(httparse::Error::Status) => Err(Flaw::Malformed("a malformed status")),
        Err(httparse::Error::NewLine | httparse::Error::Token) => Err(Flaw::Malformed("a malformed first line")),
    }
}

/// Does the first line of a request end with the name of a version, whichever it is?
fn names_version(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let digit = |text: Option<&[u8]>| text.is_some_and(|text| matches!(text, [digit] if digit.is_ascii_digit()));
    words.nth(2).is_some_and(|word| {
        let mut parts = word.strip_prefix(b"HTTP/").unwrap_or_default().split(|b| *b == b'.');
        digit(parts.next()) && digit(parts.next()) && parts.next().is_none()
    }) && words.next().is_none()
}

fn version_of(minor: u8) -> Version {
    if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
}

/// Most heads have fewer; more are worth an allocation.
const FEW: usize = 64;
/// What `Uri` can hold.
const LONGEST_TARGET: usize = 65_534;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

#[cfg(test)]
mod tests;
