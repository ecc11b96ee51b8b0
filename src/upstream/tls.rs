//! TLS to targets: one client configuration that verifies and one that does not, shared by all workers.

use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::directory::TargetTls;

/// What a target is asked to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    /// Not asked: HTTP/1.1, or whatever bytes are passed on.
    Silent,
    /// HTTP/2, or HTTP/1.1.
    Either,
    /// HTTP/2 only.
    H2,
}

/// The configuration for a target.
pub(super) fn client_config(tls: &TargetTls, alpn: Alpn) -> Arc<ClientConfig> {
    let [silent, either, h2] = if tls.skip_verify { &*UNVERIFIED } else { &*VERIFIED };
    match alpn {
        Alpn::Silent => silent,
        Alpn::Either => either,
        Alpn::H2 => h2,
    }
    .clone()
}

/// For each [`Alpn`]. They share sessions.
type Configs = [Arc<ClientConfig>; 3];

fn configs(config: ClientConfig) -> Configs {
    let with = |protocols: &[&[u8]]| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    };
    [with(&[]), with(&[b"h2", b"http/1.1"]), with(&[b"h2"])]
}

/// Reads the system's roots, which takes a while. Before the first worker runs; else it is done by the first TLS target.
pub fn prepare() {
    LazyLock::force(&VERIFIED);
    LazyLock::force(&UNVERIFIED);
}

/// The system's roots, read when the first TLS target is connected to.
static VERIFIED: LazyLock<Configs> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!("cannot read some of the system's root certificates: {error}");
    }
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        tracing::warn!(
            "the system has no root certificates: targets with TLS are refused unless they have tlsskipverify=true"
        );
    }
    configs(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
});

static UNVERIFIED: LazyLock<Configs> = LazyLock::new(|| {
    let provider = CryptoProvider::get_default().expect("the provider is installed first thing in main").clone();
    configs(
        ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    )
});

/// `tlsskipverify=true`: any certificate will do, but the peer must prove that it holds its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
