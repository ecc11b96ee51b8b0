//! The last good inputs of the table on disk, so that a restart while Consul is away serves the last known routes.
//!
//! One file, replaced as a whole, readable by its owner alone. What is kept are texts (tags, overrides, pages), not a
//! table: at the next start they go the way that they go when Consul sends them, and what is wrong with them is a reject.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::disabled::Disabled;
use super::publish::{Feed, Manual};
use super::status::Board;
use super::{ConsulConfig, StateConfig};
use crate::metrics::names;
use crate::route::{self, Datacenter, Instance};

/// What a table is made of, as texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inputs {
    pub(super) datacenter: String,
    /// By service; sorted by id.
    pub(super) services: Inherited,
    /// The same of other datacenters.
    pub(super) remote: BTreeMap<Arc<str>, Inherited>,
    pub(super) manual: Manual,
    pub(super) page: String,
    pub(super) named: Manual,
    pub(super) error_pages: Manual,
    pub(super) disabled: Vec<Disabled>,
}

/// Instances by service.
pub(super) type Inherited = BTreeMap<Arc<str>, Arc<[Instance]>>;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// Where these inputs come from: those of another Consul, or of other keys in it, are nothing to us.
    identity: String,
    max_age: Duration,
    /// Those that are watched beside our own; of others nothing is taken.
    datacenters: Arc<[Arc<Datacenter>]>,
}

/// Why there is nothing to start with.
#[derive(Debug)]
pub(super) enum Unusable {
    Missing,
    /// Completes "the saved routes in PATH are not used: ".
    Refused(String),
}

#[derive(Serialize, Deserialize)]
struct Document {
    identity: String,
    datacenter: String,
    services: BTreeMap<String, Vec<Saved>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    datacenters: BTreeMap<String, BTreeMap<String, Vec<Saved>>>,
    #[serde(default)]
    overrides: Vec<(String, String)>,
    #[serde(default)]
    page: String,
    #[serde(default)]
    options: Vec<(String, String)>,
    #[serde(default)]
    error_pages: Vec<(String, String)>,
    #[serde(default)]
    disabled: Vec<Disabled>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    id: String,
    address: String,
    port: u16,
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    down: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
}

impl Store {
    pub(super) fn new(config: &StateConfig, consul: &ConsulConfig) -> Self {
        let client = &consul.client;
        let parts = [
            client.place(),
            client.namespace.clone().unwrap_or_default(),
            client.partition.clone().unwrap_or_default(),
            consul.tag_prefix.clone(),
            consul.kv_path.clone(),
            consul.page_path.clone(),
            consul.options_path.clone(),
            consul.error_pages_path.clone(),
        ];
        let datacenters = consul.ranked();
        Self { path: config.dir.join(FILE), identity: parts.join(" "), max_age: config.max_age, datacenters }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The inputs, and when they were last known to be right.
    pub(super) fn read(&self) -> Result<(Inputs, SystemTime), Unusable> {
        let refused = |why: &str| Unusable::Refused(why.to_owned());
        let failed = |error: io::Error| Unusable::Refused(error.to_string());
        // A FIFO must not hold up the start either.
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
            Err(error) => return Err(failed(error)),
        };
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(refused("it is no ordinary file"));
        }
        // Whoever can write it decides where requests go.
        let ours = rustix::process::geteuid().as_raw();
        if about.mode() & 0o022 != 0 || (about.uid() != ours && about.uid() != 0) {
            return Err(refused("others than its owner may write it, or its owner is somebody else"));
        }
        if about.len() > LARGEST {
            return Err(Unusable::Refused(format!("it has more than {LARGEST} bytes")));
        }
        let at = about.modified().unwrap_or(UNIX_EPOCH);
        let age = SystemTime::now().duration_since(at).unwrap_or_default();
        if !self.max_age.is_zero() && age > self.max_age {
            let (age, most) = (age.as_secs() / 60, self.max_age.as_secs() / 60);
            return Err(Unusable::Refused(format!(
                "they are {age} minutes old, and registry.statemaxage is {most} minutes"
            )));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok((self.decode(&bytes).map_err(Unusable::Refused)?, at))
    }

