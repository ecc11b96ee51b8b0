//! Origins: the servers behind the proxy under test. They record requests as they came and answer by a script.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::wire::{Body, Head, Stream, Wire};
use super::{PATIENCE, until};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: Head,
    /// Empty for a script that begins with [`Script::early`].
    pub(crate) body: Body,
    pub(crate) peer: SocketAddr,
    /// Which connection of this origin, from 0.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.head.word(0)
    }

    pub(crate) fn target(&self) -> &str {
        self.head.word(1)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.one(name)
    }
}

/// Holds scripts at a point until the test opens it. Stays open.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new(Semaphore::new(0)))
    }

    pub(crate) fn open(&self) {
        self.0.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn pass(&self) {
        self.0.acquire().await.expect("never closed").forget();
    }
}

/// What an origin does with one request, step by step. If it does not end with a close, the next request is awaited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    early: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    Gate(Gate),
    Close,
    CloseIdle(Duration),
    ResetIdle(Duration),
    Reset,
    Hang,
    Echo,
}

/// A complete response with Content-Length.
pub(crate) fn reply(status: u16, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Script {
    let body = body.as_ref();
    let length = body.len().to_string();
    let mut fields = fields.to_vec();
    // These have none, and a length would be about something else.
    if !(status < 200 || status == 204 || status == 304) {
        fields.push(("Content-Length", &length));
    }
    head(status, &fields).send(body)
}

/// A response head alone, for bodies that follow piece by piece.
pub(crate) fn head(status: u16, fields: &[(&str, &str)]) -> Script {
    let mut text = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in fields {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    raw(text)
}

/// The head of a chunked response; go on with [`Script::chunk`] and [`Script::end`].
pub(crate) fn chunked(fields: &[(&str, &str)]) -> Script {
    head(200, &[&[("Transfer-Encoding", "chunked")], fields].concat())
}

/// A body that ends with the connection.
pub(crate) fn until_close(body: &str) -> Script {
    head(200, &[]).send(body).close()
}

/// These bytes, whatever they are.
pub(crate) fn raw(bytes: impl AsRef<[u8]>) -> Script {
    Script::default().send(bytes)
}

/// An interim response in front of `then`.
pub(crate) fn interim(status: u16, fields: &[(&str, &str)], mut then: Script) -> Script {
    let mut script = head(status, fields);
    script.steps.append(&mut then.steps);
    script
}

/// Closes without an answer.
pub(crate) fn hang_up() -> Script {
    Script::default().close()
}

/// Resets without an answer.
pub(crate) fn reset() -> Script {
    Script::default().reset()
}

/// Never answers.
pub(crate) fn hang() -> Script {
    Script { early: false, steps: vec![Step::Hang] }
}

/// Agrees to a WebSocket and then sends every byte back. (Frames are opaque to a proxy; so they are here.)
pub(crate) fn websocket() -> Script {
    let mut script = head(101, &[("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "x")]);
    script.steps.push(Step::Echo);
    script
}

impl Script {
    pub(crate) fn send(mut self, bytes: impl AsRef<[u8]>) -> Script {
        if !bytes.as_ref().is_empty() {
            self.steps.push(Step::Send(bytes.as_ref().to_vec()));
        }
        self
    }

    pub(crate) fn chunk(self, bytes: impl AsRef<[u8]>) -> Script {
        let bytes = bytes.as_ref();
        self.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
    }

    /// The last chunk and trailers.
    pub(crate) fn end(self, trailers: &[(&str, &str)]) -> Script {
        let lines: String = trailers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        self.send(format!("0\r\n{lines}\r\n"))
    }

    pub(crate) fn wait(mut self, time: Duration) -> Script {
        self.steps.push(Step::Wait(time));
        self
    }

    pub(crate) fn gate(mut self, gate: &Gate) -> Script {
        self.steps.push(Step::Gate(gate.clone()));
        self
    }

    pub(crate) fn close(mut self) -> Script {
        self.steps.push(Step::Close);
        self
    }

    pub(crate) fn reset(mut self) -> Script {
        self.steps.push(Step::Reset);
        self
    }

    /// Keeps the connection, and closes it when it has been idle that long.
    pub(crate) fn close_idle(mut self, after: Duration) -> Script {
        self.steps.push(Step::CloseIdle(after));
        self
    }

    /// As [`Script::close_idle`], with a RST.
    pub(crate) fn reset_idle(mut self, after: Duration) -> Script {
        self.steps.push(Step::ResetIdle(after));
        self
    }

    /// Everything before what it has so far: waits.
    pub(crate) fn after(mut self, time: Duration) -> Script {
        self.steps.insert(0, Step::Wait(time));
        self
    }

    /// Everything before what it has so far: a gate.
    pub(crate) fn behind(mut self, gate: &Gate) -> Script {
        self.steps.insert(0, Step::Gate(gate.clone()));
        self
    }

    /// Does not read the request body first (nor at all).
    pub(crate) fn early(mut self) -> Script {
        self.early = true;
        self
    }
}

struct Shared {
    /// By path without query.
    scripts: Mutex<HashMap<String, Script>>,
    otherwise: Mutex<Script>,
    /// By path; gone when used.
    once: Mutex<HashMap<String, Script>>,
    seen: Mutex<Vec<Seen>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    stop: watch::Sender<bool>,
}

/// A running origin; stops when dropped, all its connections with it.
pub(crate) struct Origin {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Answers 200 with `name` as body, until told otherwise.
    pub(crate) async fn start(name: &str) -> Origin {
        Origin::serve(name, None).await
    }

    pub(crate) async fn start_tls(name: &str, config: Arc<rustls::ServerConfig>) -> Origin {
        Origin::serve(name, Some(TlsAcceptor::from(config))).await
    }

    async fn serve(name: &str, tls: Option<TlsAcceptor>) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            scripts: Mutex::default(),
            otherwise: Mutex::new(reply(200, &[], name)),
            once: Mutex::default(),
            seen: Mutex::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            stop: watch::channel(false).0,
        });
        let task = tokio::spawn(accept(listener, tls, shared.clone()));
        Origin { addr, shared, task }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `http://127.0.0.1:PORT/`
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Requests for this path, any query.
    pub(crate) fn on(&self, path: &str, script: Script) {
        self.shared.scripts.lock().unwrap().insert(path.to_owned(), script);
    }

    /// The next request for this path.
    pub(crate) fn once(&self, path: &str, script: Script) {
        self.shared.once.lock().unwrap().insert(path.to_owned(), script);
    }

    /// Requests for which there is no script by path.
    pub(crate) fn always(&self, script: Script) {
        *self.shared.otherwise.lock().unwrap() = script;
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The last request; panics if there was none.
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("a request at the origin")
    }

    /// Waits for the `n`th request, from 1, and gives it.
    pub(crate) async fn wait(&self, n: usize) -> Seen {
        until(PATIENCE, &format!("request {n} at the origin"), async || self.seen().get(n - 1).cloned()).await
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Closes every connection that is open now (the listener goes on).
    pub(crate) fn disconnect(&self) {
        self.shared.stop.send_replace(true);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
        self.disconnect();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((tcp, peer)) = listener.accept().await {
        let (shared, tls) = (shared.clone(), tls.clone());
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let _open = Open::new(&shared);
            let mut stop = shared.stop.subscribe();
            let served = connection(tcp, peer, number, tls, &shared);
            tokio::select! {
                _ = served => {}
                _ = stop.changed() => {}
            }
        });
    }
}

struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Open<'a> {
        shared.open.fetch_add(1, Ordering::SeqCst);
        Open(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn connection(
    tcp: TcpStream,
    peer: SocketAddr,
    number: usize,
    tls: Option<TlsAcceptor>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut wire = Wire::new(match tls {
        Some(tls) => Stream::Tls(Box::new(tls.accept(tcp).await?.into())),
        None => Stream::Plain(tcp),
    });
    let mut idle = None;
    loop {
        let head = match idle {
            Some(idle) => match tokio::time::timeout(idle, wire.head()).await {
                Ok(head) => head?,
                Err(_) => return Ok(()),
            },
            None => wire.head().await?,
        };
        let Some(head) = head else { return Ok(()) };
        let path = head.word(1).split('?').next().unwrap_or_default();
        let script = shared.once.lock().unwrap().remove(path);
        let script = script.or_else(|| shared.scripts.lock().unwrap().get(path).cloned());
        let script = script.unwrap_or_else(|| shared.otherwise.lock().unwrap().clone());
        let expects = head.all("expect").first().copied().is_some_and(|v| v.eq_ignore_ascii_case("100-continue"));
        if expects && !script.early {
            wire.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = if script.early { Body::default() } else { wire.body(&head, false).await? };
        let bodiless = head.word(0) == "HEAD";
        shared.seen.lock().unwrap().push(Seen { head, body, peer, connection: number });
        match perform(&mut wire, script, bodiless).await? {
            Then::KeepAlive(after) => idle = after.or(idle),
            Then::Close => return Ok(()),
        }
    }
}

enum Then {
    KeepAlive(Option<Duration>),
    Close,
}

async fn perform(wire: &mut Wire, script: Script, bodiless: bool) -> std::io::Result<Then> {
    let mut idle = None;
    let mut head_sent = false;
    for step in script.steps {
        match step {
            // The first piece that is sent is the head, or begins with it.
            Step::Send(_) if bodiless && head_sent => {}
            Step::Send(bytes) => {
                wire.send(&bytes).await?;
                head_sent = !bytes.starts_with(b"HTTP/1.1 1");
            }
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Gate(gate) => gate.pass().await,
            Step::Close => {
                let _ = wire.stream.shutdown().await;
                return Ok(Then::Close);
            }
            Step::CloseIdle(after) => idle = Some(after),
            Step::ResetIdle(after) => {
                wire.stream.reset_on_drop();
                idle = Some(after);
            }
            Step::Reset => {
                wire.stream.reset_on_drop();
                return Ok(Then::Close);
            }
            Step::Hang => std::future::pending().await,
            Step::Echo => loop {
                let bytes = wire.take_buffer();
                wire.send(&bytes).await?;
                if !wire.fill().await? {
                    let _ = wire.stream.shutdown().await;
                    return Ok(Then::Close);
                }
            },
        }
    }
    Ok(Then::KeepAlive(idle))
}

/// A raw TCP origin: `serve` is called for each connection.
pub(crate) struct TcpOrigin {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl TcpOrigin {
    pub(crate) async fn start<F, S>(serve: S) -> TcpOrigin
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(TcpStream) -> F + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let task = tokio::spawn(async move {
            // Dropped with the task, and with it the connections.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let _ = tcp.set_nodelay(true);
                connections.spawn(serve(tcp));
                while connections.try_join_next().is_some() {}
            }
        });
        TcpOrigin { addr, task }
    }

    /// Sends every byte back, and closes when the peer does.
    pub(crate) async fn echo() -> TcpOrigin {
        TcpOrigin::start(async |mut tcp: TcpStream| {
            let (mut from, mut to) = tcp.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        })
        .await
    }

    /// Speaks first, as mail and database servers do.
    pub(crate) async fn banner(text: &'static str) -> TcpOrigin {
        TcpOrigin::start(async move |mut tcp: TcpStream| {
            let _ = tcp.write_all(text.as_bytes()).await;
            let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
        })
        .await
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for TcpOrigin {
    fn drop(&mut self) {
        self.task.abort();
    }
}
