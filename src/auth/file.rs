//! A file that is read at start and again when it has changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use crate::fetch::Stamp;
use crate::life::{Phase, Watch};

/// Gives bytes of a file a meaning, or says why it cannot. The path is for warnings.
pub(super) type Parse<T> = fn(&[u8], &Path) -> Result<T, String>;

/// What stands in a file. Nothing while the file is gone.
pub(super) struct Watched<T> {
    path: PathBuf,
    parse: Parse<T>,
    value: ArcSwapOption<T>,
}

/// A file that a scheme needs cannot be used.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    why: String,
}

impl Error {
    pub(super) fn new(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy.auth: open {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Error {}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the file, which must be there, and looks every `refresh` whether it has changed.
    pub(super) fn start(
        path: &Path,
        parse: Parse<T>,
        refresh: Option<Duration>,
        life: &Watch,
    ) -> Result<Arc<Self>, Error> {
        let stamp = Stamp::of(path);
        let value = read(path, parse).map_err(|why| Error { path: path.to_owned(), why })?;
        let watched = Arc::new(Self { path: path.to_owned(), parse, value: ArcSwapOption::from_pointee(value) });
        if let Some(period) = refresh {
            tokio::spawn(watched.clone().follow(stamp, period, life.clone()));
        }
        Ok(watched)
    }

    pub(super) fn load(&self) -> arc_swap::Guard<Option<Arc<T>>> {
        self.value.load()
    }

    async fn follow(self: Arc<Self>, mut seen: Option<Stamp>, period: Duration, mut life: Watch) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = life.reached(Phase::Ended) => return,
            }
            let watched = self.clone();
            let before = seen.clone();
            // Disks may be slow, and remote.
            match tokio::task::spawn_blocking(move || watched.look(before)).await {
                Ok(now) => seen = now,
                Err(_) => return,
            }
        }
    }

    /// Takes up what has changed since `seen`, and says what was seen now.
    fn look(&self, seen: Option<Stamp>) -> Option<Stamp> {
        let now = Stamp::of(&self.path);
        if now == seen {
            return now;
        }
        let path = self.path.display();
        if now.is_none() {
            tracing::warn!("{path} is gone: nobody is let in by it until it is back");
            self.value.store(None);
            return now;
        }
        match read(&self.path, self.parse) {
            Ok(value) => {
                tracing::info!("{path} has changed and was read again");
                self.value.store(Some(Arc::new(value)));
            }
            Err(why) => {
                tracing::warn!("{path} has changed and cannot be used: {why}; what it said before stays in force")
            }
        }
        now
    }
}

fn read<T>(path: &Path, parse: Parse<T>) -> Result<T, String> {
    let words = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let length = std::fs::metadata(path).map_err(words)?.len();
    if length > LARGEST {
        return Err(format!("larger than {LARGEST} bytes"));
    }
    parse(&std::fs::read(path).map_err(words)?, path)
}

/// Bytes: more than a million users.
const LARGEST: u64 = 128 * 1024 * 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::life::Life;

    fn text(bytes: &[u8], _: &Path) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_that_changes_goes_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let is = |watched: &Watched<String>, want: Option<&str>| {
            assert_eq!(watched.load().as_ref().map(|text| text.as_str()), want);
        };
        assert!(Watched::start(&path, text, None, &Life::new().watch()).is_err());
        std::fs::write(&path, "one").unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let watched = Watched::start(&path, text, None, &Life::new().watch()).unwrap();
        let mut seen = Stamp::of(&path);
        is(&watched, Some("one"));
        std::fs::write(&path, "three").unwrap();
        seen = watched.look(seen);
        is(&watched, Some("three"));
        std::fs::write(&path, b"\xff").unwrap();
        seen = watched.look(seen);
        is(&watched, Some("three"));
        std::fs::remove_file(&path).unwrap();
        seen = watched.look(seen);
        is(&watched, None);
        // Restored as it was, with its old time.
        std::fs::write(&path, "one").unwrap();
        std::fs::File::open(&path).unwrap().set_modified(modified).unwrap();
        watched.look(seen);
        is(&watched, Some("one"));
    }

    #[test]
    fn an_error_names_the_file() {
        let error = Watched::start(Path::new("/none/x"), text, None, &Life::new().watch()).err().unwrap();
        assert_eq!(error.to_string(), "proxy.auth: open /none/x: no such file or directory");
    }
}
