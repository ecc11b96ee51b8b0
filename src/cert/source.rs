//! A running source: reads again and again, and takes into service what is good.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::acme::{self, Surroundings};
use super::authorities::Authorities;
use super::blobs::{Blobs, Maker};
use super::certificate::sha256;
use super::directory::Directory;
use super::error::Error;
use super::file::Files;
use super::list::List;
use super::load::Load;
use super::report::{Report, Shared};
use super::store::Store;
use super::tree::Tree;
use super::vault::{Issuer, Lead, Secrets, Vault};
use super::{CertSource, Env, Kind};
use crate::metrics::names;

/// One entry of `proxy.cs` at work, for all listeners that name it. Dropping it ends its tasks.
pub struct Source {
    shared: Arc<Shared>,
    authorities: Option<Arc<Authorities>>,
    _tasks: Tasks,
}

/// Starts a source on the current runtime, which has to be the control plane's.
///
/// A `file` source that cannot be loaded is an error, as are a place that cannot be one and authorities of clients that
/// cannot be loaded. Everything else is tried again and again; the first set is waited for a moment, so that listeners
/// begin with it when all is well.
pub async fn start(config: &CertSource, env: &Env) -> Result<Arc<Source>, Error> {
    start_acme(config, env, None).await
}

/// As [`start`], for sources that order certificates as well.
pub async fn start_acme(
    config: &CertSource,
    env: &Env,
    surroundings: Option<Surroundings>,
) -> Result<Arc<Source>, Error> {
    let (reading, authorities) = loaders(config, env)?;
    let place = match &reading {
        Reading::Sets(loader) => loader.place(),
        Reading::OnDemand { vault, path } => vault.place(path),
        Reading::Orders(config) => config.directory.clone(),
    };
    let shared = Arc::new(Shared::new(config.name.clone(), config.kind.word(), place));
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
        Reading::Orders(acme) => {
            let Some(surroundings) = surroundings else {
                return Err(Error::Place(format!("source {}: nothing here answers challenges", config.name)));
            };
            start_orders(&acme, config.refresh, env, surroundings, &shared, &mut tasks).await?;
        }
    }
    tasks.spawn(observe(shared.clone()));
    Ok(Arc::new(Source { shared, authorities, _tasks: tasks }))
}

#[cfg(feature = "acme")]
async fn start_orders(
    config: &acme::Config,
    refresh: Duration,
    env: &Env,
    surroundings: Surroundings,
    shared: &Arc<Shared>,
    tasks: &mut Tasks,
) -> Result<(), Error> {
    let mut work = acme::start(config, refresh.max(AGAIN), env, surroundings, shared.clone()).await?;
    tasks.spawn(work.follow);
    tasks.spawn(work.issue);
    let _ = tokio::time::timeout(FIRST, work.delivered.wait_for(|done| *done)).await;
    Ok(())
}

#[cfg(not(feature = "acme"))]
async fn start_orders(
    _config: &acme::Config,
    _refresh: Duration,
    _env: &Env,
    _surroundings: Surroundings,
    shared: &Arc<Shared>,
    _tasks: &mut Tasks,
) -> Result<(), Error> {
    Err(Error::Place(format!("source {}: this program was built without type=acme (feature acme)", shared.name)))
}

type Loader = Box<dyn Load>;

/// What can be known to be wrong without asking anybody: places that are none, and secrets that cannot be read.
pub fn check(config: &CertSource, env: &Env) -> Result<(), Error> {
    if let Kind::Acme { config, .. } = &config.kind {
        return config.check(env);
    }
    loaders(config, env).map(drop)
}

/// How a source comes by its certificates.
enum Reading {
    Sets(Loader),
    OnDemand { vault: Arc<Vault>, path: String },
    Orders(Box<acme::Config>),
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
        Kind::Acme { config, client_ca } => {
            let authorities = client_ca.as_ref().map(|path| Box::new(Files::single(path, refresh)) as Loader);
            return Ok((Reading::Orders(config.clone()), authorities));
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
        metrics::counter!(names::CERT_SOURCE_ERRORS, "source" => source.to_owned()).increment(1);
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

    /// Sets the gauges. Happens by itself now and then.
    pub fn observe(&self) {
        self.shared.observe();
    }

    pub fn report(&self) -> Report {
        self.shared.report()
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
        match self.shared.problem() {
            Some(problem) => Err(Error::Pair { what: problem.name, cause: problem.error }),
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

/// Of the authorities of clients where `refresh` is not about them.
const REFRESH: Duration = Duration::from_secs(3);
/// The least time between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the start waits for the authorities of clients.
const AUTHORITIES: Duration = Duration::from_secs(30);
/// How long the start waits for a first set.
const FIRST: Duration = Duration::from_secs(2);
const OBSERVE: Duration = Duration::from_secs(15);
