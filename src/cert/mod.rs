//! Certificate sources, and the store that resolves a server name.
//!
//! A [`Source`] runs on the control plane: it reads pairs of certificate and key from files, a URL, Consul or Vault, and
//! puts whole sets into its [`Store`]. The data plane only looks into the store, which takes no lock. A source that fails
//! keeps the last good set; a pair that cannot be used costs itself.

pub mod acme;
mod authorities;
mod blobs;
mod certificate;
mod directory;
mod env;
mod error;
mod file;
mod list;
mod load;
mod name;
mod pair;
mod report;
mod source;
mod store;
mod tree;
mod vault;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use authorities::{Authorities, Demand};
pub use blobs::Problem;
pub use certificate::{Certificate, Facts, Pair};
pub use env::Env;
pub use error::{Error, PairError};
pub use report::{Entry, Report, Validity, Waiting};
pub use source::{Source, check, start, start_acme};
pub use store::{Asked, Selection, Store};

/// One entry of `proxy.cs` that a listener refers to.
#[derive(Clone, PartialEq, Eq)]
pub struct CertSource {
    pub name: String,
    pub kind: Kind,
    /// How often to look again; 0: load once. For `vault-pki` the time before expiry at which to issue anew.
    pub refresh: Duration,
    /// One header for every request of an `http` source: name in canonical spelling, value.
    pub header: Option<(String, String)>,
    /// Client CA certificates with this issuer name count as CAs (`caupgcn`).
    pub ca_upgrade_cn: Option<String>,
    /// `file:<path>` or `env:<NAME>`: where the Vault token comes from.
    pub vault_fetch_token: Option<String>,
}

/// Where a source reads from. `client_ca` is the same kind of place as the certificate.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// PEM files. `key` is the file of the certificate if not set apart.
    File { cert: PathBuf, key: PathBuf, client_ca: Option<PathBuf> },
    /// A directory of PEM files.
    Path { cert: PathBuf, client_ca: Option<PathBuf> },
    /// URL of a list of file names.
    Http { cert: String, client_ca: Option<String> },
    /// `http(s)://host/v1/kv/<prefix>[?token=T]`
    Consul { cert: String, client_ca: Option<String> },
    /// Path of secrets.
    Vault { cert: String, client_ca: Option<String> },
    /// Issue path.
    VaultPki { cert: String, client_ca: Option<String> },
    /// Ordered from a CA. `client_ca` is a PEM file.
    Acme { config: Box<acme::Config>, client_ca: Option<PathBuf> },
}

impl Kind {
    /// The word of `type=`.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::File { .. } => "file",
            Kind::Path { .. } => "path",
            Kind::Http { .. } => "http",
            Kind::Consul { .. } => "consul",
            Kind::Vault { .. } => "vault",
            Kind::VaultPki { .. } => "vault-pki",
            Kind::Acme { .. } => "acme",
        }
    }
}

/// URLs and headers of sources carry tokens: a source is printed by name and type only.
impl std::fmt::Debug for CertSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertSource").field("name", &self.name).field("type", &self.kind.word()).finish_non_exhaustive()
    }
}
