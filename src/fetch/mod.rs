//! One reqwest set-up for everything the control plane fetches.
//!
//! Not for requests of clients: those go through `upstream`.

mod tls;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};

pub use tls::TlsError;

/// How to reach a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether this client will speak TLS; without it no root certificates are loaded.
    pub https: bool,
    pub tls: Tls,
    /// Everything goes through this socket; host and port of the URL only name the server.
    pub unix_socket: Option<PathBuf>,
    /// Ignore `HTTP_PROXY` and the like. Loopback addresses are never proxied.
    pub direct: bool,
    /// Connections kept open for the next request, per server. 0: close after each.
    pub idle_connections: usize,
    /// Where a host name of the URL really is: `(name in the URL, host to resolve)`.
    pub alias: Option<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM. Certificate and key come together.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// PEM bundle that replaces the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Directory of PEM files, the same.
    pub ca_path: Option<PathBuf>,
    pub insecure_skip_verify: bool,
}

#[derive(Debug)]
pub enum Error {
    Tls(TlsError),
    Client(reqwest::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Tls(e) => write!(f, "{e}"),
            Error::Client(_) => f.write_str("cannot set up an HTTP client"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Tls(e) => std::error::Error::source(e),
            Error::Client(e) => Some(e),
        }
    }
}

/// A client that takes up changed certificate files: new connections use the new ones.
pub struct Client {
    settings: Settings,
    current: Mutex<Current>,
}

struct Current {
    client: reqwest::Client,
    stamp: Vec<Option<Stamp>>,
    looked: Instant,
}

/// Enough to notice that a file was replaced, also within the resolution of its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    /// In bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// `None`: there is no such file.
    pub fn of(path: &std::path::Path) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::metadata(path).ok()?;
        Some(Stamp { modified: meta.modified().ok(), length: meta.len(), inode: meta.ino() })
    }
}

impl Client {
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let stamp = stamps(&settings);
        let client = build(&settings)?;
        Ok(Self { settings, current: Mutex::new(Current { client, stamp, looked: Instant::now() }) })
    }

    /// The client to use for the next request. Cheap to call: files are looked at once a second at most.
    pub fn current(&self) -> reqwest::Client {
        let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.looked.elapsed() < LOOK_EVERY || current.stamp.is_empty() {
            return current.client.clone();
        }
        current.looked = Instant::now();
        let stamp = stamps(&self.settings);
        if stamp != current.stamp {
            // Files are often replaced one after the other: a pair that does not fit is tried again with the next change.
            current.stamp = stamp;
            match build(&self.settings) {
                Ok(client) => current.client = client,
                Err(e) => tracing::warn!("Keeping the previous TLS files: {e}"),
            }
        }
        current.client.clone()
    }
}

/// The whole body, or an error when it is longer than `limit` bytes.
pub async fn body(mut response: reqwest::Response, limit: usize) -> Result<Bytes, BodyError> {
    let known = response.content_length().unwrap_or(0);
    if known > limit as u64 {
        return Err(BodyError::TooLong(limit));
    }
    let mut all = BytesMut::with_capacity(known as usize);
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Transport)? {
        if all.len() + chunk.len() > limit {
            return Err(BodyError::TooLong(limit));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

#[derive(Debug)]
pub enum BodyError {
    TooLong(usize),
    Transport(reqwest::Error),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
            BodyError::Transport(_) => f.write_str("the answer broke off"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BodyError::TooLong(_) => None,
            BodyError::Transport(e) => Some(e),
        }
    }
}

/// An error with its causes in one line. URLs are left out, they may carry secrets.
pub fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    chain(&error)
}

/// An error and its causes, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let part = e.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = e.source();
    }
    text
}

/// Whether this host of a URL is this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn build(settings: &Settings) -> Result<reqwest::Client, Error> {
    let tls = tls::config(settings.https, &settings.tls).map_err(Error::Tls)?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        // A redirect would take the headers with it, tokens among them.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        // A server that vanished without a word is noticed although nothing is sent.
        .tcp_keepalive(Duration::from_secs(10))
        .tcp_keepalive_interval(Duration::from_secs(5))
        .tcp_keepalive_retries(3)
        .tcp_user_timeout(Duration::from_secs(30))
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(60))
        .pool_max_idle_per_host(settings.idle_connections);
    if settings.direct {
        builder = builder.no_proxy();
    }
    if let Some(path) = &settings.unix_socket {
        builder = builder.no_proxy().unix_socket(path.clone());
    }
    if let Some((name, host)) = &settings.alias {
        builder = builder.dns_resolver(std::sync::Arc::new(Alias { name: name.clone(), host: host.clone() }));
    }
    builder.build().map_err(Error::Client)
}

/// Resolves the name that the certificate carries to where the server is.
struct Alias {
    name: String,
    host: String,
}

impl reqwest::dns::Resolve for Alias {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let asked = name.as_str();
        let host = if asked.eq_ignore_ascii_case(&self.name) { self.host.clone() } else { asked.to_owned() };
        Box::pin(async move {
            if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
                let one: reqwest::dns::Addrs = Box::new(std::iter::once(SocketAddr::new(ip, 0)));
                return Ok(one);
            }
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let all: reqwest::dns::Addrs = Box::new(found.into_iter());
            Ok(all)
        })
    }
}

fn stamps(settings: &Settings) -> Vec<Option<Stamp>> {
    let tls = &settings.tls;
    [&tls.cert_file, &tls.key_file, &tls.ca_file, &tls.ca_path]
        .into_iter()
        .flatten()
        .map(|path| Stamp::of(path))
        .collect()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn loopback_hosts() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST", true),
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("[::1]", true),
            ("::1", true),
            ("10.0.0.1", false),
            ("consul.example.com", false),
            ("localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }

    #[tokio::test]
    async fn bodies_are_bounded() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 1024];
                let _ = socket.read(&mut buffer).await.unwrap();
                let long = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789";
                socket.write_all(long).await.unwrap();
            }
        });
        let client = Client::new(Settings { direct: true, ..Default::default() }).unwrap();
        let get = async || client.current().get(format!("http://{address}/")).send().await.unwrap();
        assert_eq!(body(get().await, 10).await.unwrap(), "0123456789");
        assert!(matches!(body(get().await, 9).await, Err(BodyError::TooLong(9))));
    }

    #[tokio::test]
    async fn errors_keep_urls_to_themselves() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let client = Client::new(Settings { direct: true, ..Default::default() }).unwrap();
        let error = client.current().get(format!("http://{address}/?token=hidden")).send().await.unwrap_err();
        let text = explain(error);
        assert!(!text.contains("hidden") && text.contains("refused"), "{text}");
    }
}
