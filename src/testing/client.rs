//! A client that sends what it is told, byte for byte, and reads answers without repairing them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use super::soon;
use super::wire::{Body, Head, Stream, Wire};

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Body,
    /// 1xx responses that came before.
    pub(crate) interim: Vec<Head>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.bytes).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.one(name)
    }
}

/// One connection. Every method panics when the peer lets it wait too long or breaks the protocol.
pub(crate) struct Client {
    pub(crate) wire: Wire,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Client {
        let tcp = soon(&format!("a connection to {addr}"), TcpStream::connect(addr)).await;
        Client { wire: Wire::new(Stream::Plain(tcp.unwrap_or_else(|e| panic!("connect to {addr}: {e}")))) }
    }

    /// From another loopback address, for rules about the client's address.
    pub(crate) async fn connect_from(source: &str, addr: SocketAddr) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(source.parse().expect("an address"), 0)).expect("a loopback address");
        let tcp = soon(&format!("a connection to {addr}"), socket.connect(addr)).await;
        Client { wire: Wire::new(Stream::Plain(tcp.unwrap_or_else(|e| panic!("connect to {addr}: {e}")))) }
    }

    pub(crate) async fn connect_tls(addr: SocketAddr, name: &str, config: Arc<rustls::ClientConfig>) -> Client {
        Client::connect(addr).await.into_tls(name, config).await
    }

    /// Starts TLS on a connection that has sent something in plain before, a PROXY header for example.
    pub(crate) async fn into_tls(self, name: &str, config: Arc<rustls::ClientConfig>) -> Client {
        self.try_tls(name, config).await.unwrap_or_else(|e| panic!("TLS handshake with {name}: {e}"))
    }

    pub(crate) async fn try_tls(self, name: &str, config: Arc<rustls::ClientConfig>) -> std::io::Result<Client> {
        let Stream::Plain(tcp) = self.wire.stream else { panic!("TLS in TLS") };
        let server = rustls::pki_types::ServerName::try_from(name.to_owned()).expect("a server name");
        let tls = soon("a TLS handshake", TlsConnector::from(config).connect(server, tcp)).await?;
        Ok(Client { wire: Wire::new(Stream::Tls(Box::new(tls.into()))) })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.wire.local_addr()
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon("sending", self.wire.send(bytes.as_ref())).await.expect("the peer takes what we send");
    }

    /// As `send`, for a peer that may have closed already.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        soon("sending", self.wire.send(bytes.as_ref())).await
    }

    /// Sends one byte per segment, as far as the kernel lets us say so.
    pub(crate) async fn send_slowly(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            self.send([*byte]).await;
            tokio::task::yield_now().await;
        }
    }

    /// GET with nothing but Host.
    pub(crate) async fn get(&mut self, host: &str, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        self.response().await
    }

    pub(crate) async fn response(&mut self) -> Response {
        self.response_to("GET").await
    }

    /// `method` decides whether there is a body.
    pub(crate) async fn response_to(&mut self, method: &str) -> Response {
        let (head, interim) = self.final_head().await;
        let status = status(&head);
        let bodiless = method == "HEAD" || status == 204 || status == 304 || (method == "CONNECT" && status == 200);
        let body = if bodiless || status == 101 {
            Body::default()
        } else {
            soon("a response body", self.wire.body(&head, true)).await.unwrap_or_else(|e| panic!("body: {e}, {head:?}"))
        };
        Response { status, head, body, interim }
    }

    /// The head of the final response, for tests that look at the body piece by piece; and the 1xx ones before it.
    pub(crate) async fn final_head(&mut self) -> (Head, Vec<Head>) {
        let mut interim = Vec::new();
        loop {
            let head = self.head().await;
            if !(100..200).contains(&status(&head)) || status(&head) == 101 {
                return (head, interim);
            }
            interim.push(head);
        }
    }

    /// The next head, a 1xx one too.
    pub(crate) async fn head(&mut self) -> Head {
        match soon("a response head", self.wire.head()).await {
            Ok(Some(head)) => head,
            Ok(None) => panic!("the connection was closed instead of an answer"),
            Err(e) => panic!("instead of an answer: {e}"),
        }
    }

    /// The next chunk of a chunked body; `None` is the last one, trailers read.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let chunk = soon("a chunk", self.wire.chunk()).await.expect("a chunk");
        if chunk.is_none() {
            soon("trailers", self.wire.trailers()).await.expect("trailers");
        }
        chunk
    }

    pub(crate) async fn exact(&mut self, n: usize) -> Vec<u8> {
        soon(&format!("{n} bytes"), self.wire.exact(n)).await.expect("so many bytes")
    }

    /// Everything until the peer closes; a reset counts as closing.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        match soon("the end of the stream", self.wire.rest()).await {
            Ok(bytes) => bytes,
            Err(_) => self.wire.take_buffer(),
        }
    }

    /// Panics unless the peer closes without another byte.
    pub(crate) async fn closed(&mut self) {
        let rest = self.rest().await;
        assert!(rest.is_empty(), "expected a close, got {:?}", String::from_utf8_lossy(&rest));
    }

    /// Closes our sending side only.
    pub(crate) async fn finish(&mut self) {
        soon("closing one side", self.wire.stream.shutdown()).await.expect("an open connection");
    }

    /// Drops the connection with a RST.
    pub(crate) fn reset(self) {
        self.wire.stream.reset_on_drop();
    }
}

/// One GET on a connection of its own.
pub(crate) async fn get(addr: SocketAddr, host: &str, target: &str) -> Response {
    Client::connect(addr).await.get(host, target).await
}

/// One request with a body of known length, on a connection of its own.
pub(crate) async fn request(addr: SocketAddr, method: &str, host: &str, target: &str, body: &str) -> Response {
    let mut client = Client::connect(addr).await;
    let length = body.len();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}")).await;
    client.response_to(method).await
}

fn status(head: &Head) -> u16 {
    head.word(1).parse().unwrap_or_else(|_| panic!("no status in {:?}", head.line))
}
