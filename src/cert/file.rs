//! `type=file`: two PEM files, or one with both.
//!
//! fabio reads them once. Here they are looked at every few seconds, because certificates are renewed more often than
//! balancers are restarted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::blobs::Blobs;
use super::error::Error;
use super::load::{Exposed, Load, Loading};

/// Some files, each under its path.
pub(super) struct Files {
    files: Vec<PathBuf>,
    /// Certificate and key; `None` for the authorities of clients.
    pair: Option<(PathBuf, PathBuf)>,
    refresh: Duration,
    /// As of the last complete load.
    stamps: Vec<Stamp>,
    exposed: Exposed,
}

impl Files {
    pub(super) fn pair(cert: &Path, key: &Path, refresh: Duration) -> Self {
        let mut files = vec![cert.to_owned(), key.to_owned()];
        files.dedup();
        Self { pair: Some((cert.to_owned(), key.to_owned())), ..Self::new(files, refresh) }
    }

    pub(super) fn single(path: &Path, refresh: Duration) -> Self {
        Self::new(vec![path.to_owned()], refresh)
    }

    fn new(files: Vec<PathBuf>, refresh: Duration) -> Self {
        let refresh = if refresh.is_zero() { REFRESH } else { refresh };
        Self { files, pair: None, refresh, stamps: Vec::new(), exposed: Exposed::default() }
    }

    fn read(&mut self) -> Result<Option<Blobs>, Error> {
        let stamps: Vec<Stamp> = self.files.iter().map(|path| Stamp::of(path)).collect::<Result<_, _>>()?;
        if let (Some((_, key)), Some(stamp)) = (&self.pair, stamps.last()) {
            self.exposed.look(key, stamp.mode);
        }
        if stamps == self.stamps && stamps.iter().all(Stamp::is_settled) {
            return Ok(None);
        }
        let mut blobs = Blobs::new();
        for path in &self.files {
            blobs.insert(name(path), Ok(read(path)?));
        }
        self.stamps = stamps;
        Ok(Some(blobs))
    }
}

impl Load for Files {
    fn load(&mut self) -> Loading<'_> {
        Box::pin(async { self.read() })
    }

    fn pairs(&self, _blobs: &Blobs) -> BTreeMap<String, String> {
        self.pair.iter().map(|(cert, key)| (name(cert), name(key))).collect()
    }

    fn pause(&self) -> Option<Duration> {
        Some(self.refresh)
    }

    fn place(&self) -> String {
        self.files.iter().map(|path| name(path)).collect::<Vec<_>>().join(" and ")
    }
}

/// Enough of a file to notice that it was replaced or written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) length: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
    pub(super) mode: u32,
}

impl Stamp {
    /// Follows links.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        std::fs::metadata(path).map(|meta| Self::from(&meta)).map_err(|cause| unreadable(path, cause))
    }

    /// Two writes within one tick of the file system's clock leave the same stamp: only an older one can be trusted.
    pub(super) fn is_settled(&self) -> bool {
        self.modified.and_then(|at| SystemTime::now().duration_since(at).ok()).is_some_and(|age| age > SETTLED)
    }
}

impl From<&std::fs::Metadata> for Stamp {
    fn from(meta: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            length: meta.len(),
            modified: meta.modified().ok(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            mode: meta.mode(),
        }
    }
}

/// The content of a file of sane size.
pub(super) fn read(path: &Path) -> Result<Bytes, Error> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|cause| unreadable(path, cause))?;
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text).map_err(|cause| unreadable(path, cause))?;
    if text.len() as u64 > LONGEST {
        return Err(Error::TooMuch { what: name(path) });
    }
    Ok(text.into())
}

pub(super) fn unreadable(path: &Path, cause: std::io::Error) -> Error {
    Error::Read { what: name(path), cause }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// As the default of the sources that fabio refreshes.
const REFRESH: Duration = Duration::from_secs(3);

const SETTLED: Duration = Duration::from_secs(2);

/// As fabio for its directories.
pub(super) const LONGEST: u64 = 1024 * 1024;
