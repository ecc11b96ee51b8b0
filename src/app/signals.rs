//! Signals that end us, and those that do not.

use std::fmt;
use std::io;

use tokio::signal::unix::{self, SignalKind};

use crate::access_log::{Log, Target};
use crate::life::Notify;

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
    access_log: Option<Log>,
    notify: Notify,
}

impl Signals {
    pub(super) fn new(access_log: Option<Log>, notify: Notify) -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            access_log,
            notify,
        })
    }

    /// The next signal that asks for the end. SIGHUP reopens the file of the access log; there is nothing else to reload.
    pub(super) async fn end(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Signal::Terminate,
                _ = self.interrupt.recv() => return Signal::Interrupt,
                _ = self.hang_up.recv() => self.hung_up(),
            }
        }
    }

    fn hung_up(&self) {
        self.notify.reloading();
        match &self.access_log {
            Some(log) if matches!(log.target(), Target::File(_)) => {
                tracing::info!("Caught SIGHUP. Opening the access log again");
                log.reopen();
            }
            _ => tracing::info!("Caught SIGHUP. Ignoring"),
        }
        self.notify.ready();
    }
}
