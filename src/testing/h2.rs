//! Peers that speak HTTP/2: the h2 crate at both ends, with nothing between it and the test.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::soon;
use super::wire::Stream;

/// A response, read to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// `grpc-status`, in the trailers or in a head that is all there is.
    pub(crate) fn grpc(&self) -> Option<u16> {
        let fields = self.trailers.as_ref().unwrap_or(&self.headers);
        fields.get("grpc-status")?.to_str().ok()?.parse().ok()
    }
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct H2Client {
    pub(crate) sender: SendRequest<Bytes>,
    /// `https` or `http`.
    scheme: &'static str,
}

impl H2Client {
    /// By prior knowledge.
    pub(crate) async fn connect(addr: SocketAddr) -> H2Client {
        let tcp = soon("a connection", TcpStream::connect(addr)).await.expect("somebody listens");
        H2Client::over(Stream::Plain(tcp), "http", &mut h2::client::Builder::new()).await
    }

    pub(crate) async fn connect_tls(addr: SocketAddr, name: &str, config: Arc<rustls::ClientConfig>) -> H2Client {
        H2Client::connect_with(addr, name, config, &mut h2::client::Builder::new()).await
    }

    pub(crate) async fn connect_with(
        addr: SocketAddr,
        name: &str,
        config: Arc<rustls::ClientConfig>,
        builder: &mut h2::client::Builder,
    ) -> H2Client {
        let tcp = soon("a connection", TcpStream::connect(addr)).await.expect("somebody listens");
        let server = rustls::pki_types::ServerName::try_from(name.to_owned()).expect("a server name");
        let tls = soon("a TLS handshake", TlsConnector::from(config).connect(server, tcp)).await.expect("TLS");
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        H2Client::over(Stream::Tls(Box::new(tls.into())), "https", builder).await
    }

    pub(crate) async fn over(stream: Stream, scheme: &'static str, builder: &mut h2::client::Builder) -> H2Client {
        let (sender, connection) = soon("HTTP/2", builder.handshake(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        H2Client { sender, scheme }
    }

    pub(crate) fn request(&self, method: &str, authority: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}://{authority}{path}", self.scheme))
    }

    /// A gRPC call, to be sent.
    pub(crate) fn call(&self, authority: &str, path: &str) -> http::request::Builder {
        self.request("POST", authority, path).header("content-type", "application/grpc").header("te", "trailers")
    }

    pub(crate) async fn get(&self, authority: &str, path: &str) -> Answer {
        self.send(self.request("GET", authority, path), b"").await
    }

    /// Sends all of it and reads all of the answer.
    pub(crate) async fn send(&self, request: http::request::Builder, body: &[u8]) -> Answer {
        self.try_send(request, body).await.unwrap_or_else(|error| panic!("instead of an answer: {error}"))
    }

    pub(crate) async fn try_send(&self, request: http::request::Builder, body: &[u8]) -> Result<Answer, h2::Error> {
        let (answer, mut stream) = self.open(request, body.is_empty()).await?;
        if !body.is_empty() {
            let sent = body.to_vec().into();
            tokio::spawn(async move {
                let _ = send_data(&mut stream, sent, true).await;
            });
        }
        let response = soon("a response", answer).await?;
        collect(response).await
    }

    pub(crate) async fn open(
        &self,
        request: http::request::Builder,
        whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut sender = soon("room for a stream", self.sender.clone().ready()).await?;
        sender.send_request(request.body(()).expect("a valid request"), whole)
    }
}

/// Waits for room.
pub(crate) async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes, end: bool) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        let part = data.split_to(room?.min(data.len()));
        stream.send_data(part, false)?;
    }
    if end { stream.send_data(data, true) } else { Ok(()) }
}

/// The next data, room made for more; `None` at the end.
pub(crate) async fn next(stream: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let data = soon("data", stream.data()).await?;
    if let Ok(data) = &data {
        let _ = stream.flow_control().release_capacity(data.len());
    }
    Some(data)
}

pub(crate) async fn collect(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = next(&mut stream).await {
        body.extend_from_slice(&data?);
    }
    let trailers = soon("trailers", stream.trailers()).await?;
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, trailers })
}

/// A message as gRPC frames it.
pub(crate) fn message(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&[0], &u32::try_from(text.len()).expect("small").to_be_bytes()[..], text].concat()
}

/// One request at an origin.
pub(crate) struct Served {
    pub(crate) head: http::request::Parts,
    pub(crate) body: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
    /// Which connection, from 0.
    pub(crate) connection: usize,
}

impl Served {
    /// Reads everything.
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, h2::Error> {
        let mut all = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data?;
            let _ = self.body.flow_control().release_capacity(data.len());
            all.extend_from_slice(&data);
        }
        Ok(all)
    }

    pub(crate) fn head(&mut self, fields: &[(&str, &str)], end: bool) -> Option<SendStream<Bytes>> {
        let mut response = Response::builder().status(200);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        self.respond.send_response(response.body(()).expect("valid"), end).ok()
    }

    pub(crate) async fn reply(&mut self, fields: &[(&str, &str)], body: impl AsRef<[u8]>) {
        if let Some(mut stream) = self.head(fields, false) {
            let _ = send_data(&mut stream, Bytes::copy_from_slice(body.as_ref()), true).await;
        }
    }

    pub(crate) fn reset(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }
}

/// Trailers with a gRPC status.
pub(crate) fn status(code: u16, message: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", code.into());
    fields.insert("grpc-message", message.parse().expect("a value"));
    fields
}

/// A server.
pub(crate) struct H2Origin {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<http::request::Parts>>>,
    task: tokio::task::JoinHandle<()>,
}

impl H2Origin {
    /// Does the same with every request.
    pub(crate) async fn start<F>(serve: impl Fn(Served) -> F + Clone + Send + 'static) -> H2Origin
    where
        F: Future<Output = ()> + Send + 'static,
    {
        H2Origin::start_with(None, h2::server::Builder::new(), serve).await
    }

    pub(crate) async fn start_with<F>(
        tls: Option<Arc<rustls::ServerConfig>>,
        builder: h2::server::Builder,
        serve: impl Fn(Served) -> F + Clone + Send + 'static,
    ) -> H2Origin
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = {
            let (accepted, open, seen) = (accepted.clone(), open.clone(), seen.clone());
            tokio::spawn(async move {
                while let Ok((tcp, _)) = listener.accept().await {
                    let number = accepted.fetch_add(1, Ordering::SeqCst);
                    let (tls, builder, serve, open, seen) =
                        (tls.clone(), builder.clone(), serve.clone(), open.clone(), seen.clone());
                    tokio::spawn(async move {
                        let stream = match tls {
                            None => Stream::Plain(tcp),
                            Some(config) => match TlsAcceptor::from(config).accept(tcp).await {
                                Ok(tls) => Stream::Tls(Box::new(tls.into())),
                                Err(_) => return,
                            },
                        };
                        let Ok(mut connection) = builder.handshake(stream).await else { return };
                        open.fetch_add(1, Ordering::SeqCst);
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            let (head, body) = request.into_parts();
                            seen.lock().expect("no panic").push(head.clone());
                            tokio::spawn(serve(Served { head, body, respond, connection: number }));
                        }
                        open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        };
        H2Origin { addr, accepted, open, seen, task }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Connections now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<http::request::Parts> {
        self.seen.lock().expect("no panic").clone()
    }

    pub(crate) fn last(&self) -> http::request::Parts {
        self.seen().pop().expect("a request")
    }
}

impl Drop for H2Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}