    /// Puts it in place as a whole, or not at all.
    pub(super) fn write(&self, inputs: &Inputs) -> io::Result<()> {
        let bytes = self.encode(inputs)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if !folder.exists() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let draft = folder.join(format!(".{FILE}.{}", std::process::id()));
        // A draft that an earlier process of this number left behind.
        let _ = fs::remove_file(&draft);
        let put = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
            File::open(folder)?.sync_all()
        };
        let done = put();
        if done.is_err() {
            let _ = fs::remove_file(&draft);
        }
        done
    }

    /// What is there is still right.
    fn confirm(&self) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.path)?.set_modified(SystemTime::now())
    }

    fn encode(&self, inputs: &Inputs) -> io::Result<Vec<u8>> {
        let plain = |list: &Manual| list.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect();
        let saved = |one: &Instance| Saved {
            id: one.id.to_string(),
            address: one.address.clone(),
            port: one.port,
            tags: one.tags.clone(),
            down: one.down,
            options: one.options.clone(),
        };
        let services = |all: &Inherited| {
            all.iter().map(|(name, all)| (name.to_string(), all.iter().map(saved).collect())).collect()
        };
        let document = Document {
            identity: self.identity.clone(),
            datacenter: inputs.datacenter.clone(),
            services: services(&inputs.services),
            datacenters: inputs.remote.iter().map(|(name, all)| (name.to_string(), services(all))).collect(),
            overrides: plain(&inputs.manual),
            page: inputs.page.clone(),
            options: plain(&inputs.named),
            error_pages: plain(&inputs.error_pages),
            disabled: inputs.disabled.clone(),
        };
        let body = serde_json::to_vec(&document)?;
        let mut bytes = format!("{MAGIC} {}\n", checksum(&body)).into_bytes();
        bytes.extend(body);
        if bytes.len() as u64 > LARGEST {
            return Err(io::Error::other(format!("the inputs of the table have more than {LARGEST} bytes")));
        }
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Inputs, String> {
        let (head, body) = match bytes.iter().take(HEAD).position(|byte| *byte == b'\n') {
            Some(end) => (&bytes[..end], &bytes[end + 1..]),
            None => return Err("this is no file of ferrio's".to_owned()),
        };
        let sum = std::str::from_utf8(head).ok().and_then(|head| head.strip_prefix(MAGIC)).map(str::trim);
        match sum {
            None => return Err("this is no file of ferrio's, or one of another version".to_owned()),
            Some(sum) if sum != checksum(body) => return Err("it is damaged: the checksum is another".to_owned()),
            Some(_) => {}
        }
        let document: Document = serde_json::from_slice(body).map_err(|error| format!("it is damaged: {error}"))?;
        if document.identity != self.identity {
            return Err(format!(
                "it is of another Consul or other keys ({:?}, not {:?})",
                route::excerpt(&document.identity),
                self.identity
            ));
        }
        let texts = |list: Vec<(String, String)>| -> Manual {
            list.into_iter().map(|(key, text)| (key.into(), text.into())).collect()
        };
        let mut remote = document.datacenters;
        let others = self.datacenters.iter().filter(|other| *other.name != *document.datacenter);
        let remote = others
            .filter_map(|other| Some((other.name.clone(), services(remote.remove(&*other.name)?, Some(other)))))
            .collect();
        let mut manual = texts(document.overrides);
        manual.sort();
        Ok(Inputs {
            datacenter: document.datacenter,
            services: services(document.services, None),
            remote,
            manual,
            page: document.page,
            named: texts(document.options),
            error_pages: texts(document.error_pages),
            disabled: document.disabled,
        })
    }
}

/// Writes what the table is made of some time after it changed. Never ends.
pub(super) async fn keep(store: Store, feed: Feed, board: Arc<Board>, mut changed: watch::Receiver<u64>) {
    let mut complained = false;
    loop {
        tokio::select! {
            end = changed.changed() => if end.is_err() { return },
            () = tokio::time::sleep(CONFIRM) => {
                // Nothing new for long is no reason to be old.
                if board.is_well() {
                    let store = store.clone();
                    let _ = tokio::task::spawn_blocking(move || store.confirm()).await;
                }
                continue;
            }
        }
        tokio::time::sleep(DEBOUNCE).await;
        let _ = changed.borrow_and_update();
        if board.stale().is_some() {
            // What is in force came from here. Its end is a change.
            continue;
        }
        let Some(ingredients) = feed.ingredients().await else {
            changed.mark_changed();
            continue;
        };
        let writer = store.clone();
        match tokio::task::spawn_blocking(move || writer.write(&ingredients.inputs())).await {
            Ok(Ok(())) => {
                complained = false;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                metrics::gauge!(names::REGISTRY_SAVED).set(now.as_secs_f64());
            }
            Ok(Err(error)) => {
                metrics::counter!(names::REGISTRY_SAVE_ERRORS).increment(1);
                if !std::mem::replace(&mut complained, true) {
                    let path = store.path.display();
                    tracing::warn!(
                        "registry: cannot save the routes in {path}: {error}. A start without Consul would have old \
                         routes or none"
                    );
                }
                tokio::time::sleep(AGAIN).await;
                changed.mark_changed();
            }
            Err(_) => return,
        }
    }
}

fn services(saved: BTreeMap<String, Vec<Saved>>, datacenter: Option<&Arc<Datacenter>>) -> Inherited {
    let services = saved.into_iter().map(|(name, all)| {
        let name: Arc<str> = name.into();
        let instance = |one: Saved| Instance {
            service: name.clone(),
            id: one.id.into(),
            datacenter: datacenter.cloned(),
            address: one.address,
            port: one.port,
            tags: one.tags,
            down: one.down,
            options: one.options.into_iter().map(|(key, value)| (key, route::held(&value))).collect(),
        };
        let mut all: Vec<Instance> = all.into_iter().map(instance).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all.dedup_by(|a, b| a.id == b.id);
        (name, all.into())
    });
    services.collect()
}

fn checksum(body: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, body);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

const FILE: &str = "routes.state";
/// And the version of the format.
const MAGIC: &str = "ferrio-routes 1";
/// Bytes within which the first line ends.
const HEAD: usize = 200;
/// Of the file: 10,000 services of ten instances have some 20 MB.
const LARGEST: u64 = 64 << 20;
/// Changes within this time are written once.
const DEBOUNCE: Duration = Duration::from_secs(2);
const CONFIRM: Duration = Duration::from_secs(60);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(30);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
