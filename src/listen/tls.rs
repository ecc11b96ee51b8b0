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
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::sync::watch;

use super::Config;
use crate::cert::acme::{ALPN, Challenges};
use crate::cert::{Asked, Authorities, Demand, Selection, Store};

pub use count::{Counts, Outcome};
pub use handshake::AcceptError;
pub use policy::{SUITES, check};

/// The TLS side of one listener, for all workers.
pub struct Acceptor {
    setup: Setup,
    current: ArcSwap<ServerConfig>,
    counts: Counts,
    /// Handshakes under way.
    pending: AtomicUsize,
    limit: usize,
    /// Those that wait for a certificate to be issued, and do not count as under way.
    waiting: AtomicUsize,
    /// Of CAs. Not set: none are answered here.
    challenges: OnceLock<Arc<Challenges>>,
}

/// Who may connect with what.
#[derive(Clone, Debug)]
pub struct Clients {
    pub authorities: Arc<Authorities>,
    pub demand: Demand,
}

/// What a configuration is built from, again when the authorities of clients change.
struct Setup {
    store: Arc<Store>,
    strict: bool,
    clients: Option<Clients>,
    alpn: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
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
    /// `clients`: ask for certificates. `alpn`: protocols in order of preference; empty: none is negotiated. A client
    /// that offers others only is refused. With `clients`, to be called on the runtime of the control plane, where new
    /// authorities are taken up.
    pub fn new(
        listener: &Config,
        store: Arc<Store>,
        clients: Option<Clients>,
        alpn: &[&[u8]],
    ) -> Result<Arc<Acceptor>, ConfigError> {
        let policy = policy::policy(listener)?;
        let setup = Setup {
            store,
            strict: listener.strict_match,
            clients,
            alpn: alpn.iter().map(|name| name.to_vec()).collect(),
            provider: policy.provider,
            versions: policy.versions,
        };
        let changes = setup.clients.as_ref().map(|clients| clients.authorities.changes());
        let current = ArcSwap::from_pointee(setup.build()?);
        let acceptor = Acceptor {
            setup,
            current,
            counts: Counts::default(),
            pending: AtomicUsize::new(0),
            limit: HANDSHAKES,
            waiting: AtomicUsize::new(0),
            challenges: OnceLock::new(),
        };
        let acceptor = Arc::new(acceptor);
        if let Some(changes) = changes {
            tokio::spawn(follow(Arc::downgrade(&acceptor), changes));
        }
        Ok(acceptor)
    }

    /// From now on handshakes that are challenges of a CA are answered. To be called once.
    pub fn answer_challenges(&self, challenges: Arc<Challenges>) {
        let _ = self.challenges.set(challenges);
    }

    /// The certificates of this listener.
    pub fn store(&self) -> &Store {
        &self.setup.store
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Tickets of the result are good for all workers.
    fn config(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

/// Takes up new authorities, away from the workers.
async fn follow(acceptor: Weak<Acceptor>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(acceptor) = acceptor.upgrade() else { return };
        // Sessions from before are not resumed: whom the new authorities refuse would come back with a ticket.
        match acceptor.setup.build() {
            Ok(config) => acceptor.current.store(Arc::new(config)),
            Err(error) => tracing::error!("cannot take up new authorities of clients: {error}"),
        }
    }
}

impl Setup {
    /// With this certificate and nothing else. Made for each such handshake: there is one in weeks.
    fn for_challenge(&self, key: Arc<CertifiedKey>) -> Option<Arc<ServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&self.versions)
            .ok()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Chosen(key)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Some(Arc::new(config))
    }

    fn build(&self) -> Result<ServerConfig, ConfigError> {
        let verifier = match &self.clients {
            Some(clients) => clients.authorities.verifier(clients.demand),
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(ConfigError::Rustls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(Resolver { store: self.store.clone(), strict: self.strict }));
        config.alpn_protocols = self.alpn.clone();
        config.ticketer = Ticketer::new().map_err(ConfigError::Rustls)?;
        // Tickets only: a cache would be a lock that all workers share, and keep secrets for longer than tickets live.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}

/// How long a handshake may take: the smaller one of `rt` and `wt` as in fabio, else 10 s.
pub fn handshake_limit(listener: &Config) -> Duration {
    let limits = [listener.read_timeout, listener.write_timeout];
    limits.into_iter().filter(|limit| !limit.is_zero()).min().unwrap_or(HANDSHAKE)
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
/// Per listener. Whoever asks for names that nobody has asked for before keeps Vault busy, and nobody else out.
const WAITING: usize = 1024;
