//! Options of a target, as written and as what they mean.

mod balance;
mod check;
mod conditions;
mod ejection;
mod known;
mod limits;
mod list;
mod mirror;
mod named;
mod reach;
mod rewrite;
mod sticky;
mod tries;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use self::balance::Balance;
pub use self::check::{Check, CheckKind};
pub use self::conditions::Conditions;
pub use self::ejection::Ejection;
pub use self::known::nearest_option;
pub(super) use self::known::truth;
pub use self::limits::{Limits, Rate, RateKey};
pub use self::list::{TAG_OPTIONS, TagOption, tag_option, tag_table};
pub use self::mirror::Mirror;
pub use self::named::Named;
pub(crate) use self::named::held;
pub use self::reach::Reach;
pub use self::rewrite::Rewrite;
pub use self::sticky::{SameSite, Sticky};
pub use self::tries::Tries;
use super::{Access, Edits, Redirect, Remark, path};

/// Options of a target, raw and parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// As written, in order of keys. Also those that mean nothing to us.
    pub raw: BTreeMap<String, String>,
    /// As written. Compared with the decoded path; see [`path::Cleaned::strip`].
    pub strip: Option<String>,
    /// With its leading slash, without dot segments, and with escapes for what a request target cannot carry.
    pub prepend: Option<String>,
    pub host: Option<HostOption>,
    pub redirect: Option<Redirect>,
    pub access: Access,
    /// Name of a scheme in `proxy.auth`.
    pub auth: Option<String>,
    /// False for `compress=off`: responses are never compressed here. Default: true.
    pub compress: bool,
    pub edits: Option<Box<Edits>>,
    /// What requests must be beside their host and path.
    pub conditions: Option<Arc<Conditions>>,
    pub rewrite: Option<Box<Rewrite>>,
    /// `maxbody`: bytes in the body of a request; 0: no limit. `None`: as `proxy.maxbody` says.
    pub max_body: Option<u64>,
    /// `errorpages`: the set of pages for our own errors. `None`: the set of the route's host.
    pub error_pages: Option<Arc<str>>,
    pub tls_skip_verify: bool,
    /// Tell the target about the client, first thing on each connection.
    pub proxy_protocol: Option<ProxyVersion>,
    /// `proto=h2`, `proto=h2c`: HTTP/2 to an https or http target.
    pub http2: bool,
    /// `grpcservername`: the name for TLS with a grpcs target.
    pub grpc_server_name: Option<Arc<str>>,
    /// `idletimeout`: how long nothing may move on a connection or session; 0: for ever. `None`: as the listener says.
    pub idle_timeout: Option<Duration>,
    /// How hard a response is tried for; `None`: as usual.
    pub tries: Option<Box<Tries>>,
    /// When the target is passed over; `None`: as usual. See [`Ejection::usual`].
    pub ejection: Option<Box<Ejection>>,
    /// `slowstart`: the time in which a new target comes to its full share; `None`: at once.
    pub slow_start: Option<Duration>,
    /// How the target is probed; `None`: not at all.
    pub check: Option<Box<Check>>,
    /// How much is taken; `None`: everything.
    pub limits: Option<Box<Limits>>,
    pub register: Option<Arc<str>>,
    pub balance: Option<Box<Balance>>,
    pub sticky: Option<Box<Sticky>>,
    pub mirror: Option<Box<Mirror>>,
    pub reach: Option<Box<Reach>>,
}

/// Of the PROXY protocol: a line of text, or binary with more facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOption {
    /// The address of the target.
    Destination,
    Name(String),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            raw: BTreeMap::new(),
            strip: None,
            prepend: None,
            host: None,
            redirect: None,
            access: Access::default(),
            auth: None,
            compress: true,
            edits: None,
            conditions: None,
            rewrite: None,
            max_body: None,
            error_pages: None,
            tls_skip_verify: false,
            proxy_protocol: None,
            http2: false,
            grpc_server_name: None,
            idle_timeout: None,
            tries: None,
            ejection: None,
            slow_start: None,
            check: None,
            limits: None,
            register: None,
            balance: None,
            sticky: None,
            mirror: None,
            reach: None,
        }
    }
}

