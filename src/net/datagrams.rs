//! A socket for datagrams that answers from the address it was asked at.
//!
//! From a socket that listens on all addresses, replies come from the address that the machine prefers. A client that wrote
//! to another one throws them away. So the address is received with each datagram (IP_PKTINFO, RFC 3542), and given back
//! with the reply. A socket that listens on one address needs none of this.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, recvmsg,
    sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

pub struct Datagrams {
    socket: UdpSocket,
    /// It listens on all addresses.
    any: bool,
}

/// Which of our addresses a datagram came to. `None`: the one that the socket is bound to.
pub type Here = Option<Local>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    ip: IpAddr,
    /// Number of the interface, for addresses that mean nothing without.
    interface: u32,
}

impl Datagrams {
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let any = local.ip().is_unspecified();
        match local {
            SocketAddr::V4(_) if any => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) if any => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
            _ => {}
        }
        Ok(Self { socket, any })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    pub async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Length, who sent it, and which of our addresses they wrote to.
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Here)> {
        if !self.any {
            return self.socket.try_recv_from(buffer).map(|(length, client)| (length, client, None));
        }
        self.socket.try_io(Interest::READABLE, || receive(&self.socket, buffer))
    }

    pub fn try_send(&self, bytes: &[u8], client: SocketAddr, from: Here) -> io::Result<usize> {
        match from {
            None => self.socket.try_send_to(bytes, client),
            Some(from) => self.socket.try_io(Interest::WRITABLE, || send(&self.socket, bytes, client, from)),
        }
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Here)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut space = [0; CONTROL];
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let client = received.address.as_ref().and_then(address).ok_or(io::ErrorKind::InvalidData)?;
    let here = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            Some(Local { ip: ip.into(), interface: 0 })
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // Nobody can answer from the address of a group.
            let interface = if ip.is_unicast_link_local() { info.ipi6_ifindex } else { 0 };
            (!ip.is_multicast()).then_some(Local { ip: ip.into(), interface })
        }
        _ => None,
    });
    Ok((received.bytes, client, here))
}

fn send(socket: &UdpSocket, bytes: &[u8], client: SocketAddr, from: Local) -> io::Result<usize> {
    let slices = [IoSlice::new(bytes)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    let sent = match (from.ip, client) {
        (IpAddr::V4(ip), SocketAddr::V4(client)) => {
            let spec = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: spec, ipi_addr: libc::in_addr { s_addr: 0 } };
            let client = SockaddrIn::from(client);
            sendmsg(fd, &slices, &[ControlMessage::Ipv4PacketInfo(&info)], flags, Some(&client))
        }
        (IpAddr::V6(ip), SocketAddr::V6(client)) => {
            let address = libc::in6_addr { s6_addr: ip.octets() };
            let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: from.interface as _ };
            let client = SockaddrIn6::from(client);
            sendmsg(fd, &slices, &[ControlMessage::Ipv6PacketInfo(&info)], flags, Some(&client))
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    Ok(sent?)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    match storage.family()? {
        nix::sys::socket::AddressFamily::Inet => storage.as_sockaddr_in().map(|addr| SocketAddrV4::from(*addr).into()),
        _ => storage.as_sockaddr_in6().map(|addr| SocketAddrV6::from(*addr).into()),
    }
}

/// Room for one message of either family, with its header.
const CONTROL: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn received(socket: &Datagrams, buffer: &mut [u8]) -> (usize, SocketAddr, Here) {
        loop {
            socket.readable().await.expect("open");
            match socket.try_receive(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.expect("a datagram"),
            }
        }
    }

    #[tokio::test]
    async fn the_reply_comes_from_where_the_question_went() {
        for (bind, to, from) in [
            ("0.0.0.0:0", "127.0.0.2", "127.0.0.1:0"),
            ("0.0.0.0:0", "127.0.0.1", "127.0.0.1:0"),
            ("[::]:0", "::1", "[::1]:0"),
            ("[::]:0", "127.0.0.3", "127.0.0.1:0"),
            ("127.0.0.2:0", "127.0.0.2", "127.0.0.1:0"),
        ] {
            let Ok(socket) = UdpSocket::bind(bind).await else {
                assert!(bind.starts_with('['), "{bind}: this machine has no IPv6");
                continue;
            };
            let socket = Datagrams::new(socket).expect("options");
            let target = SocketAddr::new(to.parse().expect("an address"), socket.local_addr().expect("bound").port());
            let client = UdpSocket::bind(from).await.expect("a free port");
            // Connected: only replies from there arrive.
            client.connect(target).await.expect("loopback");
            client.send(b"question").await.expect("sent");
            let mut buffer = [0; 100];
            let (length, peer, here) = received(&socket, &mut buffer).await;
            assert_eq!(&buffer[..length], b"question", "{bind} {to}");
            socket.writable().await.expect("open");
            socket.try_send(b"answer", peer, here).expect("sent");
            let length = tokio::time::timeout(Duration::from_secs(10), client.recv(&mut buffer)).await;
            assert_eq!(&buffer[..length.expect("in time").expect("a reply")], b"answer", "{bind} {to}");
        }
    }
}
