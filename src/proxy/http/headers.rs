//! What a request says about its client, and what a response says about us.
//!
//! Header names are those of fabio, and so is the form of `Forwarded` (RFC 7239 would quote and separate differently).

mod client_certificate;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    STRICT_TRANSPORT_SECURITY, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Version};
use ipnet::IpNet;

use super::access;
use crate::http1::Present;
use crate::net::Peer;
use crate::proxy::Config;

pub use client_certificate::ClientHeaders;

/// Header rules with names parsed once.
pub(crate) struct Rules {
    local_ip: String,
    client_ip: Option<HeaderName>,
    tls: Option<(HeaderName, HeaderValue)>,
    pub(crate) request_id: Option<HeaderName>,
    sts: Option<HeaderValue>,
    trusted: Option<Vec<IpNet>>,
}

/// What the rules need to know about a request beside its headers.
pub(crate) struct Facts<'a> {
    pub(crate) peer: &'a Peer,
    /// As the client sent it.
    pub(crate) host: &'a str,
    pub(crate) version: Version,
    /// Fields that the request may have.
    pub(crate) present: Present,
    pub(crate) told: &'a Told,
}

/// What is said with all requests of a connection, made with the first of them.
#[derive(Debug, Default)]
pub(crate) struct Told {
    ip: OnceCell<HeaderValue>,
    /// `Forwarded` of requests of this version that have none, and are not for a WebSocket.
    forwarded: OnceCell<(Version, Option<HeaderValue>)>,
}

impl Told {
    fn ip(&self, peer: &Peer) -> &HeaderValue {
        self.ip.get_or_init(|| {
            let ip = peer.remote.ip().to_canonical().to_string();
            HeaderValue::from_maybe_shared(bytes::Bytes::from(ip)).expect("an address is a valid value")
        })
    }
}