impl Options {
    /// `k=v k=v`, in order of keys; a key without a value is printed `k=`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.raw {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        }
        text
    }

    /// Gives a meaning to the options. An error is a reason not to have the route at all; the text beside the options is
    /// a reason why the route is closed, or a word about an option that does nothing.
    pub(super) fn parse(raw: BTreeMap<String, String>) -> Result<(Arc<Self>, Option<Remark>), String> {
        if raw.is_empty() {
            return Ok((NONE.clone(), None));
        }
        let given = |key: &str| raw.get(key).map(String::as_str);
        if given(Named::OPTION).is_some() {
            return Err("options=NAME is for service tags; write the options themselves".to_owned());
        }
        let filled = |key: &str| given(key).filter(|value| !value.is_empty());
        let host = match filled("host") {
            None => None,
            Some("dst") => Some(HostOption::Destination),
            Some(name) if is_authority(name) => Some(HostOption::Name(name.to_owned())),
            Some(name) => {
                return Err(format!(
                    "host={name:?} is no host name; write host=dst, or an ASCII name with or without a port"
                ));
            }
        };
        if let Some(schemes) = given("auth")
            && schemes.split([',', '+']).any(str::is_empty)
        {
            return Err(format!(
                "auth={schemes:?} lacks a name; write auth=NAME, auth=A,B or auth=A+B with names of proxy.auth"
            ));
        }
        let redirect = given("redirect").map(Redirect::parse).transpose()?;
        let (access, warning) = Access::parse(given("allow"), given("deny"));
        let warning = warning.map(Remark::Closed).or_else(|| known::hint(&raw).map(Remark::Idle));
        let options = Self {
            strip: filled("strip").map(str::to_owned),
            prepend: filled("prepend").map(path::presentable),
            host,
            redirect,
            access,
            auth: filled("auth").map(str::to_owned),
            compress: match given("compress") {
                None | Some("" | "on" | "true") => true,
                Some("off" | "false") => false,
                Some(other) => return Err(format!("compress={other:?} is neither; write compress=on or compress=off")),
            },
            edits: Edits::parse(&raw)?,
            conditions: Conditions::parse(&raw)?.map(Arc::new),
            rewrite: Rewrite::parse(&raw)?,
            max_body: filled("maxbody").map(size).transpose()?,
            error_pages: filled("errorpages").map(page_set).transpose()?,
            tls_skip_verify: given("tlsskipverify") == Some("true"),
            proxy_protocol: match given("pxyproto") {
                Some("true" | "v1") => Some(ProxyVersion::V1),
                Some("v2") => Some(ProxyVersion::V2),
                _ => None,
            },
            http2: matches!(given("proto"), Some("h2" | "h2c")),
            grpc_server_name: filled("grpcservername").map(Into::into),
            idle_timeout: filled("idletimeout").map(|text| time("idletimeout", text)).transpose()?,
            tries: Tries::parse(&raw)?,
            ejection: Ejection::parse(&raw)?,
            check: Check::parse(&raw)?,
            limits: Limits::parse(&raw)?,
            slow_start: given("slowstart")
                .map(|text| time("slowstart", text))
                .transpose()?
                .filter(|time| !time.is_zero()),
            register: filled("register").map(Into::into),
            balance: Balance::parse(&raw)?,
            sticky: Sticky::parse(&raw)?,
            mirror: Mirror::parse(&raw)?,
            reach: Reach::parse(&raw)?,
            raw,
        };
        Ok((Arc::new(options), warning))
    }
}

/// `host [ ":" port ]`, as it stands in a Host field.
fn is_authority(text: &str) -> bool {
    let port = match text.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port,
        _ => "",
    };
    !text.contains('@')
        && text.parse::<http::uri::Authority>().is_ok()
        && (port.is_empty() || port.parse::<u16>().is_ok())
}

/// Reads `k=v k=v`: separated by white space, cut at the first `=`, the last one of a key counts.
pub(super) fn split(text: &str) -> BTreeMap<String, String> {
    text.split_whitespace().map(pair).collect()
}

pub(super) fn pair(option: &str) -> (String, String) {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    (key.to_owned(), value.to_owned())
}

/// `500ms`, `30s`, `5m`, `1h`, or `0`.
fn time(key: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("{key}={text:?} is no time; write a number with a unit, as in 500ms, 30s, 5m, 1h");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "" if number == 0 => Duration::ZERO,
        _ => return Err(wrong()),
    };
    Ok(unit * number)
}

/// Bytes: `10485760`, `512k`, `10m`, `1g`.
fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("maxbody={:?} is no size; write bytes or a number with k, m or g, as in 10m", super::excerpt(text));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(wrong()),
    };
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    number.and_then(|number| number.checked_mul(1 << unit)).ok_or_else(wrong)
}

