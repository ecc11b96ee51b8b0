//! The only code that knows every part: build, bind, run, drain.

mod certificates;
mod conditions;
pub mod dev;
mod dynamic;
mod edge;
mod faults;
mod leaving;
pub mod log;
mod login;
mod mesh;
mod operations;
mod pages;
mod publish;
mod root;
mod signals;
mod tcp;
mod tcp_log;
mod upgrade;
mod views;
mod watchdog;
mod worker;

use std::future::{Future as _, poll_fn};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Resource;
use tokio::sync::{mpsc, oneshot};

use self::dynamic::{Doors, Dynamic, Opening};
use self::edge::{Edge, Sources};
use self::publish::Publisher;
use self::signals::Signals;
use self::upgrade::{Predecessor, Succession};
use self::watchdog::Pulses;
use self::worker::{Setup, Socket, Sockets};
use crate::access_log;
use crate::auth::Auth;
use crate::cert;
use crate::config::{self, Config, Failure, Level};
use crate::fetch;
use crate::life::{self, Life, Notify, Phase, Watch};
use crate::listen::{self, Bound, Limits, Proto};
use crate::metrics::Metrics;
use crate::proxy::udp;
use crate::registry::{self, SEVERAL_LINES};
use crate::route::LiveTable;
use crate::traces::Traces;
use crate::upstream;

/// As `/api/version` and `-v` show it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Everything that runs.
pub struct App {
    config: Config,
    live: Arc<LiveTable>,
    metrics: Metrics,
    access_log: Option<access_log::Log>,
    life: Life,
    listeners: Vec<Bound>,
    /// Bound when the table names ports.
    dynamic: Vec<listen::Config>,
    /// One socket per worker each.
    datagrams: Vec<(listen::Config, Vec<UdpSocket>)>,
    admin: Option<Bound>,
    succession: Arc<Succession>,
    /// Whose place we take.
    predecessor: Option<Predecessor>,
    /// Sockets that no listener has taken so far.
    inherited: listen::Inherited,
    /// To change its level while we run.
    log: Option<log::Handle>,
}

impl App {
    /// Binds every socket, without listening: what cannot be had fails here, before anybody hears of us.
    pub fn bind(config: Config) -> anyhow::Result<Self> {
        // The pages show what is counted, exporter or not.
        let watched = config.admin.as_ref().is_some_and(|admin| admin.access != crate::admin::Access::Closed);
        let metrics = if watched { Metrics::watched } else { Metrics::new }(&config.metrics, config.workers);
        let mut inherited = listen::Inherited::from_env();
        let predecessor = Predecessor::from_env()?;
        if let Some(predecessor) = &predecessor {
            predecessor.give(&mut inherited)?;
        }
        let of = |proto| config.listeners.iter().filter(move |listener| listener.proto == proto);
        let dynamic = of(Proto::TcpDynamic).cloned().collect();
        let datagrams = of(Proto::Udp)
            .map(|listener| Ok((listener.clone(), listen::bind_udp(listener, config.workers, &mut inherited)?)))
            .collect::<Result<Vec<(listen::Config, Vec<UdpSocket>)>, listen::Error>>()?;
        let listeners: Vec<Bound> = config
            .listeners
            .iter()
            .filter(|listener| !matches!(listener.proto, Proto::TcpDynamic | Proto::Udp))
            .map(|listener| {
                let workers = if is_data_plane(listener) { config.workers } else { 1 };
                listen::bind(listener, workers, &mut inherited)
            })
            .collect::<Result<_, _>>()?;
        let admin = config.admin.as_ref().map(|admin| listen::bind(&admin.listen, 1, &mut inherited));
        let admin = admin.transpose().context("ui")?;
        let succession = Arc::<Succession>::default();
        for bound in listeners.iter().chain(&admin) {
            succession.add(&bound.config.addr, bound.duplicates()?);
        }
        for (listener, sockets) in &datagrams {
            let duplicates = sockets.iter().map(|socket| socket.try_clone().map(OwnedFd::from));
            succession.add(&listener.addr, duplicates.collect::<Result<Vec<_>, _>>()?);
        }
        life::user::become_user(&config.user)?;
        // By whoever will put it aside and open it again.
        let access_log = start_access_log(&config)?;
        Ok(Self {
            config,
            live: Arc::default(),
            metrics,
            access_log,
            life: Life::new(),
            listeners,
            dynamic,
            datagrams,
            admin,
            succession,
            predecessor,
            inherited,
            log: None,
        })
    }

