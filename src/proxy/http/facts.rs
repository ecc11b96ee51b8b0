//! What the access log shows of a request. Kept only while there is a log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Request, Uri, Version};

use super::headers::{Rules, X_FORWARDED_FOR};
use crate::access_log::{Line, Logger, Outcome, Tls, Upstream};
use crate::http1::Present;
use crate::net::{Peer, TlsInfo};
use crate::route::path;
use crate::upstream::TargetState;

/// The request's side of a line. Copying it costs a few reference counts.
pub(crate) struct Facts {
    logger: Rc<Logger>,
    pub(crate) begun: Instant,
    client: SocketAddr,
    tls: Option<Arc<TlsInfo>>,
    method: Method,
    uri: Uri,
    version: Version,
    scheme: Cow<'static, [u8]>,
    host: Option<HeaderValue>,
    sent_host: Option<HeaderValue>,
    headers: Vec<Option<HeaderValue>>,
    request_id: Option<HeaderValue>,
    trace: Option<HeaderValue>,
    /// Path and query for the target.
    forwarded: Option<PathAndQuery>,
    pub(crate) connect: Option<Duration>,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) retries: Option<u32>,
    pub(crate) protocol: &'static str,
    /// Bytes of the body to the client, or through a connection that has changed its protocol.
    pub(crate) sent: u64,
    /// `None`: not counted.
    pub(crate) received: Option<u64>,
    pub(crate) outcome: Outcome,
    /// Of a call, in the head of its response or in its trailers.
    pub(crate) grpc_status: Option<u32>,
}

impl Facts {
    /// The request line, and nothing that an untrusted client may have made up.
    pub(crate) fn new<B>(logger: &Rc<Logger>, peer: &Peer, request: &Request<B>) -> Self {
        Self {
            logger: logger.clone(),
            begun: Instant::now(),
            client: peer.remote,
            tls: peer.tls.clone(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            scheme: Cow::Borrowed(if peer.tls.is_some() { b"https" } else { b"http" }),
            host: request.headers().get(HOST).cloned(),
            sent_host: None,
            headers: Vec::new(),
            request_id: None,
            trace: None,
            forwarded: None,
            connect: None,
            first_byte: None,
            retries: None,
            protocol: "http",
            sent: 0,
            received: None,
            outcome: Outcome::ClientGone,
            grpc_status: None,
        }
    }

    /// The headers as they came, of a client that may not be trusted already without what it says about others.
    pub(crate) fn received(&mut self, headers: &HeaderMap, present: Present, rules: &Rules, peer: &Peer) {
        self.host = headers.get(HOST).cloned();
        self.scheme = rules.scheme(headers, present, peer);
        self.request_id =
            headers.get(rules.request_id.as_ref().unwrap_or(&HeaderName::from_static("x-request-id"))).cloned();
        self.trace = headers.get("traceparent").or_else(|| headers.get("x-b3-traceid")).cloned();
        if headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            self.protocol = "grpc";
        }
        self.headers = self.logger.headers().iter().map(|name| headers.get(name).cloned()).collect();
    }

    /// The headers as they go to the target. The list of addresses stays as it came, except on WebSockets, as in fabio.
    pub(crate) fn forwarded(&mut self, headers: &HeaderMap, target: &PathAndQuery, websocket: bool) {
        self.sent_host = headers.get(HOST).cloned();
        self.forwarded = Some(target.clone());
        for (value, name) in self.headers.iter_mut().zip(self.logger.headers()) {
            if *name != X_FORWARDED_FOR || websocket {
                *value = headers.get(name).cloned();
            }
        }
    }

    /// Lines are wanted for everything.
    pub(crate) fn all(&self) -> bool {
        self.logger.all()
    }

    /// `target`: where the request went.
    pub(crate) fn write(&self, target: Option<&TargetState>, status: u16, took: Duration) {
        let cleaned = path::clean(self.uri.path());
        let whole;
        let uri = if self.uri.scheme().is_some() && self.version < Version::HTTP_2 {
            whole = self.uri.to_string();
            &whole
        } else {
            self.uri.path_and_query().map_or("", PathAndQuery::as_str)
        };
        let bytes = |value: &'_ Option<HeaderValue>| -> Vec<u8> {
            value.as_ref().map(|value| value.as_bytes().to_vec()).unwrap_or_default()
        };
        let (host, sent_host) = (bytes(&self.host), bytes(&self.sent_host));
        let line = Line {
            method: self.method.as_str(),
            uri,
            path: &cleaned.raw,
            query: self.uri.query().unwrap_or_default(),
            version: match self.version {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                Version::HTTP_3 => "HTTP/3.0",
                _ => "HTTP/1.1",
            },
            scheme: &self.scheme,
            host: &host,
            sent_host: if self.forwarded.is_some() { &sent_host } else { &host },
            headers: &self.headers,
            status,
            sent: self.sent,
            received: self.received,
            connect: self.connect,
            first_byte: self.first_byte,
            retries: self.retries,
            outcome: self.outcome,
            grpc_status: self.grpc_status,
            upstream: target.map(|target| Upstream {
                service: &target.service,
                scheme: target.destination.scheme.name(),
                addr: &target.destination.authority,
                uri: self.forwarded.as_ref().map_or("", PathAndQuery::as_str),
            }),
            tls: self.tls.as_deref().map(|tls| Tls {
                version: tls.version,
                cipher: tls.cipher,
                server_name: tls.server_name.as_deref().unwrap_or_default(),
                client: tls.client.as_deref().map_or("", |client| client.subject.as_str()),
            }),
            request_id: self.request_id.as_ref().map_or(b"", HeaderValue::as_bytes),
            trace_id: self.trace.as_ref().map_or(b"", |value| trace_id(value.as_bytes())),
            ..Line::new(self.protocol, self.client, took)
        };
        self.logger.write(&line);
    }
}

/// The trace id of `00-<trace>-<span>-01` (W3C Trace Context, section 3.2), or the whole of another form.
fn trace_id(value: &[u8]) -> &[u8] {
    value.split(|b| *b == b'-').nth(1).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    #[test]
    fn trace_ids() {
        for (header, id) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("80f198ee56343ba864fe8b2a57d3eff7", "80f198ee56343ba864fe8b2a57d3eff7"),
            ("", ""),
        ] {
            assert_eq!(super::trace_id(header.as_bytes()), id.as_bytes());
        }
    }
}
