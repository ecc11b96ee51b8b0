//! Who may use a route: the schemes of `proxy.auth`, which a route names with `auth=`.
//!
//! Files are read and read again by the control plane; requests are decided on the data plane, on what was read last.
//! Nothing here decides about addresses: that is `route::Access`.

mod apikey;
mod basic;
mod crypt;
mod file;
mod forward;
mod grant;
mod htpasswd;
mod jwks;
mod jwt;
mod slots;
mod verified;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};

use self::apikey::ApiKey;
use self::basic::Basic;
pub use self::file::Error;
use self::forward::Forward;
pub use self::grant::Grant;
use self::jwt::Jwt;
use self::slots::Slots;
use crate::life::Watch;
use crate::net::Peer;
use crate::upstream::Pools;

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
    ApiKey(ApiKeyConfig),
    Forward(ForwardConfig),
    Jwt(JwtConfig),
}

/// Keys from a file with lines `name:key` or `name:{SHA256}hex`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyConfig {
    pub file: PathBuf,
    pub refresh: Option<Duration>,
    /// Where a request has its key; default: `X-Api-Key`.
    pub header: HeaderName,
    /// Parameter of the query that is looked at if the header is not there.
    pub query: Option<String>,
    /// Tells the target whose key it was.
    pub user: Option<HeaderName>,
}

/// Another service decides: 2xx lets a request in, any other answer below 500 goes to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardConfig {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// For `Host`.
    pub authority: String,
    pub path_and_query: String,
    /// For the whole answer; default: 5s.
    pub timeout: Duration,
    /// Headers of the service's answer that the target gets.
    pub copy: Vec<HeaderName>,
}

/// JSON Web Tokens (RFC 7519) in `Authorization: Bearer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    pub keys: KeySource,
    /// How often keys are looked for again; `None`: a file never, a URL every five minutes.
    pub refresh: Option<Duration>,
    /// Allowed values of `iss`; empty: any.
    pub issuers: Vec<String>,
    /// One of them must be in `aud`; empty: any.
    pub audiences: Vec<String>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Names as in RFC 7518; empty: all that fit the keys.
    pub algorithms: Vec<String>,
    /// Claims that the target gets as headers. `a.b` is `b` inside `a`.
    pub claims: Vec<(String, HeaderName)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A JWK set (RFC 7517) or a public key in PEM.
    File(PathBuf),
    /// A JWK set that an `http` or `https` server has.
    Url(String),
    /// The secret of HS256 and the like.
    Secret(PathBuf),
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
    ApiKey(ApiKey),
    Forward(Forward),
    Jwt(Box<Jwt>),
}

/// What is known about a request whose sender wants to use a route. Headers that are not to be believed are gone already.
pub struct Request<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub host: &'a str,
    /// As it was matched.
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub peer: &'a Peer,
    /// Of the worker, for schemes that ask somebody.
    pub pools: &'a Pools,
}

/// Why a request is not let in.
#[derive(Debug)]
pub enum Refusal {
    /// 401 with these values of `WWW-Authenticate` (RFC 9110, section 11.6.1).
    Challenge(Vec<HeaderValue>),
    /// What another service has answered, for the client.
    Answer(Box<Response<Bytes>>),
    /// Too many passwords are being checked already; 503.
    Busy,
    /// Whoever decides cannot be asked; 503.
    Unavailable,
}

