//! Bytes between a client and a target, both ways, until both directions have ended.
//!
//! The end of one direction is passed on as such and leaves the other one open (half-close). Readiness comes first: a
//! buffer is borrowed when there is something to read, and given back when it is written, so an idle connection holds
//! none. Bulk between two connections without TLS goes through a pipe with splice(2) and never enters user space.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::frames::{Farewell, Frames};
use super::splice::Splice;
use super::supplies::BUFFER;
use super::{Stream, Supplies};

/// What may take how long; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Nothing moves, in either direction.
    pub idle: Duration,
    /// The client takes none of the bytes that wait for it.
    pub write: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Target,
}

/// Why it is over.
#[derive(Debug)]
pub enum End {
    /// Both directions have ended.
    Done,
    /// See [`Limits::idle`].
    Idle,
    /// See [`Limits::write`].
    Stuck,
    /// This side's connection broke.
    Failed(Side, io::Error),
    /// It was told to end.
    Left,
}

/// What there is to a relay beside its two connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course<'a> {
    pub limits: Limits,
    /// What was read from the client before, and is still to be delivered.
    pub from_client: &'a [u8],
    /// The same from the target.
    pub from_target: &'a [u8],
    /// The bytes are a WebSocket. Told to end, or idle, it ends with these words to both sides, between frames.
    pub farewell: Option<Farewell>,
}

/// Moves bytes until the end. `moved` is told how many were delivered to the target and to the client since it was called
/// last. A connection that breaks breaks the other one, too: a reset is answered with a reset.
pub async fn relay(
    client: &mut Stream,
    target: &mut Stream,
    limits: Limits,
    supplies: &Supplies,
    moved: impl FnMut(u64, u64),
) -> End {
    let course = Course { limits, ..Course::default() };
    relay_until(client, target, course, supplies, std::future::pending(), moved).await
}

/// As [`relay`], but ends early when `leave` is ready.
pub async fn relay_until(
    client: &mut Stream,
    target: &mut Stream,
    course: Course<'_>,
    supplies: &Supplies,
    leave: impl Future<Output = ()>,
    mut moved: impl FnMut(u64, u64),
) -> End {
    let frames = || course.farewell.map(|_| Frames::default());
    let mut session = Session {
        forth: Way { chunk: Chunk::of(course.from_client), frames: frames(), ..Way::default() },
        back: Way { chunk: Chunk::of(course.from_target), frames: frames(), ..Way::default() },
        failed: None,
        limits: course.limits,
        farewell: course.farewell,
        leaving: None,
        active: Instant::now(),
        taken: Instant::now(),
        timer: None,
    };
    let mut leave = pin!(leave);
    poll_fn(|cx| {
        if session.leaving.is_none() && leave.as_mut().poll(cx).is_ready() && !session.leave(Why::Told) {
            return Poll::Ready(End::Left);
        }
        session.poll(cx, client, target, supplies, &mut moved)
    })
    .await
}

struct Session {
    /// From the client to the target.
    forth: Way,
    back: Way,
    /// A side that takes no more bytes. What it had sent before is still delivered.
    failed: Option<(Side, io::Error)>,
    limits: Limits,
    farewell: Option<Farewell>,
    /// It is being ended: why, and until when.
    leaving: Option<(Why, Instant)>,
    /// When something moved last.
    active: Instant,
    /// When the client took something last, or had nothing to take.
    taken: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Why {
    Told,
    Idle,
}

impl Session {
    /// Begins to end in good order. False: there is no such thing here.
    fn leave(&mut self, why: Why) -> bool {
        let Some(farewell) = &self.farewell else { return false };
        self.leaving = Some((why, Instant::now() + LAST_WORDS));
        self.forth.last_words = Some(farewell.to_target.into());
        self.back.last_words = Some(farewell.to_client.into());
        true
    }

