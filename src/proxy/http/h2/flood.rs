//! Frames that cost work and carry nothing: a client may send some of them, not any number.
//!
//! h2 itself bounds what is kept in memory and the streams that are reset. It answers every PING and SETTINGS, though, and
//! takes every empty frame, for as long as they come. Here the heads of frames are counted on their way to it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::net::Stream;

/// Refilled as time goes by, and by frames that carry something.
pub(super) struct Budget {
    left: Cell<f64>,
    filled: Cell<Instant>,
    spent: Cell<bool>,
    exceeded: Notify,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: Cell::new(BURST),
            filled: Cell::new(Instant::now()),
            spent: Cell::new(false),
            exceeded: Notify::new(),
        }
    }
}

impl Budget {
    /// Ends when the client has sent too many.
    pub(super) async fn exceeded(&self) {
        if !self.spent.get() {
            self.exceeded.notified().await;
        }
    }

    /// False: nothing more is read.
    fn frame(&self, kind: u8, length: u32, ended: bool) -> bool {
        let change = match kind {
            DATA if length == 0 && !ended => -1.0,
            DATA => f64::from(length) / BYTES_PER_FRAME,
            // Less than what ends it: a request that is reset is one of them, too.
            HEADERS => 0.25,
            // What was sent allows for these, too.
            WINDOW_UPDATE => -0.1,
            CONTINUATION if length > 0 => -0.1,
            _ => -1.0,
        };
        let mut left = self.left.get() + change;
        if left < 0.0 {
            // Looked at only when it matters.
            let now = Instant::now();
            left += now.duration_since(self.filled.replace(now)).as_secs_f64() * PER_SECOND;
        }
        self.left.set(left.min(BURST));
        if left >= 0.0 {
            return true;
        }
        self.spent.set(true);
        self.exceeded.notify_one();
        false
    }
}

impl Budget {
    /// The client gets so many bytes, and acknowledges them as it likes.
    fn sent(&self, bytes: usize) {
        self.left.set((self.left.get() + bytes as f64 / BYTES_PER_FRAME).min(BURST));
    }
}

/// A stream whose frames are counted.
pub(super) struct Counted {
    stream: Stream,
    budget: Rc<Budget>,
    place: Place,
}

/// Where in the bytes of the client we are.
struct Place {
    /// Bytes to pass over.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
}

impl Place {
    /// False once a frame was too many.
    fn pass(&mut self, mut bytes: &[u8], budget: &Budget) -> bool {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let n = self.skip.min(bytes.len());
                self.skip -= n;
                bytes = &bytes[n..];
                continue;
            }
            let n = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == HEAD {
                self.filled = 0;
                let [a, b, c, kind, flags, ..] = self.head;
                let length = u32::from_be_bytes([0, a, b, c]);
                self.skip = length as usize;
                if !budget.frame(kind, length, flags & END_STREAM != 0) {
                    return false;
                }
            }
        }
        true
    }
}

impl Counted {
    pub(super) fn new(stream: Stream, budget: Rc<Budget>) -> Self {
        Self { stream, budget, place: Place { skip: PREFACE, head: [0; HEAD], filled: 0 } }
    }
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.budget.spent.get() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if !this.place.pass(&buf.filled()[before..], &this.budget) {
            // Whoever serves the connection says goodbye.
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, buf))?;
        this.budget.sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs))?;
        this.budget.sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Frames that carry nothing, at once. gRPC clients ping with each answer that they measure.
const BURST: f64 = 2000.0;
const PER_SECOND: f64 = 100.0;
/// So much data allows for one of them.
const BYTES_PER_FRAME: f64 = 256.0;
const PREFACE: usize = 24;
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn taken(frames: &[Vec<u8>], piece: usize) -> bool {
        let budget = Budget::default();
        let mut place = Place { skip: 0, head: [0; HEAD], filled: 0 };
        frames.concat().chunks(piece).all(|bytes| place.pass(bytes, &budget))
    }

    #[test]
    fn some_are_taken_and_a_flood_is_not() {
        const PING: u8 = 6;
        const SETTINGS: u8 = 4;
        const RST_STREAM: u8 = 3;
        for (name, one, times, want) in [
            ("pings", frame(PING, 0, &[0; 8]), 1000, true),
            ("a flood of pings", frame(PING, 0, &[0; 8]), 10_000, false),
            ("a flood of settings", frame(SETTINGS, 0, &[]), 10_000, false),
            ("a flood of resets", frame(RST_STREAM, 0, &[0; 4]), 10_000, false),
            ("a flood of nothing", frame(DATA, 0, &[]), 10_000, false),
            ("a flood of unknown frames", frame(200, 0, &[0; 100]), 10_000, false),
            ("requests", frame(HEADERS, 5, &[0; 30]), 100_000, true),
            ("data", frame(DATA, 0, &[0; 1000]), 20_000, true),
            ("a download", frame(WINDOW_UPDATE, 0, &[0; 4]), 15_000, true),
        ] {
            for piece in [1, 7, 4096] {
                assert_eq!(taken(&vec![one.clone(); times], piece), want, "{name}");
            }
        }
        let upload: Vec<_> = (0..10_000)
            .flat_map(|_| [frame(DATA, 0, &[0; 600]), frame(PING, 0, &[0; 8]), frame(WINDOW_UPDATE, 0, &[0; 4])])
            .collect();
        assert!(taken(&upload, 1000));
    }
}
