//! Where the body of a request comes from: a client connection of either protocol.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::{BodyError, H2Reply};
use crate::http1::{Downstream, Step};

/// The body of a request, as its client sends it.
pub enum Inbound {
    Http1(Downstream),
    Http2(Box<H2Inbound>),
    Empty,
}

/// The body of a stream. What was taken from it makes room for more, so that a slow target slows its client down.
pub struct H2Inbound {
    stream: h2::RecvStream,
    length: Option<u64>,
    /// Each pause may take so long; 0: any time.
    pause: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// Looks at all data on its way, and may put an end to it.
    watch: Option<Watch>,
    reply: H2Reply,
    /// Came before anybody asked for it.
    ahead: Option<Result<Bytes, h2::Error>>,
}

type Watch = Box<dyn FnMut(&[u8]) -> Result<(), BodyError>>;

impl H2Inbound {
    /// `length`: from the head, which h2 has compared with the body already. `pause`: see `rt` of listeners; 0: no limit.
    pub fn new(stream: h2::RecvStream, length: Option<u64>, pause: Duration, reply: H2Reply) -> Self {
        Self { stream, length, pause, timer: None, waiting: false, watch: None, reply, ahead: None }
    }

    /// Where interim answers go.
    pub(super) fn reply(&self) -> &H2Reply {
        &self.reply
    }

    /// Ready when the client has not waited to be told to go on.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ahead.is_none() && !self.stream.is_end_stream() {
            // Without data at its end, there are trailers, perhaps.
            self.ahead = ready!(self.stream.poll_data(cx));
        }
        self.reply.waits_no_more();
        Poll::Ready(())
    }

    /// `watch` sees all data. An error ends the body as if its client had broken off.
    pub fn watch(&mut self, watch: impl FnMut(&[u8]) -> Result<(), BodyError> + 'static) {
        self.watch = Some(Box::new(watch));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.poll_stream(cx) {
            Poll::Pending if !self.pause.is_zero() => {
                let deadline = || Instant::now() + self.pause;
                let timer = match &mut self.timer {
                    Some(timer) => timer,
                    none => none.insert(Box::pin(tokio::time::sleep_until(deadline()))),
                };
                if !std::mem::replace(&mut self.waiting, true) {
                    timer.as_mut().reset(deadline());
                }
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Some(Err("a pause of the request body took longer than the listener's rt".into())))
            }
            polled => {
                self.waiting = false;
                polled
            }
        }
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let data = match self.ahead.take() {
            None => {
                self.reply.go_on();
                ready!(self.stream.poll_data(cx))
            }
            ahead => ahead,
        };
        if let Some(data) = data {
            let data = data?;
            self.stream.flow_control().release_capacity(data.len())?;
            if let Some(length) = &mut self.length {
                *length = length.saturating_sub(data.len() as u64);
            }
            let seen = self.watch.as_mut().map_or(Ok(()), |watch| watch(&data));
            return Poll::Ready(Some(seen.map(|()| Frame::data(data))));
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields))))
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Inbound::Http1(client) => poll_http1(client, cx),
            Inbound::Http2(stream) => stream.poll(cx),
            Inbound::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Inbound::Http1(client) => client.is_over(),
            Inbound::Http2(body) => body.ahead.is_none() && body.stream.is_end_stream(),
            Inbound::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inbound::Http1(client) => client.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Inbound::Empty => SizeHint::with_exact(0),
            Inbound::Http2(body) if body.ahead.is_none() && body.stream.is_end_stream() => SizeHint::with_exact(0),
            Inbound::Http2(body) => body.length.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

pub(super) fn poll_http1(client: &Downstream, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    client.poll_body(cx).map(|step| match step {
        Ok(Step::Data(data)) => Some(Ok(Frame::data(data))),
        Ok(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
        Ok(Step::End | Step::Wait) => None,
        Err(error) => Some(Err(error.into())),
    })
}
