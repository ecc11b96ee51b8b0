//! What a line can show, and how.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue};

use super::clock::{self, Moment};
use super::escape;
use super::field::{Field, Outcome};
use super::mask::Mask;

/// The facts about one request or connection. What there is not is empty or `None`, and leaves nothing in a line.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// `http`, `websocket`, `grpc`, `tcp`.
    pub protocol: &'a str,
    pub client: SocketAddr,
    pub method: &'a str,
    /// The request target as it came.
    pub uri: &'a str,
    /// Its path, cleaned.
    pub path: &'a str,
    /// Without its question mark.
    pub query: &'a str,
    /// `HTTP/1.1`
    pub version: &'a str,
    /// As the client used it, as far as we are told.
    pub scheme: &'a [u8],
    /// As received.
    pub host: &'a [u8],
    /// As sent to the target.
    pub sent_host: &'a [u8],
    /// In the order of [`Logger::headers`](super::Logger::headers).
    pub headers: &'a [Option<HeaderValue>],
    /// 0: there was none.
    pub status: u16,
    /// Bytes of the response's body, or of a connection, to the client.
    pub sent: u64,
    /// Bytes from the client, where they are counted.
    pub received: Option<u64>,
    pub ended: SystemTime,
    pub took: Duration,
    /// Until a new connection to the target was there.
    pub connect: Option<Duration>,
    /// Until the head of the target's response was there.
    pub first_byte: Option<Duration>,
    /// How often the request was sent again.
    pub retries: Option<u32>,
    pub outcome: Outcome,
    pub upstream: Option<Upstream<'a>>,
    pub tls: Option<Tls<'a>>,
    pub request_id: &'a [u8],
    /// 32 hex digits.
    pub trace_id: &'a [u8],
    pub grpc_status: Option<u32>,
}

/// Where a request went.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    pub service: &'a str,
    pub scheme: &'a str,
    /// `host[:port]`
    pub addr: &'a str,
    /// Path and query that were sent.
    pub uri: &'a str,
}

/// What the client's TLS handshake settled; versions and ciphers as on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    pub version: u16,
    pub cipher: u16,
    pub server_name: &'a str,
    /// Subject of the certificate that the client has shown.
    pub client: &'a str,
}

impl Line<'_> {
    /// Nothing but who and when.
    pub fn new(protocol: &'static str, client: SocketAddr, took: Duration) -> Self {
        Self {
            protocol,
            client,
            method: "",
            uri: "",
            path: "",
            query: "",
            version: "",
            scheme: b"",
            host: b"",
            sent_host: b"",
            headers: &[],
            status: 0,
            sent: 0,
            received: None,
            ended: SystemTime::now(),
            took,
            connect: None,
            first_byte: None,
            retries: None,
            outcome: Outcome::Done,
            upstream: None,
            tls: None,
            request_id: b"",
            trace_id: b"",
            grpc_status: None,
        }
    }
}

/// A line with what is worked out once for all its fields.
pub(super) struct View<'a> {
    line: &'a Line<'a>,
    mask: &'a Mask,
    names: &'a [HeaderName],
    ended: Moment,
}

impl<'a> View<'a> {
    pub(super) fn new(line: &'a Line<'a>, mask: &'a Mask, names: &'a [HeaderName]) -> Self {
        Self { line, mask, names, ended: Moment::new(line.ended) }
    }

    /// The value of a field, safe to stand in a line, and between double quotes if it is `quoted`.
    pub(super) fn write(&self, field: Field, quoted: bool, out: &mut Vec<u8>) {
        let begin = out.len();
        self.write_raw(field, out);
        // A connection has neither; whoever takes lines apart counts on something being there, as in the common log format.
        if out.len() == begin && matches!(field, Field::Request | Field::ResponseStatus) {
            out.push(b'-');
        }
        if !out[begin..].iter().all(|b| escape::is_harmless(*b, quoted)) {
            let value = out.split_off(begin);
            escape::plain(&value, quoted, out);
        }
    }

