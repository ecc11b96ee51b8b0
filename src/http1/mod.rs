//! HTTP/1.1 on the wire (RFC 9112), for a proxy: reading heads and bodies strictly, writing them plainly.
//!
//! What is ambiguous is refused, so that nobody behind us can read a message in another way than we did. Everything but
//! [`Link`] works on bytes alone and does no I/O. What a message means is not known here; heads are those of the `http`
//! crate, with values that are slices of the buffer they were read into.

mod body;
mod buffers;
mod chunk;
mod downstream;
mod encode;
mod framing;
mod head;
mod hoard;
mod link;
mod outbox;
mod present;
mod scan;
mod spelling;
mod target;
mod trailers;

use std::fmt;

pub use body::{Decoder, Step};
pub use buffers::give_map;
pub use downstream::{Begun, Downstream, HeadError};
pub use encode::{Encoder, Mismatch, ResponseLine, interim_head, request_head, response_head};
pub use framing::{Framing, is_bodiless, request_framing, response_framing};
pub use head::{RequestHead, ResponseHead, request, response};
pub use link::{BodyError, Link};
pub use outbox::Outbox;
pub use present::Present;
pub use scan::{Scan, skip_blank_lines};
pub use spelling::Spelling;
pub use target::RawQuery;
pub use trailers::is_trailer;

/// What one head may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Field lines.
    pub lines: usize,
    /// Bytes, with the empty line at the end.
    pub bytes: usize,
}

/// Why a message cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Not HTTP/1.1, or not unambiguously.
    Malformed(&'static str),
    /// Beyond [`Limits`].
    TooLarge,
    /// Longer than any target that can be handled: 64 kB.
    TargetTooLong,
    /// A version that is not spoken here.
    Version,
    /// A transfer coding other than `chunked`.
    Coding,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Malformed(what) => what,
            Flaw::TooLarge => "the head is too large",
            Flaw::TargetTooLong => "the request target is too long",
            Flaw::Version => "neither HTTP/1.0 nor HTTP/1.1",
            Flaw::Coding => "a transfer coding other than chunked",
        })
    }
}

impl std::error::Error for Flaw {}