impl Auth {
    /// Reads what the schemes need, then keeps it fresh until the process ends. Needs a runtime that does not end before.
    pub fn start(config: &Config, life: &Watch) -> Result<Arc<Self>, Error> {
        let slots = Arc::new(Slots::default());
        let mut schemes = HashMap::new();
        for (number, scheme) in config.schemes.iter().enumerate() {
            let realm = &scheme.realm;
            let built = match &scheme.kind {
                Kind::Basic(basic) => Scheme::Basic(Basic::start(realm, basic, &slots, life)?),
                Kind::ApiKey(keys) => Scheme::ApiKey(ApiKey::start(realm, keys, life)?),
                Kind::Forward(forward) => Scheme::Forward(Forward::new(number, forward)),
                Kind::Jwt(jwt) => Scheme::Jwt(Box::new(Jwt::start(realm, jwt, life)?)),
            };
            schemes.insert(scheme.name.clone(), built);
        }
        Ok(Arc::new(Self { schemes, begun: Instant::now(), complained: AtomicU64::new(0) }))
    }

    /// Decides about a request for a route with `auth=names`. `a,b`: one of them must let it in; `a+b`: all of them. A name
    /// that is configured as it stands means itself.
    pub async fn check(&self, names: &str, request: &Request<'_>) -> Result<Grant, Refusal> {
        let mut grant = Grant::default();
        if let Some(scheme) = self.schemes.get(names) {
            grant.reserve(scheme.reserved());
            scheme.check(request, &mut grant).await?;
            return Ok(grant);
        }
        // Also what a scheme says that is not asked in the end must not come from the client.
        for name in names.split([',', '+']).map(str::trim) {
            grant.reserve(self.schemes.get(name).map_or(&[], Scheme::reserved));
        }
        let (mut challenges, mut other) = (Vec::new(), None);
        for all in names.split(',') {
            match self.check_all(all, request, &grant).await {
                Ok(grant) => return Ok(grant),
                Err(Refusal::Challenge(more)) => challenges.extend(more),
                // The answer of a service, a login page perhaps, is more use than ours.
                Err(refusal @ Refusal::Answer(_)) => other = Some(refusal),
                Err(refusal) => _ = other.get_or_insert(refusal),
            }
        }
        Err(other.unwrap_or(Refusal::Challenge(challenges)))
    }

    /// Decides by headers alone, for a server that is no route: schemes of type basic and jwt. Others let nobody in.
    pub async fn check_headers(&self, name: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        match self.schemes.get(name) {
            Some(Scheme::Basic(basic)) => basic.check(headers).await,
            Some(Scheme::Jwt(jwt)) => jwt.check(headers, &mut Grant::default()),
            _ => Err(self.unknown(name)),
        }
    }

    async fn check_all(&self, names: &str, request: &Request<'_>, base: &Grant) -> Result<Grant, Refusal> {
        let mut grant = base.clone();
        for name in names.split('+').map(str::trim) {
            match self.schemes.get(name) {
                Some(scheme) => scheme.check(request, &mut grant).await?,
                None => return Err(self.unknown(name)),
            }
        }
        Ok(grant)
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
    async fn check(&self, request: &Request<'_>, grant: &mut Grant) -> Result<(), Refusal> {
        match self {
            Scheme::Basic(basic) => basic.check(request.headers).await,
            Scheme::ApiKey(keys) => keys.check(request, grant),
            Scheme::Forward(forward) => forward.check(request, grant).await,
            Scheme::Jwt(jwt) => jwt.check(request.headers, grant),
        }
    }

    /// Headers that only this scheme may set.
    fn reserved(&self) -> &[HeaderName] {
        match self {
            Scheme::Basic(_) => &[],
            Scheme::ApiKey(keys) => keys.reserved(),
            Scheme::Forward(forward) => forward.reserved(),
            Scheme::Jwt(jwt) => jwt.reserved(),
        }
    }
}

/// `Basic realm="..."`.
fn challenge(realm: &str) -> HeaderValue {
    challenge_of("Basic", realm, "")
}

fn challenge_of(scheme: &'static str, realm: &str, more: &str) -> HeaderValue {
    let escaped = realm.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("{scheme} realm=\"{escaped}\"{more}")).unwrap_or(HeaderValue::from_static(scheme))
}

/// Milliseconds.
const COMPLAIN_EVERY: u64 = 10_000;

#[cfg(test)]
mod tests;
