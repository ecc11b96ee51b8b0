//! How long a connection may be kept: until it is too old, was used often enough, or its endpoint is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::{Config, Endpoint};

/// What all workers know about the kept connections of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Idle ones, of all workers.
    idle: AtomicUsize,
    /// No table, request or connection needs the endpoint any more.
    gone: AtomicBool,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.kept.gone.store(true, Relaxed);
    }
}

/// Belongs to a connection.
#[derive(Debug)]
pub(super) struct Term {
    kept: Arc<Kept>,
    made: Instant,
    requests: u64,
}

impl Term {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self { kept: endpoint.kept.clone(), made: Instant::now(), requests: 0 }
    }

    /// A request is over. `None`: the connection is to be closed, for there are enough idle ones or it has done its part.
    pub(super) fn rest(&mut self, config: &Config) -> Option<Resting> {
        self.request();
        if self.is_over(config) {
            return None;
        }
        let resting = Resting(self.kept.clone());
        // Counts itself out if it was one too many.
        let others = resting.0.idle.fetch_add(1, Relaxed);
        (others < config.max_idle).then_some(resting)
    }

    /// It has had one request more.
    pub(super) fn request(&mut self) {
        self.requests += 1;
    }

    /// Too old, used often enough, or left over from an endpoint that is gone.
    pub(super) fn is_over(&self, config: &Config) -> bool {
        let too_old = !config.max_age.is_zero() && self.made.elapsed() >= config.max_age;
        let used_up = config.max_requests > 0 && self.requests >= config.max_requests;
        too_old || used_up || self.kept.gone.load(Relaxed)
    }
}

/// Counts an idle connection until it is dropped.
#[derive(Debug)]
pub(super) struct Resting(Arc<Kept>);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.idle.fetch_sub(1, Relaxed);
    }
}
