//! The way to a server that may be down, or not even have a name yet: tried again and again in the background.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Each line is a datagram.
    Udp,
    Tcp,
}

/// What is sent is lost while there is no connection, and when more waits than a server can take.
pub(super) struct Sender(Option<mpsc::Sender<String>>);

/// Ends when everything was sent after the sender is gone, or soon after.
pub(super) struct Connection(JoinHandle<()>);

/// `address`: `host:port`; without a host it is this one.
pub(super) fn new(kind: Kind, address: &str) -> (Sender, Connection) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let address = if address.starts_with(':') { format!("localhost{address}") } else { address.to_owned() };
    (Sender(Some(sender)), Connection(tokio::spawn(run(kind, address, receiver))))
}

/// A sender whose texts are looked at.
#[cfg(test)]
pub(super) fn pair() -> (Sender, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Sender(Some(sender)), receiver)
}

/// For documents that are posted one by one. `post` keeps its own connection.
pub(super) fn posting(post: super::Post) -> (Sender, Connection) {
    let (sender, mut receiver) = mpsc::channel::<String>(DOCUMENTS);
    let posting = tokio::spawn(async move {
        let mut failing = false;
        while let Some(document) = receiver.recv().await {
            let posted = tokio::time::timeout(TIMEOUT, post(document)).await;
            let posted = posted.unwrap_or_else(|_| Err("no answer in time".into()));
            match &posted {
                Ok(()) if failing => tracing::info!("metrics: Circonus is reached again"),
                Err(error) if !failing => tracing::warn!("metrics: Circonus: {error}; data was lost"),
                _ => {}
            }
            failing = posted.is_err();
        }
    });
    (Sender(Some(sender)), Connection(posting))
}

impl Sender {
    pub(super) fn nowhere() -> Self {
        Self(None)
    }

    /// Text of whole lines.
    pub(super) fn send(&self, text: String) {
        if let (false, Some(sender)) = (text.is_empty(), &self.0) {
            let _ = sender.try_send(text);
        }
    }

    /// Lines without line breaks, once there are more than `above`.
    pub(super) fn send_many(&self, lines: &mut Vec<String>, above: usize) {
        if lines.len() > above {
            for chunk in lines.chunks(CHUNK) {
                self.send(chunk.join("\n"));
            }
            lines.clear();
        }
    }
}

impl Connection {
    pub(super) async fn ended(self) {
        let _ = tokio::time::timeout(PATIENCE, self.0).await;
    }
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

async fn run(kind: Kind, address: String, mut receiver: mpsc::Receiver<String>) {
    let mut socket: Option<(Socket, Instant)> = None;
    let mut pause = SHORTEST;
    let mut retry = Instant::now();
    let mut failing = false;
    while let Some(text) = receiver.recv().await {
        // A name may mean another address by now.
        if socket.as_ref().is_some_and(|(socket, since)| since.elapsed() > RENEW || is_closed(socket)) {
            socket = None;
        }
        if socket.is_none() {
            if Instant::now() < retry {
                continue;
            }
            match connect(kind, &address).await {
                Ok(connected) => socket = Some((connected, Instant::now())),
                Err(error) => {
                    if !failing {
                        tracing::warn!("metrics: {address}: {error}; it is tried again, data is lost meanwhile");
                        failing = true;
                    }
                    // Many that wait for the same server do not come back together.
                    retry = Instant::now() + pause.mul_f64(0.5 + fastrand::f64());
                    pause = (pause * 2).min(LONGEST);
                    continue;
                }
            }
        }
        let Some((connected, _)) = &mut socket else { continue };
        match send(connected, &text).await {
            Ok(()) => {
                if failing {
                    tracing::info!("metrics: {address} is reached again");
                }
                (failing, pause) = (false, SHORTEST);
            }
            Err(error) => {
                socket = None;
                if !failing {
                    tracing::warn!("metrics: {address}: {error}; data was lost");
                    failing = true;
                }
            }
        }
    }
}

async fn connect(kind: Kind, address: &str) -> io::Result<Socket> {
    let connecting = async {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
        for to in tokio::net::lookup_host(address).await? {
            let connected = match kind {
                Kind::Tcp => TcpStream::connect(to).await.map(Socket::Tcp),
                Kind::Udp => {
                    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                    let socket = UdpSocket::bind(any).await?;
                    socket.connect(to).await.map(|()| Socket::Udp(socket))
                }
            };
            match connected {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    tokio::time::timeout(TIMEOUT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn send(socket: &mut Socket, text: &str) -> io::Result<()> {
    match socket {
        Socket::Udp(socket) => {
            for line in text.lines() {
                match socket.send(line.as_bytes()).await {
                    // Nobody listens there, says the answer to an earlier datagram. Somebody may by now.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        let _ = socket.send(line.as_bytes()).await;
                    }
                    // A line longer than a datagram costs itself only.
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {}
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
            Ok(())
        }
        Socket::Tcp(stream) => tokio::time::timeout(TIMEOUT, stream.write_all(text.as_bytes()))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}

/// The first write after the other side has closed would seem to succeed.
fn is_closed(socket: &Socket) -> bool {
    let Socket::Tcp(stream) = socket else { return false };
    let mut answer = [0; 256];
    loop {
        match stream.try_read(&mut answer) {
            Ok(0) => return true,
            // Nobody should answer, but that is no reason to stop.
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Texts; about as many lines as [`CHUNK`] each.
const WAITING: usize = 64;
const DOCUMENTS: usize = 2;
const CHUNK: usize = 1024;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(300);
/// At the end of the process.
const PATIENCE: Duration = Duration::from_millis(300);
