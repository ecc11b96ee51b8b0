//! `retry`, `retryon`, `retrymethods`, `trytimeout`, `timeout`, `headertimeout`, `connecttimeout`: how hard a response is
//! tried for.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

use super::time;

/// How a request of this route is tried, where that differs from the usual: another target after a failure to connect, and
/// the time-outs of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// `retry`: tries after the first one. `None`: as usual.
    pub again: Option<u32>,
    on: On,
    methods: Methods,
    /// `trytimeout`: from the begin of a try to the response head.
    pub each: Option<Duration>,
    /// `timeout`: from the request to the end of the response, all tries and waiting in queues among it.
    pub total: Option<Duration>,
    /// `headertimeout`: from the end of the request to the response head. 0: no limit. `None`:
    /// `proxy.responseheadertimeout`.
    pub head: Option<Duration>,
    /// `connecttimeout`: for name, TCP and TLS together. 0: no limit. `None`: `proxy.dialtimeout`.
    pub connect: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct On {
    /// Statuses, in order, and with all of 500 to 599 if `server_errors`.
    statuses: Vec<u16>,
    server_errors: bool,
    refused: bool,
    reset: bool,
    timeout: bool,
    connect: bool,
}

impl Default for On {
    fn default() -> Self {
        Self { statuses: Vec::new(), server_errors: true, refused: true, reset: true, timeout: true, connect: true }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Methods {
    /// Those that may be repeated without harm (RFC 9110, section 9.2.2).
    #[default]
    Idempotent,
    All,
    These(Vec<Method>),
}

impl Tries {
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let mut tries = Self::default();
        for (key, value) in raw {
            match key.as_str() {
                "retry" => tries.again = Some(count(value)?),
                "retryon" => tries.on = On::parse(value)?,
                "retrymethods" => tries.methods = Methods::parse(value)?,
                "trytimeout" => tries.each = Some(time(key, value)?).filter(|time| !time.is_zero()),
                "timeout" => tries.total = Some(time(key, value)?).filter(|time| !time.is_zero()),
                "headertimeout" => tries.head = Some(time(key, value)?),
                "connecttimeout" => tries.connect = Some(time(key, value)?),
                _ => {}
            }
        }
        Ok((tries != Self::default()).then(|| Box::new(tries)))
    }

    /// Has somebody asked for more than other targets after failures to connect?
    pub fn asked(&self) -> bool {
        self.again.is_some_and(|again| again > 0)
    }

    /// May a request be sent again that was perhaps processed?
    pub fn permits(&self, method: &Method, headers: &HeaderMap) -> bool {
        let keyed = || headers.contains_key("idempotency-key") || headers.contains_key("x-idempotency-key");
        match &self.methods {
            Methods::All => true,
            Methods::These(methods) => methods.contains(method) || keyed(),
            Methods::Idempotent => method.is_idempotent() || keyed(),
        }
    }

    /// Is a response with this status no success?
    pub fn on_status(&self, status: StatusCode) -> bool {
        self.on.server_errors && status.is_server_error() || self.on.statuses.contains(&status.as_u16())
    }

    /// A stream that a target refuses was certainly not processed (RFC 9113, section 8.7).
    pub fn on_refused(&self) -> bool {
        self.on.refused
    }

    pub fn on_reset(&self) -> bool {
        self.on.reset
    }

    pub fn on_timeout(&self) -> bool {
        self.on.timeout
    }

    pub fn on_connect(&self) -> bool {
        self.on.connect
    }
}

impl On {
    fn parse(text: &str) -> Result<Self, String> {
        let mut on = Self {
            statuses: Vec::new(),
            server_errors: false,
            refused: false,
            reset: false,
            timeout: false,
            connect: false,
        };
        for word in text.split(',') {
            match word {
                "5xx" => on.server_errors = true,
                "reset" => (on.reset, on.refused) = (true, true),
                "refused-stream" => on.refused = true,
                "timeout" => on.timeout = true,
                "connect" => on.connect = true,
                _ => match word.parse() {
                    Ok(status @ 400..=599) => on.statuses.push(status),
                    _ => {
                        return Err(format!(
                            "retryon={text:?}: {word:?} is nothing to retry on; write a list of 5xx, statuses from 400 to 599, reset, timeout, connect, refused-stream"
                        ));
                    }
                },
            }
        }
        on.statuses.sort_unstable();
        on.statuses.dedup();
        Ok(on)
    }
}

impl Methods {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::All);
        }
        let method = |word: &str| {
            Method::from_bytes(word.to_ascii_uppercase().as_bytes()).map_err(|_| {
                format!("retrymethods={text:?}: {word:?} is no method; write a list as in GET,HEAD,POST, or * for all")
            })
        };
        text.split(',').map(method).collect::<Result<_, _>>().map(Self::These)
    }
}

