//! Listeners: `proxy.addr` and `ui.addr`.

use std::time::Duration;

use ipnet::IpNet;

use crate::listen::{ClientAuth, Config, Proto};

use super::certificates::{Entry, Kind};
use super::kvlist::{self, Map};
use super::pending;
use super::settings::Settings;
use super::sockaddr::{self, Interface};
use super::suggest::near;
use super::{duration, tls};

/// A listener, and what only `/api/config` shows of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listener {
    pub(crate) config: Config,
    pub(crate) source: Option<Entry>,
    /// In signed nanoseconds, as written.
    pub(crate) times: Times,
}

/// What `/api/config` shows when there is no listener.
impl Default for Listener {
    fn default() -> Self {
        let none = Duration::ZERO;
        let config = Config {
            addr: String::new(),
            proto: Proto::Http,
            cert_source: None,
            read_timeout: none,
            write_timeout: none,
            idle_timeout: none,
            proxy_protocol: false,
            proxy_header_timeout: none,
            proxy_trusted: Vec::new(),
            half_close: false,
            h2c: false,
            redirect: None,
            client_auth: Default::default(),
            client_headers: false,
            strict_match: false,
            tls_min: 0,
            tls_max: 0,
            tls_ciphers: Vec::new(),
            refresh: none,
        };
        Self { config, source: None, times: Times::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) read: i64,
    pub(crate) write: i64,
    pub(crate) idle: i64,
    pub(crate) header: i64,
    pub(crate) refresh: i64,
}

/// Reads all listeners of `key`. Mistakes go to the report; the listeners that are usable come back.
pub(crate) fn parse(
    settings: &mut Settings,
    key: &'static str,
    text: &str,
    defaults: Times,
    sources: &[Entry],
    interfaces: &[Interface],
) -> Vec<Listener> {
    let maps = match kvlist::parse(text) {
        Ok(maps) => maps,
        Err(token) => {
            settings.mistake(
                key,
                &format!("unexpected {token}; write [host]:port;option=value;..., with a comma between listeners"),
            );
            return Vec::new();
        }
    };
    let count = maps.len();
    let mut listeners = Vec::new();
    for (at, map) in maps.iter().enumerate() {
        let place = if count == 1 { String::new() } else { format!("listener {}: ", at + 1) };
        let mut reader = Reader { settings, key, place, map, failed: false };
        let listener = reader.listener(defaults, sources, interfaces);
        if !reader.failed {
            listeners.extend(listener.into_iter().flat_map(each_port));
        }
    }
    listeners
}

struct Reader<'a> {
    settings: &'a mut Settings,
    key: &'static str,
    place: String,
    map: &'a Map,
    failed: bool,
}

