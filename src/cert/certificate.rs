//! One certificate with its key, and what people want to know about it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use rustls::crypto::hash::Hash;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::PairError;
use super::name;

/// A usable certificate under the name that its source gives it.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Path, URL or key. Sets are sorted by it, and the first one is the default.
    pub name: String,
    /// Shared between sets as long as the content stays.
    pub pair: Arc<Pair>,
}

/// A certificate chain with its key.
#[derive(Debug)]
pub struct Pair {
    pub key: Arc<CertifiedKey>,
    pub facts: Facts,
    /// When it was shown last, seconds since 1970; only kept in stores that issue on demand.
    pub(super) used: AtomicI64,
}

/// What a certificate says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// As in RFC 4514: `CN=a,O=b`, ASCII, with escapes.
    pub subject: String,
    pub issuer: String,
    /// Hex, as in most tools: `0a:ff`.
    pub serial: String,
    /// Common name and DNS names, in lower case, without trailing dots.
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// Subject alternative names with their kind: `DNS:a.com`, `IP:10.0.0.1`, `URI:spiffe://a/b`, `email:x@a.com`.
    pub alternative: Vec<String>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// SHA-256 of the certificate, hex.
    pub fingerprint: String,
}

impl Facts {
    pub fn of(der: &[u8]) -> Result<Self, PairError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| PairError::Certificate(error.to_string()))?;
        let mut facts = Facts {
            subject: name::text(certificate.subject()),
            issuer: name::text(certificate.issuer()),
            serial: certificate.raw_serial_as_string(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            fingerprint: hex(&sha256(der)),
            ..Facts::default()
        };
        for name in certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok()) {
            facts.add(name);
        }
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                let alternative = match name {
                    GeneralName::DNSName(name) => {
                        facts.add(name);
                        Some(format!("DNS:{name}"))
                    }
                    GeneralName::IPAddress(bytes) => address(bytes).map(|address| {
                        facts.add_address(address);
                        format!("IP:{address}")
                    }),
                    GeneralName::URI(uri) => Some(format!("URI:{uri}")),
                    GeneralName::RFC822Name(name) => Some(format!("email:{name}")),
                    _ => None,
                };
                facts.alternative.extend(alternative);
            }
        }
        Ok(facts)
    }

    fn add(&mut self, name: &str) {
        if let Ok(address) = name.parse::<IpAddr>() {
            return self.add_address(address);
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if !name.is_empty() && !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    fn add_address(&mut self, address: IpAddr) {
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    /// Whether it may be shown at this time (seconds since 1970).
    pub fn is_valid_at(&self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// Four or sixteen bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// SHA-256 by the provider that is there anyway.
pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let hash = HASH.hash(bytes);
    let mut all = [0; 32];
    all.copy_from_slice(hash.as_ref());
    all
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

static HASH: std::sync::LazyLock<&'static dyn Hash> = std::sync::LazyLock::new(|| {
    rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
        .tls13()
        .expect("it is a suite of TLS 1.3")
        .common
        .hash_provider
});
