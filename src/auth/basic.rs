//! `type=basic`: user name and password (RFC 7617).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use super::file::{Error, Watched};
use super::htpasswd::Users;
use super::slots::Slots;
use super::verified::Verified;
use super::{BasicConfig, Refusal, challenge};
use crate::life::Watch;

pub(super) struct Basic {
    challenge: HeaderValue,
    users: Arc<Watched<Users>>,
    verified: Option<Arc<Verified>>,
    slots: Arc<Slots>,
}

impl Basic {
    pub(super) fn start(realm: &str, config: &BasicConfig, slots: &Arc<Slots>, life: &Watch) -> Result<Self, Error> {
        Ok(Self {
            challenge: challenge(realm),
            users: Watched::start(&config.file, Users::parse, config.refresh, life)?,
            verified: Verified::new().map(Arc::new),
            slots: slots.clone(),
        })
    }

    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let right = match credentials(headers) {
            Some((user, password)) => self.verify(&user, password).await?,
            None => false,
        };
        if right { Ok(()) } else { Err(Refusal::Challenge(vec![self.challenge.clone()])) }
    }

    async fn verify(&self, user: &[u8], password: Vec<u8>) -> Result<bool, Refusal> {
        let Some(users) = self.users.load().clone() else { return Ok(false) };
        if password.len() > LONGEST {
            return Ok(false);
        }
        let Some(stored) = users.find(user) else {
            // As long as for somebody who is known, or one could find out who is.
            if let Some(decoy) = users.decoy() {
                let work = move || decoy.verify(&password);
                self.slots.run(|| None, work).await.map_err(|_| Refusal::Busy)?;
            }
            return Ok(false);
        };
        if stored.is_quick() {
            return Ok(stored.verify(&password));
        }
        let Some(verified) = &self.verified else {
            return self.slots.run(|| None, move || stored.verify(&password)).await.map_err(|_| Refusal::Busy);
        };
        let tag = verified.tag([user, &password, stored.text()]);
        let known = || verified.contains(&tag).then_some(true);
        if known().is_some() {
            return Ok(true);
        }
        let right = self.slots.run(known, move || stored.verify(&password)).await.map_err(|_| Refusal::Busy)?;
        if right {
            verified.insert(tag);
        }
        Ok(right)
    }
}

/// User and password. `None` unless there is exactly one header and it is well formed.
fn credentials(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, encoded) = value.as_bytes().split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|b| *b == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.truncate(colon);
    Some((decoded, password))
}

/// Bytes of a password; some hashes take time with the square of it.
const LONGEST: usize = 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_credentials() {
        let encode = |text: &str| STANDARD.encode(text);
        let want = Some((b"u".to_vec(), b"p:q".to_vec()));
        for (lines, want) in [
            (vec![format!("Basic {}", encode("u:p:q"))], want.clone()),
            (vec![format!("bASIC  {}", encode("u:p:q"))], want),
            (vec![format!("Basic {}", encode(":"))], Some((vec![], vec![]))),
            (vec![], None),
            (vec!["Basic".to_owned()], None),
            (vec!["Basic !!!".to_owned()], None),
            (vec!["malformed".to_owned()], None),
            (vec![format!("Bearer {}", encode("u:p"))], None),
            (vec![format!("Basic {}", encode("nocolon"))], None),
            (vec![format!("Basic {}", encode("u:p")), format!("Basic {}", encode("u:p"))], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(AUTHORIZATION, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(credentials(&headers), want, "{lines:?}");
        }
    }
}
