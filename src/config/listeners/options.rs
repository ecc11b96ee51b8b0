//! The options of one listener, each on its own.

use ipnet::IpNet;

use super::super::certificates::Entry;
use super::super::suggest::near;
use super::super::{duration, tls};
use super::address::network;
use super::{Reader, Times};
use crate::listen::{self, ClientAuth, Proto};

impl Reader<'_> {
    pub(super) fn times(&mut self, defaults: Times) -> Times {
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
    pub(super) fn flag(&mut self, option: &str) -> bool {
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
    pub(super) fn redirect(&mut self, proto: Option<Proto>, admin: bool) -> Option<u16> {
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

    pub(super) fn tls(&mut self, option: &str, read: impl Fn(&str) -> Result<u16, String>) -> u16 {
        let Some(text) = self.map.get(option) else { return 0 };
        read(text).unwrap_or_else(|reason| {
            self.mistake(&format!("{option}: {reason}; write tls10, tls11, tls12 or tls13"));
            0
        })
    }

    pub(super) fn ciphers(&mut self) -> Vec<u16> {
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

    /// What cannot be served as it is said.
    pub(super) fn check_tls(&mut self, listener: &listen::Config) {
        match listen::tls::check(listener) {
            Ok(warnings) => {
                for warning in warnings {
                    self.settings.warn(self.key, &format!("{}{warning}", self.place));
                }
            }
            Err(error) => self.mistake(&error.to_string()),
        }
    }

    pub(super) fn networks(&mut self) -> Vec<IpNet> {
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

    pub(super) fn client_auth(&mut self, source: Option<&Entry>) -> ClientAuth {
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

    pub(super) fn unknown(&mut self) {
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
    pub(super) fn idle(&mut self, proto: Option<Proto>, source: bool, proxy_protocol: bool) {
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
}

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
