//! From a configured address to sockets, one per worker.
//!
//! Binding and listening are two steps: a port that is taken fails at start, but nobody is let in before there are routes.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::{Config, Inherited};

/// Bound sockets of one listener that do not listen yet.
#[derive(Debug)]
pub struct Bound {
    pub config: Config,
    /// With the port that was given for port 0.
    pub addr: SocketAddr,
    sockets: Vec<Socket>,
}

/// A listener that cannot be opened.
#[derive(Debug)]
pub struct Error {
    addr: String,
    cause: io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.cause.kind() {
            io::ErrorKind::AddrInUse => " (another process has this port)",
            io::ErrorKind::PermissionDenied => " (ports below 1024 need CAP_NET_BIND_SERVICE)",
            _ => "",
        };
        write!(f, "listen: Fail to listen. cannot listen on {}{hint}", self.addr)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Binds one socket per worker. Fails if anybody else has the port, even somebody who shares it. A socket that we were
/// given for this address is taken instead, and shared by the workers; if we were given several, all of them are.
pub fn bind(config: &Config, workers: usize, inherited: &mut Inherited) -> Result<Bound, Error> {
    let fail = |cause| Error { addr: config.addr.clone(), cause };
    let mut addr = resolve(&config.addr).map_err(fail)?;
    let given = inherited.find(addr, true);
    if !given.is_empty() {
        return Ok(Bound { config: config.clone(), addr, sockets: clones(given, workers).map_err(fail)? });
    }
    let shared = workers > 1;
    // With SO_REUSEPORT a port of somebody else who has set it too would be shared in silence; without it, it is not.
    let first = match socket(addr, false) {
        Err(error) if is_any_v6(addr) && error.kind() != io::ErrorKind::AddrInUse => {
            // No IPv6 on this machine.
            addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port()));
            socket(addr, false)
        }
        other => other,
    }
    .map_err(fail)?;
    addr = local(&first).map_err(fail)?;
    let sockets = if shared {
        drop(first);
        (0..workers).map(|_| socket(addr, true)).collect::<Result<_, _>>().map_err(fail)?
    } else {
        vec![first]
    };
    Ok(Bound { config: config.clone(), addr, sockets })
}

/// Binds one socket for datagrams per worker. They receive from now on; what comes before somebody reads waits.
pub fn bind_udp(config: &Config, workers: usize, inherited: &mut Inherited) -> Result<Vec<UdpSocket>, Error> {
    let fail = |cause| Error { addr: config.addr.clone(), cause };
    let mut addr = resolve(&config.addr).map_err(fail)?;
    let given = inherited.find(addr, false);
    if !given.is_empty() {
        return Ok(clones(given, workers).map_err(fail)?.into_iter().map(UdpSocket::from).collect());
    }
    let first = match udp_socket(addr, false) {
        Err(error) if is_any_v6(addr) && error.kind() != io::ErrorKind::AddrInUse => {
            addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port()));
            udp_socket(addr, false)
        }
        other => other,
    }
    .map_err(fail)?;
    if workers <= 1 {
        return Ok(vec![first.into()]);
    }
    addr = local(&first).map_err(fail)?;
    drop(first);
    let sockets = (0..workers).map(|_| udp_socket(addr, true).map(UdpSocket::from));
    sockets.collect::<Result<_, _>>().map_err(fail)
}

/// At least one handle per worker. Of fewer sockets several workers have the same one, and whoever is free takes the next
/// connection; none is left out, because each has a queue of its own.
fn clones(given: Vec<Socket>, workers: usize) -> io::Result<Vec<Socket>> {
    let more = (given.len()..workers).map(|n| given[n % given.len()].try_clone());
    let more = more.collect::<io::Result<Vec<_>>>()?;
    Ok(given.into_iter().chain(more).collect())
}

