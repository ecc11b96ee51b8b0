//! Lines on their way to the thread that writes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use super::sink::Sink;

/// The sending side. Cloning is not needed: all workers share it.
pub(super) struct Queue {
    sender: SyncSender<Entry>,
    state: Arc<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

enum Entry {
    /// One line with its line break.
    Line(Box<[u8]>),
    Reopen,
    /// Answered when everything before is written.
    Flush(SyncSender<()>),
}

impl Queue {
    pub(super) fn start(sink: Sink) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(MAX_LINES);
        let state = Arc::new(State::default());
        let writer = state.clone();
        thread::Builder::new().name("access-log".into()).spawn(move || run(sink, &receiver, &writer))?;
        Ok(Self { sender, state })
    }

    pub(super) fn put(&self, line: &[u8]) {
        let waiting = self.state.waiting.fetch_add(line.len(), Ordering::Relaxed);
        let room = waiting == 0 || waiting + line.len() <= MAX_BYTES;
        if !room || self.sender.try_send(Entry::Line(line.into())).is_err() {
            self.state.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn reopen(&self) {
        // A full queue is tried again with the next signal; whoever rotates files sees that nothing came.
        let _ = self.sender.try_send(Entry::Reopen);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let (done, wait) = mpsc::sync_channel(1);
        let mut entry = Entry::Flush(done);
        loop {
            match self.sender.try_send(entry) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => entry = back,
            }
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(PAUSE);
        }
        let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Ends when the last sender is gone.
fn run(mut sink: Sink, receiver: &Receiver<Entry>, state: &State) {
    let mut batch = Batch::default();
    let mut waited = false;
    loop {
        // Waiting for each line would make its sender wake us. So we wait for the first one only, then look now and then
        // until there is nothing more.
        let entry = match receiver.try_recv() {
            Ok(entry) => entry,
            Err(mpsc::TryRecvError::Empty) if !waited => {
                batch.write(&mut sink, state);
                thread::sleep(PAUSE);
                waited = true;
                continue;
            }
            Err(mpsc::TryRecvError::Empty) => match receiver.recv() {
                Ok(entry) => entry,
                Err(_) => return,
            },
            Err(mpsc::TryRecvError::Disconnected) => return batch.write(&mut sink, state),
        };
        waited = false;
        match entry {
            Entry::Line(line) => {
                batch.bytes.extend_from_slice(&line);
                batch.ends.push(batch.bytes.len());
                if batch.bytes.len() >= BATCH || batch.ends.len() >= BATCH_LINES {
                    batch.write(&mut sink, state);
                }
            }
            Entry::Reopen => {
                batch.write(&mut sink, state);
                sink.reopen();
            }
            Entry::Flush(done) => {
                batch.write(&mut sink, state);
                let _ = done.try_send(());
            }
        }
    }
}

/// Lines that are written together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl Batch {
    fn write(&mut self, sink: &mut Sink, state: &State) {
        if self.ends.is_empty() {
            return;
        }
        let lost = sink.write(&self.bytes, &self.ends);
        state.dropped.fetch_add(lost, Ordering::Relaxed);
        state.waiting.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A burst while the disk is busy.
const MAX_LINES: usize = 32_768;
/// Of waiting lines together.
const MAX_BYTES: usize = 16 << 20;
/// Written at once.
const BATCH: usize = 64 << 10;
const BATCH_LINES: usize = 1024;
/// How late a line may be seen.
const PAUSE: Duration = Duration::from_millis(5);
