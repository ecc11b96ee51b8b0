//! Living and dying: phases of the process, and who waits for whom.

mod notify;

use std::time::Duration;

use tokio::sync::watch;

pub use notify::Notify;

/// How the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Keep serving that long after leaving the registry (`proxy.deregistergraceperiod`).
    pub grace: Duration,
    /// Wait at most that long for requests and connections under way (`proxy.shutdownwait`). 0: do not wait.
    pub wait: Duration,
}

/// Where the process is in its life. It only ever moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the first table and the listeners.
    #[default]
    Starting,
    Serving,
    /// Not ready any more and leaving the registry, but everything is still served.
    Leaving,
    /// No new connections; requests under way are finished.
    Closing,
    /// What is not finished is cut.
    Ended,
}

/// Moves the phase.
pub struct Life(watch::Sender<Phase>);

/// Follows the phase. Works across runtimes.
#[derive(Clone)]
pub struct Watch(watch::Receiver<Phase>);

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl Life {
    pub fn new() -> Self {
        Self(watch::channel(Phase::Starting).0)
    }

    pub fn watch(&self) -> Watch {
        Watch(self.0.subscribe())
    }

    /// A phase that has passed does not come back.
    pub fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        });
    }
}

impl Watch {
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns once `phase` or a later one is reached. Whoever moved the phase being gone counts as the end.
    pub async fn reached(&mut self, phase: Phase) {
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_only_move_forward() {
        let life = Life::new();
        let mut watch = life.watch();
        life.advance(Phase::Closing);
        life.advance(Phase::Serving);
        assert_eq!(watch.phase(), Phase::Closing);
        watch.reached(Phase::Leaving).await;
        drop(life);
        watch.reached(Phase::Ended).await;
    }
}
