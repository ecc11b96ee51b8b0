//! The spans of a request: one for all of it, and one for each try at a target below that. The names of facts are those of
//! OpenTelemetry's semantic conventions for HTTP and RPC, as far as there are some.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::USER_AGENT;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};

use super::facts::Facts;
use crate::access_log::Outcome;
use crate::net::Peer;
use crate::traces::{Attributes, Context, Kind, Span, Spans, Tracer, hex};
use crate::upstream::TargetState;

/// What is known of a request beside what the access log would show.
pub(crate) struct Trace {
    tracer: Rc<Tracer>,
    context: Context,
    begun: SystemTime,
    /// As far as it can be told; see [`super::access::client`].
    pub(crate) client: IpAddr,
    user_agent: Option<HeaderValue>,
    tries: Vec<Try>,
}

/// One request to a target.
struct Try {
    id: NonZeroU64,
    target: Arc<TargetState>,
    path_and_query: PathAndQuery,
    begun: Instant,
    /// `None`: its response is not over.
    ended: Option<Instant>,
    /// Of its response, or why there was none.
    answer: Option<Result<u16, &'static str>>,
    connect: Option<Duration>,
}

/// How it all ended.
pub(super) struct End<'a> {
    pub(super) target: Option<&'a TargetState>,
    pub(super) status: u16,
    /// The status is only what the log shows: nobody has got any.
    pub(super) unanswered: bool,
}

impl Trace {
    /// `trusted`: is the sender of these headers to be believed?
    pub(super) fn new(tracer: &Rc<Tracer>, headers: &HeaderMap, peer: &Peer, trusted: impl FnOnce() -> bool) -> Self {
        let context = tracer.begin(headers, trusted);
        Self {
            tracer: tracer.clone(),
            begun: SystemTime::now(),
            client: peer.remote.ip().to_canonical(),
            user_agent: if context.sampled { headers.get(USER_AGENT).cloned() } else { None },
            context,
            tries: Vec::new(),
        }
    }

    /// Somebody will look at it.
    pub(super) fn is_sampled(&self) -> bool {
        self.context.sampled
    }

    /// 32 hex digits.
    pub(super) fn id(&self) -> [u8; 32] {
        hex(self.context.trace.get())
    }

    /// The request goes to a target now, which is told the span of this try.
    pub(super) fn begin_try(&mut self, target: &Arc<TargetState>, path: &PathAndQuery, headers: &mut HeaderMap) {
        let id = self.tracer.span_id();
        self.tracer.introduce(&self.context, id, headers);
        if !self.context.sampled {
            return;
        }
        let begun = Instant::now();
        if let Some(last) = self.tries.last_mut() {
            last.ended.get_or_insert(begun);
        }
        let (target, path_and_query) = (target.clone(), path.clone());
        self.tries.push(Try { id, target, path_and_query, begun, ended: None, answer: None, connect: None });
    }

    /// The head of a response is there, or there will be none.
    pub(super) fn tried(&mut self, answer: Result<u16, &'static str>, connect: Option<Duration>) {
        if let Some(last) = self.tries.last_mut() {
            (last.answer, last.connect) = (Some(answer), connect);
            if answer.is_err() {
                last.ended = Some(Instant::now());
            }
        }
    }

    /// Everything is over.
    pub(super) fn finish(&self, facts: &Facts, end: &End<'_>) {
        if !self.context.sampled {
            return;
        }
        let now = Instant::now();
        let of = Request { trace: self, facts, call: facts.call(), now };
        self.tracer.put(|spans| {
            of.server(spans, end);
            for (count, one) in self.tries.iter().enumerate() {
                of.client(spans, one, count, end.unanswered);
            }
        });
    }
}

/// A request with all that its spans show.
struct Request<'a> {
    trace: &'a Trace,
    facts: &'a Facts,
    /// Of a gRPC call: service and method.
    call: Option<(&'a str, &'a str)>,
    now: Instant,
}

