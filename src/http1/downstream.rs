//! A client's connection, shared by those who deal with one of its requests: the loop that answers, and whoever sends the
//! body on to a target.
//!
//! All of them run in the task of the connection, so the wakers are the same whoever polls.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version, request};

use super::hoard::Hoard;
use super::link::BodyError;
use super::{Decoder, Encoder, Flaw, Limits, Link, Mismatch, Outbox, Present, ResponseLine, Scan, Spelling, Step};
use super::{encode, head, skip_blank_lines};
use crate::net::{Deadline, Splice, Stream};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Downstream(Rc<Shared>);

struct Shared {
    wire: RefCell<Wire>,
    request: RefCell<Spelling>,
    touched: Cell<bool>,
    failed: Cell<bool>,
    /// Interim answers can be sent: the client knows them, and the answer has not begun.
    open: Cell<bool>,
    /// The client waits with its body.
    expects: Cell<bool>,
    limits: Limits,
    /// For each pause in a body.
    pause: Duration,
}

struct Wire {
    link: Link,
    out: Outbox,
    scan: Scan,
    hoard: Hoard,
    /// Bytes of the next head have come.
    begun: bool,
    body: Decoder,
    limit: Deadline,
    /// The limit is that for a pause in a body.
    pausing: bool,
}

/// Why there is no other request.
#[derive(Debug)]
pub enum HeadError {
    Flaw(Flaw),
    Io(io::Error),
    /// The client took too long.
    TimedOut,
}

/// What a request says beside its head.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The client would send another request afterwards.
    pub persists: bool,
    /// Fields that the head may have.
    pub present: Present,
}

impl Downstream {
    /// `pause`: longest time between two pieces of a body; 0 is no limit.
    pub fn new(stream: Stream, limits: Limits, pause: Duration) -> Self {
        Self(Rc::new(Shared {
            wire: RefCell::new(Wire {
                link: Link::new(stream),
                out: Outbox::default(),
                scan: Scan::default(),
                hoard: Hoard::default(),
                begun: false,
                body: Decoder::Over,
                limit: Deadline::default(),
                pausing: false,
            }),
            request: RefCell::default(),
            touched: Cell::new(false),
            failed: Cell::new(false),
            open: Cell::new(false),
            expects: Cell::new(false),
            limits,
            pause,
        }))
    }

    /// The time until the next request begins to come; 0 is no limit.
    pub fn idle(&self, limit: Duration) {
        self.0.request.take();
        let wire = &mut *self.0.wire.borrow_mut();
        wire.begun = false;
        wire.scan = Scan::default();
        wire.limit.within(limit);
        wire.link.release();
    }

