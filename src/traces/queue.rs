//! Spans on their way from the workers to the task that sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

/// The spans of one request, encoded.
pub(super) struct Entry {
    pub(super) bytes: Box<[u8]>,
    pub(super) spans: u64,
}

/// The writing side; shared by all workers, without a lock.
pub(super) struct Queue {
    sender: SyncSender<Entry>,
    state: Arc<State>,
}

/// The reading side. Nobody waits on it, so writing never wakes anybody.
pub(super) struct Reader {
    receiver: Receiver<Entry>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    /// Spans for which there was no room.
    dropped: AtomicU64,
}

pub(super) fn new() -> (Queue, Reader) {
    let (sender, receiver) = mpsc::sync_channel(MAX_ENTRIES);
    let state = Arc::<State>::default();
    (Queue { sender, state: state.clone() }, Reader { receiver, state })
}

impl Queue {
    pub(super) fn put(&self, bytes: &[u8], spans: u64) {
        let waiting = self.state.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        let room = waiting + bytes.len() <= MAX_BYTES;
        if !room || self.sender.try_send(Entry { bytes: bytes.into(), spans }).is_err() {
            self.state.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.state.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

impl Reader {
    pub(super) fn next(&self) -> Option<Entry> {
        let entry = self.receiver.try_recv().ok()?;
        self.state.waiting.fetch_sub(entry.bytes.len(), Ordering::Relaxed);
        Some(entry)
    }

    /// Since the last call.
    pub(super) fn dropped(&self) -> u64 {
        self.state.dropped.swap(0, Ordering::Relaxed)
    }
}

/// Requests. A burst while the collector is busy.
const MAX_ENTRIES: usize = 16_384;
/// Of waiting spans together.
const MAX_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_by_number_and_by_size() {
        let (queue, reader) = new();
        for _ in 0..MAX_ENTRIES + 10 {
            queue.put(b"x", 2);
        }
        assert_eq!((reader.dropped(), reader.dropped()), (20, 0));
        assert_eq!(std::iter::from_fn(|| reader.next()).map(|entry| entry.spans).sum::<u64>(), 2 * MAX_ENTRIES as u64);
        let large = vec![0; MAX_BYTES / 4];
        for _ in 0..6 {
            queue.put(&large, 1);
        }
        assert_eq!(reader.dropped(), 2);
        assert_eq!(std::iter::from_fn(|| reader.next()).count(), 4);
        queue.put(&large, 1);
        assert_eq!((reader.dropped(), reader.next().is_some()), (0, true), "what was taken makes room");
    }
}
