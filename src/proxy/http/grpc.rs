//! gRPC calls: requests over HTTP/2 whose outcome is a status in the trailers, not the status of HTTP.
//!
//! Messages pass as they are, whatever their codec and compression. What is added to forwarding: limits of size, the
//! deadline, an outcome in gRPC's terms when we or the connection fail, and counting.

mod frames;
mod watched;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode, Version};
use tokio::time::Instant;

use super::body::Body;
use super::facts::Facts;
use super::{Client, answer};
use crate::http1::Present;
use crate::metrics::{Metrics, Shard};
use crate::upstream::Inbound;

use frames::Frames;
pub(super) use watched::Watched;

/// Of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Status {
    pub(crate) const CANCELLED: Self = Self(1);
    pub(crate) const UNKNOWN: Self = Self(2);
    pub(crate) const INVALID_ARGUMENT: Self = Self(3);
    pub(crate) const DEADLINE_EXCEEDED: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(5);
    pub(crate) const PERMISSION_DENIED: Self = Self(7);
    pub(crate) const RESOURCE_EXHAUSTED: Self = Self(8);
    pub(crate) const UNIMPLEMENTED: Self = Self(12);
    pub(crate) const INTERNAL: Self = Self(13);
    pub(crate) const UNAVAILABLE: Self = Self(14);
    pub(crate) const UNAUTHENTICATED: Self = Self(16);
}

/// `application/grpc`, perhaps with a codec, over HTTP/2. grpc-web is something else: it has its status in the body.
pub(super) fn is_call<B>(request: &Request<B>) -> bool {
    calls(request.version(), request.headers())
}

/// See [`is_call`].
pub(super) fn calls(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2
        && headers.get(CONTENT_TYPE).is_some_and(|kind| {
            let rest = kind.as_bytes().strip_prefix(b"application/grpc");
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
        })
}

/// The host of a call on a listener for gRPC: metadata `dsthost` if there is one such value, as in fabio, else the authority.
pub(super) fn host(headers: &HeaderMap, authority: HeaderValue) -> HeaderValue {
    let mut given = headers.get_all("dsthost").iter();
    match (given.next().filter(|host| host.to_str().is_ok()), given.next()) {
        (Some(host), None) => host.clone(),
        _ => authority,
    }
}

/// A call under way. Counted when the last of it is dropped.
#[derive(Clone)]
pub(super) struct Call(Rc<Inner>);

struct Inner {
    metrics: Metrics,
    shard: Shard,
    begun: std::time::Instant,
    deadline: Option<Instant>,
    /// `None`: the client went away.
    status: Cell<Option<Status>>,
    upload: Rc<Upload>,
    /// Bytes in one message of the target.
    limit: u64,
}

/// What is known of the messages of the client.
#[derive(Default)]
struct Upload {
    too_large: Cell<bool>,
    /// Of whoever passes the response on.
    waker: RefCell<Option<Waker>>,
}

impl Call {
    fn new(client: &Client, request: &mut Request<Inbound>) -> Self {
        let config = &client.worker.config;
        let upload = Rc::new(Upload::default());
        let (mut frames, seen) = (Frames::new(config.grpc_max_received), upload.clone());
        let watch = move |data: &[u8]| {
            if frames.pass(data) {
                return Ok(());
            }
            seen.too_large.set(true);
            if let Some(waker) = seen.waker.take() {
                waker.wake();
            }
            Err("a message is larger than proxy.grpcmaxrxmsgsize".into())
        };
        if let Inbound::Http2(stream) = request.body_mut() {
            stream.watch(watch);
        }
        Self(Rc::new(Inner {
            metrics: client.worker.metrics.clone(),
            shard: client.worker.shard,
            begun: std::time::Instant::now(),
            deadline: timeout(request.headers()).and_then(|timeout| Instant::now().checked_add(timeout)),
            status: Cell::new(None),
            upload,
            limit: config.grpc_max_received.min(config.grpc_max_sent),
        }))
    }

    fn ended(&self, status: Status) {
        self.0.status.set(Some(status));
    }

    /// What the head or the trailers say, if they say something.
    fn told(&self, fields: &HeaderMap) {
        if let Some(status) = fields.get(GRPC_STATUS) {
            let status = status.to_str().ok().and_then(|status| status.parse().ok());
            self.ended(status.map_or(Status::UNKNOWN, Status));
        }
    }

