//! `type=forward`: another service decides.
//!
//! It gets the head of the request without conditions and body, as a GET. 2xx lets the request in; what it answers below 500
//! goes to the client, so that it may ask for credentials or send somebody to a login page. Whatever goes wrong keeps the
//! route closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Response, Uri};
use http_body_util::BodyExt as _;

use super::{ForwardConfig, Grant, Refusal, Request};
use crate::upstream::{Effort, Endpoint, Exchange, Protocol, RequestBody, ResponseBody, TargetTls};

pub(super) struct Forward {
    endpoint: Arc<Endpoint>,
    host: HeaderValue,
    path: PathAndQuery,
    timeout: Duration,
    copy: Vec<HeaderName>,
}

impl Forward {
    /// `number`: of this scheme among all.
    pub(super) fn new(number: usize, config: &ForwardConfig) -> Self {
        let tls = config.tls.then(|| TargetTls::named(&config.host));
        Self {
            // Targets count upwards from 1.
            endpoint: Arc::new(Endpoint::new(u64::MAX - number as u64, &config.host, config.port, tls)),
            host: HeaderValue::from_str(&config.authority).unwrap_or(HeaderValue::from_static("auth")),
            path: PathAndQuery::try_from(config.path_and_query.as_str())
                .unwrap_or_else(|_| PathAndQuery::from_static("/")),
            timeout: config.timeout,
            copy: config.copy.clone(),
        }
    }

    pub(super) async fn check(&self, request: &Request<'_>, grant: &mut Grant) -> Result<(), Refusal> {
        let asked = tokio::time::timeout(self.timeout, self.ask(request)).await;
        let response = match asked {
            Ok(Ok(response)) => response,
            Ok(Err(why)) => return Err(self.unavailable(&why)),
            Err(_) => return Err(self.unavailable("no answer in time")),
        };
        if response.status().is_success() {
            for name in &self.copy {
                for value in response.headers().get_all(name) {
                    grant.set(name, value.clone());
                }
            }
            return Ok(());
        }
        if response.status().is_server_error() || response.status().is_informational() {
            return Err(self.unavailable(response.status().as_str()));
        }
        Err(Refusal::Answer(Box::new(response)))
    }

    pub(super) fn reserved(&self) -> &[HeaderName] {
        &self.copy
    }

    async fn ask(&self, request: &Request<'_>) -> Result<Response<Bytes>, String> {
        let (mut asked, ()) = http::Request::new(()).into_parts();
        asked.uri = Uri::from(self.path.clone());
        asked.headers = self.head(request);
        let effort = Effort::default();
        let exchange = Exchange {
            pools: request.pools,
            endpoint: &self.endpoint,
            protocol: Protocol::Http1,
            preamble: &[],
            times: request.pools.times(),
            effort: &effort,
        };
        let response = exchange.send(&asked, &RequestBody::empty()).await.map_err(|error| error.chain())?;
        let (mut head, body) = response.into_parts();
        let body = collect(body).await?;
        remove_hop_by_hop(&mut head.headers);
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, body))
    }

    fn head(&self, request: &Request<'_>) -> HeaderMap {
        let mut headers = request.headers.clone();
        remove_hop_by_hop(&mut headers);
        for name in NOT_FORWARDED {
            headers.remove(name);
        }
        headers.insert(HOST, self.host.clone());
        let mut set = |name: &'static str, text: &str| {
            match HeaderValue::from_str(text) {
                Ok(value) => _ = headers.insert(name, value),
                // Never what the client has put there.
                Err(_) => _ = headers.remove(name),
            }
        };
        let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
        set("x-forwarded-method", request.method.as_str());
        set("x-forwarded-host", request.host);
        set("x-forwarded-uri", &format!("{}{query}", request.path));
        if !request.headers.contains_key("x-forwarded-proto") {
            set("x-forwarded-proto", if request.peer.tls.is_some() { "https" } else { "http" });
        }
        let ip = request.peer.remote.ip().to_canonical().to_string();
        let mut chain: Vec<&str> =
            request.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
        chain.push(&ip);
        set("x-forwarded-for", &chain.join(", "));
        headers
    }

    fn unavailable(&self, why: &str) -> Refusal {
        tracing::error!("auth service {}:{}: {why}", self.endpoint.host, self.endpoint.port);
        Refusal::Unavailable
    }
}

async fn collect(mut body: ResponseBody) -> Result<Bytes, String> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Some(data) = frame.data_ref() else { continue };
        if all.len() + data.len() > LONGEST {
            return Err(format!("an answer of more than {LONGEST} bytes"));
        }
        all.extend_from_slice(data);
    }
    Ok(all.freeze())
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        // Nobody removes credentials that way.
        .filter(|name| !matches!(*name, header::AUTHORIZATION | header::COOKIE | header::CONTENT_LENGTH))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::TE, header::TRAILER, header::UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate"] {
        headers.remove(name);
    }
}

/// What belongs to the body or the cache of the other request.
const NOT_FORWARDED: [HeaderName; 10] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::EXPECT,
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Bytes of an answer: a page with a form.
const LONGEST: usize = 256 * 1024;
