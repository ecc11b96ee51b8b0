//! Where account, certificates and challenges are kept: Consul's KV store, or a directory.
//!
//! Both are small trees of text: `account`, `certificates/NAME`, `challenges/TOKEN`, `state/NAME`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::super::Storage as Config;
use crate::cert::Error;
use crate::consul::{Client, Keys, Mode, Pair, Read, Watch, pairs};

/// Key to value.
pub(super) type Contents = BTreeMap<String, String>;

#[derive(Clone)]
pub(super) enum Storage {
    Consul { client: Client, prefix: String },
    Directory { path: PathBuf, look: Duration },
}

/// Held while orders are made.
pub(super) enum Lock {
    Consul(crate::consul::Lock),
    /// Of an open file: whoever dies has closed it.
    Directory {
        _file: File,
    },
}

/// Tells about changes.
pub(super) enum Follow {
    Consul { watch: Box<Watch>, prefix: String },
    Directory { storage: Storage, last: Option<Contents>, look: Duration },
}

impl Storage {
    /// `folder` is what this source and its directory of the CA have for themselves.
    pub(super) fn new(config: &Config, folder: &str, look: Duration) -> Result<Self, Error> {
        match config {
            Config::Consul { client, prefix } => {
                let client = Client::new((**client).clone()).map_err(|error| Error::Place(error.to_string()))?;
                Ok(Storage::Consul { client, prefix: format!("{prefix}/{folder}/") })
            }
            Config::Directory(path) => {
                let path = path.join(folder);
                let mut builder = std::fs::DirBuilder::new();
                builder.recursive(true).mode(0o700);
                let made = builder.create(&path);
                made.map_err(|cause| Error::Read { what: path.display().to_string(), cause })?;
                Ok(Storage::Directory { path, look })
            }
        }
    }

    pub(super) fn place(&self) -> String {
        match self {
            Storage::Consul { client, prefix } => format!("{} {prefix}", client.config().addr),
            Storage::Directory { path, .. } => path.display().to_string(),
        }
    }

    /// How long it takes until every process that follows has seen a change, when all is well.
    pub(super) fn spread(&self) -> Duration {
        match self {
            Storage::Consul { .. } => Duration::from_secs(1),
            Storage::Directory { look, .. } => *look,
        }
    }

    pub(super) fn follow(&self) -> Follow {
        match self {
            Storage::Consul { client, prefix } => {
                let watch = Watch::new(client.clone(), Keys::kv(prefix), "recurse", Mode::Block(WAIT), true);
                Follow::Consul { watch: Box::new(watch), prefix: prefix.clone() }
            }
            Storage::Directory { look, .. } => Follow::Directory { storage: self.clone(), last: None, look: *look },
        }
    }

    /// Everything, as it is now.
    pub(super) async fn read(&self) -> Result<Contents, Error> {
        match self {
            Storage::Consul { client, prefix } => {
                // Whatever is configured: who holds the lock must see what the holder before has written.
                let read = Read { missing_is_empty: true, consistency: false, ..Read::default() };
                let answer = client.get(&Keys::kv(prefix), "recurse&consistent", read, pairs).await;
                let answer = answer.map_err(|error| self.failed(&error))?;
                Ok(contents(prefix, &answer.value.unwrap_or_default()))
            }
            Storage::Directory { path, .. } => {
                let path = path.clone();
                aside(move || walk(&path).map_err(|cause| Error::Read { what: path.display().to_string(), cause }))
                    .await
            }
        }
    }