    /// Makes gRPC of an answer of our own, and watches one of a target.
    fn finish(self, response: Response<Body>) -> Response<Body> {
        self.told(response.headers());
        if !response.body().is_own() {
            if self.0.status.get().is_none() {
                self.ended(Status::UNKNOWN);
            }
            return response.map(|body| body.of_call(self));
        }
        if self.0.status.get().is_some() {
            return response;
        }
        let (status, message) = if self.0.upload.too_large.get() {
            (Status::RESOURCE_EXHAUSTED, TOO_LARGE)
        } else {
            match answer::grpc_status(&response) {
                Some(known) => known,
                None => {
                    self.ended(Status::UNKNOWN);
                    return response;
                }
            }
        };
        self.ended(status);
        let mut converted = trailers_only(status, message);
        for challenge in response.headers().get_all(WWW_AUTHENTICATE) {
            converted.headers_mut().append(WWW_AUTHENTICATE, challenge.clone());
        }
        // Tells the log what it was.
        *converted.extensions_mut() = response.into_parts().0.extensions;
        converted
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Status(status) = self.status.get().unwrap_or(Status::CANCELLED);
        self.metrics.grpc().finished(self.shard, status, self.begun.elapsed());
    }
}

/// Answers a call, or whatever has come to a listener for calls.
pub(super) async fn handle(
    client: &Client,
    mut request: Request<Inbound>,
    present: Present,
    // `wt` of the listener.
    limit: Option<std::time::Instant>,
    facts: &mut Option<Box<Facts>>,
) -> Response<Body> {
    if let Some(refusal) = no_call(&request) {
        return refusal;
    }
    if !is_call(&request) {
        // grpc-web.
        return client.respond(request, present, limit, facts).await;
    }
    let call = Call::new(client, &mut request);
    if client.listener.grpc && !has_method(request.uri().path()) {
        return call.finish(trailers_only(Status::UNIMPLEMENTED, "malformed method name"));
    }
    let response = match call.0.deadline {
        None => client.respond(request, present, limit, facts).await,
        Some(deadline) => match tokio::time::timeout_at(deadline, client.respond(request, present, limit, facts)).await
        {
            Ok(response) => response,
            Err(_) => trailers_only(Status::DEADLINE_EXCEEDED, DEADLINE),
        },
    };
    call.finish(response)
}

/// As grpc-go refuses them. Calls on other listeners are what they say they are.
fn no_call(request: &Request<Inbound>) -> Option<Response<Body>> {
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !grpc {
        let message = "a gRPC request has a content-type that begins with application/grpc";
        return Some(answer::no_call(StatusCode::UNSUPPORTED_MEDIA_TYPE, Status::INVALID_ARGUMENT, message));
    }
    if is_call(request) && *request.method() != Method::POST {
        return Some(answer::no_call(StatusCode::METHOD_NOT_ALLOWED, Status::INTERNAL, "a gRPC request is a POST"));
    }
    None
}

/// `/package.Service/Method`
fn has_method(path: &str) -> bool {
    path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).is_some()
}

/// A response that is nothing but an outcome.
pub(super) fn trailers_only(Status(status): Status, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    *headers = outcome(Status(status), message, std::mem::take(headers));
    response
}

/// The fields that tell an outcome. `message`: printable ASCII without percent signs.
fn outcome(Status(status): Status, message: &str, mut fields: HeaderMap) -> HeaderMap {
    fields.insert(GRPC_STATUS, HeaderValue::from(status));
    if let Ok(message) = HeaderValue::from_str(message) {
        fields.insert(GRPC_MESSAGE, message);
    }
    fields
}

/// `grpc-timeout`: at most eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DEADLINE: &str = "deadline exceeded";
const TOO_LARGE: &str = "message larger than the limit of the proxy";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        for (text, want) in [
            ("1S", Some(Duration::from_secs(1))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("2M", Some(Duration::from_secs(120))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1 S", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            assert_eq!(timeout(&headers), want, "{text}");
        }
    }

    #[test]
    fn calls_are_told_by_their_type() {
        for (kind, version, want) in [
            ("application/grpc", Version::HTTP_2, true),
            ("application/grpc+proto", Version::HTTP_2, true),
            ("application/grpc;charset=utf-8", Version::HTTP_2, true),
            ("application/grpc-web+proto", Version::HTTP_2, false),
            ("application/grpc", Version::HTTP_11, false),
            ("application/json", Version::HTTP_2, false),
        ] {
            let request = Request::post("/a/b").header(CONTENT_TYPE, kind).version(version).body(()).unwrap();
            assert_eq!(is_call(&request), want, "{kind}");
        }
    }

    #[test]
    fn methods_are_below_services() {
        for (path, want) in [("/a.B/C", true), ("/x/a.B/C", true), ("/a", false), ("a/b", false), ("", false)] {
            assert_eq!(has_method(path), want, "{path}");
        }
    }
}
