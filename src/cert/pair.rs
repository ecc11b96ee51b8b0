//! From PEM to a certificate that can be served.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate::{Facts, Pair};
use super::error::PairError;

impl Pair {
    /// All certificates of `cert`, the leaf first, and the first private key of `key`. Both may be the same text.
    ///
    /// A leaf that does not stand first is moved there: other servers refuse such files, and nobody means it otherwise.
    pub(super) fn parse(cert: &[u8], key: &[u8]) -> Result<Pair, PairError> {
        let mut chain = certificates(cert)?;
        let key = load(private_key(key)?)?;
        let leaf = chain.iter().position(|certificate| fits(certificate, &*key));
        match leaf {
            Some(0) => {}
            Some(at) => chain[..=at].rotate_right(1),
            None => {
                Facts::of(&chain[0])?;
                return Err(PairError::Mismatch);
            }
        }
        let facts = Facts::of(&chain[0])?;
        Ok(Pair { key: Arc::new(CertifiedKey::new(chain, key)), facts, used: AtomicI64::new(0) })
    }
}

/// All CERTIFICATE blocks; at least one.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let mut all = Vec::new();
    for section in sections(text) {
        if let (SectionKind::Certificate, der) = section? {
            all.push(CertificateDer::from(der));
        }
    }
    if all.is_empty() { Err(PairError::NoCertificate) } else { Ok(all) }
}

/// Blocks of all kinds.
pub(super) fn sections(text: &[u8]) -> impl Iterator<Item = Result<(SectionKind, Vec<u8>), PairError>> {
    // Editors of some systems begin a file with a mark, which would hide the first block.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text)
        .map(|section| section.map_err(|error| PairError::Pem(short(&error.to_string()))))
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, PairError> {
    // Both ways to say so: PKCS#8, and the old header inside of another block.
    if contains(text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(PairError::Encrypted);
    }
    for section in sections(text) {
        return Ok(match section? {
            (SectionKind::PrivateKey, der) => PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der)),
            (SectionKind::RsaPrivateKey, der) => PrivateKeyDer::from(PrivatePkcs1KeyDer::from(der)),
            (SectionKind::EcPrivateKey, der) => PrivateKeyDer::from(PrivateSec1KeyDer::from(der)),
            _ => continue,
        });
    }
    Err(PairError::NoKey)
}

fn load(key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, PairError> {
    default_provider().key_provider.load_private_key(key).map_err(|error| PairError::Key(error.to_string()))
}

/// Whether this is the certificate of the key: the same public key in both.
fn fits(certificate: &CertificateDer<'_>, key: &dyn SigningKey) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    key.public_key().is_some_and(|public| public.as_ref() == parsed.public_key().raw)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The PEM reader quotes lines, and a line can be a key.
fn short(text: &str) -> String {
    match text.find(['"', '[']) {
        Some(at) => text[..at].trim_end_matches([' ', ':']).to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cert::testing::{Authority, openssl};

    fn parse(cert: &str, key: &str) -> Result<Pair, PairError> {
        Pair::parse(cert.as_bytes(), key.as_bytes())
    }

    #[test]
    fn layouts() {
        let root = Authority::new("root");
        let between = root.authority("between");
        let leaf = between.leaf(&["a.test"]);
        let other = root.leaf(&["b.test"]);
        let (l, i, r, k) = (&leaf.cert, between.pem(), root.pem(), &leaf.key);
        let first = leaf.der();
        for (name, cert, key) in [
            ("leaf alone", l.clone(), k.clone()),
            ("chain", format!("{l}{i}{r}"), k.clone()),
            ("key first in one file", format!("{k}{l}{i}{r}"), format!("{k}{l}{i}{r}")),
            ("key last in one file", format!("{l}{i}{r}{k}"), format!("{l}{i}{r}{k}")),
            ("text around", format!("subject: x\n{l}issuer y\n{i}\ntrailing"), format!("\n\n{k}text")),
            ("line ends of another system", l.replace('\n', "\r\n"), k.replace('\n', "\r\n")),
            ("byte order mark", format!("\u{feff}{l}"), format!("\u{feff}{k}")),
            ("leaf last", format!("{r}{i}{l}"), k.clone()),
            ("no newline at the end", l.trim_end().to_owned(), k.trim_end().to_owned()),
        ] {
            let pair = parse(&cert, &key).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(pair.key.cert[0].as_ref(), first, "{name}");
            assert_eq!(pair.facts.names, ["a.test"], "{name}");
        }
        assert_eq!(parse(&format!("{l}{i}{r}"), k).unwrap().key.cert.len(), 3);
        for (name, cert, key, want) in [
            ("another key", l, &other.key, PairError::Mismatch),
            ("no certificate", &"x".to_owned(), k, PairError::NoCertificate),
            ("no key", l, l, PairError::NoKey),
        ] {
            assert_eq!(parse(cert, key).unwrap_err(), want, "{name}");
        }
        let cut = &l[..l.len() / 2];
        assert!(matches!(parse(cut, k).unwrap_err(), PairError::Pem(_)));
        let cut = &k[..k.len() / 2];
        let error = parse(l, cut).unwrap_err();
        assert!(matches!(error, PairError::Pem(_)));
        let secret = &k.lines().nth(1).unwrap()[..10];
        assert!(!error.to_string().contains(secret) && !format!("{error:?}").contains(secret), "{error:?}");
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(parse(garbage, k).unwrap_err(), PairError::Certificate(_)));
        let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(parse(l, garbage).unwrap_err(), PairError::Key(_)));
    }

    #[test]
    fn kinds_of_keys() {
        let Some(dir) = openssl::folder() else { return };
        for (name, make) in [
            ("rsa pkcs8", "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out K"),
            ("rsa pkcs1", "openssl genrsa -traditional -out K 2048"),
            ("p256 pkcs8", "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out K"),
            ("p384 sec1 with parameters", "openssl ecparam -name secp384r1 -genkey -out K"),
            ("p256 sec1", "openssl ecparam -name prime256v1 -genkey -noout -out K"),
            ("ed25519", "openssl genpkey -algorithm ED25519 -out K"),
        ] {
            let (cert, key) = openssl::self_signed(dir.path(), make, "/CN=Key.Test.");
            let pair = parse(&cert, &key).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(pair.facts.names, ["key.test"], "{name}");
        }
        let key = openssl::run(dir.path(), "openssl genpkey -algorithm RSA -out P -aes128 -pass pass:x && cat P");
        let (cert, plain) = openssl::self_signed(dir.path(), "openssl genrsa -traditional -out K 2048", "/CN=x");
        assert_eq!(parse(&cert, &key).unwrap_err(), PairError::Encrypted);
        let old = openssl::run(dir.path(), "openssl rsa -in K -traditional -aes128 -passout pass:x");
        assert_eq!(parse(&cert, &old).unwrap_err(), PairError::Encrypted);
        // Version 1, without extensions: made by many a recipe.
        let v1 = openssl::run(
            dir.path(),
            "openssl req -new -key K -subj /CN=v1.test -out R && openssl x509 -req -in R -signkey K -days 9",
        );
        assert_eq!(parse(&v1, &plain).unwrap().facts.names, ["v1.test"]);
    }
}
