//! `registry.backend=file`: routes from a file, which is read again when it changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::publish::Feed;
use super::status::Source;
use crate::fetch::Stamp;
use crate::route::{self, Origin};

pub(super) struct Files {
    routes: Watched,
    page: Option<Watched>,
    source: Source,
}

struct Watched {
    path: PathBuf,
    /// Of the content that was taken last.
    stamp: Option<Stamp>,
}

impl Files {
    /// Reads both files; an error is one of the very first read.
    pub(super) fn open(routes: &Path, page: Option<&Path>, feed: &Feed, source: Source) -> Result<Self, String> {
        let watched = |path: &Path| Watched { path: path.to_owned(), stamp: None };
        let mut files = Self { routes: watched(routes), page: page.map(watched), source };
        files.look(feed)?;
        feed.services_known();
        feed.manual_known();
        Ok(files)
    }

    /// Looks at the files for ever. One that vanishes or cannot be read leaves the last content in force.
    pub(super) async fn watch(mut self, feed: Feed) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let feed = feed.clone();
            let looked = tokio::task::spawn_blocking(move || {
                match self.look(&feed) {
                    Ok(()) => self.source.good(0),
                    Err(e) => self.source.failed(&e),
                }
                self
            });
            match looked.await {
                Ok(files) => self = files,
                Err(_) => return,
            }
        }
    }

    fn look(&mut self, feed: &Feed) -> Result<(), String> {
        if let Some(text) = self.routes.changed()? {
            let path: std::sync::Arc<str> = self.routes.path.display().to_string().into();
            feed.whole(route::parse_text(&text, |line| Origin::File { path: path.clone(), line }), &path);
        }
        if let Some(page) = &mut self.page
            && let Some(text) = page.changed()?
        {
            feed.page(&text);
        }
        Ok(())
    }
}

impl Watched {
    fn changed(&mut self) -> Result<Option<String>, String> {
        let stamp = Stamp::of(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(None);
        }
        if stamp.as_ref().is_some_and(|s| s.length() > LIMIT) {
            return Err(format!("{} is longer than {LIMIT} bytes", self.path.display()));
        }
        let bytes = std::fs::read(&self.path).map_err(|e| format!("cannot read {}: {e}", self.path.display()))?;
        // Taken before the content was read: a write meanwhile shows up in the next look.
        self.stamp = stamp;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(500);

const LIMIT: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::status::Board;

    #[test]
    fn only_changes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes");
        let mut watched = Watched { path: path.clone(), stamp: None };
        assert!(watched.changed().is_err());
        std::fs::write(&path, "one").unwrap();
        assert_eq!(watched.changed().unwrap().as_deref(), Some("one"));
        assert_eq!(watched.changed().unwrap(), None);
        // Replaced by rename within the resolution of the clock, same length.
        std::fs::write(folder.path().join("new"), "two").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(watched.changed().unwrap().as_deref(), Some("two"));
        std::fs::remove_file(&path).unwrap();
        assert!(watched.changed().is_err());
    }

    #[test]
    fn a_missing_routes_file_is_an_error_and_a_missing_page_option_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none");
        let error = Files::open(&missing, None, &Feed::default(), Board::default().source("file")).err().unwrap();
        assert!(error.contains("none"), "{error}");
    }
}
