//! Authorisation schemes: `proxy.auth`.

use std::time::Duration;

use http::HeaderName;

use super::kind::or;
use super::kvlist::{self, Map};
use super::settings::Settings;
use super::{duration, suggest::near};
use crate::auth::{self, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: String,
    pub(crate) realm: String,
    /// Nanoseconds; 0: not given, or never.
    pub(crate) refresh: i64,
    pub(crate) kind: Kind,
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
        for word in &map.dangling {
            settings.mistake(KEY, &format!("scheme {name}: option {word} has no value; write {word}=..."));
        }
        let Some(kind) = option("type") else {
            settings.mistake(KEY, &format!("missing 'type' in auth '{name}'; write type=basic"));
            continue;
        };
        let Some((_, known)) = TYPES.iter().find(|(word, _)| *word == kind) else {
            let words: Vec<&str> = TYPES.iter().map(|(word, _)| *word).collect();
            settings.mistake(KEY, &format!("unknown auth type '{kind}'; write type={}", or(&words)));
            continue;
        };
        let known = || COMMON.iter().chain(*known).copied();
        for word in map.pairs.keys().filter(|word| !known().any(|option| option == *word)) {
            let hint = near(word, known()).map(|o| format!("; did you mean {o}?")).unwrap_or_default();
            settings.warn(KEY, &format!("scheme {name}: unknown option {word:?} is ignored{hint}"));
        }
        let read = refresh(map).and_then(|refresh| {
            let period = (refresh > 0).then(|| duration::positive(refresh));
            Ok((refresh, kind_of(kind, map, period)?))
        });
        match read {
            Ok((refresh, kind)) => {
                if schemes.iter().any(|scheme| scheme.name == name) {
                    settings.warn(KEY, &format!("scheme {name} stands there twice; only the last one counts"));
                }
                schemes.retain(|scheme| scheme.name != name);
                let realm = option("realm").unwrap_or(name).to_owned();
                schemes.push(Scheme { name: name.to_owned(), realm, refresh, kind });
            }
            Err(Wrong::Missing(option, write)) => {
                settings.mistake(KEY, &format!("missing '{option}' in auth '{name}'; write {write}"));
            }
            Err(Wrong::Value(reason)) => settings.mistake(KEY, &format!("scheme {name}: {reason}")),
        }
    }
    schemes
}

/// The part's own form.
pub(crate) fn config(schemes: &[Scheme]) -> auth::Config {
    let scheme = |scheme: &Scheme| auth::SchemeConfig {
        name: scheme.name.clone(),
        realm: scheme.realm.clone(),
        kind: scheme.kind.clone(),
    };
    auth::Config { schemes: schemes.iter().map(scheme).collect() }
}

/// What is wrong with a scheme.
enum Wrong {
    /// The option, and what to write.
    Missing(&'static str, &'static str),
    Value(String),
}

/// Nanoseconds. 0 is off, what is less than a second is a second.
fn refresh(map: &Map) -> Result<i64, Wrong> {
    match map.get("refresh").map(duration::parse) {
        None => Ok(0),
        Some(Ok(..=0)) => Ok(0),
        Some(Ok(nanos)) => Ok(nanos.max(SECOND)),
        Some(Err(reason)) => Err(Wrong::Value(format!("refresh: {reason}; write a number with a unit, as in 5s"))),
    }
}

