//! Throw-away certificates: an authority per test, leaves from it, and the TLS configurations that use them.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// An authority with a directory of its own, in which it leaves what it issues: `ca.pem`, `NAME-cert.pem`, `NAME-key.pem`.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    dir: tempfile::TempDir,
}

/// A certificate with its key, as PEM and as files.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
    pub(crate) cert_path: PathBuf,
    pub(crate) key_path: PathBuf,
}

impl Ca {
    pub(crate) fn new() -> Ca {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "throw-away authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        let pem = cert.pem();
        std::fs::write(dir.path().join("ca.pem"), &pem).expect("a file in an own directory");
        Ca { issuer: Issuer::new(params, key), pem, dir }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// For server and client authentication. The first name is the subject and names the files (`*` becomes `_`).
    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        let mut params =
            CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).expect("names");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |what| self.dir.path().join(format!("{}-{what}.pem", names[0].replace('*', "_")));
        let leaf =
            Leaf { cert_pem: cert.pem(), key_pem: key.serialize_pem(), cert_path: file("cert"), key_path: file("key") };
        std::fs::write(&leaf.cert_path, &leaf.cert_pem).expect("a file in an own directory");
        std::fs::write(&leaf.key_path, &leaf.key_pem).expect("a file in an own directory");
        leaf
    }

    /// Trusts this authority only. `alpn` empty: no ALPN.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        self.client_config(alpn, None)
    }

    /// As `client`, and shows this certificate to a server that asks for one.
    pub(crate) fn client_with(&self, alpn: &[&str], leaf: &Leaf) -> Arc<ClientConfig> {
        self.client_config(alpn, Some(leaf))
    }

    fn client_config(&self, alpn: &[&str], leaf: Option<&Leaf>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has both versions")
            .with_root_certificates(self.roots());
        let mut config = match leaf {
            Some(leaf) => builder.with_client_auth_cert(leaf.chain(), leaf.key()).expect("a key that fits"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A server with this certificate that asks nobody for another.
    pub(crate) fn server(&self, leaf: &Leaf, alpn: &[&str]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has both versions")
            .with_no_client_auth()
            .with_single_cert(leaf.chain(), leaf.key())
            .expect("a key that fits");
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A server that speaks only to those who show a certificate of this authority.
    pub(crate) fn mutual_server(&self, leaf: &Leaf) -> Arc<ServerConfig> {
        mutual_server(&self.pem, &leaf.cert_pem, &leaf.key_pem)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("our own PEM"))
            .expect("our own authority");
        roots
    }
}

impl Leaf {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.cert_pem.as_bytes()).collect::<Result<_, _>>().expect("our own PEM")
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("our own PEM")
    }
}

/// A server with this certificate that speaks only to those who show one of this authority; all of them PEM.
pub(crate) fn mutual_server(authority: &str, cert: &str, key: &str) -> Arc<ServerConfig> {
    let read = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("PEM")
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read(authority));
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .expect("one authority");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has both versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(read(cert), key)
        .expect("a key that fits");
    Arc::new(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
