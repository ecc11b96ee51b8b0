//! Lines as syslog messages: RFC 5424 over UDP (RFC 5426) and TCP (RFC 6587), the older form on a local socket, which is what
//! the daemons behind `/dev/log` read.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::clock::Moment;

/// Where a syslog server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A datagram socket in the file system.
    Unix(PathBuf),
    /// `host:port`
    Udp(String),
    Tcp(String),
}

impl Address {
    /// `/dev/log`, `host`, `host:port`, `udp://host:port`, `tcp://host:port`. Without a port it is 514.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (text, tcp) = match (text.strip_prefix("tcp://"), text.strip_prefix("udp://")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => (text, false),
        };
        if text.starts_with('/') && !tcp {
            return Ok(Address::Unix(text.into()));
        }
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let bare = !text.contains(':') || text.ends_with(']');
        if text.is_empty() || text.contains('/') || text.starts_with(':') || !(has_port || bare) {
            return Err(format!(
                "invalid syslog address {text:?}; write /dev/log, host:port, udp://host:port or tcp://host:port"
            ));
        }
        let address = if bare { format!("{text}:514") } else { text.to_owned() };
        Ok(if tcp { Address::Tcp(address) } else { Address::Udp(address) })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Udp(address) => write!(f, "udp://{address}"),
            Address::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A server that may come and go.
pub(super) struct Syslog {
    address: Address,
    connection: Option<Connection>,
    /// Not tried again before.
    retry: Option<Instant>,
    host: String,
    pid: u32,
    message: Vec<u8>,
}

enum Connection {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Syslog {
    pub(super) fn new(address: Address) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().replace(|c: char| !c.is_ascii_graphic(), "_");
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Self { address, connection: None, retry: None, host, pid: std::process::id(), message: Vec::new() }
    }

    /// Gives how many lines were lost, and why the last one was.
    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> (u64, Option<io::Error>) {
        let (mut lost, mut why) = (0, None);
        let mut begin = 0;
        for end in ends {
            let line = &bytes[begin..*end];
            begin = *end;
            if let Err(error) = self.send(line.strip_suffix(b"\n").unwrap_or(line)) {
                lost += 1;
                why = Some(error);
            }
        }
        (lost, why)
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.compose(line);
        let fresh = self.connection.is_none();
        match self.send_once() {
            // A server that was started again: the old connection only tells now.
            Err(_) if !fresh => self.send_once(),
            result => result,
        }
    }

    fn send_once(&mut self) -> io::Result<()> {
        if self.connection.is_none() {
            if self.retry.is_some_and(|at| Instant::now() < at) {
                return Err(io::Error::new(io::ErrorKind::NotConnected, format!("{} does not answer", self.address)));
            }
            match connect(&self.address) {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    self.retry = Some(Instant::now() + RETRY);
                    return Err(error);
                }
            }
        }
        let message = &self.message;
        let sent = match self.connection.as_mut().expect("was just made") {
            Connection::Unix(socket) => socket.send(message).map(drop),
            Connection::Udp(socket) => socket.send(message).map(drop),
            Connection::Tcp(stream) => {
                let mut framed = format!("{} ", message.len()).into_bytes();
                framed.extend_from_slice(message);
                stream.write_all(&framed)
            }
        };
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    fn compose(&mut self, line: &[u8]) {
        let out = &mut self.message;
        let now = Moment::new(SystemTime::now());
        out.clear();
        let _ = write!(out, "<{PRIORITY}>");
        match self.address {
            Address::Unix(_) => {
                now.syslog(out);
                let _ = write!(out, " ferrio[{}]: ", self.pid);
            }
            Address::Udp(_) | Address::Tcp(_) => {
                out.extend_from_slice(b"1 ");
                now.rfc3339(6, out);
                let _ = write!(out, " {} ferrio {} access - ", self.host, self.pid);
            }
        }
        let room = match self.address {
            Address::Tcp(_) => usize::MAX,
            _ => DATAGRAM_MAX,
        };
        let mut line = &line[..line.len().min(room)];
        // Not in the middle of a character.
        if line.len() == room {
            let cut = line.iter().rposition(|b| *b & 0xc0 != 0x80).unwrap_or(0);
            if std::str::from_utf8(&line[cut..]).is_err() {
                line = &line[..cut];
            }
        }
        out.extend_from_slice(line);
    }
}

fn connect(address: &Address) -> io::Result<Connection> {
    match address {
        Address::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.connect(path)?;
            Ok(Connection::Unix(socket))
        }
        Address::Udp(address) => {
            let to = resolve(address)?;
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            Ok(Connection::Udp(socket))
        }
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(&resolve(address)?, PATIENCE)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Connection::Tcp(stream))
        }
    }
}

fn resolve(address: &str) -> io::Result<std::net::SocketAddr> {
    address.to_socket_addrs()?.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))
}

/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;
/// Of the line itself. Servers take 8 KiB at least in practice, although RFC 5424 promises 2 KiB only.
const DATAGRAM_MAX: usize = 8000;
const RETRY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(1);
