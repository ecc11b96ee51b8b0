//! What is to be written, gathered so that a message takes one system call.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::buffers;

/// Small pieces are copied together; a large one is sent from where it is, and then the outbox is full.
#[derive(Debug, Default)]
pub struct Outbox {
    first: Vec<u8>,
    /// Bytes of `first` that are gone.
    sent: usize,
    large: Bytes,
    /// Behind `large`.
    last: Vec<u8>,
    unflushed: bool,
    /// Bytes taken by the stream since the beginning.
    written: u64,
}

impl Outbox {
    /// Where small things are written to.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        if !self.large.is_empty() {
            return &mut self.last;
        }
        if self.first.capacity() == 0 {
            self.first = buffers::take_out();
        }
        &mut self.first
    }

    /// Only while there [is room](Self::has_room).
    pub(super) fn data(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.text().extend_from_slice(&data);
        } else {
            self.large = data;
        }
    }

    /// More may be put in before it is written.
    pub fn has_room(&self) -> bool {
        self.large.is_empty() && self.first.len() < GATHERED
    }

    /// Everything was written, and nothing is held back below.
    pub fn is_empty(&self) -> bool {
        self.sent == self.first.len() && self.large.is_empty() && self.last.is_empty() && !self.unflushed
    }

    /// Bytes taken by the stream so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ready when everything is written and flushed.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncWrite + Unpin)) -> Poll<io::Result<()>> {
        loop {
            let first = &self.first[self.sent..];
            let left = first.len() + self.large.len() + self.last.len();
            if left == 0 {
                break;
            }
            let written = if self.large.is_empty() && self.last.is_empty() {
                ready!(Pin::new(&mut *stream).poll_write(cx, first))?
            } else {
                let slices = [IoSlice::new(first), IoSlice::new(&self.large), IoSlice::new(&self.last)];
                ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            self.advance(written);
        }
        if self.unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        self.release();
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        self.written += written as u64;
        let first = written.min(self.first.len() - self.sent);
        self.sent += first;
        let large = (written - first).min(self.large.len());
        self.large.advance(large);
        self.last.drain(..written - first - large);
        if self.large.is_empty() {
            // Or the memory behind it is held for as long as this is.
            self.large = Bytes::new();
        }
    }

    fn release(&mut self) {
        self.sent = 0;
        self.last.clear();
        if self.first.capacity() > 0 {
            buffers::give_out(std::mem::take(&mut self.first));
        }
    }
}

/// Copying so much costs less than another piece in a system call.
const COPIED: usize = 4 * 1024;
/// Enough for one system call.
const GATHERED: usize = 16 * 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes `step` bytes at a time.
    struct Slow {
        step: usize,
        taken: Vec<u8>,
        calls: usize,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let n = bytes.len().min(self.step);
            self.taken.extend_from_slice(&bytes[..n]);
            self.calls += 1;
            Poll::Ready(Ok(n))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            let n = all.len().min(self.step);
            self.taken.extend_from_slice(&all[..n]);
            self.calls += 1;
            Poll::Ready(Ok(n))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_come_out_in_order_in_few_calls() {
        for size in [0, 10, COPIED, COPIED + 1, 100_000] {
            for step in [1, 700, 50_000, usize::MAX] {
                if size / 1000 > step {
                    continue;
                }
                let mut outbox = Outbox::default();
                outbox.text().extend_from_slice(b"head");
                let data: Vec<u8> = (0..size).map(|n| n as u8).collect();
                outbox.data(Bytes::from(data.clone()));
                outbox.text().extend_from_slice(b"tail");
                let mut slow = Slow { step, taken: Vec::new(), calls: 0 };
                let mut cx = Context::from_waker(Waker::noop());
                assert!(matches!(outbox.poll_write(&mut cx, &mut slow), Poll::Ready(Ok(()))));
                assert!(slow.taken == [b"head", data.as_slice(), b"tail"].concat(), "{size} {step}");
                assert!(outbox.is_empty() && outbox.written() == slow.taken.len() as u64);
                if step == usize::MAX {
                    assert_eq!(slow.calls, 1, "{size}");
                }
            }
        }
    }
}
