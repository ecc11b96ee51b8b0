//! What was taken out of the table by hand, for a time: a service, or one instance of it.
//!
//! The list is kept where all processes see it: in Consul's KV store, or without Consul in this process alone. An entry
//! works as a failing health check does, until its time is over or somebody takes it back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Error;
use super::consul::own_keys::OwnKeys;
use super::publish::Feed;
use crate::consul::Client;
use crate::route::{Command, Entry};

/// A service, or an instance of it, that gets no requests for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disabled {
    pub service: String,
    /// `<node>/<service id>`, or the destination as the table shows it; `None`: all of the service.
    pub instance: Option<String>,
    /// Seconds since 1970.
    pub until: u64,
    /// Why, for whoever looks at it later.
    pub reason: String,
    /// The address that asked for it.
    pub by: String,
}

impl Disabled {
    fn same(&self, service: &str, instance: Option<&str>) -> bool {
        self.service == service && self.instance.as_deref() == instance
    }

    fn hits(&self, entry: &Entry) -> bool {
        let Command::Add(add) = &entry.command else { return false };
        *add.service == *self.service
            && self
                .instance
                .as_deref()
                .is_none_or(|instance| add.instance.as_deref() == Some(instance) || add.destination.text == instance)
    }
}

/// Leaves out what is disabled.
pub(super) fn without(mut entries: Vec<Entry>, disabled: &[Disabled]) -> Vec<Entry> {
    if !disabled.is_empty() {
        entries.retain(|entry| !disabled.iter().any(|one| one.hits(entry)));
    }
    entries
}

/// Changes the list. Cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    /// `None`: no Consul; the list lives in `current` alone.
    store: Option<(Client, OwnKeys)>,
    current: watch::Sender<Arc<[Disabled]>>,
    /// One change at a time: they read, change and write.
    changing: Mutex<()>,
}

impl Control {
    pub(super) fn new(store: Option<(Client, OwnKeys)>) -> Self {
        Self(Arc::new(Inner { store, current: watch::Sender::new(Arc::default()), changing: Mutex::new(()) }))
    }

    /// What is disabled now, as far as this process knows.
    pub fn disabled(&self) -> Vec<Disabled> {
        let now = seconds_now();
        self.0.current.borrow().iter().filter(|one| one.until > now).cloned().collect()
    }

