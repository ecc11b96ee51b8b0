//! From heads and bodies to bytes.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, DATE, HeaderMap, TE, TRAILER, UPGRADE};
use http::{HeaderName, StatusCode, Version, request};

use super::{Framing, Outbox, RawQuery, Spelling, trailers};

/// A request to a target, whose framing must be among its fields.
pub fn request_head(out: &mut Outbox, parts: &request::Parts, spelling: Option<&Spelling>) {
    let text = out.text();
    text.extend_from_slice(parts.method.as_str().as_bytes());
    text.push(b' ');
    match (parts.extensions.get::<RawQuery>(), parts.uri.path_and_query()) {
        (Some(RawQuery(raw)), Some(target)) => {
            text.extend_from_slice(target.path().as_bytes());
            text.push(b'?');
            text.extend_from_slice(raw);
        }
        (None, Some(target)) => text.extend_from_slice(target.as_str().as_bytes()),
        (_, None) => text.push(b'/'),
    }
    text.extend_from_slice(b" HTTP/1.1\r\n");
    fields(text, &parts.headers, spelling, |_| true);
    text.extend_from_slice(b"\r\n");
}

/// What a response says beside its fields.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLine {
    /// Of the client.
    pub version: Version,
    pub status: StatusCode,
    /// `None`: nothing is said about the length, because there is no body, or because the fields say it.
    pub framing: Option<Framing>,
    /// No other request is taken on this connection.
    pub close: bool,
}

/// A response to a client. `Connection` and the framing are not among its fields, unless the protocol changes.
pub fn response_head(out: &mut Outbox, line: ResponseLine, headers: &HeaderMap, spelling: Option<&Spelling>) {
    let text = out.text();
    status_line(text, line.version, line.status, spelling);
    let mut dated = false;
    fields(text, headers, spelling, |name| {
        dated |= *name == DATE;
        true
    });
    match line.framing {
        None | Some(Framing::None | Framing::Close) => {}
        Some(Framing::Length(length)) => {
            text.extend_from_slice(b"Content-Length: ");
            decimal(text, length);
            text.extend_from_slice(b"\r\n");
        }
        Some(Framing::Chunked) => text.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    if !dated {
        text.extend_from_slice(b"Date: ");
        with_date(|date| text.extend_from_slice(date));
        text.extend_from_slice(b"\r\n");
    }
    if line.close {
        text.extend_from_slice(b"Connection: close\r\n");
    } else if line.version == Version::HTTP_10 {
        text.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    text.extend_from_slice(b"\r\n");
}

/// An interim answer on its way to a client, without what is meant for one hop.
pub fn interim_head(out: &mut Outbox, status: StatusCode, headers: &HeaderMap, spelling: Option<&Spelling>) {
    let text = out.text();
    status_line(text, Version::HTTP_11, status, spelling);
    let named = |name: &HeaderName| {
        let lists = headers.get_all(CONNECTION).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        lists.map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    fields(text, headers, spelling, |name| {
        !named(name)
            && ![CONNECTION, TE, TRAILER, UPGRADE].contains(name)
            && !matches!(name.as_str(), "content-length" | "transfer-encoding" | "keep-alive" | "proxy-connection")
    });
    text.extend_from_slice(b"\r\n");
}

fn status_line(text: &mut Vec<u8>, version: Version, status: StatusCode, spelling: Option<&Spelling>) {
    text.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    text.extend_from_slice(status.as_str().as_bytes());
    text.push(b' ');
    match spelling.and_then(|spelling| spelling.reason.as_ref()) {
        Some(reason) => text.extend_from_slice(reason),
        None => text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
}

fn fields(
    text: &mut Vec<u8>,
    headers: &HeaderMap,
    spelling: Option<&Spelling>,
    mut wanted: impl FnMut(&http::HeaderName) -> bool,
) {
    let plain = Spelling::default();
    let mut names = spelling.unwrap_or(&plain).writer();
    for (name, value) in headers {
        if wanted(name) {
            names.write(name, text);
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
    }
}

/// A body on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    None,
    /// Bytes that are still to be sent.
    Length(u64),
    Chunked,
    /// Until the connection ends.
    Close,
}

/// A body that is not as long as its head has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body is not as long as was said")
    }
}

impl std::error::Error for Mismatch {}

impl From<Framing> for Encoder {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::None => Encoder::None,
            Framing::Length(length) => Encoder::Length(length),
            Framing::Chunked => Encoder::Chunked,
            Framing::Close => Encoder::Close,
        }
    }
}

