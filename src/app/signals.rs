//! Signals that end us, and those that do not.

use std::fmt;
use std::io;

use tokio::signal::unix::{self, SignalKind};

/// A signal that asks for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Interrupt,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
        })
    }
}

pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next signal that asks for the end. There is nothing to reload, so SIGHUP is only mentioned.
    pub(super) async fn end(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Signal::Terminate,
                _ = self.interrupt.recv() => return Signal::Interrupt,
                _ = self.hang_up.recv() => tracing::info!("Caught SIGHUP. Ignoring"),
            }
        }
    }
}
