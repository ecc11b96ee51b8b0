//! What came back from a target, whatever protocol it speaks.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use tokio::net::TcpStream;

use super::exchange::{Exchange, Received, Upgraded};
use super::h2::{self, Protocol};
use super::{BodyError, Error, RequestBody};
use crate::http1::Spelling;

/// The body of a target's response. Reading it to its end gives the connection back to the pool.
pub struct ResponseBody(Kind);

enum Kind {
    Http1(Received),
    H2(Box<h2::Incoming>),
}

impl Exchange<'_> {
    /// Sends a request and waits for the response head. The request is sent again, on another connection, only if it
    /// certainly was not processed, or is safe to repeat.
    pub async fn send(&self, head: &Parts, body: &RequestBody) -> Result<Response<ResponseBody>, Error> {
        match self.protocol {
            Protocol::Http1 => self.send_http1(head, body).await,
            // In a box of its own: waiting for HTTP/1.1 is to be small.
            Protocol::H2 | Protocol::Either => Box::pin(h2::send(self, head, body)).await,
        }
    }
}

impl ResponseBody {
    pub(super) fn http1(body: Received) -> Self {
        Self(Kind::Http1(body))
    }

    pub(super) fn h2(body: h2::Incoming) -> Self {
        Self(Kind::H2(Box::new(body)))
    }

    /// How the names of the response's fields came, if that is known.
    pub fn spelling(&self) -> Option<&Spelling> {
        match &self.0 {
            Kind::Http1(body) => Some(body.spelling()),
            Kind::H2(_) => None,
        }
    }

    /// Where the rest of the body comes from, and how long it is, if it comes in bulk, over a connection without TLS, and its
    /// length is known: it may be spliced, and needs no more than to be told [how much](Self::passed).
    pub fn bulk(&self) -> Option<(&TcpStream, u64)> {
        match &self.0 {
            Kind::Http1(body) => body.bulk(),
            Kind::H2(_) => None,
        }
    }

    /// So many bytes were taken from its connection.
    pub fn passed(&mut self, length: usize) {
        if let Kind::Http1(body) = &mut self.0 {
            body.passed(length);
        }
    }

    /// The stream behind a 101 response, with the bytes already read from it.
    pub fn upgrade(self) -> Option<Upgraded> {
        match self.0 {
            Kind::Http1(body) => body.upgrade(),
            // There is no such thing (RFC 9113, section 8.6).
            Kind::H2(_) => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            Kind::Http1(body) => body.poll_frame(cx),
            Kind::H2(body) => body.poll(cx).map_err(BodyError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Http1(body) => body.is_over(),
            Kind::H2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Http1(body) => body.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Kind::H2(body) => body.size_hint(),
        }
    }
}
