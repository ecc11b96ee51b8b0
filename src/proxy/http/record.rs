//! What becomes of a request, counted when it is over.

use std::sync::Arc;
use std::time::Instant;

use super::answer::CLIENT_GONE;
use crate::metrics::Shard;
use crate::upstream::TargetState;

/// Lives as long as a request that was given to a target. Dropped without a status, the client has gone away.
pub(crate) struct Record {
    target: Arc<TargetState>,
    shard: Shard,
    begun: Instant,
    status: u16,
}

impl Record {
    pub(crate) fn new(target: Arc<TargetState>, shard: Shard) -> Self {
        Self { target, shard, begun: Instant::now(), status: CLIENT_GONE }
    }

    pub(crate) fn status(&mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.target.series.observe(self.shard, self.status, self.begun.elapsed());
    }
}
