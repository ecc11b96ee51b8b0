//! One request to Consul: address, token, parameters, time-out, and what an answer carries beside its body.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::watch;

use super::{Config, Consistency, Token};
use crate::fetch::{self, Stamp};

/// A handle to one Consul agent. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: fetch::Client,
    /// `http://host:port` and the path prefix.
    base: String,
    config: Config,
    token: Mutex<TokenFile>,
    /// The worst that happened since the last good answer.
    trouble: AtomicU8,
    contact: Mutex<Option<Contact>>,
    recovery: watch::Sender<Recovery>,
}

/// Counts how often Consul came back. Watches look at it, because one of them notices first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recovery {
    /// After any failure.
    pub(super) any: u64,
    /// After one where requests got lost: those still under way may be lost, too.
    pub(super) lost: u64,
}

const WELL: u8 = 0;
const REFUSING: u8 = 1;
const LOST: u8 = 2;

/// What Consul's servers say about their leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// How long ago the server that answered had heard of the leader; 0 when it is the leader.
    pub last: Duration,
    /// There is a leader.
    pub known_leader: bool,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Block until Consul is beyond this index, but no longer than `wait`.
    pub index: Option<u64>,
    pub wait: Duration,
    /// Whether to send the configured consistency: yes for catalog, health and KV, no for the agent.
    pub consistency: bool,
    /// 404 is an empty answer, as for KV.
    pub missing_is_empty: bool,
    /// The longest body, in bytes.
    pub limit: usize,
}

impl Default for Read {
    fn default() -> Self {
        Self { index: None, wait: Duration::ZERO, consistency: true, missing_is_empty: false, limit: 512 << 20 }
    }
}

/// A decoded answer with Consul's headers.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// `None`: 404 where that means empty.
    pub value: Option<T>,
    /// `X-Consul-Index`; 0 when missing or not a number.
    pub index: u64,
    /// Consul says that it left things out which the token may not see. Only newer versions do.
    pub filtered: bool,
    /// From question to the last byte.
    pub took: Duration,
    /// Time that decoding took.
    pub decoding: Duration,
}

#[derive(Debug)]
pub enum Error {
    Setup(fetch::Error),
    /// Something in the configuration cannot be sent.
    Invalid(&'static str),
    /// No answer in time.
    Timeout(Duration),
    /// No connection, or it broke.
    Transport(String),
    Status {
        status: u16,
        /// What Consul says, shortened.
        text: String,
    },
    /// An answer that cannot be understood.
    Answer(String),
}

impl Error {
    /// Consul answered that we may not: no outage, and repeating helps only after somebody changes the ACL.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Status { status: 401 | 403, .. })
    }

    /// The servers know of no such datacenter, or not how to reach it.
    pub fn is_unknown_datacenter(&self) -> bool {
        matches!(self, Error::Status { status: 500, text } if text.contains("No path to datacenter"))
    }

    fn severity(&self) -> u8 {
        match self {
            Error::Timeout(_) | Error::Transport(_) => LOST,
            Error::Status { status, .. } if *status >= 500 => REFUSING,
            Error::Answer(_) => REFUSING,
            _ => WELL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Setup(e) => write!(f, "{}", fetch::chain(e)),
            Error::Invalid(what) => write!(f, "{what} cannot be sent to Consul"),
            Error::Timeout(after) => write!(f, "no answer within {:.1} s", after.as_secs_f64()),
            Error::Transport(text) => f.write_str(text),
            Error::Status { status, text } if text.is_empty() => write!(f, "Consul answered {status}"),
            Error::Status { status, text } => write!(f, "Consul answered {status}: {text}"),
            Error::Answer(text) => write!(f, "answer not understood: {text}"),
        }
    }
}

impl std::error::Error for Error {}

impl Client {
    pub fn new(config: Config) -> Result<Self, Error> {
        let (settings, base) = target(&config);
        let token = match &config.token {
            Token::Value(value) => TokenFile { value: Some(header(value)?), ..TokenFile::default() },
            _ => TokenFile::default(),
        };
        Ok(Self(Arc::new(Inner {
            http: fetch::Client::new(settings).map_err(Error::Setup)?,
            base,
            config,
            token: Mutex::new(token),
            trouble: AtomicU8::new(WELL),
            contact: Mutex::default(),
            recovery: watch::Sender::new(Recovery::default()),
        })))
    }

