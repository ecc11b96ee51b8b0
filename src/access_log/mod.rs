//! One line for each request: templates, the facts they are filled with, and the way to the file.
//!
//! The data plane renders a line into a buffer of its own and puts it into a bounded queue. A thread of ours takes it from
//! there to its target. When that cannot keep up, lines are dropped and counted; nobody on the data plane ever waits.

mod append;
mod clock;
mod escape;
mod field;
mod format;
mod line;
mod mask;
mod queue;
mod sink;
mod syslog;
mod template;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

pub use append::Append;
pub use escape::is_harmful;
pub use field::Outcome;
pub use format::{Format, FormatError};
pub use line::{Line, Tls, Upstream};
pub use mask::Mask;
pub use sink::{Target, TargetError};

/// `log.access.*`
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub target: Target,
    pub format: Format,
    /// Also lines for requests that were not given to a target, and for the ends of WebSockets and TCP connections.
    pub all: bool,
    /// One of so many lines is written; those with a status from 500 on are always. 0 and 1: all.
    pub sample: u64,
    /// Only requests with a status from 400 on or a gRPC status other than 0, or that ended early.
    pub only_errors: bool,
    pub mask: Mask,
    /// A file that has grown beyond so many bytes is put aside; 0: never.
    pub rotate: u64,
    /// How many files that were put aside are kept.
    pub keep: usize,
}

/// The log of the process. Cheap to clone.
#[derive(Clone)]
pub struct Log(Arc<Shared>);

struct Shared {
    config: Config,
    queue: queue::Queue,
}

impl Log {
    /// Opens the target and starts the thread that writes.
    pub fn start(config: Config) -> io::Result<Self> {
        let sink = sink::Sink::open(&config)?;
        let queue = queue::Queue::start(sink)?;
        Ok(Self(Arc::new(Shared { config, queue })))
    }

    /// What one thread writes with.
    pub fn logger(&self) -> Logger {
        Logger { log: self.clone(), scratch: RefCell::default(), count: Cell::new(0) }
    }

    /// For what is said at start.
    pub fn target(&self) -> &Target {
        &self.0.config.target
    }

    /// Opens a file again, after somebody has moved it away. Anything else ignores it.
    pub fn reopen(&self) {
        self.0.queue.reopen();
    }

    /// Lines that were lost so far: the target is too slow, or fails.
    pub fn dropped(&self) -> u64 {
        self.0.queue.dropped()
    }

    /// Waits until everything so far is written, `limit` at most.
    pub fn flush(&self, limit: Duration) {
        self.0.queue.flush(limit);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.0.config.target).finish()
    }
}

/// Writes lines from one thread.
pub struct Logger {
    log: Log,
    scratch: RefCell<Vec<u8>>,
    /// Lines that could have been written, for sampling.
    count: Cell<u64>,
}

impl Logger {
    /// Headers of the request that lines show. [`Line::headers`] has a value for each, in this order.
    pub fn headers(&self) -> &[HeaderName] {
        self.log.0.config.format.headers()
    }

    /// Lines are wanted for everything, not only for what went to a target.
    pub fn all(&self) -> bool {
        self.log.0.config.all
    }

    /// Never waits.
    pub fn write(&self, line: &Line<'_>) {
        let config = &self.log.0.config;
        let failed =
            line.status >= 400 || !line.outcome.is_orderly() || line.grpc_status.is_some_and(|status| status != 0);
        if config.only_errors && !failed {
            return;
        }
        if config.sample > 1 && line.status < 500 {
            let count = self.count.get();
            self.count.set(count.wrapping_add(1));
            if !count.is_multiple_of(config.sample) {
                return;
            }
        }
        let mut text = self.scratch.borrow_mut();
        text.clear();
        config.format.render(line, &config.mask, &mut text);
        if text.is_empty() {
            return;
        }
        text.push(b'\n');
        self.log.0.queue.put(&text);
        // One request with a huge target must not cost its size for ever.
        if text.capacity() > SCRATCH_MAX {
            *text = Vec::new();
        }
    }
}

const SCRATCH_MAX: usize = 64 << 10;
