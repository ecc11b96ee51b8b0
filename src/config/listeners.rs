//! Listeners: `proxy.addr` and `ui.addr`.

mod address;
mod options;

use std::collections::HashSet;
use std::time::Duration;

use crate::listen::{Config, Proto};

pub(crate) use self::address::network;
use self::address::{check_addr, range};
use super::certificates::{Entry, Kind};
use super::kvlist::{self, Map};
use super::pending;
use super::settings::Settings;
use super::sockaddr::{self, Interface};
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

/// Sockets of all workers share their port, so nothing else would notice.
pub(crate) fn each_once(settings: &mut Settings, listeners: &[Listener], admin: Option<&Listener>) {
    let mut seen: HashSet<(&str, bool)> = HashSet::new();
    for config in listeners.iter().map(|listener| &listener.config) {
        let addr = config.addr.as_str();
        if config.proto == Proto::TcpDynamic || addr.ends_with(":0") {
            continue;
        }
        let udp = config.proto == Proto::Udp;
        let also = if !seen.insert((addr, udp)) {
            "another listener"
        } else if !udp && admin.is_some_and(|admin| admin.config.addr == addr) {
            "ui.addr"
        } else {
            continue;
        };
        let line =
            format!("{addr} is the address of {also} as well; a connection would go to either of them by chance");
        settings.mistake("proxy.addr", &line);
    }
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
        if wants_source && !self.failed {
            self.check_tls(&config);
        }
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

    fn mistake(&mut self, reason: &str) {
        self.failed = true;
        self.settings.mistake(self.key, &format!("{}{reason}", self.place));
    }
}

/// The word of `proto=`.
pub(crate) fn word(proto: Proto) -> &'static str {
    PROTOS.iter().find(|(_, p)| *p == proto).map_or("", |(word, _)| word)
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

/// Each is a socket per worker.
const MOST_PORTS: usize = 1000;

/// `pxytimeout` of a listener with `pxyproto`.
const HEADER_TIMEOUT: i64 = 250_000_000;