    /// The next request, or the end. `limit` is for the rest of a head once it has begun; 0 is none.
    pub fn poll_head(
        &self,
        cx: &mut Context<'_>,
        limit: Duration,
    ) -> Poll<Result<Option<(request::Parts, Begun)>, HeadError>> {
        let wire = &mut *self.0.wire.borrow_mut();
        loop {
            if !wire.begun {
                skip_blank_lines(wire.link.buffer()).map_err(HeadError::Flaw)?;
                // A CR alone is half an empty line.
                wire.begun = wire.link.buffer().first().is_some_and(|first| *first != b'\r');
                if wire.begun {
                    wire.limit.within(limit);
                }
            }
            if wire.begun {
                let read = wire.link.buffer();
                // What is no HTTP at all need not come to an end first.
                if !read.first().is_some_and(u8::is_ascii_graphic) {
                    return Poll::Ready(Err(HeadError::Flaw(Flaw::Malformed("no HTTP"))));
                }
                if let Some(length) = wire.scan.find(read, self.0.limits).map_err(HeadError::Flaw)? {
                    wire.hoard.give_back();
                    let bytes = read.split_to(length).freeze();
                    let head = head::request(&bytes, self.0.limits.lines).map_err(HeadError::Flaw)?;
                    wire.limit.clear();
                    wire.pausing = false;
                    wire.body = Decoder::from(head.framing);
                    self.0.request.replace(head.spelling);
                    self.0.touched.set(false);
                    self.0.failed.set(false);
                    self.0.open.set(head.parts.version == Version::HTTP_11);
                    self.0.expects.set(head.expects);
                    return Poll::Ready(Ok(Some((
                        head.parts,
                        Begun { persists: head.persists, present: head.present },
                    ))));
                }
            }
            if !wire.hoard.allows(wire.link.buffered()) {
                wire.hoard.give_back();
                return Poll::Ready(Err(HeadError::Flaw(Flaw::TooLarge)));
            }
            match wire.link.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(HeadError::Io(error))),
                Poll::Pending => return wire.limit.poll(cx).map(|()| Err(HeadError::TimedOut)),
            }
        }
    }

    /// Nothing has come of another request.
    pub fn is_quiet(&self) -> bool {
        self.0.wire.borrow().link.buffered() == 0
    }

    /// How the names of the request's fields came.
    pub fn with_spelling<T>(&self, with: impl FnOnce(&Spelling) -> T) -> T {
        with(&self.0.request.borrow())
    }

    /// What comes next of the request's body. Never [`Step::Wait`]. A client that waits is told to go on.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Step, BodyError>> {
        self.go_on();
        let polled = self.poll_rest(cx);
        if let Poll::Ready(step) = &polled {
            self.0.touched.set(true);
            if step.is_err() {
                self.0.failed.set(true);
            }
        }
        polled
    }

    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<Result<Step, BodyError>> {
        let Wire { link, body, limit, pausing, .. } = &mut *self.0.wire.borrow_mut();
        let polled = link.poll_body(cx, body);
        if polled.is_ready() {
            *pausing = false;
            limit.clear();
            return polled;
        }
        if !*pausing {
            *pausing = true;
            limit.within(self.0.pause);
        }
        limit.poll(cx).map(|()| Err(BodyError::TimedOut))
    }

    /// The body is over, or there is none.
    pub fn is_over(&self) -> bool {
        self.0.wire.borrow().body.is_over()
    }

    /// Bytes of the body that were not taken yet, if that is known.
    pub fn left(&self) -> Option<u64> {
        self.0.wire.borrow().body.left()
    }

    /// Nothing was taken from the body yet.
    pub fn is_whole(&self) -> bool {
        !self.0.touched.get()
    }

    /// The body ended early, or cannot be understood.
    pub fn has_failed(&self) -> bool {
        self.0.failed.get()
    }

    /// The client waits with its body until it is told to go on, and has not sent any of it.
    pub fn is_waiting(&self) -> bool {
        self.0.expects.get() && self.0.wire.borrow().link.buffered() == 0
    }

    fn go_on(&self) {
        if self.0.expects.replace(false) && self.0.open.get() && self.is_quiet() {
            self.interim(StatusCode::CONTINUE, &HeaderMap::new(), None);
        }
    }

    /// Sends an interim answer, if the client can take it.
    pub fn interim(&self, status: StatusCode, headers: &HeaderMap, spelling: Option<&Spelling>) {
        let wire = &mut *self.0.wire.borrow_mut();
        if self.0.open.get() && wire.out.has_room() {
            encode::interim_head(&mut wire.out, status, headers, spelling);
        }
    }

    /// Passes an interim answer on. 100 is only for those who wait for it.
    pub fn pass_interim(&self, status: StatusCode, headers: &HeaderMap, spelling: Option<&Spelling>) {
        if status != StatusCode::CONTINUE || self.0.expects.replace(false) {
            self.interim(status, headers, spelling);
        }
    }

    /// Begins the answer.
    pub fn answer(&self, line: ResponseLine, headers: &HeaderMap, spelling: Option<&Spelling>) {
        self.0.open.set(false);
        encode::response_head(&mut self.0.wire.borrow_mut().out, line, headers, spelling);
    }

    /// More of the answer's body can be taken.
    pub fn has_room(&self) -> bool {
        self.0.wire.borrow().out.has_room()
    }

    pub fn data(&self, encoder: &mut Encoder, data: Bytes) -> Result<(), Mismatch> {
        encoder.data(&mut self.0.wire.borrow_mut().out, data)
    }

    pub fn end(&self, encoder: &mut Encoder, trailers: Option<&HeaderMap>) -> Result<(), Mismatch> {
        encoder.end(&mut self.0.wire.borrow_mut().out, trailers)
    }

    /// Ready when everything is sent.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Wire { link, out, .. } = &mut *self.0.wire.borrow_mut();
        if out.is_empty() { Poll::Ready(Ok(())) } else { link.poll_write(cx, out) }
    }

    /// Bytes may go to the client past the outbox: it is empty, and nothing lies between it and the connection.
    pub fn is_bare(&self) -> bool {
        let wire = &*self.0.wire.borrow();
        wire.out.is_empty() && wire.link.bare_sink().is_some()
    }

    /// Sends what was spliced, behind the outbox. Ready when nothing of it is left.
    pub fn poll_spliced(&self, cx: &mut Context<'_>, splice: &mut Splice) -> Poll<io::Result<()>> {
        match self.0.wire.borrow().link.bare_sink() {
            Some(sink) => splice.poll_drain(cx, sink, &mut 0),
            None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Ready when the client has gone away. Reads ahead for that, but not far. `half`: its sending side may be closed.
    pub fn poll_gone(&self, cx: &mut Context<'_>, half: bool) -> Poll<()> {
        let link = &mut self.0.wire.borrow_mut().link;
        while link.buffered() < AHEAD {
            match ready!(link.poll_fill(cx)) {
                Ok(0) if half => return Poll::Pending,
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    /// Throws away what is left of the body. True when that was little enough for another request to follow.
    pub fn poll_drain(&self, cx: &mut Context<'_>, budget: &mut usize) -> Poll<bool> {
        loop {
            match ready!(self.poll_rest(cx)) {
                Ok(Step::Data(data)) if data.len() <= *budget => *budget -= data.len(),
                Ok(Step::Data(_)) | Err(_) => return Poll::Ready(false),
                Ok(Step::End | Step::Trailers(_)) => return Poll::Ready(true),
                Ok(Step::Wait) => return Poll::Pending,
            }
        }
    }

    /// Ends our side, then throws away what still comes, so that the client gets to read what it was sent: unread bytes
    /// would turn the end into a reset. At most `budget` bytes.
    pub fn poll_linger(&self, cx: &mut Context<'_>, ended: &mut bool, budget: &mut usize) -> Poll<()> {
        let link = &mut self.0.wire.borrow_mut().link;
        if !*ended {
            *ended = match ready!(link.poll_shutdown(cx)) {
                Ok(()) => true,
                Err(_) => return Poll::Ready(()),
            };
        }
        loop {
            link.discard();
            match ready!(link.poll_fill(cx)) {
                Ok(length @ 1..) if length <= *budget => *budget -= length,
                _ => return Poll::Ready(()),
            }
        }
    }

    /// The client will not see that anything is missing unless the connection breaks.
    pub fn reset(&self) {
        self.0.wire.borrow().link.reset();
    }

    /// The connection, and what was read from it. `None` while a request is under way.
    pub fn into_parts(self) -> Option<(Stream, Bytes)> {
        let shared = Rc::into_inner(self.0)?;
        Some(shared.wire.into_inner().link.into_parts())
    }
}

/// Read beyond the request under way.
const AHEAD: usize = 16 * 1024;
