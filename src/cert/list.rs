//! `type=http`: a list of file names at a URL, and the files beside it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH, LOCATION};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Url;

use super::blobs::Blobs;
use super::error::{Error, PairError};
use super::load::{Load, Loading, repeat};
use crate::fetch;

pub(super) struct List {
    client: fetch::Client,
    url: Url,
    header: Option<(HeaderName, HeaderValue)>,
    refresh: Option<Duration>,
    /// Files with an entity tag: asked for again only if that changed.
    known: HashMap<String, (HeaderValue, Bytes)>,
}

impl List {
    pub(super) fn new(url: &str, header: Option<&(String, String)>, refresh: Duration) -> Result<Self, Error> {
        let invalid = |what: &str| Error::Place(format!("certificate list: {what}"));
        let url = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("the URL must begin with http:// or https://"));
        }
        let header = match header {
            None => None,
            Some((name, value)) => {
                let mut value = HeaderValue::from_str(value).map_err(|_| invalid("the value of hdr cannot be sent"))?;
                value.set_sensitive(true);
                Some((name.parse().map_err(|_| invalid("the name of hdr cannot be sent"))?, value))
            }
        };
        let settings = fetch::Settings { https: true, idle_connections: 2, ..fetch::Settings::default() };
        let client = fetch::Client::new(settings).map_err(|error| Error::Place(fetch::chain(&error)))?;
        Ok(Self { client, url, header, refresh: repeat(refresh), known: HashMap::new() })
    }

    async fn read(&mut self) -> Result<Blobs, Error> {
        let place = self.place();
        let list = match self.get(&self.url, None).await.map_err(|what| Error::Fetch(format!("{place}: {what}")))? {
            Got::New(list, _) => list,
            Got::Same => return Err(Error::Fetch(format!("{place}: 304 without a reason"))),
        };
        let list = std::str::from_utf8(&list).map_err(|_| Error::Fetch(format!("{place}: the list is no text")))?;
        let lines: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.len() > MOST {
            return Err(Error::TooMuch { what: place });
        }
        let mut blobs = Blobs::new();
        let mut known = HashMap::new();
        for line in lines {
            let url = beside(&self.url, line);
            let name = plain(&url);
            let before = self.known.get(&name);
            let got = self.get(&url, before.map(|(tag, _)| tag)).await;
            let blob = match (got, before) {
                (Ok(Got::New(content, tag)), _) => Ok((content, tag)),
                (Ok(Got::Same), Some((tag, content))) => Ok((content.clone(), Some(tag.clone()))),
                (Ok(Got::Same), None) => Err("304 without a reason".to_owned()),
                (Err(what), _) => Err(what),
            };
            if let Ok((content, Some(tag))) = &blob {
                known.insert(name.clone(), (tag.clone(), content.clone()));
            }
            blobs.insert(name, blob.map(|(content, _)| content).map_err(PairError::Unreadable));
        }
        self.known = known;
        Ok(blobs)
    }

    /// Follows redirects. The configured header goes to the configured server only.
    async fn get(&self, url: &Url, known: Option<&HeaderValue>) -> Result<Got, String> {
        let mut url = url.clone();
        for _ in 0..REDIRECTS {
            let mut request = self.client.current().get(url.clone()).timeout(TIMEOUT);
            if let Some((name, value)) = self.header.as_ref().filter(|_| url.origin() == self.url.origin()) {
                request = request.header(name, value);
            }
            if let Some(tag) = known {
                request = request.header(IF_NONE_MATCH, tag);
            }
            let response = request.send().await.map_err(fetch::explain)?;
            let status = response.status();
            let tag = response.headers().get(ETAG).cloned();
            if status == StatusCode::OK {
                let body = fetch::body(response, LONGEST).await.map_err(|error| fetch::chain(&error))?;
                return Ok(Got::New(body, tag));
            }
            if status == StatusCode::NOT_MODIFIED && known.is_some() {
                return Ok(Got::Same);
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            match target.filter(|_| status.is_redirection()).map(|target| url.join(target)) {
                Some(Ok(target)) if matches!(target.scheme(), "http" | "https") => url = target,
                _ => return Err(format!("status {}", status.as_u16())),
            }
        }
        Err("too many redirects".into())
    }
}

enum Got {
    New(Bytes, Option<HeaderValue>),
    Same,
}

impl Load for List {
    fn load(&mut self) -> Loading<'_> {
        Box::pin(async { self.read().await.map(Some) })
    }

    fn pause(&self) -> Option<Duration> {
        self.refresh
    }

    fn place(&self) -> String {
        plain(&self.url)
    }
}

/// A file in the folder of the list, with the list's query and credentials.
fn beside(list: &Url, line: &str) -> Url {
    let mut url = list.clone();
    let folder = list.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    // Setting a path encodes what has to be encoded and resolves dots.
    url.set_path(&format!("{folder}/{}", line.trim_start_matches('/')));
    url
}

/// Without credentials and query: they may be secrets, and names have to end as file names do.
fn plain(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

const TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS: usize = 10;
const LONGEST: usize = 1024 * 1024;
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_beside_their_list() {
        for (list, line, want) in [
            ("http://host/list", "a-cert.pem", "http://host/a-cert.pem"),
            ("http://host/list", "/a-cert.pem", "http://host/a-cert.pem"),
            ("http://host", "a.pem", "http://host/a.pem"),
            ("http://foo.com/x/y", "a.pem", "http://foo.com/x/a.pem"),
            ("http://foo.com/x/y", "/a.pem", "http://foo.com/x/a.pem"),
            ("http://foo.com/x/", "sub/a.pem", "http://foo.com/x/sub/a.pem"),
            ("http://foo.com/x/y?p=q", "a.pem", "http://foo.com/x/a.pem?p=q"),
            ("https://u:p@foo.com:1/y?p=q", "*.b c.pem", "https://u:p@foo.com:1/*.b%20c.pem?p=q"),
            ("http://host/list", "http://evil/a.pem", "http://host/http://evil/a.pem"),
        ] {
            assert_eq!(beside(&Url::parse(list).unwrap(), line).as_str(), want, "{list} {line}");
        }
        let url = Url::parse("https://u:secret@foo.com:8443/x/a-cert.pem?token=secret").unwrap();
        assert_eq!(plain(&url), "https://foo.com:8443/x/a-cert.pem");
    }
}
