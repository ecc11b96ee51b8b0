//! A running source: reads, keeps the last good set, reports.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::authorities::Authorities;
use super::blobs::{Blobs, Maker, Problem, Set};
use super::certificate::{Certificate, Facts, sha256};
use super::directory::Directory;
use super::error::Error;
use super::file::Files;
use super::list::List;
use super::load::Load;
use super::store::{self, Store};
use super::tree::Tree;
use super::vault::{Issuer, Lead, Secrets, Vault};
use super::{CertSource, Env, Kind, series};

/// One entry of `proxy.cs` at work, for all listeners that name it. Dropping it ends its tasks.
pub struct Source {
    shared: Arc<Shared>,
    authorities: Option<Arc<Authorities>>,
    _tasks: Tasks,
}

/// What the tasks of a source and its owner have in common.
pub(super) struct Shared {
    name: String,
    kind: &'static str,
    place: String,
    store: Arc<Store>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    error: Option<String>,
    /// Why what was read last is not served.
    kept: Option<String>,
    problems: Vec<Problem>,
    checked: Option<(Instant, SystemTime)>,
    changed: Option<SystemTime>,
    /// Fingerprints of certificates that were reported to be out of their time.
    reported: HashSet<String>,
    /// Names with a gauge.
    gauges: HashSet<String>,
}

/// What to show about a source.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    /// As `type=` spells it.
    pub kind: &'static str,
    /// Where it reads, without secrets.
    pub place: String,
    pub certificates: Vec<Entry>,
    /// Pairs that cannot be used; an older certificate may be served in place of one.
    pub problems: Vec<Problem>,
    /// Why the last read failed or was not taken into service.
    pub error: Option<String>,
    /// Time since the last successful read; `None`: there was none yet.
    pub age: Option<Duration>,
    pub checked: Option<SystemTime>,
    /// When the served set changed last.
    pub changed: Option<SystemTime>,
}

/// One served certificate.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub facts: Facts,
    pub validity: Validity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Valid,
    NotYet,
    Expired,
}

