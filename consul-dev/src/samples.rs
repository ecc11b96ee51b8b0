//! Small origin servers for the sample services, so that there is something to route to.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::definition::Definition;

/// Running sample origins; they end when this is dropped.
#[derive(Debug)]
pub struct Samples {
    addrs: Vec<SocketAddr>,
    _servers: JoinSet<()>,
}

impl Samples {
    /// Where the origins listen, in the order of the definitions.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }
}

/// Serve every service of `definitions` at the address and port that it names. Where the port is taken, a free one is used
/// instead and written into the definition. A service called `echo` answers with what it was asked, as JSON; any other
/// with a page that says which instance it is. All answer `/health`.
///
/// # Errors
/// If not even a free port can be bound.
pub async fn serve_samples(definitions: &mut [Definition]) -> io::Result<Samples> {
    let mut servers = JoinSet::new();
    let mut addrs = Vec::new();
    for definition in definitions {
        let address = definition.address();
        let listener = match TcpListener::bind((address.as_str(), definition.port())).await {
            Ok(listener) => listener,
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => TcpListener::bind((address.as_str(), 0)).await?,
            Err(e) => return Err(e),
        };
        let addr = listener.local_addr()?;
        if addr.port() != definition.port() {
            definition.set_port(addr.port());
        }
        addrs.push(addr);
        let sample = Sample { id: definition.id(), name: definition.name(), addr };
        servers.spawn(serve(listener, Arc::new(sample)));
    }
    Ok(Samples { addrs, _servers: servers })
}

#[derive(Debug)]
struct Sample {
    id: String,
    name: String,
    addr: SocketAddr,
}

async fn serve(listener: TcpListener, sample: Arc<Sample>) {
    let mut connections = JoinSet::new();
    loop {
        // Many more than a demonstration needs; the oldest must end before another is taken.
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let sample = Arc::clone(&sample);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&sample), request));
            // A client that goes away is its own affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .title_case_headers(true)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(sample: Arc<Sample>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (content_type, text) = match request.uri().path() {
        "/health" => ("text/plain; charset=utf-8", "OK\n".to_owned()),
        _ if sample.name == "echo" => ("application/json", echo(&sample, request).await),
        _ => ("text/html; charset=utf-8", sample.page(request.uri().path())),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    if let Ok(id) = header::HeaderValue::from_str(&sample.id) {
        headers.insert("x-instance", id);
    }
    Ok(response)
}

async fn echo(sample: &Sample, request: Request<Incoming>) -> String {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => json!(String::from_utf8_lossy(&body.to_bytes())),
        Err(_) => Value::Null,
    };
    let value = json!({
        "instance": sample.id,
        "method": parts.method.as_str(),
        "target": parts.uri.to_string(),
        "headers": headers_json(&parts.headers),
        "body": body,
    });
    format!("{value:#}\n")
}

fn headers_json(headers: &HeaderMap) -> Map<String, Value> {
    let mut members: Map<String, Value> = Map::new();
    for (name, value) in headers {
        let text = String::from_utf8_lossy(value.as_bytes());
        match members.get_mut(name.as_str()) {
            Some(Value::String(known)) => *known = format!("{known}, {text}"),
            _ => drop(members.insert(name.to_string(), json!(text))),
        }
    }
    members
}

impl Sample {
    fn page(&self, path: &str) -> String {
        let escaped = path.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title></head>\n<body>\n\
             <h1>Hello from {id}</h1>\n<p>Service <b>{name}</b> at {addr} answers for <code>{escaped}</code>.</p>\n\
             </body>\n</html>\n",
            name = self.name,
            id = self.id,
            addr = self.addr,
        )
    }
}

const MAX_CONNECTIONS: usize = 1024;
const MAX_BODY: usize = 1024 * 1024;
