//! How long a body is (RFC 9112, section 6). One interpretation, or none.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

use super::{Flaw, Present};

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Bytes.
    Length(u64),
    Chunked,
    /// With the connection; responses only.
    Close,
}

/// Of a request with these fields `present`. Several equal lengths become one.
pub fn request_framing(version: Version, headers: &mut HeaderMap, present: Present) -> Result<Framing, Flaw> {
    if !present.any(Present::CONTENT_LENGTH.with(Present::TRANSFER_ENCODING)) {
        return Ok(Framing::None);
    }
    let length = settle_length(headers)?;
    match coding(headers) {
        Coding::None => Ok(match length {
            None | Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
        }),
        // Somebody before us may have gone by the other one.
        _ if length.is_some() => Err(Flaw::Malformed("both a length and a transfer coding")),
        _ if version != Version::HTTP_11 => Err(Flaw::Malformed("a transfer coding in HTTP/1.0")),
        Coding::Chunked => Ok(Framing::Chunked),
        Coding::Identity | Coding::Other => Err(Flaw::Coding),
    }
}

/// Of a response with these fields `present`, to a request with this method. A length that does not count is removed. The
/// flag: nothing behind this response may be trusted to be another one.
pub fn response_framing(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
    present: Present,
) -> Result<(Framing, bool), Flaw> {
    if is_bodiless(method, status) {
        return Ok((Framing::None, false));
    }
    let coding = if present.any(Present::TRANSFER_ENCODING) { coding(headers) } else { Coding::None };
    if coding == Coding::Chunked {
        if version != Version::HTTP_11 {
            return Err(Flaw::Malformed("a transfer coding in HTTP/1.0"));
        }
        let both = headers.remove(CONTENT_LENGTH).is_some();
        return Ok((Framing::Chunked, both));
    }
    if coding == Coding::Other {
        return Err(Flaw::Coding);
    }
    Ok(match settle_length(headers)? {
        Some(length) => (Framing::Length(length), coding == Coding::Identity),
        None => (Framing::Close, true),
    })
}

/// Responses that end with their head, whatever it says.
pub fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// May another message follow on the connection (RFC 9112, section 9.3)?
pub(super) fn persists(version: Version, headers: &HeaderMap, present: Present) -> bool {
    if !present.any(Present::CONNECTION) {
        return version == Version::HTTP_11;
    }
    let lines = headers.get_all(CONNECTION).iter();
    let (mut close, mut keep) = (false, false);
    for token in lines.flat_map(|line| line.as_bytes().split(|b| *b == b',')) {
        let token = token.trim_ascii();
        close |= token.eq_ignore_ascii_case(b"close");
        keep |= token.eq_ignore_ascii_case(b"keep-alive");
    }
    !close && (keep || version == Version::HTTP_11)
}

/// The one length, which afterwards stands there once.
fn settle_length(headers: &mut HeaderMap) -> Result<Option<u64>, Flaw> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(None) };
    let length = parse_length(first)?;
    let mut several = false;
    for other in lines {
        if parse_length(other)? != length {
            return Err(Flaw::Malformed("lengths that differ"));
        }
        several = true;
    }
    if several {
        let only = first.clone();
        headers.insert(CONTENT_LENGTH, only);
    }
    Ok(Some(length))
}

