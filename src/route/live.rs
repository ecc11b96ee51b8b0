//! What the data plane reads, and the places in it where others hang their state.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{ErrorPages, Table};

/// What the data plane reads: a table and the page for requests without a route.
#[derive(Default)]
pub struct Snapshot {
    pub table: Arc<Table>,
    /// The no-route page; empty when there is none.
    pub page: Arc<str>,
    pub error_pages: Arc<ErrorPages>,
}

/// The one current [`Snapshot`]. Readers never wait.
#[derive(Default)]
pub struct LiveTable {
    current: arc_swap::ArcSwap<Snapshot>,
    down_page: arc_swap::ArcSwapOption<Arc<str>>,
}

impl LiveTable {
    /// Take it once per request, and drop it before waiting for anything.
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.current.load()
    }

    pub fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    pub fn store(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
    }

    /// The page for routes whose targets are all down; it changes apart from the table.
    pub fn down_page(&self) -> Arc<str> {
        self.down_page.load().as_deref().cloned().unwrap_or_default()
    }

    pub fn set_down_page(&self, page: Arc<str>) {
        self.down_page.store(Some(Arc::new(page)));
    }
}

/// A place to hang state on. The table never looks inside.
#[derive(Default)]
pub struct Slot(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Slot {
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Does nothing if something hangs there already.
    pub fn fill(&self, state: Arc<dyn Any + Send + Sync>) {
        let _ = self.0.set(state);
    }

    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get()?.downcast_ref()
    }

    /// The handle itself, to keep it beyond the table.
    pub fn share<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::downcast(self.0.get()?.clone()).ok()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Slot(empty)" } else { "Slot(filled)" })
    }
}
