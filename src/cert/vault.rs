//! `type=vault` and `type=vault-pki`: the part of Vault's HTTP API that certificates need.

mod issue;
mod kv;
mod token;

#[cfg(test)]
mod tests;

pub(super) use issue::{Issuer, Lead};
pub(super) use kv::Secrets;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use reqwest::Url;
use serde_json::Value;

use super::Env;
use super::error::Error;
use super::tree::go_bool;
use crate::fetch;
use token::Session;

/// A server and a token for it. Sources with the same settings share one, because a wrapped token opens only once.
pub(super) struct Vault {
    http: fetch::Client,
    base: Url,
    namespace: Option<HeaderValue>,
    timeout: Duration,
    env: Env,
    /// `vaultfetchtoken`
    fetch_token: Option<String>,
    session: tokio::sync::Mutex<Session>,
}

/// What Vault answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    /// For people: Vault's own words.
    fn complaint(&self) -> String {
        let errors = self.body["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let text: String = errors.collect::<Vec<_>>().join("; ").chars().take(200).collect();
        if text.is_empty() { format!("status {}", self.status) } else { format!("status {}: {text}", self.status) }
    }
}

impl Vault {
    /// By Vault's own environment variables.
    pub(super) fn new(env: &Env, fetch_token: Option<&str>) -> Result<Arc<Self>, Error> {
        let invalid = |what: String| Error::Place(format!("vault: {what}"));
        let address = env.get("VAULT_AGENT_ADDR").or_else(|| env.get("VAULT_ADDR"));
        let address = address.unwrap_or_else(|| "https://127.0.0.1:8200".into());
        let key = (address.clone(), env.get("VAULT_NAMESPACE"), fetch_token.map(str::to_owned));
        let mut shared = env.vaults();
        if let Some(vault) = shared.get(&key).and_then(Weak::upgrade) {
            return Ok(vault);
        }
        let unix_socket = address.strip_prefix("unix://").map(PathBuf::from);
        let mut base = Url::parse(if unix_socket.is_some() { "http://localhost" } else { &address })
            .map_err(|error| invalid(format!("VAULT_ADDR: {error}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(invalid("VAULT_ADDR must begin with http://, https:// or unix://".into()));
        }
        // The certificate carries another name than the address.
        let alias = match (env.get("VAULT_TLS_SERVER_NAME"), base.host_str().map(str::to_owned)) {
            (Some(name), Some(host)) if base.scheme() == "https" => {
                base.set_host(Some(&name)).map_err(|error| invalid(format!("VAULT_TLS_SERVER_NAME: {error}")))?;
                Some((name, host))
            }
            _ => None,
        };
        let settings = fetch::Settings {
            https: base.scheme() == "https",
            tls: fetch::Tls {
                cert_file: env.get("VAULT_CLIENT_CERT").map(Into::into),
                key_file: env.get("VAULT_CLIENT_KEY").map(Into::into),
                ca_file: env.get("VAULT_CACERT").map(Into::into),
                ca_path: env.get("VAULT_CAPATH").map(Into::into),
                insecure_skip_verify: env.get("VAULT_SKIP_VERIFY").and_then(|text| go_bool(&text)).unwrap_or(false),
            },
            unix_socket,
            idle_connections: 4,
            alias,
            ..fetch::Settings::default()
        };
        let namespace = env.get("VAULT_NAMESPACE").map(|name| HeaderValue::from_str(&name));
        let vault = Arc::new(Self {
            http: fetch::Client::new(settings).map_err(|error| invalid(fetch::chain(&error)))?,
            base,
            namespace: namespace.transpose().map_err(|_| invalid("VAULT_NAMESPACE cannot be sent".into()))?,
            timeout: env.get("VAULT_CLIENT_TIMEOUT").and_then(|text| seconds(&text)).unwrap_or(TIMEOUT),
            env: env.clone(),
            fetch_token: fetch_token.map(str::to_owned),
            session: tokio::sync::Mutex::default(),
        });
        shared.retain(|_, vault| vault.strong_count() > 0);
        shared.insert(key, Arc::downgrade(&vault));
        Ok(vault)
    }

    /// For people.
    pub(super) fn place(&self, path: &str) -> String {
        format!("{} in Vault at {}", path.trim_matches('/'), self.base.as_str().trim_end_matches('/'))
    }

    /// One call with the current token. `path` as in Vault's documentation, without `/v1/`.
    pub(super) async fn call(
        self: &Arc<Self>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, Error> {
        let token = self.token().await?;
        self.send(method, path, body, &token).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        token: &HeaderValue,
    ) -> Result<Answer, Error> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let fail = |what: String| Error::Fetch(format!("vault: {path}: {what}"));
        let mut url = self.base.clone();
        // Below a path that the address may have.
        let below = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{below}/v1/{}", path.trim_start_matches('/')));
        url.set_query((!query.is_empty()).then_some(query));
        let mut token = token.clone();
        token.set_sensitive(true);
        let mut request = self.http.current().request(method, url).timeout(self.timeout);
        request = request.header(TOKEN, token).header(REQUEST, "true");
        if let Some(namespace) = &self.namespace {
            request = request.header(NAMESPACE, namespace);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|error| fail(fetch::explain(error)))?;
        let status = response.status().as_u16();
        let body = fetch::body(response, LONGEST).await.map_err(|error| fail(fetch::chain(&error)))?;
        // Errors come with a text as well, sometimes of a balancer in between.
        let body = match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(_) if status != 200 || body.is_empty() => Value::Null,
            Err(_) => return Err(fail("the answer is no JSON".into())),
        };
        Ok(Answer { status, body })
    }
}

/// A path of the configuration, made fit for a URL.
fn encoded(path: &str) -> String {
    use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
    const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');
    utf8_percent_encode(path.trim_matches('/'), PATH).to_string()
}

/// `60`, `60s`, `2m`.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "s" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
}

const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");
const NAMESPACE: HeaderName = HeaderName::from_static("x-vault-namespace");
/// Vault agents can be told to demand it of everybody.
const REQUEST: HeaderName = HeaderName::from_static("x-vault-request");

/// As Vault's own client.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST: usize = 4 << 20;
