//! The client's body on its way to a target.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::allowance::Allowance;
use super::inbound::{H2Inbound, Inbound, poll_http1};
use super::kept::Kept;
use super::{BodyError, Error, H2Reply};
use crate::http1::{Downstream, Spelling};

/// Shared, so that a request whose try has failed can be sent again, and so that a body can still be on its way while the
/// response comes.
#[derive(Clone)]
pub struct RequestBody {
    source: Source,
    /// `None`: it may have any length.
    allowance: Option<Rc<Allowance>>,
    /// What was taken, if it is to be sent again perhaps.
    kept: Option<Rc<RefCell<Kept>>>,
}

#[derive(Clone)]
enum Source {
    Empty,
    /// Also of a request without a body: interim answers go to its client.
    Http1(Downstream),
    /// The same.
    Http2(Rc<Http2>),
}

/// A body that comes over HTTP/2.
struct Http2 {
    incoming: RefCell<Inbound>,
    reply: H2Reply,
    touched: Cell<bool>,
    /// Everything was taken.
    ended: Cell<bool>,
    failed: Cell<bool>,
}

impl Http2 {
    fn new(incoming: Box<H2Inbound>) -> Self {
        Self {
            reply: incoming.reply().clone(),
            incoming: RefCell::new(Inbound::Http2(incoming)),
            touched: Cell::new(false),
            ended: Cell::new(false),
            failed: Cell::new(false),
        }
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut incoming = self.incoming.borrow_mut();
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            self.touched.set(true);
            self.failed.set(matches!(frame, Some(Err(_))));
            self.ended.set(!matches!(frame, Some(Ok(_))) || incoming.is_end_stream());
        }
        polled
    }

    fn is_over(&self) -> bool {
        self.ended.get() || self.incoming.borrow().is_end_stream()
    }
}

impl Source {
    fn is_over(&self) -> bool {
        match self {
            Source::Empty => true,
            Source::Http1(client) => client.is_over(),
            Source::Http2(body) => body.is_over(),
        }
    }

    /// Nothing was taken from it yet.
    fn is_whole(&self) -> bool {
        match self {
            Source::Empty => true,
            Source::Http1(client) => client.is_whole(),
            Source::Http2(body) => !body.touched.get(),
        }
    }

    /// It ended early, or cannot be understood.
    fn has_failed(&self) -> bool {
        match self {
            Source::Empty => false,
            Source::Http1(client) => client.has_failed(),
            Source::Http2(body) => body.failed.get(),
        }
    }
}

impl RequestBody {
    pub fn empty() -> Self {
        Self { source: Source::Empty, allowance: None, kept: None }
    }

    /// With more than `limit` bytes (0: any number) it fails.
    pub fn new(inbound: Inbound, limit: u64) -> Self {
        let source = match inbound {
            Inbound::Empty => Source::Empty,
            Inbound::Http1(client) => Source::Http1(client),
            Inbound::Http2(stream) => Source::Http2(Rc::new(Http2::new(stream))),
        };
        Self { source, allowance: (limit > 0).then(|| Rc::new(Allowance::new(limit))), kept: None }
    }

    /// From now on what is taken is kept, up to so many bytes, so that it can be sent again. Copies made before do not know.
    pub fn keep(&mut self, limit: usize) {
        if self.source.is_whole() && !self.source.is_over() {
            self.kept = Some(Rc::new(RefCell::new(Kept::new(limit))));
        }
    }

    /// Can it be sent again? Not when something of it is gone for good.
    pub fn can_rewind(&self) -> bool {
        self.source.is_whole()
            || !self.is_exceeded()
                && !self.source.has_failed()
                && self.kept.as_ref().is_some_and(|kept| kept.borrow().is_complete())
    }

    /// Makes it whole again for another try, if it can be. Whoever reads it now must have stopped.
    pub fn rewind(&self) -> bool {
        if self.source.is_whole() {
            return true;
        }
        let can = self.can_rewind();
        if let (true, Some(kept)) = (can, &self.kept) {
            kept.borrow_mut().rewind();
        }
        can
    }

    /// It is read from a connection that others read, too: all of them must be of one task.
    pub(super) fn shares_connection(&self) -> bool {
        matches!(self.source, Source::Http1(_))
    }

    /// Something that was taken before is to be given again.
    fn repeats(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.borrow().has_more())
    }

    /// Everything was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.source.is_over() && !self.repeats()
    }

    /// It broke off, or was put an end to.
    pub(super) fn has_failed(&self) -> bool {
        self.source.has_failed() || self.is_exceeded()
    }

    /// Why it was.
    pub(super) fn failure(&self) -> Error {
        if self.is_exceeded() { Error::BodyTooLarge } else { Error::Body("the request body ended early".into()) }
    }

    /// It is longer than it may be.
    pub(super) fn is_exceeded(&self) -> bool {
        self.allowance.as_ref().is_some_and(|allowance| allowance.is_exceeded())
    }

    /// How the names of the request's fields came, if that is known.
    pub(super) fn with_spelling<T>(&self, with: impl FnOnce(Option<&Spelling>) -> T) -> T {
        match &self.source {
            Source::Http1(client) => client.with_spelling(|spelling| with(Some(spelling))),
            Source::Empty | Source::Http2(_) => with(None),
        }
    }

    /// The client waits to be told to go on.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.source {
            Source::Empty => false,
            Source::Http1(client) => client.is_waiting(),
            Source::Http2(body) => body.reply.is_waiting(),
        }
    }

    /// The same, and whoever asks is woken when the client begins its body without being told to.
    pub(super) fn poll_waiting(&self, cx: &mut Context<'_>) -> bool {
        if let Source::Http2(body) = &self.source
            && body.reply.is_waiting()
            && let Inbound::Http2(incoming) = &mut *body.incoming.borrow_mut()
        {
            return incoming.poll_begun(cx).is_pending();
        }
        // A connection of HTTP/1.1 is read ahead by who answers, in the same task.
        self.is_waiting()
    }

    /// An interim answer for the client, who gets it if its protocol has such a thing.
    pub(super) fn pass_interim(&self, status: StatusCode, headers: &HeaderMap, spelling: Option<&Spelling>) {
        match &self.source {
            Source::Empty => {}
            Source::Http1(client) => client.pass_interim(status, headers, spelling),
            Source::Http2(body) => body.reply.pass(status, headers),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(kept) = &this.kept
            && let Some(frame) = kept.borrow_mut().again()
        {
            return Poll::Ready(Some(Ok(frame)));
        }
        let polled = match &this.source {
            Source::Empty => return Poll::Ready(None),
            Source::Http1(client) => poll_http1(client, cx),
            Source::Http2(body) => body.poll_frame(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(allowance) = &this.allowance
                && let Err(exceeded) = allowance.take(frame.data_ref().map_or(0, Bytes::len))
            {
                return Poll::Ready(Some(Err(exceeded.into())));
            }
            if let Some(kept) = &this.kept {
                kept.borrow_mut().keep(frame);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let left = match &self.source {
            Source::Empty => Some(0),
            Source::Http1(client) => client.left(),
            Source::Http2(body) => body.incoming.borrow().size_hint().exact(),
        };
        let again = self.kept.as_ref().map_or(0, |kept| kept.borrow().left() as u64);
        left.map_or_else(SizeHint::default, |left| SizeHint::with_exact(left + again))
    }
}
