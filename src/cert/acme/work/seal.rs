//! Private keys as they are stored: sealed with a secret of the operator, if there is one.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::pbkdf2;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::num::NonZeroU32;

/// Seals and opens.
pub(super) struct Seal {
    /// `None`: what is stored can be read by everybody who can read the storage.
    key: Option<LessSafeKey>,
}

impl Seal {
    /// Takes a moment: a secret may be a passphrase, and whoever gets hold of a copy of the storage would try them all.
    pub(super) fn new(secret: Option<&str>) -> Self {
        let key = secret.map(|secret| {
            let mut bytes = [0; 32];
            pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, SALT, secret.as_bytes(), &mut bytes);
            LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the length of its cipher"))
        });
        Self { key }
    }

    pub(super) fn is_open(&self) -> bool {
        self.key.is_none()
    }

    /// `place`: the key under which it is stored. Sealed text cannot be opened under another one.
    pub(super) fn seal(&self, place: &str, text: &str) -> Result<String, &'static str> {
        let Some(key) = &self.key else { return Ok(text.to_owned()) };
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| "no random numbers")?;
        let mut sealed = text.as_bytes().to_vec();
        let nonce_bytes = nonce;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| "too long to be sealed")?;
        Ok(format!("{MARK}{}", STANDARD.encode([&nonce_bytes[..], &sealed].concat())))
    }

    /// What was stored without a seal is taken as it is.
    pub(super) fn open(&self, place: &str, text: &str) -> Result<String, &'static str> {
        let Some(encoded) = text.strip_prefix(MARK) else { return Ok(text.to_owned()) };
        let Some(key) = &self.key else { return Err("it is sealed, and no secret is configured (secret=)") };
        let bytes = STANDARD.decode(encoded).map_err(|_| DAMAGED)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(DAMAGED)?;
        let mut sealed = sealed.to_vec();
        let opened = key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| "it was sealed with another secret, or is damaged")?;
        String::from_utf8(opened.to_vec()).map_err(|_| DAMAGED)
    }
}

const MARK: &str = "sealed:1:";
const DAMAGED: &str = "it is damaged";
/// Fixed, because every process has to come to the same key with nothing but the secret.
const SALT: &[u8] = b"ferrio acme storage 1";
/// As OWASP recommends for this function (2023).
const ROUNDS: NonZeroU32 = NonZeroU32::new(600_000).expect("it is not 0");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_same_secret_and_place_open_it() {
        let (one, other, none) = (Seal::new(Some("one")), Seal::new(Some("other")), Seal::new(None));
        let sealed = one.seal("a", "key").unwrap();
        assert!(!sealed.contains("key"));
        assert_ne!(sealed, one.seal("a", "key").unwrap(), "a nonce is used once");
        assert_eq!(one.open("a", &sealed).unwrap(), "key");
        for (what, seal, place, text) in [
            ("another place", &one, "b", sealed.clone()),
            ("another secret", &other, "a", sealed.clone()),
            ("no secret", &none, "a", sealed.clone()),
            ("cut", &one, "a", sealed[..sealed.len() - 8].to_owned()),
            ("short", &one, "a", format!("{MARK}AAAA")),
            ("no base64", &one, "a", format!("{MARK}!")),
        ] {
            assert!(seal.open(place, &text).is_err(), "{what}");
        }
        assert_eq!(none.seal("a", "key").unwrap(), "key");
        assert_eq!(one.open("a", "key").unwrap(), "key", "from before there was a secret");
    }
}
