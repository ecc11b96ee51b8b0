//! From a configuration to a running registry, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::consul::announce::Order;
use super::consul::overrides::Overrides;
use super::consul::own_keys::OwnKeys;
use super::consul::remote::Remotes;
use super::disabled::Control;
use super::preview::Preview;
use super::publish::{Feed, Funnel, Setup};
use super::state::{self, Inputs, Store, Unusable};
use super::status::{Board, Status};
use super::{Backend, Config, Publish, consul, custom, file, fixed};
use crate::consul::Client;
use crate::route::Allow;

#[derive(Debug)]
pub enum Error {
    /// The back-end did not answer until `registry.timeout`.
    Timeout { backend: &'static str, last: String },
    /// The configuration does not fit together.
    Setup(String),
    /// There is no address to register ourselves with.
    Register(String),
    /// Consul did not do what was asked.
    Consul(crate::consul::Error),
    /// A key with this ending would not be read.
    Suffix(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Timeout { backend, last } => write!(f, "Timeout registering backend. {backend}: {last}"),
            Error::Setup(what) => f.write_str(what),
            Error::Register(why) => write!(f, "cannot register ourselves: {why}"),
            Error::Consul(e) => write!(f, "{e}"),
            Error::Suffix(suffix) => write!(f, "{suffix:?} is not below the overrides: it has to begin with a slash"),
        }
    }
}

impl std::error::Error for Error {}

impl From<crate::consul::Error> for Error {
    fn from(e: crate::consul::Error) -> Self {
        Error::Consul(e)
    }
}

/// A running registry. Its tasks end when it is dropped.
pub struct Registry {
    board: Arc<Board>,
    ready: watch::Receiver<bool>,
    overrides: Overrides,
    control: Control,
    feed: Feed,
    /// `None`: no Consul.
    client: Option<Client>,
    /// A preview costs as much as a first table: one at a time.
    previewing: tokio::sync::Semaphore,
    orders: mpsc::Sender<Order>,
    tasks: Mutex<JoinSet<()>>,
}

