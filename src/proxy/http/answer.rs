//! Answers that we make ourselves. The only file that decides a status for them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, ORIGIN, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{Method, Response, StatusCode};

use super::body::Body;
use super::grpc;
use crate::access_log::Outcome;
use crate::auth;
use crate::http1;
use crate::route::{Cors, ErrorPages};
use crate::upstream;

/// Why a request was not passed on. What the client did wrong is said in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// HTTP/1.1 without Host, or with several.
    MissingHost,
    /// A Host that is none.
    BadHost,
    /// A request target that is neither a path nor a URL with one.
    BadTarget,
    TargetTooLong,
    /// More header lines than are taken.
    HeadTooLarge,
    /// A host that another certificate than that of this connection is for (RFC 9110, section 15.5.20).
    Misdirected,
    /// CONNECT: we are no forward proxy.
    Connect,
    /// An expectation other than `100-continue`.
    Expectation,
    /// A transfer coding other than `chunked`.
    Coding,
    /// A body that is longer than its route lets pass.
    BodyTooLarge,
    AccessDenied,
    Unauthorized,
    /// The route is known, but none of its targets may get a request.
    NoTarget,
    /// The target's protocol is not spoken here.
    Scheme,
}

impl Refusal {
    /// The status, and what stands in the body.
    fn words(self) -> (StatusCode, &'static str) {
        match self {
            Refusal::MissingHost => (StatusCode::BAD_REQUEST, "one Host header is needed\n"),
            Refusal::BadHost => (StatusCode::BAD_REQUEST, "malformed Host header\n"),
            Refusal::BadTarget => (StatusCode::BAD_REQUEST, "malformed request target\n"),
            Refusal::TargetTooLong => (StatusCode::URI_TOO_LONG, "request target too long\n"),
            Refusal::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many header lines, or too large ones\n")
            }
            Refusal::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "this connection is for another host\n"),
            Refusal::Connect => (StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not served here\n"),
            Refusal::Expectation => (StatusCode::EXPECTATION_FAILED, ""),
            Refusal::Coding => (StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding\n"),
            Refusal::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n"),
            Refusal::AccessDenied => (StatusCode::FORBIDDEN, "access denied\n"),
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "authorization failed\n"),
            Refusal::NoTarget => (StatusCode::SERVICE_UNAVAILABLE, ""),
            Refusal::Scheme => (StatusCode::INTERNAL_SERVER_ERROR, ""),
        }
    }

    /// In words, for somebody who wants to know before.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Refusal::Expectation => "an expectation other than 100-continue",
            _ => self.words().1.trim_end(),
        }
    }

    pub(crate) fn answer(self) -> Response<Body> {
        let (status, text) = self.words();
        let mut response = mark(
            text_answer(status, text),
            match self {
                Refusal::AccessDenied => Outcome::Denied,
                Refusal::Unauthorized => Outcome::Unauthorized,
                Refusal::NoTarget => Outcome::NoTarget,
                _ => Outcome::Refused,
            },
        );
        if self.ends_connection() {
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// After these the next bytes cannot be trusted to be a request.
    fn ends_connection(self) -> bool {
        matches!(
            self,
            Refusal::MissingHost
                | Refusal::BadHost
                | Refusal::BadTarget
                | Refusal::Coding
                | Refusal::Connect
                | Refusal::Expectation
                | Refusal::BodyTooLarge
        )
    }
}

/// Does a browser ask whether a page may send a request (Fetch standard, CORS-preflight request)?
pub(crate) fn is_preflight(request: &http::request::Parts) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(ORIGIN)
        && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

pub(crate) fn preflight(cors: &Cors, asked: &HeaderMap) -> Response<Body> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    cors.permit(asked.get(ORIGIN), headers);
    if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        let method = asked.get(ACCESS_CONTROL_REQUEST_METHOD).cloned();
        headers.extend(method.map(|method| (ACCESS_CONTROL_ALLOW_METHODS, method)));
        let names = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        headers.extend(names.map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"));
    response
}

/// What the schemes of a route have against a request.
pub(crate) fn unauthorized(refusal: auth::Refusal) -> Response<Body> {
    match refusal {
        auth::Refusal::Challenge(challenges) => {
            let mut response = Refusal::Unauthorized.answer();
            for challenge in challenges {
                response.headers_mut().append(WWW_AUTHENTICATE, challenge);
            }
            response
        }
        auth::Refusal::Answer(answer) => answer.map(Body::full),
        auth::Refusal::Busy => text_answer(StatusCode::SERVICE_UNAVAILABLE, "authorization is busy\n"),
        auth::Refusal::Unavailable => text_answer(StatusCode::SERVICE_UNAVAILABLE, "authorization is not available\n"),
    }
}

/// For bytes that are no request.
pub(crate) fn flawed(flaw: http1::Flaw) -> Response<Body> {
    let (status, text) = match flaw {
        http1::Flaw::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed request\n"),
        http1::Flaw::TooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too large\n"),
        http1::Flaw::Version => (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "HTTP version not supported\n"),
        http1::Flaw::TargetTooLong => return Refusal::TargetTooLong.answer(),
        http1::Flaw::Coding => return Refusal::Coding.answer(),
    };
    mark(text_answer(status, text), Outcome::Refused)
}

/// The status for a request that got no response from its target.
pub(crate) fn status_of(error: &upstream::Error) -> StatusCode {
    match error.side() {
        upstream::Side::Client if matches!(error, upstream::Error::BodyTooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        upstream::Side::Client => StatusCode::BAD_REQUEST,
        upstream::Side::Target if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
        upstream::Side::Target => StatusCode::BAD_GATEWAY,
    }
}

/// The client went away before the response head: never sent, but counted.
pub(crate) const CLIENT_GONE: u16 = 499;

/// A target or a route has as many requests as it may have.
pub(crate) fn busy() -> Response<Body> {
    let mut response = empty(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    mark(response, Outcome::Refused)
}

/// Too many requests in too short a time (RFC 6585, section 4). `wait`: until there may be one more.
pub(crate) fn too_many(wait: Duration) -> Response<Body> {
    let mut response = text_answer(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    mark(response, Outcome::Refused)
}

pub(crate) fn failed(error: &upstream::Error) -> Response<Body> {
    if matches!(error, upstream::Error::BodyTooLarge) {
        return Refusal::BodyTooLarge.answer();
    }
    empty(status_of(error))
}

pub(crate) fn bad_gateway() -> Response<Body> {
    empty(StatusCode::BAD_GATEWAY)
}

/// The answer to `OPTIONS *`.
pub(crate) fn options() -> Response<Body> {
    empty(StatusCode::OK)
}

/// One of our own errors with the page that an operator wrote for it, if there is one. gRPC has no use for a body.
pub(crate) fn with_page(
    mut response: Response<Body>,
    pages: &ErrorPages,
    set: &str,
    asked: &HeaderMap,
) -> Response<Body> {
    let grpc = asked.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let Some(page) = pages.page(set, response.status().as_u16()).filter(|_| !grpc) else { return response };
    let html = std::str::from_utf8(page).is_ok_and(looks_like_html);
    response.headers_mut().insert(CONTENT_TYPE, page_type(html));
    *response.body_mut() = Body::full(page.clone());
    response
}

fn page_type(html: bool) -> HeaderValue {
    HeaderValue::from_static(if html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" })
}

/// The no-route page, or nothing.
pub(crate) fn no_route(status: u16, page: &str) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    mark(page_answer(status, page), Outcome::NoRoute)
}

/// The route is known, and nobody serves it: with a page of its own.
pub(crate) fn no_target(page: &str) -> Response<Body> {
    if page.is_empty() {
        return Refusal::NoTarget.answer();
    }
    mark(page_answer(StatusCode::SERVICE_UNAVAILABLE, page), Outcome::NoTarget)
}

fn page_answer(status: StatusCode, page: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::copy_from_slice(page.as_bytes())));
    *response.status_mut() = status;
    if !page.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, page_type(looks_like_html(page)));
    }
    response
}

