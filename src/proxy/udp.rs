//! Datagrams: each client has a session with one target, which ends when nothing has passed for a while.
//!
//! Replies go out from the listening socket, and from the address that the client wrote to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::note;
use super::tcp::{Ended, Family, Found, Reason, Worker};
use crate::life::{Phase, Watch};
use crate::metrics::Shard;
use crate::net::{Datagrams, Here};
use crate::upstream::{Endpoint, Entered, Pools, Verdict};

/// What all sessions of one listener share.
#[derive(Clone, Debug)]
pub struct Listener {
    /// `rt`; 0: [`IDLE`].
    pub idle_timeout: Duration,
}

/// Serves a socket until [`Phase::Replaced`], and then the sessions that are in use until they pause for a moment.
pub async fn serve(socket: UdpSocket, listener: Listener, worker: Rc<Worker>, mut life: Watch) {
    let socket = match Datagrams::new(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!("a listener for datagrams cannot be set up: {error}");
            return;
        }
    };
    let Ok(local) = socket.local_addr() else { return };
    // A new socket does not know yet that it can send, and what cannot be sent at once is lost.
    let _ = socket.writable().await;
    let socket = Rc::new(Socket {
        socket,
        local,
        key: format!(":{}", local.port()),
        listener,
        worker,
        sessions: RefCell::default(),
        most: most_sessions(),
        buffer: RefCell::new(vec![0; LARGEST].into()),
    });
    tokio::select! {
        () = socket.receive(true) => {}
        () = life.reached(Phase::Replaced) => {}
    }
    let quiet = async {
        while socket.is_busy() {
            tokio::time::sleep(QUIET / 4).await;
        }
    };
    if life.phase() == Phase::Replaced {
        // What clients send is for somebody else, who reads from the same socket. Targets that answer are heard.
        return quiet.await;
    }
    tokio::select! {
        () = socket.receive(false) => {}
        () = quiet => {}
    }
}

struct Socket {
    socket: Datagrams,
    local: SocketAddr,
    /// Of the route.
    key: String,
    listener: Listener,
    worker: Rc<Worker>,
    sessions: RefCell<HashMap<Ends, Rc<Session>>>,
    /// That many at a time; each is a descriptor.
    most: usize,
    /// For one datagram, between receiving and sending it.
    buffer: RefCell<Box<[u8]>>,
}