impl Validity {
    fn of(facts: &Facts, now: i64) -> Self {
        if now < facts.not_before {
            Validity::NotYet
        } else if now > facts.not_after {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }
}

/// Starts a source on the current runtime, which has to be the control plane's.
///
/// A `file` source that cannot be loaded is an error, as are a place that cannot be one and authorities of clients that
/// cannot be loaded. Everything else is tried again and again; the first set is waited for a moment, so that listeners
/// begin with it when all is well.
pub async fn start(config: &CertSource, env: &Env) -> Result<Arc<Source>, Error> {
    let (reading, authorities) = loaders(config, env)?;
    let place = match &reading {
        Reading::Sets(loader) => loader.place(),
        Reading::OnDemand { vault, path } => vault.place(path),
    };
    let shared = Arc::new(Shared {
        name: config.name.clone(),
        kind: config.kind.word(),
        place,
        store: Arc::new(Store::new()),
        state: Mutex::default(),
    });
    let mut tasks = Tasks::default();
    let authorities = match authorities {
        None => None,
        Some(loader) => Some(start_authorities(config, loader, &mut tasks).await?),
    };
    match reading {
        Reading::Sets(loader) => {
            let mut runner = Runner::new(shared.clone(), loader);
            if let Kind::File { .. } = config.kind {
                runner.first_or_fail().await?;
                tasks.spawn(runner.run());
            } else {
                let mut delivered = runner.delivered.subscribe();
                tasks.spawn(runner.run());
                let _ = tokio::time::timeout(FIRST, delivered.wait_for(|done| *done)).await;
            }
        }
        Reading::OnDemand { vault, path } => {
            let (issuer, work) = Issuer::start(vault, &path, Lead::new(config.refresh), shared.clone());
            shared.store.set_issuer(issuer);
            tasks.spawn(work);
        }
    }
    tasks.spawn(observe(shared.clone()));
    Ok(Arc::new(Source { shared, authorities, _tasks: tasks }))
}

type Loader = Box<dyn Load>;

/// How a source comes by its certificates.
enum Reading {
    Sets(Loader),
    OnDemand { vault: Arc<Vault>, path: String },
}

/// For the certificates, and for the authorities of clients if there are to be any.
fn loaders(config: &CertSource, env: &Env) -> Result<(Reading, Option<Loader>), Error> {
    let refresh = config.refresh;
    let header = config.header.as_ref();
    let (loader, authorities): (Loader, _) = match &config.kind {
        Kind::File { cert, key, client_ca } => {
            let authorities = client_ca.as_ref().map(|path| Box::new(Files::single(path, refresh)) as Loader);
            (Box::new(Files::pair(cert, key, refresh)), authorities)
        }
        Kind::Path { cert, client_ca } => {
            let authorities = client_ca.as_ref().map(|path| Box::new(Directory::authorities(path, refresh)) as Loader);
            if authorities.is_none() && Directory::holds_any("clientca") {
                tracing::warn!(
                    "cert: source {} has no clientca, and the directory ./clientca is not used: fabio would demand client \
                     certificates because of it; write clientca=clientca if that is wanted",
                    config.name
                );
            }
            (Box::new(Directory::pairs(cert, refresh)), authorities)
        }
        Kind::Http { cert, client_ca } => {
            let list = |url: &String| List::new(url, header, refresh).map(|list| Box::new(list) as Loader);
            (list(cert)?, client_ca.as_ref().map(list).transpose()?)
        }
        Kind::Consul { cert, client_ca } => {
            let tree = |url: &String| Tree::new(url, env).map(|tree| Box::new(tree) as Loader);
            (tree(cert)?, client_ca.as_ref().map(tree).transpose()?)
        }
        Kind::Vault { cert, client_ca } => {
            let vault = vault(config, env)?;
            let secrets = |path: &String| Box::new(Secrets::new(vault.clone(), path, refresh)) as Loader;
            (secrets(cert), client_ca.as_ref().map(secrets))
        }
        Kind::VaultPki { cert, client_ca } => {
            let vault = vault(config, env)?;
            // `refresh` means something else here.
            let secrets = |path: &String| Box::new(Secrets::new(vault.clone(), path, REFRESH)) as Loader;
            let authorities = client_ca.as_ref().map(secrets);
            return Ok((Reading::OnDemand { vault, path: cert.clone() }, authorities));
        }
    };
    Ok((Reading::Sets(loader), authorities))
}

fn vault(config: &CertSource, env: &Env) -> Result<Arc<Vault>, Error> {
    let fetch = config.vault_fetch_token.as_deref().filter(|text| !text.is_empty());
    if fetch.is_some_and(|text| !text.starts_with("file:") && !text.starts_with("env:")) {
        tracing::warn!("vault: vaultfetchtoken not properly set: it must be file:PATH or env:NAME");
    }
    Vault::new(env, fetch)
}

async fn start_authorities(
    config: &CertSource,
    mut loader: Loader,
    tasks: &mut Tasks,
) -> Result<Arc<Authorities>, Error> {
    let upgrade = config.ca_upgrade_cn.clone();
    let fail = |cause| Error::ClientCa { source: config.name.clone(), cause: Box::new(cause) };
    // Without it, clients would not be asked for anything: that has to stop the start.
    let blobs = match tokio::time::timeout(AUTHORITIES, loader.load()).await {
        Ok(loaded) => loaded.map_err(fail)?.unwrap_or_default(),
        Err(_) => return Err(fail(Error::Fetch(format!("{}: no answer in time", loader.place())))),
    };
    let authorities = Arc::new(Authorities::new(&blobs, upgrade.as_deref()).map_err(fail)?);
    let (target, source) = (authorities.clone(), config.name.clone());
    tasks.spawn(async move {
        let mut last = hash(&blobs);
        let mut unread = Complaint::default();
        let mut unusable = Complaint::default();
        while let Some(pause) = loader.pause() {
            tokio::time::sleep(pause.max(if unread.is_open() { AGAIN } else { Duration::ZERO })).await;
            let blobs = match loader.load().await {
                Ok(blobs) => blobs,
                Err(error) => {
                    unread.open(&source, &error);
                    continue;
                }
            };
            unread.close();
            let Some(blobs) = blobs.filter(|blobs| hash(blobs) != last) else { continue };
            last = hash(&blobs);
            match target.replace(&blobs, upgrade.as_deref()) {
                Ok(()) => {
                    unusable.close();
                    tracing::info!("cert: source {source} has new authorities of clients");
                }
                Err(error) => unusable.open(&source, &error),
            }
        }
    });
    Ok(authorities)
}

/// Something about the authorities of clients that is told once.
#[derive(Default)]
struct Complaint(Option<String>);

impl Complaint {
    fn open(&mut self, source: &str, error: &Error) {
        metrics::counter!(series::ERRORS, "source" => source.to_owned()).increment(1);
        let text = error.to_string();
        if self.0.as_ref() != Some(&text) {
            tracing::error!("cert: clientca of source {source}: {text}; keeping the previous ones");
        }
        self.0 = Some(text);
    }

