//! Certificate sources, and the store that resolves a server name.
//!
//! A [`Source`] runs on the control plane: it reads pairs of certificate and key from files, a URL, Consul or Vault, and
//! puts whole sets into its [`Store`]. The data plane only looks into the store, which takes no lock. A source that fails
//! keeps the last good set; a pair that cannot be used costs itself.

mod blobs;
mod certificate;
mod error;
mod file;
mod load;
mod pair;
pub mod series;
mod source;
mod store;

#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use blobs::Problem;
pub use certificate::{Certificate, Facts, Pair};
pub use error::{Error, PairError};
pub use source::{Entry, Report, Source, Validity, start};
pub use store::{Asked, Selection, Store};

/// One entry of `proxy.cs`.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub name: String,
    pub kind: Kind,
    /// How often to look again; 0: as the kind does by itself. For `vault-pki` the time before expiry at which to issue
    /// anew.
    pub refresh: Duration,
    /// The same kind of place as the certificates. Set: clients have to show a certificate of these authorities.
    pub client_ca: Option<String>,
    /// Client authorities with this issuer name count as such (`caupgcn`). Every certificate of the client CA set does
    /// anyway, so this changes nothing here.
    pub ca_upgrade_cn: String,
    /// One header for every request of an `http` source.
    pub header: Option<(String, String)>,
    /// `file:<path>` or `env:<NAME>`: where the Vault token comes from. Empty: `VAULT_TOKEN`.
    pub vault_fetch_token: String,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// Two PEM files, or twice the same one.
    File { cert: PathBuf, key: PathBuf },
    /// A directory of PEM files.
    Path { dir: PathBuf },
    /// URL of a list of file names.
    Http { url: String },
    /// `http(s)://host/v1/kv/<prefix>[?token=T]`
    Consul { url: String },
    /// Path of secrets, KV version 1 or 2.
    Vault { path: String },
    /// Issue path.
    VaultPki { path: String },
}

impl Kind {
    /// As `type=` spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::File { .. } => "file",
            Kind::Path { .. } => "path",
            Kind::Http { .. } => "http",
            Kind::Consul { .. } => "consul",
            Kind::Vault { .. } => "vault",
            Kind::VaultPki { .. } => "vault-pki",
        }
    }
}

/// URLs and headers of sources carry tokens: only name and type are printed.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("name", &self.name).field("type", &self.kind.name()).finish_non_exhaustive()
    }
}
