//! One thread of the data plane: its own runtime, its own sockets, its own pools.

use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, oneshot};

use super::edge::Edge;
use crate::auth::Auth;
use crate::life::{Phase, Watch};
use crate::listen;
use crate::metrics::{Metrics, Shard};
use crate::proxy::{self, http};
use crate::route::LiveTable;
use crate::upstream::{self, Pools};

/// What every worker gets.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) live: Arc<LiveTable>,
    pub(super) proxy: proxy::Config,
    pub(super) auth: Arc<Auth>,
    pub(super) upstream: upstream::Config,
    pub(super) metrics: Metrics,
    pub(super) life: Watch,
}

/// A socket of one worker, and what happens to its connections before HTTP.
pub(super) struct Socket {
    pub(super) listener: TcpListener,
    pub(super) edge: Arc<Edge>,
}

/// Starts a worker. The receiver hears when its last connection is done, at the latest after [`Phase::Ended`].
pub(super) fn start(number: usize, setup: Setup, sockets: Vec<Socket>) -> io::Result<oneshot::Receiver<()>> {
    let (done, finished) = oneshot::channel();
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime.block_on(run(Shard(number), setup, sockets)),
            Err(error) => tracing::error!("cannot make the runtime of worker {number}: {error}"),
        }
        let _ = done.send(());
    })?;
    Ok(finished)
}

async fn run(shard: Shard, setup: Setup, sockets: Vec<Socket>) {
    let Setup { live, proxy, auth, upstream, metrics, mut life } = setup;
    let pools = Pools::new(upstream);
    let sweep = tokio::task::spawn_local(pools.clone().sweep());
    let worker = Rc::new(http::Worker::new(live, proxy, auth, pools, metrics, shard));
    let open = Rc::new(Open::default());
    let accepting: Vec<_> = sockets
        .into_iter()
        .map(|socket| tokio::task::spawn_local(accept(socket, worker.clone(), open.clone(), life.clone())))
        .collect();
    life.reached(Phase::Closing).await;
    let all_done = async {
        for task in accepting {
            // A panic is in the log already.
            let _ = task.await;
        }
        open.none().await;
    };
    tokio::select! {
        () = all_done => {}
        () = life.reached(Phase::Ended) => {}
    }
    sweep.abort();
}

async fn accept(socket: Socket, worker: Rc<http::Worker>, open: Rc<Open>, life: Watch) {
    let Socket { listener, edge } = socket;
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("cannot use a listening socket: {error}"),
    };
    let settings = Rc::new(edge.http_listener());
    listen::accept(listener, life.clone(), move |stream, remote| {
        let (edge, settings, worker, life) = (edge.clone(), settings.clone(), worker.clone(), life.clone());
        let lease = open.clone().lease();
        tokio::task::spawn_local(async move {
            if let Some((stream, peer)) = edge.admit(stream, remote).await {
                http::serve(stream, peer, settings, worker, life).await;
            }
            drop(lease);
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