/// What a CA reads to see that a name leads to us.
pub(crate) fn challenge(text: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::copy_from_slice(text.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

pub(crate) fn redirect(code: u16, location: &str, method: &Method) -> Response<Body> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::FOUND);
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(location) {
        headers.insert(LOCATION, value);
    }
    let mut body = Bytes::new();
    if matches!(*method, Method::GET | Method::HEAD) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        let reason = status.canonical_reason().unwrap_or("Redirect");
        body = format!("<a href=\"{}\">{reason}</a>.\n", escape(location)).into();
    }
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    mark(response, Outcome::Redirect)
}

/// What a gRPC call gets instead of one of our own answers: a status of its own, and what went wrong in a few words.
/// `None`: the answer as it is, which no call has asked for.
pub(crate) fn grpc_status(response: &Response<Body>) -> Option<(grpc::Status, &'static str)> {
    use grpc::Status;
    Some(match (outcome(response), response.status().as_u16()) {
        (Outcome::NoRoute, _) => (Status::NOT_FOUND, "no route found"),
        (Outcome::Denied, _) => (Status::PERMISSION_DENIED, "access denied"),
        (Outcome::NoTarget, _) => (Status::UNAVAILABLE, "no target"),
        (Outcome::Unauthorized, _) | (_, 401) => (Status::UNAUTHENTICATED, "authorization failed"),
        (Outcome::Redirect, _) | (_, 200..=299 | 421) => return None,
        (_, 403) => (Status::PERMISSION_DENIED, "access denied"),
        (_, 502 | 504) => (Status::UNAVAILABLE, "target unavailable"),
        (_, 503) => (Status::UNAVAILABLE, "unavailable"),
        (_, 413) => (Status::RESOURCE_EXHAUSTED, "request too large"),
        (_, 429) => (Status::RESOURCE_EXHAUSTED, "too many requests"),
        (_, 431) => (Status::RESOURCE_EXHAUSTED, "request head too large"),
        (_, 500) => (Status::INTERNAL, "internal error"),
        // What is no proper request.
        (_, 400..=499) => (Status::INTERNAL, "malformed request"),
        // A scheme that sends browsers to a login page.
        (_, 300..=399) => (Status::UNAUTHENTICATED, "authorization failed"),
        _ => (Status::UNKNOWN, "unexpected answer"),
    })
}

