//! Names of TLS versions and cipher suites, as Go spells them.

use super::number;
use crate::listen::tls::SUITES;

/// `tls10` to `tls13` in any case, or a number with base prefix. The error is what Go prints.
pub(crate) fn version(text: &str) -> Result<u16, String> {
    let word = text.trim().to_lowercase();
    match word.as_str() {
        "tls10" => Ok(0x0301),
        "tls11" => Ok(0x0302),
        "tls12" => Ok(0x0303),
        "tls13" => Ok(0x0304),
        _ => code(&word),
    }
}

/// A suite by name in any case, or by number.
pub(crate) fn cipher(text: &str) -> Result<u16, String> {
    let word = text.trim().to_uppercase();
    match SUITES.iter().chain(SHORT).find(|(_, name)| *name == word) {
        Some((code, _)) => Ok(*code),
        None => code(&word),
    }
}

fn code(word: &str) -> Result<u16, String> {
    let fault = |fault: number::Fault| format!("strconv.ParseUint: parsing {word:?}: {}", fault.words());
    let n = number::uint(word).map_err(fault)?;
    u16::try_from(n).map_err(|_| fault(number::Fault::Range))
}

/// As Go called them before they had their suffix.
const SHORT: &[(u16, &str)] =
    &[(0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"), (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_suites_have_names_and_numbers() {
        for (text, want) in [
            ("tls10", Ok(0x0301)),
            ("TLS11", Ok(0x0302)),
            (" tls12 ", Ok(0x0303)),
            ("tls13", Ok(0x0304)),
            ("0x0300", Ok(0x0300)),
            ("10", Ok(10)),
            ("SSL30", Err("strconv.ParseUint: parsing \"ssl30\": invalid syntax".to_owned())),
            ("", Err("strconv.ParseUint: parsing \"\": invalid syntax".to_owned())),
            ("0x10000", Err("strconv.ParseUint: parsing \"0x10000\": value out of range".to_owned())),
        ] {
            assert_eq!(version(text), want, "{text}");
        }
        for (text, want) in [
            ("TLS_RSA_WITH_RC4_128_SHA", Ok(0x0005)),
            (" tls_ecdhe_ecdsa_with_aes_256_gcm_sha384", Ok(0xc02c)),
            ("TLS_AES_128_GCM_SHA256", Ok(0x1301)),
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", Ok(0xcca8)),
            ("0x123", Ok(0x123)),
            ("no_such", Err("strconv.ParseUint: parsing \"NO_SUCH\": invalid syntax".to_owned())),
        ] {
            assert_eq!(cipher(text), want, "{text}");
        }
    }
}
