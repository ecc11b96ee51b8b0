//! One stream: a request and its response.

use std::future::poll_fn;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::super::answer::Refusal;
use super::super::body::Body;
use super::super::{Client, grpc};
use super::{head, websocket};
use crate::http1::Present;
use crate::life::Watch;
use crate::upstream::{H2Inbound, H2Reply, Inbound, presentable, send_data};

/// Answers a request. A client that resets its stream ends everything that is done for it.
pub(super) async fn serve(client: Client, request: Request<RecvStream>, respond: SendResponse<Bytes>, life: Watch) {
    let expectation = request.headers().get(EXPECT);
    let expects = expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
        && !request.body().is_end_stream();
    let reply = H2Reply::new(respond, expects);
    if *request.method() == Method::CONNECT && websocket::is_asked_for(&request) {
        return websocket::serve(client, request, reply, life).await;
    }
    let wt = client.listener.write_timeout;
    let work = exchange(&client, request, &reply);
    if wt.is_zero() {
        return work.await;
    }
    if tokio::time::timeout_at(Instant::now() + wt, work).await.is_err() {
        tracing::debug!("{}: the response took longer than the listener's wt", client.peer.remote);
        reply.with(|respond| respond.send_reset(Reason::CANCEL));
    }
}

async fn exchange(client: &Client, request: Request<RecvStream>, reply: &H2Reply) {
    let head_only = *request.method() == Method::HEAD;
    let response = tokio::select! {
        biased;
        _ = gone(reply) => return,
        response = answer(client, request, reply) => response,
    };
    send(client, response, reply, head_only).await;
}

/// Ends when the client wants no answer any more.
pub(super) async fn gone(reply: &H2Reply) {
    let _ = poll_fn(|cx| reply.with(|respond| respond.poll_reset(cx))).await;
}

async fn answer(client: &Client, mut request: Request<RecvStream>, reply: &H2Reply) -> Response<Body> {
    if request.headers().len() > client.worker.config.max_headers {
        return Refusal::HeadTooLarge.answer();
    }
    head::to_http1(&mut request);
    // Calls have deadlines of their own, and may be silent for long.
    let pause = if grpc::is_call(&request) { Default::default() } else { client.listener.read_timeout };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let request = request.map(|stream| Inbound::Http2(Box::new(H2Inbound::new(stream, length, pause, reply.clone()))));
    let present = Present::of(request.headers());
    client.handle(request, present).await
}

/// Sends a response until it is over, or nobody wants it any more.
pub(super) async fn send(client: &Client, response: Response<Body>, reply: &H2Reply, head_only: bool) {
    reply.close();
    let (mut head, mut body) = response.into_parts();
    head::remove_connection_headers(&mut head.headers);
    if head_only && !body.is_end_stream() {
        if let Some(length) = body.size_hint().exact() {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        body = body.without_content();
    }
    let over = body.is_end_stream();
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    match reply.with(|respond| respond.send_response(response, over)) {
        Ok(mut stream) if !over => match body.deadline() {
            None => send_body(body, &mut stream).await,
            Some(at) => {
                if tokio::time::timeout_at(at, send_body(body, &mut stream)).await.is_err() {
                    stream.send_reset(Reason::CANCEL);
                }
            }
        },
        Ok(_) => {}
        Err(error) => {
            // A header of the target that HTTP/2 does not have, or the stream is over.
            tracing::debug!("{}: {error}", client.peer.remote);
            reply.with(|respond| respond.send_reset(Reason::INTERNAL_ERROR));
        }
    }
}

/// Keeps no more than one frame, so that a client that does not read holds its target up.
async fn send_body(mut body: Body, stream: &mut SendStream<Bytes>) {
    loop {
        let frame = tokio::select! {
            biased;
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return,
            frame = body.frame() => frame,
        };
        match frame {
            None => {
                let _ = stream.send_data(Bytes::new(), true);
                return;
            }
            Some(Err(error)) => {
                let reason = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason);
                // NO_ERROR would look like the end of it.
                let reason = reason.filter(|reason| *reason != Reason::NO_ERROR).unwrap_or(Reason::INTERNAL_ERROR);
                stream.send_reset(reason);
                return;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let over = body.is_end_stream();
                    if send_data(stream, data, over).await.is_none() || over {
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