impl Socket {
    /// Passes on what clients send. Does not return.
    async fn receive(self: &Rc<Self>, new_sessions: bool) {
        loop {
            // An error belongs to a datagram sent earlier; there is nothing to be done about it.
            if self.socket.readable().await.is_err() {
                continue;
            }
            for _ in 0..BURST {
                let mut buffer = self.buffer.borrow_mut();
                let (length, ends) = match self.socket.try_receive(&mut buffer) {
                    Ok((length, client, here)) => (length, (client, here)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => continue,
                };
                let session = self.sessions.borrow().get(&ends).cloned();
                match session {
                    Some(session) if session.send(&buffer[..length]) => {}
                    // A target that refuses datagrams is left, for another one if there is one.
                    Some(session) => {
                        session.close(Reason::TargetFailed);
                        self.open(ends, &buffer[..length]);
                    }
                    None if new_sessions => self.open(ends, &buffer[..length]),
                    None => {}
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn open(self: &Rc<Self>, ends: Ends, first: &[u8]) {
        let worker = &self.worker;
        let found = worker.find_udp(&self.key, ends.0.ip());
        let Found::Targets(candidates) = found else {
            if !matches!(found, Found::Denied(_)) {
                worker.metrics.http().not_found(worker.shard);
            }
            return;
        };
        self.make_room();
        let target = candidates.first.enter();
        let idle = target.options.idle_timeout.unwrap_or(self.listener.idle_timeout);
        let session = Rc::new(Session {
            ends,
            idle: if idle.is_zero() { IDLE } else { idle },
            target,
            socket: RefCell::new(Upstream::Opening(Vec::new())),
            begun: Instant::now(),
            active: Cell::new(Instant::now()),
            from_client: Cell::new(0),
            from_target: Cell::new(0),
            answered: Cell::new(false),
            shard: worker.shard,
            closed: Notify::new(),
            why: Cell::new(Reason::Shutdown),
        });
        session.send(first);
        self.sessions.borrow_mut().insert(ends, session.clone());
        let leave = Leave { socket: self.clone(), session };
        tokio::task::spawn_local(async move { leave.session.why.set(leave.run().await) });
    }

    /// Whoever writes under ever new addresses pushes out sessions that are not used, not the others.
    fn make_room(&self) {
        let mut sessions = self.sessions.borrow_mut();
        if sessions.len() < self.most {
            return;
        }
        // Some at random: the table has no order.
        let oldest = sessions.iter().take(SAMPLE).min_by_key(|(_, session)| session.active.get());
        if let Some(ends) = oldest.map(|(ends, _)| *ends)
            && let Some(session) = sessions.remove(&ends)
        {
            session.close(Reason::Idle);
        }
    }

    fn is_busy(&self) -> bool {
        self.sessions.borrow().values().any(|session| session.active.get().elapsed() < QUIET)
    }
}

/// Who writes, and to which of our addresses.
type Ends = (SocketAddr, Here);

/// One client and its target.
struct Session {
    ends: Ends,
    target: Entered,
    socket: RefCell<Upstream>,
    idle: Duration,
    begun: Instant,
    active: Cell<Instant>,
    from_client: Cell<u64>,
    from_target: Cell<u64>,
    /// The target has sent something.
    answered: Cell<bool>,
    shard: Shard,
    closed: Notify,
    why: Cell<Reason>,
}

enum Upstream {
    /// What waits for the socket, a few datagrams at most.
    Opening(Vec<Box<[u8]>>),
    Open(Rc<UdpSocket>),
    Closed,
}

impl Session {
    /// What cannot be sent now is lost, as datagrams are. False: nobody listens there.
    fn send(&self, datagram: &[u8]) -> bool {
        self.active.set(Instant::now());
        match &mut *self.socket.borrow_mut() {
            Upstream::Opening(waiting) if waiting.len() < WAITING => waiting.push(datagram.into()),
            Upstream::Open(socket) => match socket.try_send(datagram) {
                Ok(_) => {
                    let length = datagram.len() as u64;
                    self.from_client.set(self.from_client.get() + length);
                    self.target.series.bytes(self.shard, 0, length);
                }
                Err(error) => return error.kind() != io::ErrorKind::ConnectionRefused,
            },
            Upstream::Opening(_) | Upstream::Closed => {}
        }
        true
    }

    fn close(&self, why: Reason) {
        self.why.set(why);
        self.socket.replace(Upstream::Closed);
        self.closed.notify_one();
    }

    fn opened(&self, socket: &Rc<UdpSocket>) {
        let mut state = self.socket.borrow_mut();
        if let Upstream::Opening(waiting) = &mut *state {
            let waiting = std::mem::take(waiting);
            *state = Upstream::Open(socket.clone());
            drop(state);
            for datagram in waiting {
                self.send(&datagram);
            }
        }
    }
}

/// Runs a session, and takes it out of the table in the end.
struct Leave {
    socket: Rc<Socket>,
    session: Rc<Session>,
}

impl Leave {
    async fn run(&self) -> Reason {
        let session = &*self.session;
        let connected =
            tokio::time::timeout(LOOKUP, connect(&session.target.endpoint, &self.socket.worker.pools)).await;
        let upstream = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(upstream) => Rc::new(upstream),
            Err(error) => {
                // Not louder: whoever makes up addresses must not fill the log.
                tracing::debug!("{} {}: {error}", session.target.service, session.target.destination.text);
                return Reason::Unreachable;
            }
        };
        session.opened(&upstream);
        loop {
            let until = session.active.get() + session.idle;
            tokio::select! {
                () = session.closed.notified() => return session.why.get(),
                readable = upstream.readable() => if readable.is_err() { return Reason::TargetFailed },
                () = tokio::time::sleep_until(until) => {
                    if session.active.get().elapsed() >= session.idle {
                        return Reason::Idle;
                    }
                }
            }
            for _ in 0..BURST {
                let mut buffer = self.socket.buffer.borrow_mut();
                match upstream.try_recv(&mut buffer) {
                    Ok(length) => {
                        session.active.set(Instant::now());
                        let (client, here) = session.ends;
                        if !session.answered.replace(true) {
                            note(&session.target, Verdict::Fine);
                        }
                        if self.socket.socket.try_send(&buffer[..length], client, here).is_ok() {
                            session.from_target.set(session.from_target.get() + length as u64);
                            session.target.series.bytes(session.shard, length as u64, 0);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return Reason::TargetFailed,
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let session = &self.session;
        let mut sessions = self.socket.sessions.borrow_mut();
        if sessions.get(&session.ends).is_some_and(|held| Rc::ptr_eq(held, session)) {
            sessions.remove(&session.ends);
        }
        drop(sessions);
        if matches!(session.why.get(), Reason::TargetFailed | Reason::Unreachable) && !session.answered.get() {
            note(&session.target, Verdict::Broken);
        }
        self.socket.worker.ended(&Ended {
            family: Family::Datagrams,
            remote: session.ends.0,
            local: self.socket.local,
            server_name: None,
            tls: None,
            target: Some(&session.target),
            from_client: session.from_client.get(),
            from_target: session.from_target.get(),
            took: session.begun.elapsed(),
            reason: session.why.get(),
        });
    }
}

/// An eighth of the descriptors that this process may have: other listeners and workers want theirs.
fn most_sessions() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(SESSIONS, |limit| usize::try_from(limit / 8).unwrap_or(SESSIONS).clamp(1, SESSIONS))
}

async fn connect(endpoint: &Endpoint, pools: &Pools) -> io::Result<UdpSocket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in pools.resolve(endpoint).await? {
        let any: SocketAddr = match addr {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        match socket.connect(addr).await {
            Ok(()) => {
                socket.writable().await?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// When neither listener nor route say anything: longer than resolvers wait for an answer.
pub const IDLE: Duration = Duration::from_secs(30);
/// The largest datagram there is.
const LARGEST: usize = 64 * 1024;
/// Of one listener and worker, if there are descriptors enough for that.
const SESSIONS: usize = 8192;
/// For the name of a target.
const LOOKUP: Duration = Duration::from_secs(5);
const SAMPLE: usize = 16;
/// Datagrams of a client while the name of its target is looked up.
const WAITING: usize = 16;
/// Without letting others have their turn.
const BURST: usize = 32;
/// A session in which nothing has passed for so long is not waited for at the end.
const QUIET: Duration = Duration::from_secs(1);
