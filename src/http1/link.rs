//! A connection with what was read from it and not used yet.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{Decoder, Flaw, Outbox, Step, buffers};
use crate::net::Stream;

/// See the module.
pub struct Link {
    stream: Stream,
    read: BytesMut,
    /// Reads fill their buffer: a larger one saves system calls.
    bulk: bool,
    ended: bool,
}

impl Link {
    pub fn new(stream: Stream) -> Self {
        Self { stream, read: BytesMut::new(), bulk: false, ended: false }
    }

    /// What was read and not used yet.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.read
    }

    pub fn buffered(&self) -> usize {
        self.read.len()
    }

    /// The other side has closed its sending side.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Reads what is there, behind what was read before. 0 is the end.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        // Most polls find nothing, and need no buffer for that.
        if self.read.is_empty()
            && let Some(tcp) = self.stream.bare()
            && tcp.poll_read_ready(cx).is_pending()
        {
            self.release();
            return Poll::Pending;
        }
        let room = if self.bulk { buffers::LARGE } else { buffers::SMALL };
        if self.read.capacity() == 0 {
            self.read = buffers::take(self.bulk);
        }
        let spare = self.read.capacity() - self.read.len();
        if spare < room / 4 {
            self.read.reserve(room - self.read.len().min(room / 2));
        }
        let spare = self.read.capacity() - self.read.len();
        let polled = pin!(self.stream.read_buf(&mut self.read)).poll(cx);
        match polled {
            Poll::Pending => {
                self.release();
                Poll::Pending
            }
            Poll::Ready(Ok(length)) => {
                self.ended = length == 0;
                self.bulk = length == spare || (self.bulk && length >= buffers::SMALL);
                Poll::Ready(Ok(length))
            }
            // Many TLS peers close without saying so first. Where a body ends is told by its framing.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.ended = true;
                Poll::Ready(Ok(0))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }

    /// What comes next of a body. Never [`Step::Wait`].
    pub fn poll_body(&mut self, cx: &mut Context<'_>, decoder: &mut Decoder) -> Poll<Result<Step, BodyError>> {
        loop {
            match decoder.step(&mut self.read) {
                Ok(Step::Wait) => {}
                Ok(step) => return Poll::Ready(Ok(step)),
                Err(flaw) => return Poll::Ready(Err(BodyError::Flaw(flaw))),
            }
            if ready!(self.poll_fill(cx)).map_err(BodyError::Io)? == 0 {
                let over = decoder.close();
                return Poll::Ready(if over { Ok(Step::End) } else { Err(BodyError::Cut) });
            }
        }
    }

    pub fn poll_write(&mut self, cx: &mut Context<'_>, outbox: &mut Outbox) -> Poll<io::Result<()>> {
        outbox.poll_write(cx, &mut self.stream)
    }

    /// The connection itself, if bytes come in bulk and none of them was read and not used yet.
    pub fn bulk_source(&self) -> Option<&TcpStream> {
        if self.bulk && !self.ended && self.read.is_empty() { self.stream.bare() } else { None }
    }

    /// So many bytes were taken from the [source](Self::bulk_source).
    pub fn passed(&mut self, length: usize) {
        self.bulk = length >= buffers::SMALL;
    }

    /// The connection itself, if what is written to it goes out as it is.
    pub fn bare_sink(&self) -> Option<&TcpStream> {
        self.stream.bare_sink()
    }

    /// Tells the other side that nothing more is coming.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.stream), cx)
    }

    /// What is dropped from now on ends with a reset instead of an end.
    pub fn reset(&self) {
        let _ = self.stream.tcp().map(TcpStream::set_zero_linger);
    }

    /// Gives the buffer back if there is nothing in it.
    pub fn release(&mut self) {
        if self.read.is_empty() && self.read.capacity() > 0 {
            self.read = buffers::give(std::mem::take(&mut self.read)).unwrap_or_default();
        }
    }

    /// Forgets what was read.
    pub fn discard(&mut self) {
        self.read.clear();
    }

    /// The connection, and what was read from it.
    pub fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.read.freeze())
    }
}

/// Why a body is not whole.
#[derive(Debug)]
pub enum BodyError {
    Flaw(Flaw),
    Io(io::Error),
    /// The connection ended before the body.
    Cut,
    /// Nothing came for too long.
    TimedOut,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::Flaw(flaw) => flaw.fmt(f),
            BodyError::Io(error) => error.fmt(f),
            BodyError::Cut => f.write_str("the connection ended before the body"),
            BodyError::TimedOut => f.write_str("nothing more came in time"),
        }
    }
}

impl std::error::Error for BodyError {}
