//! Where the properties come from: a file or a URL.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use super::settings::redact;

/// Reads the text behind `-cfg`.
pub(crate) fn read(place: &str) -> Result<String, String> {
    if is_url(place) { fetch(place) } else { open(place) }
}

pub(crate) fn is_url(place: &str) -> bool {
    place.starts_with("http://") || place.starts_with("https://")
}

fn open(path: &str) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_LENGTH + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|e| format!("open {path}: {}", super::loader::reason(&e)))?;
    if bytes.len() as u64 > MAX_LENGTH {
        return Err(format!("{path}: larger than {} MiB", MAX_LENGTH >> 20));
    }
    Ok(utf8(bytes))
}

/// Own thread and runtime: the caller may have none, or be in one.
fn fetch(url: &str) -> Result<String, String> {
    let shown = redact(url);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(request(url))
    };
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| Err("stopped".to_owned())).map_err(
        |reason| match reason.strip_prefix("properties: ") {
            Some(_) => reason,
            None => format!("properties: error fetching {shown:?}. {reason}"),
        },
    )
}

async fn request(url: &str) -> Result<String, String> {
    let shown = redact(url);
    let chain = |error: reqwest::Error| {
        // Its own text repeats the URL with everything in it.
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        text
    };
    // Without a default provider the client panics; whoever was first keeps it.
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(TIMEOUT).build().map_err(chain)?;
    let mut response = client.get(url).send().await.map_err(chain)?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("properties: {shown} returned {}", response.status().as_u16()));
    }
    let content_type = response
        .headers()
        .get(reqwest::header::CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let compared: Option<String> =
        content_type.as_deref().map(|text| text.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect());
    let latin1 = match compared.as_deref() {
        None | Some("text/plain;charset=utf-8") => false,
        Some("text/plain" | "text/plain;charset=iso-8859-1" | "text/plain;charset=latin1") => true,
        Some(_) => return Err(format!("properties: invalid content type {}", content_type.unwrap_or_default())),
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(chain)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_LENGTH {
            return Err(format!("larger than {} MiB", MAX_LENGTH >> 20));
        }
    }
    Ok(if latin1 { bytes.into_iter().map(char::from).collect() } else { utf8(bytes) })
}

/// Bytes that are no UTF-8, in an old comment say, must not stop a start.
fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// More than any properties file; a device or an endless stream must not fill the memory.
const MAX_LENGTH: u64 = 8 << 20;

const TIMEOUT: Duration = Duration::from_secs(30);
