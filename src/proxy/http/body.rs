//! Response bodies: our own, and those of targets with what has to happen at their end.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::compress::Coding;
use super::grpc;
use super::packed::Packed;
use super::record::Record;
use crate::http1::Spelling;
use crate::upstream::ResponseBody;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response to a client.
pub(crate) struct Body {
    kind: Kind,
    /// Counts the request when the body is over, however it ends.
    record: Option<Record>,
    /// `wt` of the listener or `timeout` of the route: the whole response must be out by then.
    deadline: Option<Instant>,
}

enum Kind {
    Own(Bytes),
    Target(ResponseBody),
    Packed(Box<Packed<ResponseBody>>),
    Call(Box<grpc::Watched>),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::full(Bytes::new())
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self { kind: Kind::Own(bytes), record: None, deadline: None }
    }

    pub(crate) fn target(body: ResponseBody) -> Self {
        Self { kind: Kind::Target(body), record: None, deadline: None }
    }

    /// A target's body in a coding that its client accepts.
    pub(crate) fn packed(body: ResponseBody, coding: Coding) -> std::io::Result<Self> {
        let kind = Kind::Packed(Box::new(Packed::new(body, coding)?));
        Ok(Self { kind, record: None, deadline: None })
    }

    /// Of our own making, or there is nothing in it.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Own(_))
    }

    /// The response to a gRPC call, watched on its way. Not for answers of our own.
    pub(crate) fn of_call(mut self, call: grpc::Call) -> Self {
        self.kind = match self.kind {
            Kind::Target(body) => Kind::Call(Box::new(grpc::Watched::new(body, call))),
            other => other,
        };
        self
    }

    pub(crate) fn with_record(mut self, record: Record) -> Self {
        if http_body::Body::is_end_stream(&self) {
            record.ended(true);
        } else {
            self.record = Some(record);
        }
        self
    }

    /// The earliest one counts.
    pub(crate) fn with_deadline(mut self, deadline: Option<Instant>) -> Self {
        if let Some(deadline) = deadline
            && self.deadline.is_none_or(|earlier| deadline < earlier)
        {
            self.deadline = Some(deadline);
        }
        self
    }

    /// When all of it must have been sent. Whoever sends it sees to that.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// For the answer to HEAD: whatever there is to send, is not.
    pub(crate) fn without_content(mut self) -> Self {
        self.over(true);
        Self::empty()
    }

    /// How the names of the head's fields came from the target.
    pub(crate) fn spelling(&self) -> Option<&Spelling> {
        match &self.kind {
            Kind::Own(_) | Kind::Call(_) => None,
            Kind::Target(body) => body.spelling(),
            Kind::Packed(body) => body.source().spelling(),
        }
    }

    /// See [`ResponseBody::bulk`]. Nothing of it has to be looked at on its way.
    pub(crate) fn bulk(&self) -> Option<(&TcpStream, u64)> {
        match &self.kind {
            Kind::Target(body) => body.bulk(),
            Kind::Own(_) | Kind::Packed(_) | Kind::Call(_) => None,
        }
    }

    /// So many bytes were taken from its connection.
    pub(crate) fn passed(&mut self, length: usize) {
        let Kind::Target(body) = &mut self.kind else { return };
        body.passed(length);
        if let Some(record) = &mut self.record {
            record.sent(length);
        }
        if http_body::Body::is_end_stream(self) {
            self.over(true);
        }
    }

    fn over(&mut self, whole: bool) {
        if let Some(record) = self.record.take() {
            record.ended(whole);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let polled = match &mut this.kind {
            Kind::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Target(body) => Pin::new(body).poll_frame(cx),
            Kind::Packed(body) => body.poll(cx),
            Kind::Call(body) => body.poll(cx),
        };
        if polled.is_pending() {
            return Poll::Pending;
        }
        if let (Some(record), Poll::Ready(Some(Ok(frame)))) = (&mut this.record, &polled) {
            match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => record.sent(data.len()),
                (None, Some(trailers)) => record.fields(trailers),
                (None, None) => {}
            }
        }
        let failed = matches!(polled, Poll::Ready(Some(Err(_))));
        if failed || http_body::Body::is_end_stream(this) || matches!(polled, Poll::Ready(None)) {
            this.over(!failed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own(bytes) => bytes.is_empty(),
            Kind::Target(body) => http_body::Body::is_end_stream(body),
            Kind::Packed(body) => body.is_over(),
            Kind::Call(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Target(body) => http_body::Body::size_hint(body),
            Kind::Packed(_) | Kind::Call(_) => SizeHint::default(),
        }
    }
}