/// What is no call on a listener for calls.
pub(crate) fn no_call(status: StatusCode, code: grpc::Status, message: &'static str) -> Response<Body> {
    let mut response = grpc::trailers_only(code, message);
    *response.status_mut() = status;
    response
}

/// What the access log says about one of our own answers.
pub(crate) fn outcome(response: &Response<Body>) -> Outcome {
    response.extensions().get().copied().unwrap_or(Outcome::Own)
}

fn mark(mut response: Response<Body>, outcome: Outcome) -> Response<Body> {
    response.extensions_mut().insert(outcome);
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn text_answer(status: StatusCode, text: &'static str) -> Response<Body> {
    if text.is_empty() {
        return empty(status);
    }
    let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(NO_SNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// As browsers tell HTML from text (WHATWG MIME sniffing), for the tags that a page begins with.
fn looks_like_html(page: &str) -> bool {
    let start = page.trim_start().as_bytes();
    HTML_STARTS.iter().any(|tag| {
        start.len() > tag.len()
            && start[..tag.len()].eq_ignore_ascii_case(tag)
            && (tag.ends_with(b"--") || matches!(start[tag.len()], b' ' | b'>'))
    })
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&#34;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

const NO_SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
const HTML_STARTS: [&[u8]; 17] = [
    b"<!doctype html",
    b"<html",
    b"<head",
    b"<script",
    b"<iframe",
    b"<h1",
    b"<div",
    b"<font",
    b"<table",
    b"<a",
    b"<style",
    b"<title",
    b"<b",
    b"<body",
    b"<br",
    b"<p",
    b"<!--",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_from_text() {
        for (page, html) in [
            ("<html>503</html>", true),
            ("  <!DOCTYPE html><p>", true),
            ("<!-- c --><x>", true),
            ("sorry", false),
            ("<htmlx>", false),
            ("<", false),
        ] {
            assert_eq!(looks_like_html(page), html, "{page}");
        }
    }

    #[test]
    fn a_location_cannot_break_out_of_its_link() {
        assert_eq!(escape("http://x/?a=\"><script>"), "http://x/?a=&#34;&gt;&lt;script&gt;");
    }
}
