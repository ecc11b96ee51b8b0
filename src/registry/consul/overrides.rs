//! Reading and writing overrides for the admin API.

use crate::consul::Client;
use crate::route::{self, Origin, Reject};

use super::history::{self, Past};
use super::kv::is_below;
use super::own_keys::OwnKeys;

/// The overrides in Consul's KV store; without Consul there are none.
#[derive(Clone)]
pub struct Overrides(Option<Store>);

#[derive(Clone)]
struct Store {
    client: Client,
    /// Without leading and trailing slashes.
    path: String,
    own: OwnKeys,
}

/// The value of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Trimmed; empty when there is no such key.
    pub value: String,
    /// To be given back when writing.
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// Somebody else changed the key, or there is no store to write to.
    Mismatch,
}

impl Overrides {
    pub(in crate::registry) fn new(client: Client, path: &str) -> Self {
        Self(Some(Store { client, path: path.trim_matches('/').to_owned(), own: OwnKeys::new(path) }))
    }

    pub(in crate::registry) fn none() -> Self {
        Self(None)
    }

    /// What follows the configured path in each key: empty for the key itself, `/name` below. `None` without Consul.
    pub async fn paths(&self) -> Result<Option<Vec<String>>, super::super::Error> {
        let Some(store) = &self.0 else { return Ok(None) };
        let mut keys = store.client.keys(&store.path).await?;
        keys.retain(|key| is_below(key, &store.path));
        Ok(Some(keys.into_iter().map(|key| key[store.path.len()..].to_owned()).collect()))
    }

    /// `suffix`: one of [`Overrides::paths`], or a new one.
    pub async fn read(&self, suffix: &str) -> Result<Override, super::super::Error> {
        let Some(store) = &self.0 else { return Ok(Override::default()) };
        let stored = store.client.value(&store.key(suffix)?).await?;
        Ok(Override { value: stored.text.trim().to_owned(), version: stored.version })
    }

    /// Creates the key, or replaces it if it still has this version.
    pub async fn write(&self, suffix: &str, value: &str, version: u64) -> Result<Written, super::super::Error> {
        let Some(store) = &self.0 else { return Ok(Written::Mismatch) };
        let key = store.key(suffix)?;
        // For the history; the versions are what decides.
        let before = store.client.value(&key).await.map(|stored| stored.text).unwrap_or_default();
        // As fabio does it: the second attempt decides, also when the first one failed.
        let written = match store.client.write(&key, value.to_owned(), 0).await {
            Ok(true) => true,
            _ => store.client.write(&key, value.to_owned(), version).await?,
        };
        if !written {
            return Ok(Written::Mismatch);
        }
        if let Err(error) = history::keep(&store.client, &store.own, suffix, &before, value).await {
            tracing::info!("The history of {key} could not be kept: {error}");
        }
        Ok(Written::Done)
    }

    /// Texts that were written before, the newest first.
    pub async fn history(&self, suffix: &str) -> Result<Vec<Past>, super::super::Error> {
        let Some(store) = &self.0 else { return Ok(Vec::new()) };
        store.key(suffix)?;
        Ok(history::list(&store.client, &store.own, suffix).await?)
    }

    /// One of them; empty if there is none with this id.
    pub async fn past(&self, suffix: &str, id: &str) -> Result<String, super::super::Error> {
        let Some(store) = &self.0 else { return Ok(String::new()) };
        store.key(suffix)?;
        Ok(history::text(&store.client, &store.own, suffix, id).await?)
    }

    /// The key of a suffix, for origins.
    pub(in crate::registry) fn key(&self, suffix: &str) -> Result<String, super::super::Error> {
        self.0.as_ref().map_or_else(|| Ok(suffix.to_owned()), |store| store.key(suffix))
    }

    /// The lines of a text that could not be used.
    pub fn check(&self, value: &str) -> Vec<Reject> {
        route::parse_text(value, |line| Origin::Key { key: "override".into(), line }).rejects
    }
}

impl Store {
    fn key(&self, suffix: &str) -> Result<String, super::super::Error> {
        let key = format!("{}{suffix}", self.path);
        // Such a key would be written, and then never be read.
        if is_below(&key, &self.path) { Ok(key) } else { Err(super::super::Error::Suffix(suffix.to_owned())) }
    }
}
