//! A stream that may not pause for ever.
//!
//! What a pause means depends on what is being waited for, so whoever speaks the protocol sets the limits on the [`Clock`]
//! and the stream only keeps them. A clock without limits costs one comparison per call.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a connection is waiting for, shared between its stream and its protocol.
#[derive(Debug, Default)]
pub struct Clock {
    wait: Cell<Wait>,
    /// Writes fail from then on.
    write_until: Cell<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Wait {
    /// Reads may take any time.
    #[default]
    Unlimited,
    /// The next byte must come in time; then a whole head must follow within the second duration.
    First(Duration, Duration),
    /// Until this moment, whatever arrives.
    Until(Instant),
    /// Each read on its own.
    Each(Duration),
}

impl Clock {
    /// Between requests: `idle` until the next byte, then `head` for the rest of the head. 0 is no limit.
    pub fn idle(&self, idle: Duration, head: Duration) {
        self.wait.set(if idle.is_zero() && head.is_zero() { Wait::Unlimited } else { Wait::First(idle, head) });
    }

    /// Each pause of a body. 0 is no limit.
    pub fn each(&self, pause: Duration) {
        self.wait.set(if pause.is_zero() { Wait::Unlimited } else { Wait::Each(pause) });
    }

    pub fn unlimited(&self) {
        self.wait.set(Wait::Unlimited);
    }

    /// Everything must be written by then; `None` is no limit.
    pub fn write_until(&self, deadline: Option<Instant>) {
        self.write_until.set(deadline);
    }
}

/// See the module.
pub struct Timed<S> {
    stream: S,
    clock: Rc<Clock>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// What `sleep` was armed for.
    armed: Wait,
    write_sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub fn new(stream: S, clock: Rc<Clock>) -> Self {
        Self { stream, clock, sleep: None, armed: Wait::Unlimited, write_sleep: None }
    }

    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Ready when the time is up.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.clock.wait.get();
        let deadline = match wait {
            Wait::Unlimited => return Poll::Pending,
            Wait::First(idle, _) if idle.is_zero() => return Poll::Pending,
            Wait::First(limit, _) | Wait::Each(limit) => {
                (self.armed != wait || self.sleep.is_none()).then(|| Instant::now() + limit)
            }
            Wait::Until(at) => (self.armed != wait || self.sleep.is_none()).then_some(at),
        };
        if let Some(deadline) = deadline {
            self.armed = wait;
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                none => *none = Some(Box::pin(tokio::time::sleep_until(deadline))),
            }
        }
        self.sleep.as_mut().map_or(Poll::Pending, |sleep| sleep.as_mut().poll(cx))
    }

    /// A write that cannot go on: it fails when its time is up.
    fn poll_write_limit<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Some(deadline) = self.clock.write_until.get() else { return Poll::Pending };
        let sleep = self.write_sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Bytes have come: the pause is over, a head has begun.
    fn progressed(&mut self) {
        match self.clock.wait.get() {
            Wait::First(_, head) => {
                self.clock.wait.set(if head.is_zero() { Wait::Unlimited } else { Wait::Until(Instant::now() + head) })
            }
            Wait::Each(_) => self.armed = Wait::Unlimited,
            Wait::Unlimited | Wait::Until(_) => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => match this.poll_limit(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
            ready => {
                if buf.filled().len() > before {
                    this.progressed();
                }
                ready
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write(cx, buf) {
            Poll::Pending => this.poll_write_limit(cx),
            ready => ready,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Pending => this.poll_write_limit(cx),
            ready => ready,
        }
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
        match Pin::new(&mut this.stream).poll_write_vectored(cx, bufs) {
            Poll::Pending => this.poll_write_limit(cx),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_and_a_begun_head_has_its_own_limit() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Rc::new(Clock::default());
        clock.idle(5 * SECOND, SECOND);
        let mut timed = Timed::new(near, clock.clone());
        let begun = Instant::now();
        far.write_all(b"x").await.expect("open");
        let mut one = [0; 1];
        timed.read_exact(&mut one).await.expect("a byte");
        assert_eq!(timed.read_exact(&mut one).await.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn dripping_does_not_extend_the_time_for_a_head() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Rc::new(Clock::default());
        clock.idle(Duration::ZERO, SECOND);
        let mut timed = Timed::new(near, clock);
        let begun = Instant::now();
        let drip = async {
            loop {
                if far.write_all(b"x").await.is_err() {
                    break;
                }
                tokio::time::sleep(SECOND / 4).await;
            }
        };
        let read = async {
            let mut one = [0; 1];
            while timed.read_exact(&mut one).await.is_ok() {}
        };
        tokio::select! { () = drip => {}, () = read => {} }
        assert_eq!(begun.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_reading_is_given_up() {
        let (_far, near) = tokio::io::duplex(64);
        let clock = Rc::new(Clock::default());
        let begun = Instant::now();
        clock.write_until(Some(begun + SECOND));
        let mut timed = Timed::new(near, clock);
        assert_eq!(timed.write_all(&[0; 100]).await.expect_err("full").kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_long_as_long_as_it_moves() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Rc::new(Clock::default());
        clock.each(SECOND);
        let mut timed = Timed::new(near, clock);
        let mut one = [0; 1];
        for _ in 0..10 {
            tokio::time::sleep(SECOND * 9 / 10).await;
            far.write_all(b"x").await.expect("open");
            timed.read_exact(&mut one).await.expect("a byte");
        }
        let begun = Instant::now();
        assert_eq!(timed.read_exact(&mut one).await.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), SECOND);
    }
}