impl Rules {
    pub(crate) fn new(config: &Config) -> Self {
        let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).ok();
        // These two always carry the client's address in their own way.
        let client_ip = name(&config.client_ip_header).filter(|name| *name != X_FORWARDED_FOR && *name != X_REAL_IP);
        let mut sts = format!("max-age={}", config.sts.max_age);
        if config.sts.subdomains {
            sts.push_str("; includeSubdomains");
        }
        if config.sts.preload {
            sts.push_str("; preload");
        }
        Self {
            local_ip: config.local_ip.clone(),
            client_ip,
            tls: name(&config.tls_header)
                .and_then(|name| Some((name, HeaderValue::from_str(&config.tls_header_value).ok()?))),
            request_id: name(&config.request_id_header),
            sts: (config.sts.max_age > 0).then(|| HeaderValue::from_str(&sts).expect("digits and words")),
            trusted: config.trusted.clone(),
        }
    }

    /// See [`distrust`].
    pub(crate) fn distrust(&self, headers: &mut HeaderMap, peer: &Peer) {
        distrust(self.trusted.as_deref(), headers, peer.remote.ip());
    }

    /// Is this peer believed about others?
    pub(crate) fn trusts(&self, peer: &Peer) -> bool {
        let address = peer.remote.ip().to_canonical();
        self.trusted.as_deref().is_none_or(|trusted| trusted.iter().any(|network| network.contains(&address)))
    }

    /// See [`access::client`].
    pub(crate) fn client(&self, headers: &HeaderMap, peer: &Peer) -> IpAddr {
        access::client(peer.remote.ip(), headers, self.trusted.as_deref())
    }

    /// Says who the client is. Hop-by-hop headers must be gone already, or a client could have these removed by naming
    /// them in `Connection`.
    pub(crate) fn introduce(&self, headers: &mut HeaderMap, facts: &Facts<'_>) {
        let ip = facts.told.ip(facts.peer);
        let scheme = self.scheme(headers, facts.present, facts.peer);
        let mut present = facts.present;
        if let Some(name) = &self.client_ip {
            headers.insert(name.clone(), ip.clone());
            present = present.with(Present::named(name.as_str()));
        }
        let empty = |headers: &HeaderMap, field, name: &HeaderName| !present.any(field) || is_empty(headers, name);
        if empty(headers, Present::X_REAL_IP, &X_REAL_IP) {
            headers.insert(X_REAL_IP, ip.clone());
        }
        let before = if present.any(Present::X_FORWARDED_FOR) { joined(headers, &X_FORWARDED_FOR) } else { None };
        let forwarded_for = match before {
            None => ip.clone(),
            Some(mut list) => {
                list.extend_from_slice(b", ");
                list.extend_from_slice(ip.as_bytes());
                HeaderValue::from_maybe_shared(bytes::Bytes::from(list)).expect("joined from valid values")
            }
        };
        headers.insert(X_FORWARDED_FOR, forwarded_for);
        self.tell_forwarded(headers, facts, present, &scheme);
        if empty(headers, Present::X_FORWARDED_PROTO, &X_FORWARDED_PROTO) {
            let proto = match scheme.as_ref() {
                b"ws" => HeaderValue::from_static("http"),
                b"wss" => HeaderValue::from_static("https"),
                b"http" => HeaderValue::from_static("http"),
                b"https" => HeaderValue::from_static("https"),
                other => HeaderValue::from_bytes(other).expect("part of a valid value"),
            };
            headers.insert(X_FORWARDED_PROTO, proto);
        }
        if empty(headers, Present::X_FORWARDED_PORT, &X_FORWARDED_PORT) {
            headers.insert(X_FORWARDED_PORT, port(facts.host, facts.peer.tls.is_some()));
        }
        if !facts.host.is_empty() && empty(headers, Present::X_FORWARDED_HOST, &X_FORWARDED_HOST) {
            let same = headers.get(HOST).filter(|host| host.as_bytes() == facts.host.as_bytes()).cloned();
            if let Some(host) = same.or_else(|| HeaderValue::from_str(facts.host).ok()) {
                headers.insert(X_FORWARDED_HOST, host);
            }
        }
        if let Some((name, value)) = &self.tls {
            if facts.peer.tls.is_some() {
                headers.insert(name.clone(), value.clone());
            } else {
                headers.remove(name);
            }
        }
    }

    /// The scheme that the client used: what one of the two headers says, else what we see.
    pub(crate) fn scheme(&self, headers: &HeaderMap, present: Present, peer: &Peer) -> Cow<'static, [u8]> {
        let given = |field, name: &HeaderName| {
            let value = if present.any(field) { first(headers, name) } else { None };
            value.filter(|value| !value.is_empty())
        };
        match (given(Present::X_FORWARDED_PROTO, &X_FORWARDED_PROTO), given(Present::FORWARDED, &FORWARDED)) {
            (Some(proto), None) => return Cow::Owned(proto.to_vec()),
            (None, Some(forwarded)) => {
                if let Some(proto) = forwarded_proto(forwarded) {
                    return Cow::Owned(proto.to_vec());
                }
            }
            _ => {}
        }
        let websocket = present.any(Present::UPGRADE)
            && first(headers, &UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
        Cow::Borrowed(match (websocket, peer.tls.is_some()) {
            (true, true) => b"wss",
            (true, false) => b"ws",
            (false, true) => b"https",
            (false, false) => b"http",
        })
    }

    fn tell_forwarded(&self, headers: &mut HeaderMap, facts: &Facts<'_>, present: Present, scheme: &[u8]) {
        let Facts { peer, version, told, .. } = *facts;
        // What depends on nothing but the connection.
        let said = Present::FORWARDED.with(Present::X_FORWARDED_PROTO);
        let plain = matches!(scheme, b"http" | b"https") && !present.any(said);
        let value = if plain {
            let line = || self.forwarded(None, told.ip(peer), scheme, version, peer);
            let (of, value) = told.forwarded.get_or_init(|| (version, line()));
            if *of == version { value.clone() } else { line() }
        } else {
            let given = first(headers, &FORWARDED).filter(|value| !value.is_empty());
            self.forwarded(given, told.ip(peer), scheme, version, peer)
        };
        if let Some(value) = value {
            headers.insert(FORWARDED, value);
        }
    }

    /// `None` if the configuration makes no value of it.
    fn forwarded(
        &self,
        given: Option<&[u8]>,
        ip: &HeaderValue,
        scheme: &[u8],
        version: Version,
        peer: &Peer,
    ) -> Option<HeaderValue> {
        let mut line: Vec<u8> = Vec::with_capacity(128);
        match given {
            Some(given) => line.extend_from_slice(given),
            None => {
                line.extend_from_slice(b"for=");
                line.extend_from_slice(ip.as_bytes());
                line.extend_from_slice(b"; proto=");
                line.extend_from_slice(scheme);
            }
        }
        if !self.local_ip.is_empty() {
            line.extend_from_slice(b"; by=");
            line.extend_from_slice(self.local_ip.as_bytes());
        }
        line.extend_from_slice(match version {
            Version::HTTP_10 => b"; httpproto=http/1.0",
            Version::HTTP_2 => b"; httpproto=http/2.0",
            _ => b"; httpproto=http/1.1",
        });
        if let Some(tls) = &peer.tls {
            let mut text = String::new();
            match tls.version {
                0x0301..=0x0304 => {
                    let _ = write!(text, "; tlsver=tls1{}", tls.version - 0x0301);
                }
                other => {
                    let _ = write!(text, "; tlsver=0x{other:04x}");
                }
            }
            let _ = write!(text, "; tlscipher=0x{:04x}", tls.cipher);
            line.extend_from_slice(text.as_bytes());
        }
        HeaderValue::from_maybe_shared(bytes::Bytes::from(line)).ok()
    }

    /// On the way to the client.
    pub(crate) fn secure_transport(&self, headers: &mut HeaderMap, peer: &Peer) {
        if peer.tls.is_some()
            && let Some(sts) = &self.sts
        {
            headers.insert(STRICT_TRANSPORT_SECURITY, sts.clone());
        }
    }

    fn is_protected(&self, name: &[u8]) -> bool {
        let configured = [self.client_ip.as_ref(), self.request_id.as_ref(), self.tls.as_ref().map(|(name, _)| name)];
        let is = |own: &HeaderName| own.as_str().as_bytes().eq_ignore_ascii_case(name);
        let begins = |with: &&str| name.get(..with.len()).is_some_and(|own| own.eq_ignore_ascii_case(with.as_bytes()));
        client_certificate::is_own(name)
            || PROTECTED.iter().any(is)
            || PROTECTED_FAMILIES.iter().any(begins)
            || configured.iter().flatten().any(|own| own.as_str().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Removes what is meant for one hop only (RFC 9110, section 7.6.1): the headers named by `Connection`, except those
    /// that we set or that decide how the message is read, and the well-known ones.
    ///
    /// `present`: fields that there may be.
    pub(crate) fn remove_hop_by_hop(&self, headers: &mut HeaderMap, present: Present) {
        if !present.any(HOP_BY_HOP) {
            return;
        }
        if headers.contains_key(CONNECTION) {
            let named: Vec<HeaderName> = headers
                .get_all(CONNECTION)
                .iter()
                .flat_map(|value| value.as_bytes().split(|b| *b == b','))
                .map(<[u8]>::trim_ascii)
                .filter(|name| !self.is_protected(name))
                .filter_map(|name| HeaderName::from_bytes(name).ok())
                .collect();
            for name in named {
                headers.remove(name);
            }
            headers.remove(CONNECTION);
        }
        for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &PROXY_AUTHENTICATE, &PROXY_AUTHORIZATION, &TRANSFER_ENCODING] {
            headers.remove(name);
        }
        headers.remove(UPGRADE);
        // Whether the client takes trailers concerns the target as well; nothing else in TE does.
        if let Some(codings) = joined(headers, &TE) {
            headers.remove(TE);
            if codings.split(|b| *b == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers")) {
                headers.insert(TE, HeaderValue::from_static("trailers"));
            }
        }
    }
}

