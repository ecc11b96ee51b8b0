//! What is stored, in JSON.

use serde::{Deserialize, Serialize};

use super::storage::Contents;

/// `certificates/NAME`
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Stored {
    /// PEM, the leaf first.
    pub(super) certificate: String,
    /// PEM, perhaps sealed.
    pub(super) key: String,
}

/// `challenges/TOKEN`
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Open {
    pub(super) name: String,
    /// As the CA calls it: `http-01` or `tls-alpn-01`.
    pub(super) kind: String,
    /// The key authorization (RFC 8555 section 8.1), which is no secret.
    pub(super) answer: String,
    /// Whoever has put it there may have died. Seconds since 1970.
    pub(super) until: i64,
}

/// `state/NAME`: what is known about a name beside its certificate. All times are seconds since 1970.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct State {
    /// Orders that failed in a row.
    pub(super) failures: u32,
    /// No order before that.
    pub(super) next: i64,
    /// Why the last order failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The certificate that the rest is about.
    pub(super) fingerprint: String,
    /// When to renew, as the CA wishes (RFC 9773); 0: it has no wish.
    pub(super) renew: i64,
    /// When to ask for its wish again.
    pub(super) ask: i64,
    /// The CA knows renewal information, so an order may say what it replaces.
    pub(super) replaces: bool,
}

impl State {
    pub(super) fn of(contents: &Contents, name: &str) -> Self {
        read(contents, &key(STATE, name)).unwrap_or_default()
    }
}

/// `None`: not there, or nothing of ours.
pub(super) fn read<T: for<'de> Deserialize<'de>>(contents: &Contents, key: &str) -> Option<T> {
    serde_json::from_str(contents.get(key)?).ok()
}

pub(super) fn text(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("strings and numbers")
}

pub(super) fn key(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// Names of one kind.
pub(super) fn names<'a>(contents: &'a Contents, kind: &'static str) -> impl Iterator<Item = &'a str> {
    contents.keys().filter_map(move |key| key.strip_prefix(kind)?.strip_prefix('/'))
}

pub(super) const CERTIFICATES: &str = "certificates";
pub(super) const CHALLENGES: &str = "challenges";
pub(super) const STATE: &str = "state";
pub(super) const ACCOUNT: &str = "account";
