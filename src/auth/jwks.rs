//! Keys that tokens are verified with: from a file, or from a server that is asked by the control plane.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use tokio::sync::Notify;

use super::KeySource;
use super::file::{Error, Watched};
use crate::fetch;
use crate::life::{Phase, Watch};

/// Where keys are looked up.
pub(super) enum Keys {
    File(Arc<Watched<Vec<Key>>>),
    Remote(Arc<Remote>),
}

/// A key and what it may be used for.
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) key: DecodingKey,
    /// Of the kind that the key is of; `alg` of a token never chooses another kind.
    pub(super) algorithms: Vec<Algorithm>,
}

impl Keys {
    pub(super) fn start(source: &KeySource, refresh: Option<Duration>, life: &Watch) -> Result<Self, Error> {
        Ok(match source {
            KeySource::File(path) => Self::File(Watched::start(path, parse_file, refresh, life)?),
            KeySource::Secret(path) => Self::File(Watched::start(path, parse_secret, refresh, life)?),
            KeySource::Url(url) => {
                let settings = fetch::Settings { https: url.starts_with("https:"), ..fetch::Settings::default() };
                let client = fetch::Client::new(settings).map_err(|e| Error::new(url, e.to_string()))?;
                let remote = Arc::new(Remote {
                    url: url.clone(),
                    client,
                    keys: ArcSwap::default(),
                    missed: Notify::new(),
                    waiting: AtomicBool::new(false),
                });
                tokio::spawn(remote.clone().follow(refresh.unwrap_or(REFRESH), life.clone()));
                Self::Remote(remote)
            }
        })
    }

    pub(super) fn load(&self) -> Arc<Vec<Key>> {
        match self {
            Self::File(file) => file.load().clone().unwrap_or_default(),
            Self::Remote(remote) => remote.keys.load_full(),
        }
    }

    /// A token names a key that is not here: perhaps the server has changed its keys.
    pub(super) fn miss(&self) {
        if let Self::Remote(remote) = self
            && !remote.waiting.swap(true, Ordering::Relaxed)
        {
            remote.missed.notify_one();
        }
    }
}

pub(super) struct Remote {
    url: String,
    client: fetch::Client,
    keys: ArcSwap<Vec<Key>>,
    missed: Notify,
    /// Somebody has notified already.
    waiting: AtomicBool,
}

impl Remote {
    async fn follow(self: Arc<Self>, refresh: Duration, mut life: Watch) {
        let mut failures: u32 = 0;
        loop {
            let pause = match self.fetch().await {
                Ok(keys) => {
                    if failures > 0 {
                        tracing::info!("{}: {} keys", self.url, keys.len());
                    }
                    failures = 0;
                    self.keys.store(Arc::new(keys));
                    refresh.max(LEAST)
                }
                Err(why) => {
                    if failures == 0 {
                        tracing::warn!("{}: {why}; the keys known before stay in force", self.url);
                    }
                    failures = failures.saturating_add(1);
                    LEAST.min(refresh) * failures.min(12)
                }
            };
            // However many tokens with unknown keys come.
            let soon = LEAST.min(pause);
            tokio::select! {
                () = async {
                    tokio::time::sleep(soon).await;
                    self.waiting.store(false, Ordering::Relaxed);
                    let _ = tokio::time::timeout(pause - soon, self.missed.notified()).await;
                } => {}
                () = life.reached(Phase::Ended) => return,
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let answer = async {
            let response = self.client.current().get(&self.url).send().await.map_err(fetch::explain)?;
            if !response.status().is_success() {
                return Err(format!("status {}", response.status()));
            }
            fetch::body(response, LARGEST).await.map_err(|error| error.to_string())
        };
        let body = tokio::time::timeout(TIMEOUT, answer).await.map_err(|_| "no answer in time".to_owned())??;
        // A secret that everybody can fetch is none.
        parse_set(&body, false)
    }
}

fn parse_file(bytes: &[u8], _: &Path) -> Result<Vec<Key>, String> {
    if !bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        return parse_set(bytes, true);
    }
    let key = DecodingKey::from_rsa_pem(bytes)
        .or_else(|_| DecodingKey::from_ec_pem(bytes))
        .or_else(|_| DecodingKey::from_ed_pem(bytes))
        .map_err(|_| "no public key of RSA, EC or Ed25519 in PEM")?;
    let algorithms = key.family().algorithms().to_vec();
    Ok(vec![Key { id: None, key, algorithms }])
}

fn parse_secret(bytes: &[u8], path: &Path) -> Result<Vec<Key>, String> {
    let secret = bytes.trim_ascii_end();
    if secret.len() < 32 {
        tracing::warn!("{}: a secret of less than 32 bytes can be guessed from a token", path.display());
    }
    let key = DecodingKey::from_secret(secret).map_err(|_| "the secret is empty")?;
    Ok(vec![Key { id: None, key, algorithms: AlgorithmFamily::Hmac.algorithms().to_vec() }])
}

/// Keys that cannot be used are left out: sets also hold keys for other things.
fn parse_set(bytes: &[u8], secrets: bool) -> Result<Vec<Key>, String> {
    let set: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| format!("no JWK set: {error}"))?;
    let keys = set.get("keys").and_then(|keys| keys.as_array()).ok_or("no JWK set: there is no array \"keys\"")?;
    let mut usable = Vec::new();
    for key in keys.iter().take(MOST) {
        // One by one, so that an unknown kind costs itself only.
        let one = serde_json::json!({ "keys": [key] });
        let Ok(JwkSet { keys }) = serde_json::from_value::<JwkSet>(one) else { continue };
        for jwk in keys {
            let for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
            let is_secret = matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
            if !for_signatures || (is_secret && !secrets) {
                continue;
            }
            let Ok(decoding) = DecodingKey::from_jwk(&jwk) else { continue };
            let named = key.get("alg").and_then(|name| name.as_str());
            let algorithms = match named.map(str::parse::<Algorithm>) {
                None => decoding.family().algorithms().to_vec(),
                Some(Ok(algorithm)) if algorithm.family() == decoding.family() => vec![algorithm],
                Some(_) => continue,
            };
            usable.push(Key { id: jwk.common.key_id.clone(), key: decoding, algorithms });
        }
    }
    if usable.is_empty() { Err("no key in it can be used".to_owned()) } else { Ok(usable) }
}

const REFRESH: Duration = Duration::from_secs(300);
/// Between two requests for keys.
const LEAST: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a set.
const LARGEST: usize = 1024 * 1024;
const MOST: usize = 100;
