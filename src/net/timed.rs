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
    /// Counts what was waited for, so that two waits of the same length have a time each.
    turn: Cell<u64>,
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
        self.set(if idle.is_zero() && head.is_zero() { Wait::Unlimited } else { Wait::First(idle, head) });
    }

    /// Each pause of a body. 0 is no limit.
    pub fn each(&self, pause: Duration) {
        self.set(if pause.is_zero() { Wait::Unlimited } else { Wait::Each(pause) });
    }

    pub fn unlimited(&self) {
        self.set(Wait::Unlimited);
    }

    fn set(&self, wait: Wait) {
        self.wait.set(wait);
        self.turn.set(self.turn.get() + 1);
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
    /// The turn of the clock that `sleep` was armed for.
    armed: Option<u64>,
    /// A write could not go on: the other side is still taking what was sent before.
    writing: bool,
    write_sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub fn new(stream: S, clock: Rc<Clock>) -> Self {
        Self { stream, clock, sleep: None, armed: None, writing: false, write_sleep: None }
    }

    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Ready when the time is up.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.clock.wait.get();
        loop {
            let turn = Some(self.clock.turn.get());
            if self.armed != turn || self.sleep.is_none() {
                let deadline = match wait {
                    Wait::Unlimited => return Poll::Pending,
                    Wait::First(idle, _) if idle.is_zero() => return Poll::Pending,
                    Wait::First(limit, _) | Wait::Each(limit) => Instant::now() + limit,
                    Wait::Until(at) => at,
                };
                self.armed = turn;
                match &mut self.sleep {
                    Some(sleep) => sleep.as_mut().reset(deadline),
                    none => *none = Some(Box::pin(tokio::time::sleep_until(deadline))),
                }
            }
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if !(self.writing && matches!(wait, Wait::First(..))) {
                return Poll::Ready(());
            }
            // Not idle: the end of the last response is still on its way.
            self.armed = None;
        }
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
                self.clock.set(if head.is_zero() { Wait::Unlimited } else { Wait::Until(Instant::now() + head) });
            }
            Wait::Each(_) => self.armed = None,
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
            Poll::Pending => {
                this.writing = true;
                this.poll_write_limit(cx)
            }
            ready => {
                this.writing = false;
                ready
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Pending => {
                this.writing = true;
                this.poll_write_limit(cx)
            }
            ready => {
                this.writing = false;
                ready
            }
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
            Poll::Pending => {
                this.writing = true;
                this.poll_write_limit(cx)
            }
            ready => {
                this.writing = false;
                ready
            }
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
    async fn every_idle_period_has_its_own_time() {
        let (mut far, near) = tokio::io::duplex(64);
        let clock = Rc::new(Clock::default());
        let mut timed = Timed::new(near, clock.clone());
        let mut one = [0; 1];
        for _ in 0..10 {
            clock.idle(2 * SECOND, SECOND);
            let write = async {
                tokio::time::sleep(SECOND).await;
                far.write_all(b"x").await.expect("open");
            };
            let (read, ()) = tokio::join!(timed.read_exact(&mut one), write);
            read.expect("within the time of this period");
            clock.unlimited();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_still_being_taken_is_not_idle_time() {
        let (mut far, near) = tokio::io::duplex(4);
        let clock = Rc::new(Clock::default());
        clock.idle(SECOND, SECOND);
        let (mut reads, mut writes) = tokio::io::split(Timed::new(near, clock));
        let take = async {
            let mut two = [0; 2];
            for _ in 0..10 {
                tokio::time::sleep(SECOND * 2 / 3).await;
                far.read_exact(&mut two).await.expect("open");
            }
        };
        let mut one = [0; 1];
        tokio::select! {
            biased;
            () = take => {}
            read = reads.read_exact(&mut one) => panic!("ended while the response was taken: {read:?}"),
            sent = async { writes.write_all(&[0; 24]).await } => panic!("all taken at once: {sent:?}"),
        }
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
