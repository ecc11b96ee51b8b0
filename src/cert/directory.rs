//! `type=path`: a directory of PEM files, and the directories in it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blobs::Blobs;
use super::error::{Error, PairError};
use super::file::{LONGEST, Stamp, read, unreadable};
use super::load::{Exposed, Load, Loading, repeat};

pub(super) struct Directory {
    root: PathBuf,
    extensions: &'static [&'static str],
    refresh: Option<Duration>,
    /// As of the last complete load.
    files: Vec<(PathBuf, Stamp)>,
    exposed: Exposed,
}

impl Directory {
    pub(super) fn pairs(root: &Path, refresh: Duration) -> Self {
        Self::new(root, &["pem"], refresh)
    }

    pub(super) fn authorities(root: &Path, refresh: Duration) -> Self {
        Self::new(root, &["pem", "crl"], refresh)
    }

    /// Whether this directory exists and holds certificates.
    pub(super) fn holds_any(root: &str) -> bool {
        walk(Path::new(root), &["pem"]).is_ok_and(|files| !files.is_empty())
    }

    fn new(root: &Path, extensions: &'static [&'static str], refresh: Duration) -> Self {
        let refresh = repeat(refresh);
        Self { root: root.to_owned(), extensions, refresh, files: Vec::new(), exposed: Exposed::default() }
    }
}

impl Load for Directory {
    fn load(&mut self) -> Loading<'_> {
        Box::pin(async {
            let (root, extensions, before) = (self.root.clone(), self.extensions, std::mem::take(&mut self.files));
            let mut exposed = std::mem::take(&mut self.exposed);
            // Disks can hang.
            let (files, exposed, result) =
                tokio::task::spawn_blocking(move || match changes(&root, extensions, &before) {
                    Ok((files, blobs)) => {
                        for (path, stamp) in files.iter().filter(|(path, _)| holds_key(path, blobs.as_ref())) {
                            exposed.look(path, stamp.mode);
                        }
                        (files, exposed, Ok(blobs))
                    }
                    Err(error) => (before, exposed, Err(error)),
                })
                .await
                .map_err(|_| Error::Fetch("the directory could not be read".into()))?;
            self.files = files;
            self.exposed = exposed;
            result
        })
    }

    fn pause(&self) -> Option<Duration> {
        self.refresh
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}

type Files = Vec<(PathBuf, Stamp)>;

/// The files, and their content if it may have changed.
fn changes(root: &Path, extensions: &[&str], before: &Files) -> Result<(Files, Option<Blobs>), Error> {
    // Stamps are taken before the content is read: what changes in between is noticed next time.
    let files = walk(root, extensions)?;
    if !before.is_empty() && files == *before && files.iter().all(|(_, stamp)| stamp.is_settled()) {
        return Ok((files, None));
    }
    let blob = |(path, stamp): &(PathBuf, Stamp)| {
        let content = if stamp.length > LONGEST {
            Err(PairError::Unreadable("the file is larger than 1 MiB".into()))
        } else {
            read(path).map_err(|error| PairError::Unreadable(error.to_string()))
        };
        (path.display().to_string(), content)
    };
    let blobs = files.iter().map(blob).collect();
    Ok((files, Some(blobs)))
}

/// Files with one of these extensions, sorted.
///
/// Hidden files are left out but hidden directories are not, as in fabio; except those that begin with two dots: in
/// mounted Kubernetes volumes they hold what the links beside them lead to.
fn walk(root: &Path, extensions: &[&str]) -> Result<Files, Error> {
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        // Links may lead in circles.
        if !seen.insert(std::fs::canonicalize(&directory).map_err(|cause| unreadable(&directory, cause))?) {
            continue;
        }
        for entry in std::fs::read_dir(&directory).map_err(|cause| unreadable(&directory, cause))? {
            let path = entry.map_err(|cause| unreadable(&directory, cause))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            // A link that leads nowhere, or a file that has just gone.
            let Ok(meta) = std::fs::metadata(&path) else { continue };
            if meta.is_dir() {
                if !name.starts_with("..") {
                    waiting.push(path);
                }
                continue;
            }
            let wanted = path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted));
            if wanted && !name.starts_with('.') && meta.is_file() {
                files.push((path, Stamp::from(&meta)));
            }
            if files.len() > MOST {
                return Err(Error::TooMuch { what: root.display().to_string() });
            }
        }
    }
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(files)
}

fn holds_key(path: &Path, blobs: Option<&Blobs>) -> bool {
    let name = path.display().to_string();
    let content = blobs.and_then(|blobs| blobs.get(&name)).and_then(|blob| blob.as_ref().ok());
    content.is_some_and(|text| text.windows(KEY.len()).any(|window| window == KEY))
}

const KEY: &[u8] = b"PRIVATE KEY-----";

const MOST: usize = 20_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let short = |(path, _): (PathBuf, Stamp)| path.strip_prefix(root).unwrap().display().to_string();
        walk(root, &["pem"]).unwrap().into_iter().map(short).collect()
    }

    #[test]
    fn what_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("real");
        let write = |name: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        for name in ["b.pem", "a.pem", "x.crt", ".hidden.pem", ".dir/c.pem", "sub/deep/d.pem", "pem", "..data/e.pem"] {
            write(name);
        }
        symlink("..data/e.pem", root.join("e.pem")).unwrap();
        symlink("nowhere", root.join("f.pem")).unwrap();
        symlink(&root, root.join("sub/loop")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("other/g.pem"), "").unwrap();
        symlink(dir.path().join("other"), root.join("linked")).unwrap();
        let want = [".dir/c.pem", "a.pem", "b.pem", "e.pem", "linked/g.pem", "sub/deep/d.pem"];
        assert_eq!(names(&root), want);
        let link = dir.path().join("link");
        symlink("real", &link).unwrap();
        assert_eq!(names(&link), want);
        assert!(matches!(walk(&dir.path().join("nowhere"), &["pem"]), Err(Error::Read { .. })));
    }

    #[tokio::test]
    async fn unchanged_directories_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.pem");
        std::fs::write(&file, "x").unwrap();
        let mut directory = Directory::pairs(dir.path(), Duration::from_secs(3));
        assert!(directory.load().await.unwrap().is_some());
        // Just written: somebody may write again within the same tick of the clock.
        assert!(directory.load().await.unwrap().is_some());
        let old = std::time::SystemTime::now() - Duration::from_secs(60);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        assert!(directory.load().await.unwrap().is_some());
        assert!(directory.load().await.unwrap().is_none());
        std::fs::write(dir.path().join("b.pem"), vec![b'x'; LONGEST as usize + 1]).unwrap();
        let blobs = directory.load().await.unwrap().unwrap();
        assert_eq!(blobs.len(), 2);
        assert!(blobs.values().last().unwrap().is_err());
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(directory.load().await.is_err());
    }
}
