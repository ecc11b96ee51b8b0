//! Connections of the TCP family: what is read and decided before bytes are passed on.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::edge::{Arrived, Edge};
use crate::listen::{Proto, Seat};
use crate::net::client_hello::Error;
use crate::net::{Peer, Rewind, Stream};
use crate::proxy::tcp::{Connection, Found, Hello, Place, Reason, read_hello};

/// What a connection has turned out to be.
pub(super) enum Opened {
    /// Bytes go to and fro between these, client and target.
    Tunnel(Connection, Stream, Stream),
    /// HTTP on `https+tcp+sni`.
    Http(Stream, Peer),
}

/// `None`: it was closed, and why was said.
pub(super) async fn open(
    edge: &Edge,
    place: Place,
    stream: TcpStream,
    remote: SocketAddr,
    seat: &mut Seat,
) -> Option<Opened> {
    let arrived = edge.introduce(stream, remote, seat).await?;
    match edge.proto() {
        Proto::TcpSni => by_name(edge, place, arrived).await,
        Proto::HttpsTcpSni => by_name_or_http(edge, place, arrived).await,
        _ => by_port(edge, place, arrived).await,
    }
}

async fn by_port(edge: &Edge, place: Place, arrived: Arrived) -> Option<Opened> {
    let Arrived { stream, peer, bound } = arrived;
    let worker = place.worker.clone();
    let mut keys = Vec::with_capacity(4);
    if edge.proto() == Proto::TcpDynamic {
        // What a PROXY header says that the client has connected to comes first, as in fabio.
        for addr in [peer.local, bound] {
            let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
            keys.extend([addr.to_string(), format!(":{}", addr.port())]);
        }
        keys.dedup();
    } else {
        keys.push(format!(":{}", bound.port()));
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let client = peer.remote.ip();
    let connection = Connection::new(place, peer.clone());
    let (mut connection, candidates) = connection.admit(worker.find(&keys, client))?;
    // Whoever has no business here does not get as far as a handshake.
    let Some((stream, peer)) = edge.secure(stream, peer).await else {
        connection.close(Reason::Handshake);
        return None;
    };
    connection.secured(peer);
    let (connection, target) = connection.connect(candidates, None).await?;
    Some(Opened::Tunnel(connection, stream, target))
}

async fn by_name(edge: &Edge, place: Place, arrived: Arrived) -> Option<Opened> {
    let Arrived { mut stream, peer, .. } = arrived;
    let connection = Connection::new(place.clone(), peer.clone());
    let Some(hello) = read_hello(&mut stream, edge.handshake_limit()).await else {
        connection.close(Reason::NoName);
        return None;
    };
    let Some(name) = hello.server_name() else {
        connection.close(Reason::NoName);
        return None;
    };
    let found = place.worker.find(&[name], peer.remote.ip());
    pass_through(connection, found, hello, stream).await
}

async fn by_name_or_http(edge: &Edge, place: Place, arrived: Arrived) -> Option<Opened> {
    let Arrived { mut stream, peer, .. } = arrived;
    let Some(hello) = read_hello(&mut stream, edge.handshake_limit()).await else {
        Connection::new(place, peer).close(Reason::NoName);
        return None;
    };
    let found = match hello.server_name() {
        Some(name) => place.worker.find(&[name], peer.remote.ip()),
        None => Found::Nothing,
    };
    if !matches!(found, Found::Nothing) {
        return pass_through(Connection::new(place, peer), found, hello, stream).await;
    }
    if matches!(hello.hello, Err(Error::Truncated | Error::Io(_))) || !edge.ends_tls() {
        Connection::new(place, peer).close(Reason::NoName);
        return None;
    }
    let (stream, peer) = edge.secure(again(hello, stream), peer).await?;
    Some(Opened::Http(stream, peer))
}

/// TLS ends at the target, which gets every byte.
async fn pass_through(
    mut connection: Connection,
    found: Found,
    hello: Hello,
    stream: Rewind<TcpStream>,
) -> Option<Opened> {
    if let Some(name) = hello.server_name() {
        connection.asked_for(name);
    }
    let (connection, candidates) = connection.admit(found)?;
    let (connection, target) = connection.connect(candidates, hello.hello.as_ref().ok()).await?;
    Some(Opened::Tunnel(connection, Stream::Rewound(again(hello, stream)), target))
}

/// The stream as if nobody had read from it.
fn again(hello: Hello, stream: Rewind<TcpStream>) -> Rewind<TcpStream> {
    let (left, stream) = stream.into_parts();
    let read = if left.is_empty() { hello.read } else { [hello.read, left].concat().into() };
    Rewind::new(read, stream)
}
