//! What a client sends with a request that changes something, and whether it may.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::answer::{Answer, error, forbidden};
use super::{Access, State, hosts, origin};

/// Whether somebody may change something: never with `ro`, and no page of another site.
pub(super) fn may_change(state: &State, headers: &HeaderMap) -> Result<(), Answer> {
    if state.config.access != Access::ReadWrite {
        return Err(forbidden());
    }
    if !origin::is_ours(headers) {
        return Err(error(StatusCode::FORBIDDEN, "Forbidden: the request comes from a page of another site"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // Programs say nothing about a page, and have no need of protection from one.
    let browser = headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site");
    if browser && !hosts::is_known(host, &state.config.hosts) {
        return Err(error(StatusCode::FORBIDDEN, &unknown_host(host)));
    }
    Ok(())
}

pub(super) fn unknown_host(host: &str) -> String {
    format!("Forbidden: {host:?} is not known to be a name of this server; ui.hosts has to list it")
}

/// The whole body, `limit` bytes at most.
pub(super) async fn body(request: Request<Incoming>, limit: usize) -> Result<Bytes, Answer> {
    let too_large = || error(StatusCode::PAYLOAD_TOO_LARGE, "request body too large");
    // Said at once, where the length is known: the client may be waiting for a word before it sends.
    if request.body().size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(reason)) if reason.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(reason)) => Err(error(StatusCode::BAD_REQUEST, &reason.to_string())),
        Err(_) => Err(error(StatusCode::REQUEST_TIMEOUT, "the request body did not come in time")),
    }
}

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
