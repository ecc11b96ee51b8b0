//! Running checks: HTTP and TCP probes at intervals, and TTL checks that nobody reported.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::agent::Shared;
use crate::definition::{AgentCheck, Probe};

/// Start the task that keeps a check up to date; `None` for a check that nobody runs.
pub(crate) fn start(shared: Weak<Shared>, id: String, check: AgentCheck, shortest: Duration) -> Option<AbortHandle> {
    let AgentCheck { probe, interval, timeout, .. } = check;
    let interval = interval.max(shortest);
    let allowed = if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout };
    match probe {
        Probe::Manual => None,
        Probe::Ttl(ttl) => Some(expire(shared, id, ttl, String::new())),
        probe => Some(tokio::spawn(repeat(shared, id, probe, interval, allowed)).abort_handle()),
    }
}

/// Set a TTL check to critical unless the task is aborted before. `last` is the output of the last report.
pub(crate) fn expire(shared: Weak<Shared>, id: String, ttl: Duration, last: String) -> AbortHandle {
    let task = async move {
        sleep(ttl).await;
        let Some(shared) = shared.upgrade() else { return };
        let output = match last.as_str() {
            "" => "TTL expired".to_owned(),
            last => format!("TTL expired (last output before timeout follows): {last}"),
        };
        shared.write(|state| state.local.update_check(&mut state.store, &id, "critical", &output));
    };
    tokio::spawn(task).abort_handle()
}

async fn repeat(shared: Weak<Shared>, id: String, probe: Probe, interval: Duration, allowed: Duration) {
    // Checks that were registered together are not to fire together.
    sleep(interval.mul_f64(crate::random::fraction())).await;
    loop {
        let (status, output) = match &probe {
            Probe::Http { url, method, headers, body } => http(url, method, headers, body, allowed).await,
            Probe::Tcp(address) => tcp(address, allowed).await,
            Probe::Ttl(_) | Probe::Manual => return,
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.write(|state| state.local.update_check(&mut state.store, &id, status, &output));
        drop(shared);
        sleep(interval).await;
    }
}

async fn tcp(address: &str, allowed: Duration) -> (&'static str, String) {
    if !address.contains(':') {
        return ("critical", format!("dial tcp: address {address}: missing port in address"));
    }
    match timeout(allowed, TcpStream::connect(address)).await {
        Ok(Ok(_)) => ("passing", format!("TCP connect {address}: Success")),
        Ok(Err(e)) => ("critical", dial_error(address, &e)),
        Err(_) => ("critical", format!("dial tcp {address}: i/o timeout")),
    }
}

async fn http(
    url: &str,
    method: &str,
    headers: &[(String, String)],
    body: &str,
    allowed: Duration,
) -> (&'static str, String) {
    let method = if method.is_empty() { "GET" } else { method };
    // Go's client writes the method as in "Get".
    let verb: String = (method.chars().take(1).flat_map(char::to_uppercase))
        .chain(method.chars().skip(1).flat_map(char::to_lowercase))
        .collect();
    let failed = |what: &str| ("critical", format!("{verb} \"{url}\": {what}"));
    match timeout(allowed, follow(url, method, headers, body)).await {
        Err(_) => failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        Ok(Err(error)) => failed(&error),
        Ok(Ok((code, text))) => {
            let reason = code.canonical_reason().unwrap_or_default();
            let output = format!("HTTP {method} {url}: {} {reason} Output: {text}", code.as_u16());
            let status = match code {
                code if code.is_success() => "passing",
                StatusCode::TOO_MANY_REQUESTS => "warning",
                _ => "critical",
            };
            (status, output)
        }
    }
}

/// Send the request, following redirects as Go's client does.
async fn follow(
    url: &str,
    method: &str,
    headers: &[(String, String)],
    body: &str,
) -> Result<(StatusCode, String), String> {
    let mut uri: Uri = url.parse().map_err(|_| "invalid URL".to_owned())?;
    let mut method: Method = method.parse().map_err(|_| "invalid method".to_owned())?;
    let mut body = body.to_owned();
    for _ in 0..MAX_REDIRECTS {
        let (code, location, text) = once(&uri, &method, headers, &body).await?;
        let Some(location) = location.filter(|_| code.is_redirection()) else { return Ok((code, text)) };
        uri = resolve(&uri, &location)?;
        if !matches!(code, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
            method = Method::GET;
            body.clear();
        }
    }
    Err(format!("stopped after {MAX_REDIRECTS} redirects"))
}

async fn once(
    uri: &Uri,
    method: &Method,
    headers: &[(String, String)],
    body: &str,
) -> Result<(StatusCode, Option<String>, String), String> {
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "http" {
        // No TLS here: that would double what this small agent depends on.
        return Err(format!("unsupported protocol scheme {scheme:?}"));
    }
    let host = uri.host().ok_or("http: no Host in request URL")?;
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(&address).await.map_err(|e| dial_error(&address, &e))?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::USER_AGENT, "Consul Health Check")
        .header(header::ACCEPT, "text/plain, text/*, */*")
        .header(header::CONNECTION, "close");
    let own_host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    request = request.header(header::HOST, own_host.map_or(authority, |(_, value)| value.as_str()));
    for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let code = response.status();
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut text = Vec::new();
    let mut incoming = response.into_body();
    while text.len() < MAX_OUTPUT
        && let Some(Ok(frame)) = incoming.frame().await
    {
        if let Some(data) = frame.data_ref() {
            text.extend_from_slice(data);
        }
    }
    connection.abort();
    text.truncate(MAX_OUTPUT);
    Ok((code, location, String::from_utf8_lossy(&text).into_owned()))
}

fn resolve(base: &Uri, location: &str) -> Result<Uri, String> {
    let text = if location.contains("://") {
        location.to_owned()
    } else {
        let authority = base.authority().map_or("", |authority| authority.as_str());
        format!("http://{authority}/{}", location.trim_start_matches('/'))
    };
    text.parse().map_err(|_| format!("failed to parse Location header {location:?}"))
}

fn dial_error(address: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        _ => format!("dial tcp {address}: {error}"),
    }
}

/// The output as it is stored: cut, and saying so.
pub(crate) fn capped_output(output: &str) -> String {
    if output.len() <= MAX_OUTPUT {
        return output.to_owned();
    }
    let cut = (0..=MAX_OUTPUT).rev().find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    format!("{} ... (captured {MAX_OUTPUT} of {} bytes)", &output[..cut], output.len())
}

/// Consul's defaults.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_OUTPUT: usize = 4096;
const MAX_REDIRECTS: usize = 10;