/// `1*DIGIT`. A list of equal ones, which the RFC would permit, is refused: not everybody reads it in the same way.
fn parse_length(value: &HeaderValue) -> Result<u64, Flaw> {
    let digits = value.as_bytes();
    if digits.is_empty() {
        return Err(Flaw::Malformed("an empty length"));
    }
    digits
        .iter()
        .try_fold(0_u64, |length, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            length.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(Flaw::Malformed("a length that is no number"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    None,
    Chunked,
    /// No coding at all (RFC 2616); some old targets say so.
    Identity,
    Other,
}

fn coding(headers: &HeaderMap) -> Coding {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Coding::None,
        (Some(line), None) if line.as_bytes().eq_ignore_ascii_case(b"chunked") => Coding::Chunked,
        (Some(line), None) if line.as_bytes().eq_ignore_ascii_case(b"identity") => Coding::Identity,
        _ => Coding::Other,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    const CL: &str = "content-length";
    const TE: &str = "transfer-encoding";

    #[test]
    fn requests() {
        type Case = (&'static [(&'static str, &'static str)], Result<Framing, ()>);
        let cases: [Case; 19] = [
            (&[], Ok(Framing::None)),
            (&[(CL, "0")], Ok(Framing::None)),
            (&[(CL, "5")], Ok(Framing::Length(5))),
            (&[(CL, "05")], Ok(Framing::Length(5))),
            (&[(CL, "18446744073709551615")], Ok(Framing::Length(u64::MAX))),
            (&[(CL, "18446744073709551616")], Err(())),
            (&[(CL, "5"), (CL, "5")], Ok(Framing::Length(5))),
            (&[(CL, "5"), (CL, "6")], Err(())),
            (&[(CL, "5, 5")], Err(())),
            (&[(CL, "+5")], Err(())),
            (&[(CL, "")], Err(())),
            (&[(CL, "5 ")], Err(())),
            (&[(TE, "chunked")], Ok(Framing::Chunked)),
            (&[(TE, "Chunked")], Ok(Framing::Chunked)),
            (&[(TE, "chunked"), (CL, "5")], Err(())),
            (&[(TE, "chunked"), (TE, "chunked")], Err(())),
            (&[(TE, "gzip, chunked")], Err(())),
            (&[(TE, "identity")], Err(())),
            (&[(TE, "")], Err(())),
        ];
        for (lines, framing) in cases {
            let mut map = headers(lines);
            let present = Present::of(&map);
            assert_eq!(request_framing(Version::HTTP_11, &mut map, present).map_err(drop), framing, "{lines:?}");
            if framing.is_ok() {
                assert!(map.get_all(CONTENT_LENGTH).iter().count() < 2, "{lines:?}");
            }
        }
        let mut chunked = headers(&[(TE, "chunked")]);
        let present = Present::of(&chunked);
        assert!(request_framing(Version::HTTP_10, &mut chunked, present).is_err());
    }

    #[test]
    fn responses() {
        type Case = (Method, u16, &'static [(&'static str, &'static str)], Result<(Framing, bool), ()>);
        let cases: [Case; 13] = [
            (Method::GET, 200, &[(CL, "5")], Ok((Framing::Length(5), false))),
            (Method::GET, 200, &[(CL, "0")], Ok((Framing::Length(0), false))),
            (Method::GET, 200, &[], Ok((Framing::Close, true))),
            (Method::GET, 200, &[(TE, "chunked")], Ok((Framing::Chunked, false))),
            (Method::GET, 200, &[(TE, "chunked"), (CL, "5")], Ok((Framing::Chunked, true))),
            (Method::GET, 200, &[(TE, "identity"), (CL, "5")], Ok((Framing::Length(5), true))),
            (Method::GET, 200, &[(TE, "identity")], Ok((Framing::Close, true))),
            (Method::GET, 200, &[(TE, "gzip, chunked")], Err(())),
            (Method::GET, 200, &[(CL, "5"), (CL, "6")], Err(())),
            (Method::HEAD, 200, &[(CL, "5")], Ok((Framing::None, false))),
            (Method::GET, 204, &[(CL, "5")], Ok((Framing::None, false))),
            (Method::GET, 304, &[(TE, "chunked")], Ok((Framing::None, false))),
            (Method::GET, 103, &[], Ok((Framing::None, false))),
        ];
        for (method, status, lines, framing) in cases {
            let status = StatusCode::from_u16(status).expect("a status");
            let mut map = headers(lines);
            let present = Present::of(&map);
            let got = response_framing(&method, status, Version::HTTP_11, &mut map, present).map_err(drop);
            assert_eq!(got, framing, "{method} {status} {lines:?}");
        }
    }

    #[test]
    fn connections_that_go_on() {
        for (version, lines, goes_on) in [
            (Version::HTTP_11, &[][..], true),
            (Version::HTTP_11, &[("connection", "close")], false),
            (Version::HTTP_11, &[("connection", "x, Close")], false),
            (Version::HTTP_11, &[("connection", "x")], true),
            (Version::HTTP_10, &[], false),
            (Version::HTTP_10, &[("connection", "Keep-Alive")], true),
            (Version::HTTP_10, &[("connection", "keep-alive, close")], false),
        ] {
            let map = headers(lines);
            assert_eq!(persists(version, &map, Present::of(&map)), goes_on, "{version:?} {lines:?}");
        }
    }
}
