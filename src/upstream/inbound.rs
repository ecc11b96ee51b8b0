//! The body of a client's request, whatever protocol it comes in, and on its way to a target.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;
use super::allowance::Allowance;
use crate::http1::{Downstream, Spelling, Step};

/// A request body as it comes from a client.
pub enum Inbound {
    Http1(Downstream),
    Http2(Incoming),
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Inbound::Http1(client) => poll_http1(client, cx),
            Inbound::Http2(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Inbound::Http1(client) => client.is_over(),
            Inbound::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inbound::Http1(client) => client.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Inbound::Http2(body) => body.size_hint(),
        }
    }
}

fn poll_http1(client: &Downstream, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    client.poll_body(cx).map(|step| match step {
        Ok(Step::Data(data)) => Some(Ok(Frame::data(data))),
        Ok(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
        Ok(Step::End | Step::Wait) => None,
        Err(error) => Some(Err(error.into())),
    })
}

/// The client's body on its way to a target.
///
/// Shared, so that a request whose connection died before anything of the body was taken can be sent again, and so that a
/// body can still be on its way while the response comes.
#[derive(Clone)]
pub struct RequestBody {
    source: Source,
    /// `None`: it may have any length.
    allowance: Option<Rc<Allowance>>,
}

#[derive(Clone)]
enum Source {
    Empty,
    /// Also of a request without a body: interim answers go to its client.
    Http1(Downstream),
    Http2(Rc<Http2>),
}

/// A body that comes over HTTP/2.
struct Http2 {
    incoming: RefCell<Incoming>,
    touched: Cell<bool>,
    /// Everything was taken.
    ended: Cell<bool>,
    failed: Cell<bool>,
}

impl Http2 {
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut incoming = self.incoming.borrow_mut();
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            self.touched.set(true);
            self.failed.set(matches!(frame, Some(Err(_))));
            self.ended.set(!matches!(frame, Some(Ok(_))) || incoming.is_end_stream());
        }
        polled.map_err(BodyError::from)
    }
}

impl RequestBody {
    pub fn empty() -> Self {
        Self { source: Source::Empty, allowance: None }
    }

    /// With more than `limit` bytes (0: any number) it fails.
    pub fn new(inbound: Inbound, limit: u64) -> Self {
        let source = match inbound {
            Inbound::Http1(client) => Source::Http1(client),
            Inbound::Http2(incoming) if incoming.is_end_stream() => Source::Empty,
            Inbound::Http2(incoming) => Source::Http2(Rc::new(Http2 {
                incoming: RefCell::new(incoming),
                touched: Cell::new(false),
                ended: Cell::new(false),
                failed: Cell::new(false),
            })),
        };
        Self { source, allowance: (limit > 0).then(|| Rc::new(Allowance::new(limit))) }
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

    /// Nothing was taken from it yet.
    pub fn is_whole(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Http1(client) => client.is_whole(),
            Source::Http2(body) => !body.touched.get(),
        }
    }

    /// It ended early, or cannot be understood.
    pub fn has_failed(&self) -> bool {
        match &self.source {
            Source::Empty => false,
            Source::Http1(client) => client.has_failed(),
            Source::Http2(body) => body.failed.get(),
        }
    }

    /// The client waits to be told to go on.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(&self.source, Source::Http1(client) if client.is_waiting())
    }

    /// An interim answer for the client, who gets it if its protocol has such a thing.
    pub(super) fn pass_interim(&self, status: StatusCode, headers: &HeaderMap, spelling: &Spelling) {
        if let Source::Http1(client) = &self.source {
            client.pass_interim(status, headers, Some(spelling));
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = match &this.source {
            Source::Empty => return Poll::Ready(None),
            Source::Http1(client) => poll_http1(client, cx),
            Source::Http2(body) => body.poll_frame(cx),
        };
        if let (Some(allowance), Poll::Ready(Some(Ok(frame)))) = (&this.allowance, &polled)
            && let Err(exceeded) = allowance.take(frame.data_ref().map_or(0, Bytes::len))
        {
            return Poll::Ready(Some(Err(exceeded.into())));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Http1(client) => client.is_over(),
            Source::Http2(body) => body.ended.get() || body.incoming.borrow().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Http1(client) => client.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Source::Http2(body) => body.incoming.borrow().size_hint(),
        }
    }
}