fn count(text: &str) -> Result<u32, String> {
    match text {
        "off" => Ok(0),
        _ => text
            .parse()
            .ok()
            .filter(|count| *count <= MOST)
            .ok_or_else(|| format!("retry={text:?} is no number of tries; write 0 to {MOST}, or off, which is 0")),
    }
}

/// More than that is a storm.
const MOST: u32 = 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    fn parse(text: &str) -> Result<Option<Box<Tries>>, String> {
        Tries::parse(&split(text))
    }

    #[test]
    fn nothing_asked_for_is_nothing_kept() {
        assert_eq!(parse("strip=/a weight=1"), Ok(None));
    }

    #[test]
    fn what_is_retried_on() {
        for (text, statuses, refused, reset, timeout, connect) in [
            ("retry=2", &[500, 503, 599][..], true, true, true, true),
            ("retry=2 retryon=5xx", &[500, 503, 599], false, false, false, false),
            ("retry=2 retryon=503,reset,429", &[429, 503], true, true, false, false),
            ("retry=2 retryon=timeout,connect", &[], false, false, true, true),
            ("retry=2 retryon=refused-stream", &[], true, false, false, false),
        ] {
            let tries = parse(text).unwrap().unwrap();
            let got: Vec<u16> = [200, 404, 429, 500, 503, 599]
                .into_iter()
                .filter(|status| tries.on_status(StatusCode::from_u16(*status).unwrap()))
                .collect();
            assert_eq!(got, statuses, "{text}");
            let got = (tries.on_refused(), tries.on_reset(), tries.on_timeout(), tries.on_connect());
            assert_eq!(got, (refused, reset, timeout, connect), "{text}");
        }
    }

    #[test]
    fn which_methods() {
        let mut keyed = HeaderMap::new();
        keyed.insert("idempotency-key", http::HeaderValue::from_static("1"));
        for (text, method, headers, permitted) in [
            ("retry=1", Method::GET, &HeaderMap::new(), true),
            ("retry=1", Method::PUT, &HeaderMap::new(), true),
            ("retry=1", Method::POST, &HeaderMap::new(), false),
            ("retry=1", Method::PATCH, &HeaderMap::new(), false),
            ("retry=1", Method::POST, &keyed, true),
            ("retry=1 retrymethods=post,get", Method::POST, &HeaderMap::new(), true),
            ("retry=1 retrymethods=get", Method::PUT, &HeaderMap::new(), false),
            ("retry=1 retrymethods=*", Method::PATCH, &HeaderMap::new(), true),
        ] {
            assert_eq!(parse(text).unwrap().unwrap().permits(&method, headers), permitted, "{text} {method}");
        }
    }

    #[test]
    fn faults_name_the_option_and_the_value() {
        for (text, value) in [
            ("retry=x", "\"x\""),
            ("retry=11", "\"11\""),
            ("retry=-1", "\"-1\""),
            ("retry=", "\"\""),
            ("retryon=6xx", "\"6xx\""),
            ("retryon=200", "\"200\""),
            ("retryon=", "\"\""),
            ("retrymethods=a/b", "\"a/b\""),
            ("trytimeout=5", "\"5\""),
            ("timeout=x", "\"x\""),
            ("headertimeout=-1s", "\"-1s\""),
            ("connecttimeout=1d", "\"1d\""),
        ] {
            let reason = parse(text).unwrap_err();
            let key = text.split_once('=').unwrap().0;
            assert!(reason.starts_with(key) && reason.contains(value) && reason.contains("write"), "{text}: {reason}");
        }
    }

    #[test]
    fn times() {
        let tries = parse("trytimeout=500ms timeout=5s headertimeout=0 connecttimeout=1s").unwrap().unwrap();
        assert_eq!(tries.each, Some(Duration::from_millis(500)));
        assert_eq!(tries.total, Some(Duration::from_secs(5)));
        assert_eq!((tries.head, tries.connect), (Some(Duration::ZERO), Some(Duration::from_secs(1))));
        assert_eq!((tries.again, tries.asked()), (None, false));
    }
}