impl Reader<'_> {
    fn listener(&mut self, defaults: Times, sources: &[Entry], interfaces: &[Interface]) -> Option<Listener> {
        self.unknown();
        let addr = self.addr(interfaces);
        let admin = self.key == "ui.addr";

        let source = match self.map.get("cs") {
            None | Some("") => None,
            Some(name) => match sources.iter().find(|source| source.name == name) {
                Some(source) => Some(source.clone()),
                None => {
                    self.mistake(&format!("unknown certificate source {name:?}; define it in proxy.cs with cs={name}"));
                    None
                }
            },
        };
        let wants_source = !matches!(self.map.get("cs"), None | Some(""));
        let proto = self.proto(wants_source, admin);
        if !admin
            && !self.failed
            && let Some(word) = proto.map(word).filter(|word| pending::PROTOS.contains(word))
        {
            self.mistake(&format!("proto={word} is not built yet; nothing would answer there: remove this listener"));
        }

        let times = self.times(defaults);
        let proxy_protocol = self.flag("pxyproto");
        let tls_min = self.tls("tlsmin", tls::version);
        let tls_max = self.tls("tlsmax", tls::version);
        let tls_ciphers = self.ciphers();
        if wants_source {
            self.check_tls(tls_min, tls_max, &tls_ciphers);
        }
        let mut strict_match = self.flag("strictmatch");
        let proxy_trusted = self.networks();
        let half_close = self.flag("halfclose");
        let h2c = self.flag("h2c");
        if h2c && proto.is_some_and(|proto| proto != Proto::Http) {
            self.mistake(
                "h2c=true is for proto=http: https and grpcs agree on HTTP/2 by TLS, and grpc speaks nothing else",
            );
        }
        let redirect = self.redirect(proto, admin);
        let client_auth = self.client_auth(source.as_ref());
        let client_headers = self.flag("clientheaders");
        self.idle(proto, wants_source, proxy_protocol);
        let addr = addr?;
        self.check_range(&addr, proto);
        if source.as_ref().is_some_and(|source| source.kind == Kind::VaultPki) && !strict_match {
            strict_match = true;
            self.settings.report.say(
                super::Level::Info,
                format!("vault-pki requires strictmatch; enabling strictmatch for listener {addr}"),
            );
        }
        let mut times = times;
        if proxy_protocol && times.header == 0 {
            times.header = HEADER_TIMEOUT;
        }
        let config = Config {
            addr,
            proto: proto?,
            cert_source: source.as_ref().map(|source| source.name.clone()),
            read_timeout: duration::positive(times.read),
            write_timeout: duration::positive(times.write),
            idle_timeout: duration::positive(times.idle),
            proxy_protocol,
            proxy_header_timeout: duration::positive(times.header),
            proxy_trusted,
            half_close,
            h2c,
            redirect,
            client_auth,
            client_headers,
            strict_match,
            tls_min,
            tls_max,
            tls_ciphers,
            refresh: if matches!(proto, Some(Proto::TcpDynamic)) { refresh(&times, self.map) } else { Duration::ZERO },
        };
        Some(Listener { config, source, times })
    }

    fn addr(&mut self, interfaces: &[Interface]) -> Option<String> {
        let (bare, named) = (self.map.get(""), self.map.get("addr"));
        if bare.is_some() && named.is_some() {
            self.mistake("two addresses for one listener; write a comma between listeners");
        }
        let Some(text) = bare.or(named).filter(|text| !text.is_empty()) else {
            self.mistake("need listening host:port; write for instance :9999");
            return None;
        };
        let addr = match sockaddr::expand(text, interfaces) {
            Ok(addr) => addr,
            Err(reason) => {
                self.mistake(&reason);
                return None;
            }
        };
        if let Err(reason) = check_addr(&addr) {
            self.mistake(&format!("{addr:?}: {reason}; need listening host:port"));
            return None;
        }
        Some(addr)
    }

    fn check_range(&mut self, addr: &str, proto: Option<Proto>) {
        let Some((_, ports)) = range(addr) else { return };
        if ports.is_empty() || ports.len() > MOST_PORTS {
            self.mistake(&format!("{addr:?}: a range has its lower port first, and {MOST_PORTS} ports at most"));
        }
        if !matches!(proto, Some(Proto::Tcp | Proto::TcpSni | Proto::HttpsTcpSni | Proto::Udp) | None) {
            self.mistake(&format!("{addr:?}: ranges of ports are for tcp, tcp+sni, https+tcp+sni and udp only"));
        }
    }

    fn proto(&mut self, source: bool, admin: bool) -> Option<Proto> {
        let proto = match self.map.get("proto") {
            None | Some("") => return Some(if source { Proto::Https } else { Proto::Http }),
            Some(word) => match PROTOS.iter().find(|(known, _)| *known == word) {
                Some((_, proto)) => *proto,
                None => {
                    let known: Vec<&str> = PROTOS.iter().map(|(word, _)| *word).collect();
                    self.mistake(&format!("unknown protocol {word:?}; write {}", super::kind::or(&known)));
                    return None;
                }
            },
        };
        match (proto, source) {
            (Proto::Https, false) => {
                self.mistake("proto 'https' requires cert source; write cs=name and define it in proxy.cs")
            }
            (Proto::Grpcs, false) => {
                self.mistake("proto 'grpcs' requires cert source; write cs=name and define it in proxy.cs")
            }
            (Proto::Http | Proto::TcpSni | Proto::Udp | Proto::Grpc, true) => {
                self.mistake("cert source requires proto 'https', 'tcp', 'tcp-dynamic', 'https+tcp+sni', 'prometheus', or 'grpcs'");
            }
            _ => {}
        }
        // The admin listener speaks HTTP whatever is written there.
        match (admin, source) {
            (true, true) => Some(Proto::Https),
            (true, false) => Some(Proto::Http),
            _ => Some(proto),
        }
    }

    fn times(&mut self, defaults: Times) -> Times {
        Times {
            read: self.time("rt", defaults.read),
            write: self.time("wt", defaults.write),
            idle: self.time("it", defaults.idle),
            header: self.time("pxytimeout", 0),
            refresh: self.time("refresh", 0),
        }
    }

    fn time(&mut self, option: &str, default: i64) -> i64 {
        let Some(text) = self.map.get(option) else { return default };
        match duration::parse(text) {
            Ok(nanos) => {
                if nanos < 0 {
                    let line = format!("{}{option}: a negative time means the same as 0s; write 0s", self.place);
                    self.settings.warn(self.key, &line);
                }
                nanos
            }
            Err(reason) => {
                self.mistake(&format!("{option}: {reason}; write a number with a unit, as in 500ms, 3s"));
                default
            }
        }
    }

    /// Only `true` switches something on, as in fabio; other words than `false` are worth a remark.
    fn flag(&mut self, option: &str) -> bool {
        match self.map.get(option) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let line = format!("{}{option}={other} means false; only {option}=true switches it on", self.place);
                self.settings.warn(self.key, &line);
                false
            }
        }
    }

    /// `https`, perhaps with a port.
    fn redirect(&mut self, proto: Option<Proto>, admin: bool) -> Option<u16> {
        let text = self.map.get("redirect")?.to_owned();
        let port = match text.strip_prefix("https") {
            Some("") => Some(443),
            Some(port) => port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0),
            None => None,
        };
        if port.is_none() {
            self.mistake(&format!("redirect: {text:?} is not known; write redirect=https, or redirect=https:8443"));
        } else if admin || !matches!(proto, Some(Proto::Http) | None) {
            self.mistake("redirect: only listeners of proxy.addr with proto=http can send their clients elsewhere");
        }
        port
    }

    fn tls(&mut self, option: &str, read: impl Fn(&str) -> Result<u16, String>) -> u16 {
        let Some(text) = self.map.get(option) else { return 0 };
        read(text).unwrap_or_else(|reason| {
            self.mistake(&format!("{option}: {reason}; write tls10, tls11, tls12 or tls13"));
            0
        })
    }

    fn ciphers(&mut self) -> Vec<u16> {
        let Some(text) = self.map.get("tlsciphers") else { return Vec::new() };
        let mut ciphers = Vec::new();
        for word in text.split(',') {
            match tls::cipher(word) {
                Ok(cipher) => ciphers.push(cipher),
                Err(reason) => {
                    self.mistake(&format!("tlsciphers: {reason}; write names as in TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or numbers, in quotes"));
                }
            }
        }
        ciphers
    }

    /// What the TLS library cannot do.
    fn check_tls(&mut self, min: u16, max: u16, ciphers: &[u16]) {
        if (1..0x0303).contains(&max) {
            self.mistake("tlsmax: only TLS 1.2 and 1.3 can be served; write tls12 or tls13");
        } else if max != 0 && min > max {
            self.mistake("tlsmin is above tlsmax");
        }
        if matches!(min, 0x0301 | 0x0302) {
            let line = format!("{}TLS 1.0 and 1.1 cannot be served; the lowest version is TLS 1.2", self.place);
            self.settings.warn(self.key, &line);
        }
        let missing: Vec<String> = ciphers.iter().filter(|&&c| !tls::available(c)).map(|&c| tls::name(c)).collect();
        if !missing.is_empty() {
            let line =
                format!("{}cipher suites that cannot be had and are left out: {}", self.place, missing.join(", "));
            self.settings.warn(self.key, &line);
        }
    }

    fn networks(&mut self) -> Vec<IpNet> {
        let Some(text) = self.map.get("pxytrusted") else { return Vec::new() };
        let mut networks = Vec::new();
        for word in text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
            match network(word) {
                Some(network) => networks.push(network),
                None => self.mistake(&format!("pxytrusted: {word:?} is no network; write 10.0.0.0/8 or 10.1.2.3, in quotes with commas between them")),
            }
        }
        // Empty would mean everybody.
        if networks.is_empty() && !self.failed {
            self.mistake("pxytrusted: no network; leave it out to believe everybody");
        }
        networks
    }

    fn client_auth(&mut self, source: Option<&Entry>) -> ClientAuth {
        let Some(word) = self.map.get("clientauth") else { return ClientAuth::default() };
        let asked = match word {
            "required" => ClientAuth::Required,
            "optional" => ClientAuth::Optional,
            "off" => return ClientAuth::Off,
            _ => {
                self.mistake(&format!("clientauth={word} is not known; write required, optional or off"));
                return ClientAuth::default();
            }
        };
        if source.is_none_or(|source| source.client_ca.is_empty()) {
            self.mistake(&format!(
                "clientauth={word} needs to know whose certificates count; set clientca= on the certificate source"
            ));
        }
        asked
    }

    fn unknown(&mut self) {
        let known = |word: &str| word.is_empty() || OPTIONS.contains(&word);
        for word in self.map.pairs.keys().filter(|word| !known(word)) {
            let hint = near(word, OPTIONS.iter().copied()).map(|o| format!("; did you mean {o}?")).unwrap_or_default();
            let line = format!("{}unknown option {word:?} is ignored{hint}", self.place);
            self.settings.warn(self.key, &line);
        }
        for word in &self.map.dangling {
            if known(word) {
                self.mistake(&format!("option {word} has no value; write {word}=..."));
            } else {
                let line = format!(
                    "{}{word:?} is no option and is ignored; certificates are set with cs= and proxy.cs",
                    self.place
                );
                self.settings.warn(self.key, &line);
            }
        }
    }

    /// Options that change nothing beside the others.
    fn idle(&mut self, proto: Option<Proto>, source: bool, proxy_protocol: bool) {
        let dynamic = proto == Some(Proto::TcpDynamic);
        for (option, idle, needs) in [
            ("pxytrusted", !proxy_protocol, "pxyproto=true"),
            ("pxytimeout", !proxy_protocol, "pxyproto=true"),
            ("strictmatch", !source, "cs="),
            ("tlsmin", !source, "cs="),
            ("tlsmax", !source, "cs="),
            ("tlsciphers", !source, "cs="),
            ("refresh", !dynamic, "proto=tcp-dynamic"),
        ] {
            if idle && self.map.get(option).is_some() {
                let line = format!("{}{option} changes nothing without {needs}", self.place);
                self.settings.warn(self.key, &line);
            }
        }
    }

    fn mistake(&mut self, reason: &str) {
        self.failed = true;
        self.settings.mistake(self.key, &format!("{}{reason}", self.place));
    }
}

