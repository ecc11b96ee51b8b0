//! HTTP/2 to targets: requests share connections, each as a stream.

mod body;
mod lines;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use h2::client::SendRequest;
use http::request::Parts;
use http::uri::{Authority, Parts as UriParts, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;

use super::exchange::{Exchange, Failed, is_repeatable};
use super::{Error, RequestBody, ResponseBody};

pub(super) use body::Incoming;
use body::{Upload, upload};
pub use body::{presentable, send_data};
pub(super) use lines::Lines;
use lines::{Found, Lease};

/// How requests travel to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Http1,
    /// HTTP/2 if the target agrees in its TLS handshake, else HTTP/1.1.
    Either,
    /// HTTP/2; without TLS by prior knowledge (RFC 9113, section 3.3).
    H2,
}

/// Sends a request as a stream of a shared connection, or of one for itself if there is a preamble.
pub(super) async fn send(
    exchange: &Exchange<'_>,
    head: &Parts,
    body: &RequestBody,
) -> Result<Response<ResponseBody>, Error> {
    let mut again = 0;
    loop {
        let lease = match lines::find(exchange).await? {
            Found::Line(lease) => lease,
            Found::Shared => return exchange.send_http1(head, body).await,
            Found::Own(connection) => {
                return exchange.send_on(connection, head, body).await.map_err(|failed| failed.error);
            }
        };
        let used = lease.is_used();
        match send_on(exchange, lease, head, body).await {
            Ok(response) => return Ok(response),
            Err(Refused { failed, unprocessed, lost }) => {
                // A kept connection may have been closed at the same moment.
                let lost = lost && used && is_repeatable(head);
                let safe = failed.unsent || (unprocessed || lost) && body.rewind();
                if !safe || again == AGAIN {
                    return Err(failed.error);
                }
            }
        }
        again += 1;
        exchange.effort.retries.set(exchange.effort.retries.get() + 1);
    }
}

/// A request without a response.
struct Refused {
    failed: Failed,
    /// The target says that it has not looked at it (RFC 9113, section 8.7).
    unprocessed: bool,
    /// The connection is gone, not only the stream.
    lost: bool,
}

async fn send_on(
    exchange: &Exchange<'_>,
    lease: Lease,
    head: &Parts,
    body: &RequestBody,
) -> Result<Response<ResponseBody>, Refused> {
    let mut sender = lease.sender();
    if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
        lease.is_over();
        return Err(unsent(Error::Closed(error.into())));
    }
    let request = request(head, exchange.endpoint.tls.is_some());
    let (mut answer, sending) = open(&mut sender, request, body.is_end_stream()).map_err(|error| {
        lease.is_over_if(!is_users(&error));
        let at_fault = if is_users(&error) { Error::Malformed(error.into()) } else { Error::Closed(error.into()) };
        unsent(at_fault)
    })?;
    drop(sender);
    let mut sending = sending.map(|stream| Box::pin(upload(body.clone(), stream)));
    // Calls have deadlines of their own, and servers that stream send their heads with the first message.
    let limit = if is_call(head) { Default::default() } else { exchange.times.head };
    let mut timer = None;
    let mut interim = 0;
    let answered = poll_fn(|cx| {
        if let Some(running) = &mut sending
            && running.as_mut().poll(cx).is_ready()
        {
            sending = None;
        }
        if body.has_failed() {
            return Poll::Ready(None);
        }
        while let Poll::Ready(Some(Ok(early))) = answer.poll_informational(cx) {
            interim += 1;
            // Nor does HTTP/2 change protocols (RFC 9113, section 8.6).
            if interim > MOST_INTERIM || early.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Some(Err(Error::Malformed("interim answers that cannot be".into()))));
            }
            body.pass_interim(early.status(), early.headers(), None);
        }
        if let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) {
            return Poll::Ready(Some(Ok(answer)));
        }
        // The time for the response begins when the request, with its body, is on its way, or is not wanted any more.
        if limit.is_zero() || sending.is_some() && !body.has_ended() {
            return Poll::Pending;
        }
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(cx).map(|()| Some(Err(Error::HeadTimeout)))
    })
    .await;
    let refused = |error, unprocessed, lost| Refused { failed: Failed { error, unsent: false }, unprocessed, lost };
    match answered {
        Some(Ok(Ok(response))) => {
            lease.used();
            let (head, stream) = response.into_parts();
            let sending = sending.map(|sending| Upload::start(sending, body));
            let incoming = Incoming::new(stream, &head.headers, sending, lease);
            Ok(Response::from_parts(head, ResponseBody::h2(incoming)))
        }
        Some(Ok(Err(error))) => {
            let unprocessed = error.is_remote()
                && (error.is_go_away() || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM));
            let lost = error.is_go_away() || error.is_io();
            if lost {
                lease.is_over();
            }
            let malformed = (error.is_reset() || error.is_go_away()) && !error.is_remote();
            let error = match (malformed, unprocessed) {
                (true, _) => Error::Malformed(error.into()),
                (_, true) => Error::Refused(error.into()),
                _ => Error::Closed(error.into()),
            };
            Err(refused(error, unprocessed, lost))
        }
        Some(Err(error)) => Err(refused(error, false, false)),
        None => Err(refused(body.failure(), false, false)),
    }
}

fn is_call(head: &Parts) -> bool {
    head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn unsent(error: Error) -> Refused {
    Refused { failed: Failed { error, unsent: true }, unprocessed: true, lost: true }
}

/// Nothing is wrong with the connection.
fn is_users(error: &h2::Error) -> bool {
    !error.is_io() && !error.is_go_away() && !error.is_reset()
}

type Opened = (h2::client::ResponseFuture, Option<h2::SendStream<bytes::Bytes>>);

fn open(sender: &mut SendRequest<bytes::Bytes>, request: Request<()>, whole: bool) -> Result<Opened, h2::Error> {
    let (answer, stream) = sender.send_request(request, whole)?;
    Ok((answer, (!whole).then_some(stream)))
}

/// A request head as HTTP/2 has it: the host as `:authority`, and nothing about the connection.
fn request(head: &Parts, tls: bool) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    let headers = request.headers_mut();
    *headers = head.headers.clone();
    for name in [&header::CONNECTION, &header::TRANSFER_ENCODING, &header::UPGRADE] {
        headers.remove(name);
    }
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = host.and_then(|host| Authority::try_from(host).ok());
    let mut uri = UriParts::default();
    uri.path_and_query = head.uri.path_and_query().cloned().or(Some(PathAndQuery::from_static("/")));
    if let Some(authority) = authority {
        headers.remove(header::HOST);
        uri.authority = Some(authority);
        uri.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        *request.version_mut() = Version::HTTP_2;
    }
    // Without an authority that can be had as one, h2 takes Host as it is.
    *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
    if *request.method() == Method::CONNECT {
        // Never forwarded; h2 would ask for another form of it.
        *request.method_mut() = Method::GET;
    }
    request
}

/// A target that refuses twice is not asked a third time.
const AGAIN: u32 = 2;
const MOST_INTERIM: u32 = 100;

#[cfg(test)]
mod tests;
