//! The byte streams that connections run on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::Rewind;

/// A connection, plain or with TLS. One type for all of them keeps the HTTP code from being compiled several times.
pub enum Stream {
    Plain(TcpStream),
    /// Plain, after some of its bytes were looked at.
    Rewound(Rewind<TcpStream>),
    /// TLS terminated here.
    Server(Box<tokio_rustls::server::TlsStream<Rewind<TcpStream>>>),
    /// TLS to a target.
    Client(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// To a target on this machine.
    Unix(UnixStream),
}

impl Stream {
    /// The connection under it, if it is one of TCP.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(io) => Some(io),
            Stream::Rewound(io) => Some(io.get_ref()),
            Stream::Server(io) => Some(io.get_ref().0.get_ref()),
            Stream::Client(io) => Some(io.get_ref().0),
            Stream::Unix(_) => None,
        }
    }

    /// HTTP/2 was agreed on in a TLS handshake.
    pub fn is_h2(&self) -> bool {
        self.alpn() == Some(b"h2")
    }

    /// What was agreed on in a TLS handshake, if anything was.
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Stream::Server(io) => io.get_ref().1.alpn_protocol(),
            Stream::Client(io) => io.get_ref().1.alpn_protocol(),
            Stream::Plain(_) | Stream::Rewound(_) | Stream::Unix(_) => None,
        }
    }

    /// The connection itself, if its bytes are the bytes of the stream: no TLS, and nothing to give back first.
    pub fn bare(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(io) => Some(io),
            Stream::Rewound(io) if io.is_spent() => Some(io.get_ref()),
            _ => None,
        }
    }

    /// The connection itself, if what is written to it goes out as it is.
    pub fn bare_sink(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(_) | Stream::Rewound(_) => self.tcp(),
            Stream::Server(_) | Stream::Client(_) | Stream::Unix(_) => None,
        }
    }
}

macro_rules! each {
    ($self:ident, $io:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain($io) => $call,
            Stream::Rewound($io) => $call,
            Stream::Server($io) => $call,
            Stream::Client($io) => $call,
            Stream::Unix($io) => $call,
        }
    };
}

impl AsyncRead for Stream {
    /// Reading may owe the peer a warning: that a TLS 1.2 renegotiation is refused (RFC 5246, section 7.2.2). It goes out here,
    /// since nothing else may be written for a long time.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        macro_rules! with_answer {
            ($io:ident) => {{
                let read = Pin::new(&mut *$io).poll_read(cx, buf);
                if read.is_pending() && $io.get_ref().1.wants_write() {
                    // What is wrong with the connection shows at its next read or write.
                    let _ = Pin::new($io).poll_flush(cx);
                }
                read
            }};
        }
        match self.get_mut() {
            Stream::Server(io) => with_answer!(io),
            Stream::Client(io) => with_answer!(io),
            Stream::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Stream::Rewound(io) => Pin::new(io).poll_read(cx, buf),
            Stream::Unix(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(io) => io.is_write_vectored(),
            Stream::Rewound(io) => io.is_write_vectored(),
            Stream::Server(io) => io.is_write_vectored(),
            Stream::Client(io) => io.is_write_vectored(),
            Stream::Unix(io) => io.is_write_vectored(),
        }
    }
}