    fn left(&self, why: Why) -> Poll<End> {
        Poll::Ready(if why == Why::Idle { End::Idle } else { End::Left })
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        target: &mut Stream,
        supplies: &Supplies,
        moved: &mut impl FnMut(u64, u64),
    ) -> Poll<End> {
        let before = (self.forth.moved, self.back.moved);
        let forth = self.forth.poll(cx, client, target, supplies);
        let back = self.back.poll(cx, target, client, supplies);
        let delivered = (self.forth.moved - before.0, self.back.moved - before.1);
        if delivered != (0, 0) {
            moved(delivered.0, delivered.1);
        }
        for (way, from, to) in [(forth, Side::Client, Side::Target), (back, Side::Target, Side::Client)] {
            match way {
                Poll::Ready(Err(Fault::Read(error))) => {
                    reset(if from == Side::Client { target } else { client });
                    return Poll::Ready(End::Failed(from, error));
                }
                Poll::Ready(Err(Fault::Write(error))) => {
                    self.failed.get_or_insert((to, error));
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        if self.forth.stage == Stage::Ended && self.back.stage == Stage::Ended {
            if let Some((why, _)) = self.leaving {
                return self.left(why);
            }
            return Poll::Ready(match self.failed.take() {
                None => End::Done,
                Some((side, error)) => End::Failed(side, error),
            });
        }
        self.poll_time(cx, delivered)
    }

    fn poll_time(&mut self, cx: &mut Context<'_>, delivered: (u64, u64)) -> Poll<End> {
        if let Some((why, until)) = self.leaving {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
            return self.left(why);
        }
        if self.limits == Limits::default() {
            return Poll::Pending;
        }
        let now = Instant::now();
        if delivered != (0, 0) {
            self.active = now;
        }
        if delivered.1 > 0 || !self.back.holds() {
            self.taken = now;
        }
        loop {
            let now = Instant::now();
            let idle = (!self.limits.idle.is_zero()).then(|| self.active + self.limits.idle);
            let stuck = (!self.limits.write.is_zero() && self.back.holds()).then(|| self.taken + self.limits.write);
            if idle.is_some_and(|at| at <= now) {
                if !self.leave(Why::Idle) {
                    return Poll::Ready(End::Idle);
                }
                // Both directions have something to say now.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if stuck.is_some_and(|at| at <= now) {
                return Poll::Ready(End::Stuck);
            }
            let Some(next) = idle.into_iter().chain(stuck).min() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
            // Set back only when it rings: bytes that move must not cost a timer each time.
            if timer.deadline() > next || timer.is_elapsed() {
                timer.as_mut().reset(next);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }
}

/// Nobody there any more: what waits to be sent is thrown away, and the other end sees a reset instead of an end.
fn reset(stream: &Stream) {
    let _ = stream.tcp().map(tokio::net::TcpStream::set_zero_linger);
}

pub(super) enum Fault {
    /// The source broke.
    Read(io::Error),
    /// The sink broke.
    Write(io::Error),
}

/// One direction.
#[derive(Default)]
struct Way {
    stage: Stage,
    chunk: Option<Chunk>,
    splice: Splice,
    /// `None`: whatever the bytes are.
    frames: Option<Frames>,
    /// To be said to the sink at the next end of a frame, and then no more.
    last_words: Option<Box<[u8]>>,
    /// They are what is being written.
    parting: bool,
    /// The sink may hold bytes back until it is flushed.
    unflushed: bool,
    /// Bytes taken by the sink.
    moved: u64,
}

#[derive(Default, PartialEq)]
enum Stage {
    #[default]
    Open,
    /// The source has ended, and the sink is to be told.
    Closing,
    /// The sink has heard the last words. What the source still sends is read, or the system would answer it with a
    /// reset, which can overtake the last words on the other way.
    Discarding,
    Ended,
}

/// What was read and not written yet.
struct Chunk {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Chunk {
    fn of(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self { bytes: bytes.into(), start: 0, end: bytes.len() })
    }
}

impl Way {
    /// Bytes wait for the sink.
    fn holds(&self) -> bool {
        self.chunk.is_some() || self.splice.holds()
    }

    /// After a fault the direction has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        supplies: &Supplies,
    ) -> Poll<Result<(), Fault>> {
        let result = ready!(self.poll_steps(cx, from, to, supplies));
        self.stage = Stage::Ended;
        self.chunk = None;
        self.splice = Splice::default();
        Poll::Ready(result)
    }

    fn poll_steps(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        supplies: &Supplies,
    ) -> Poll<Result<(), Fault>> {
        for _ in 0..STEPS {
            match self.stage {
                Stage::Open => {
                    let Poll::Ready(more) = self.poll_move(cx, from, to, supplies) else {
                        return self.poll_flush(cx, to);
                    };
                    if !more? {
                        self.stage = Stage::Closing;
                    }
                }
                Stage::Closing => {
                    return match ready!(Pin::new(&mut *to).poll_shutdown(cx)) {
                        // It has gone already.
                        Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                            Poll::Ready(Err(Fault::Write(error)))
                        }
                        _ if self.last_words.is_some() => {
                            self.stage = Stage::Discarding;
                            continue;
                        }
                        _ => Poll::Ready(Ok(())),
                    };
                }
                Stage::Discarding => {
                    let mut bytes = supplies.buffer();
                    let mut read = ReadBuf::new(&mut bytes);
                    let polled = Pin::new(&mut *from).poll_read(cx, &mut read);
                    let some = !read.filled().is_empty();
                    supplies.return_buffer(bytes);
                    if ready!(polled).is_err() || !some {
                        return Poll::Ready(Ok(()));
                    }
                }
                Stage::Ended => return Poll::Ready(Ok(())),
            }
        }
        // Others want their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what was read, then reads. False at the end of the source.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        supplies: &Supplies,
    ) -> Poll<Result<bool, Fault>> {
        if let Some(words) = &self.last_words
            && !self.parting
            && let Some(frames) = &self.frames
        {
            // Only what completes a frame goes out before.
            let rest = self.chunk.as_ref().map_or(0, |chunk| frames.rest(&chunk.bytes[chunk.start..chunk.end]));
            if rest > 0 {
                self.chunk.iter_mut().for_each(|chunk| chunk.end = chunk.start + rest);
            } else if frames.is_between() {
                self.chunk = Chunk::of(words);
                self.parting = true;
            }
        }
        if let Some(chunk) = &mut self.chunk {
            while chunk.start < chunk.end {
                let bytes = &chunk.bytes[chunk.start..chunk.end];
                let written = match ready!(Pin::new(&mut *to).poll_write(cx, bytes)) {
                    Ok(0) => return Poll::Ready(Err(Fault::Write(io::ErrorKind::WriteZero.into()))),
                    Ok(written) => written,
                    Err(error) => return Poll::Ready(Err(Fault::Write(error))),
                };
                if let Some(frames) = &mut self.frames {
                    frames.pass(&chunk.bytes[chunk.start..chunk.start + written]);
                }
                chunk.start += written;
                self.moved += written as u64;
                self.unflushed = true;
            }
        }
        let buffer = self.chunk.take().map(|chunk| chunk.bytes).filter(|bytes| bytes.len() == BUFFER);
        if self.parting {
            buffer.into_iter().for_each(|buffer| supplies.return_buffer(buffer));
            return Poll::Ready(Ok(false));
        }
        if self.last_words.is_some() && self.frames.as_ref().is_some_and(Frames::is_between) {
            // The frame is complete: the words are next.
            buffer.into_iter().for_each(|buffer| supplies.return_buffer(buffer));
            return Poll::Ready(Ok(true));
        }
        if self.frames.is_none()
            && self.splice.is_wanted()
            && let (Some(from), Some(to)) = (from.bare(), to.bare_sink())
        {
            if let Some(buffer) = buffer {
                supplies.return_buffer(buffer);
            }
            return self.splice.poll(cx, from, to, supplies, &mut self.moved);
        }
        let mut bytes = buffer.unwrap_or_else(|| supplies.buffer());
        let mut read = ReadBuf::new(&mut bytes);
        let polled = Pin::new(from).poll_read(cx, &mut read);
        let end = read.filled().len();
        match polled {
            Poll::Ready(Ok(())) if end > 0 => {
                self.splice.saw(end, bytes.len());
                self.chunk = Some(Chunk { bytes, start: 0, end });
                return Poll::Ready(Ok(true));
            }
            _ => supplies.return_buffer(bytes),
        }
        match ready!(polled) {
            Ok(()) => Poll::Ready(Ok(false)),
            // Many TLS peers close without saying so first.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(false)),
            Err(error) => Poll::Ready(Err(Fault::Read(error))),
        }
    }

    /// Nothing can be moved now: at least nothing is held back.
    fn poll_flush(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<Result<(), Fault>> {
        if self.unflushed
            && let Err(error) = ready!(Pin::new(to).poll_flush(cx))
        {
            return Poll::Ready(Err(Fault::Write(error)));
        }
        self.unflushed = false;
        Poll::Pending
    }
}

/// How long the end of a WebSocket may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// In one go, each of a buffer at most.
const STEPS: usize = 16;

#[cfg(test)]
mod tests;