/// The word of `proto=`.
pub(crate) fn word(proto: Proto) -> &'static str {
    PROTOS.iter().find(|(_, p)| *p == proto).map_or("", |(word, _)| word)
}

/// An address or a network. A bare address is a network of its own.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|n| n.trunc()).or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

/// `[host]:port`, the port a number or a name. Names are looked up when the listener is bound.
fn check_addr(addr: &str) -> Result<(), &'static str> {
    let (host, port) = addr.rsplit_once(':').ok_or("no port")?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !bracketed {
        return Err("an IPv6 address stands in brackets, as in [::1]:80");
    }
    if bracketed && host[1..host.len() - 1].split('%').next().is_none_or(|ip| ip.parse::<std::net::Ipv6Addr>().is_err())
    {
        return Err("what stands in brackets is no IPv6 address");
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the host has blanks");
    }
    if port.is_empty() || !port.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err("no port");
    }
    if port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_err() {
        return Err("a port is at most 65535");
    }
    Ok(())
}

/// Host and ports of `host:7000-7010`.
fn range(addr: &str) -> Option<(&str, std::ops::RangeInclusive<u16>)> {
    let (host, ports) = addr.rsplit_once(':')?;
    let (first, last) = ports.split_once('-')?;
    Some((host, first.parse().ok()?..=last.parse().ok()?))
}

