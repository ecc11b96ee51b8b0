//! One request for one response.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Frame;
use tokio::net::TcpStream;

use super::connection::Connection;
use super::directory::Endpoint;
use super::h2::Protocol;
use super::{BodyError, Error, Pools, RequestBody, ResponseBody};
use crate::http1::{Spelling, Step};
use crate::net::Stream;

/// Sends requests to one endpoint.
pub struct Exchange<'a> {
    pub pools: &'a Pools,
    pub endpoint: &'a Arc<Endpoint>,
    pub protocol: Protocol,
    /// Sent first thing on a connection, which is then for this request only. Empty: connections are shared.
    pub preamble: &'a [u8],
    pub times: Times,
    pub effort: &'a Effort,
}

/// Limits of one exchange; 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// For name, TCP and TLS together.
    pub connect: Duration,
    /// From the end of the request to the response head.
    pub head: Duration,
}

/// What it took to get a response.
#[derive(Debug, Default)]
pub struct Effort {
    /// Until the last new connection was there, or was given up; `None`: a kept one did.
    pub connect: Cell<Option<Duration>>,
    /// How often the request was sent again.
    pub retries: Cell<u32>,
}

impl Exchange<'_> {
    /// Over HTTP/1.1: sends a request and waits for the response head. The framing of its body is what its fields say:
    /// chunked, or a length, or there is none.
    ///
    /// A kept connection may have been closed by its target at the same moment. Then the request is sent once more, on a
    /// fresh connection, if it certainly was not processed: nothing of it was sent, or it is safe to repeat (RFC 9110,
    /// section 9.2.2, or an idempotency key) and nothing of its body was taken.
    pub(super) async fn send_http1(&self, head: &Parts, body: &RequestBody) -> Result<Response<ResponseBody>, Error> {
        let reused = if self.preamble.is_empty() {
            poll_fn(|cx| Poll::Ready(self.pools.reuse(self.endpoint, cx))).await
        } else {
            None
        };
        let Some(connection) = reused else {
            // Connecting takes much room, and what waits for a request or a response is to be small.
            return Box::pin(self.send_fresh(head, body)).await;
        };
        match self.send_on(connection, head, body).await {
            Ok(response) => Ok(response),
            Err(failed) if failed.is_closed() && (failed.unsent || is_repeatable(head)) && body.rewind() => {
                self.effort.retries.set(self.effort.retries.get() + 1);
                Box::pin(self.send_fresh(head, body)).await
            }
            Err(failed) => Err(failed.error),
        }
    }

    async fn send_fresh(&self, head: &Parts, body: &RequestBody) -> Result<Response<ResponseBody>, Error> {
        let begun = Instant::now();
        let connection = self.pools.fresh(self.endpoint, self.preamble, self.times.connect).await;
        self.effort.connect.set(Some(begun.elapsed()));
        self.send_on(connection?, head, body).await.map_err(|failed| failed.error)
    }

    pub(super) async fn send_on(
        &self,
        mut connection: Box<Connection>,
        head: &Parts,
        body: &RequestBody,
    ) -> Result<Response<ResponseBody>, Failed> {
        connection.begin(head, body);
        let config = self.pools.config();
        match poll_fn(|cx| connection.poll_response(cx, &head.method, body, config, self.times.head)).await {
            Ok(response) => {
                let upgraded = response.parts.status == StatusCode::SWITCHING_PROTOCOLS;
                let mut received = Received {
                    connection: Some(connection),
                    pools: self.pools.clone(),
                    spelling: response.spelling,
                    upgraded,
                };
                received.finish_if_over();
                Ok(Response::from_parts(response.parts, ResponseBody::http1(received)))
            }
            Err(error) => Err(Failed { unsent: connection.is_unsent(), error }),
        }
    }
}

/// A request without a response.
pub(super) struct Failed {
    pub(super) error: Error,
    /// Nothing of it was sent.
    pub(super) unsent: bool,
}

impl Failed {
    fn is_closed(&self) -> bool {
        matches!(self.error, Error::Closed(_))
    }
}

/// May it be executed twice (RFC 9110, section 9.2.2, or an idempotency key)?
pub fn is_repeatable(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || head.headers.contains_key("idempotency-key")
        || head.headers.contains_key("x-idempotency-key")
}

/// A response over HTTP/1.1. Reading it drives the connection; at its end the connection goes back to the pool.
pub(super) struct Received {
    /// `None` at the end.
    connection: Option<Box<Connection>>,
    pools: Pools,
    spelling: Spelling,
    /// No response at all, but another protocol.
    upgraded: bool,
}

/// A connection that speaks something else now.
pub struct Upgraded {
    pub stream: Stream,
    pub read: Bytes,
}

impl Received {
    /// How the names of the response's fields came.
    pub(super) fn spelling(&self) -> &Spelling {
        &self.spelling
    }

    /// The stream behind a 101 response, with the bytes already read from it.
    pub(super) fn upgrade(self) -> Option<Upgraded> {
        let (stream, read) = self.connection?.into_parts();
        Some(Upgraded { stream, read })
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.is_none() || self.upgraded
    }

    /// Bytes that are to come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.connection.as_ref().map_or(Some(0), |connection| connection.left())
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        let step = std::task::ready!(connection.poll_body(cx, self.pools.config()));
        let frame = match step {
            Ok(Step::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Step::End | Step::Wait) => None,
            Err(error) => {
                self.connection = None;
                Some(Err(error))
            }
        };
        self.finish_if_over();
        Poll::Ready(frame)
    }

    /// See [`ResponseBody::bulk`].
    pub(super) fn bulk(&self) -> Option<(&TcpStream, u64)> {
        self.connection.as_ref()?.bulk()
    }

    /// See [`ResponseBody::passed`].
    pub(super) fn passed(&mut self, length: usize) {
        if let Some(connection) = &mut self.connection {
            connection.passed(length);
        }
        self.finish_if_over();
    }

    /// The response is complete: keep the connection if it can take another request.
    fn finish_if_over(&mut self) {
        if !self.upgraded
            && let Some(connection) = self.connection.take_if(|connection| connection.is_over())
            && connection.is_reusable()
        {
            self.pools.put_back(connection);
        }
    }
}
