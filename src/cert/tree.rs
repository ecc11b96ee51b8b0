//! `type=consul`: PEM files in Consul's KV store.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use reqwest::Url;

use super::Env;
use super::blobs::Blobs;
use super::error::{Error, PairError};
use super::load::{Load, Loading};
use crate::consul::{Client, Config, Consistency, Keys, Mode, Pair, Tls, Token, Watch, pairs};

pub(super) struct Tree {
    watch: Watch,
    place: String,
}

impl Tree {
    pub(super) fn new(url: &str, env: &Env) -> Result<Self, Error> {
        let (config, prefix) = parse(url, env)?;
        let place = format!("{}://{}/v1/kv/{prefix}", config.scheme, config.addr);
        let client = Client::new(config).map_err(|error| Error::Place(format!("{place}: {error}")))?;
        let watch = Watch::new(client, Keys::kv(&prefix), "recurse", Mode::Block(WAIT), true);
        Ok(Self { watch, place })
    }
}

impl Load for Tree {
    fn load(&mut self) -> Loading<'_> {
        Box::pin(async {
            match self.watch.next(pairs).await {
                Ok(seen) => Ok(Some(blobs(&seen.value.unwrap_or_default()))),
                Err(failure) => Err(Error::Fetch(format!("{}: {}", self.place, failure.error))),
            }
        })
    }

    /// The watch waits by itself. This joins the writes of a certificate and its key.
    fn pause(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

/// Named as the last part of their keys, as in fabio; by the whole key where two would have the same name.
fn blobs(pairs: &[Pair]) -> Blobs {
    let last = |pair: &Pair| pair.key.rsplit('/').next().unwrap_or_default().to_owned();
    let mut count = HashMap::new();
    for pair in pairs {
        *count.entry(last(pair)).or_insert(0) += 1;
    }
    let blob = |pair: &Pair| {
        let name = last(pair);
        let name = if count.get(&name).is_some_and(|count| *count > 1) { pair.key.clone() } else { name };
        let content = base64::engine::general_purpose::STANDARD.decode(&pair.value);
        (name, content.map(Into::into).map_err(|_| PairError::Unreadable("the value is no base64".into())))
    };
    // Folders are keys as well, which end with a slash and hold nothing.
    pairs.iter().filter(|pair| !pair.key.ends_with('/')).map(blob).collect()
}

/// Where Consul is, and below which key to look.
fn parse(url: &str, env: &Env) -> Result<(Config, String), Error> {
    let place = |what: &str| Error::Place(format!("certificates in Consul: {what}"));
    let url = Url::parse(url).map_err(|_| place("invalid url"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(place("invalid url"));
    }
    let host = url.host_str().ok_or_else(|| place("invalid url"))?;
    let port = url.port_or_known_default().unwrap_or(8500);
    let (path_prefix, key) = url.path().split_once(KV).ok_or_else(|| place("missing prefix: /v1/kv/"))?;
    let mut key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
    let mut token = url.query_pairs().find(|(name, _)| name == "token").map(|(_, token)| token.into_owned());
    // As fabio's documentation has it.
    if let Some((rest, value)) = key.clone().split_once("&token=") {
        token.get_or_insert(value.to_owned());
        key = rest.to_owned();
    }
    let token = match token.or_else(|| env.get("CONSUL_HTTP_TOKEN")) {
        Some(token) if !token.is_empty() => Token::Value(token),
        _ => env.get("CONSUL_HTTP_TOKEN_FILE").map_or(Token::None, |path| Token::File(path.into())),
    };
    let verify = env.get("CONSUL_HTTP_SSL_VERIFY").and_then(|text| go_bool(&text)).unwrap_or(true);
    let config = Config {
        addr: format!("{host}:{port}"),
        scheme: url.scheme().to_owned(),
        path_prefix: path_prefix.to_owned(),
        token,
        namespace: env.get("CONSUL_NAMESPACE"),
        partition: env.get("CONSUL_PARTITION"),
        datacenter: None,
        consistency: Consistency::Consistent,
        tls: Tls {
            key_file: env.get("CONSUL_CLIENT_KEY"),
            cert_file: env.get("CONSUL_CLIENT_CERT"),
            ca_file: env.get("CONSUL_CACERT"),
            ca_path: env.get("CONSUL_CAPATH"),
            server_name: env.get("CONSUL_TLS_SERVER_NAME"),
            insecure_skip_verify: !verify,
        },
    };
    Ok((config, key))
}

pub(super) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

const KV: &str = "/v1/kv/";

/// Between two answers when nothing changes: also how old the report can be.
const WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls() {
        let env = Env::of(&[]);
        for (url, want) in [
            ("", Err("invalid url")),
            ("localhost:8500/v1/kv/x", Err("invalid url")),
            ("ftp://h/v1/kv/x", Err("invalid url")),
            ("http://localhost:8500/path/to/cert", Err("missing prefix: /v1/kv/")),
            ("http://localhost:8500/v1/kv/path/to/cert", Ok(("http", "localhost:8500", "", "path/to/cert", None))),
            ("https://h/v1/kv/ssl", Ok(("https", "h:443", "", "ssl", None))),
            ("https://h:1/v1/kv/ssl?token=123", Ok(("https", "h:1", "", "ssl", Some("123")))),
            ("http://h:1/v1/kv/ssl&token=123", Ok(("http", "h:1", "", "ssl", Some("123")))),
            ("http://h:1/consul/v1/kv/a%20b/", Ok(("http", "h:1", "/consul", "a b/", None))),
        ] {
            let got = parse(url, &env);
            match (&got, want) {
                (Ok((config, key)), Ok((scheme, addr, prefix, path, token))) => {
                    let token = token.map_or(Token::None, |token: &str| Token::Value(token.into()));
                    assert_eq!(
                        (config.scheme.as_str(), config.addr.as_str(), key.as_str()),
                        (scheme, addr, path),
                        "{url}"
                    );
                    assert_eq!((config.path_prefix.as_str(), &config.token), (prefix, &token), "{url}");
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{url}: {error}"),
                _ => panic!("{url}: {:?}", got.map(|(_, key)| key)),
            }
        }
    }

    #[test]
    fn the_environment_of_consul_clients_counts() {
        let env = Env::of(&[
            ("CONSUL_HTTP_TOKEN", "t"),
            ("CONSUL_HTTP_SSL_VERIFY", "false"),
            ("CONSUL_CACERT", "/ca"),
            ("CONSUL_NAMESPACE", "ns"),
        ]);
        let (config, _) = parse("https://h/v1/kv/x", &env).unwrap();
        assert_eq!(config.token, Token::Value("t".into()));
        assert_eq!((config.tls.insecure_skip_verify, config.tls.ca_file.as_deref()), (true, Some("/ca")));
        assert_eq!(config.namespace.as_deref(), Some("ns"));
        let (config, _) = parse("https://h/v1/kv/x?token=own", &env).unwrap();
        assert_eq!(config.token, Token::Value("own".into()));
    }

    #[test]
    fn names_are_the_last_part_of_keys() {
        let pair = |key: &str, value: &str| Pair { key: key.into(), value: value.into(), modify_index: 1 };
        let all = [
            pair("ssl/", ""),
            pair("ssl/*.a.com-cert.pem", "eA=="),
            pair("ssl/one/b-cert.pem", "eA=="),
            pair("ssl/two/b-cert.pem", "eA=="),
            pair("ssl/bad.pem", "%%"),
        ];
        let blobs = blobs(&all);
        let names: Vec<_> = blobs.keys().map(String::as_str).collect();
        assert_eq!(names, ["*.a.com-cert.pem", "bad.pem", "ssl/one/b-cert.pem", "ssl/two/b-cert.pem"]);
        assert!(blobs["bad.pem"].is_err());
        assert_eq!(blobs["*.a.com-cert.pem"].as_ref().unwrap(), "x");
    }
}