/// Waits for the back-end, then starts watching it. An error is one that ends the program: see [`Error::Timeout`].
pub async fn start(config: Config, publish: Arc<dyn Publish>) -> Result<Registry, Error> {
    let board = Arc::new(Board::default());
    let feed = Feed::default();
    let (ready, is_ready) = watch::channel(false);
    let (aliases, wanted) = watch::channel(Default::default());
    let (orders, inbox) = mpsc::channel(4);
    let mut tasks = JoinSet::new();
    let mut setup = Setup {
        settings: config.settings.clone(),
        tag_prefix: String::new(),
        datacenter: String::new(),
        allow: Allow::default(),
        log: config.log,
    };
    let attempts = Attempts { deadline: Instant::now() + config.timeout, retry: config.retry };
    let mut overrides = Overrides::none();
    let mut saving = None;
    let mut control = Control::new(None);
    let mut agent = None;
    match &config.backend {
        Backend::Consul(consul) => {
            let client = Client::new(consul.client.clone()).map_err(|e| Error::Setup(e.to_string()))?;
            let store = config.state.as_ref().map(|state| Store::new(state, consul));
            let kept = store.as_ref().and_then(kept);
            // With something to serve there is no reason to wait for long.
            let fall_back = Instant::now() + config.timeout.min(PATIENCE);
            let deadline = if kept.is_some() { fall_back } else { attempts.deadline };
            let attempts = Attempts { deadline, ..attempts };
            let mut answered = true;
            setup.datacenter = loop {
                let error = match attempts.bounded(async { client.datacenter().await.map_err(|e| e.to_string()) }).await
                {
                    Ok(datacenter) => break datacenter,
                    Err(error) => error,
                };
                match (attempts.failed("consul", error).await, &kept) {
                    (Ok(()), _) => {}
                    (Err(_), Some((inputs, _))) => {
                        answered = false;
                        break inputs.datacenter.clone();
                    }
                    (Err(error), None) => return Err(error),
                }
            };
            board.own_datacenter(&setup.datacenter, client.clone());
            // Before our own services can be known: the first table is to wait for the others.
            let remotes = (!consul.datacenters.is_empty()).then(|| Remotes {
                client: client.clone(),
                config: (**consul).clone(),
                feed: feed.clone(),
                board: board.clone(),
                kept: kept.as_ref().map(|(inputs, _)| inputs.remote.clone()).unwrap_or_default(),
            });
            match remotes {
                Some(remotes) if answered => remotes.watch(&setup.datacenter, &mut tasks),
                None if answered => {}
                remotes => _ = tasks.spawn(ask_datacenter(client.clone(), feed.clone(), board.clone(), remotes)),
            }
            setup.tag_prefix.clone_from(&consul.tag_prefix);
            setup.allow.clone_from(&consul.allow);
            overrides = Overrides::new(client.clone(), &consul.kv_path);
            control = Control::new(Some((client.clone(), OwnKeys::new(&consul.kv_path))));
            agent = Some(client.clone());
            let (inherit, inherited) = oneshot::channel();
            let ends = consul::Ends { feed: &feed, board: &board, control: &control, inherited };
            consul::run(&mut tasks, client, consul, ends, wanted, inbox).await?;
            if let Some((inputs, at)) = kept {
                let (feed, board, control) = (feed.clone(), board.clone(), control.clone());
                tasks.spawn(async move {
                    tokio::time::sleep_until(fall_back.into()).await;
                    // Whoever sees the table sees what it is.
                    board.stale_since(at);
                    if !feed.fall_back(&inputs) {
                        board.fresh();
                        return;
                    }
                    tracing::warn!(
                        "registry: Consul does not say what the routes are. Serving the last known ones of {} services, \
                         right {} s ago, until it does",
                        inputs.services.len(),
                        at.elapsed().unwrap_or_default().as_secs()
                    );
                    control.inherit(&inputs.disabled);
                    let _ = inherit.send(inputs.services);
                });
            }
            saving = store;
        }
        Backend::Static { routes, page } => fixed::give(&feed, routes, page),
        Backend::File { path, page } => {
            let source = board.source("file");
            let files = loop {
                match file::Files::open(path, page.as_deref(), &feed, source.clone()) {
                    Ok(files) => break files,
                    Err(e) => attempts.failed("file", e).await?,
                }
            };
            tasks.spawn(files.watch(feed.clone()));
        }
        Backend::Custom(custom) => {
            let poll = custom::Poll::new(custom, board.source("custom"))?;
            while let Err(e) = attempts.bounded(poll.once(&feed)).await {
                attempts.failed("custom", e).await?;
            }
            feed.page(&custom.page);
            feed.services_known();
            feed.manual_known();
            tasks.spawn(poll.run(feed.clone()));
        }
    }
    tasks.spawn(control.clone().keep(feed.clone()));
    let funnel = Funnel::new(feed.clone(), board.clone(), setup, publish, ready, aliases);
    if let Some(store) = saving {
        tasks.spawn(state::keep(store, feed.clone(), board.clone(), funnel.changes()));
    }
    tasks.spawn(funnel.run());
    let previewing = tokio::sync::Semaphore::new(1);
    let (ready, client, tasks) = (is_ready, agent, Mutex::new(tasks));
    Ok(Registry { board, ready, overrides, control, feed, client, previewing, orders, tasks })
}

impl Registry {
    /// Returns once the first table is published.
    pub async fn ready(&self) {
        let mut ready = self.ready.clone();
        if ready.wait_for(|ready| *ready).await.is_err() {
            // Stopped: there will be none.
            std::future::pending::<()>().await;
        }
    }

    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Begins to register ourselves and the aliases. To be called once all listeners are open, so that a start which
    /// fails leaves nothing behind in Consul.
    pub async fn announce(&self) {
        let _ = self.orders.send(Order::Begin).await;
    }

