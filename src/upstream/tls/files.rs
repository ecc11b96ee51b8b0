//! Authorities and client certificates that routes name: `proxy.targettls`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// An entry of `proxy.targettls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub name: Box<str>,
    /// Certificates of authorities, PEM.
    pub ca: Option<PathBuf>,
    /// Our own certificate with its chain, and its key, PEM.
    pub cert: Option<(PathBuf, PathBuf)>,
}

/// A file of an entry that cannot be used.
#[derive(Debug)]
pub struct BadFile {
    name: Box<str>,
    path: PathBuf,
    why: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy.targettls: {}: {}: {}", self.name, self.path.display(), self.why)
    }
}

impl std::error::Error for BadFile {}

/// What an entry was read to.
pub(super) struct Loaded {
    pub(super) roots: Option<Arc<RootCertStore>>,
    pub(super) key: Option<Arc<CertifiedKey>>,
}

impl TlsFiles {
    /// All or nothing: half of an entry would be a surprise.
    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<Loaded, BadFile> {
        let bad = |path: &Path, why: String| BadFile { name: self.name.clone(), path: path.to_owned(), why };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, BadFile> {
            let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            match read {
                Ok(list) if list.is_empty() => Err(bad(path, "there is no certificate in it".to_owned())),
                Ok(list) => Ok(list),
                Err(error) => Err(bad(path, error.to_string())),
            }
        };
        let roots = match &self.ca {
            None => None,
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| bad(path, error.to_string()))?;
                }
                Some(Arc::new(roots))
            }
        };
        let key = match &self.cert {
            None => None,
            Some((cert, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
                let pair = CertifiedKey::from_der(certificates(cert)?, private, provider);
                Some(Arc::new(pair.map_err(|error| bad(cert, error.to_string()))?))
            }
        };
        Ok(Loaded { roots, key })
    }

    /// Changes when a file was changed. `None` for a file that cannot be looked at.
    pub(super) fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let key = self.cert.iter().flat_map(|(cert, key)| [cert, key]);
        let stamp = |path: &PathBuf| std::fs::metadata(path).ok().and_then(|m| Some((m.modified().ok()?, m.len())));
        self.ca.iter().chain(key).map(stamp).collect()
    }
}
