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
pub(super) struct Splice {
    /// Held while bytes are in it.
    pipe: Option<Pipe>,
    inside: usize,
    /// Bytes come in bulk.
    bulk: bool,
    /// The kernel cannot do it for these connections.
    refused: bool,
}

impl Splice {
    /// A read of `length` bytes into `room`.
    pub(super) fn saw(&mut self, length: usize, room: usize) {
        self.bulk = length == room;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.holds() || (self.bulk && !self.refused)
    }

    pub(super) fn holds(&self) -> bool {
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
        let Some(pipe) = self.pipe.take().or_else(|| supplies.pipe()) else {
            self.bulk = false;
            return Poll::Ready(Ok(true));
        };
        while self.inside > 0 {
            let write = || Ok(splice(&pipe.reader, None, to, None, self.inside, FLAGS)?);
            let polled = to.poll_write_ready(cx).map_ok(|()| to.try_io(Interest::WRITABLE, write));
            match polled {
                Poll::Ready(Ok(Ok(0))) => return Poll::Ready(Err(Fault::Write(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(Ok(written))) => {
                    self.inside -= written;
                    *moved += written as u64;
                }
                Poll::Ready(Ok(Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                Poll::Ready(Ok(Err(error)) | Err(error)) => return Poll::Ready(Err(Fault::Write(error))),
                Poll::Pending => {
                    self.pipe = Some(pipe);
                    return Poll::Pending;
                }
            }
        }
        // Only ever into an empty pipe, so "would block" means that there is nothing to read.
        let read = || Ok(splice(from, None, &pipe.writer, None, MOST, FLAGS)?);
        let read = loop {
            match from.poll_read_ready(cx).map_ok(|()| from.try_io(Interest::READABLE, read)) {
                Poll::Ready(Ok(Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => break other,
            }
        };
        if let Poll::Ready(Ok(Ok(length @ 1..))) = read {
            self.bulk = length >= BUFFER / 4;
            self.inside = length;
            self.pipe = Some(pipe);
            return Poll::Ready(Ok(true));
        }
        supplies.return_pipe(pipe);
        match ready!(read).and_then(|read| read) {
            Ok(_) => Poll::Ready(Ok(false)),
            Err(error) if matches!(error.raw_os_error(), Some(EINVAL | ENOSYS | EPERM)) => {
                self.refused = true;
                Poll::Ready(Ok(true))
            }
            Err(error) => Poll::Ready(Err(Fault::Read(error))),
        }
    }
}

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);
/// As much as fits, for pipes of any size. A length near the largest number makes some kernels fail, or stall.
const MOST: usize = LARGE;

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
