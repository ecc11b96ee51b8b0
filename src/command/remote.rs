//! The admin API of a running ferrio, or fabio.

use std::time::Duration;

use serde_json::Value;

use super::arguments::Arguments;
use super::{Failure, consul};
use crate::fetch;

/// Somebody's admin listener.
pub(super) struct Remote {
    /// `http://host:port[/path]`
    base: String,
    client: fetch::Client,
}

impl Remote {
    /// By `--admin`, else by `ui.addr` of `--cfg`, else on this machine at the usual port.
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let base = match arguments.value("admin") {
            Some(addr) => base(addr)?,
            None if arguments.has("cfg") => configured(arguments)?,
            None => DEFAULT.to_owned(),
        };
        Self::new(base, arguments.has("insecure"))
    }

    /// At `addr`, as a person writes it.
    pub(super) fn at(addr: &str, insecure: bool) -> Result<Self, Failure> {
        Self::new(base(addr)?, insecure)
    }

    fn new(base: String, insecure: bool) -> Result<Self, Failure> {
        let tls = fetch::Tls { insecure_skip_verify: insecure, ..fetch::Tls::default() };
        let https = base.starts_with("https:");
        let settings = fetch::Settings { https, tls, direct: true, idle_connections: 1, ..fetch::Settings::default() };
        let client = fetch::Client::new(settings).map_err(|error| Failure::Unknown(error.to_string()))?;
        Ok(Self { base, client })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// The answer to a GET of `path`, which may have a query.
    pub(super) async fn text(&self, path: &str) -> Result<String, Failure> {
        match self.get(path).await? {
            (200, text) => Ok(text),
            (status, text) => Err(self.refused(path, status, &text)),
        }
    }

    pub(super) async fn json(&self, path: &str) -> Result<Value, Failure> {
        parse(&self.base, path, &self.text(path).await?)
    }

    /// Status and text, whatever the status.
    pub(super) async fn get(&self, path: &str) -> Result<(u16, String), Failure> {
        self.fetch(&format!("{}{path}", self.base)).await
    }

    /// As `get`, for a whole URL.
    pub(super) async fn fetch(&self, url: &str) -> Result<(u16, String), Failure> {
        let place = url.split('?').next().unwrap_or(url);
        let fail = |error| Failure::Unknown(format!("{place} does not answer: {}", fetch::explain(error)));
        let answer = self.client.current().get(url).timeout(TIMEOUT).send().await.map_err(fail)?;
        let status = answer.status().as_u16();
        let body = fetch::body(answer, LARGEST).await;
        let body = body.map_err(|error| Failure::Unknown(format!("{place}: {error}")))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn refused(&self, path: &str, status: u16, text: &str) -> Failure {
        let path = path.split('?').next().unwrap_or(path);
        let why = match status {
            403 => " (ui.access keeps it closed)",
            404 => " (an older ferrio, a fabio, or another ui.path?)",
            _ => "",
        };
        let text: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
        let text = if text.is_empty() { text } else { format!(": {}", super::columns::plain(&text)) };
        Failure::Unknown(format!("{}{path} answers with {status}{why}{text}", self.base))
    }
}

pub(super) fn parse(base: &str, path: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Unknown(format!("{base}{path} is no JSON: {error}")))
}

/// `host:port`, `:port`, or a URL, which may have a path.
fn base(addr: &str) -> Result<String, Failure> {
    let addr = addr.trim_end_matches('/');
    if addr.starts_with("http://") || addr.starts_with("https://") {
        return Ok(addr.to_owned());
    }
    let (authority, path) = addr.split_at(addr.find('/').unwrap_or(addr.len()));
    let wrong = || Failure::Usage(format!("{addr:?} is no address; write host:port or http://host:port"));
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    if port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let host = if matches!(host, "" | "0.0.0.0" | "[::]") { "localhost" } else { host };
    Ok(format!("http://{host}:{port}{path}"))
}

/// Where the admin listener of a configuration is.
fn configured(arguments: &Arguments) -> Result<String, Failure> {
    let config = consul::config(arguments, Vec::new())?;
    let admin = config.admin.ok_or_else(|| Failure::Unknown("ui.addr is empty: there is no admin listener".into()))?;
    let addr = base(&admin.listen.addr)?;
    let addr = if admin.listen.cert_source.is_some() { addr.replacen("http:", "https:", 1) } else { addr };
    let path = admin.path.trim_matches('/');
    Ok(if path.is_empty() { addr } else { format!("{addr}/{path}") })
}

const DEFAULT: &str = "http://localhost:9998";
const TIMEOUT: Duration = Duration::from_secs(10);
/// 100,000 routes are some 40 MB.
const LARGEST: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, want) in [
            ("h:1", Some("http://h:1")),
            (":9998", Some("http://localhost:9998")),
            ("0.0.0.0:1/admin/", Some("http://localhost:1/admin")),
            ("[::1]:1", Some("http://[::1]:1")),
            ("https://h/x/", Some("https://h/x")),
            ("h", None),
            ("h:x", None),
        ] {
            assert_eq!(base(text).ok().as_deref(), want, "{text}");
        }
    }
}