    /// Lets the admin API change the level of this log.
    pub fn with_log(self, log: &log::Handle) -> Self {
        Self { log: Some(log.clone()), ..self }
    }

    /// Runs until a signal ends it. `Ok` is a clean end.
    pub async fn run(self) -> anyhow::Result<()> {
        let notify = Notify::from_env();
        let signals = Signals::new(self.access_log.clone(), notify.clone());
        let mut signals = signals.context("cannot listen to signals")?;
        tokio::spawn(root::remind(self.config.insecure));
        let orders = certificates::Orders::new(&self.config);
        let limits = Limits::new(&self.config.limits, rustix::process::getrlimit(Resource::Nofile).current);
        tracing::debug!("At most {} connections of clients", limits.total());
        let client_headers = self.config.listeners.iter().any(|listener| listener.client_headers);
        let mut sources = Sources { client_headers, challenges: orders.challenges(), limits, ..Sources::default() };
        for source in &self.config.cert_sources {
            let started = cert::start_acme(source, &cert::Env::process(), orders.surroundings()).await?;
            sources.certificates.insert(source.name.clone(), started);
        }
        let shared = upstream::Shared::new(&self.config.upstream)?;
        let auth = Auth::start(&self.config.auth, &self.life.watch())?;
        let listeners: Vec<_> =
            self.listeners.into_iter().map(|bound| with_edge(bound, &sources)).collect::<Result<_, _>>()?;
        let admin: Option<_> = self.admin.map(|bound| with_pages(bound, &sources)).transpose().context("ui")?;
        let edges: Vec<_> = listeners.iter().chain(&admin).map(|(_, edge): &(Bound, Arc<Edge>)| edge.clone()).collect();
        let dynamic = self.dynamic.into_iter().map(|config| Dynamic::new(config, &sources));
        let dynamic = dynamic.collect::<Result<Vec<_>, _>>()?;
        let (strategy, sticky_key) = (&self.config.proxy.strategy, &self.config.upstream.sticky_key);
        let directory = upstream::Directory::new(self.metrics.clone(), strategy, sticky_key);
        let publisher = Arc::new(Publisher::new(self.live.clone(), directory));
        let tables = publisher.changes();
        let registry = tokio::select! {
            registry = registry::start(self.config.registry.clone(), publisher) => Arc::new(registry?),
            signal = signals.end(NOT_YET) => anyhow::bail!("Caught {signal}. Exiting"),
        };
        let Self { config, live, metrics, access_log, life, succession, predecessor, inherited, .. } = self;
        let exporting = tokio::spawn(metrics.clone().run(life.watch(), circonus(&config.metrics)?));
        let traces = config.traces.clone().map(Traces::new).transpose().context("tracing.otlp")?;
        let tracing = traces.clone().map(|traces| tokio::spawn(traces.run(life.watch())));
        if let Some(log) = &access_log {
            tokio::spawn(watch_access_log(log.clone()));
        }
        let mut pages = None;
        if let (Some((bound, edge)), Some(admin)) = (admin, &config.admin) {
            let parts = views::Parts {
                live: live.clone(),
                registry: registry.clone(),
                metrics: metrics.clone(),
                auth: auth.clone(),
                log: self.log.clone(),
                life: life.watch(),
                certificates: certificates::view(&sources, &edges),
                succession: succession.clone(),
            };
            let state = views::state(admin, &config, parts);
            tracing::info!("Admin server access mode {:?}", admin.access.name());
            let (addr, life) = (bound.config.addr.clone(), life.watch());
            let open = move || {
                tracing::info!("Admin server listening on {addr:?}");
                pages::admin(bound, &edge, &state, &life).context("ui")
            };
            // Whoever asks for our health is answered by the process before us, as long as we have no routes.
            match predecessor {
                None => open()?,
                Some(_) => pages = Some(open),
            }
        }
        tokio::spawn(publish_counts(edges, life.watch()));
        tokio::spawn(shared.credentials.clone().watch());
        if let registry::Backend::Consul(consul) = &config.registry.backend
            && !consul.connect.is_empty()
        {
            let (client, name) = (consul.client.clone(), consul.connect.clone());
            tokio::spawn(mesh::follow(client, name, shared.credentials.clone(), live.clone(), tables.clone()));
        }
        // Takes a moment, and must not take it from a worker.
        tokio::task::spawn_blocking(upstream::prepare);
        tracing::info!("Waiting for first routing table");
        notify.status("waiting for the first routing table");
        tokio::select! {
            () = registry.ready() => {}
            signal = signals.end(NOT_YET) => {
                tracing::info!("Caught {signal}. Exiting");
                registry.deregister().await;
                return Ok(());
            }
        }
        let setup = Setup {
            live: live.clone(),
            proxy: config.proxy.clone(),
            auth,
            upstream: config.upstream.clone(),
            shared: shared.clone(),
            metrics,
            access_log: access_log.clone(),
            traces,
            life: life.watch(),
            pulses: Pulses::new(&notify, config.workers),
        };
        let (mut workers, doors) = open(config.workers, listeners, self.datagrams, &setup)?;
        let inherited = Arc::new(Mutex::new(inherited));
        let opening = Opening { doors, succession: succession.clone(), inherited };
        for listener in dynamic {
            listener.start(setup.live.clone(), tables.clone(), opening.clone(), life.watch());
        }
        // Ports that tags name later are nobody's now.
        std::mem::take(&mut *opening.inherited.lock().unwrap_or_else(PoisonError::into_inner)).done();
        tokio::spawn(upstream::probe(setup.live.clone(), setup.upstream.clone(), setup.shared.clone()));
        life.advance(Phase::Serving);
        if let Some(open) = pages {
            open()?;
        }
        orders.follow(live, tables, life.watch());
        if let Some(predecessor) = predecessor {
            tokio::task::spawn_blocking(|| predecessor.ready()).await?;
        }
        notify.ready();
        if let Some(pulses) = setup.pulses.clone() {
            tokio::spawn(pulses.tell(notify.clone(), life.watch()));
        }
        registry.announce().await;
        let signal = tokio::select! {
            end = leaving::reign(&mut signals, &succession, &notify) => end,
            () = any_ended(&mut workers) => {
                // Its sockets are closed and its share of the clients is not served: somebody else must take over.
                life.advance(Phase::Leaving);
                registry.deregister().await;
                anyhow::bail!("a worker ended by itself");
            }
        };
        match signal {
            None => {
                leaving::make_way(&config.life, &registry, &life, &succession, &mut signals, workers).await;
                tracing::info!("Down");
            }
            Some(signal) => {
                tracing::info!("Caught {signal}. Exiting");
                notify.stopping();
                tokio::select! {
                    () = leaving::shut_down(&config.life, &registry, &life, &succession, workers) => tracing::info!("Down"),
                    signal = signals.end(leaving::LEAVING) => tracing::warn!("Caught {signal} again. Exiting at once"),
                }
            }
        }
        life.advance(Phase::Ended);
        let _ = tokio::time::timeout(LAST_MOMENT, exporting).await;
        if let Some(tracing) = tracing {
            // Ends by itself, in time.
            let _ = tracing.await;
        }
        if let Some(log) = access_log {
            log.flush(LAST_MOMENT);
        }
        Ok(())
    }
}

