//! The TLS side of a client: roots, own certificate, verification.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::Tls;

#[derive(Debug)]
pub enum TlsError {
    Read(PathBuf, rustls_pki_types::pem::Error),
    List(PathBuf, std::io::Error),
    /// A file without what it should hold.
    Empty(PathBuf),
    /// A certificate without its key, or the reverse.
    Half,
    Refused(rustls::Error),
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TlsError::Read(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            TlsError::List(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            TlsError::Empty(path) => write!(f, "no certificate in {}", path.display()),
            TlsError::Half => f.write_str("a client certificate needs both a certificate file and a key file"),
            TlsError::Refused(e) => write!(f, "the TLS files do not fit: {e}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// `https`: whether any root will be needed.
pub(super) fn config(https: bool, tls: &Tls) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Refused)?;
    let builder = if tls.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(if https { roots(tls)? } else { RootCertStore::empty() })
    };
    match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) if https => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| TlsError::Read(key.clone(), e))?;
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(TlsError::Refused)
        }
        (Some(_), None) | (None, Some(_)) if https => Err(TlsError::Half),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn roots(tls: &Tls) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(file) = &tls.ca_file {
        store.add_parsable_certificates(certificates(file)?);
    }
    if let Some(folder) = &tls.ca_path {
        let list = std::fs::read_dir(folder).map_err(|e| TlsError::List(folder.clone(), e))?;
        for entry in list.flatten() {
            // A directory of certificates often holds other things, too.
            if let Ok(found) = certificates(&entry.path()) {
                store.add_parsable_certificates(found);
            }
        }
        if store.is_empty() {
            return Err(TlsError::Empty(folder.clone()));
        }
    }
    if tls.ca_file.is_none() && tls.ca_path.is_none() {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|e| TlsError::Read(path.to_owned(), e))?.collect();
    let found = found.map_err(|e| TlsError::Read(path.to_owned(), e))?;
    if found.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(found) }
}

/// Takes any certificate, but still wants the server to own its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
