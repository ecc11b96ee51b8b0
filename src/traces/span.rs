//! Spans, in the form in which they are sent (`opentelemetry/proto/trace/v1/trace.proto`).

use std::num::NonZeroU64;

use super::context::Context;
use super::protobuf as wire;

/// A piece of work, with its place in the trace.
pub struct Span<'a> {
    pub context: &'a Context,
    pub id: NonZeroU64,
    /// `None`: the trace begins here.
    pub parent: Option<NonZeroU64>,
    pub kind: Kind,
    pub name: &'a str,
    /// Nanoseconds since 1970.
    pub begun: u64,
    pub ended: u64,
    pub failed: bool,
}

/// Which side of a request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its parent, if it has one, is somebody else's.
    Server,
    Client,
}

/// Takes the spans of one request.
pub struct Spans<'a> {
    out: &'a mut Vec<u8>,
    count: u64,
}

impl<'a> Spans<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, count: 0 }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub fn add(&mut self, span: &Span<'_>, attributes: impl FnOnce(&mut Attributes<'_>)) {
        self.count += 1;
        wire::message(self.out, SPANS, |out| {
            let context = span.context;
            wire::bytes(out, 1, &context.trace.get().to_be_bytes());
            wire::bytes(out, 2, &span.id.get().to_be_bytes());
            if let Some(Ok(state)) = context.state.as_ref().map(|state| state.to_str()) {
                wire::bytes(out, 3, shortened(state).as_bytes());
            }
            if let Some(parent) = span.parent {
                wire::bytes(out, 4, &parent.get().to_be_bytes());
            }
            wire::bytes(out, 5, shortened(span.name).as_bytes());
            wire::number(out, 6, span.kind.number());
            wire::fixed64(out, 7, span.begun);
            // Clocks are set back now and then.
            wire::fixed64(out, 8, span.ended.max(span.begun));
            attributes(&mut Attributes { out, field: ATTRIBUTES });
            if span.failed {
                wire::message(out, 15, |status| wire::number(status, 3, STATUS_ERROR));
            }
            wire::fixed32(out, 16, context.flags(span.kind == Kind::Server && span.parent.is_some()));
        });
    }
}

impl Kind {
    fn number(self) -> u64 {
        match self {
            Kind::Server => 2,
            Kind::Client => 3,
        }
    }
}

/// Takes facts. Texts are cut where they are longer than anybody reads.
pub struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    /// Its number in the message.
    field: u32,
}

impl<'a> Attributes<'a> {
    /// Of a resource, whose facts have another number.
    pub(super) fn of_resource(out: &'a mut Vec<u8>) -> Self {
        Self { out, field: 1 }
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.put(key, |out| wire::bytes(out, 1, shortened(value).as_bytes()));
    }

    /// What may be no text.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        self.text(key, &String::from_utf8_lossy(&value[..value.len().min(TEXT_MAX)]));
    }

    pub fn number(&mut self, key: &str, value: u64) {
        self.put(key, |out| wire::number(out, 3, value));
    }

    /// Nothing for the empty text.
    pub fn filled(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn put(&mut self, key: &str, value: impl FnOnce(&mut Vec<u8>)) {
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, key.as_bytes());
            wire::message(out, 2, value);
        });
    }
}

/// At the end of a character.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

/// The spans of a scope are its second field.
const SPANS: u32 = 2;
const ATTRIBUTES: u32 = 9;
const STATUS_ERROR: u64 = 2;
/// Bytes. A request target may have 64 kB, and a span is kept for months.
const TEXT_MAX: usize = 2048;
