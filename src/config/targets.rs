//! What routes may name: files for TLS to targets, and directories with Unix sockets.

use std::path::{Path, PathBuf};

use super::kvlist::{self, Map};
use super::settings::Settings;
use crate::route::Known;
use crate::upstream::TlsFiles;

/// `proxy.targettls`
pub(crate) fn tls(settings: &mut Settings) -> Vec<TlsFiles> {
    let maps = match kvlist::parse(&settings.values.proxy_targettls.clone()) {
        Ok(maps) => maps,
        Err(token) => {
            settings.mistake(TLS, &format!("unexpected {token}; write {HOW}, with a comma between entries"));
            return Vec::new();
        }
    };
    let mut all: Vec<TlsFiles> = Vec::new();
    for map in &maps {
        match entry(map) {
            Ok(files) if all.iter().any(|other| other.name == files.name) => {
                settings.mistake(TLS, &format!("{}: there are two entries of this name", files.name));
            }
            Ok(files) => all.push(files),
            Err(why) => settings.mistake(TLS, &why),
        }
    }
    all
}

fn entry(map: &Map) -> Result<TlsFiles, String> {
    let name = map.get("name").filter(|name| !name.is_empty()).ok_or(format!("an entry has no name; write {HOW}"))?;
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err(format!("{name:?} is no name; write letters, digits, dashes, dots and underscores"));
    }
    let wrong = |why: String| format!("{name}: {why}");
    if let Some(option) = map.pairs.keys().find(|key| !matches!(key.as_str(), "name" | "ca" | "cert" | "key")) {
        return Err(wrong(format!("unknown option {option:?}; write {HOW}")));
    }
    let file = |key: &str| match map.get(key).filter(|path| !path.is_empty()) {
        None => Ok(None),
        Some(path) => match super::certificates::readable(Path::new(path)) {
            Ok(()) => Ok(Some(PathBuf::from(path))),
            Err(why) => Err(wrong(format!("{key}: open {path}: {why}"))),
        },
    };
    let given = |key: &str| map.get(key).is_some_and(|path| !path.is_empty());
    if given("cert") != given("key") {
        return Err(wrong("cert needs key, and key needs cert".to_owned()));
    }
    if !given("ca") && !given("cert") {
        return Err(wrong(format!("there is neither ca nor cert; write {HOW}")));
    }
    Ok(TlsFiles { name: name.into(), ca: file("ca")?, cert: file("cert")?.zip(file("key")?) })
}

/// `proxy.unixsockets`
pub(crate) fn unix(settings: &mut Settings) -> Vec<Box<str>> {
    let mut directories = Vec::new();
    for text in settings.values.proxy_unixsockets.clone() {
        let directory = text.trim_end_matches('/');
        if text.starts_with('/') && directory.split('/').all(|part| part != "..") {
            directories.push(directory.into());
        } else {
            settings.mistake("proxy.unixsockets", &format!("{text:?} is no absolute path; write /run/app"));
        }
    }
    directories
}

/// What the routing table is to know about it.
pub(crate) fn known(tls: &[TlsFiles], sockets: Vec<Box<str>>, connect: bool) -> Known {
    let names =
        |has: fn(&TlsFiles) -> bool| tls.iter().filter(|files| has(files)).map(|files| files.name.clone()).collect();
    Known {
        authorities: names(|files| files.ca.is_some()),
        certificates: names(|files| files.cert.is_some()),
        sockets,
        connect,
    }
}

const TLS: &str = "proxy.targettls";
const HOW: &str = "name=corp;ca=path;cert=path;key=path";
