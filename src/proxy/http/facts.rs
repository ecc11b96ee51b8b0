//! What the access log and the spans show of a request. Kept only while there is a log, or requests are traced.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Request, Uri, Version};

use super::answer::CLIENT_GONE;
use super::headers::{Rules, X_FORWARDED_FOR};
use super::traced::{End, Trace};
use crate::access_log::{Line, Logger, Outcome, Tls, Upstream};
use crate::http1::Present;
use crate::net::{Peer, TlsInfo};
use crate::route::path;
use crate::traces::Tracer;
use crate::upstream::TargetState;

/// Who wants to know about the requests of a worker.
pub struct Observers {
    logger: Option<Rc<Logger>>,
    tracer: Option<Rc<Tracer>>,
}

impl Observers {
    /// `None`: nobody does.
    pub fn new(logger: Option<Logger>, tracer: Option<Tracer>) -> Option<Self> {
        let observers = Self { logger: logger.map(Rc::new), tracer: tracer.map(Rc::new) };
        (observers.logger.is_some() || observers.tracer.is_some()).then_some(observers)
    }
}

/// The request's side of a line. Copying it costs a few reference counts.
pub(crate) struct Facts {
    /// `None`: no line is written about it.
    logger: Option<Rc<Logger>>,
    /// `None`: it is not traced.
    trace: Option<Trace>,
    pub(crate) begun: Instant,
    pub(super) client: SocketAddr,
    tls: Option<Arc<TlsInfo>>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    scheme: Cow<'static, [u8]>,
    host: Option<HeaderValue>,
    sent_host: Option<HeaderValue>,
    headers: Vec<Option<HeaderValue>>,
    request_id: Option<HeaderValue>,
    /// What the client says about its trace.
    traced_by: Option<HeaderValue>,
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
    pub(crate) fn new<B>(observers: &Observers, peer: &Peer, request: &Request<B>, rules: &Rules) -> Self {
        let trace = |tracer| Trace::new(tracer, request.headers(), peer, || rules.trusts(peer));
        Self {
            logger: observers.logger.clone(),
            trace: observers.tracer.as_ref().map(trace),
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
            traced_by: None,
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
        match &mut self.trace {
            Some(trace) => trace.client = rules.client(headers, peer),
            None => self.traced_by = headers.get("traceparent").or_else(|| headers.get("x-b3-traceid")).cloned(),
        }
        if headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            self.protocol = "grpc";
        }
        if let Some(logger) = &self.logger {
            self.headers = logger.headers().iter().map(|name| headers.get(name).cloned()).collect();
        }
    }

    /// The headers as they go to the target. The list of addresses stays as it came, except on WebSockets, as in fabio.
    pub(crate) fn forwarded(&mut self, headers: &HeaderMap, target: &PathAndQuery, websocket: bool) {
        self.sent_host = headers.get(HOST).cloned();
        self.forwarded = Some(target.clone());
        let names = self.logger.as_ref().map_or(&[][..], |logger| logger.headers());
        for (value, name) in self.headers.iter_mut().zip(names) {
            if *name != X_FORWARDED_FOR || websocket {
                *value = headers.get(name).cloned();
            }
        }
    }

    /// It is nothing that a log is about which does not show everything.
    pub(crate) fn special(&mut self) {
        self.logger.take_if(|logger| !logger.all());
    }

    /// Somebody still wants to know how it ends.
    pub(crate) fn wanted(&self) -> bool {
        self.logger.is_some() || self.trace.as_ref().is_some_and(Trace::is_sampled)
    }

    /// See [`Trace::begin_try`].
    pub(crate) fn begin_try(&mut self, target: &Arc<TargetState>, path: &PathAndQuery, headers: &mut HeaderMap) {
        if let Some(trace) = &mut self.trace {
            trace.begin_try(target, path, headers);
        }
    }

    /// See [`Trace::tried`].
    pub(crate) fn tried(&mut self, answer: Result<u16, &'static str>) {
        if let Some(trace) = &mut self.trace {
            trace.tried(answer, self.connect);
        }
    }

    pub(super) fn scheme(&self) -> &[u8] {
        &self.scheme
    }

    pub(super) fn host(&self) -> Option<&[u8]> {
        self.host.as_ref().map(HeaderValue::as_bytes)
    }

    pub(super) fn request_id(&self) -> Option<&[u8]> {
        self.request_id.as_ref().map(HeaderValue::as_bytes)
    }

    /// Of a gRPC call: its service and its method.
    pub(super) fn call(&self) -> Option<(&str, &str)> {
        let path = self.uri.path().strip_prefix('/').filter(|_| self.protocol == "grpc")?;
        path.rsplit_once('/')
    }

    /// It is over. `target`: where the request went.
    pub(crate) fn end(&self, target: Option<&TargetState>, status: u16, took: Duration) {
        if let Some(logger) = &self.logger {
            self.write(logger, target, status, took);
        }
        if let Some(trace) = &self.trace {
            let unanswered = status == CLIENT_GONE && self.outcome == Outcome::ClientGone;
            trace.finish(self, &End { target, status, unanswered });
        }
    }

    fn write(&self, logger: &Logger, target: Option<&TargetState>, status: u16, took: Duration) {
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
        let trace = self.trace.as_ref().map(Trace::id);
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
            trace_id: match (&trace, &self.traced_by) {
                (Some(id), _) => id,
                (None, Some(said)) => trace_id(said.as_bytes()),
                (None, None) => b"",
            },
            ..Line::new(self.protocol, self.client, took)
        };
        logger.write(&line);
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
