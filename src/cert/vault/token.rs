//! The token: where it comes from, unwrapping, and renewal before it expires.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderValue, Method};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{Answer, Vault};
use crate::cert::error::Error;

/// The token in use.
#[derive(Default)]
pub(super) struct Session {
    /// As it was given to us, to notice another one.
    given: Option<String>,
    token: Option<HeaderValue>,
    renewal: Option<AbortHandle>,
    /// Told once.
    complaint: Option<String>,
}

impl Session {
    fn complain(&mut self, text: &str) {
        if self.complaint.as_deref() != Some(text) {
            tracing::warn!("vault: {text}");
        }
        self.complaint = Some(text.to_owned());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(task) = &self.renewal {
            task.abort();
        }
    }
}

impl Vault {
    /// The current token; another one that was given meanwhile is taken up first.
    pub(super) async fn token(self: &Arc<Self>) -> Result<HeaderValue, Error> {
        // Held while unwrapping, so that it is done once.
        let mut session = self.session.lock().await;
        let given = match self.given() {
            Ok(given) => given,
            Err(error) => {
                session.complain(&error);
                None
            }
        };
        let Some(given) = given.or_else(|| self.env.get("VAULT_TOKEN")) else {
            return session.token.clone().ok_or_else(|| Error::Fetch("vault: no token".into()));
        };
        if let Some(token) = session.token.as_ref().filter(|_| session.given.as_ref() == Some(&given)) {
            return Ok(token.clone());
        }
        match self.adopt(&given).await {
            Ok((token, renewal)) => {
                let renewal = renewal.map(|lease| {
                    let task = renew(Arc::downgrade(self), token.clone(), lease);
                    tokio::spawn(task).abort_handle()
                });
                let changed = Session { given: Some(given), token: Some(token.clone()), renewal, complaint: None };
                *session = changed;
                Ok(token)
            }
            // A new token that is no good is no reason to give up the old one.
            Err(error) => match session.token.clone() {
                Some(token) => {
                    session.complain(&format!("the new token cannot be used, keeping the previous one: {error}"));
                    Ok(token)
                }
                None => Err(error),
            },
        }
    }

    /// As `vaultfetchtoken` says.
    fn given(&self) -> Result<Option<String>, String> {
        let text = match self.fetch_token.as_deref().map(|text| text.split_once(':')) {
            Some(Some(("file", path))) => {
                let text = std::fs::read_to_string(path);
                Some(text.map_err(|error| format!("cannot read the token file {path}: {error}"))?)
            }
            Some(Some(("env", name))) => self.env.get(name),
            // Something else was complained about at the start.
            _ => None,
        };
        Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// Unwraps a token if it is wrapped, and finds out how long it lives.
    async fn adopt(&self, given: &str) -> Result<(HeaderValue, Option<Lease>), Error> {
        let header = |token: &str| {
            HeaderValue::from_str(token).map_err(|_| Error::Fetch("vault: the token cannot be sent".into()))
        };
        let token = match self.unwrap(&header(given)?).await? {
            Some(inner) => {
                tracing::info!("vault: the token was wrapped");
                header(&inner)?
            }
            None => header(given)?,
        };
        let answer = self.send(Method::GET, "auth/token/lookup-self", None, &token).await?;
        if answer.status == 403 {
            return Err(Error::Fetch(format!("vault: the token is refused: {}", answer.complaint())));
        }
        Ok((token, lease(&answer)))
    }

    /// `None`: it is not a wrapping token.
    async fn unwrap(&self, token: &HeaderValue) -> Result<Option<String>, Error> {
        let answer = self.send(Method::PUT, "sys/wrapping/unwrap", Some(Value::Null), token).await?;
        let inner = match answer.status {
            200 => answer.body["auth"]["client_token"].as_str().map(str::to_owned),
            // Not valid or not there as a wrapping token; or it may not even ask, as some plain ones.
            400 | 403 => return Ok(None),
            // Before version 0.6.2.
            404 => {
                let answer = self.send(Method::GET, "cubbyhole/response", None, token).await?;
                if answer.status != 200 {
                    return Ok(None);
                }
                let inner = answer.body["data"]["response"].as_str().and_then(|text| serde_json::from_str(text).ok());
                inner.and_then(|inner: Value| inner["auth"]["client_token"].as_str().map(str::to_owned))
            }
            _ => return Err(Error::Fetch(format!("vault: cannot unwrap the token: {}", answer.complaint()))),
        };
        match inner {
            Some(token) => Ok(Some(token)),
            None => Err(Error::Fetch("vault: what the token wraps is no token".into())),
        }
    }
}

/// What renewal needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    ttl: Duration,
    creation_ttl: u64,
}

/// `None`: nothing to renew. Says so where somebody will have to do something about it.
fn lease(answer: &Answer) -> Option<Lease> {
    if answer.status != 200 {
        tracing::warn!("vault: cannot look the token up, it will not be renewed: {}", answer.complaint());
        return None;
    }
    let data = &answer.body["data"];
    let ttl = data["ttl"].as_u64().unwrap_or(0);
    if ttl == 0 && data["expire_time"].is_null() {
        return None;
    }
    if data["renewable"].as_bool() != Some(true) {
        tracing::warn!("vault: the token expires in {ttl} s and cannot be renewed");
        return None;
    }
    Some(Lease { ttl: Duration::from_secs(ttl), creation_ttl: data["creation_ttl"].as_u64().unwrap_or(ttl) })
}

/// At half of each lease, until it cannot be renewed any more.
async fn renew(vault: Weak<Vault>, token: HeaderValue, lease: Lease) {
    let mut wait = lease.ttl / 2;
    let mut complaint = None;
    loop {
        tokio::time::sleep(wait.max(LEAST)).await;
        let Some(vault) = vault.upgrade() else { return };
        let body = json!({ "increment": lease.creation_ttl });
        let answer = vault.send(Method::PUT, "auth/token/renew-self", Some(body), &token).await;
        let error = match answer {
            Ok(answer) if answer.status == 200 => {
                complaint = None;
                let auth = &answer.body["auth"];
                let seconds = auth["lease_duration"].as_u64().unwrap_or(0);
                if seconds == 0 || auth["renewable"].as_bool() == Some(false) {
                    tracing::warn!("vault: the token expires in {seconds} s and cannot be renewed any more");
                    return;
                }
                wait = Duration::from_secs(seconds) / 2;
                continue;
            }
            Ok(answer) => answer.complaint(),
            Err(error) => error.to_string(),
        };
        if complaint.as_ref() != Some(&error) {
            tracing::warn!("vault: cannot renew the token: {error}");
        }
        complaint = Some(error);
        wait = LEAST;
    }
}

const LEAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases() {
        let data = |data: Value| Answer { status: 200, body: json!({ "data": data }) };
        let later = "2030-01-01T00:00:00Z";
        for (answer, want) in [
            (data(json!({ "ttl": 60, "creation_ttl": 90, "expire_time": later, "renewable": true })), Some((60, 90))),
            (data(json!({ "ttl": 60, "creation_ttl": 90, "expire_time": later, "renewable": false })), None),
            (data(json!({ "ttl": 0, "creation_ttl": 0, "expire_time": null, "renewable": false })), None),
            (Answer { status: 403, body: Value::Null }, None),
            (Answer { status: 200, body: json!([1]) }, None),
        ] {
            let want = want.map(|(ttl, creation_ttl)| Lease { ttl: Duration::from_secs(ttl), creation_ttl });
            assert_eq!(lease(&answer), want);
        }
    }
}
