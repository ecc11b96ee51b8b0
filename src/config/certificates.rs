//! Certificate sources: `proxy.cs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cert;

use super::environment::Environment;
use super::kvlist::{self, Map};
use super::settings::Settings;
use super::suggest::near;
use super::{acme, duration, pending};

/// One entry, whether a listener refers to it or not.
#[derive(Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) cert: String,
    pub(crate) key: String,
    pub(crate) client_ca: String,
    pub(crate) ca_upgrade_cn: String,
    pub(crate) vault_fetch_token: String,
    pub(crate) header: Option<(String, String)>,
    pub(crate) refresh: i64,
    /// Further options of `type=acme`, as written.
    pub(crate) acme: BTreeMap<String, String>,
}

/// Locators may hold tokens.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Path,
    Http,
    Consul,
    Vault,
    VaultPki,
    Acme,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// Reads all sources; of those with equal names the last counts.
pub(crate) fn parse(settings: &mut Settings, text: &str) -> Vec<Entry> {
    let maps = match kvlist::parse(text) {
        Ok(maps) => maps,
        Err(token) => {
            settings.mistake(
                KEY,
                &format!("unexpected {token}; write cs=name;type=file;cert=path, with a comma between sources"),
            );
            return Vec::new();
        }
    };
    let mut entries: Vec<Entry> = Vec::new();
    for map in &maps {
        if let Some(entry) = entry(settings, map) {
            let before = entries.len();
            entries.retain(|e| e.name != entry.name);
            if entries.len() < before {
                settings.warn(KEY, &format!("source {} stands there twice; only the last one counts", entry.name));
            }
            entries.push(entry);
        }
    }
    entries
}

/// The source as its part wants it, checked as far as can be done before anything is loaded.
pub(crate) fn used(settings: &mut Settings, entry: &Entry, environment: &Environment) -> cert::CertSource {
    if pending::CERT_TYPES.contains(&entry.kind.word()) {
        settings.mistake(
            KEY,
            &format!("source {}: type={} is not built yet; use type=file", entry.name, entry.kind.word()),
        );
    }
    for (option, value) in [("clientca", &entry.client_ca), ("caupgcn", &entry.ca_upgrade_cn)] {
        if !value.is_empty() && pending::CERT_OPTIONS.contains(&option) {
            let line = format!(
                "source {}: {option} is not built yet; clients would not be asked for certificates: remove it",
                entry.name
            );
            settings.mistake(KEY, &line);
        }
    }
    if entry.kind == Kind::File {
        for (option, path) in [("cert", &entry.cert), ("key", &entry.key), ("clientca", &entry.client_ca)] {
            let same = option == "key" && entry.key == entry.cert;
            if !path.is_empty()
                && !same
                && let Err(e) = readable(Path::new(path))
            {
                settings.mistake(KEY, &format!("source {}: {option}: open {path}: {e}", entry.name));
            }
        }
    }
    if entry.kind == Kind::Http && !is_url(&entry.cert) {
        let line =
            format!("source {}: {:?} is no URL; write cert=https://host/path of the list", entry.name, entry.cert);
        settings.mistake(KEY, &line);
    }
    let client_ca = (!entry.client_ca.is_empty()).then(|| entry.client_ca.clone());
    let cert = entry.cert.clone();
    cert::CertSource {
        name: entry.name.clone(),
        kind: match entry.kind {
            Kind::File => cert::Kind::File {
                cert: cert.into(),
                key: entry.key.clone().into(),
                client_ca: client_ca.map(PathBuf::from),
            },
            Kind::Path => cert::Kind::Path { cert: cert.into(), client_ca: client_ca.map(PathBuf::from) },
            Kind::Http => cert::Kind::Http { cert, client_ca },
            Kind::Consul => cert::Kind::Consul { cert, client_ca },
            Kind::Vault => cert::Kind::Vault { cert, client_ca },
            Kind::VaultPki => cert::Kind::VaultPki { cert, client_ca },
            Kind::Acme => cert::Kind::Acme {
                config: Box::new(acme::config(settings, entry, environment)),
                client_ca: client_ca.map(PathBuf::from),
            },
        },
        refresh: duration::positive(entry.refresh),
        header: entry.header.clone(),
        ca_upgrade_cn: (!entry.ca_upgrade_cn.is_empty()).then(|| entry.ca_upgrade_cn.clone()),
        vault_fetch_token: (!entry.vault_fetch_token.is_empty()).then(|| entry.vault_fetch_token.clone()),
    }
}

