//! `log.access.format`: one of the names that stand for a format, or a template.

use http::HeaderName;

use super::field::Field;
use super::line::Line;
use super::mask::Mask;
use super::template::{self, Segment};
use super::{escape, line};

/// A format, compiled once.
#[derive(Clone, Debug, PartialEq)]
pub struct Format {
    kind: Kind,
    headers: Vec<HeaderName>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Text(Vec<Segment>),
    /// An object with a member for each field that has a value.
    Json(&'static [(&'static str, Field)]),
}

/// A format that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    Empty,
    /// The name with its `$`.
    Field(String),
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FormatError::Empty => f.write_str("Invalid log format: empty log format"),
            FormatError::Field(name) => write!(f, "Invalid log format: invalid field \"{name}\""),
        }
    }
}

impl std::error::Error for FormatError {}

impl Format {
    /// `common`, `combined`, `json`, or a template of text and `$fields`.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let template = match text {
            "" => return Err(FormatError::Empty),
            "common" => COMMON,
            "combined" => COMBINED,
            "json" => {
                let headers = JSON_HEADERS.iter().copied().map(HeaderName::from_static).collect();
                return Ok(Self { kind: Kind::Json(JSON), headers });
            }
            text => text,
        };
        let mut headers = Vec::new();
        let segments = template::parse(template, &mut headers)?;
        Ok(Self { kind: Kind::Text(segments), headers })
    }

    pub(super) fn headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// Without a line break.
    pub(super) fn render(&self, line: &Line<'_>, mask: &Mask, out: &mut Vec<u8>) {
        let view = line::View::new(line, mask, &self.headers);
        match &self.kind {
            Kind::Text(segments) => {
                for segment in segments {
                    match segment {
                        Segment::Text(text) => out.extend_from_slice(text.as_bytes()),
                        Segment::Field(field) => view.write(*field, false, out),
                        Segment::Quoted(field) => view.write(*field, true, out),
                    }
                }
            }
            Kind::Json(members) => render_json(members, &view, out),
        }
    }
}

fn render_json(members: &[(&str, Field)], view: &line::View<'_>, out: &mut Vec<u8>) {
    let mut value = Vec::new();
    let mut separator = b'{';
    for (name, field) in members {
        value.clear();
        view.write_raw(*field, &mut value);
        if value.is_empty() {
            continue;
        }
        out.push(separator);
        separator = b',';
        escape::json(name.as_bytes(), out);
        out.push(b':');
        if field.is_number() { out.extend_from_slice(&value) } else { escape::json(&value, out) }
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

/// fabio's.
const COMMON: &str = "$remote_host - - [$time_common] \"$request\" $response_status $response_body_size";
const COMBINED: &str = "$remote_host - - [$time_common] \"$request\" $response_status $response_body_size \"$header.Referer\" \"$header.User-Agent\"";

const JSON_HEADERS: &[&str] = &["referer", "user-agent", "x-forwarded-for"];

/// The members are named like the fields, so that one table explains both.
const JSON: &[(&str, Field)] = &[
    ("time", Field::TimeRfc3339(6)),
    ("protocol", Field::Protocol),
    ("remote_addr", Field::RemoteAddr),
    ("request_id", Field::RequestId),
    ("trace_id", Field::TraceId),
    ("request_method", Field::RequestMethod),
    ("request_scheme", Field::RequestScheme),
    ("request_host", Field::RequestHostReceived),
    ("request_uri", Field::RequestUri),
    ("request_proto", Field::RequestProto),
    ("response_status", Field::ResponseStatus),
    ("response_body_size", Field::ResponseBodySize),
    ("bytes_received", Field::BytesReceived),
    ("grpc_status", Field::GrpcStatus),
    ("response_time", Field::ResponseTime(6)),
    ("connect_time", Field::ConnectTime(6)),
    ("first_byte_time", Field::FirstByteTime(6)),
    ("retries", Field::Retries),
    ("outcome", Field::Outcome),
    ("upstream_service", Field::UpstreamService),
    ("upstream_addr", Field::UpstreamAddr),
    ("upstream_request_url", Field::UpstreamRequestUrl),
    ("tls_version", Field::TlsVersion),
    ("tls_cipher", Field::TlsCipher),
    ("tls_server_name", Field::TlsServerName),
    ("tls_client", Field::TlsClient),
    ("referer", Field::Header(0)),
    ("user_agent", Field::Header(1)),
    ("forwarded_for", Field::Header(2)),
];
