//! The two bodies of a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;

use super::super::RequestBody;
use super::lines::Lease;
use crate::http1::is_trailer;

/// Sends a request body as fast as the target takes it. Nothing is kept but one frame.
pub(super) async fn upload(mut body: RequestBody, mut stream: SendStream<Bytes>) {
    loop {
        if body.is_end_stream() {
            let _ = stream.send_data(Bytes::new(), true);
            return;
        }
        let frame = tokio::select! {
            biased;
            // The target wants no more of it; why is seen by whoever waits for its answer.
            _ = std::future::poll_fn(|cx| stream.poll_reset(cx)) => return,
            frame = body.frame() => frame,
        };
        match frame {
            None => {
                let _ = stream.send_data(Bytes::new(), true);
                return;
            }
            Some(Err(_)) => {
                // Never a clean end.
                stream.send_reset(Reason::CANCEL);
                return;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if send_data(&mut stream, data, body.is_end_stream()).await.is_none() || body.is_end_stream() {
                        return;
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let _ = stream.send_trailers(presentable(trailers));
                    }
                    return;
                }
            },
        }
    }
}

/// Trailers without what decides where a message goes or ends (RFC 9110, section 6.5.1), and without what HTTP/2 does not
/// have (RFC 9113, section 8.2.2).
pub fn presentable(mut trailers: HeaderMap) -> HeaderMap {
    while let Some(name) = trailers.keys().find(|name| !is_trailer(name)).cloned() {
        trailers.remove(name);
    }
    trailers
}

/// Waits for room. `None`: the stream is over.
pub async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes, last: bool) -> Option<()> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        let part = data.split_to(room.min(data.len()));
        let end = last && data.is_empty();
        stream.send_data(part, end).ok()?;
        if end {
            return Some(());
        }
    }
    if last {
        stream.send_data(data, true).ok()?;
    }
    Some(())
}

/// The rest of a request body, on its way while the response is. Dropped, it stops.
pub(super) enum Upload {
    /// Of a client that speaks HTTP/1.1: its connection is read by one task only, the one that reads the response.
    Here(Pin<Box<dyn Future<Output = ()>>>),
    Apart(tokio::task::JoinHandle<()>),
}

impl Upload {
    pub(super) fn start(sending: Pin<Box<impl Future<Output = ()> + 'static>>, body: &RequestBody) -> Self {
        if body.shares_connection() { Self::Here(sending) } else { Self::Apart(tokio::task::spawn_local(sending)) }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Self::Apart(task) = self {
            task.abort();
        }
    }
}

/// The body of a response. Dropped before its end, the stream is cancelled.
pub(in super::super) struct Incoming {
    stream: RecvStream,
    length: Option<u64>,
    sending: Option<Upload>,
    /// Until the end, when the stream makes room for another.
    lease: Option<Lease>,
}

impl Incoming {
    pub(super) fn new(stream: RecvStream, head: &HeaderMap, sending: Option<Upload>, lease: Lease) -> Self {
        let length = head.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, length, sending, lease: Some(lease) }
    }

    pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(Upload::Here(sending)) = &mut self.sending
            && sending.as_mut().poll(cx).is_ready()
        {
            self.sending = None;
        }
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            let data = data?;
            self.stream.flow_control().release_capacity(data.len())?;
            if let Some(length) = &mut self.length {
                *length = length.saturating_sub(data.len() as u64);
            }
            if self.stream.is_end_stream() {
                self.lease = None;
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        self.lease = None;
        Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields))))
    }

    pub(in super::super) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub(in super::super) fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            return SizeHint::with_exact(0);
        }
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}
