//! Who may use a route: the schemes of `proxy.auth`, which a route names with `auth=`.
//!
//! Files are read and read again by the control plane; requests are decided on the data plane, on what was read last.
//! Nothing here decides about addresses: that is `route::Access`.

mod basic;
mod crypt;
mod file;
mod htpasswd;
mod slots;
mod verified;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};

use self::basic::Basic;
pub use self::file::Error;
use self::slots::Slots;
use crate::life::Watch;

/// The schemes of `proxy.auth`, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub schemes: Vec<SchemeConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeConfig {
    pub name: String,
    /// Shown to whoever is asked for credentials.
    pub realm: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Basic(BasicConfig),
}

/// User names and passwords (RFC 7617) from an htpasswd file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicConfig {
    pub file: PathBuf,
    /// How often to look whether the file has changed; `None`: never.
    pub refresh: Option<Duration>,
}

/// All schemes that there are.
pub struct Auth {
    schemes: HashMap<String, Scheme>,
    begun: Instant,
    /// When an unknown scheme was last complained about: milliseconds since `begun`, plus one; 0: never.
    complained: AtomicU64,
}

enum Scheme {
    Basic(Basic),
}

/// What is known about a request whose sender wants to use a route.
pub struct Request<'a> {
    pub headers: &'a HeaderMap,
}

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401 with these values of `WWW-Authenticate` (RFC 9110, section 11.6.1).
    Challenge(Vec<HeaderValue>),
    /// Too many passwords are being checked already; 503.
    Busy,
}

impl Auth {
    /// Reads what the schemes need, then keeps it fresh until the process ends. Needs a runtime that does not end before.
    pub fn start(config: &Config, life: &Watch) -> Result<Arc<Self>, Error> {
        let slots = Arc::new(Slots::default());
        let mut schemes = HashMap::new();
        for scheme in &config.schemes {
            let built = match &scheme.kind {
                Kind::Basic(basic) => Scheme::Basic(Basic::start(&scheme.realm, basic, &slots, life)?),
            };
            schemes.insert(scheme.name.clone(), built);
        }
        Ok(Arc::new(Self { schemes, begun: Instant::now(), complained: AtomicU64::new(0) }))
    }

    /// Decides about a request for a route with `auth=names`. `a,b`: one of them must let it in; `a+b`: all of them. A name
    /// that is configured as it stands means itself.
    pub async fn check(&self, names: &str, request: &Request<'_>) -> Result<(), Refusal> {
        if let Some(scheme) = self.schemes.get(names) {
            return scheme.check(request).await;
        }
        let mut challenges = Vec::new();
        let mut busy = false;
        for all in names.split(',') {
            let mut refused = None;
            for name in all.split('+').map(str::trim) {
                let checked = match self.schemes.get(name) {
                    Some(scheme) => scheme.check(request).await,
                    None => Err(self.unknown(name)),
                };
                if let Err(refusal) = checked {
                    refused = Some(refusal);
                    break;
                }
            }
            match refused {
                None => return Ok(()),
                Some(Refusal::Busy) => busy = true,
                Some(Refusal::Challenge(more)) => challenges.extend(more),
            }
        }
        Err(if busy { Refusal::Busy } else { Refusal::Challenge(challenges) })
    }

    /// A route that asks for what nobody has configured stays closed.
    fn unknown(&self, name: &str) -> Refusal {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        let last = self.complained.load(Ordering::Relaxed);
        let due = last == 0 || now - last.min(now) >= COMPLAIN_EVERY;
        if due && self.complained.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::error!("unknown auth scheme '{name}': its routes are closed until proxy.auth has it");
        }
        Refusal::Challenge(vec![challenge(name)])
    }
}

impl Scheme {
    async fn check(&self, request: &Request<'_>) -> Result<(), Refusal> {
        match self {
            Scheme::Basic(basic) => basic.check(request.headers).await,
        }
    }
}

/// `Basic realm="..."`.
fn challenge(realm: &str) -> HeaderValue {
    let escaped = realm.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("Basic realm=\"{escaped}\""))
        .unwrap_or(HeaderValue::from_static("Basic realm=\"restricted\""))
}

/// Milliseconds.
const COMPLAIN_EVERY: u64 = 10_000;

#[cfg(test)]
mod tests;
