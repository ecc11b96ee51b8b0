//! Whose certificates clients may show.
//!
//! A set holds CA certificates, certificates of single clients, and revocation lists, all PEM. Unlike fabio it is read again
//! while the program runs, because a revocation list is worth nothing otherwise. What cannot be used is not taken: the
//! previous set stays.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use super::blobs::Blobs;
use super::certificate::sha256;
use super::error::{Error, PairError};
use super::store::now;

/// The current set.
#[derive(Debug)]
pub struct Authorities {
    current: ArcSwap<Set>,
    /// Counts the sets.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Set {
    required: Arc<dyn ClientCertVerifier>,
    optional: Arc<dyn ClientCertVerifier>,
}

/// What a listener asks its clients for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// A certificate of one of the authorities, or no handshake.
    #[default]
    Required,
    /// A certificate, if the client has one. One that is not good ends the handshake all the same.
    Optional,
}

impl Authorities {
    /// `upgrade`: issuer name of certificates that may sign although they do not say so (`caupgcn`).
    pub(super) fn new(blobs: &Blobs, upgrade: Option<&str>) -> Result<Self, Error> {
        Ok(Self { current: ArcSwap::from_pointee(parse(blobs, upgrade)?), changes: watch::Sender::new(0) })
    }

    pub(super) fn replace(&self, blobs: &Blobs, upgrade: Option<&str>) -> Result<(), Error> {
        self.current.store(Arc::new(parse(blobs, upgrade)?));
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Changes with each new set.
    pub fn generation(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Hears of each new set.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// For the current set.
    pub fn verifier(&self, demand: Demand) -> Arc<dyn ClientCertVerifier> {
        let current = self.current.load();
        match demand {
            Demand::Required => current.required.clone(),
            Demand::Optional => current.optional.clone(),
        }
    }
}

fn parse(blobs: &Blobs, upgrade: Option<&str>) -> Result<Set, Error> {
    let mut anchors = RootCertStore::empty();
    let mut subjects = Vec::new();
    let mut known = HashSet::new();
    let mut lists = Vec::new();
    for (name, blob) in blobs {
        let fail = |cause| Error::Authorities { what: name.clone(), cause };
        let text = blob.as_ref().map_err(|error| fail(error.clone()))?;
        for section in super::pair::sections(text) {
            match section.map_err(fail)? {
                (SectionKind::Certificate, der) => {
                    let certificate = parsed(&der).map_err(fail)?;
                    subjects.push(DistinguishedName::from(certificate.subject().as_raw().to_vec()));
                    known.insert(sha256(&der));
                    if may_sign(&certificate, upgrade) {
                        let unusable = |error: rustls::Error| fail(PairError::Certificate(error.to_string()));
                        anchors.add(CertificateDer::from(der)).map_err(unusable)?;
                    }
                }
                (SectionKind::Crl, der) => {
                    look(name, &der).map_err(fail)?;
                    lists.push(CertificateRevocationListDer::from(der));
                }
                (SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _) => {
                    return Err(fail(PairError::Certificate("a private key does not belong here".into())));
                }
                _ => {}
            }
        }
    }
    if known.is_empty() {
        return Err(Error::Nothing { what: "it".into() });
    }
    subjects.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
    subjects.dedup_by(|a, b| a.as_ref() == b.as_ref());
    let provider = Arc::new(default_provider());
    let chains = if anchors.is_empty() {
        None
    } else {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(anchors), provider.clone());
        // An authority without a list revokes nothing. A list beyond its time still says who was revoked.
        let builder = builder.with_crls(lists).allow_unknown_revocation_status();
        let unusable = |error: rustls::server::VerifierBuilderError| Error::Authorities {
            what: "clientca".into(),
            cause: PairError::Certificate(error.to_string()),
        };
        Some(builder.build().map_err(unusable)?)
    };
    let verifier = |mandatory| Verifier {
        mandatory,
        provider: provider.clone(),
        chains: chains.clone(),
        known: known.clone(),
        subjects: subjects.clone(),
    };
    Ok(Set { required: Arc::new(verifier(true)), optional: Arc::new(verifier(false)) })
}

fn parsed(der: &[u8]) -> Result<X509Certificate<'_>, PairError> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(error) => Err(PairError::Certificate(error.to_string())),
    }
}

/// Whether others may hold certificates that this one has signed. A certificate of a single client does not make its
/// holder an authority.
fn may_sign(certificate: &X509Certificate<'_>, upgrade: Option<&str>) -> bool {
    let issuer = certificate.issuer().iter_common_name().filter_map(|name| name.as_str().ok());
    if upgrade.is_some_and(|upgrade| issuer.into_iter().any(|name| name == upgrade)) {
        return true;
    }
    // Before version 3 there was no way to say it.
    let is_ca = certificate.version().0 < 2 || certificate.is_ca();
    let usage = certificate.key_usage().ok().flatten();
    is_ca && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

fn look(name: &str, der: &[u8]) -> Result<(), PairError> {
    let (_, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| PairError::Certificate(format!("unreadable revocation list: {error}")))?;
    if list.next_update().is_some_and(|next| next.timestamp() < now()) {
        tracing::warn!("cert: the revocation list {name} of {} is out of date; it is still applied", list.issuer());
    }
    Ok(())
}

/// Chains to an authority, and single certificates that were named themselves.
struct Verifier {
    mandatory: bool,
    provider: Arc<CryptoProvider>,
    /// `None`: there are no authorities, only single certificates.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    /// SHA-256 of every certificate of the set.
    known: HashSet<[u8; 32]>,
    subjects: Vec<DistinguishedName>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("mandatory", &self.mandatory).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let error = match &self.chains {
            Some(chains) => match chains.verify_client_cert(end_entity, intermediates, now) {
                Ok(verified) => return Ok(verified),
                Err(error) => error,
            },
            None => CertificateError::UnknownIssuer.into(),
        };
        // The chain builder refuses what Go's takes: a certificate that is its own authority, as many tools make them.
        let revoked = matches!(error, rustls::Error::InvalidCertificate(CertificateError::Revoked));
        if revoked || !self.known.contains(&sha256(end_entity)) {
            return Err(error);
        }
        fits_client(end_entity, now).map(|()| ClientCertVerified::assertion()).map_err(rustls::Error::from)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Time and purpose.
fn fits_client(der: &[u8], now: UnixTime) -> Result<(), CertificateError> {
    let certificate = parsed(der).map_err(|_| CertificateError::BadEncoding)?;
    let now = now.as_secs() as i64;
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.client_auth || usage.value.any => Ok(()),
        _ => Err(CertificateError::InvalidPurpose),
    }
}
