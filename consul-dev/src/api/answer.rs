//! Answers, and how they are written: as Consul writes them, down to Go's escapes in JSON.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// An answer before it is written.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Names in lower case.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) payload: Payload,
}

#[derive(Debug)]
pub(super) enum Payload {
    None,
    Json(Value),
    Text(String),
    Page(String),
    Raw(Bytes),
}

/// Either is an answer; the error is for `?`.
pub(super) type Handled = Result<Answer, Answer>;

impl Answer {
    fn new(status: StatusCode, payload: Payload) -> Self {
        Self { status, headers: Vec::new(), payload }
    }

    /// Success, with nothing to say.
    pub(super) fn ok() -> Self {
        Self::new(StatusCode::OK, Payload::None)
    }

    pub(super) fn json(value: Value) -> Self {
        Self::new(StatusCode::OK, Payload::Json(value))
    }

    pub(super) fn raw(bytes: Vec<u8>) -> Self {
        let mut answer = Self::new(StatusCode::OK, Payload::Raw(bytes.into()));
        answer.header("content-security-policy", "sandbox");
        answer.header("x-content-type-options", "nosniff");
        answer
    }

    pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, Payload::Text(text.into()))
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::text(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::text(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, Payload::None)
    }

    pub(super) fn moved(to: &str, with_page: bool) -> Self {
        let page = format!("<a href=\"{to}\">Moved Permanently</a>.\n\n");
        let payload = if with_page { Payload::Page(page) } else { Payload::None };
        let mut answer = Self::new(StatusCode::MOVED_PERMANENTLY, payload);
        answer.header("location", to);
        answer
    }

    pub(super) fn header(&mut self, name: &'static str, value: impl Into<String>) {
        self.headers.push((name, value.into()));
    }

    /// With the headers of an answer that did not come to be: of a read that failed.
    pub(super) fn unknown_leader(mut self) -> Self {
        self.header("x-consul-index", "1");
        self.header("x-consul-knownleader", "false");
        self.header("x-consul-lastcontact", "0");
        self
    }

    pub(super) fn closing(mut self) -> Self {
        self.header("connection", "close");
        self
    }

    /// Replace the index if there is one; `None` removes it.
    pub(super) fn set_index(&mut self, index: Option<u64>) {
        let is_index = |header: &(&'static str, String)| header.0 == "x-consul-index";
        if let Some(at) = self.headers.iter().position(is_index) {
            match index {
                Some(index) => self.headers[at].1 = index.to_string(),
                None => drop(self.headers.remove(at)),
            }
        }
    }

    /// Nothing but the shape of what there was.
    pub(super) fn make_empty(&mut self) {
        // A key is known by its value's members, since only keys have a lock.
        let is_key = |item: &Value| item.get("LockIndex").is_some();
        match &mut self.payload {
            Payload::Json(Value::Array(items)) if items.first().is_some_and(is_key) => {
                self.status = StatusCode::NOT_FOUND;
                self.payload = Payload::None;
            }
            Payload::Json(Value::Array(items)) => items.clear(),
            Payload::Json(Value::Object(members)) => members.clear(),
            Payload::Raw(_) => {
                self.status = StatusCode::NOT_FOUND;
                self.payload = Payload::None;
            }
            Payload::Json(_) | Payload::None | Payload::Text(_) | Payload::Page(_) => {}
        }
    }
}

/// JSON as Go writes it into HTML-safe text; indented by four blanks and ended by a line feed if `pretty`.
pub(super) fn json_text(value: &Value, pretty: bool) -> String {
    let mut bytes = Vec::new();
    let written = if pretty {
        value.serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    ")))
    } else {
        value.serialize(&mut Serializer::new(&mut bytes))
    };
    written.expect("a JSON value goes into memory");
    let mut text = String::with_capacity(bytes.len() + 1);
    // These characters occur in strings only, so it does not matter that the structure is not looked at.
    for c in String::from_utf8_lossy(&bytes).chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            c => text.push(c),
        }
    }
    if pretty {
        text.push('\n');
    }
    text
}

/// The body of a response: all of it, or the first half and then an error, which cuts the connection.
#[derive(Debug)]
pub(super) struct Reply {
    data: Option<Bytes>,
    cut: bool,
    length: u64,
}

impl Reply {
    pub(super) fn whole(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self { data: Some(bytes).filter(|bytes| !bytes.is_empty()), cut: false, length }
    }

    /// Announces all of it.
    pub(super) fn half(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self { data: Some(bytes.slice(..bytes.len() / 2)), cut: true, length }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.data.take() {
            Some(data) => Some(Ok(Frame::data(data))),
            None if self.cut => Some(Err(io::ErrorKind::ConnectionAborted.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && !self.cut
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