    /// Whether other processes see the list, too.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_some()
    }

    /// Takes something out, or gives it another end.
    pub async fn disable(&self, wanted: Disabled) -> Result<(), Error> {
        self.change(|list| {
            list.retain(|one| !one.same(&wanted.service, wanted.instance.as_deref()));
            if list.len() >= ENTRIES {
                return Err(Error::Setup(format!("{ENTRIES} things are disabled already")));
            }
            list.push(wanted.clone());
            Ok(true)
        })
        .await
        .map(drop)
    }

    /// `false`: it was not disabled.
    pub async fn enable(&self, service: &str, instance: Option<&str>) -> Result<bool, Error> {
        self.change(|list| {
            let before = list.len();
            list.retain(|one| !one.same(service, instance));
            Ok(list.len() < before)
        })
        .await
    }

    async fn change(&self, edit: impl Fn(&mut Vec<Disabled>) -> Result<bool, Error>) -> Result<bool, Error> {
        let Some((client, keys)) = &self.0.store else {
            let _one = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut list = self.disabled();
            let changed = edit(&mut list)?;
            self.0.current.send_replace(list.into());
            return Ok(changed);
        };
        let key = keys.disabled().ok_or_else(|| keys.refusal())?;
        for _ in 0..ATTEMPTS {
            let stored = client.value(&key).await?;
            let mut list = parse(&stored.text).map_err(|error| {
                Error::Setup(format!("{key} in Consul's KV store cannot be read ({error}); correct or delete it first"))
            })?;
            list.retain(|one| one.until > seconds_now());
            let changed = edit(&mut list)?;
            if !changed {
                return Ok(false);
            }
            let version = if stored.text.is_empty() { 0 } else { stored.version };
            let text = serde_json::to_string_pretty(&list).unwrap_or_default();
            if client.write(&key, text, version).await? {
                self.0.current.send_replace(list.into());
                return Ok(true);
            }
        }
        Err(Error::Setup("others change the list all the time; try again".into()))
    }

    /// What the store says. What cannot be read leaves everything as it is.
    pub(super) fn set(&self, text: &str) {
        match parse(text) {
            Ok(list) => {
                self.0.current.send_replace(list.into());
            }
            Err(error) => tracing::warn!(
                "registry: the list of what is disabled cannot be read: {error}. What was disabled before stays so"
            ),
        }
    }

    /// What was kept on disk, if nothing is known yet.
    pub(super) fn inherit(&self, list: &[Disabled]) {
        self.0.current.send_if_modified(|current| {
            let empty = current.is_empty();
            if empty {
                *current = list.iter().take(ENTRIES).cloned().collect();
            }
            empty
        });
    }

    /// Hands what is disabled to the funnel, and takes it back when its time is over.
    pub(super) async fn keep(self, feed: Feed) {
        let mut current = self.0.current.subscribe();
        let mut given: Arc<[Disabled]> = Arc::default();
        loop {
            let now = seconds_now();
            let list: Arc<[Disabled]> =
                current.borrow_and_update().iter().filter(|one| one.until > now).cloned().collect();
            let next = list.iter().map(|one| one.until).min();
            if list != given {
                given = list.clone();
                feed.disabled(list);
            }
            let pause = next.map_or(NEVER, |at| Duration::from_secs(at.saturating_sub(now)).min(NEVER));
            tokio::select! {
                changed = current.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

fn parse(text: &str) -> Result<Vec<Disabled>, serde_json::Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<Disabled> = serde_json::from_str(text)?;
    Ok(list.into_iter().take(ENTRIES).collect())
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// For people to read, and for every build to go through.
const ENTRIES: usize = 500;
const ATTEMPTS: usize = 5;
/// Clocks are set now and then.
const NEVER: Duration = Duration::from_secs(3600);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::{Origin, parse_text};

    fn off(service: &str, instance: Option<&str>, seconds: u64) -> Disabled {
        let until = seconds_now() + seconds;
        Disabled { service: service.into(), instance: instance.map(Into::into), until, ..Disabled::default() }
    }

    #[test]
    fn entries_take_out_what_they_name() {
        let text = "route add a /a http://h:1/\nroute add a /a http://h:2/\nroute add b /b http://h:1/\nroute del c\n";
        let entries = || parse_text(text, |line| Origin::Static { line }).entries;
        for (disabled, left) in [
            (vec![], 4),
            (vec![off("a", None, 60)], 2),
            (vec![off("a", Some("http://h:1/"), 60)], 3),
            (vec![off("a", Some("n/a-1"), 60)], 4),
            (vec![off("c", None, 60)], 4),
            (vec![off("a", None, 60), off("b", None, 60)], 1),
        ] {
            assert_eq!(without(entries(), &disabled).len(), left, "{disabled:?}");
        }
    }

    #[tokio::test]
    async fn without_a_store_the_list_is_kept_here() {
        let control = Control::new(None);
        assert!(!control.is_shared());
        control.disable(off("a", None, 60)).await.unwrap();
        control.disable(off("a", None, 120)).await.unwrap();
        control.disable(off("b", Some("n/b"), 0)).await.unwrap();
        assert_eq!(control.disabled().len(), 1, "the second replaces the first, the third is over");
        assert!(!control.enable("a", Some("n/a")).await.unwrap());
        assert!(control.enable("a", None).await.unwrap());
        assert_eq!(control.disabled(), []);
    }

    #[test]
    fn a_list_that_cannot_be_read_changes_nothing() {
        for text in ["nonsense", "{}", "[1]", r#"[{"service":"a","until":5},]"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["", "  ", "[]"] {
            assert_eq!(parse(text).expect("readable"), [], "{text}");
        }
        assert_eq!(parse(r#"[{"service":"a","until":5,"later":true}]"#).expect("readable")[0].service, "a");
    }
}
