//! One request for one response, on a connection that is driven by the request's own task.
//!
//! There is no task per connection: whoever waits for the response, or reads its body, polls the connection too. So a
//! request costs no wake-up of another task.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::allowance::Allowance;
use super::directory::Endpoint;
use super::h2::Protocol;
use super::kept::Kept;
use super::term::Term;
use super::{Error, Inbound, Pools};
use crate::net::Stream;

/// A connection to a target with its driver.
pub(super) struct Connection {
    pub(super) sender: http1::SendRequest<RequestBody>,
    pub(super) driver: http1::Connection<TokioIo<Stream>, RequestBody>,
    pub(super) endpoint: u64,
    pub(super) reused: bool,
    /// Not made for one client.
    pub(super) shared: bool,
    pub(super) term: Term,
}

/// The client's body on its way to a target.
///
/// Shared, so that a request whose connection died before anything of the body was taken can be sent again.
#[derive(Clone)]
pub struct RequestBody(Rc<Source>);

struct Source {
    incoming: RefCell<Option<Inbound>>,
    touched: Cell<bool>,
    /// Everything was taken, for this try.
    ended: Cell<bool>,
    /// What was taken, if it is to be sent again perhaps.
    kept: RefCell<Kept>,
    failed: Cell<bool>,
    allowance: Allowance,
    /// Called once when the body has been read to its end.
    done: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl RequestBody {
    pub fn empty() -> Self {
        Self::from_source(None, 0, None)
    }

    /// With more than `limit` bytes (0: any number) it fails; `done` is called when the last byte has been read.
    pub fn new(incoming: Inbound, limit: u64, done: impl FnOnce() + 'static) -> Self {
        if incoming.is_end_stream() {
            done();
            return Self::empty();
        }
        Self::from_source(Some(incoming), limit, Some(Box::new(done)))
    }

    fn from_source(incoming: Option<Inbound>, limit: u64, done: Option<Box<dyn FnOnce()>>) -> Self {
        Self(Rc::new(Source {
            ended: Cell::new(incoming.is_none()),
            incoming: RefCell::new(incoming),
            touched: Cell::new(false),
            kept: RefCell::default(),
            failed: Cell::new(false),
            allowance: Allowance::new(limit),
            done: RefCell::new(done),
        }))
    }

    /// Everything was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.get()
    }

    /// It broke off, or was put an end to.
    pub(super) fn has_failed(&self) -> bool {
        self.0.failed.get() || self.0.allowance.is_exceeded()
    }

    /// Why it was.
    pub(super) fn failure(&self) -> Error {
        if self.0.allowance.is_exceeded() {
            Error::BodyTooLarge
        } else {
            Error::Body("the request body ended early".into())
        }
    }

    /// From now on what is taken is kept, up to so many bytes, so that it can be sent again.
    pub fn keep(&self, limit: usize) {
        if !self.0.touched.get() && self.0.incoming.borrow().is_some() {
            self.0.kept.replace(Kept::new(limit));
        }
    }

    /// Can it be sent again? Not when something of it is gone for good.
    pub fn can_rewind(&self) -> bool {
        !self.0.touched.get() || !self.0.failed.get() && self.0.kept.borrow().is_complete()
    }

