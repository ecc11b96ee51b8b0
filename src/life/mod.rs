//! Living and dying: phases of the process, and who waits for whom.

mod caught;
mod handover;
mod notify;
pub mod user;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::watch;

pub use caught::{Panicked, caught};
pub use handover::Line;
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
    /// Another process of ours accepts connections now, on the same sockets. Those that are open go on, each until its next
    /// answer. Passed over, unless we are replaced.
    Replaced,
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

/// Something that happens once, for many tasks of one thread: asking costs a look at a cell.
#[derive(Default)]
pub struct Flag {
    raised: Cell<bool>,
    /// Whom to wake, each at the place of its lease.
    waiting: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

/// A task that may wait for a [`Flag`].
pub struct Lease {
    flag: Rc<Flag>,
    place: usize,
}

impl Flag {
    pub fn is_raised(&self) -> bool {
        self.raised.get()
    }

    /// Wakes everybody who waits.
    pub fn raise(&self) {
        self.raised.set(true);
        let waiting: Vec<Waker> = self.waiting.borrow_mut().iter_mut().filter_map(Option::take).collect();
        waiting.into_iter().for_each(Waker::wake);
    }

    pub fn lease(self: &Rc<Self>) -> Lease {
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push(None);
            waiting.len() - 1
        });
        Lease { flag: self.clone(), place }
    }
}

impl Lease {
    pub fn is_raised(&self) -> bool {
        self.flag.is_raised()
    }

    /// Whether it is raised; if not, the task is woken when it is.
    pub fn poll(&self, cx: &Context<'_>) -> bool {
        if self.is_raised() {
            return true;
        }
        let waiting = &mut self.flag.waiting.borrow_mut()[self.place];
        if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waiting = Some(cx.waker().clone());
        }
        false
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.flag.waiting.borrow_mut()[self.place] = None;
        self.flag.free.borrow_mut().push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn everybody_hears_of_a_flag() {
        let flag = Rc::new(Flag::default());
        let tasks = tokio::task::LocalSet::new();
        for _ in 0..3 {
            let lease = flag.lease();
            drop(flag.lease());
            tasks.spawn_local(async move {
                std::future::poll_fn(|cx| if lease.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
            });
        }
        let raise = async {
            tokio::task::yield_now().await;
            flag.raise();
        };
        tokio::join!(tasks, raise);
        assert!(flag.lease().is_raised());
        assert_eq!(flag.waiting.borrow().len(), 4);
    }

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
