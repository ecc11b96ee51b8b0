//! Puts a new table in force.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::registry::Publish;
use crate::route::{ErrorPages, LiveTable, Route, Snapshot, Table};
use crate::upstream::Directory;

/// Hangs state on what is new in a table, then swaps it in.
pub(super) struct Publisher {
    live: Arc<LiveTable>,
    /// Only ever taken by the control plane.
    directory: Mutex<Directory>,
    error_pages: Mutex<Arc<ErrorPages>>,
    changed: watch::Sender<()>,
}

impl Publisher {
    pub(super) fn new(live: Arc<LiveTable>, directory: Directory) -> Self {
        Self { live, directory: Mutex::new(directory), error_pages: Mutex::default(), changed: watch::Sender::new(()) }
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

    fn error_pages(&self, pages: Arc<ErrorPages>) {
        *self.error_pages.lock().unwrap_or_else(PoisonError::into_inner) = pages;
    }

    fn publish(&self, table: Arc<Table>, page: Arc<str>) {
        let error_pages = self.error_pages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.live.store(Snapshot { table, page, error_pages });
        self.changed.send_replace(());
    }

    fn down_page(&self, page: Arc<str>) {
        self.live.set_down_page(page);
    }
}
