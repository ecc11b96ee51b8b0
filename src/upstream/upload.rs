//! A request on its way to a target: its head, then its body as it comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::request::Parts;
use http_body::Body;

use super::{BodyError, RequestBody};
use crate::http1::{Encoder, Framing, Link, Outbox, request_head};
use crate::net::Deadline;

pub(super) struct Upload {
    body: RequestBody,
    out: Outbox,
    encoder: Encoder,
    state: State,
    /// Bytes that had been taken when the target stopped taking them.
    stuck_at: u64,
    stuck: Deadline,
}

enum State {
    /// The client waits with its body, and so do we, but not for ever (RFC 9110, section 10.1.1).
    Held(Box<Deadline>),
    /// Pieces of the body are to come.
    Body,
    /// Everything is in the outbox.
    Complete,
    /// The target takes no more.
    Broken(Option<io::Error>),
}

/// Why a request cannot be sent.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client's body is not whole.
    Body(BodyError),
    /// The target has taken nothing for too long.
    Stuck,
}

impl Default for Upload {
    fn default() -> Self {
        Self {
            body: RequestBody::empty(),
            out: Outbox::default(),
            encoder: Encoder::None,
            state: State::Complete,
            stuck_at: 0,
            stuck: Deadline::default(),
        }
    }
}

impl Upload {
    pub(super) fn begin(&mut self, head: &Parts, body: &RequestBody) {
        let encoder = Encoder::from(framing(head));
        self.out = Outbox::default();
        body.with_spelling(|spelling| request_head(&mut self.out, head, spelling));
        self.encoder = encoder;
        self.state = if encoder == Encoder::None {
            State::Complete
        } else if head.headers.contains_key(EXPECT) && body.is_waiting() {
            let mut held = Box::new(Deadline::default());
            held.within(HELD);
            State::Held(held)
        } else {
            State::Body
        };
        self.body = body.clone();
        self.stuck_at = 0;
        self.stuck.clear();
    }

    /// The client may go on with its body.
    pub(super) fn go_on(&mut self) {
        if matches!(self.state, State::Held(_)) {
            self.state = State::Body;
        }
    }

    /// Forgets the request, and lets go of its client.
    pub(super) fn clear(&mut self) {
        self.body = RequestBody::empty();
        self.state = State::Complete;
        self.out = Outbox::default();
    }

    /// Everything was sent.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Complete) && self.out.is_empty()
    }

    /// Nothing more is sent: everything was, or the target takes no more.
    pub(super) fn has_ended(&self) -> bool {
        self.is_sent() || matches!(self.state, State::Broken(_))
    }

    /// Nothing was sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.out.written() == 0
    }

    /// Why the target takes no more, once.
    pub(super) fn broken(&mut self) -> Option<io::Error> {
        match &mut self.state {
            State::Broken(error) => error.take(),
            _ => None,
        }
    }

    /// Sends what can be sent now. That the target takes no more is no fault: there may be an answer.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, link: &mut Link, limit: Duration) -> Result<(), Fault> {
        loop {
            self.gather(cx).map_err(Fault::Body)?;
            if self.out.is_empty() || matches!(self.state, State::Broken(_)) {
                return Ok(());
            }
            match link.poll_write(cx, &mut self.out) {
                Poll::Ready(Ok(())) => {
                    self.stuck.clear();
                    if matches!(self.state, State::Complete) {
                        return Ok(());
                    }
                }
                Poll::Ready(Err(error)) => self.state = State::Broken(Some(error)),
                Poll::Pending => {
                    if !self.stuck.is_set() || self.stuck_at != self.out.written() {
                        self.stuck_at = self.out.written();
                        self.stuck.within(limit);
                    }
                    return match self.stuck.poll(cx) {
                        Poll::Ready(()) => Err(Fault::Stuck),
                        Poll::Pending => Ok(()),
                    };
                }
            }
        }
    }

    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if let State::Held(held) = &mut self.state
            && (held.poll(cx).is_ready() || !self.body.poll_waiting(cx))
        {
            self.state = State::Body;
        }
        while matches!(self.state, State::Body) && self.out.has_room() {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(frame) => frame.transpose()?,
            };
            let trailers = match frame.map(http_body::Frame::into_data) {
                Some(Ok(data)) => {
                    self.encoder.data(&mut self.out, data)?;
                    if !self.body.is_end_stream() {
                        continue;
                    }
                    None
                }
                Some(Err(frame)) => frame.into_trailers().ok(),
                None => None,
            };
            self.encoder.end(&mut self.out, trailers.as_ref())?;
            self.state = State::Complete;
        }
        Ok(())
    }
}

/// As the fields say it.
fn framing(head: &Parts) -> Framing {
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Framing::Chunked;
    }
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match length {
        None | Some(0) => Framing::None,
        Some(length) => Framing::Length(length),
    }
}

/// A target that does not know `Expect` waits for the body; nobody is to wait for it for long.
const HELD: Duration = Duration::from_secs(1);