/// One segment of a key.
fn page_set(text: &str) -> Result<Arc<str>, String> {
    if text.contains('/') || text.chars().any(char::is_whitespace) {
        return Err(format!("errorpages={:?} is no name; write errorpages=NAME", super::excerpt(text)));
    }
    Ok(text.into())
}

/// Compiles an expression that an operator wrote. It takes a bounded amount of memory, and time linear in what it is
/// matched with; bytes are bytes.
fn regex(mut builder: regex::bytes::RegexBuilder) -> Result<regex::bytes::Regex, String> {
    builder.unicode(false).size_limit(EXPRESSION).dfa_size_limit(EXPRESSION);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "is too large an expression".to_owned(),
        // The library shows the place below the text, on lines of its own.
        error => format!("is no expression: {}", error.to_string().lines().last().unwrap_or_default().trim()),
    })
}

/// Bytes of a compiled expression. Tables may have many of them.
const EXPRESSION: usize = 256 * 1024;

/// Most targets have no options, and one empty value serves them all.
static NONE: LazyLock<Arc<Options>> = LazyLock::new(Arc::default);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn meanings() {
        let (o, warning) = Options::parse(split(
            "strip=/a prepend=b host=x.com tlsskipverify=true pxyproto=true register=r auth=basic deny=ip:10.0.0.0/8 blimp a=b=c a=d grpcservername=g weight=7",
        ))
        .unwrap();
        assert_eq!(warning, None);
        assert_eq!((o.strip.as_deref(), o.prepend.as_deref()), (Some("/a"), Some("/b")));
        assert_eq!(o.host, Some(HostOption::Name("x.com".into())));
        assert_eq!((o.tls_skip_verify, o.proxy_protocol), (true, Some(ProxyVersion::V1)));
        assert_eq!((o.register.as_deref(), o.auth.as_deref()), (Some("r"), Some("basic")));
        assert!(matches!(o.access, Access::Deny(_)));
        assert_eq!(
            o.text(),
            "a=d auth=basic blimp= deny=ip:10.0.0.0/8 grpcservername=g host=x.com prepend=b pxyproto=true register=r strip=/a tlsskipverify=true weight=7"
        );
    }

    #[test]
    fn what_guards_a_route_is_never_left_out() {
        for bad in ["auth=", "auth=a+", "auth=a,,b", "auth=,a", "host=x/y", "host=a@b", "host=a:99999", "host=a:b"] {
            assert!(Options::parse(split(bad)).is_err(), "{bad}");
        }
        for good in ["auth=a", "auth=a,b", "auth=a+b", "host=dst", "host=a.com:80", "host=[::1]:80", "host=a_b"] {
            assert!(Options::parse(split(good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn booleans_are_true_only_for_true() {
        for value in ["", "1", "TRUE", "yes", "false"] {
            let (o, _) = Options::parse(split(&format!("tlsskipverify={value} pxyproto={value}"))).unwrap();
            assert!(!o.tls_skip_verify && o.proxy_protocol.is_none(), "{value}");
        }
    }

    #[test]
    fn versions_and_times() {
        for (text, version, idle) in [
            ("pxyproto=v2 idletimeout=5m", Some(ProxyVersion::V2), Some(300_000)),
            ("pxyproto=v1 idletimeout=500ms", Some(ProxyVersion::V1), Some(500)),
            ("pxyproto=v3 idletimeout=0", None, Some(0)),
            ("idletimeout=4294967295h", None, Some(4_294_967_295 * 3_600_000)),
        ] {
            let (o, _) = Options::parse(split(text)).unwrap();
            assert_eq!(o.proxy_protocol, version, "{text}");
            assert_eq!(o.idle_timeout, idle.map(Duration::from_millis), "{text}");
        }
        for time in ["5", "s", "-1s", "1.5s", "5 s", "99999999999s", "1s1s", "ä"] {
            assert!(Options::parse([("idletimeout".to_owned(), time.to_owned())].into()).is_err(), "{time}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("2k", Some(2048)),
            ("2K", Some(2048)),
            ("10m", Some(10 << 20)),
            ("10MB", Some(10 << 20)),
            ("1g", Some(1 << 30)),
            ("17179869184g", None),
            ("-1", None),
            ("1.5m", None),
            ("m", None),
            ("1t", None),
            ("1 m", None),
        ] {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn empty_values_mean_nothing() {
        let (o, warning) = Options::parse(split("strip= prepend= host= register=")).unwrap();
        assert_eq!(warning, None);
        assert_eq!(Options { raw: Default::default(), ..(*o).clone() }, Options::default());
    }
}
