//! How the CA is reached: with the HTTP client of the control plane.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::fetch;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Http(Arc<Inner>);

struct Inner {
    client: fetch::Client,
    seen: Mutex<Seen>,
}

/// What the ACME client does not pass on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// When the CA wants to be asked again, of the last answer that refused.
    pub(super) again: Option<SystemTime>,
}

impl Http {
    pub(super) fn new(directory: &str, ca: Option<&PathBuf>) -> Result<Self, fetch::Error> {
        let tls = fetch::Tls { ca_file: ca.cloned(), ..fetch::Tls::default() };
        let settings = fetch::Settings {
            https: directory.starts_with("https:"),
            tls,
            idle_connections: 1,
            ..fetch::Settings::default()
        };
        Ok(Self(Arc::new(Inner { client: fetch::Client::new(settings)?, seen: Mutex::default() })))
    }

    /// Since the last call.
    pub(super) fn take(&self) -> Seen {
        std::mem::take(&mut *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
        let mut headers = parts.headers;
        headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static(AGENT));
        let request = self.0.client.current().request(parts.method, parts.uri.to_string()).headers(headers);
        let exchange = async {
            let response = request.body(body).send().await.map_err(|error| other(fetch::explain(error)))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = fetch::body(response, LARGEST).await.map_err(|error| other(error.to_string()))?;
            Ok::<_, Error>((status, headers, body))
        };
        let (status, headers, body) = match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(answer) => answer?,
            Err(_) => return Err(other(format!("no answer within {} s", TIMEOUT.as_secs()))),
        };
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let again = headers.get(http::header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
            self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).again = again;
        }
        // A page of some machine in between instead of what the CA says (RFC 8555 section 6.7).
        if (status.is_server_error() || status.is_client_error())
            && serde_json::from_slice::<serde_json::Value>(&body).is_err()
        {
            return Err(other(format!("the CA answered {status}")));
        }
        let mut response = http::Response::new(Full::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(BytesResponse::from(response))
    }
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

fn other(text: String) -> Error {
    Error::Other(text.into())
}

/// Seconds or a date (RFC 9110 section 10.2.3), at most a month.
fn retry_after(text: &str) -> Option<SystemTime> {
    let at = match text.trim().parse::<u64>() {
        Ok(seconds) => SystemTime::now() + Duration::from_secs(seconds).min(MONTH),
        Err(_) => httpdate::parse_http_date(text.trim()).ok()?,
    };
    Some(at.min(SystemTime::now() + MONTH))
}

/// RFC 8555 section 6.1 asks for one.
const AGENT: &str = concat!("ferrio/", env!("CARGO_PKG_VERSION"));
const TIMEOUT: Duration = Duration::from_secs(30);
/// Of a chain of certificates, which is the longest.
const LARGEST: usize = 1 << 20;
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