    fn is_open(&self) -> bool {
        self.0.is_some()
    }

    fn close(&mut self) {
        self.0 = None;
    }
}

/// Ended when dropped.
#[derive(Default)]
struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Source {
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// For the data plane.
    pub fn store(&self) -> Arc<Store> {
        self.shared.store.clone()
    }

    /// Set: listeners have to ask clients for a certificate.
    pub fn authorities(&self) -> Option<Arc<Authorities>> {
        self.authorities.clone()
    }

    pub fn report(&self) -> Report {
        let state = self.shared.state();
        let now = store::now();
        let entry = |certificate: &Certificate| Entry {
            name: certificate.name.clone(),
            facts: certificate.pair.facts.clone(),
            validity: Validity::of(&certificate.pair.facts, now),
        };
        Report {
            name: self.shared.name.clone(),
            kind: self.shared.kind,
            place: self.shared.place.clone(),
            certificates: self.shared.store.certificates().iter().map(entry).collect(),
            problems: state.problems.clone(),
            error: state.error.clone().or_else(|| state.kept.clone()),
            age: state.checked.map(|(at, _)| at.elapsed()),
            checked: state.checked.map(|(_, at)| at),
            changed: state.changed,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last good set stays. The same error is told once, and only if it may be told at all.
    pub(super) fn failed(&self, error: &Error, tell: bool) {
        metrics::counter!(series::ERRORS, "source" => self.name.clone()).increment(1);
        let text = error.to_string();
        let mut state = self.state();
        if tell && state.error.as_ref() != Some(&text) {
            tracing::error!("cert: Cannot load certificates from {}. {text}", self.place);
        }
        state.error = Some(text);
    }

    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!("cert: {} can be read again", self.place);
        }
        state.checked = Some((Instant::now(), SystemTime::now()));
    }

    /// Takes a new set into service.
    pub(super) fn publish(&self, set: Set) {
        let mut state = self.state();
        for problem in set.problems.iter().filter(|problem| !state.problems.contains(problem)) {
            tracing::error!("cert: Cannot make certificates: {problem} (source {})", self.name);
        }
        state.problems = set.problems;
        let before = self.store.certificates();
        if set.certificates.is_empty() && !before.is_empty() {
            let what = if state.problems.is_empty() { "is empty" } else { "holds no usable certificate" };
            let text = format!("{} {what}; keeping the previous certificates", self.place);
            tracing::error!("cert: {text}");
            state.kept = Some(text);
            return;
        }
        state.kept = None;
        let same = before.len() == set.certificates.len()
            && before.iter().zip(&set.certificates).all(|(a, b)| a.name == b.name && Arc::ptr_eq(&a.pair, &b.pair));
        if same {
            return;
        }
        self.store.replace(set.certificates);
        state.changed = Some(SystemTime::now());
        let names = names(&self.store.certificates());
        tracing::info!("cert: Store has certificates for {names} (source {})", self.name);
    }

    /// Takes these certificates into service, whatever was there.
    pub(super) fn replace(&self, certificates: Vec<Certificate>) {
        self.store.replace(certificates);
        self.state().changed = Some(SystemTime::now());
    }

    /// Tells about certificates that are out of their time, once each, and sets the gauges.
    pub(super) fn observe(&self) {
        let certificates = self.store.certificates();
        let now = store::now();
        let mut state = self.state();
        let mut reported = HashSet::new();
        for Certificate { name, pair } in certificates.iter() {
            let facts = &pair.facts;
            let what = match Validity::of(facts, now) {
                Validity::Valid => continue,
                Validity::NotYet => "not valid yet",
                Validity::Expired => "expired",
            };
            if !state.reported.contains(&facts.fingerprint) {
                tracing::warn!(
                    "cert: the certificate {name} for {} is {what} (source {})",
                    list(&facts.names),
                    self.name
                );
            }
            reported.insert(facts.fingerprint.clone());
        }
        let invalid = reported.len();
        state.reported = reported;

        let source = || self.name.clone();
        let gauge = |name: &'static str, value: f64| metrics::gauge!(name, "source" => source()).set(value);
        gauge(series::CERTIFICATES, certificates.len() as f64);
        gauge(series::INVALID, invalid as f64);
        gauge(series::PROBLEMS, state.problems.len() as f64);
        gauge(
            series::UP,
            if state.error.is_none() && state.kept.is_none() && state.checked.is_some() { 1.0 } else { 0.0 },
        );
        if let Some((at, _)) = state.checked {
            gauge(series::AGE, at.elapsed().as_secs_f64());
        }
        let mut gone = std::mem::take(&mut state.gauges);
        for certificate in certificates.iter() {
            metrics::gauge!(series::NOT_AFTER, "source" => source(), "name" => certificate.name.clone())
                .set(certificate.pair.facts.not_after as f64);
            gone.remove(&certificate.name);
            state.gauges.insert(certificate.name.clone());
        }
        for name in gone {
            metrics::gauge!(series::NOT_AFTER, "source" => source(), "name" => name).set(f64::NAN);
        }
    }
}

/// Reads again and again.
struct Runner {
    shared: Arc<Shared>,
    loader: Box<dyn Load>,
    maker: Maker,
    /// Of names and content of the last set.
    last: Option<[u8; 32]>,
    /// True once a first set is in service.
    delivered: watch::Sender<bool>,
}

impl Runner {
    fn new(shared: Arc<Shared>, loader: Box<dyn Load>) -> Self {
        Self { shared, loader, maker: Maker::default(), last: None, delivered: watch::Sender::new(false) }
    }