    /// The same for the catalog of another datacenter. Nothing but the settings is shared: neither connections nor troubles.
    pub fn in_datacenter(&self, name: &str) -> Result<Self, Error> {
        Self::new(Config { datacenter: Some(name.to_owned()), ..self.0.config.clone() })
    }

    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Of the last answer that said something about it.
    pub fn contact(&self) -> Option<Contact> {
        *self.0.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, headers: &HeaderMap) {
        if let Some(leader) = headers.get("x-consul-knownleader") {
            let last = Duration::from_millis(number(headers, "x-consul-lastcontact"));
            let contact = Contact { last, known_leader: leader == "true" };
            *self.0.contact.lock().unwrap_or_else(PoisonError::into_inner) = Some(contact);
        }
    }

    /// DELETE.
    pub(super) async fn remove(&self, path: &str) -> Result<(), Error> {
        let parameters = Parameters(String::new());
        let (status, _, answer) = self.send(Method::DELETE, path, parameters, None, SLACK, SMALL).await?;
        if status != StatusCode::OK {
            return Err(self.note(refused(status, &answer)));
        }
        self.well();
        Ok(())
    }

    pub(super) fn recovery(&self) -> watch::Receiver<Recovery> {
        self.0.recovery.subscribe()
    }

    /// GET and decode. `path` begins with `/v1/` and is percent-encoded; `query` holds parameters of this call
    /// (`recurse`), without a leading `?` or `&`.
    pub async fn get<T, D>(&self, path: &str, query: &str, read: Read, decode: D) -> Result<Answer<T>, Error>
    where
        T: Send + 'static,
        D: FnOnce(&[u8]) -> Result<T, serde_json::Error> + Send + 'static,
    {
        let mut parameters = Parameters(query.to_owned());
        if let Some(index) = read.index {
            parameters.add(&format!("index={index}&wait={}", go_duration(read.wait)));
        }
        if read.consistency {
            match self.0.config.consistency {
                Consistency::Default => {}
                Consistency::Consistent => parameters.add("consistent"),
                Consistency::Stale => parameters.add("stale"),
            }
        }
        // Consul adds up to a sixteenth of the wait, so that clients do not return all at once.
        let blocked = if read.index.is_some() { read.wait + read.wait / 16 } else { Duration::ZERO };
        let asked = Instant::now();
        let (status, headers, body) =
            self.send(Method::GET, path, parameters, None, blocked + SLACK, read.limit).await?;
        let took = asked.elapsed();
        let index = number(&headers, "x-consul-index");
        self.heard(&headers);
        let filtered = headers.get("x-consul-results-filtered-by-acls").is_some_and(|v| v == "true");
        if status == StatusCode::NOT_FOUND && read.missing_is_empty {
            return Ok(Answer { value: None, index, filtered, took, decoding: Duration::ZERO });
        }
        if status != StatusCode::OK {
            return Err(self.note(refused(status, &body)));
        }
        let (started, length) = (Instant::now(), body.len());
        let decoded = if length < DECODE_ASIDE {
            decode(&body)
        } else {
            // Large lists take a while: other tasks of the control plane go on meanwhile.
            match tokio::task::spawn_blocking(move || decode(&body)).await {
                Ok(decoded) => decoded,
                Err(_) => return Err(self.note(Error::Answer("decoding was cut short".into()))),
            }
        };
        match decoded {
            Ok(value) => {
                self.well();
                let decoding = started.elapsed();
                tracing::trace!("Consul: {path}: {length} bytes, decoded in {} us", decoding.as_micros());
                Ok(Answer { value: Some(value), index, filtered, took, decoding })
            }
            Err(e) => Err(self.note(Error::Answer(e.to_string()))),
        }
    }

    /// PUT. The answer's body is returned as it is.
    pub async fn put(&self, path: &str, query: &str, body: Bytes) -> Result<Bytes, Error> {
        self.change(Method::PUT, path, query, body).await
    }

    /// POST, as [`Self::put`].
    pub(super) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, Error> {
        self.change(Method::POST, path, "", body).await
    }