/// Runs until a signal ends it. 1 is for whatever kept us from a clean end.
pub fn start(config: Config, warnings: Vec<(Level, String)>, log: &log::Handle) -> ExitCode {
    log.set_level(config.log.level);
    tracing::info!("Setting log level to {}", config.log.level);
    tracing::info!(target: SEVERAL_LINES, "Runtime config\n{}", config::pretty(&config.json));
    tracing::info!("Version {VERSION} starting");
    raise_descriptors();
    for (level, text) in warnings {
        match level {
            Level::Debug | Level::Trace => tracing::debug!("{text}"),
            Level::Info => tracing::info!("{text}"),
            _ => tracing::warn!("{text}"),
        }
    }
    faults::tell();
    let run = || {
        let control = control_runtime()?;
        let result = App::bind(config).and_then(|app| control.block_on(app.with_log(log).run()));
        // Whatever still waits for Consul does not hold up the end.
        control.shutdown_background();
        result
    };
    match run() {
        Ok(()) => {
            log.flush(LAST_MOMENT);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("{error:#}"), log),
    }
}

/// Opens the access log, if there is to be one.
fn start_access_log(config: &Config) -> anyhow::Result<Option<access_log::Log>> {
    let Some(config) = &config.access_log else {
        tracing::info!("Access logging disabled");
        return Ok(None);
    };
    let log = access_log::Log::start(config.clone())
        .with_context(|| format!("log.access.target: cannot write to {}", config.target))?;
    tracing::info!("Writing access log to {}", config.target);
    Ok(Some(log))
}

