//! Former texts of the overrides: each that was written here is kept below `ferrio/history/`, the last twenty of each key.
//!
//! The value is the text as it was, so that it can be read and put back with Consul's own tools; when it was written stands
//! in the key. Keeping it is a courtesy: if it fails, the change itself has happened all the same.

use std::time::{SystemTime, UNIX_EPOCH};

use super::own_keys::OwnKeys;
use crate::consul::{Client, Error};

/// A text that was in force once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// To ask for its text with.
    pub id: String,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// Newest first.
pub(super) async fn list(client: &Client, keys: &OwnKeys, suffix: &str) -> Result<Vec<Past>, Error> {
    let Some(prefix) = keys.history(suffix) else { return Ok(Vec::new()) };
    let mut all: Vec<Past> =
        client.keys(&prefix).await?.iter().filter_map(|key| past(key.strip_prefix(&prefix)?)).collect();
    all.sort_by(|a, b| b.id.cmp(&a.id));
    Ok(all)
}

/// Empty if there is no such version.
pub(super) async fn text(client: &Client, keys: &OwnKeys, suffix: &str, id: &str) -> Result<String, Error> {
    match (keys.history(suffix), past(id)) {
        (Some(prefix), Some(_)) => Ok(client.value(&format!("{prefix}{id}")).await?.text),
        _ => Ok(String::new()),
    }
}

/// Keeps `text`, and first what was there before it if nothing is kept yet.
pub(super) async fn keep(client: &Client, keys: &OwnKeys, suffix: &str, before: &str, text: &str) -> Result<(), Error> {
    let Some(prefix) = keys.history(suffix) else { return Ok(()) };
    let known = list(client, keys, suffix).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let mut kept = known.len();
    let texts = [(now - 1, before), (now, text)];
    let fresh = texts.into_iter().skip(usize::from(!known.is_empty() || before.trim().is_empty()));
    for (at, text) in fresh {
        client.write(&format!("{prefix}{at:014}"), text.to_owned(), 0).await?;
        kept += 1;
    }
    for old in known.iter().rev().take(kept.saturating_sub(KEPT)) {
        client.delete(&format!("{prefix}{}", old.id)).await?;
    }
    Ok(())
}

fn past(id: &str) -> Option<Past> {
    let at = id.parse().ok().filter(|_| id.len() == 14 && id.bytes().all(|b| b.is_ascii_digit()))?;
    Some(Past { id: id.to_owned(), at })
}

const KEPT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_versions() {
        for (id, at) in [
            ("01764561600000", Some(1_764_561_600_000)),
            ("1764561600000", None),
            ("x/01764561600000", None),
            ("../../a/bcdefg", None),
            ("+1764561600000", None),
            ("", None),
        ] {
            assert_eq!(past(id).map(|past| past.at), at, "{id}");
        }
    }
}
