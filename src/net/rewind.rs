//! A stream that first gives back bytes which somebody had to read to know what the stream is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads `read` first and then the stream itself; writes go to the stream as they are.
#[derive(Debug)]
pub struct Rewind<T> {
    read: Bytes,
    stream: T,
}

impl<T> Rewind<T> {
    pub fn new(read: Bytes, stream: T) -> Self {
        Self { read, stream }
    }

    /// Bytes that were not read again yet, and the stream.
    pub fn into_parts(self) -> (Bytes, T) {
        (self.read, self.stream)
    }

    /// Everything was given back.
    pub fn is_spent(&self) -> bool {
        self.read.is_empty()
    }

    pub fn get_ref(&self) -> &T {
        &self.stream
    }

    pub fn get_mut(&mut self) -> &mut T {
        &mut self.stream
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewind<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let n = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..n]);
        self.read.advance(n);
        if self.read.is_empty() {
            // The allocation can be larger than what was left of it, and the stream can live for days.
            self.read = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewind<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn gives_back_first_and_then_the_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut rewind = Rewind::new(Bytes::from_static(b"head "), stream);

        let mut two = [0; 2];
        rewind.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"he");
        peer.write_all(b"body").await.unwrap();
        peer.shutdown().await.unwrap();
        let mut rest = String::new();
        rewind.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "ad body");

        assert!(rewind.is_write_vectored(), "or hyper copies every response into one buffer");
        let n = rewind.write_vectored(&[IoSlice::new(b"an"), IoSlice::new(b"swer")]).await.unwrap();
        assert_eq!(n, 6);
        drop(rewind);
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
    }

    #[tokio::test]
    async fn parts_hold_what_was_not_read_again() {
        let mut rewind = Rewind::new(Bytes::from_static(b"abc"), &b"def"[..]);
        let mut one = [0; 1];
        rewind.read_exact(&mut one).await.unwrap();
        let (left, stream) = rewind.into_parts();
        assert_eq!((&left[..], stream), (&b"bc"[..], &b"def"[..]));
    }
}