/// Forgets what a client that is not trusted says about those before it.
pub(crate) fn distrust(trusted: Option<&[IpNet]>, headers: &mut HeaderMap, peer: IpAddr) {
    let Some(trusted) = trusted else { return };
    let address = peer.to_canonical();
    if !trusted.iter().any(|network| network.contains(&address)) {
        for name in [
            &X_FORWARDED_FOR,
            &X_FORWARDED_HOST,
            &X_FORWARDED_PORT,
            &X_FORWARDED_PROTO,
            &X_FORWARDED_PREFIX,
            &X_REAL_IP,
            &FORWARDED,
        ] {
            headers.remove(name);
        }
    }
}

/// Tells the target what was stripped from the path.
pub(crate) fn tell_prefix(headers: &mut HeaderMap, strip: &str) {
    if let Ok(prefix) = HeaderValue::from_str(strip) {
        headers.insert(X_FORWARDED_PREFIX, prefix);
    }
}

/// Leaves one length, or none, in a response: a transfer coding wins over any length (RFC 9112, section 6.3).
///
/// False: the body is in a coding that we would have to undo.
pub(crate) fn settle_length(headers: &mut HeaderMap, present: Present) -> bool {
    let codings = if present.any(Present::TRANSFER_ENCODING) { joined(headers, &TRANSFER_ENCODING) } else { None };
    if let Some(codings) = codings {
        let coding = codings.trim_ascii();
        if coding.eq_ignore_ascii_case(b"chunked") {
            headers.remove(CONTENT_LENGTH);
        } else if !coding.eq_ignore_ascii_case(b"identity") {
            return false;
        }
    }
    // hyper took the response, so several lengths are equal; on the way out it would refuse them.
    if present.any(Present::CONTENT_LENGTH)
        && headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(length) = headers.get(CONTENT_LENGTH).cloned()
    {
        headers.insert(CONTENT_LENGTH, length);
    }
    true
}

