//! Options of certificate sources of `type=acme`.

use std::path::PathBuf;
use std::time::Duration;

use crate::cert::acme::{
    Challenge, Config, ExternalAccount, LETSENCRYPT, LETSENCRYPT_STAGING, MOST, Names, Secret, Storage, is_name,
};
use crate::consul;

use super::certificates::Entry;
use super::environment::Environment;
use super::settings::Settings;
use super::{agent, duration, number};

/// Mistakes go to the report; what comes back is used only if there are none.
pub(crate) fn config(settings: &mut Settings, entry: &Entry, environment: &Environment) -> Config {
    let mut reader = Reader { settings, entry };
    let directory = reader.directory();
    let external_account = reader.external_account();
    let names = reader.names();
    let challenge = match reader.text("challenge") {
        None | Some("any") => Challenge::Any,
        Some("http-01") => Challenge::Http,
        Some("tls-alpn-01") => Challenge::TlsAlpn,
        Some(other) => {
            let line = format!("challenge={other} is not known; write any, http-01 or tls-alpn-01");
            reader.mistake(&line);
            Challenge::Any
        }
    };
    let retry = match reader.text("retry").map(duration::parse) {
        None => RETRY,
        Some(Ok(nanos)) if nanos > 0 => duration::positive(nanos),
        Some(_) => {
            reader.mistake("retry is a time above 0, as in 5m");
            RETRY
        }
    };
    let ca = reader.text("ca").map(PathBuf::from);
    let secret = reader.secret("secret");
    let (email, profile) = (reader.text("email").map(str::to_owned), reader.text("profile").map(str::to_owned));
    let storage = reader.storage(environment);
    Config { directory, ca, email, external_account, names, challenge, profile, storage, secret, retry }
}

struct Reader<'a> {
    settings: &'a mut Settings,
    entry: &'a Entry,
}

impl<'a> Reader<'a> {
    /// `None`: not set, or empty.
    fn text(&self, option: &str) -> Option<&'a str> {
        self.entry.acme.get(option).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn mistake(&mut self, reason: &str) {
        let line = format!("source {}: {reason}", self.entry.name);
        self.settings.mistake("proxy.cs", &line);
    }

    fn directory(&mut self) -> String {
        match self.entry.cert.as_str() {
            "letsencrypt" => LETSENCRYPT.to_owned(),
            "letsencrypt-staging" => LETSENCRYPT_STAGING.to_owned(),
            url => {
                let proper = url
                    .parse::<http::Uri>()
                    .is_ok_and(|url| url.host().is_some() && matches!(url.scheme_str(), Some("https" | "http")));
                if !proper {
                    let line = format!(
                        "cert={url} is no ACME directory; write letsencrypt, letsencrypt-staging or its URL, as in https://ca/acme/directory"
                    );
                    self.mistake(&line);
                }
                if url.starts_with("http:") {
                    let line = format!(
                        "source {}: {url} is asked without TLS: anybody on the way can be the CA",
                        self.entry.name
                    );
                    self.settings.warn("proxy.cs", &line);
                }
                url.to_owned()
            }
        }
    }

    fn secret(&mut self, option: &str) -> Option<Secret> {
        let text = self.text(option)?;
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Some(Secret::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Some(Secret::Variable(name.to_owned())),
            _ => {
                // Not repeated here: it may be the secret itself.
                self.mistake(&format!(
                    "{option} says where the secret is, never the secret itself: write file:PATH or env:NAME"
                ));
                None
            }
        }
    }

    fn external_account(&mut self) -> Option<ExternalAccount> {
        let (id, key) = (self.text("eabkid").map(str::to_owned), self.secret("eabhmac"));
        match (id, key) {
            (Some(id), Some(key)) => Some(ExternalAccount { id, key }),
            (None, None) => None,
            _ => {
                self.mistake("an external account needs both eabkid=ID and eabhmac=file:PATH");
                None
            }
        }
    }

    fn names(&mut self) -> Names {
        let list = |text: Option<&str>| -> Vec<String> {
            let words = text.unwrap_or_default().split([',', ' ', '|']).map(str::trim).filter(|word| !word.is_empty());
            words.map(|word| word.trim_end_matches('.').to_ascii_lowercase()).collect()
        };
        let fixed = list(self.text("names"));
        for name in fixed.iter().filter(|name| !is_name(name)) {
            let why =
                if name.contains('*') { ": wildcards need a challenge by DNS, which is not spoken here" } else { "" };
            self.mistake(&format!("names: {name:?} is no name for a certificate{why}"));
        }
        let filter = list(self.text("filter"));
        let fits =
            |pattern: &String| pattern.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte));
        for pattern in filter.iter().filter(|pattern| !fits(pattern)) {
            self.mistake(&format!("filter: {pattern:?} is no pattern for host names; write *.example.com, in quotes with commas between them"));
        }
        let table = match self.text("table") {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => {
                self.mistake(&format!("table={other} is neither true nor false"));
                true
            }
        };
        let most = match self.text("max").map(number::int) {
            None => MOST,
            Some(Ok(most)) if (0..=LARGEST).contains(&most) => most as usize,
            Some(_) => {
                self.mistake(&format!("max is a number from 0 to {LARGEST}"));
                MOST
            }
        };
        if fixed.is_empty() && !table {
            self.mistake("with table=false there is nothing to order; write names=");
        }
        Names { fixed, table, filter, most }
    }

    fn storage(&mut self, environment: &Environment) -> Storage {
        if let Some(text) = self.text("store")
            && text != "consul"
            && !text.starts_with("consul:")
        {
            return Storage::Directory(text.into());
        }
        let prefix = self.text("store").and_then(|text| text.strip_prefix("consul:")).unwrap_or(PREFIX);
        let prefix = prefix.trim_matches('/').to_owned();
        let overrides = self.settings.values.registry_consul_kvpath.trim_start_matches('/').to_owned();
        if self.settings.values.registry_backend == "consul" && prefix.starts_with(&overrides) {
            self.mistake(&format!(
                "store=consul:{prefix} lies below registry.consul.kvpath, where every value is read as routes; choose another"
            ));
        }
        let client = match agent::client(self.settings, environment) {
            Some(client) => client,
            // Its mistake is in the report.
            None => consul::Config {
                addr: String::new(),
                scheme: String::new(),
                path_prefix: String::new(),
                token: consul::Token::None,
                namespace: None,
                partition: None,
                datacenter: None,
                consistency: consul::Consistency::Default,
                tls: consul::Tls::default(),
            },
        };
        Storage::Consul { client: Box::new(client), prefix }
    }
}

/// Beside those of all sources.
pub(crate) const OPTIONS: &[&str] = &[
    "ca",
    "email",
    "eabkid",
    "eabhmac",
    "names",
    "table",
    "filter",
    "max",
    "challenge",
    "profile",
    "store",
    "secret",
    "retry",
];

/// Below what is ours in the KV store.
const PREFIX: &str = "ferrio/acme";
/// Let's Encrypt allows five failures per name and hour.
const RETRY: Duration = Duration::from_secs(300);
const LARGEST: i64 = 100_000;
