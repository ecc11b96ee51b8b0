//! A service mesh whose members are named by URIs (SPIFFE), as Consul Connect is.
//!
//! Its certificates carry no DNS name, so the chain is verified by rustls-webpki alone, and the URI is compared here.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage};

use super::provider;

/// Who we are in a mesh, and whom its members believe.
pub struct Mesh {
    anchors: Vec<TrustAnchor<'static>>,
    pub(super) key: Arc<CertifiedKey>,
    /// `spiffe://<trust domain>/ns/<namespace>/dc/<data centre>/svc/<service>`, up to `/svc/` and with it.
    family: Box<str>,
}

impl Mesh {
    /// Roots, certificate with its chain and key as PEM; `uri` is our own name. The error says what is wrong.
    pub fn new(roots: &[String], certificate: &str, key: &str, uri: &str) -> Result<Self, String> {
        let read = |pem: &str| -> Result<Vec<CertificateDer<'static>>, String> {
            CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|error| error.to_string())
        };
        let mut anchors = Vec::new();
        for root in roots {
            for certificate in read(root)? {
                let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|error| error.to_string())?;
                anchors.push(anchor.to_owned());
            }
        }
        if anchors.is_empty() {
            return Err("there is no root certificate".to_owned());
        }
        let family = match uri.rsplit_once("/svc/") {
            Some((family, _)) if family.starts_with("spiffe://") => format!("{family}/svc/").into(),
            _ => return Err(format!("{uri:?} is no name of a service")),
        };
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
        let pair =
            CertifiedKey::from_der(read(certificate)?, private, &provider()).map_err(|error| error.to_string())?;
        Ok(Self { anchors, key: Arc::new(pair), family })
    }

    /// Believes only this service, in our own namespace, and in our own data centre unless another one is given.
    pub(super) fn member(&self, service: &str, datacenter: Option<&str>) -> Member {
        Member { anchors: self.anchors.clone(), uri: uri(&self.family, service, datacenter), provider: provider() }
    }
}

/// The name of a service, as we and its data centre call it.
fn uri(family: &str, service: &str, datacenter: Option<&str>) -> String {
    match (datacenter, family.rsplit_once("/dc/")) {
        (Some(datacenter), Some((domain, _))) => format!("{domain}/dc/{datacenter}/svc/{service}"),
        _ => format!("{family}{service}"),
    }
}

/// Verifies that the peer is one service of the mesh.
#[derive(Debug)]
pub(super) struct Member {
    anchors: Vec<TrustAnchor<'static>>,
    uri: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Member {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let bad = |error: webpki::Error| match error {
            webpki::Error::CertExpired { .. } => CertificateError::Expired,
            webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
            other => CertificateError::Other(rustls::OtherError(Arc::new(other))),
        };
        let certificate = EndEntityCert::try_from(end_entity).map_err(bad)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let usage = KeyUsage::server_auth();
        certificate.verify_for_usage(algorithms, &self.anchors, intermediates, now, usage, None, None).map_err(bad)?;
        let mut names = certificate.valid_uri_names();
        // Exactly one (SPIFFE X509-SVID, section 2).
        match (names.next(), names.next()) {
            (Some(name), None) if name == self.uri => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_elsewhere() {
        let family = "spiffe://11.consul/ns/default/dc/dc1/svc/";
        assert_eq!(uri(family, "web", None), "spiffe://11.consul/ns/default/dc/dc1/svc/web");
        assert_eq!(uri(family, "web", Some("east")), "spiffe://11.consul/ns/default/dc/east/svc/web");
        assert_eq!(uri("spiffe://x/svc/", "web", Some("east")), "spiffe://x/svc/web");
    }
}
