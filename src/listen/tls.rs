//! TLS at the edge: from an accepted connection to a TLS stream.
//!
//! The ClientHello is read before anything is decided: it names the certificate, and what is no ClientHello gets an answer
//! that its sender can read. Nothing here waits for the control plane.

mod count;
mod handshake;
mod policy;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use super::Config;
use crate::cert::{Asked, Selection, Store};

pub use count::Counts;
pub use handshake::AcceptError;

/// The TLS side of one listener, for all workers.
pub struct Acceptor {
    store: Arc<Store>,
    strict: bool,
    config: Arc<ServerConfig>,
    counts: Counts,
    /// Handshakes under way.
    pending: AtomicUsize,
    limit: usize,
}

/// Settings that leave nothing to speak.
#[derive(Debug)]
pub enum ConfigError {
    /// No version between `tlsmin` and `tlsmax`.
    Versions {
        min: u16,
        max: u16,
    },
    /// No suite of `tlsciphers`.
    Ciphers(String),
    Rustls(rustls::Error),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Versions { min, max } => write!(
                f,
                "tlsmin={} and tlsmax={} leave no TLS version: 1.2 and 1.3 are spoken; write tlsmin=tls12 or tlsmin=tls13, \
                 and tlsmax=tls13, or leave them out",
                policy::version(*min),
                policy::version(*max)
            ),
            ConfigError::Ciphers(listed) => write!(
                f,
                "tlsciphers={listed} leaves no cipher suite that is spoken; leave tlsciphers out or write some of {}",
                policy::SPOKEN
            ),
            ConfigError::Rustls(_) => f.write_str("cannot set up TLS"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Rustls(error) => Some(error),
            _ => None,
        }
    }
}

impl Acceptor {
    /// `alpn`: protocols in order of preference; empty: none is negotiated. A client that offers others only is refused.
    ///
    /// Returns with it what the operator should know about settings that cannot be had.
    pub fn new(
        listener: &Config,
        store: Arc<Store>,
        alpn: &[&[u8]],
    ) -> Result<(Arc<Acceptor>, Vec<String>), ConfigError> {
        let (config, warnings) = server_config(listener, store.clone(), alpn)?;
        let acceptor = Acceptor {
            store,
            strict: listener.strict_match,
            config,
            counts: Counts::default(),
            pending: AtomicUsize::new(0),
            limit: HANDSHAKES,
        };
        Ok((Arc::new(acceptor), warnings))
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// How long a handshake may take: the smaller one of `rt` and `wt` as in fabio, else 10 s.
pub fn handshake_limit(listener: &Config) -> Duration {
    let limits = [listener.read_timeout, listener.write_timeout];
    limits.into_iter().filter(|limit| !limit.is_zero()).min().unwrap_or(HANDSHAKE)
}

/// What rustls needs to know. Tickets of the result are good for all who share it.
pub fn server_config(
    listener: &Config,
    store: Arc<Store>,
    alpn: &[&[u8]],
) -> Result<(Arc<ServerConfig>, Vec<String>), ConfigError> {
    let policy = policy::policy(listener)?;
    let mut config = ServerConfig::builder_with_provider(policy.provider)
        .with_protocol_versions(&policy.versions)
        .map_err(ConfigError::Rustls)?
        .with_client_cert_verifier(WebPkiClientVerifier::no_client_auth())
        .with_cert_resolver(Arc::new(Resolver { store, strict: listener.strict_match }));
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.ticketer = Ticketer::new().map_err(ConfigError::Rustls)?;
    // Tickets only: a cache would be a lock that all workers share, and would keep secrets for longer than tickets live.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok((Arc::new(config), policy.warnings))
}

/// Chooses by the name in the ClientHello.
#[derive(Debug)]
struct Resolver {
    store: Arc<Store>,
    strict: bool,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked =
            Asked { name: hello.server_name(), address: None, schemes: hello.signature_schemes(), strict: self.strict };
        match self.store.select(&asked) {
            Selection::Found(key) => Some(key),
            Selection::Unknown | Selection::Empty => None,
        }
    }
}

/// For a connection whose certificate was chosen already.
#[derive(Debug)]
struct Chosen(Arc<CertifiedKey>);

impl ResolvesServerCert for Chosen {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

const HANDSHAKE: Duration = Duration::from_secs(10);

/// Per listener. A handshake holds some 20 kB, and whoever is slow holds it until the time is up.
const HANDSHAKES: usize = 8192;
