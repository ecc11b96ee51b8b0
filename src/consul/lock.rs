//! A lock that many processes share: a key held by a session.
//!
//! Whoever holds it keeps the session alive. A holder that dies is missed when its session ends, and a holder that cannot
//! reach Consul has to take it that somebody else holds the lock by then.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::encode;
use super::{Client, Error, Keys};

/// Held until it is released; dropped without that, it is released in the background.
pub struct Lock {
    held: Option<Held>,
    lost: watch::Receiver<bool>,
    renewal: JoinHandle<()>,
}

struct Held {
    client: Client,
    key: String,
    session: String,
}

impl Lock {
    /// `None`: somebody else holds it. `name` is shown in Consul's list of sessions.
    pub async fn try_acquire(client: &Client, key: &str, name: &str) -> Result<Option<Lock>, Error> {
        let session = create(client, name).await?;
        let held = Held { client: client.clone(), key: key.to_owned(), session };
        let answer =
            client.put(&Keys::kv(key), &format!("acquire={}", held.session), Bytes::from(name.to_owned())).await;
        match answer {
            Ok(answer) if is_true(&answer) => {}
            Ok(_) => {
                held.destroy().await;
                return Ok(None);
            }
            Err(error) => {
                held.destroy().await;
                return Err(error);
            }
        }
        let (loss, lost) = watch::channel(false);
        let renewal = tokio::spawn(renew(client.clone(), held.session.clone(), loss));
        Ok(Some(Lock { held: Some(held), lost, renewal }))
    }

    /// Returns when the lock may be somebody else's.
    pub async fn lost(&self) {
        // The sender is gone only when the lock is.
        let _ = self.lost.clone().wait_for(|lost| *lost).await;
    }

    pub async fn release(mut self) {
        self.renewal.abort();
        if let Some(held) = self.held.take() {
            held.release().await;
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewal.abort();
        if let (Some(held), Ok(runtime)) = (self.held.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(held.release());
        }
    }
}

impl Held {
    /// What cannot be released is so when the session ends.
    async fn release(self) {
        let _ = self.client.put(&Keys::kv(&self.key), &format!("release={}", self.session), Bytes::new()).await;
        self.destroy().await;
    }

    async fn destroy(self) {
        let path = format!("/v1/session/destroy/{}", encode(&self.session, false));
        let _ = self.client.put(&path, "", Bytes::new()).await;
    }
}

async fn create(client: &Client, name: &str) -> Result<String, Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Created {
        #[serde(rename = "ID")]
        id: String,
    }
    let body = serde_json::json!({
        "Name": name, "TTL": format!("{}s", TTL.as_secs()), "LockDelay": "1s", "Behavior": "release",
    });
    let answer = client.put("/v1/session/create", "", Bytes::from(body.to_string())).await?;
    let created: Created = serde_json::from_slice(&answer).map_err(|error| Error::Answer(error.to_string()))?;
    Ok(created.id)
}

async fn renew(client: Client, session: String, loss: watch::Sender<bool>) {
    let path = format!("/v1/session/renew/{}", encode(&session, false));
    let mut good = Instant::now();
    loop {
        tokio::time::sleep(TTL / 3).await;
        match tokio::time::timeout(TTL / 3, client.put(&path, "", Bytes::new())).await {
            Ok(Ok(_)) => good = Instant::now(),
            // 404: it has ended.
            Ok(Err(Error::Status { status: 404, .. })) => break,
            _ if good.elapsed() >= TTL * 2 / 3 => break,
            _ => {}
        }
    }
    loss.send_replace(true);
}

fn is_true(answer: &[u8]) -> bool {
    answer.windows(4).any(|word| word == b"true")
}

/// Consul ends a session that was not renewed for that long, or up to twice as long. The least that it takes is 10 s.
const TTL: Duration = Duration::from_secs(15);