fn udp_socket(addr: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if is_any_v6(addr) {
        socket.set_only_v6(false)?;
    }
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

impl Bound {
    /// Handles of the same sockets, to be handed to another process.
    pub fn duplicates(&self) -> Result<Vec<OwnedFd>, Error> {
        let all = self.sockets.iter().map(|socket| socket.try_clone().map(OwnedFd::from));
        all.collect::<io::Result<_>>().map_err(|cause| Error { addr: self.config.addr.clone(), cause })
    }

    /// Starts to listen. At least one listener per worker, non-blocking.
    pub fn open(self) -> Result<Vec<TcpListener>, Error> {
        let open = |socket: Socket| {
            socket.listen(BACKLOG)?;
            Ok(TcpListener::from(socket))
        };
        let addr = self.config.addr;
        self.sockets.into_iter().map(open).collect::<io::Result<_>>().map_err(|cause| Error { addr, cause })
    }
}

fn socket(addr: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if is_any_v6(addr) {
        socket.set_only_v6(false)?;
    }
    // Connections of an earlier process that are being closed do not block the port.
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an internet socket"))
}

fn is_any_v6(addr: SocketAddr) -> bool {
    addr.ip() == Ipv6Addr::UNSPECIFIED
}

/// `host:port`. No host: all addresses of both families.
fn resolve(addr: &str) -> io::Result<SocketAddr> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let (host, port) = addr
        .rsplit_once(':')
        .ok_or_else(|| invalid(format!("{addr:?} is not host:port; for all addresses write :PORT")))?;
    let port = match port {
        "http" => 80,
        "https" => 443,
        number => number.parse().map_err(|_| invalid(format!("{number:?} is no port number")))?,
    };
    if host.is_empty() {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut all: Vec<SocketAddr> = (bare, port).to_socket_addrs()?.collect();
    all.sort_by_key(SocketAddr::is_ipv6);
    all.first().copied().ok_or_else(|| invalid(format!("{host:?} has no address")))
}

/// As many connections as the kernel lets wait (net.core.somaxconn is the limit).
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::listen::Proto;

    fn config(addr: &str) -> Config {
        Config {
            addr: addr.into(),
            proto: Proto::Http,
            cert_source: None,
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            proxy_protocol: false,
            proxy_header_timeout: Duration::ZERO,
            proxy_trusted: Vec::new(),
            half_close: false,
            h2c: false,
            redirect: None,
            client_auth: Default::default(),
            client_headers: false,
            strict_match: false,
            tls_min: 0,
            tls_max: 0,
            tls_ciphers: Vec::new(),
            refresh: Duration::ZERO,
        }
    }

    #[test]
    fn nobody_is_let_in_before_listening() {
        let bound = bind(&config("127.0.0.1:0"), 2, &mut Inherited::default()).expect("a free port");
        let addr = bound.addr;
        assert!(std::net::TcpStream::connect(addr).is_err());
        let listeners = bound.open().expect("still ours");
        assert_eq!(listeners.len(), 2);
        std::net::TcpStream::connect(addr).expect("listening");
    }

    #[test]
    fn a_taken_port_is_an_error_even_if_its_owner_would_share_it() {
        let owner = socket("127.0.0.1:0".parse().expect("valid"), true).expect("a free port");
        owner.listen(1).expect("ours");
        let addr = local(&owner).expect("bound").to_string();
        for workers in [1, 4] {
            let error = bind(&config(&addr), workers, &mut Inherited::default()).expect_err("taken");
            assert!(error.to_string().contains(&addr), "{error}");
        }
    }

    #[test]
    fn addresses() {
        for (text, addr) in [
            (":80", Some("[::]:80")),
            ("127.0.0.1:81", Some("127.0.0.1:81")),
            ("[::1]:82", Some("[::1]:82")),
            ("localhost:http", Some("127.0.0.1:80")),
            ("80", None),
            ("1.2.3.4:x", None),
            (":70000", None),
        ] {
            assert_eq!(resolve(text).ok().map(|addr| addr.to_string()).as_deref(), addr, "{text}");
        }
    }
}