/// Posts to the submission URL of Circonus, which is never shown: whoever knows it may send.
fn circonus(config: &crate::metrics::Config) -> anyhow::Result<Option<crate::metrics::Post>> {
    let url = config.circonus_url.clone();
    if url.is_empty() {
        return Ok(None);
    }
    let settings = fetch::Settings { https: url.starts_with("https:"), idle_connections: 1, ..Default::default() };
    let client = fetch::Client::new(settings).context("metrics.circonus.submissionurl")?;
    Ok(Some(Box::new(move |document| {
        let request =
            client.current().put(&url).header(http::header::CONTENT_TYPE, "application/json").body(document).send();
        Box::pin(async move {
            let answered = request.await.and_then(reqwest::Response::error_for_status);
            answered.map(drop).map_err(fetch::explain)
        })
    })))
}

/// Says and counts what the access log has lost.
async fn watch_access_log(log: access_log::Log) {
    let mut known = 0;
    loop {
        tokio::time::sleep(LOG_WATCH).await;
        let dropped = log.dropped();
        if dropped > known {
            tracing::warn!("{} lines of the access log were lost: {} is too slow", dropped - known, log.target());
            ::metrics::counter!(crate::metrics::names::ACCESS_LOG_DROPPED).absolute(dropped);
            known = dropped;
        }
    }
}

/// Words that may stand in the first place of the command line.
pub fn subcommands() -> Vec<&'static str> {
    crate::command::COMMANDS.iter().map(|command| command.name).chain(["dev"]).collect()
}

fn control_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .context("cannot make the runtime of the control plane")
}

/// As many descriptors as we may have: the usual soft limit of 1024 is some 500 requests under way.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!("Up to {:?} descriptors instead of {:?}", limit.maximum, limit.current),
        Err(error) => tracing::warn!("Cannot have more than {:?} descriptors: {error}", limit.current),
    }
}

/// Says why it is over.
fn fail(message: &str, log: &log::Handle) -> ExitCode {
    tracing::error!(target: log::FATAL, "{message}");
    log.flush(LAST_MOMENT);
    ExitCode::FAILURE
}