impl Encoder {
    /// Puts a piece into an outbox that has room. An empty piece is none.
    pub fn data(&mut self, out: &mut Outbox, data: Bytes) -> Result<(), Mismatch> {
        if data.is_empty() {
            return Ok(());
        }
        match self {
            Encoder::None => return Err(Mismatch),
            Encoder::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(Mismatch)?;
                out.data(data);
            }
            Encoder::Chunked => {
                let text = out.text();
                hexadecimal(text, data.len());
                text.extend_from_slice(b"\r\n");
                out.data(data);
                out.text().extend_from_slice(b"\r\n");
            }
            Encoder::Close => out.data(data),
        }
        Ok(())
    }

    /// Bytes of a body with a length went past the outbox.
    pub fn passed(&mut self, length: u64) -> Result<(), Mismatch> {
        let Encoder::Length(left) = self else { return Err(Mismatch) };
        *left = left.checked_sub(length).ok_or(Mismatch)?;
        Ok(())
    }

    /// The body is over. Trailers go where they can.
    pub fn end(&mut self, out: &mut Outbox, trailers: Option<&HeaderMap>) -> Result<(), Mismatch> {
        match self {
            Encoder::None | Encoder::Length(0) | Encoder::Close => Ok(()),
            Encoder::Length(_) => Err(Mismatch),
            Encoder::Chunked => {
                let text = out.text();
                text.extend_from_slice(b"0\r\n");
                if let Some(trailers) = trailers {
                    fields(text, trailers, None, trailers::is_trailer);
                }
                text.extend_from_slice(b"\r\n");
                *self = Encoder::None;
                Ok(())
            }
        }
    }
}

fn hexadecimal(text: &mut Vec<u8>, number: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    text.extend((0..digits).rev().map(|digit| DIGITS[(number >> (4 * digit)) & 15]));
}

fn decimal(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut place = digits.len();
    loop {
        place -= 1;
        digits[place] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[place..]);
}

/// The time as HTTP writes it, made once a second.
fn with_date(write: impl FnOnce(&[u8])) {
    thread_local! {
        static DATE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    DATE.with_borrow_mut(|(made, text)| {
        if *made != second || text.is_empty() {
            *text = httpdate::fmt_http_date(now);
            *made = second;
        }
        write(text.as_bytes());
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn text(out: &mut Outbox) -> String {
        String::from_utf8(out.text().clone()).unwrap()
    }

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 4096, usize::MAX] {
            let (mut hex, mut dec) = (Vec::new(), Vec::new());
            hexadecimal(&mut hex, number);
            decimal(&mut dec, number as u64);
            assert_eq!(hex, format!("{number:x}").as_bytes());
            assert_eq!(dec, number.to_string().as_bytes());
        }
    }

    #[test]
    fn heads_of_requests() {
        for (uri, raw, line) in [
            ("/x?a=b", None, "GET /x?a=b HTTP/1.1"),
            ("/x?", None, "GET /x? HTTP/1.1"),
            ("/x?a=%3C", Some("a=<"), "GET /x?a=< HTTP/1.1"),
            ("http://h/y", None, "GET /y HTTP/1.1"),
        ] {
            let mut request = Request::get(uri).header("host", "h").header("x-a", "1").body(()).unwrap();
            if let Some(raw) = raw {
                request.extensions_mut().insert(RawQuery(Bytes::from_static(raw.as_bytes())));
            }
            let mut out = Outbox::default();
            request_head(&mut out, &request.into_parts().0, None);
            assert_eq!(text(&mut out), format!("{line}\r\nHost: h\r\nX-A: 1\r\n\r\n"));
        }
    }

    #[test]
    fn heads_of_responses() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("now"));
        for (version, status, framing, close, expected) in [
            (Version::HTTP_11, 200, None, false, "HTTP/1.1 200 OK\r\nDate: now\r\n\r\n"),
            (
                Version::HTTP_11,
                999,
                Some(Framing::Length(7)),
                false,
                "HTTP/1.1 999 \r\nDate: now\r\nContent-Length: 7\r\n\r\n",
            ),
            (
                Version::HTTP_11,
                200,
                Some(Framing::Chunked),
                true,
                "HTTP/1.1 200 OK\r\nDate: now\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            ),
            (
                Version::HTTP_10,
                404,
                Some(Framing::Length(0)),
                false,
                "HTTP/1.0 404 Not Found\r\nDate: now\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let mut out = Outbox::default();
            response_head(&mut out, ResponseLine { version, status, framing, close }, &headers, None);
            assert_eq!(text(&mut out), expected);
        }
        let mut out = Outbox::default();
        let line = ResponseLine { version: Version::HTTP_11, status: StatusCode::OK, framing: None, close: false };
        response_head(&mut out, line, &HeaderMap::new(), None);
        assert!(text(&mut out).contains("\r\nDate: ") && text(&mut out).ends_with(" GMT\r\n\r\n"));
    }

    #[test]
    fn bodies() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        trailers.insert("content-length", HeaderValue::from_static("1"));
        for (framing, pieces, expected) in [
            (Framing::Length(3), &["ab", "c"][..], Ok("abc")),
            (Framing::Length(3), &["ab"], Err(Mismatch)),
            (Framing::Length(3), &["ab", "cd"], Err(Mismatch)),
            (Framing::None, &[], Ok("")),
            (Framing::None, &["a"], Err(Mismatch)),
            (Framing::Chunked, &["ab", "", "c"], Ok("2\r\nab\r\n1\r\nc\r\n0\r\nX-Sum: 1\r\n\r\n")),
            (Framing::Close, &["ab"], Ok("ab")),
        ] {
            let (mut encoder, mut out) = (Encoder::from(framing), Outbox::default());
            let written = pieces
                .iter()
                .try_for_each(|piece| encoder.data(&mut out, Bytes::from_static(piece.as_bytes())))
                .and_then(|()| encoder.end(&mut out, Some(&trailers)));
            assert_eq!(written.map(|()| text(&mut out)).as_deref(), expected.as_ref().copied(), "{framing:?}");
        }
    }
}
