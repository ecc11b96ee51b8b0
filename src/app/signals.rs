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

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    End(Signal),
    /// SIGUSR2: another process is to take our place.
    Upgrade,
}

pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    upgrade: unix::Signal,
    access_log: Option<Log>,
    notify: Notify,
}

impl Signals {
    pub(super) fn new(access_log: Option<Log>, notify: Notify) -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            upgrade: unix::signal(SignalKind::user_defined2())?,
            access_log,
            notify,
        })
    }

    /// The next signal that asks for something that is not done here.
    pub(super) async fn next(&mut self) -> Wish {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Wish::End(Signal::Terminate),
                _ = self.interrupt.recv() => return Wish::End(Signal::Interrupt),
                _ = self.upgrade.recv() => return Wish::Upgrade,
                _ = self.hang_up.recv() => self.hung_up(),
            }
        }
    }

    /// The next signal that asks for the end. Meanwhile there is no upgrade, for this reason.
    pub(super) async fn end(&mut self, no_upgrade: &str) -> Signal {
        loop {
            match self.next().await {
                Wish::End(signal) => return signal,
                Wish::Upgrade => tracing::warn!("Caught SIGUSR2. Not upgrading: {no_upgrade}"),
            }
        }
    }

    fn hung_up(&self) {
        self.notify.reloading();
        match &self.access_log {
            Some(log) if matches!(log.target(), Target::File(_)) => {
                tracing::info!("Caught SIGHUP. Opening the access log again. {REST}");
                log.reopen();
            }
            _ => tracing::info!("Caught SIGHUP. Ignoring: there is no file of an access log. {REST}"),
        }
        self.notify.ready();
    }
}

/// What SIGHUP does not do, and what does.
const REST: &str =
    "Files with a refresh time are read again when they change; properties are read at start: SIGUSR2 upgrades";
