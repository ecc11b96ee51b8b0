//! `type=apikey`: whoever has a key from a file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::file::{Error, Watched};
use super::{ApiKeyConfig, Grant, Refusal, Request, challenge_of};
use crate::life::Watch;

pub(super) struct ApiKey {
    challenge: HeaderValue,
    keys: Arc<Watched<Keys>>,
    header: HeaderName,
    query: Option<String>,
    user: Option<HeaderName>,
}

/// Hashes of keys to the names of their owners. What is looked up is a hash, so that time tells nothing about a key.
#[derive(Debug, Default)]
struct Keys(HashMap<[u8; 32], HeaderValue>);

impl ApiKey {
    pub(super) fn start(realm: &str, config: &ApiKeyConfig, life: &Watch) -> Result<Self, Error> {
        Ok(Self {
            challenge: challenge_of("ApiKey", realm, ""),
            keys: Watched::start(&config.file, Keys::parse, config.refresh, life)?,
            header: config.header.clone(),
            query: config.query.clone(),
            user: config.user.clone(),
        })
    }

    pub(super) fn check(&self, request: &Request<'_>, grant: &mut Grant) -> Result<(), Refusal> {
        let refused = || Refusal::Challenge(vec![self.challenge.clone()]);
        let key = self.key(request.headers, request.query).ok_or_else(refused)?;
        let keys = self.keys.load();
        let name = keys.as_ref().and_then(|keys| keys.0.get(&hash(&key))).ok_or_else(refused)?;
        if let Some(header) = &self.user {
            grant.set(header, name.clone());
        }
        Ok(())
    }

    pub(super) fn reserved(&self) -> &[HeaderName] {
        self.user.as_slice()
    }

    /// Exactly one.
    fn key(&self, headers: &HeaderMap, query: Option<&str>) -> Option<Vec<u8>> {
        let mut lines = headers.get_all(&self.header).iter();
        match (lines.next(), lines.next(), &self.query) {
            (Some(line), None, _) => {
                let line = line.as_bytes().trim_ascii();
                if self.header != AUTHORIZATION {
                    return Some(line.to_vec());
                }
                let (scheme, key) = line.split_at_checked(b"Bearer ".len())?;
                scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii().to_vec())
            }
            (None, _, Some(parameter)) => {
                let mut values = query?.split('&').filter_map(|pair| pair.split_once('='));
                let (_, value) = values.find(|(name, _)| name == parameter)?;
                Some(percent_encoding::percent_decode_str(value).collect())
            }
            _ => None,
        }
    }
}

impl Keys {
    /// A line that cannot be used costs itself only, and is not repeated in the log.
    fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let mut keys = Self::default();
        for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match Self::line(line) {
                Some((hash, name)) => _ = keys.0.insert(hash, name),
                None => tracing::warn!(
                    "{}:{}: not of the form name:key or name:{{SHA256}}hex; the line is ignored",
                    path.display(),
                    number + 1
                ),
            }
        }
        Ok(keys)
    }

    fn line(line: &[u8]) -> Option<([u8; 32], HeaderValue)> {
        let colon = line.iter().position(|b| *b == b':')?;
        let (name, key) = (&line[..colon], &line[colon + 1..]);
        let name = HeaderValue::from_bytes(name).ok()?;
        if let Some(hex) = key.strip_prefix(b"{SHA256}") {
            return Some((unhex(hex)?, name));
        }
        (!key.is_empty()).then(|| (hash(key), name))
    }
}

fn hash(key: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, key).as_ref());
    hash
}

fn unhex(text: &[u8]) -> Option<[u8; 32]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 64 && text.is_ascii())?;
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::auth::tests::{peer, pools, request};
    use crate::life::Life;

    #[test]
    fn keys() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "# comment:x\nalice:k1\nbob:{SHA256}5de89fc70c86cb4adfaa9f65fae4c2bd8ea2bf80dd4b0d6b2d9b6ae7ea0f9a3e\nempty:\nbad:{SHA256}zz\n";
        let text = text.replace("5de89fc70c86cb4adfaa9f65fae4c2bd8ea2bf80dd4b0d6b2d9b6ae7ea0f9a3e", &{
            hash(b"k2").iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        std::fs::write(file.path(), text).unwrap();
        let config = ApiKeyConfig {
            file: file.path().to_owned(),
            refresh: None,
            header: HeaderName::from_static("x-api-key"),
            query: Some("key".to_owned()),
            user: Some(HeaderName::from_static("x-user")),
        };
        let scheme = ApiKey::start("r", &config, &Life::new().watch()).unwrap();
        for (lines, query, want) in [
            (&["k1"][..], None, Some("alice")),
            (&["k2"], None, Some("bob")),
            (&["k3"], None, None),
            (&[""], None, None),
            (&["k1", "k1"], None, None),
            (&[], Some("a=b&key=k%31&x"), Some("alice")),
            (&["k3"], Some("key=k1"), None),
            (&[], Some("key=zz"), None),
            (&[], None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-user", HeaderValue::from_static("root"));
            for line in lines {
                headers.append("x-api-key", HeaderValue::from_str(line).unwrap());
            }
            let (peer, pools) = (peer(), pools());
            let asked = Request { query, ..request(&headers, &peer, &pools) };
            let mut grant = Grant::default();
            grant.reserve(scheme.reserved());
            let passed = scheme.check(&asked, &mut grant).is_ok();
            assert_eq!(passed, want.is_some(), "{lines:?} {query:?}");
            grant.apply(&mut headers);
            let users: Vec<_> = headers.get_all("x-user").iter().collect();
            assert_eq!(users, want.into_iter().collect::<Vec<_>>(), "{lines:?} {query:?}");
        }
    }
}