    async fn change(&self, method: Method, path: &str, query: &str, body: Bytes) -> Result<Bytes, Error> {
        let parameters = Parameters(query.to_owned());
        let (status, _, answer) = self.send(method, path, parameters, Some(body), SLACK, SMALL).await?;
        if status != StatusCode::OK {
            return Err(self.note(refused(status, &answer)));
        }
        self.well();
        Ok(answer)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        mut parameters: Parameters,
        body: Option<Bytes>,
        timeout: Duration,
        limit: usize,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Error> {
        let config = &self.0.config;
        if let Some(namespace) = &config.namespace {
            parameters.add(&format!("ns={}", encode(namespace, false)));
        }
        if let Some(partition) = &config.partition {
            parameters.add(&format!("partition={}", encode(partition, false)));
        }
        if let Some(datacenter) = &config.datacenter {
            parameters.add(&format!("dc={}", encode(datacenter, false)));
        }
        let url = format!("{}{path}{}", self.0.base, parameters.finish());
        let mut request = self.0.http.current().request(method, url);
        if let Some(token) = self.token()? {
            request = request.header("X-Consul-Token", token);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let exchange = async {
            let response = request.send().await.map_err(|e| Error::Transport(fetch::explain(e)))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = fetch::body(response, limit).await.map_err(|e| match e {
                fetch::BodyError::TooLong(_) => Error::Answer(e.to_string()),
                fetch::BodyError::Transport(e) => Error::Transport(fetch::explain(e)),
            })?;
            Ok((status, headers, body))
        };
        let result = tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(Error::Timeout(timeout)));
        result.map_err(|e| self.note(e))
    }

    fn token(&self) -> Result<Option<HeaderValue>, Error> {
        let mut token = self.0.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Token::File(path) = &self.0.config.token {
            token.refresh(path);
        }
        Ok(token.value.clone())
    }

    fn note(&self, error: Error) -> Error {
        self.0.trouble.fetch_max(error.severity(), Ordering::Relaxed);
        error
    }

    fn well(&self) {
        let was = self.0.trouble.swap(WELL, Ordering::Relaxed);
        if was != WELL {
            self.0.recovery.send_modify(|recovery| {
                recovery.any += 1;
                if was == LOST {
                    recovery.lost += 1;
                }
            });
        }
    }
}

/// The token that a file holds, read again when the file changes.
#[derive(Default)]
struct TokenFile {
    value: Option<HeaderValue>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
}

impl TokenFile {
    fn refresh(&mut self, path: &PathBuf) {
        if self.looked.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return;
        }
        let first = self.looked.replace(Instant::now()).is_none();
        let stamp = Stamp::of(path);
        if !first && (stamp == self.stamp || stamp.is_none()) {
            // A file that is being replaced may be absent for a moment: the last token stays.
            return;
        }
        self.stamp = stamp;
        match std::fs::read_to_string(path).map(|text| header(text.trim())) {
            Ok(Ok(value)) if !value.is_empty() => self.value = Some(value),
            Ok(Ok(_)) => tracing::warn!("The Consul token file {} is empty", path.display()),
            Ok(Err(e)) => tracing::warn!("The Consul token file {}: {e}", path.display()),
            Err(e) => tracing::warn!("Cannot read the Consul token file {}: {e}", path.display()),
        }
    }
}

struct Parameters(String);

impl Parameters {
    fn add(&mut self, parameter: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(parameter);
    }

    fn finish(self) -> String {
        if self.0.is_empty() { self.0 } else { format!("?{}", self.0) }
    }
}

/// Percent-encodes a name for a path or a query. `slashes`: they stay as they are.
pub(super) fn encode(name: &str, slashes: bool) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    const PATH: &AsciiSet = &NAME.remove(b'/');
    utf8_percent_encode(name, if slashes { PATH } else { NAME }).to_string()
}

/// A duration as Go writes it.
pub(crate) fn go_duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

