//! What every kind of source does: read all blobs, or say that nothing changed.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use super::blobs::{self, Blobs};
use super::error::Error;

/// Reads a place where certificates are kept.
pub(super) trait Load: Send {
    /// All blobs; `None`: the same as last time. A source that is told about changes waits here for the next one.
    fn load(&mut self) -> Loading<'_>;

    /// Which blobs belong together: certificate to key.
    fn pairs(&self, blobs: &Blobs) -> BTreeMap<String, String> {
        blobs::pairs(blobs)
    }

    /// Time between the end of one load and the next; `None`: once is enough.
    fn pause(&self) -> Option<Duration>;

    /// Where it reads, for people. Without secrets.
    fn place(&self) -> String;
}

pub(super) type Loading<'a> = Pin<Box<dyn Future<Output = Result<Option<Blobs>, Error>> + Send + 'a>>;

/// Says once per file that everybody on this machine can read a key.
#[derive(Default)]
pub(super) struct Exposed(HashSet<PathBuf>);

impl Exposed {
    pub(super) fn look(&mut self, path: &Path, mode: u32) {
        const OTHERS_READ: u32 = 0o004;
        if mode & OTHERS_READ == 0 {
            self.0.remove(path);
        } else if self.0.insert(path.to_owned()) {
            tracing::warn!("cert: everybody on this machine can read the key in {} (chmod o-rwx)", path.display());
        }
    }
}

/// The time between two loads of a source that is asked again and again; 0: it is not.
pub(super) fn repeat(refresh: Duration) -> Option<Duration> {
    const LEAST: Duration = Duration::from_secs(1);
    (!refresh.is_zero()).then(|| refresh.max(LEAST))
}
