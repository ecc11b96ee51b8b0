//! The response to a call on its way to the client.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::Sleep;

use super::frames::Frames;
use super::{Call, DEADLINE, Status, TOO_LARGE, outcome};
use crate::upstream::ResponseBody;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// However a response ends, its client gets an outcome.
pub(crate) struct Watched {
    /// `None`: over. What was not read of it is cancelled.
    body: Option<ResponseBody>,
    call: Call,
    frames: Frames,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(body: ResponseBody, call: Call) -> Self {
        let frames = Frames::new(call.0.limit);
        let deadline = call.0.deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline)));
        let body = (!body.is_end_stream()).then_some(body);
        Self { body, call, frames, deadline }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.body.is_none()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if self.call.0.upload.too_large.get() {
            return self.end(Status::RESOURCE_EXHAUSTED, TOO_LARGE);
        }
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => {
                if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
                    return self.end(Status::DEADLINE_EXCEEDED, DEADLINE);
                }
                self.call.0.upload.waker.replace(Some(cx.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                self.body = None;
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!("a call broke off: {error}");
                let (status, message) = broken(&error);
                return self.end(status, message);
            }
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        if let Some(data) = frame.data_ref() {
            if !self.frames.pass(data) {
                return self.end(Status::RESOURCE_EXHAUSTED, TOO_LARGE);
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.call.told(trailers);
            self.body = None;
        }
        if self.body.as_ref().is_some_and(|body| body.is_end_stream()) {
            self.body = None;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// The last thing that the client hears.
    fn end(&mut self, status: Status, message: &str) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.body = None;
        self.call.ended(status);
        Poll::Ready(Some(Ok(Frame::trailers(outcome(status, message, HeaderMap::new())))))
    }
}

/// As gRPC reads the reasons of streams that were reset. A connection that broke is a target that is not there.
fn broken(error: &Error) -> (Status, &'static str) {
    let reason = error.downcast_ref::<h2::Error>().filter(|error| !error.is_io()).and_then(h2::Error::reason);
    match reason {
        None => (Status::UNAVAILABLE, "the connection to the target broke"),
        Some(Reason::REFUSED_STREAM) => (Status::UNAVAILABLE, "the target refused the call"),
        Some(Reason::CANCEL) => (Status::CANCELLED, "the target cancelled the call"),
        Some(Reason::ENHANCE_YOUR_CALM) => (Status::RESOURCE_EXHAUSTED, "the target is overloaded"),
        Some(Reason::INADEQUATE_SECURITY) => (Status::PERMISSION_DENIED, "the target asks for better security"),
        Some(_) => (Status::INTERNAL, "the target reset the call"),
    }
}
