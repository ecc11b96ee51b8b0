//! TLS to targets: whom to believe, who we are, what to speak.
//!
//! All workers share one client configuration for each way of doing it, and with it the sessions that can be resumed.

mod files;
mod mesh;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use self::files::Loaded;
pub use self::files::{BadFile, TlsFiles};
pub use self::mesh::Mesh;
use super::directory::TargetTls;

/// What a target is asked to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    /// Nothing of ours, but what its route wants: HTTP/1.1, or whatever bytes are passed on.
    Silent,
    /// HTTP/1.1, whatever else its route would take.
    Http1,
    /// HTTP/2, or HTTP/1.1.
    Either,
    /// HTTP/2 only.
    H2,
}

impl Alpn {
    fn names(self, tls: &TargetTls) -> Arc<[Arc<str>]> {
        match self {
            Alpn::Silent => tls.alpn.clone(),
            Alpn::Http1 if tls.alpn.iter().any(|name| **name == *"h2") => {
                tls.alpn.iter().filter(|name| ***name != *"h2").cloned().collect()
            }
            Alpn::Http1 => tls.alpn.clone(),
            Alpn::Either => EITHER.clone(),
            Alpn::H2 => H2.clone(),
        }
    }
}

static EITHER: LazyLock<Arc<[Arc<str>]>> = LazyLock::new(|| ["h2".into(), "http/1.1".into()].into());
static H2: LazyLock<Arc<[Arc<str>]>> = LazyLock::new(|| ["h2".into()].into());

/// Authorities and certificates by the names that routes have for them. One for the whole process.
pub struct Credentials {
    files: Vec<TlsFiles>,
    current: ArcSwap<Generation>,
    /// Services of the mesh whose intentions let us in.
    permitted: ArcSwap<BTreeSet<Arc<str>>>,
}

/// What was made of the files as they were at some time.
struct Generation {
    loaded: Arc<HashMap<Box<str>, Loaded>>,
    /// `None`: nobody has let us in.
    mesh: Option<Arc<Mesh>>,
    /// One for each way that some target is reached: few. Only data-plane threads that connect take the lock.
    made: Mutex<HashMap<Way, Arc<ClientConfig>>>,
}

/// Ways to reach targets whose configuration is kept.
const MOST_WAYS: usize = 512;

/// What a client configuration depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Way {
    skip_verify: bool,
    authorities: Option<Arc<str>>,
    certificate: Option<Arc<str>>,
    alpn: Arc<[Arc<str>]>,
    mesh: Option<Arc<str>>,
    mesh_datacenter: Option<Arc<str>>,
}

impl Default for Credentials {
    fn default() -> Self {
        let current = ArcSwap::from_pointee(Generation::of(Arc::default(), None));
        Self { files: Vec::new(), current, permitted: ArcSwap::default() }
    }
}

impl Credentials {
    /// Reads all files.
    pub fn load(files: Vec<TlsFiles>) -> Result<Self, BadFile> {
        let loaded = read(&files)?;
        let current = ArcSwap::from_pointee(Generation::of(Arc::new(loaded), None));
        Ok(Self { files, current, permitted: ArcSwap::default() })
    }

    /// Reads files again when they have changed. What cannot be read leaves everything as it was. Never ends.
    pub async fn watch(self: Arc<Self>) {
        let mut seen: Vec<_> = self.files.iter().map(TlsFiles::stamps).collect();
        while !self.files.is_empty() {
            tokio::time::sleep(LOOK).await;
            let this = self.clone();
            let Ok(now) = tokio::task::spawn_blocking(move || this.files.iter().map(TlsFiles::stamps).collect()).await
            else {
                continue;
            };
            if now != seen {
                seen = now;
                self.reload();
            }
        }
        std::future::pending().await
    }

    fn reload(&self) {
        match read(&self.files) {
            Ok(loaded) => {
                let loaded = Arc::new(loaded);
                self.current.rcu(|current| Generation::of(loaded.clone(), current.mesh.clone()));
                tracing::info!("proxy.targettls: read again");
            }
            Err(error) => tracing::warn!("{error}; what was read before is used"),
        }
    }

