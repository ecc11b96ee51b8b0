//! Authorisation schemes: `proxy.auth`.

use super::kvlist;
use super::settings::Settings;
use super::{duration, suggest::near};
use crate::auth;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: String,
    pub(crate) realm: String,
    /// htpasswd
    pub(crate) file: String,
    /// Nanoseconds; 0: never.
    pub(crate) refresh: i64,
}

/// Reads all schemes; of those with equal names the last counts.
pub(crate) fn parse(settings: &mut Settings, text: &str) -> Vec<Scheme> {
    let maps = match kvlist::parse(text) {
        Ok(maps) => maps,
        Err(token) => {
            settings.mistake(
                KEY,
                &format!("unexpected {token}; write name=n;type=basic;file=path, with a comma between schemes"),
            );
            return Vec::new();
        }
    };
    let mut schemes: Vec<Scheme> = Vec::new();
    for map in &maps {
        let option = |option: &str| map.get(option).filter(|text| !text.is_empty());
        let Some(name) = option("name") else {
            settings.mistake(KEY, "missing 'name' in auth; write name=n");
            continue;
        };
        for word in map.pairs.keys().filter(|word| !OPTIONS.contains(&word.as_str())) {
            let hint = near(word, OPTIONS.iter().copied()).map(|o| format!("; did you mean {o}?")).unwrap_or_default();
            settings.warn(KEY, &format!("scheme {name}: unknown option {word:?} is ignored{hint}"));
        }
        for word in &map.dangling {
            settings.mistake(KEY, &format!("scheme {name}: option {word} has no value; write {word}=..."));
        }
        match option("type") {
            None => settings.mistake(KEY, &format!("missing 'type' in auth '{name}'; write type=basic")),
            Some("basic") => {
                let refresh = match map.get("refresh").map(duration::parse) {
                    None => Ok(0),
                    // Also 0 and negative ones.
                    Some(Ok(nanos)) => Ok(nanos.max(SECOND)),
                    Some(Err(reason)) => Err(reason),
                };
                match (option("file"), refresh) {
                    (Some(file), Ok(refresh)) => {
                        schemes.retain(|scheme| scheme.name != name);
                        schemes.push(Scheme {
                            name: name.to_owned(),
                            realm: option("realm").unwrap_or(name).to_owned(),
                            file: file.to_owned(),
                            refresh,
                        });
                    }
                    (None, _) => settings
                        .mistake(KEY, &format!("missing 'file' in auth '{name}'; write file=path of an htpasswd file")),
                    (_, Err(reason)) => settings.mistake(
                        KEY,
                        &format!("scheme {name}: refresh: {reason}; write a number with a unit, as in 5s"),
                    ),
                }
            }
            Some(other) => settings.mistake(KEY, &format!("unknown auth type '{other}'; write type=basic")),
        }
    }
    schemes
}

/// The part's own form.
pub(crate) fn config(schemes: &[Scheme]) -> auth::Config {
    let scheme = |scheme: &Scheme| auth::SchemeConfig {
        name: scheme.name.clone(),
        realm: scheme.realm.clone(),
        kind: auth::Kind::Basic(auth::BasicConfig {
            file: scheme.file.clone().into(),
            refresh: (scheme.refresh > 0).then(|| duration::positive(scheme.refresh)),
        }),
    };
    auth::Config { schemes: schemes.iter().map(scheme).collect() }
}

const KEY: &str = "proxy.auth";

const SECOND: i64 = 1_000_000_000;

const OPTIONS: &[&str] = &["name", "type", "file", "realm", "refresh"];