    /// Makes it whole again for another try, if it can be. Whoever reads it now must have stopped.
    pub fn rewind(&self) -> bool {
        let source = &self.0;
        if !source.touched.get() || !self.can_rewind() {
            return self.can_rewind();
        }
        let mut kept = source.kept.borrow_mut();
        kept.rewind();
        source.ended.set(!kept.has_more() && source.incoming.borrow().as_ref().is_none_or(Inbound::is_end_stream));
        true
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let source = &self.0;
        let mut incoming = source.incoming.borrow_mut();
        let Some(body) = incoming.as_mut() else { return Poll::Ready(None) };
        let mut kept = source.kept.borrow_mut();
        if let Some(frame) = kept.again() {
            if !kept.has_more() && body.is_end_stream() {
                source.ended.set(true);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        let polled = Pin::new(&mut *body).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(frame) => {
                source.touched.set(true);
                if let Some(Ok(frame)) = frame
                    && let Err(exceeded) = source.allowance.take(frame.data_ref().map_or(0, Bytes::len))
                {
                    return Poll::Ready(Some(Err(exceeded.into())));
                }
                if let Some(Ok(frame)) = frame {
                    kept.keep(frame);
                }
                match frame {
                    Some(Ok(_)) if !body.is_end_stream() => {}
                    Some(Err(_)) => source.failed.set(true),
                    _ => {
                        source.ended.set(true);
                        if let Some(done) = source.done.borrow_mut().take() {
                            done();
                        }
                    }
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        !self.0.kept.borrow().has_more() && self.0.incoming.borrow().as_ref().is_none_or(Inbound::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.0.incoming.borrow().as_ref().map_or_else(|| SizeHint::with_exact(0), Inbound::size_hint);
        match (self.0.kept.borrow().left() as u64, hint.exact()) {
            (0, _) => hint,
            (left, Some(rest)) => SizeHint::with_exact(left + rest),
            _ => SizeHint::default(),
        }
    }
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

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
    /// Over HTTP/1.1: sends a request and waits for the response head.
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
            return self.send_fresh(head, body).await;
        };
        match self.send_on(connection, head, body).await {
            Ok(response) => Ok(response),
            Err(failed) if failed.unsent || failed.is_closed() && is_repeatable(head) && body.rewind() => {
                self.effort.retries.set(self.effort.retries.get() + 1);
                self.send_fresh(head, body).await
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
        mut connection: Connection,
        head: &Parts,
        body: &RequestBody,
    ) -> Result<Response<ResponseBody>, Failed> {
        let request = Request::from_parts(head.clone(), body.clone());
        let limit = self.times.head;
        let answer = {
            let mut response = pin!(connection.sender.try_send_request(request));
            let mut driver = Pin::new(&mut connection.driver);
            let mut driving = true;
            let mut timer = None;
            poll_fn(|cx| {
                if driving {
                    driving = driver.as_mut().poll(cx).is_pending();
                }
                if let Poll::Ready(answer) = response.as_mut().poll(cx) {
                    return Poll::Ready(Some(answer));
                }
                // The time for the response begins when the request, with its body, is on its way.
                if limit.is_zero() || !body.0.ended.get() {
                    return Poll::Pending;
                }
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                timer.as_mut().poll(cx).map(|()| None)
            })
            .await
        };
        let Some(answer) = answer else {
            return Err(Failed { error: Error::HeadTimeout, unsent: false });
        };
        match answer {
            Ok(response) => {
                let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let (head, incoming) = response.into_parts();
                let mut body = ResponseBody {
                    incoming,
                    connection: Some(Box::new(connection)),
                    pools: self.pools.clone(),
                    driving: true,
                };
                if !upgraded && body.incoming.is_end_stream() {
                    poll_fn(|cx| {
                        body.finish(cx);
                        Poll::Ready(())
                    })
                    .await;
                }
                Ok(Response::from_parts(head, body))
            }
            Err(mut failed) => {
                let unsent = failed.take_message().is_some();
                Err(Failed { error: classify(failed.into_error(), body), unsent })
            }
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

fn classify(error: hyper::Error, body: &RequestBody) -> Error {
    if body.0.allowance.is_exceeded() {
        Error::BodyTooLarge
    } else if body.0.failed.get() || error.is_user() {
        Error::Body(error.into())
    } else if error.is_parse() {
        Error::Malformed(error.into())
    } else {
        Error::Closed(error.into())
    }
}

pub(super) fn is_repeatable(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || head.headers.contains_key("idempotency-key")
        || head.headers.contains_key("x-idempotency-key")
}

/// The body of a target's response. Reading it drives the connection; at its end the connection goes back to the pool.
pub(super) struct ResponseBody {
    incoming: Incoming,
    connection: Option<Box<Connection>>,
    pools: Pools,
    /// False once the driver has ended.
    driving: bool,
}

impl ResponseBody {
    /// The response is complete: keep the connection if it can take another request.
    fn finish(&mut self, cx: &mut Context<'_>) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.driving && Pin::new(&mut connection.driver).poll(cx).is_pending() && connection.sender.is_ready() {
            self.pools.put_back(*connection);
        }
    }

    /// The stream behind a 101 response, with the bytes already read from it.
    pub(super) async fn upgrade(mut self) -> Option<Upgraded> {
        let mut connection = *self.connection.take()?;
        if self.driving {
            let _ = poll_fn(|cx| connection.driver.poll_without_shutdown(cx)).await;
        }
        let parts = connection.driver.into_parts();
        Some(Upgraded { stream: parts.io.into_inner(), read: parts.read_buf })
    }
}

/// A connection that speaks something else now.
pub struct Upgraded {
    pub stream: Stream,
    pub read: Bytes,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut polled = Pin::new(&mut this.incoming).poll_frame(cx);
        if polled.is_pending()
            && this.driving
            && let Some(connection) = &mut this.connection
        {
            this.driving = Pin::new(&mut connection.driver).poll(cx).is_pending();
            // What the driver has read is there now.
            polled = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        let over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(_))) => this.incoming.is_end_stream(),
            Poll::Ready(_) => true,
        };
        if over {
            this.finish(cx);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