    /// The value of a field as it is.
    pub(super) fn write_raw(&self, field: Field, out: &mut Vec<u8>) {
        let line = self.line;
        let upstream = |part: fn(&Upstream<'a>) -> &'a str| line.upstream.as_ref().map_or("", part);
        let tls = |part: fn(&Tls<'a>) -> &'a str| line.tls.as_ref().map_or("", part);
        match field {
            Field::Header(place) => self.header(place, out),
            Field::RemoteAddr => _ = write!(out, "{}", SocketAddr::new(self.ip(), line.client.port())),
            Field::RemoteHost => match self.ip() {
                IpAddr::V4(ip) => _ = write!(out, "{ip}"),
                IpAddr::V6(ip) => _ = write!(out, "[{ip}]"),
            },
            Field::RemotePort => _ = write!(out, "{}", line.client.port()),
            Field::Request => {
                if !line.method.is_empty() {
                    let _ = write!(out, "{} {} {}", line.method, self.mask.url(line.uri), line.version);
                }
            }
            Field::RequestArgs => out.extend_from_slice(self.mask.query(line.query).as_bytes()),
            Field::RequestHost => out.extend_from_slice(line.sent_host),
            Field::RequestHostReceived => out.extend_from_slice(line.host),
            Field::RequestMethod => out.extend_from_slice(line.method.as_bytes()),
            Field::RequestScheme => out.extend_from_slice(line.scheme),
            Field::RequestUri => out.extend_from_slice(self.mask.url(line.uri).as_bytes()),
            Field::RequestUrl => self.request_url(out),
            Field::RequestProto => out.extend_from_slice(line.version.as_bytes()),
            Field::ResponseBodySize => _ = write!(out, "{}", line.sent),
            Field::ResponseStatus => {
                if line.status > 0 {
                    let _ = write!(out, "{}", line.status);
                }
            }
            Field::ResponseTime(digits) => clock::seconds(line.took, digits, out),
            Field::TimeCommon => self.ended.common(out),
            Field::TimeRfc3339(digits) => self.ended.rfc3339(digits, out),
            Field::TimeUnix(digits) => self.ended.unix(digits, out),
            Field::UpstreamAddr => out.extend_from_slice(upstream(|u| u.addr).as_bytes()),
            Field::UpstreamHost => out.extend_from_slice(split_port(upstream(|u| u.addr)).0.as_bytes()),
            Field::UpstreamPort => out.extend_from_slice(split_port(upstream(|u| u.addr)).1.as_bytes()),
            Field::UpstreamRequestScheme => out.extend_from_slice(upstream(|u| u.scheme).as_bytes()),
            Field::UpstreamRequestUri => out.extend_from_slice(self.mask.url(upstream(|u| u.uri)).as_bytes()),
            Field::UpstreamRequestUrl => {
                if let Some(Upstream { scheme, addr, uri, .. }) = &line.upstream {
                    let _ = write!(out, "{scheme}://{addr}{}", self.mask.url(uri));
                }
            }
            Field::UpstreamService => out.extend_from_slice(upstream(|u| u.service).as_bytes()),
            Field::Protocol => out.extend_from_slice(line.protocol.as_bytes()),
            Field::BytesReceived => number(line.received, out),
            Field::ConnectTime(digits) => duration(line.connect, digits, out),
            Field::FirstByteTime(digits) => duration(line.first_byte, digits, out),
            Field::Retries => number(line.retries, out),
            Field::Outcome => out.extend_from_slice(line.outcome.name().as_bytes()),
            Field::RequestId => out.extend_from_slice(line.request_id),
            Field::TraceId => out.extend_from_slice(line.trace_id),
            Field::GrpcStatus => number(line.grpc_status, out),
            Field::TlsVersion => {
                if let Some(tls) = &line.tls {
                    out.extend_from_slice(tls_version(tls.version).as_bytes());
                }
            }
            Field::TlsCipher => {
                if let Some(tls) = &line.tls {
                    let _ = write!(out, "0x{:04x}", tls.cipher);
                }
            }
            Field::TlsServerName => out.extend_from_slice(tls(|t| t.server_name).as_bytes()),
            Field::TlsClient => out.extend_from_slice(tls(|t| t.client).as_bytes()),
        }
    }

    fn header(&self, place: usize, out: &mut Vec<u8>) {
        let Some(Some(value)) = self.line.headers.get(place) else { return };
        // The host has fields of its own, and fabio shows none here.
        match &self.names[place] {
            name if *name == http::header::HOST => {}
            name if *name == http::header::REFERER && !self.mask.is_empty() => {
                out.extend_from_slice(self.mask.url(&String::from_utf8_lossy(value.as_bytes())).as_bytes());
            }
            _ => out.extend_from_slice(value.as_bytes()),
        }
    }

    fn request_url(&self, out: &mut Vec<u8>) {
        let line = self.line;
        if line.method.is_empty() {
            return;
        }
        out.extend_from_slice(line.scheme);
        out.extend_from_slice(b"://");
        out.extend_from_slice(line.host);
        out.extend_from_slice(line.path.as_bytes());
        if !line.query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(self.mask.query(line.query).as_bytes());
        }
    }

    fn ip(&self) -> IpAddr {
        self.line.client.ip().to_canonical()
    }
}

fn number(value: Option<impl std::fmt::Display>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        let _ = write!(out, "{value}");
    }
}

fn duration(value: Option<Duration>, digits: u32, out: &mut Vec<u8>) {
    if let Some(value) = value {
        clock::seconds(value, digits, out);
    }
}

/// At the last colon; brackets stay. Without a port the host is everything.
fn split_port(addr: &str) -> (&str, &str) {
    match addr.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (addr, ""),
    }
}

fn tls_version(version: u16) -> &'static str {
    match version {
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "unknown",
    }
}
