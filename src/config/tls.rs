//! Names of TLS versions and cipher suites, as Go spells them.

use super::number;

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
    match SUITES.iter().find(|(name, _, _)| *name == word) {
        Some((_, code, _)) => Ok(*code),
        None => code(&word),
    }
}

/// The TLS library has it. Others may be named and are left out.
pub(crate) fn available(cipher: u16) -> bool {
    SUITES.iter().any(|(_, code, available)| *code == cipher && *available)
}

pub(crate) fn name(cipher: u16) -> String {
    match SUITES.iter().find(|(_, code, _)| *code == cipher) {
        Some((name, _, _)) => (*name).to_owned(),
        None => format!("{cipher:#06x}"),
    }
}

fn code(word: &str) -> Result<u16, String> {
    let fault = |fault: number::Fault| format!("strconv.ParseUint: parsing {word:?}: {}", fault.words());
    let n = number::uint(word).map_err(fault)?;
    u16::try_from(n).map_err(|_| fault(number::Fault::Range))
}

/// Name, code, whether rustls has it.
const SUITES: &[(&str, u16, bool)] = &[
    ("TLS_RSA_WITH_RC4_128_SHA", 0x0005, false),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", 0x000a, false),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", 0x002f, false),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", 0x0035, false),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", 0x003c, false),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", 0x009c, false),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", 0x009d, false),
    ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", 0xc007, false),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", 0xc009, false),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", 0xc00a, false),
    ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", 0xc011, false),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", 0xc012, false),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", 0xc013, false),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", 0xc014, false),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", 0xc023, false),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", 0xc027, false),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b, true),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c, true),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f, true),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030, true),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8, true),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", 0xcca8, true),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9, true),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", 0xcca9, true),
    ("TLS_AES_128_GCM_SHA256", 0x1301, true),
    ("TLS_AES_256_GCM_SHA384", 0x1302, true),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303, true),
];

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
            ("0x123", Ok(0x123)),
            ("no_such", Err("strconv.ParseUint: parsing \"NO_SUCH\": invalid syntax".to_owned())),
        ] {
            assert_eq!(cipher(text), want, "{text}");
        }
    }

    #[test]
    fn what_the_library_has_is_marked_right() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut have: Vec<u16> = provider.cipher_suites.iter().map(|suite| u16::from(suite.suite())).collect();
        have.sort_unstable();
        let mut marked: Vec<u16> =
            SUITES.iter().filter(|(_, _, available)| *available).map(|(_, code, _)| *code).collect();
        marked.sort_unstable();
        marked.dedup();
        assert_eq!(marked, have);
    }
}