    /// Leaves all registrations to whoever has taken over.
    pub async fn leave(&self) {
        let _ = self.orders.send(Order::Leave).await;
    }

    /// Takes all registrations back, for good. Bounded: a dead agent delays an exit by seconds only.
    pub async fn deregister(&self) {
        let (done, gone) = oneshot::channel();
        let all = async {
            if self.orders.send(Order::End(done)).await.is_ok() {
                let _ = gone.await;
            }
        };
        if tokio::time::timeout(DEREGISTER, all).await.is_err() {
            tracing::warn!("Consul did not answer in time, our registrations may still be there");
        }
    }

    /// When the routes in force were known to be right, if they are from disk.
    pub fn stale(&self) -> Option<SystemTime> {
        self.board.stale()
    }

    pub fn status(&self) -> Arc<Status> {
        Arc::new(self.board.status(self.is_ready()))
    }

    pub fn overrides(&self) -> Overrides {
        self.overrides.clone()
    }

    /// What is taken out of the table by hand.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What would change if the override with this suffix had this text. `None`: there is no table yet.
    pub async fn preview(&self, suffix: &str, text: &str) -> Result<Option<Preview>, Error> {
        let key = self.overrides.key(suffix)?;
        let Ok(_one) = self.previewing.acquire().await else { return Ok(None) };
        let Some(ingredients) = self.feed.ingredients().await else { return Ok(None) };
        let text = text.to_owned();
        Ok(tokio::task::spawn_blocking(move || ingredients.preview(&key, &text)).await.ok())
    }

    /// What Consul said about its leader with its last answer.
    pub fn contact(&self) -> Option<crate::consul::Contact> {
        self.client.as_ref()?.contact()
    }

    /// Ends all tasks. The last table stays in force.
    pub fn stop(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// What an earlier process has kept, if it can be used.
fn kept(store: &Store) -> Option<(Inputs, SystemTime)> {
    match store.read() {
        Ok(kept) => Some(kept),
        Err(Unusable::Missing) => None,
        Err(Unusable::Refused(why)) => {
            let path = store.path().display();
            tracing::warn!("registry: the saved routes in {path} are not used: {why}");
            None
        }
    }
}

/// Until Consul says it: what was kept may be of another time. Then the other datacenters are known, too.
async fn ask_datacenter(client: Client, feed: Feed, board: Arc<Board>, remotes: Option<Remotes>) {
    let own = loop {
        tokio::time::sleep(ASK_DATACENTER).await;
        if let Ok(own) = client.datacenter().await {
            break own;
        }
    };
    feed.datacenter(own.clone());
    board.own_datacenter(&own, client);
    // They end with this task.
    let mut tasks = JoinSet::new();
    if let Some(remotes) = remotes {
        remotes.watch(&own, &mut tasks);
    }
    while tasks.join_next().await.is_some() {}
}

/// The patience at start.
struct Attempts {
    deadline: Instant,
    retry: Duration,
}

impl Attempts {
    /// One attempt, which may hang.
    async fn bounded<T>(&self, attempt: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        // The first one gets a moment even if there is no time at all.
        let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        tokio::time::timeout(left, attempt).await.unwrap_or(Err("no answer".to_owned()))
    }

    /// After an attempt that failed: the pause before the next one, or the end of patience.
    async fn failed(&self, backend: &'static str, last: String) -> Result<(), Error> {
        tracing::warn!("Error initializing backend. {last}");
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::time::sleep(self.retry.min(left)).await;
        if self.retry > left { Err(Error::Timeout { backend, last }) } else { Ok(()) }
    }
}

/// How long Consul gets at start when the last known routes could be served instead.
const PATIENCE: Duration = Duration::from_secs(3);

const ASK_DATACENTER: Duration = Duration::from_secs(1);

const DEREGISTER: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
