//! What moving bytes takes, lent while bytes move: buffers, and pipes for splice(2). An idle connection holds neither.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Of one worker. Never leaves its thread.
#[derive(Default)]
pub struct Supplies {
    buffers: RefCell<Vec<Box<[u8]>>>,
    pipes: RefCell<Vec<Pipe>>,
    /// Each pipe that was made large has a part in it.
    large: Rc<()>,
}

/// A pipe that is empty whenever it lies here.
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
    _large: Option<Rc<()>>,
}

impl Supplies {
    /// A buffer of [`BUFFER`] bytes with anything in it.
    pub(super) fn buffer(&self) -> Box<[u8]> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER].into())
    }

    pub(super) fn return_buffer(&self, buffer: Box<[u8]>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < KEPT && buffer.len() == BUFFER {
            buffers.push(buffer);
        }
    }

    /// `None`: there are no more descriptors, or no more memory for pipes.
    pub(super) fn pipe(&self) -> Option<Pipe> {
        if let Some(pipe) = self.pipes.borrow_mut().pop() {
            return Some(pipe);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // The kernel may refuse: a user without privileges has so many pages for pipes.
        let enlarge = Rc::strong_count(&self.large) <= LARGE_ONES && fcntl_setpipe_size(&writer, LARGE).is_ok();
        Some(Pipe { reader, writer, _large: enlarge.then(|| self.large.clone()) })
    }

    /// Only an empty one: what is in it would come out on somebody else's connection.
    pub(super) fn return_pipe(&self, pipe: Pipe) {
        let mut pipes = self.pipes.borrow_mut();
        if pipes.len() < KEPT {
            pipes.push(pipe);
        }
    }

    /// Buffers and pipes that lie here.
    #[cfg(test)]
    pub(super) fn lying(&self) -> (usize, usize) {
        (self.buffers.borrow().len(), self.pipes.borrow().len())
    }
}

/// What a pipe holds, and what a fast connection has ready at once, is 64 kB; half of it costs a few more system calls and
/// keeps what slow readers can hold small.
pub(super) const BUFFER: usize = 32 * 1024;

/// Bytes that a large pipe holds. With many connections in bulk at a time each has that much ready when its turn comes, and
/// a system call moves it all.
pub(super) const LARGE: usize = 1 << 20;

/// Large pipes of a worker: what slow readers can hold on to stays small, and pipes are left for others of this user (Linux
/// grants 64 MB; pipe(7)).
const LARGE_ONES: usize = 8;

/// Bytes move within one turn of the worker's loop; only readers that do not keep up hold on to a buffer.
const KEPT: usize = 32;
