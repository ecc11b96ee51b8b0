//! `type=acme`: certificates from an ACME directory (RFC 8555).
//!
//! Every process follows what is stored (certificates, challenges under way) and serves it. What is missing or due is
//! ordered by whoever holds the lock of the storage, so that many processes share one account and order once; all of them
//! answer challenges, because a CA may ask any of them. One certificate per name: a name that fails costs itself.

mod challenges;
mod names;
#[cfg(feature = "acme")]
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::consul;

#[cfg(feature = "acme")]
pub(super) use challenges::Pending;
pub use challenges::{ALPN, Challenges};
pub use names::{Names, is_name};
#[cfg(feature = "acme")]
pub(super) use work::start;

/// One source.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// URL of the directory.
    pub directory: String,
    /// PEM roots for the directory in place of those of the system.
    pub ca: Option<PathBuf>,
    /// Where the CA writes to when something is wrong.
    pub email: Option<String>,
    pub external_account: Option<ExternalAccount>,
    pub names: Names,
    pub challenge: Challenge,
    /// What to ask for where a CA offers several kinds of certificates.
    pub profile: Option<String>,
    pub storage: Storage,
    /// Seals private keys where they are stored.
    pub secret: Option<Secret>,
    /// Wait so long after an order that failed, and twice as long each time, up to half a day.
    pub retry: Duration,
}

/// Binds the account to one that the CA knows already (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub id: String,
    /// Base64, as CAs hand it out.
    pub key: Secret,
}

/// Where a secret is. Never the secret itself: configurations are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// One after the other, until one works.
    #[default]
    Any,
    Http,
    TlsAlpn,
}

/// Where account, certificates and challenges are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Storage {
    /// Below this key of the KV store, which has no slash at its end.
    Consul { client: Box<consul::Config>, prefix: String },
    /// A directory, which many processes may share.
    Directory(PathBuf),
}

/// What the sources of a process need of its other parts.
#[derive(Clone)]
pub struct Surroundings {
    pub challenges: Arc<Challenges>,
    /// Host names of the routing table: in lower case, without ports and patterns. `None`: the listeners are not open yet,
    /// so no challenge could be answered.
    pub hosts: watch::Receiver<Option<Arc<[String]>>>,
    /// There is a listener without TLS, so HTTP-01 is worth trying first.
    pub plain: bool,
}

impl Config {
    /// See [`super::check`].
    pub(super) fn check(&self, env: &super::Env) -> Result<(), super::Error> {
        if let Some(path) = &self.ca {
            let readable = std::fs::File::open(path).map(drop);
            readable.map_err(|cause| super::Error::Read { what: path.display().to_string(), cause })?;
        }
        let account = self.external_account.as_ref().map(|account| &account.key);
        self.secret.iter().chain(account).try_for_each(|secret| secret.read(env).map(drop))
    }
}

impl Secret {
    /// Trimmed.
    fn read(&self, env: &super::Env) -> Result<String, super::Error> {
        let text = match self {
            Secret::File(path) => std::fs::read_to_string(path)
                .map_err(|cause| super::Error::Read { what: path.display().to_string(), cause })?,
            Secret::Variable(name) => env
                .get(name)
                .ok_or_else(|| super::Error::Place(format!("the environment variable {name} is not set")))?,
        };
        let text = text.trim().to_owned();
        if text.is_empty() { Err(super::Error::Place(format!("{self} is empty"))) } else { Ok(text) }
    }
}

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Secret::File(path) => write!(f, "file:{}", path.display()),
            Secret::Variable(name) => write!(f, "env:{name}"),
        }
    }
}

/// Let's Encrypt.
pub const LETSENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Its directory to try things with: generous limits, and certificates that nobody trusts.
pub const LETSENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";
/// Names that the table may order. Let's Encrypt issues 50 certificates a week per registered domain.
pub const MOST: usize = 50;