fn target(config: &Config) -> (fetch::Settings, String) {
    let tls = &config.tls;
    let path = |p: &Option<String>| p.as_ref().map(PathBuf::from);
    let mut settings = fetch::Settings {
        https: config.scheme.eq_ignore_ascii_case("https"),
        tls: fetch::Tls {
            cert_file: path(&tls.cert_file),
            key_file: path(&tls.key_file),
            ca_file: path(&tls.ca_file),
            ca_path: path(&tls.ca_path),
            insecure_skip_verify: tls.insecure_skip_verify,
        },
        idle_connections: 16,
        ..fetch::Settings::default()
    };
    let prefix = config.path_prefix.trim_end_matches('/');
    let slash = if prefix.is_empty() || prefix.starts_with('/') { "" } else { "/" };
    if let Some(socket) = config.addr.strip_prefix("unix://") {
        settings.unix_socket = Some(PathBuf::from(socket));
        settings.https = false;
        return (settings, format!("http://localhost{slash}{prefix}"));
    }
    let scheme = if settings.https { "https" } else { "http" };
    let (host, port) = split_port(&config.addr);
    settings.direct = fetch::is_loopback(host);
    let mut name = host.to_owned();
    if let (true, Some(server)) = (settings.https, &tls.server_name) {
        settings.alias = Some((server.clone(), host.to_owned()));
        name.clone_from(server);
    }
    let port = port.map(|p| format!(":{p}")).unwrap_or_default();
    (settings, format!("{scheme}://{name}{port}{slash}{prefix}"))
}

fn split_port(addr: &str) -> (&str, Option<&str>) {
    match addr.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (host, Some(port)),
        _ => (addr, None),
    }
}

fn header(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(token).map_err(|_| Error::Invalid("this token"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok()).unwrap_or(0)
}

fn refused(status: StatusCode, body: &[u8]) -> Error {
    let text: String = String::from_utf8_lossy(&body[..body.len().min(400)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    Error::Status { status: status.as_u16(), text: text.trim().to_owned() }
}

/// What an answer may take beyond the time that was asked for.
const SLACK: Duration = Duration::from_secs(5);

/// Bodies from this size on are decoded on a thread of their own.
const DECODE_ASIDE: usize = 128 << 10;

/// Enough for answers to writes.
const SMALL: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn config(addr: &str, scheme: &str) -> Config {
        Config {
            addr: addr.into(),
            scheme: scheme.into(),
            path_prefix: String::new(),
            token: Token::None,
            namespace: None,
            partition: None,
            datacenter: None,
            consistency: Consistency::Consistent,
            tls: Default::default(),
        }
    }

    #[test]
    fn addresses() {
        let mut named = config("10.0.0.1:8501", "https");
        named.tls.server_name = Some("server.dc1.consul".into());
        let mut below = config("consul:8500", "http");
        below.path_prefix = "consul/".into();
        for (config, base, direct) in [
            (config("localhost:8500", "http"), "http://localhost:8500", true),
            (config("1.2.3.4:5555", "https"), "https://1.2.3.4:5555", false),
            (config("[::1]:8500", "http"), "http://[::1]:8500", true),
            (config("consul", "http"), "http://consul", false),
            (config("unix:///run/consul.sock", "http"), "http://localhost", false),
            (named, "https://server.dc1.consul:8501", false),
            (below, "http://consul:8500/consul", false),
        ] {
            let (settings, found) = target(&config);
            assert_eq!((found.as_str(), settings.direct), (base, direct), "{}", config.addr);
        }
        let (settings, _) = target(&config("unix:///run/consul.sock", "http"));
        assert_eq!(settings.unix_socket, Some(PathBuf::from("/run/consul.sock")));
    }

    #[test]
    fn names_are_encoded() {
        for (name, slashes, expected) in [
            ("my.app-v1.2", false, "my.app-v1.2"),
            ("a/b", false, "a%2Fb"),
            ("fabio/config/a b?", true, "fabio/config/a%20b%3F"),
            ("ü", true, "%C3%BC"),
        ] {
            assert_eq!(encode(name, slashes), expected);
        }
    }

    #[test]
    fn refusals_are_short_and_in_one_line() {
        let error =
            refused(StatusCode::INTERNAL_SERVER_ERROR, format!("No cluster\nleader{}", "x".repeat(9999)).as_bytes());
        let text = error.to_string();
        assert!(text.starts_with("Consul answered 500: No cluster leader") && text.len() < 300 && !text.contains('\n'));
    }
}