fn entry(settings: &mut Settings, map: &Map) -> Option<Entry> {
    for (option, hint) in [("cs", "cs=name"), ("cert", "cert=path or URL"), ("type", "type=file")] {
        if map.get(option).is_none_or(str::is_empty) {
            settings.mistake(KEY, &format!("missing '{option}' in {}; write {hint}", map.print()));
            return None;
        }
    }
    let text = |option: &str| map.get(option).unwrap_or_default().to_owned();
    let name = text("cs");
    let is_acme = map.get("type") == Some("acme");
    let known = |word: &str| OPTIONS.contains(&word) || (is_acme && acme::OPTIONS.contains(&word));
    for word in map.pairs.keys().filter(|word| !known(word)) {
        let options = OPTIONS.iter().chain(if is_acme { acme::OPTIONS } else { &[] });
        let hint = near(word, options.copied()).map(|o| format!("; did you mean {o}?")).unwrap_or_default();
        settings.warn(KEY, &format!("source {name}: unknown option {word:?} is ignored{hint}"));
    }
    for word in &map.dangling {
        settings.mistake(KEY, &format!("source {name}: option {word} has no value; write {word}=..."));
    }
    let word = text("type");
    let Some(&(_, kind)) = KINDS.iter().find(|(known, _)| *known == word) else {
        let known: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
        settings.mistake(
            KEY,
            &format!("source {name}: unknown cert source type {word}; write {}", super::kind::or(&known)),
        );
        return None;
    };
    let header = match map.get("hdr") {
        None => None,
        Some(line) => match line.split_once(": ") {
            Some((name, value)) if !name.is_empty() => Some((canonical(name), value.to_owned())),
            _ => {
                settings.mistake(KEY, &format!("source {name}: invalid header {line}; write hdr=Name: value"));
                None
            }
        },
    };
    let refresh = match map.get("refresh").map(duration::parse) {
        None => REFRESH,
        Some(Ok(nanos)) => nanos,
        Some(Err(reason)) => {
            settings.mistake(KEY, &format!("source {name}: refresh: {reason}; write a number with a unit, as in 3s"));
            REFRESH
        }
    };
    let key = match kind {
        Kind::File => map.get("key").filter(|key| !key.is_empty()).unwrap_or(&text("cert")).to_owned(),
        _ => text("key"),
    };
    Some(Entry {
        name,
        kind,
        cert: text("cert"),
        key,
        client_ca: text("clientca"),
        ca_upgrade_cn: text("caupgcn"),
        vault_fetch_token: text("vaultfetchtoken"),
        acme: if is_acme { map.pairs.clone() } else { BTreeMap::new() },
        header,
        // Files are loaded once and Consul is asked with blocking queries.
        refresh: if matches!(kind, Kind::File | Kind::Consul) { 0 } else { refresh },
    })
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
}

/// `x-vault-token` as `X-Vault-Token`.
fn canonical(name: &str) -> String {
    let mut upper = true;
    name.chars()
        .map(|c| {
            let out = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            upper = c == '-';
            out
        })
        .collect()
}

/// Opens the file, so that permissions count too.
pub(crate) fn readable(path: &Path) -> Result<(), String> {
    let file = File::open(path).and_then(|file| file.metadata()).map_err(|e| super::loader::reason(&e))?;
    if file.is_dir() { Err("is a directory".to_owned()) } else { Ok(()) }
}

const KEY: &str = "proxy.cs";

const REFRESH: i64 = 3_000_000_000;

const KINDS: &[(&str, Kind)] = &[
    ("file", Kind::File),
    ("path", Kind::Path),
    ("http", Kind::Http),
    ("consul", Kind::Consul),
    ("vault", Kind::Vault),
    ("vault-pki", Kind::VaultPki),
    ("acme", Kind::Acme),
];

const OPTIONS: &[&str] = &["cs", "type", "cert", "key", "clientca", "caupgcn", "refresh", "hdr", "vaultfetchtoken"];