    /// We are a member of a mesh now, or have a new certificate in it.
    pub fn join(&self, mesh: Mesh) {
        let mesh = Arc::new(mesh);
        self.current.rcu(|current| Generation::of(current.loaded.clone(), Some(mesh.clone())));
    }

    /// The services of the mesh that new connections may be made to. Until it is called: none.
    pub fn permit(&self, services: BTreeSet<Arc<str>>) {
        self.permitted.store(Arc::new(services));
    }

    /// The configuration for a target. An unknown name is an error: nothing less is believed in its place.
    pub(super) fn client_config(&self, tls: &TargetTls, alpn: Alpn) -> io::Result<Arc<ClientConfig>> {
        let way = Way {
            skip_verify: tls.skip_verify,
            authorities: tls.authorities.clone(),
            certificate: tls.certificate.clone(),
            alpn: alpn.names(tls),
            mesh: tls.mesh.clone(),
            mesh_datacenter: tls.mesh_datacenter.clone(),
        };
        if let Some(service) = &tls.mesh
            && !self.permitted.load().contains(service)
        {
            let why = format!("no intention of the service mesh lets us talk to {service}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let generation = self.current.load();
        let mut made = generation.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(&way) {
            return Ok(config.clone());
        }
        let config = Arc::new(generation.make(&way)?);
        // Tags name them, so their number is whatever services come and go. What is forgotten costs a full handshake.
        if made.len() >= MOST_WAYS {
            made.clear();
        }
        made.insert(way, config.clone());
        Ok(config)
    }
}

fn read(files: &[TlsFiles]) -> Result<HashMap<Box<str>, Loaded>, BadFile> {
    if files.is_empty() {
        return Ok(HashMap::new());
    }
    let provider = provider();
    files.iter().map(|files| Ok((files.name.clone(), files.load(&provider)?))).collect()
}

impl Generation {
    fn of(loaded: Arc<HashMap<Box<str>, Loaded>>, mesh: Option<Arc<Mesh>>) -> Self {
        Self { loaded, mesh, made: Mutex::default() }
    }

    fn make(&self, way: &Way) -> io::Result<ClientConfig> {
        let unknown = |what: &str, name: &str| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{what}={name} is not known in proxy.targettls"))
        };
        let alpn = || way.alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let builder = ClientConfig::builder();
        if let Some(service) = &way.mesh {
            let missing = || io::Error::other("there is no certificate of the service mesh yet");
            let mesh = self.mesh.as_ref().ok_or_else(missing)?;
            let member = mesh.member(service, way.mesh_datacenter.as_deref());
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(member));
            let mut config = builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(mesh.key.clone())));
            config.alpn_protocols = alpn();
            return Ok(config);
        }
        let builder = match &way.authorities {
            _ if way.skip_verify => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
            }
            None => {
                builder.with_webpki_verifier(VERIFIER.as_ref().map_err(|why| io::Error::other(why.clone()))?.clone())
            }
            Some(name) => {
                let roots = self.loaded.get(&**name).and_then(|loaded| loaded.roots.clone());
                builder.with_root_certificates(roots.ok_or_else(|| unknown("cafile", name))?)
            }
        };
        let mut config = match &way.certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = self.loaded.get(&**name).and_then(|loaded| loaded.key.clone());
                let key = key.ok_or_else(|| unknown("clientcert", name))?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        };
        config.alpn_protocols = alpn();
        Ok(config)
    }
}

/// Reads the system's roots, which takes a while. Before the first worker runs; else it is done by the first TLS target.
pub fn prepare() {
    LazyLock::force(&VERIFIER);
}

fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().expect("the provider is installed first thing in main").clone()
}

/// Believes the system's roots, read when the first TLS target is connected to.
static VERIFIER: LazyLock<Result<Arc<WebPkiServerVerifier>, String>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!("cannot read some of the system's root certificates: {error}");
    }
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        tracing::warn!(
            "the system has no root certificates: targets with TLS are refused unless they have cafile= or tlsskipverify=true"
        );
        return Err("the system has no root certificates".to_owned());
    }
    WebPkiServerVerifier::builder(Arc::new(roots)).build().map_err(|error| error.to_string())
});

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(5);

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
