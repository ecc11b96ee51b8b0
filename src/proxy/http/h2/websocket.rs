//! WebSocket over a stream (RFC 8441), to targets that know it over HTTP/1.1 only.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;

use super::super::answer::Refusal;
use super::super::{Client, Tunnel};
use super::{head, stream};
use crate::http1::Present;
use crate::life::{Phase, Watch};
use crate::upstream::{H2Reply, Inbound};

/// An extended CONNECT for a WebSocket. Any other is refused like CONNECT itself.
pub(super) fn is_asked_for<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<h2::ext::Protocol>();
    protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}

/// Makes the handshake of HTTP/1.1 with the target, then passes bytes on.
pub(super) async fn serve(client: Client, request: Request<RecvStream>, reply: H2Reply, life: Watch) {
    let wt = client.listener.write_timeout;
    let asking = ask(&client, request, &reply);
    let agreed = if wt.is_zero() {
        asking.await
    } else {
        // As on HTTP/1.1: for the handshake, and not for what comes behind it.
        match tokio::time::timeout(wt, asking).await {
            Ok(agreed) => agreed,
            Err(_) => {
                tracing::debug!("{}: the response took longer than the listener's wt", client.peer.remote);
                return reply.with(|respond| respond.send_reset(Reason::CANCEL));
            }
        }
    };
    if let Some((pipe, tunnel)) = agreed {
        relay(&client, pipe, tunnel, life).await;
    }
}

/// The handshake. `None`: there is no tunnel, and the client knows why.
async fn ask(client: &Client, request: Request<RecvStream>, reply: &H2Reply) -> Option<(Pipe, Tunnel)> {
    if request.headers().len() > client.worker.config.max_headers {
        stream::send(client, Refusal::HeadTooLarge.answer(), reply, false).await;
        return None;
    }
    let (mut head, received) = request.into_parts();
    // What a client of HTTP/1.1 would have asked.
    head.method = Method::GET;
    head.version = Version::HTTP_2;
    head.extensions.clear();
    let mut request = Request::from_parts(head, Inbound::Empty);
    head::to_http1(&mut request);
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let key = STANDARD.encode(fastrand::u128(..).to_le_bytes());
    headers.insert(KEY, HeaderValue::from_str(&key).expect("base64 is ASCII"));

    let present = Present::of(request.headers());
    let response = tokio::select! {
        biased;
        () = stream::gone(reply) => return None,
        response = client.handle(request, present) => response,
    };
    let Some(tunnel) = client.tunnel.take() else {
        stream::send(client, response, reply, false).await;
        return None;
    };
    let mut accepted = Response::new(());
    *accepted.status_mut() = StatusCode::OK;
    *accepted.headers_mut() = response.into_parts().0.headers;
    head::remove_connection_headers(accepted.headers_mut());
    accepted.headers_mut().remove(ACCEPT);
    reply.close();
    match reply.with(|respond| respond.send_response(accepted, false)) {
        Ok(sent) => {
            let active = Rc::new(Cell::new(Instant::now()));
            Some((Pipe { received, read: Bytes::new(), sent, active }, tunnel))
        }
        Err(error) => {
            tracing::debug!("{}: {error}", client.peer.remote);
            None
        }
    }
}

async fn relay(client: &Client, mut pipe: Pipe, tunnelled: Tunnel, mut life: Watch) {
    let Tunnel { mut upgraded, mut record, open: _open, .. } = tunnelled;
    let idle = record.idle_timeout().unwrap_or(client.worker.config.websocket_idle_timeout);
    let active = pipe.active.clone();
    let copying = async {
        pipe.write_all(&upgraded.read).await?;
        tokio::io::copy_bidirectional_with_sizes(&mut pipe, &mut upgraded.stream, BUFFER, BUFFER).await
    };
    tokio::select! {
        copied = copying => match copied {
            Ok((forth, back)) => record.copied(forth, back + upgraded.read.len() as u64),
            Err(error) => {
                tracing::debug!("{}: {error}", client.peer.remote);
                // A connection that broke is a stream that was cancelled (RFC 8441, section 5).
                pipe.sent.send_reset(Reason::CANCEL);
            }
        },
        () = idling(&active, idle) => {}
        () = life.reached(Phase::Closing) => {}
    }
}

/// Ends when nothing has moved for so long; 0: never.
async fn idling(active: &Cell<Instant>, limit: Duration) {
    if limit.is_zero() {
        return std::future::pending().await;
    }
    while active.get().elapsed() < limit {
        tokio::time::sleep_until(active.get() + limit).await;
    }
}

/// A stream as bytes both ways.
struct Pipe {
    received: RecvStream,
    /// Of the last frame, not yet taken.
    read: Bytes,
    sent: SendStream<Bytes>,
    /// When something moved last.
    active: Rc<Cell<Instant>>,
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.read.is_empty() {
            match ready!(this.received.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(data)) => this.read = data,
            }
        }
        this.active.set(Instant::now());
        let n = this.read.len().min(buf.remaining());
        buf.put_slice(&this.read[..n]);
        this.read.advance(n);
        let released = this.received.flow_control().release_capacity(n);
        Poll::Ready(released.map_err(io::Error::other))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        this.sent.reserve_capacity(buf.len());
        // A client that has reset its stream gives no more room.
        let room = match ready!(this.sent.poll_capacity(cx)) {
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(room) => room.map_err(io::Error::other)?,
        };
        this.active.set(Instant::now());
        let n = room.min(buf.len());
        this.sent.send_data(Bytes::copy_from_slice(&buf[..n]), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().sent.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}

/// Each way.
const BUFFER: usize = 8 * 1024;
const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
