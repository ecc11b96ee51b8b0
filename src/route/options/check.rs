//! `check`, `checkinterval`, `checktimeout`: whether a target is asked how it is, beside what its registry says.

use std::collections::BTreeMap;
use std::time::Duration;

use super::time;

/// How a target is probed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    pub kind: CheckKind,
    /// `checkinterval`: from the begin of a probe to the next one, more or less. Default: 10 s.
    pub interval: Duration,
    /// `checktimeout`: for a whole probe. Default: 2 s.
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Accepts a connection, and TLS if the target has it.
    Tcp,
    /// Answers a GET for this path and query with 200 to 399.
    Http(String),
    /// Says by the gRPC health protocol that this service is served; "": the server as a whole.
    Grpc(String),
}

impl Check {
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let Some(text) = raw.get("check") else { return Ok(None) };
        let kind = match text.split_once(':') {
            None if text == "tcp" => CheckKind::Tcp,
            Some(("http", path))
                if path.starts_with('/')
                    && http::uri::PathAndQuery::try_from(path).is_ok_and(|p| p.as_str() == path) =>
            {
                CheckKind::Http(path.to_owned())
            }
            None if text == "grpc" => CheckKind::Grpc(String::new()),
            Some(("grpc", service)) if is_service(service) => CheckKind::Grpc(service.to_owned()),
            _ => {
                return Err(format!(
                    "check={text:?} is no check; write tcp, http: and a path as in http:/health, or grpc, perhaps with a \
                     service as in grpc:shop.Cart"
                ));
            }
        };
        let given = |key: &str, usual: Duration| match raw.get(key) {
            None => Ok(usual),
            Some(value) => match time(key, value)? {
                time if time >= SHORTEST => Ok(time),
                _ => Err(format!("{key}={value:?} is too short; write 100ms or more")),
            },
        };
        let interval = given("checkinterval", Duration::from_secs(10))?;
        let timeout = given("checktimeout", Duration::from_secs(2))?;
        Ok(Some(Box::new(Self { kind, interval, timeout })))
    }
}

/// A full name of gRPC.
fn is_service(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
}

/// Probes are to be no load.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn checks() {
        let parse = |text: &str| Check::parse(&split(text));
        assert_eq!(parse("strip=/x checkinterval=1s"), Ok(None));
        let (interval, timeout) = (Duration::from_secs(10), Duration::from_secs(2));
        assert_eq!(**parse("check=tcp").unwrap().as_ref().unwrap(), Check { kind: CheckKind::Tcp, interval, timeout });
        let check = parse("check=http:/health?full=1 checkinterval=1s checktimeout=200ms").unwrap().unwrap();
        assert_eq!(check.kind, CheckKind::Http("/health?full=1".into()));
        assert_eq!((check.interval, check.timeout), (Duration::from_secs(1), Duration::from_millis(200)));
        for (text, service) in [("check=grpc", ""), ("check=grpc:shop.Cart", "shop.Cart")] {
            assert_eq!(parse(text).unwrap().unwrap().kind, CheckKind::Grpc(service.into()));
        }
        for text in
            ["check=", "check=udp", "check=http", "check=http:x", "check=http:/a#b", "check=grpc:", "check=grpc:a,b"]
        {
            assert!(parse(text).unwrap_err().starts_with("check="), "{text}");
        }
        for text in ["check=tcp checkinterval=1ms", "check=tcp checktimeout=0", "check=tcp checktimeout=x"] {
            assert!(parse(text).unwrap_err().contains("write"), "{text}");
        }
    }
}