/// A listener for each port of a range.
fn each_port(listener: Listener) -> Vec<Listener> {
    let Some((host, ports)) = range(&listener.config.addr) else { return vec![listener] };
    let one = |port| {
        let mut one = listener.clone();
        one.config.addr = format!("{host}:{port}");
        one
    };
    ports.map(one).collect()
}

/// fabio has neither default nor minimum here, and spins.
fn refresh(times: &Times, map: &Map) -> Duration {
    if map.get("refresh").is_none() {
        return Duration::from_secs(5);
    }
    duration::positive(times.refresh).max(Duration::from_secs(1))
}

const PROTOS: &[(&str, Proto)] = &[
    ("http", Proto::Http),
    ("https", Proto::Https),
    ("tcp", Proto::Tcp),
    ("tcp+sni", Proto::TcpSni),
    ("tcp-dynamic", Proto::TcpDynamic),
    ("https+tcp+sni", Proto::HttpsTcpSni),
    ("udp", Proto::Udp),
    ("grpc", Proto::Grpc),
    ("grpcs", Proto::Grpcs),
    ("prometheus", Proto::Prometheus),
];

const OPTIONS: &[&str] = &[
    "addr",
    "proto",
    "cs",
    "rt",
    "wt",
    "it",
    "strictmatch",
    "tlsmin",
    "tlsmax",
    "tlsciphers",
    "pxyproto",
    "pxytimeout",
    "refresh",
    "pxytrusted",
    "halfclose",
    "h2c",
    "redirect",
    "clientauth",
    "clientheaders",
];

/// Each is a socket per worker.
const MOST_PORTS: usize = 1000;

/// `pxytimeout` of a listener with `pxyproto`.
const HEADER_TIMEOUT: i64 = 250_000_000;
