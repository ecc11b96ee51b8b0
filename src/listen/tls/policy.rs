//! Versions and cipher suites: from fabio's names and numbers to what rustls speaks.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::ConfigError;
use crate::listen::Config;

pub(super) struct Policy {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    pub(super) warnings: Vec<String>,
}

/// What is to be known about settings that are served otherwise than they say.
pub fn check(listener: &Config) -> Result<Vec<String>, ConfigError> {
    policy(listener).map(|policy| policy.warnings)
}

pub(super) fn policy(listener: &Config) -> Result<Policy, ConfigError> {
    let (min, max) = (listener.tls_min, listener.tls_max);
    let mut warnings = Vec::new();
    let mut versions: Vec<_> = [&TLS12, &TLS13]
        .into_iter()
        .filter(|spoken| {
            let number = u16::from(spoken.version);
            min <= number && (max == 0 || number <= max)
        })
        .collect();
    if versions.is_empty() {
        return Err(ConfigError::Versions { min, max });
    }
    if min != 0 && min < LOWEST {
        warnings.push(format!("tlsmin={}: versions below TLS 1.2 are not spoken, tlsmin=tls12 is meant", version(min)));
    }

    let listed = &listener.tls_ciphers;
    let mut provider = default_provider();
    if !listed.is_empty() {
        let missing: Vec<String> = listed.iter().filter(|id| !is_spoken(**id)).map(|id| cipher(*id)).collect();
        // As in fabio, the list says nothing about the suites of TLS 1.3.
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || listed.contains(&id(suite)));
        let old = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        let new = listed.iter().any(|listed| ALL_CIPHER_SUITES.iter().any(|s| s.tls13().is_some() && id(s) == *listed));
        if !old && versions.contains(&&TLS12) {
            if !new || !versions.contains(&&TLS13) {
                return Err(ConfigError::Ciphers(listed.iter().map(|id| cipher(*id)).collect::<Vec<_>>().join(",")));
            }
            versions.retain(|version| *version == &TLS13);
            warnings.push("tlsciphers leaves no suite of TLS 1.2, so only TLS 1.3 is spoken".into());
        }
        if !missing.is_empty() {
            warnings.push(format!("tlsciphers: not spoken, and left out: {}", missing.join(", ")));
        }
    }
    Ok(Policy { provider: Arc::new(provider), versions, warnings })
}

/// `tls12`, or the number for what has no name.
pub(super) fn version(number: u16) -> String {
    match number {
        0 => "(not set)".into(),
        0x0301 => "tls10".into(),
        0x0302 => "tls11".into(),
        0x0303 => "tls12".into(),
        0x0304 => "tls13".into(),
        other => format!("0x{other:04x}"),
    }
}

fn cipher(number: u16) -> String {
    match SUITES.iter().find(|(id, _)| *id == number) {
        Some((_, name)) => (*name).into(),
        None => format!("0x{number:04x}"),
    }
}

fn is_spoken(number: u16) -> bool {
    ALL_CIPHER_SUITES.iter().any(|suite| id(suite) == number)
}

fn id(suite: &SupportedCipherSuite) -> u16 {
    u16::from(suite.suite())
}

const LOWEST: u16 = 0x0303;

/// To be chosen from for TLS 1.2.
pub(super) const SPOKEN: &str = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, \
     TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, \
     TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

/// What fabio knows by name, with its number (IANA's registry of cipher suites).
pub const SUITES: &[(u16, &str)] = &[
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0xc007, "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc011, "TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
    (0xc012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::listen::tls::tests::listener;

    #[test]
    fn versions() {
        for (min, max, want, warnings) in [
            (0, 0, Ok(&[0x0303, 0x0304][..]), 0),
            (0x0303, 0, Ok(&[0x0303, 0x0304]), 0),
            (0x0304, 0, Ok(&[0x0304]), 0),
            (0, 0x0303, Ok(&[0x0303]), 0),
            (0x0303, 0x0303, Ok(&[0x0303]), 0),
            (0x0301, 0, Ok(&[0x0303, 0x0304]), 1),
            (0x0301, 0x0303, Ok(&[0x0303]), 1),
            (0x0300, 0x0305, Ok(&[0x0303, 0x0304]), 1),
            (10, 0, Ok(&[0x0303, 0x0304]), 1),
            (0, 0x0302, Err(()), 0),
            (0x0301, 0x0302, Err(()), 0),
            (0x0304, 0x0303, Err(()), 0),
            (0x0305, 0, Err(()), 0),
            (0, 10, Err(()), 0),
        ] {
            let mut config = listener();
            (config.tls_min, config.tls_max) = (min, max);
            match (policy(&config), want) {
                (Ok(policy), Ok(want)) => {
                    let got: Vec<u16> = policy.versions.iter().map(|version| version.version.into()).collect();
                    assert_eq!(got, want, "{min:x} {max:x}");
                    assert_eq!(policy.warnings.len(), warnings, "{min:x} {max:x} {:?}", policy.warnings);
                }
                (Err(error), Err(())) => assert!(error.to_string().contains("write tlsmin=tls12"), "{error}"),
                (got, _) => panic!("{min:x} {max:x}: {:?}", got.map(|policy| policy.warnings)),
            }
        }
    }

    #[test]
    fn ciphers() {
        const OLD: &[u16] = &[0xc02b, 0xc02c];
        for (listed, min, max, want, warnings) in [
            (&[][..], 0, 0, Ok(6), &[][..]),
            (OLD, 0, 0, Ok(2), &[]),
            (
                &[0xc02b, 0xc013, 0x0005],
                0,
                0,
                Ok(1),
                &["left out: TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_RSA_WITH_RC4_128_SHA"],
            ),
            (&[0xc02b, 0x0123], 0, 0, Ok(1), &["0x0123"]),
            (&[0xc013, 0xc014], 0, 0, Err("leaves no cipher suite"), &[]),
            (&[0x0123, 0x0456], 0, 0, Err("tlsciphers=0x0123,0x0456"), &[]),
            // Without effect, as the suites of TLS 1.3 cannot be chosen.
            (&[0xc013], 0x0304, 0, Ok(0), &["left out"]),
            (&[0x1301], 0, 0, Ok(0), &["only TLS 1.3"]),
            (&[0x1301], 0, 0x0303, Err("write some of TLS_ECDHE"), &[]),
            (&[0x1301, 0xc02f], 0, 0, Ok(1), &[]),
        ] {
            let mut config = listener();
            (config.tls_min, config.tls_max, config.tls_ciphers) = (min, max, listed.to_vec());
            match (policy(&config), want) {
                (Ok(policy), Ok(want)) => {
                    let old = policy.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
                    assert_eq!((old, policy.provider.cipher_suites.len()), (want, want + 3), "{listed:x?}");
                    assert_eq!(policy.warnings.len(), warnings.len(), "{listed:x?} {:?}", policy.warnings);
                    for (warning, part) in policy.warnings.iter().zip(warnings) {
                        assert!(warning.contains(part), "{listed:x?} {warning}");
                    }
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, _) => panic!("{listed:x?}: {:?}", got.map(|policy| policy.warnings)),
            }
        }
    }

    #[test]
    fn every_spoken_suite_has_a_name() {
        for suite in ALL_CIPHER_SUITES {
            assert!(SUITES.iter().any(|(number, _)| *number == id(suite)), "{suite:?}");
            assert!(suite.tls13().is_some() || SPOKEN.contains(&cipher(id(suite))), "{suite:?}");
        }
        assert_eq!(SUITES.len(), 25);
    }
}
