//! What goes wrong between us and a target.

use std::fmt;
use std::io;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Target,
}

/// A request that got no response head.
#[derive(Debug)]
pub enum Error {
    /// The name does not resolve, the connection is refused or unreachable.
    Connect(io::Error),
    /// No connection within `proxy.dialtimeout`.
    ConnectTimeout,
    /// No TLS with this target: its certificate is not trusted, or it does not speak TLS.
    Tls(io::Error),
    /// No response head within `proxy.responseheadertimeout`.
    HeadTimeout,
    /// No response head in the time that the route allows (`trytimeout`, `timeout`).
    TryTimeout,
    /// The target says that it has not looked at the request (RFC 9113, section 8.7).
    Refused(Box<dyn std::error::Error + Send + Sync>),
    /// Nothing of the request was taken within `proxy.requestwritetimeout`.
    SendTimeout,
    /// The connection ended before the response head.
    Closed(Box<dyn std::error::Error + Send + Sync>),
    /// The response head cannot be understood, or is too large.
    Malformed(Box<dyn std::error::Error + Send + Sync>),
    /// The client's body ended early or cannot be understood.
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The client's body is longer than it may be.
    BodyTooLarge,
}

impl Error {
    pub fn side(&self) -> Side {
        match self {
            Error::Body(_) | Error::BodyTooLarge => Side::Client,
            _ => Side::Target,
        }
    }

    /// The target ran into one of our time-outs.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::ConnectTimeout | Error::SendTimeout | Error::HeadTimeout | Error::TryTimeout => true,
            Error::Connect(error) => error.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    /// The same for somebody else who waited for the same thing.
    pub(super) fn again(&self) -> Self {
        let told = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            Error::Connect(error) => Error::Connect(told(error)),
            Error::ConnectTimeout => Error::ConnectTimeout,
            Error::Tls(error) => Error::Tls(told(error)),
            Error::SendTimeout => Error::SendTimeout,
            Error::HeadTimeout => Error::HeadTimeout,
            Error::Refused(error) => Error::Refused(error.to_string().into()),
            Error::Closed(error) => Error::Closed(error.to_string().into()),
            Error::Malformed(error) => Error::Malformed(error.to_string().into()),
            Error::Body(error) => Error::Body(error.to_string().into()),
            Error::BodyTooLarge => Error::BodyTooLarge,
            Error::TryTimeout => Error::TryTimeout,
        }
    }

    /// There was no connection, so nothing of the request can have been processed.
    pub fn is_connect(&self) -> bool {
        matches!(self, Error::Connect(_) | Error::ConnectTimeout | Error::Tls(_))
    }

    /// One word for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Connect(_) => "connect",
            Error::ConnectTimeout => "connect_timeout",
            Error::Tls(_) => "tls",
            Error::SendTimeout => "send_timeout",
            Error::HeadTimeout => "response_timeout",
            Error::TryTimeout => "try_timeout",
            Error::Refused(_) => "refused_stream",
            Error::Closed(_) => "closed",
            Error::Malformed(_) => "malformed",
            Error::Body(_) => "client_body",
            Error::BodyTooLarge => "body_too_large",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Connect(_) => "cannot connect",
            Error::ConnectTimeout => "no connection within proxy.dialtimeout, or the route's connecttimeout",
            Error::Tls(_) => "no TLS with the target",
            Error::SendTimeout => "nothing of the request was taken within proxy.requestwritetimeout",
            Error::HeadTimeout => "no response within proxy.responseheadertimeout, or the route's headertimeout",
            Error::TryTimeout => "no response within the route's trytimeout or timeout",
            Error::Refused(_) => "the target refused the request",
            Error::Closed(_) => "the connection ended before the response",
            Error::Malformed(_) => "the response cannot be understood",
            Error::Body(_) => "the request body ended early",
            Error::BodyTooLarge => "the request body is longer than maxbody",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connect(error) | Error::Tls(error) => Some(error),
            Error::Refused(error) | Error::Closed(error) | Error::Malformed(error) | Error::Body(error) => {
                Some(&**error)
            }
            Error::ConnectTimeout
            | Error::SendTimeout
            | Error::HeadTimeout
            | Error::TryTimeout
            | Error::BodyTooLarge => None,
        }
    }
}

/// The whole chain in one line, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

impl Error {
    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}