    pub(super) async fn write(&self, key: &str, value: &str) -> Result<(), Error> {
        match self {
            Storage::Consul { client, prefix } => {
                let body = Bytes::from(value.to_owned());
                let done = client.put(&Keys::kv(&format!("{prefix}{key}")), "", body).await;
                done.map(drop).map_err(|error| self.failed(&error))
            }
            Storage::Directory { path, .. } => {
                let (path, value) = (path.join(key), value.to_owned());
                aside(move || {
                    write(&path, &value).map_err(|cause| Error::Read { what: path.display().to_string(), cause })
                })
                .await
            }
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Error> {
        match self {
            Storage::Consul { client, prefix } => {
                client.delete(&format!("{prefix}{key}")).await.map_err(|error| self.failed(&error))
            }
            Storage::Directory { path, .. } => match std::fs::remove_file(path.join(key)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    Err(Error::Read { what: path.join(key).display().to_string(), cause })
                }
                _ => Ok(()),
            },
        }
    }

    /// `None`: somebody else is at work.
    pub(super) async fn lock(&self, name: &str) -> Result<Option<Lock>, Error> {
        match self {
            Storage::Consul { client, prefix } => {
                let lock = crate::consul::Lock::try_acquire(client, &format!("{prefix}lock"), name).await;
                Ok(lock.map_err(|error| self.failed(&error))?.map(Lock::Consul))
            }
            Storage::Directory { path, .. } => {
                let path = path.join("lock");
                let fail = |cause| Error::Read { what: path.display().to_string(), cause };
                let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
                let file = file.map_err(fail)?;
                match file.try_lock() {
                    Ok(()) => Ok(Some(Lock::Directory { _file: file })),
                    Err(std::fs::TryLockError::WouldBlock) => Ok(None),
                    Err(std::fs::TryLockError::Error(cause)) => Err(fail(cause)),
                }
            }
        }
    }

    fn failed(&self, error: &crate::consul::Error) -> Error {
        Error::Fetch(format!("{}: {error}", self.place()))
    }
}

impl Lock {
    /// Returns when somebody else may be at work.
    pub(super) async fn lost(&self) {
        match self {
            Lock::Consul(lock) => lock.lost().await,
            Lock::Directory { .. } => std::future::pending().await,
        }
    }

    pub(super) async fn release(self) {
        if let Lock::Consul(lock) = self {
            lock.release().await;
        }
    }
}

impl Follow {
    /// What is there now, when it is not what it was. Pauses by itself after an error.
    pub(super) async fn next(&mut self) -> Result<Contents, Error> {
        match self {
            Follow::Consul { watch, prefix } => match watch.next(pairs).await {
                Ok(seen) => Ok(contents(prefix, &seen.value.unwrap_or_default())),
                Err(failure) => Err(Error::Fetch(format!("{prefix} in Consul: {}", failure.error))),
            },
            Follow::Directory { storage, last, look } => loop {
                if last.is_some() {
                    tokio::time::sleep(*look).await;
                }
                let read = storage.read().await;
                match read {
                    Ok(contents) if last.as_ref() == Some(&contents) => {}
                    Ok(contents) => {
                        *last = Some(contents.clone());
                        return Ok(contents);
                    }
                    Err(error) => {
                        last.get_or_insert_default();
                        return Err(error);
                    }
                }
            },
        }
    }
}

/// Keys without the prefix. What is no text is nothing of ours.
fn contents(prefix: &str, pairs: &[Pair]) -> Contents {
    let value = |pair: &Pair| String::from_utf8(STANDARD.decode(&pair.value).ok()?).ok();
    let entry = |pair: &Pair| Some((pair.key.strip_prefix(prefix)?.to_owned(), value(pair)?));
    pairs.iter().filter_map(entry).filter(|(key, _)| !key.is_empty() && !key.ends_with('/')).collect()
}

/// Two levels, as they are written.
fn walk(path: &Path) -> io::Result<Contents> {
    let mut contents = Contents::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type()?.is_dir() {
            add(&mut contents, name, &entry.path())?;
            continue;
        }
        for inner in std::fs::read_dir(entry.path())? {
            let inner = inner?;
            if let Ok(file) = inner.file_name().into_string() {
                add(&mut contents, format!("{name}/{file}"), &inner.path())?;
            }
        }
    }
    Ok(contents)
}

fn add(contents: &mut Contents, key: String, path: &Path) -> io::Result<()> {
    // Half-written files, and the lock.
    if key.rsplit('/').next().is_some_and(|name| name.starts_with(TEMPORARY)) || key == "lock" {
        return Ok(());
    }
    match std::fs::read_to_string(path) {
        Ok(text) => {
            contents.insert(key, text);
            Ok(())
        }
        // Deleted meanwhile, or nothing of ours.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, for this user alone.
fn write(path: &Path, value: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut name = std::ffi::OsString::from(TEMPORARY);
    name.push(path.file_name().unwrap_or_default());
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(value.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(Error::Fetch("reading or writing was cut short".into())),
    }
}

/// In front: no host name begins with a dot, but some end in whatever else one might choose.
const TEMPORARY: &str = ".tmp-";
/// As long as Consul waits by default.
const WAIT: Duration = Duration::from_secs(300);