/// There is no configuration: says why and gives the exit code.
pub fn refuse(failure: &Failure, log: &log::Handle) -> ExitCode {
    if failure.code == 1 {
        return fail(&failure.to_string(), log);
    }
    eprintln!("{failure}");
    ExitCode::from(failure.code)
}

/// Served by the workers, unlike pages for people and scrapers.
fn is_data_plane(listener: &listen::Config) -> bool {
    listener.proto != Proto::Prometheus
}

fn with_edge(bound: Bound, sources: &Sources) -> anyhow::Result<(Bound, Arc<Edge>)> {
    let edge = Arc::new(Edge::new(bound.config.clone(), sources)?);
    Ok((bound, edge))
}

fn with_pages(bound: Bound, sources: &Sources) -> anyhow::Result<(Bound, Arc<Edge>)> {
    let edge = Arc::new(Edge::of_pages(bound.config.clone(), sources)?);
    Ok((bound, edge))
}

/// Handshakes are counted by listeners, and shown from time to time.
async fn publish_counts(edges: Vec<Arc<Edge>>, mut life: Watch) {
    let (mut known, mut said) = (0, None::<Instant>);
    loop {
        tokio::select! {
            () = life.reached(Phase::Ended) => return,
            () = tokio::time::sleep(PUBLISH_COUNTS) => {}
        }
        let refused: u64 = edges.iter().map(|edge| edge.publish_counts()).sum();
        if refused > known && said.is_none_or(|at| at.elapsed() >= SAY_REFUSED) {
            tracing::warn!("{} connections were closed at once: proxy.maxclients lets in no more", refused - known);
            (known, said) = (refused, Some(Instant::now()));
        }
    }
}

/// Opens every listener and starts the workers, which can be given more sockets through their doors.
fn open(
    workers: usize,
    listeners: Vec<(Bound, Arc<Edge>)>,
    datagrams: Vec<(listen::Config, Vec<UdpSocket>)>,
    setup: &Setup,
) -> anyhow::Result<(Vec<oneshot::Receiver<()>>, Doors)> {
    let mut sockets: Vec<Sockets> = (0..workers).map(|_| Sockets::default()).collect();
    for (bound, edge) in listeners {
        let kind = bound.config.proto.name().to_uppercase();
        tracing::info!("{kind} proxy listening on {}", bound.config.addr);
        if !is_data_plane(&bound.config) {
            pages::prometheus(bound, &edge, &setup.metrics, &setup.life)?;
            continue;
        }
        for (n, listener) in bound.open()?.into_iter().enumerate() {
            sockets[n % workers].streams.push(Socket { listener, edge: edge.clone(), until: None });
        }
    }
    for (config, bound) in datagrams {
        tracing::info!("UDP proxy listening on {}", config.addr);
        for (n, socket) in bound.into_iter().enumerate() {
            sockets[n % workers].datagrams.push((socket, udp::Listener { idle_timeout: config.read_timeout }));
        }
    }
    let mut doors = Vec::new();
    let start = |(number, sockets)| {
        let (door, more) = mpsc::unbounded_channel();
        doors.push(door);
        worker::start(number, setup.clone(), sockets, more)
    };
    let workers =
        sockets.into_iter().enumerate().map(start).collect::<Result<_, _>>().context("cannot start a worker")?;
    Ok((workers, doors))
}

/// Returns when a worker has ended, which before a shutdown means that it failed.
async fn any_ended(workers: &mut [oneshot::Receiver<()>]) {
    poll_fn(|cx| match workers.iter_mut().any(|worker| Pin::new(worker).poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Watches, admin, metrics: mostly waiting.
const CONTROL_THREADS: usize = 2;
const PUBLISH_COUNTS: Duration = Duration::from_secs(5);
const SAY_REFUSED: Duration = Duration::from_secs(30);
/// Also how often at most it is said.
const LOG_WATCH: Duration = Duration::from_secs(5);
const NOT_YET: &str = "this process has not started yet";
const LAST_MOMENT: Duration = Duration::from_millis(500);
