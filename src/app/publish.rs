//! Puts a new table in force.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::registry::Publish;
use crate::route::{LiveTable, Route, Snapshot, Table};
use crate::upstream::Directory;

/// Hangs state on what is new in a table, then swaps it in.
pub(super) struct Publisher {
    live: Arc<LiveTable>,
    /// Only ever taken by the control plane.
    directory: Mutex<Directory>,
    changed: watch::Sender<()>,
}

impl Publisher {
    pub(super) fn new(live: Arc<LiveTable>, directory: Directory) -> Self {
        Self { live, directory: Mutex::new(directory), changed: watch::Sender::new(()) }
    }
}

impl Publisher {
    /// Hears of each new table.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl Publish for Publisher {
    fn prepare(&self, fresh: &[Arc<Route>], _gone: &[Arc<Route>]) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).attach(fresh.iter().map(|route| &**route));
    }

    fn publish(&self, table: Arc<Table>, page: Arc<str>) {
        self.live.store(Snapshot { table, page });
        self.changed.send_replace(());
    }

    fn down_page(&self, page: Arc<str>) {
        self.live.set_down_page(page);
    }
}
