//! One thread of the data plane: its own runtime, its own sockets, its own pools.

use std::cell::Cell;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::edge::Edge;
use super::tcp::{self as raw, Opened};
use super::watchdog::Pulses;
use crate::access_log;
use crate::auth::Auth;
use crate::life::{Phase, Watch};
use crate::listen;
use crate::metrics::{Metrics, Shard};
use crate::proxy::{self, http, tcp, udp};
use crate::route::LiveTable;
use crate::traces::Traces;
use crate::upstream::{self, Pools};

/// What every worker gets.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) live: Arc<LiveTable>,
    pub(super) proxy: proxy::Config,
    pub(super) auth: Arc<Auth>,
    pub(super) upstream: upstream::Config,
    pub(super) shared: upstream::Shared,
    pub(super) metrics: Metrics,
    pub(super) access_log: Option<access_log::Log>,
    pub(super) traces: Option<Traces>,
    pub(super) life: Watch,
    /// For whoever watches over us.
    pub(super) pulses: Option<Arc<Pulses>>,
}

/// A socket of one worker, and what happens to its connections before HTTP.
pub(super) struct Socket {
    pub(super) listener: TcpListener,
    pub(super) edge: Arc<Edge>,
    /// Accept until whoever holds the other end drops it; `None`: until the process ends.
    pub(super) until: Option<watch::Receiver<()>>,
}

/// What a worker begins with.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) streams: Vec<Socket>,
    pub(super) datagrams: Vec<(UdpSocket, udp::Listener)>,
}

/// Starts a worker. It opens more sockets when it is told to. The receiver hears when its last connection is done, at the latest after [`Phase::Ended`].
pub(super) fn start(
    number: usize,
    setup: Setup,
    sockets: Sockets,
    more: mpsc::UnboundedReceiver<Socket>,
) -> io::Result<oneshot::Receiver<()>> {
    let (done, finished) = oneshot::channel();
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => {
                runtime.block_on(run(Shard(number), setup, sockets, more));
                // A name that is still being looked up does not hold up the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!("cannot make the runtime of worker {number}: {error}"),
        }
        let _ = done.send(());
    })?;
    Ok(finished)
}

async fn run(shard: Shard, setup: Setup, sockets: Sockets, mut more: mpsc::UnboundedReceiver<Socket>) {
    let Setup { live, proxy, auth, upstream, shared, metrics, access_log, traces, life, pulses } = setup;
    let beat = pulses.map(|pulses| tokio::task::spawn_local(pulses.beat(shard.0)));
    let pools = Pools::new(upstream, shared);
    let sweep = tokio::task::spawn_local(pools.clone().sweep());
    let strategy = proxy.strategy.clone();
    let hook = access_log.as_ref().and_then(|log| super::tcp_log::hook(log.logger()));
    let tcp = tcp::Worker::new(live.clone(), strategy, pools.clone(), metrics.clone(), shard, hook);
    let observers = http::Observers::new(access_log.map(|log| log.logger()), traces.map(|traces| traces.tracer()));
    let proxies = Proxies {
        http: Rc::new(http::Worker::new(live, proxy, auth, pools, metrics.clone(), shard, observers)),
        tcp: Rc::new(tcp),
        metrics,
        shard,
    };
    let open = Rc::new(Open::default());
    let start = |socket| {
        // Counts as a connection, as long as some may come from it.
        let lease = open.clone().lease();
        let accept = accept(socket, proxies.clone(), open.clone(), life.clone());
        tokio::task::spawn_local(async move {
            accept.await;
            drop(lease);
        });
    };
    sockets.streams.into_iter().for_each(start);
    for (socket, listener) in sockets.datagrams {
        let (worker, life, lease) = (proxies.tcp.clone(), life.clone(), open.clone().lease());
        tokio::task::spawn_local(async move {
            match tokio::net::UdpSocket::from_std(socket) {
                Ok(socket) => udp::serve(socket, listener, worker, life).await,
                Err(error) => tracing::error!("cannot use a socket for datagrams: {error}"),
            }
            drop(lease);
        });
    }
    let mut closing = life.clone();
    loop {
        tokio::select! {
            () = closing.reached(Phase::Replaced) => break,
            Some(socket) = more.recv() => start(socket),
        }
    }
    let mut life = life;
    tokio::select! {
        () = open.none() => {}
        () = life.reached(Phase::Ended) => {}
    }
    sweep.abort();
    if let Some(beat) = beat {
        beat.abort();
    }
}

/// What answers, whatever the listener.
#[derive(Clone)]
struct Proxies {
    http: Rc<http::Worker>,
    tcp: Rc<tcp::Worker>,
    metrics: Metrics,
    shard: Shard,
}

async fn accept(socket: Socket, proxies: Proxies, open: Rc<Open>, life: Watch) {
    let Socket { listener, edge, until } = socket;
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("cannot use a listening socket: {error}"),
    };
    let settings = Rc::new(edge.http_listener());
    let place = tcp::Place { worker: proxies.tcp.clone(), listener: Rc::new(edge.tcp_listener()) };
    let is_tcp = edge.is_tcp();
    let mut closing = life.clone();
    let end = async move {
        match until {
            None => closing.reached(Phase::Replaced).await,
            Some(mut until) => tokio::select! {
                () = closing.reached(Phase::Replaced) => {}
                _ = until.changed() => {}
            },
        }
    };
    listen::accept(listener, end, move |stream, remote| {
        let Some(mut seat) = edge.seat() else { return };
        let (edge, settings, worker, life) = (edge.clone(), settings.clone(), proxies.http.clone(), life.clone());
        // Counted in the metrics, and waited for at the end.
        let lease = (open.clone().lease(), proxies.metrics.connection(proxies.shard));
        if is_tcp {
            let place = place.clone();
            tokio::task::spawn_local(async move {
                // In boxes of their own, which are gone once bytes flow: idle connections are to be small.
                let opened = Box::pin(async move {
                    raw::open(&edge, place, stream, remote, &mut seat).await.map(|opened| (opened, seat))
                })
                .await;
                let Some((opened, seat)) = opened else { return drop(lease) };
                match opened {
                    Opened::Tunnel(connection, client, target) => connection.relay(client, target).await,
                    Opened::Http(stream, peer) => Box::pin(http::serve(stream, peer, settings, worker, life)).await,
                }
                drop(seat);
                drop(lease);
            });
            return;
        }
        tokio::task::spawn_local(async move {
            if let Some((stream, peer)) = edge.admit(stream, remote, &mut seat).await {
                http::serve(stream, peer, settings, worker, life).await;
            }
            drop((seat, lease));
        });
    })
    .await;
}

/// Counts the connections of a worker.
#[derive(Default)]
struct Open {
    count: Cell<usize>,
    changed: Notify,
}

/// One connection. Dropping it counts it out, also when its task panicked.
struct Lease(Rc<Open>);

impl Open {
    fn lease(self: Rc<Self>) -> Lease {
        self.count.set(self.count.get() + 1);
        Lease(self)
    }

    async fn none(&self) {
        while self.count.get() > 0 {
            self.changed.notified().await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.changed.notify_one();
    }
}
