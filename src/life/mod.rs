//! Living and dying: drain, readiness, back-off.

use std::time::Duration;

/// How the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Keep serving that long after leaving the registry (`proxy.deregistergraceperiod`).
    pub grace: Duration,
    /// Wait at most that long for requests and connections under way (`proxy.shutdownwait`). 0: do not wait.
    pub wait: Duration,
}
