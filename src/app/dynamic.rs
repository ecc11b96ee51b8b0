//! Listeners whose ports follow the table (`tcp-dynamic`).
//!
//! Lives in the control plane: it compares the ports that a new table names with those that are open, and hands sockets to
//! the workers. A port that leaves the table stops accepting; its connections go on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::edge::{Edge, Sources};
use super::upgrade::Succession;
use super::worker::Socket;
use crate::life::{Phase, Watch};
use crate::listen::{self, Error};
use crate::route::LiveTable;

/// Where each worker takes more sockets.
pub(super) type Doors = Vec<mpsc::UnboundedSender<Socket>>;

/// What it takes to open a port.
#[derive(Clone)]
pub(super) struct Opening {
    pub(super) doors: Doors,
    pub(super) succession: Arc<Succession>,
    /// What we were given at start.
    pub(super) inherited: Arc<Mutex<listen::Inherited>>,
}

/// One such listener.
pub(super) struct Dynamic {
    config: listen::Config,
    edge: Arc<Edge>,
    /// Before the colon of every address; empty: all addresses.
    host: String,
}

impl Dynamic {
    pub(super) fn new(config: listen::Config, sources: &Sources) -> anyhow::Result<Self> {
        let host = config.addr.rsplit_once(':').map_or("", |(host, _)| host);
        // `0.0.0.0:0` is how fabio's documentation writes it, and means IPv6 as well.
        let host = if matches!(host, "0.0.0.0" | "[::]") { "" } else { host }.to_owned();
        Ok(Self { edge: Arc::new(Edge::new(config.clone(), sources)?), config, host })
    }

    /// Opens what the table names now, and follows it until [`Phase::Replaced`].
    pub(super) fn start(self, live: Arc<LiveTable>, tables: watch::Receiver<()>, opening: Opening, life: Watch) {
        let mut ports = Ports { listener: self, opening, open: HashMap::new(), refused: BTreeMap::new() };
        ports.follow(&live.load().table.tcp_ports());
        tokio::spawn(ports.run(live, tables, life));
    }

    fn bind(&self, port: u16, opening: &Opening) -> Result<Vec<std::net::TcpListener>, Error> {
        let config = listen::Config { addr: self.addr(port), ..self.config.clone() };
        let bound = {
            let mut inherited = opening.inherited.lock().unwrap_or_else(PoisonError::into_inner);
            listen::bind(&config, opening.doors.len(), &mut inherited)?
        };
        opening.succession.add(&config.addr, bound.duplicates()?);
        bound.open()
    }

    fn addr(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }
}

struct Ports {
    listener: Dynamic,
    opening: Opening,
    /// Dropping a sender closes its port.
    open: HashMap<u16, watch::Sender<()>>,
    /// Named, and not to be had; how often it was tried.
    refused: BTreeMap<u16, u32>,
}

impl Ports {
    async fn run(mut self, live: Arc<LiveTable>, mut tables: watch::Receiver<()>, mut life: Watch) {
        let longest = self.listener.config.refresh.max(FIRST_PAUSE);
        let mut pause = FIRST_PAUSE;
        loop {
            let again = !self.refused.is_empty();
            tokio::select! {
                () = life.reached(Phase::Replaced) => return,
                changed = tables.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    pause = FIRST_PAUSE;
                }
                // Whoever holds the port may have gone, and at first that is ourselves: workers take a moment to close.
                () = tokio::time::sleep(pause), if again => pause = (pause * 2).min(longest),
            }
            let wanted = live.load().table.tcp_ports();
            self.follow(&wanted);
        }
    }

    fn follow(&mut self, wanted: &BTreeSet<u16>) {
        self.open.retain(|port, _| {
            let stays = wanted.contains(port);
            if !stays {
                tracing::info!("TCP-DYNAMIC proxy no longer listening on {}:{port}", self.listener.host);
                self.opening.succession.remove(&self.listener.addr(*port));
            }
            stays
        });
        self.refused.retain(|port, _| wanted.contains(port));
        for port in wanted {
            if self.open.contains_key(port) {
                continue;
            }
            match self.listener.bind(*port, &self.opening) {
                Ok(sockets) => {
                    tracing::info!("TCP-DYNAMIC proxy listening on {}:{port}", self.listener.host);
                    self.refused.remove(port);
                    self.hand_out(*port, sockets);
                }
                Err(error) => {
                    let tries = self.refused.entry(*port).or_default();
                    *tries = tries.saturating_add(1);
                    if *tries == 2 {
                        tracing::warn!("{error}");
                    }
                }
            }
        }
    }

    fn hand_out(&mut self, port: u16, sockets: Vec<std::net::TcpListener>) {
        let (keep, until) = watch::channel(());
        for (listener, door) in sockets.into_iter().zip(self.opening.doors.iter().cycle()) {
            let socket = Socket { listener, edge: self.listener.edge.clone(), until: Some(until.clone()) };
            // A worker that is gone takes nothing; the process is ending, or it has panicked and said so.
            let _ = door.send(socket);
        }
        self.open.insert(port, keep);
    }
}

/// Between tries to get a port that is not to be had; then twice as long each time, up to `refresh`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