    /// For a source with a single pair: whatever is wrong with it is an error.
    async fn first_or_fail(&mut self) -> Result<(), Error> {
        self.step().await?;
        let state = self.shared.state();
        match state.problems.first() {
            Some(problem) => Err(Error::Pair { what: problem.name.clone(), cause: problem.error.clone() }),
            None => Ok(()),
        }
    }

    async fn run(mut self) {
        loop {
            let pause = match self.step().await {
                Ok(()) => {
                    self.delivered.send_replace(true);
                    match self.loader.pause() {
                        Some(pause) => pause,
                        None => return,
                    }
                }
                Err(error) => {
                    self.shared.failed(&error, true);
                    self.loader.pause().unwrap_or_default().max(AGAIN)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn step(&mut self) -> Result<(), Error> {
        let blobs = self.loader.load().await?;
        self.shared.succeeded();
        let Some(blobs) = blobs else { return Ok(()) };
        let hash = hash(&blobs);
        if self.last == Some(hash) {
            return Ok(());
        }
        self.last = Some(hash);
        let pairs = self.loader.pairs(&blobs);
        // Thousands of keys take a second to parse: not on a thread that others wait for.
        let mut maker = std::mem::take(&mut self.maker);
        let (maker, set) = tokio::task::spawn_blocking(move || {
            let set = maker.make(&blobs, &pairs);
            (maker, set)
        })
        .await
        .map_err(|_| Error::Fetch("the certificates could not be parsed".into()))?;
        self.maker = maker;
        self.shared.publish(set);
        self.shared.observe();
        Ok(())
    }
}

/// Certificates expire without anybody touching them.
async fn observe(shared: Arc<Shared>) {
    loop {
        shared.observe();
        tokio::time::sleep(OBSERVE).await;
    }
}

fn hash(blobs: &Blobs) -> [u8; 32] {
    let parts = blobs.iter().flat_map(|(name, content)| {
        let content = match content {
            Ok(content) => sha256(content),
            Err(error) => sha256(error.to_string().as_bytes()),
        };
        [sha256(name.as_bytes()), content]
    });
    sha256(&parts.flatten().collect::<Vec<u8>>())
}

fn names(certificates: &[Certificate]) -> String {
    let names: Vec<String> = certificates.iter().flat_map(|each| each.pair.facts.names.clone()).collect();
    list(&names)
}

/// Some of the names.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("[{}{more}]", shown.join(" "))
}

/// Of the authorities of clients where `refresh` is not about them.
const REFRESH: Duration = Duration::from_secs(3);
/// The least time between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the start waits for the authorities of clients.
const AUTHORITIES: Duration = Duration::from_secs(30);
/// How long the start waits for a first set.
const FIRST: Duration = Duration::from_secs(2);
const OBSERVE: Duration = Duration::from_secs(15);
