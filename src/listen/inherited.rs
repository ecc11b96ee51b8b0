//! Sockets that a service manager has opened for us (sd_listen_fds(3)): ports below 1024 without any privilege, and no
//! refused connection while we are started again. Another process of ours hands its sockets over in its own way.
//!
//! A socket serves the listener whose address it has. What no listener wants is said, and left alone.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd};

use socket2::{Socket, Type};

/// Sockets that wait for a listener to take them.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(SocketAddr, bool, Socket)>);

impl Inherited {
    /// What the environment announces. To be called once in a process.
    pub fn from_env() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
        if number("LISTEN_PID").is_none_or(|pid| i64::from(pid) != i64::from(std::process::id())) {
            return Self::default();
        }
        let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST);
        let mut found = Self::default();
        for descriptor in FIRST..FIRST + count {
            match take(descriptor) {
                Ok(socket) => found.put(socket),
                Err(error) => tracing::warn!("descriptor {descriptor} of LISTEN_FDS cannot be used: {error}"),
            }
        }
        found
    }

    fn put(&mut self, socket: Socket) {
        let addr = socket.local_addr().ok().and_then(|addr| addr.as_socket());
        let stream = match socket.r#type() {
            Ok(Type::STREAM) => true,
            Ok(Type::DGRAM) => false,
            _ => return tracing::warn!("a socket of LISTEN_FDS is neither for connections nor for datagrams"),
        };
        match addr {
            Some(addr) => self.0.push((addr, stream, socket)),
            None => tracing::warn!("a socket of LISTEN_FDS is no internet socket"),
        }
    }

    /// From another process of ours. To be called before any listener looks for its socket.
    pub fn add(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        let socket = Socket::from(descriptor);
        socket.set_nonblocking(true)?;
        self.put(socket);
        Ok(())
    }

    /// The sockets for `addr`; all addresses of either family are the same.
    pub(super) fn find(&mut self, addr: SocketAddr, stream: bool) -> Vec<Socket> {
        let all = |addr: SocketAddr| addr.ip().is_unspecified();
        let is_its = |(theirs, is_stream, _): &mut (SocketAddr, bool, Socket)| {
            *is_stream == stream && (*theirs == addr || theirs.port() == addr.port() && all(*theirs) && all(addr))
        };
        self.0.extract_if(.., is_its).map(|(_, _, socket)| socket).collect()
    }

    /// Says what nobody has taken.
    pub fn done(self) {
        let mut said = Vec::new();
        for (addr, ..) in self.0 {
            if said.contains(&addr) {
                continue;
            }
            said.push(addr);
            tracing::warn!("no listener has the address of the socket {addr} that we were given");
        }
    }
}

fn take(descriptor: i32) -> io::Result<Socket> {
    // Whoever announces a descriptor that is not open must not make us close somebody else's later.
    std::fs::symlink_metadata(format!("/proc/self/fd/{descriptor}"))?;
    // SAFETY: the descriptor is open, and by the protocol (our own process id is in LISTEN_PID) it was opened for us before
    // the program began and belongs to nobody else in it. Nobody else in this program asks for it.
    #[allow(unsafe_code)]
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    socket.set_cloexec(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Descriptors of the protocol begin here.
const FIRST: i32 = 3;
/// More than anybody has listeners.
const MOST: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_address_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let datagrams = std::net::UdpSocket::bind("[::]:0").expect("a free port");
        let any = datagrams.local_addr().expect("bound");
        let mut found = Inherited::default();
        found.put(listener.into());
        found.put(datagrams.into());
        assert!(found.find(addr, false).is_empty());
        assert_eq!(found.find(addr, true).len(), 1);
        assert!(found.find(addr, true).is_empty());
        let everywhere = SocketAddr::from(([0, 0, 0, 0], any.port()));
        assert_eq!(found.find(everywhere, false).len(), 1);
        found.done();
    }
}