/// The protocol that the client wants to change to, if it asks for one properly. `h2c` is no business of a target. That
/// `Connection` names the field, too, is not asked of WebSocket clients, as in fabio.
pub(crate) fn upgrade(headers: &HeaderMap, version: Version, method: &Method) -> Option<HeaderValue> {
    if version != Version::HTTP_11 || *method == Method::CONNECT {
        return None;
    }
    let protocol = headers.get(UPGRADE)?;
    let websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    let named = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    let h2c =
        protocol.as_bytes().split(|b| *b == b',').any(|name| name.trim_ascii().to_ascii_lowercase().starts_with(b"h2"));
    ((named || websocket) && !h2c && !protocol.is_empty()).then(|| protocol.clone())
}

/// The port that the client meant: the one in Host, else the scheme's own.
fn port(host: &str, tls: bool) -> HeaderValue {
    // Behind the bracket of an IPv6 address, if there is one.
    let rest = host.rfind(']').map_or(host, |end| &host[end..]);
    match rest.split_once(':') {
        Some((before, port)) if !(port.is_empty() || before.is_empty()) => {
            HeaderValue::from_str(port).unwrap_or(HeaderValue::from_static("80"))
        }
        _ => HeaderValue::from_static(if tls { "443" } else { "80" }),
    }
}

/// The value of `proto=` in a Forwarded line. `httpproto=` is another one.
fn forwarded_proto(line: &[u8]) -> Option<&[u8]> {
    line.split(|b| *b == b';' || *b == b',').find_map(|pair| {
        let pair = pair.trim_ascii_start();
        let (name, value) = pair.split_at_checked(b"proto=".len())?;
        name.eq_ignore_ascii_case(b"proto=").then_some(value)
    })
}

fn first<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

fn is_empty(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).is_none_or(HeaderValue::is_empty)
}

/// All lines of a header as one list. `None` if there is nothing in them.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        if value.is_empty() {
            continue;
        }
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(value.as_bytes());
    }
    (!list.is_empty()).then_some(list)
}

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
/// What [`Rules::remove_hop_by_hop`] has to do with.
const HOP_BY_HOP: Present = Present::CONNECTION
    .with(Present::KEEP_ALIVE)
    .with(Present::PROXY_CONNECTION)
    .with(Present::PROXY_AUTHENTICATE)
    .with(Present::PROXY_AUTHORIZATION)
    .with(Present::TRANSFER_ENCODING)
    .with(Present::UPGRADE)
    .with(Present::TE);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Headers that nobody can have removed by naming them in `Connection`: those that tell about the client, those that
/// decide where a message goes, what it is and where it ends, and those that security rests on, in both directions.
const PROTECTED: [HeaderName; 28] = [
    X_FORWARDED_FOR,
    X_FORWARDED_PROTO,
    X_FORWARDED_HOST,
    X_FORWARDED_PORT,
    X_FORWARDED_PREFIX,
    X_REAL_IP,
    FORWARDED,
    http::header::HOST,
    CONTENT_LENGTH,
    http::header::AUTHORIZATION,
    http::header::COOKIE,
    http::header::TRAILER,
    http::header::SET_COOKIE,
    http::header::WWW_AUTHENTICATE,
    http::header::STRICT_TRANSPORT_SECURITY,
    http::header::X_FRAME_OPTIONS,
    http::header::X_CONTENT_TYPE_OPTIONS,
    http::header::X_XSS_PROTECTION,
    http::header::REFERRER_POLICY,
    http::header::ORIGIN,
    http::header::CACHE_CONTROL,
    http::header::VARY,
    http::header::LOCATION,
    http::header::EXPECT,
    http::header::RANGE,
    HeaderName::from_static("permissions-policy"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("proxy-authorization"),
];

/// As [`PROTECTED`]: whatever begins with these.
const PROTECTED_FAMILIES: [&str; 5] = ["content-", "access-control-", "cross-origin-", "sec-", "if-"];

#[cfg(test)]
mod tests;
