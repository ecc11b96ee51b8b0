//! Single observations on their way from the workers to those who want each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use crate::metrics::targets::Labels;

/// A request that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// Of the target; `None`: a gRPC call, whatever became of it.
    pub(crate) labels: Option<Arc<Labels>>,
    /// 0: without a status. Of a call: the number of its status in gRPC.
    pub(crate) code: u16,
    pub(crate) took: Duration,
}

/// The writing side; shared by all workers, without a lock.
pub(crate) struct Journal {
    sender: SyncSender<Observation>,
    dropped: Arc<AtomicU64>,
}

/// The reading side. Nobody waits on it, so writing never wakes anybody.
pub(crate) struct Reader {
    receiver: Receiver<Observation>,
    dropped: Arc<AtomicU64>,
}

pub(super) fn new() -> (Arc<Journal>, Reader) {
    let (sender, receiver) = mpsc::sync_channel(CAPACITY);
    let dropped = Arc::<AtomicU64>::default();
    (Arc::new(Journal { sender, dropped: dropped.clone() }), Reader { receiver, dropped })
}

impl Journal {
    pub(crate) fn put(&self, observation: Observation) {
        if self.sender.try_send(observation).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Reader {
    /// As much as fits into the journal at most, however fast it is written meanwhile.
    pub(super) fn take(&self, into: &mut Vec<Observation>) {
        into.extend(self.receiver.try_iter().take(CAPACITY));
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// At 20 ms between two looks this is for three million requests a second.
const CAPACITY: usize = 65_536;
