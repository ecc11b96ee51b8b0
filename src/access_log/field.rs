//! The fields that a format may name.

/// Digits are those behind the point of a second: 3, 6 or 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// By its place among the headers that the format names.
    Header(usize),
    RemoteAddr,
    RemoteHost,
    RemotePort,
    Request,
    RequestArgs,
    RequestHost,
    RequestHostReceived,
    RequestMethod,
    RequestScheme,
    RequestUri,
    RequestUrl,
    RequestProto,
    ResponseBodySize,
    ResponseStatus,
    ResponseTime(u32),
    TimeCommon,
    TimeRfc3339(u32),
    TimeUnix(u32),
    UpstreamAddr,
    UpstreamHost,
    UpstreamPort,
    UpstreamRequestScheme,
    UpstreamRequestUri,
    UpstreamRequestUrl,
    UpstreamService,
    // Not in fabio.
    Protocol,
    BytesReceived,
    ConnectTime(u32),
    FirstByteTime(u32),
    Retries,
    Outcome,
    RequestId,
    TraceId,
    GrpcStatus,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsClient,
}

impl Field {
    /// `name` comes without its `$`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }

    /// Stands in JSON without quotes.
    pub(super) fn is_number(self) -> bool {
        matches!(
            self,
            Field::ResponseStatus
                | Field::ResponseBodySize
                | Field::BytesReceived
                | Field::ResponseTime(_)
                | Field::ConnectTime(_)
                | Field::FirstByteTime(_)
                | Field::Retries
                | Field::GrpcStatus
        )
    }
}

/// How a request or a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// As it should: the whole response was sent.
    #[default]
    Done,
    /// The client went away before the end.
    ClientGone,
    /// The target, or a time-out of ours, ended the response in the middle.
    Cut,
    /// The request got no response; the word says why (`connect`, `response_timeout`, ...).
    Failed(&'static str),
    /// We answered ourselves.
    NoRoute,
    NoTarget,
    Denied,
    Unauthorized,
    Redirect,
    /// What the client sent cannot be served.
    Refused,
    /// We answered for ourselves (`OPTIONS *`).
    Own,
    /// Too many requests.
    Limited,
}

impl Outcome {
    /// Nothing went wrong that the status would not tell.
    pub(super) fn is_orderly(self) -> bool {
        !matches!(self, Outcome::ClientGone | Outcome::Cut | Outcome::Failed(_))
    }

    /// As the log shows it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::ClientGone => "client_gone",
            Outcome::Cut => "cut",
            Outcome::Failed(why) => why,
            Outcome::NoRoute => "no_route",
            Outcome::NoTarget => "no_target",
            Outcome::Denied => "denied",
            Outcome::Unauthorized => "unauthorized",
            Outcome::Redirect => "redirect",
            Outcome::Refused => "refused",
            Outcome::Own => "own",
            Outcome::Limited => "limited",
        }
    }
}

pub(super) const NAMES: &[(&str, Field)] = &[
    ("remote_addr", Field::RemoteAddr),
    ("remote_host", Field::RemoteHost),
    ("remote_port", Field::RemotePort),
    ("request", Field::Request),
    ("request_args", Field::RequestArgs),
    ("request_host", Field::RequestHost),
    ("request_method", Field::RequestMethod),
    ("request_scheme", Field::RequestScheme),
    ("request_uri", Field::RequestUri),
    ("request_url", Field::RequestUrl),
    ("request_proto", Field::RequestProto),
    ("response_body_size", Field::ResponseBodySize),
    ("response_status", Field::ResponseStatus),
    ("response_time_ms", Field::ResponseTime(3)),
    ("response_time_us", Field::ResponseTime(6)),
    ("response_time_ns", Field::ResponseTime(9)),
    ("time_common", Field::TimeCommon),
    ("time_rfc3339", Field::TimeRfc3339(0)),
    ("time_rfc3339_ms", Field::TimeRfc3339(3)),
    ("time_rfc3339_us", Field::TimeRfc3339(6)),
    ("time_rfc3339_ns", Field::TimeRfc3339(9)),
    ("time_unix_ms", Field::TimeUnix(3)),
    ("time_unix_us", Field::TimeUnix(6)),
    ("time_unix_ns", Field::TimeUnix(9)),
    ("upstream_addr", Field::UpstreamAddr),
    ("upstream_host", Field::UpstreamHost),
    ("upstream_port", Field::UpstreamPort),
    ("upstream_request_scheme", Field::UpstreamRequestScheme),
    ("upstream_request_uri", Field::UpstreamRequestUri),
    ("upstream_request_url", Field::UpstreamRequestUrl),
    ("upstream_service", Field::UpstreamService),
    ("protocol", Field::Protocol),
    ("request_host_received", Field::RequestHostReceived),
    ("bytes_received", Field::BytesReceived),
    ("connect_time_ms", Field::ConnectTime(3)),
    ("connect_time_us", Field::ConnectTime(6)),
    ("connect_time_ns", Field::ConnectTime(9)),
    ("first_byte_time_ms", Field::FirstByteTime(3)),
    ("first_byte_time_us", Field::FirstByteTime(6)),
    ("first_byte_time_ns", Field::FirstByteTime(9)),
    ("retries", Field::Retries),
    ("outcome", Field::Outcome),
    ("request_id", Field::RequestId),
    ("trace_id", Field::TraceId),
    ("grpc_status", Field::GrpcStatus),
    ("tls_version", Field::TlsVersion),
    ("tls_cipher", Field::TlsCipher),
    ("tls_server_name", Field::TlsServerName),
    ("tls_client", Field::TlsClient),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_the_access_log_names_every_field() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access-log.md");
        let page = std::fs::read_to_string(path).expect("a page");
        for (name, _) in NAMES {
            // Of times only the first unit.
            let said = name.ends_with("_us") || name.ends_with("_ns") || page.contains(&format!("`${name}`"));
            assert!(said, "docs/access-log.md lacks ${name}");
        }
    }
}
