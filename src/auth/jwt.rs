//! `type=jwt`: tokens that somebody trusted has signed (RFC 7519, RFC 8725).

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use super::file::Error;
use super::jwks::Keys;
use super::{Grant, JwtConfig, Refusal, challenge_of};
use crate::life::Watch;

pub(super) struct Jwt {
    /// Without a token, and with one that is not valid (RFC 6750, section 3).
    missing: HeaderValue,
    invalid: HeaderValue,
    keys: Keys,
    /// Without algorithms: those are of the key.
    validation: Validation,
    /// Empty: any that the key is for.
    algorithms: Vec<Algorithm>,
    claims: Vec<(String, HeaderName)>,
    reserved: Vec<HeaderName>,
}

impl Jwt {
    pub(super) fn start(realm: &str, config: &JwtConfig, life: &Watch) -> Result<Self, Error> {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.validate_nbf = true;
        validation.leeway = config.leeway.as_secs();
        let mut required = vec!["exp"];
        validation.validate_aud = !config.audiences.is_empty();
        if !config.audiences.is_empty() {
            validation.set_audience(&config.audiences);
            required.push("aud");
        }
        if !config.issuers.is_empty() {
            validation.set_issuer(&config.issuers);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        let mut algorithms = Vec::new();
        for name in &config.algorithms {
            let algorithm = name.parse().map_err(|_| Error::new(name, "no algorithm of this name for tokens"))?;
            algorithms.push(algorithm);
        }
        Ok(Self {
            missing: challenge_of("Bearer", realm, ""),
            invalid: challenge_of("Bearer", realm, ", error=\"invalid_token\""),
            keys: Keys::start(&config.keys, config.refresh, life)?,
            validation,
            algorithms,
            reserved: config.claims.iter().map(|(_, header)| header.clone()).collect(),
            claims: config.claims.clone(),
        })
    }

    pub(super) fn check(&self, headers: &HeaderMap, grant: &mut Grant) -> Result<(), Refusal> {
        let Some(token) = bearer(headers) else { return Err(Refusal::Challenge(vec![self.missing.clone()])) };
        let Some(claims) = self.claims_of(token) else {
            return Err(Refusal::Challenge(vec![self.invalid.clone()]));
        };
        for (name, header) in &self.claims {
            if let Some(value) = find(&claims, name).and_then(text).and_then(|text| HeaderValue::from_str(&text).ok()) {
                grant.set(header, value);
            }
        }
        Ok(())
    }

    pub(super) fn reserved(&self) -> &[HeaderName] {
        &self.reserved
    }

    /// `none` is no algorithm here, and each key is only used for algorithms of its own kind: a public key never serves as
    /// the secret of an HMAC.
    fn claims_of(&self, token: &[u8]) -> Option<Map<String, Value>> {
        if token.len() > LONGEST {
            return None;
        }
        let header = jsonwebtoken::decode_header(token).ok()?;
        // Extensions that must be understood (RFC 7515, section 4.1.11); none are.
        if header.crit.is_some() || header.zip.is_some() {
            return None;
        }
        if !self.algorithms.is_empty() && !self.algorithms.contains(&header.alg) {
            return None;
        }
        let keys = self.keys.load();
        let named = |id: &Option<String>| header.kid.is_none() || id.is_none() || *id == header.kid;
        let mut tried = false;
        for key in keys.iter().filter(|key| named(&key.id) && key.algorithms.contains(&header.alg)).take(MOST_TRIES) {
            tried = true;
            let mut validation = self.validation.clone();
            validation.algorithms = vec![header.alg];
            if let Ok(token) = jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &validation) {
                return Some(token.claims);
            }
        }
        if !tried {
            self.keys.miss();
        }
        None
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// A claim by its name, or by the path to it.
fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (outer, inner) = name.split_once('.')?;
    find(claims.get(outer)?.as_object()?, inner)
}

/// Lists with commas between their elements.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => Some(values.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

/// Bytes of a token.
const LONGEST: usize = 16 * 1024;
/// Keys that are tried for a token that names none.
const MOST_TRIES: usize = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _};
    use serde_json::json;

    use super::*;
    use crate::auth::KeySource;
    use crate::life::Life;

    fn now() -> u64 {
        jsonwebtoken::get_current_timestamp()
    }

    fn start(content: &str, secret: bool, change: impl FnOnce(&mut JwtConfig)) -> Jwt {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let path = file.path().to_owned();
        let mut config = JwtConfig {
            keys: if secret { KeySource::Secret(path) } else { KeySource::File(path) },
            refresh: None,
            issuers: vec![],
            audiences: vec![],
            leeway: Duration::from_secs(5),
            algorithms: vec![],
            claims: vec![],
        };
        change(&mut config);
        Jwt::start("r", &config, &Life::new().watch()).unwrap()
    }

    fn valid(jwt: &Jwt, token: &str) -> bool {
        jwt.claims_of(token.as_bytes()).is_some()
    }

    const SECRET: &str = "a secret of more than thirty-two bytes";

    fn hs256(claims: &Value) -> String {
        encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn times_issuers_and_audiences() {
        let jwt = start(SECRET, true, |config| {
            config.issuers = vec!["i".to_owned()];
            config.audiences = vec!["a".to_owned(), "b".to_owned()];
        });
        let good = json!({ "exp": now() + 60, "iss": "i", "aud": ["x", "b"] });
        assert!(valid(&jwt, &hs256(&good)));
        for (key, value) in [
            ("exp", json!(now() - 60)),
            ("exp", Value::Null),
            ("exp", json!("tomorrow")),
            ("nbf", json!(now() + 60)),
            ("iss", json!("other")),
            ("iss", Value::Null),
            ("aud", json!("other")),
            ("aud", Value::Null),
        ] {
            let mut bad = good.clone();
            match value {
                Value::Null => _ = bad.as_object_mut().unwrap().remove(key),
                ref value => bad[key] = value.clone(),
            }
            assert!(!valid(&jwt, &hs256(&bad)), "{key} {value}");
        }
        let mut late = good.clone();
        late["exp"] = json!(now() - 3);
        assert!(valid(&jwt, &hs256(&late)), "within the leeway");
        let any = start(SECRET, true, |_| {});
        assert!(valid(&any, &hs256(&json!({ "exp": now() + 60, "aud": "whoever" }))));
    }

    #[test]
    fn no_algorithm_and_the_wrong_one() {
        let claims = json!({ "exp": now() + 60 });
        let jwt = start(SECRET, true, |_| {});
        let body = URL_SAFE_NO_PAD.encode(claims.to_string());
        for alg in ["none", "None", "NONE", ""] {
            let head = URL_SAFE_NO_PAD.encode(json!({ "alg": alg, "typ": "JWT" }).to_string());
            for token in [format!("{head}.{body}."), format!("{head}.{body}")] {
                assert!(!valid(&jwt, &token), "{alg}");
            }
        }
        let good = hs256(&claims);
        assert!(valid(&jwt, &good));
        let (signed, _) = good.rsplit_once('.').unwrap();
        for bad in [format!("{signed}."), format!("{signed}.AAAA"), "x".to_owned(), "..".to_owned(), String::new()] {
            assert!(!valid(&jwt, &bad), "{bad}");
        }
        assert!(!valid(&start(SECRET, true, |config| config.algorithms = vec!["HS512".to_owned()]), &good));
        let critical = Header { crit: Some(vec!["b64".to_owned()]), ..Header::new(Algorithm::HS256) };
        let critical = encode(&critical, &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap()).unwrap();
        assert!(!valid(&jwt, &critical));
    }

    #[test]
    fn a_public_key_is_no_secret() {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let public = pair.public_key_pem();
        let jwt = start(&public, false, |_| {});
        let claims = json!({ "exp": now() + 60 });
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        assert!(valid(&jwt, &encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap()));
        for secret in [public.as_bytes(), public.trim_end().as_bytes(), pair.der_bytes()] {
            let token =
                encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret).unwrap()).unwrap();
            assert!(!valid(&jwt, &token));
        }
        let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let other = EncodingKey::from_ec_pem(other.serialize_pem().as_bytes()).unwrap();
        assert!(!valid(&jwt, &encode(&Header::new(Algorithm::ES256), &claims, &other).unwrap()));
    }

    #[test]
    fn sets_of_keys() {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.der_bytes());
        let set = json!({ "keys": [
            { "kty": "new", "kid": "n" },
            { "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "a", "use": "sig", "alg": "EdDSA" },
            { "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "enc", "use": "enc" },
            { "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "hmac", "alg": "HS256" },
        ]});
        let jwt = start(&set.to_string(), false, |config| {
            config.claims = [("sub", "x-sub"), ("realm.roles", "x-roles"), ("n", "x-n"), ("gone", "x-gone")]
                .map(|(claim, header)| (claim.to_owned(), HeaderName::from_static(header)))
                .to_vec();
        });
        let key = EncodingKey::from_ed_pem(pair.serialize_pem().as_bytes()).unwrap();
        let claims = json!({ "exp": now() + 60, "sub": "me", "realm": { "roles": ["r", "s"] }, "n": 1 });
        let token = |id: Option<&str>| {
            let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::EdDSA) };
            encode(&header, &claims, &key).unwrap()
        };
        for (id, want) in
            [(Some("a"), true), (None, true), (Some("enc"), false), (Some("hmac"), false), (Some("z"), false)]
        {
            assert_eq!(valid(&jwt, &token(id)), want, "{id:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("bearer {}", token(None))).unwrap());
        headers.insert("x-gone", HeaderValue::from_static("admin"));
        let mut grant = Grant::default();
        grant.reserve(jwt.reserved());
        jwt.check(&headers, &mut grant).unwrap();
        grant.apply(&mut headers);
        for (name, want) in [("x-sub", Some("me")), ("x-roles", Some("r,s")), ("x-n", Some("1")), ("x-gone", None)] {
            assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), want, "{name}");
        }
    }
}
