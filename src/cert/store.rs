//! The certificates of one source, looked up by the name that a client asks for.
//!
//! Readers are on the data plane: they load a snapshot and never wait for a writer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::vault::Issuer;

/// See the module. A new store is empty.
#[derive(Debug, Default)]
pub struct Store {
    index: ArcSwap<Index>,
    /// Gets certificates for names that have none.
    issuer: OnceLock<Issuer>,
}

/// What is known about a client when a certificate is chosen for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The server name of its ClientHello.
    pub name: Option<&'a str>,
    /// Our address that it connected to: who calls an address sends no name.
    pub address: Option<IpAddr>,
    /// Signatures that it can verify; empty: any.
    pub schemes: &'a [SignatureScheme],
    /// Only a certificate for this name, never the first one instead (`strictmatch`).
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub enum Selection {
    Found(Arc<CertifiedKey>),
    /// There are certificates, but none for this name.
    Unknown,
    /// There are no certificates (yet).
    Empty,
}

impl Store {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn select(&self, asked: &Asked<'_>) -> Selection {
        self.index.load().select(asked, self.issues())
    }

    /// Whether certificates are issued on demand: then a name without one is worth waiting for, and no other certificate
    /// is shown instead.
    pub fn issues(&self) -> bool {
        self.issuer.get().is_some()
    }

    /// Returns when it makes sense to select again: there is a certificate for this name now, or there will be none.
    pub async fn obtain(&self, name: &str) {
        if let Some(issuer) = self.issuer.get() {
            issuer.obtain(name).await;
        }
    }

    pub(super) fn set_issuer(&self, issuer: Issuer) {
        // Set once, when a source starts.
        let _ = self.issuer.set(issuer);
    }

    /// Whether a request for `authority` came over a connection whose certificate does not cover it although another
    /// certificate here does: such a request is to be sent again over another connection (RFC 9110 section 15.5.20).
    /// `local`: the address that the client has connected to, which has chosen the certificate if no name has.
    pub fn is_misdirected(&self, server_name: Option<&str>, local: IpAddr, authority: &str) -> bool {
        self.index.load().is_misdirected(server_name, local, authority)
    }

    /// The certificates, sorted by name.
    pub fn certificates(&self) -> Arc<[Certificate]> {
        self.index.load().certificates.clone()
    }

    /// Replaces all certificates at once. Handshakes under way go on with what they have chosen.
    pub fn replace(&self, certificates: Vec<Certificate>) {
        self.index.store(Arc::new(Index::new(certificates)));
    }
}

#[derive(Debug, Default)]
struct Index {
    certificates: Arc<[Certificate]>,
    /// Positions of the certificates for a name, in order: the last usable one wins.
    names: HashMap<Box<str>, Vec<u32>>,
    addresses: HashMap<IpAddr, Vec<u32>>,
    /// The most labels that are `*` in one name, so that a long name is not tried in vain.
    stars: usize,
}

impl Index {
    fn new(mut certificates: Vec<Certificate>) -> Self {
        certificates.sort_by(|a, b| a.name.cmp(&b.name));
        let mut index = Index::default();
        for (at, certificate) in (0..).zip(&certificates) {
            for name in &certificate.pair.facts.names {
                index.stars = index.stars.max(name.split('.').take_while(|label| *label == "*").count());
                index.names.entry(name.as_str().into()).or_default().push(at);
            }
            for address in &certificate.pair.facts.addresses {
                index.addresses.entry(address.to_canonical()).or_default().push(at);
            }
        }
        index.certificates = certificates.into();
        index
    }

    fn select(&self, asked: &Asked<'_>, note: bool) -> Selection {
        let Some(first) = self.certificates.first() else { return Selection::Empty };
        let chosen = match asked.name {
            Some(name) => self.by_name(name),
            None => self.without_name(asked.address),
        };
        match chosen.and_then(|candidates| self.best(candidates, asked.schemes)) {
            Some(certificate) => {
                if note {
                    certificate.pair.used.store(now(), Ordering::Relaxed);
                }
                Selection::Found(certificate.pair.key.clone())
            }
            None if asked.strict || note => Selection::Unknown,
            None => Selection::Found(first.pair.key.clone()),
        }
    }

    /// `*` may stand for no name at all, as in fabio.
    fn without_name(&self, address: Option<IpAddr>) -> Option<&[u32]> {
        self.by_address(address).or_else(|| self.names.get("*").map(Vec::as_slice))
    }

    fn by_address(&self, address: Option<IpAddr>) -> Option<&[u32]> {
        self.addresses.get(&address?.to_canonical()).map(Vec::as_slice)
    }

    /// Exact, then with labels replaced by `*` from the left: `a.b.c`, `*.b.c`, `*.*.c`.
    fn by_name(&self, name: &str) -> Option<&[u32]> {
        let mut buffer = [0; LONGEST];
        let name = lower(name.trim_end_matches('.'), &mut buffer)?;
        if let Some(found) = self.names.get(name) {
            return Some(found);
        }
        let mut rest = name;
        let mut pattern = [0; LONGEST];
        for stars in 1..=self.stars {
            rest = rest.split_once('.').map_or("", |(_, rest)| rest);
            let mut length = 0;
            for part in std::iter::repeat_n("*", stars).chain((!rest.is_empty()).then_some(rest)) {
                if length > 0 {
                    *pattern.get_mut(length)? = b'.';
                    length += 1;
                }
                pattern.get_mut(length..length + part.len())?.copy_from_slice(part.as_bytes());
                length += part.len();
            }
            let pattern = std::str::from_utf8(&pattern[..length]).ok()?;
            if let Some(found) = self.names.get(pattern) {
                return Some(found);
            }
            if rest.is_empty() {
                break;
            }
        }
        None
    }

    /// The last one that the client can verify and that is valid now, else the last one that it can verify, else the last.
    fn best(&self, candidates: &[u32], schemes: &[SignatureScheme]) -> Option<&Certificate> {
        let certificate = |at: &u32| self.certificates.get(*at as usize);
        if let [one] = candidates {
            return certificate(one);
        }
        let now = now();
        let rank = |certificate: &Certificate| {
            let verifiable = schemes.is_empty() || certificate.pair.key.key.choose_scheme(schemes).is_some();
            (verifiable, certificate.pair.facts.is_valid_at(now))
        };
        // `max_by_key` returns the last of equals.
        candidates.iter().filter_map(certificate).max_by_key(|certificate| rank(certificate))
    }

    fn is_misdirected(&self, server_name: Option<&str>, local: IpAddr, authority: &str) -> bool {
        let host = host(authority);
        if server_name.is_some_and(|name| name.trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.'))) {
            return false;
        }
        let covering = match host.parse::<IpAddr>() {
            Ok(address) => self.by_address(Some(address)),
            Err(_) => self.by_name(host),
        };
        let Some(covering) = covering else { return false };
        let shown = match server_name {
            Some(name) => self.by_name(name),
            None => self.without_name(Some(local)),
        };
        !shown.unwrap_or(&[0]).iter().any(|at| covering.contains(at))
    }
}

/// Without port and brackets.
fn host(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(host, _)| host);
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// `None`: too long to be a name.
fn lower<'a>(name: &str, buffer: &'a mut [u8; LONGEST]) -> Option<&'a str> {
    let buffer = buffer.get_mut(..name.len())?;
    buffer.copy_from_slice(name.as_bytes());
    buffer.make_ascii_lowercase();
    std::str::from_utf8(buffer).ok()
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// A DNS name has 253 characters at most (RFC 1035 section 2.3.4).
const LONGEST: usize = 256;

#[cfg(test)]
mod tests;
