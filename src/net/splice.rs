//! Moving bytes from one connection to another through a pipe, within the kernel.
//!
//! Pays for bulk only: for a few bytes it costs as many system calls as read and write, and more work in each. So it
//! begins when a read has filled a whole buffer, and ends when little came.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Supplies;
use super::relay::Fault;
use super::supplies::{BUFFER, LARGE, Pipe};

/// One direction's way through a pipe.
#[derive(Default)]
pub struct Splice {
    /// Held while bytes are in it.
    pipe: Option<Pipe>,
    inside: usize,
    /// Bytes come in bulk.
    bulk: bool,
    /// The kernel cannot do it for these connections.
    refused: bool,
}

/// What came of filling a pipe.
pub enum Filled {
    /// So many bytes are in it, at least one.
    Bytes(usize),
    /// The source has ended.
    Ended,
    /// It cannot be done here, or not now.
    Refused,
}

impl Splice {
    /// A read of `length` bytes into `room`.
    pub(super) fn saw(&mut self, length: usize, room: usize) {
        self.bulk = length == room;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.holds() || (self.bulk && !self.refused)
    }

    /// Bytes are in the pipe.
    pub fn holds(&self) -> bool {
        self.inside > 0
    }

    /// Empties the pipe, then fills it; adds to `moved` what went out. False at the end of `from`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
        supplies: &Supplies,
        moved: &mut u64,
    ) -> Poll<Result<bool, Fault>> {
        ready!(self.poll_drain(cx, to, moved)).map_err(Fault::Write)?;
        let filled = ready!(self.poll_fill(cx, from, supplies, u64::MAX)).map_err(Fault::Read)?;
        self.bulk = matches!(filled, Filled::Bytes(length) if length >= BUFFER / 4);
        Poll::Ready(Ok(!matches!(filled, Filled::Ended)))
    }

    /// Empties the pipe; adds to `moved` what went out. The pipe stays until it is filled again, or this is dropped.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, to: &TcpStream, moved: &mut u64) -> Poll<io::Result<()>> {
        while self.inside > 0
            && let Some(pipe) = &self.pipe
        {
            let write = || Ok(splice(&pipe.reader, None, to, None, self.inside, FLAGS)?);
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, write) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.inside -= written;
                    *moved += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Fills a pipe that holds nothing with `most` bytes at most. While there is nothing to read it has no pipe.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        supplies: &Supplies,
        most: u64,
    ) -> Poll<io::Result<Filled>> {
        debug_assert!(!self.holds(), "it would be lost which bytes are whose");
        if self.refused {
            return Poll::Ready(Ok(Filled::Refused));
        }
        let Some(pipe) = self.pipe.take().or_else(|| supplies.pipe()) else {
            return Poll::Ready(Ok(Filled::Refused));
        };
        // Only ever into an empty pipe, so "would block" means that there is nothing to read.
        let most = usize::try_from(most).unwrap_or(MOST).min(MOST);
        let read = || Ok(splice(from, None, &pipe.writer, None, most, FLAGS)?);
        let read = loop {
            match from.poll_read_ready(cx).map_ok(|()| from.try_io(Interest::READABLE, read)) {
                Poll::Ready(Ok(Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => break other,
            }
        };
        if let Poll::Ready(Ok(Ok(length @ 1..))) = read {
            self.inside = length;
            self.pipe = Some(pipe);
            return Poll::Ready(Ok(Filled::Bytes(length)));
        }
        supplies.return_pipe(pipe);
        match ready!(read).and_then(|read| read) {
            Ok(_) => Poll::Ready(Ok(Filled::Ended)),
            Err(error) if matches!(error.raw_os_error(), Some(EINVAL | ENOSYS | EPERM)) => {
                self.refused = true;
                Poll::Ready(Ok(Filled::Refused))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Gives back a pipe that is empty.
    pub fn rest(&mut self, supplies: &Supplies) {
        if self.inside == 0
            && let Some(pipe) = self.pipe.take()
        {
            supplies.return_pipe(pipe);
        }
    }
}

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);
/// As much as fits, for pipes of any size. A length near the largest number makes some kernels fail, or stall.
const MOST: usize = LARGE;

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
