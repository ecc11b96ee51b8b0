//! From a request to an answer: which path, who may, and the headers that all answers have.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::Body;
use super::target::{self, Path};
use super::{
    Access, Health, State, api, certificates, control, explain, history, hosts, input, live, login, manual, pages,
};
use crate::life::Watch;

pub(super) type Answer = Response<Body>;

/// A connection, as its requests see it.
pub(super) struct Caller {
    pub(super) life: Watch,
    pub(super) client: Option<IpAddr>,
}

pub(super) async fn answer(state: &Arc<State>, caller: &Caller, request: Request<Incoming>) -> Answer {
    let mut answer = dispatch(state, caller, request).await;
    let headers = answer.headers_mut();
    for (name, value) in &PROTECTION {
        headers.entry(name).or_insert_with(|| HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert_with(|| HeaderValue::from_static("no-store"));
    answer
}

async fn dispatch(state: &Arc<State>, caller: &Caller, request: Request<Incoming>) -> Answer {
    // RFC 9112 section 3.2; hyper does not check.
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || hosts == 0 && request.version() == Version::HTTP_11 {
        return error(StatusCode::BAD_REQUEST, "400 Bad Request: exactly one Host header");
    }
    let path = match Path::parse(request.uri().path()) {
        Path::Clean(path) => path,
        Path::Detour(path) => return redirect(StatusCode::TEMPORARY_REDIRECT, &path, request.uri().query()),
        Path::Bad => return error(StatusCode::BAD_REQUEST, "400 Bad Request: malformed path"),
    };

    if path == "/health" {
        return health(state);
    }
    if state.config.access == Access::Closed {
        return forbidden();
    }
    if !state.config.hosts.is_empty() {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !hosts::is_allowed(host, &state.config.hosts) {
            return error(StatusCode::FORBIDDEN, &input::unknown_host(host));
        }
    }
    if let Err(refusal) = login::check(state, request.headers()).await {
        return refusal;
    }
    let below = match path.strip_prefix(&state.base) {
        Some("") => return redirect(StatusCode::TEMPORARY_REDIRECT, &format!("{path}/"), request.uri().query()),
        Some(below) if below.starts_with('/') => below,
        _ => return error(StatusCode::NOT_FOUND, "404 page not found"),
    };

    let suffix = |root: &str| below.strip_prefix(root).filter(|s| s.is_empty() || s.starts_with('/'));
    let query = request.uri().query();
    match below {
        "/api/config" => return api::config(state, query),
        "/api/routes" => return api::routes(state, query).await,
        "/api/table" => return api::table(state, query).await,
        "/api/version" => return text(TEXT, state.views.version),
        "/api/rejects" => return api::rejects(state, query),
        "/api/status" => return api::status(state, query),
        "/api/certificates" => return certificates::certificates(state, query),
        "/api/targets" => return api::targets(state, query),
        "/api/timeline" => return api::timeline(state, query),
        "/api/explain" => return explain::explain(state, query).await,
        "/api/stats" => return live::stats(state, &caller.life, query).await,
        "/api/events" => return live::events(state, &caller.life),
        "/api/config/effective" => return explain::ready_made(&state.views.effective_json, query),
        "/plain" => return pages::plain(state).await,
        "/favicon.ico" => return error(StatusCode::NOT_FOUND, "404 page not found"),
        _ => {}
    }
    if pages::PAGES.contains(&below) {
        return pages::app(state, "");
    }
    if let Some(name) = below.strip_prefix("/assets/") {
        return pages::asset(name);
    }

    if let Some(action) = suffix("/api/control") {
        let action = action.trim_start_matches('/').to_owned();
        return control::control(state, &action, request, caller.client).await;
    }
    if let Some(suffix) = suffix("/api/history") {
        return match (state.config.access, request.method()) {
            (Access::ReadWrite, &Method::GET) => history::history(state, suffix, query).await,
            (Access::ReadWrite, _) => not_allowed("GET"),
            _ => forbidden(),
        };
    }

    // What is left is about overrides, or nothing.
    let (api, page) = (suffix("/api/manual"), suffix("/manual"));
    if below != "/api/paths" && api.is_none() && page.is_none() {
        return redirect(StatusCode::SEE_OTHER, &format!("{}/routes", state.base), None);
    }
    if state.config.access != Access::ReadWrite {
        return forbidden();
    }
    if let Some(suffix) = page {
        return pages::app(state, suffix);
    }
    let Some(suffix) = api else {
        return match *request.method() {
            Method::GET => manual::paths(state, query).await,
            _ => not_allowed("GET"),
        };
    };
    match *request.method() {
        Method::GET => manual::read(state, suffix, query).await,
        Method::POST if suffix == "/preview" => history::preview(state, request).await,
        Method::PUT => manual::write(state, suffix, request).await,
        _ => not_allowed("GET, PUT"),
    }
}

fn health(state: &State) -> Answer {
    match (state.views.health)() {
        Health::Ready => text(TEXT, "OK\n"),
        // Whoever checks us has nobody better: all the others have as little contact as we do.
        Health::Stale(what) => text(TEXT, format!("OK ({what})\n")),
        Health::Unready(reason) => error(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

pub(super) fn text(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::from(body.into()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// As Go's `http.Error`: the text and a line feed.
pub(super) fn error(status: StatusCode, reason: &str) -> Answer {
    let mut answer = text(TEXT, format!("{reason}\n"));
    *answer.status_mut() = status;
    answer
}

pub(super) fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "not allowed");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

pub(super) fn forbidden() -> Answer {
    error(StatusCode::FORBIDDEN, "Forbidden")
}

fn redirect(status: StatusCode, path: &str, query: Option<&str>) -> Answer {
    let mut location = target::encode(path);
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    let mut answer = Answer::default();
    *answer.status_mut() = status;
    // A query that came in a request line can go into a header; `/` is for the day when it cannot.
    let location = HeaderValue::from_str(&location).unwrap_or_else(|_| HeaderValue::from_static("/"));
    answer.headers_mut().insert(LOCATION, location);
    answer
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Pages may load, ask and be shown by nobody but ourselves, and run no script but our file.
const PROTECTION: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_FRAME_OPTIONS, "DENY"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