impl Request<'_> {
    fn server(&self, spans: &mut Spans<'_>, end: &End<'_>) {
        let Self { trace, facts, .. } = self;
        let error = self.error(end);
        let route = end.target.map(|target| &*target.path);
        let name = match (self.rpc_name(), route) {
            (Some(name), _) => name,
            (None, Some(route)) => format!("{} {route}", known(&facts.method).unwrap_or("HTTP")),
            (None, None) => known(&facts.method).unwrap_or("HTTP").to_owned(),
        };
        let refused = self.call.is_some() && facts.grpc_status.is_some_and(is_fault);
        let span = Span {
            context: &trace.context,
            id: trace.context.span,
            parent: trace.context.parent,
            kind: Kind::Server,
            name: &name,
            begun: self.time(facts.begun),
            ended: self.time(self.now),
            // What a client does wrong is no fault here.
            failed: end.status >= 500 || facts.outcome == Outcome::Cut || refused,
        };
        spans.add(&span, |put| {
            self.method(put);
            put.bytes("url.scheme", facts.scheme());
            put.text("url.path", facts.uri.path());
            if let Some(query) = facts.uri.query() {
                put.text("url.query", &trace.tracer.mask().query(query));
            }
            if let Some(host) = facts.host() {
                let host = String::from_utf8_lossy(host);
                let (name, port) = split_port(&host);
                put.filled("server.address", name);
                if let Some(port) = port {
                    put.number("server.port", port.into());
                }
            }
            put.text("client.address", &trace.client.to_string());
            put.text("network.peer.address", &facts.client.ip().to_canonical().to_string());
            put.number("network.peer.port", facts.client.port().into());
            put.text("network.protocol.version", version(facts.version));
            if let Some(agent) = &trace.user_agent {
                put.bytes("user_agent.original", agent.as_bytes());
            }
            if let Some(id) = facts.request_id() {
                put.bytes("ferrio.request_id", id);
            }
            if let Some(target) = end.target {
                put.text("http.route", &target.path);
                put.text("ferrio.route", &format!("{}{}", target.host, target.path));
                put.text("ferrio.service", &target.service);
            }
            if !end.unanswered {
                put.number("http.response.status_code", end.status.into());
            }
            self.rpc(put);
            if let Some(error) = error {
                put.text("error.type", &error);
            }
        });
    }

    fn client(&self, spans: &mut Spans<'_>, one: &Try, count: usize, unanswered: bool) {
        let Self { trace, facts, .. } = self;
        let (target, last) = (&*one.target, count + 1 == trace.tries.len());
        let status = one.answer.and_then(Result::ok);
        // What became of its response is known of the last one only.
        let outcome = if last { Some(facts.outcome) } else { None };
        let told = facts.grpc_status.filter(|_| last && status.is_some());
        let (error, failed) = match (one.answer, outcome) {
            (Some(Err(why)), _) => (Some(why.to_owned()), true),
            (None, _) if unanswered => (Some(Outcome::ClientGone.name().to_owned()), false),
            (Some(Ok(status)), _) if status >= 400 => (Some(status.to_string()), true),
            (_, Some(outcome @ Outcome::ClientGone)) => (Some(outcome.name().to_owned()), false),
            (_, Some(outcome @ (Outcome::Cut | Outcome::Failed(_)))) => (Some(outcome.name().to_owned()), true),
            _ => match told {
                Some(status) if status != 0 => (Some(status.to_string()), true),
                _ => (None, false),
            },
        };
        let name = self.rpc_name();
        let span = Span {
            context: &trace.context,
            id: one.id,
            parent: Some(trace.context.span),
            kind: Kind::Client,
            name: name.as_deref().or(known(&facts.method)).unwrap_or("HTTP"),
            begun: self.time(one.begun),
            ended: self.time(one.ended.unwrap_or(self.now)),
            failed,
        };
        spans.add(&span, |put| {
            self.method(put);
            let destination = &target.destination;
            let path = one.path_and_query.path();
            let query = match one.path_and_query.query() {
                Some(query) => format!("?{}", trace.tracer.mask().query(query)),
                None => String::new(),
            };
            let (scheme, authority) = (destination.scheme.name(), &destination.authority);
            put.text("url.full", &format!("{scheme}://{authority}{path}{query}"));
            put.text("server.address", destination.socket.as_deref().unwrap_or(&destination.host));
            if destination.socket.is_none() {
                put.number("server.port", destination.port.into());
            }
            put.text("ferrio.service", &target.service);
            if count > 0 {
                put.number("http.request.resend_count", count as u64);
            }
            if let Some(status) = status {
                put.number("http.response.status_code", status.into());
            }
            if let Some(connect) = one.connect {
                put.number("ferrio.connect_time_us", u64::try_from(connect.as_micros()).unwrap_or(u64::MAX));
            }
            if last {
                self.rpc(put);
            }
            if let Some(error) = error {
                put.text("error.type", &error);
            }
        });
    }

    /// In a word.
    fn error(&self, end: &End<'_>) -> Option<String> {
        match self.facts.outcome {
            outcome @ (Outcome::Failed(_) | Outcome::Cut | Outcome::ClientGone) => Some(outcome.name().to_owned()),
            _ if end.status >= 500 => Some(end.status.to_string()),
            _ => self.facts.grpc_status.filter(|status| self.call.is_some() && *status != 0).map(|s| s.to_string()),
        }
    }

    fn method(&self, put: &mut Attributes<'_>) {
        let method = &self.facts.method;
        put.text("http.request.method", known(method).unwrap_or("_OTHER"));
        if known(method).is_none() {
            put.text("http.request.method_original", method.as_str());
        }
    }

    fn rpc(&self, put: &mut Attributes<'_>) {
        let Some((service, method)) = self.call else { return };
        put.text("rpc.system", "grpc");
        put.text("rpc.service", service);
        put.text("rpc.method", method);
        if let Some(status) = self.facts.grpc_status {
            put.number("rpc.grpc.status_code", status.into());
        }
    }

    /// Only of methods that there are: whoever calls others may make up as many names as they like.
    fn rpc_name(&self) -> Option<String> {
        let (service, method) = self.call?;
        let exists = self.facts.grpc_status.is_some_and(|status| status != UNIMPLEMENTED);
        exists.then(|| format!("{service}/{method}"))
    }

    /// Nanoseconds since 1970. All times of a request are told by one clock that nobody sets.
    fn time(&self, instant: Instant) -> u64 {
        let time = self.trace.begun + instant.saturating_duration_since(self.facts.begun);
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The name of a method that everybody knows.
fn known(method: &Method) -> Option<&'static str> {
    let all = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
    all.into_iter().find(|name| *name == method.as_str())
}

/// Is this status of a call the fault of whoever was called?
fn is_fault(status: u32) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS
    matches!(status, 2 | 4 | UNIMPLEMENTED | 13 | 14 | 15)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// Without the brackets of an address.
fn split_port(host: &str) -> (&str, Option<u16>) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, None),
    };
    (name.trim_start_matches('[').trim_end_matches(']'), port)
}

const UNIMPLEMENTED: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (host, want) in [
            ("a.test", ("a.test", None)),
            ("a.test:81", ("a.test", Some(81))),
            ("a.test:", ("a.test", None)),
            ("[::1]", ("::1", None)),
            ("[::1]:443", ("::1", Some(443))),
            ("a:99999", ("a", None)),
            ("", ("", None)),
        ] {
            assert_eq!(split_port(host), want, "{host}");
        }
    }
}
