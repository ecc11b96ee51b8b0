//! Secrets with the fields `cert` and `key`, in a KV engine of version 1 or 2.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::{Vault, encoded};
use crate::cert::blobs::Blobs;
use crate::cert::error::{Error, PairError};
use crate::cert::load::{Load, Loading, repeat};

pub(crate) struct Secrets {
    vault: Arc<Vault>,
    path: String,
    refresh: Option<Duration>,
}

impl Secrets {
    pub(crate) fn new(vault: Arc<Vault>, path: &str, refresh: Duration) -> Self {
        Self { vault, path: path.trim_matches('/').to_owned(), refresh: repeat(refresh) }
    }

    async fn read(&self) -> Result<Blobs, Error> {
        let (list, read) = self.paths().await?;
        let answer = self.vault.call(Method::GET, &format!("{}?list=true", encoded(&list)), None).await?;
        let keys = match answer.status {
            200 => answer.body["data"]["keys"].as_array().cloned().unwrap_or_default(),
            404 => Vec::new(),
            _ => return Err(Error::Fetch(format!("vault: {list}: {}", answer.complaint()))),
        };
        if keys.len() > MOST {
            return Err(Error::TooMuch { what: self.place() });
        }
        let mut blobs = Blobs::new();
        // Folders end with a slash; they are not followed, as in fabio.
        for name in keys.iter().filter_map(Value::as_str).filter(|name| !name.ends_with('/')) {
            let answer = self.vault.call(Method::GET, &encoded(&format!("{read}/{name}")), None).await;
            let problem = match answer {
                Ok(answer) if answer.status == 200 => {
                    let data = &answer.body["data"];
                    // Version 2 has its own fields around.
                    let data = if list == read { data } else { &data["data"] };
                    for field in ["cert", "key"] {
                        let content = match &data[field] {
                            Value::Null => continue,
                            Value::String(text) => Ok(Bytes::from(text.clone().into_bytes())),
                            _ => Err(PairError::Unreadable(format!("the field {field} is no text"))),
                        };
                        blobs.insert(format!("{name}-{field}.pem"), content);
                    }
                    continue;
                }
                // Deleted: version 2 goes on to list it.
                Ok(answer) if answer.status == 404 => continue,
                Ok(answer) => answer.complaint(),
                Err(error) => error.to_string(),
            };
            blobs.insert(format!("{name}-cert.pem"), Err(PairError::Unreadable(problem)));
        }
        Ok(blobs)
    }

    /// Where to list and where to read: the same for version 1.
    async fn paths(&self) -> Result<(String, String), Error> {
        let probe = format!("sys/internal/ui/mounts/{}", encoded(&self.path));
        let answer = self.vault.call(Method::GET, &probe, None).await?;
        let data = match answer.status {
            200 => &answer.body["data"],
            // A Vault that is too old to say.
            404 => &Value::Null,
            _ => return Err(Error::Fetch(format!("vault: {}: {}", self.path, answer.complaint()))),
        };
        let version = &data["options"]["version"];
        let mount = data["path"].as_str().map(|mount| mount.trim_matches('/')).unwrap_or_default();
        let rest = self.path.strip_prefix(mount).map(|rest| rest.trim_start_matches('/'));
        match rest {
            Some(rest) if version == "2" && !mount.is_empty() => {
                let path = |part: &str| format!("{mount}/{part}/{rest}").trim_end_matches('/').to_owned();
                Ok((path("metadata"), path("data")))
            }
            _ => Ok((self.path.clone(), self.path.clone())),
        }
    }
}

impl Load for Secrets {
    fn load(&mut self) -> Loading<'_> {
        Box::pin(async { self.read().await.map(Some) })
    }

    fn pause(&self) -> Option<Duration> {
        self.refresh
    }

    fn place(&self) -> String {
        self.vault.place(&self.path)
    }
}

const MOST: usize = 10_000;
