//! HTTP/1.1 messages as they stand on the wire: names in their case, fields in their order, nothing repaired.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// First line and fields of a request or a response, or the trailers of a message (without a first line).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str, first_line: bool) -> Head {
        let mut lines = text.split("\r\n").filter(|l| !l.is_empty());
        let line = if first_line { lines.next().unwrap_or_default().to_owned() } else { String::new() };
        let fields = lines.map(|l| l.split_once(':').unwrap_or((l, "")));
        Head { line, fields: fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect() }
    }

    /// Every value of a field, name compared without case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The value of a field that must not be there twice.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} {} times: {all:?}", all.len());
        all.first().copied()
    }

    /// Word `n` of the first line: method, target, version; or version, status.
    pub(crate) fn word(&self, n: usize) -> &str {
        self.line.split(' ').nth(n).unwrap_or_default()
    }
}

/// How the end of a body was marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    #[default]
    None,
    Length,
    Chunked,
    UntilClose,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) trailers: Head,
    pub(crate) framing: Framing,
}

/// A stream in plain or in TLS, on which one can still do to the socket what TLS knows nothing of.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Makes the kernel send RST instead of FIN when the stream is dropped.
    pub(crate) fn reset_on_drop(&self) {
        socket2::SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO)).expect("SO_LINGER on an open socket");
    }
}

/// One side of a connection, with what has been read and not been looked at.
pub(crate) struct Wire {
    pub(crate) stream: Stream,
    pub(crate) buffer: BytesMut,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Wire {
        let _ = stream.tcp().set_nodelay(true);
        Wire { stream, buffer: BytesMut::with_capacity(16 * 1024) }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stream.tcp().local_addr().expect("a connected socket has an address")
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads more into the buffer; `false` at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(16 * 1024);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// Everything up to `mark` and the mark itself. `None`: the stream ended before the first byte.
    async fn through(&mut self, mark: &[u8]) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|w| w == mark) {
                let bytes = self.buffer.split_to(at + mark.len());
                return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
            }
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(cut(&self.buffer)) };
            }
        }
    }

    /// The next request or status line with its fields. `None`: the stream ended before the first byte.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        Ok(self.through(b"\r\n\r\n").await?.map(|text| Head::parse(&text, true)))
    }

    pub(crate) async fn exact(&mut self, n: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < n {
            if !self.fill().await? {
                return Err(cut(&self.buffer));
            }
        }
        Ok(self.buffer.split_to(n).to_vec())
    }

    /// The next chunk; `None` for the last one, whose trailers are still to be read with [`Wire::trailers`].
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.through(b"\r\n").await?.ok_or_else(|| cut(b""))?;
        let size = line.trim().split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("chunk size {line:?}")))?;
        if size == 0 {
            return Ok(None);
        }
        let bytes = self.exact(size).await?;
        match &self.exact(2).await?[..] {
            b"\r\n" => Ok(Some(bytes)),
            other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{other:?} after a chunk"))),
        }
    }

    pub(crate) async fn trailers(&mut self) -> io::Result<Head> {
        let mut text = String::new();
        loop {
            let line = self.through(b"\r\n").await?.ok_or_else(|| cut(b""))?;
            if line == "\r\n" {
                return Ok(Head::parse(&text, false));
            }
            text.push_str(&line);
        }
    }

    /// Everything up to the end of the stream. A reset after some bytes is an error, too.
    pub(crate) async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill().await? {}
        Ok(self.buffer.split().to_vec())
    }

    /// The body that `head` announces. For a response, `until_close` says that one without a length has a body.
    pub(crate) async fn body(&mut self, head: &Head, until_close: bool) -> io::Result<Body> {
        if head.all("transfer-encoding").iter().any(|v| v.to_ascii_lowercase().contains("chunked")) {
            let mut bytes = Vec::new();
            while let Some(chunk) = self.chunk().await? {
                bytes.extend(chunk);
            }
            return Ok(Body { bytes, trailers: self.trailers().await?, framing: Framing::Chunked });
        }
        if let Some(length) = head.one("content-length") {
            let length = length.parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            return Ok(Body { bytes: self.exact(length).await?, framing: Framing::Length, ..Body::default() });
        }
        if until_close {
            return Ok(Body { bytes: self.rest().await?, framing: Framing::UntilClose, ..Body::default() });
        }
        Ok(Body::default())
    }

    /// Bytes that were read and not looked at.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        let bytes = self.buffer.to_vec();
        self.buffer.advance(bytes.len());
        bytes
    }
}

fn cut(read: &[u8]) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the stream ended after {:?}", String::from_utf8_lossy(read)))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Stream::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_write(cx, buf),
            Stream::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_flush(cx),
            Stream::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
