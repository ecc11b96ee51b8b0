//! The calls of Consul's API that are used, by name.

use std::collections::HashMap;

use bytes::Bytes;

use super::client::encode;
use super::model::{AgentService, Entry, Pair, Registration, nullable};
use super::{Answer, Client, Error, Read};

/// Paths of the reads, for watches.
pub struct Keys;

impl Keys {
    pub const SERVICES: &'static str = "/v1/catalog/services";
    pub const CHECKS: &'static str = "/v1/health/state/any";
    pub const NODES: &'static str = "/v1/internal/ui/nodes";
    /// Authorities of the service mesh.
    pub const ROOTS: &'static str = "/v1/agent/connect/ca/roots";

    /// Certificate and key of a service of the mesh.
    pub fn leaf(service: &str) -> String {
        format!("/v1/agent/connect/ca/leaf/{}", encode(service, false))
    }

    pub fn service(name: &str) -> String {
        format!("/v1/health/service/{}", encode(name, false))
    }

    /// `key` without a leading slash.
    pub fn kv(key: &str) -> String {
        format!("/v1/kv/{}", encode(key, true))
    }
}

/// A value in the KV store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Empty when there is no such key.
    pub text: String,
    /// To be given back when writing: the key's own index, or the store's when there is no such key.
    pub version: u64,
}

impl Client {
    /// The agent's data centre (`/v1/agent/self`).
    pub async fn datacenter(&self) -> Result<String, Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Config {
            #[serde(deserialize_with = "nullable")]
            datacenter: String,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Agent {
            #[serde(deserialize_with = "nullable")]
            config: Config,
        }
        let read = Read { consistency: false, ..Read::default() };
        let answer = self.get("/v1/agent/self", "", read, |b| serde_json::from_slice::<Agent>(b)).await?;
        let datacenter = answer.value.unwrap_or_default().config.datacenter;
        if datacenter.is_empty() {
            return Err(Error::Answer("the agent does not name its data centre".into()));
        }
        Ok(datacenter)
    }

    /// All instances of a service with the checks that concern them.
    pub async fn service(&self, name: &str) -> Result<Answer<Vec<Entry>>, Error> {
        self.get(&Keys::service(name), "", Read::default(), |b| {
            Ok(serde_json::from_slice::<Option<Vec<Entry>>>(b)?.unwrap_or_default())
        })
        .await
    }

    /// Do the intentions of the mesh let the holder of this certificate talk to a service?
    pub async fn authorize(&self, service: &str, uri: &str, serial: &str) -> Result<bool, Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Verdict {
            authorized: bool,
        }
        let question = serde_json::json!({ "Target": service, "ClientCertURI": uri, "ClientCertSerial": serial });
        let answer = self.post("/v1/agent/connect/authorize", question.to_string().into()).await?;
        let verdict: Verdict = serde_json::from_slice(&answer).map_err(|error| Error::Answer(error.to_string()))?;
        Ok(verdict.authorized)
    }

    /// The names of all keys that begin with `prefix`.
    pub async fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let read = Read { missing_is_empty: true, ..Read::default() };
        let answer = self
            .get(&Keys::kv(prefix), "keys", read, |b| {
                Ok(serde_json::from_slice::<Option<Vec<String>>>(b)?.unwrap_or_default())
            })
            .await?;
        Ok(answer.value.unwrap_or_default())
    }

    pub async fn value(&self, key: &str) -> Result<Stored, Error> {
        let read = Read { missing_is_empty: true, ..Read::default() };
        let answer = self.get(&Keys::kv(key), "", read, pairs).await?;
        let pair = answer.value.and_then(|pairs| pairs.into_iter().next());
        Ok(match pair {
            Some(pair) => Stored { text: pair.text(), version: pair.modify_index },
            None => Stored { text: String::new(), version: answer.index },
        })
    }

    /// Writes if the key's index is still `version`; 0: if there is no such key. `false`: somebody was faster.
    pub async fn write(&self, key: &str, value: String, version: u64) -> Result<bool, Error> {
        let answer = self.put(&Keys::kv(key), &format!("cas={version}"), Bytes::from(value)).await?;
        Ok(answer.windows(4).any(|w| w == b"true"))
    }

    /// Whether there was such a key or not.
    pub async fn delete(&self, key: &str) -> Result<(), Error> {
        self.remove(&Keys::kv(key)).await
    }

    /// The services that are registered with this agent, by id.
    pub async fn agent_services(&self) -> Result<HashMap<String, AgentService>, Error> {
        let read = Read { consistency: false, ..Read::default() };
        let answer = self
            .get("/v1/agent/services", "", read, |b| {
                Ok(serde_json::from_slice::<Option<HashMap<String, AgentService>>>(b)?.unwrap_or_default())
            })
            .await?;
        Ok(answer.value.unwrap_or_default())
    }

    pub async fn register(&self, registration: &Registration) -> Result<(), Error> {
        let body = serde_json::to_vec(registration).map_err(|e| Error::Answer(e.to_string()))?;
        self.put("/v1/agent/service/register", "", Bytes::from(body)).await.map(drop)
    }

    pub async fn deregister(&self, id: &str) -> Result<(), Error> {
        self.put(&format!("/v1/agent/service/deregister/{}", encode(id, false)), "", Bytes::new()).await.map(drop)
    }

    /// Keeps a TTL check alive.
    pub async fn pass(&self, check: &str) -> Result<(), Error> {
        let body = Bytes::from_static(br#"{"Status":"passing","Output":""}"#);
        self.put(&format!("/v1/agent/check/update/{}", encode(check, false)), "", body).await.map(drop)
    }
}

/// Decodes a list of KV pairs.
pub fn pairs(bytes: &[u8]) -> Result<Vec<Pair>, serde_json::Error> {
    Ok(serde_json::from_slice::<Option<Vec<Pair>>>(bytes)?.unwrap_or_default())
}