fn kind_of(kind: &str, map: &Map, refresh: Option<Duration>) -> Result<Kind, Wrong> {
    let option = |option: &str| map.get(option).filter(|text| !text.is_empty());
    let file = |write| option("file").map(Into::into).ok_or(Wrong::Missing("file", write));
    Ok(match kind {
        "apikey" => Kind::ApiKey(auth::ApiKeyConfig {
            file: file("file=path of a file with lines name:key")?,
            refresh,
            header: option("header").map(header).transpose()?.unwrap_or(HeaderName::from_static("x-api-key")),
            query: option("query").map(str::to_owned),
            user: option("user").map(header).transpose()?,
        }),
        "forward" => Kind::Forward(forward(map)?),
        "jwt" => Kind::Jwt(auth::JwtConfig {
            keys: match (option("keys"), option("secret")) {
                (Some(url), None) if url.starts_with("http://") || url.starts_with("https://") => {
                    auth::KeySource::Url(url.to_owned())
                }
                (Some(path), None) => auth::KeySource::File(path.into()),
                (None, Some(path)) => auth::KeySource::Secret(path.into()),
                (Some(_), Some(_)) => return Err(Wrong::Value("keys and secret exclude each other".to_owned())),
                (None, None) => return Err(Wrong::Missing("keys", "keys=URL or path of a JWK set, or secret=path")),
            },
            refresh,
            issuers: list(option("issuer")),
            audiences: list(option("audience")),
            leeway: time(map, "leeway", LEEWAY)?,
            algorithms: algorithms(option("algs"))?,
            claims: list(option("claims"))
                .iter()
                .map(|pair| match pair.split_once(':') {
                    Some((claim, name)) => Ok((claim.to_owned(), header(name)?)),
                    None => Err(Wrong::Value(format!("{pair:?} in claims; write claims=sub:X-User|email:X-Email"))),
                })
                .collect::<Result<_, _>>()?,
        }),
        _ => Kind::Basic(auth::BasicConfig { file: file("file=path of an htpasswd file")?, refresh }),
    })
}

fn forward(map: &Map) -> Result<auth::ForwardConfig, Wrong> {
    let url = map.get("url").filter(|url| !url.is_empty());
    let url = url.ok_or(Wrong::Missing("url", "url=http://host:port/path of the service that decides"))?;
    let wrong = || Wrong::Value(format!("{url:?} is no URL; write url=http://host:port/path"));
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong()),
    };
    Ok(auth::ForwardConfig {
        tls,
        host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        authority: authority.as_str().to_owned(),
        path_and_query: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        timeout: time(map, "timeout", TIMEOUT)?,
        copy: list(map.get("copy")).iter().map(|name| header(name)).collect::<Result<_, _>>()?,
    })
}

fn time(map: &Map, option: &str, default: Duration) -> Result<Duration, Wrong> {
    match map.get(option).map(duration::parse) {
        None => Ok(default),
        Some(Ok(nanos)) if nanos >= 0 => Ok(duration::positive(nanos)),
        Some(Ok(_)) => Err(Wrong::Value(format!("{option} must not be negative"))),
        Some(Err(reason)) => Err(Wrong::Value(format!("{option}: {reason}; write a number with a unit, as in 5s"))),
    }
}

fn algorithms(text: Option<&str>) -> Result<Vec<String>, Wrong> {
    let names = list(text);
    match names.iter().find(|name| !ALGORITHMS.contains(&name.as_str())) {
        None => Ok(names),
        Some(name) => Err(Wrong::Value(format!("{name:?} is no algorithm; write {}", or(ALGORITHMS)))),
    }
}

fn header(name: &str) -> Result<HeaderName, Wrong> {
    HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| Wrong::Value(format!("{name:?} is no header name")))
}

/// Words with `|` between them, since commas and semicolons end an option.
fn list(text: Option<&str>) -> Vec<String> {
    text.unwrap_or_default().split('|').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

const KEY: &str = "proxy.auth";

const SECOND: i64 = 1_000_000_000;
const LEEWAY: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options of all schemes.
const COMMON: &[&str] = &["name", "type", "realm"];

/// The schemes, and the options of each.
const TYPES: &[(&str, &[&str])] = &[
    ("basic", &["file", "refresh"]),
    ("apikey", &["file", "refresh", "header", "query", "user"]),
    ("forward", &["url", "timeout", "copy"]),
    ("jwt", &["keys", "secret", "refresh", "issuer", "audience", "leeway", "algs", "claims"]),
];

/// RFC 7518 and RFC 8037. `none` is not one.
const ALGORITHMS: &[&str] =
    &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256", "HS384", "HS512"];
