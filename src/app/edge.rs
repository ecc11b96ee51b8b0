//! What happens to a connection between accepting it and its protocol: PROXY header, TLS.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::listen;
use crate::net::proxy_protocol::{self, Header, Reader};
use crate::net::{Peer, Rewind, Stream};
use crate::proxy::http;

/// The outer side of one listener.
pub(super) struct Edge {
    config: listen::Config,
}

impl Edge {
    pub(super) fn new(config: listen::Config) -> Self {
        Self { config }
    }

    pub(super) fn http_listener(&self) -> http::Listener {
        let config = &self.config;
        http::Listener {
            read_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
            idle_timeout: if config.idle_timeout.is_zero() { config.read_timeout } else { config.idle_timeout },
            half_close: config.half_close,
        }
    }

    /// `None`: the connection was closed here, and why was said where somebody looks for it.
    pub(super) async fn admit(&self, mut stream: TcpStream, remote: SocketAddr) -> Option<(Stream, Peer)> {
        let local = stream.local_addr().ok()?;
        let mut peer = Peer { remote, local, tls: None };
        if !self.config.proxy_protocol || !self.is_trusted(remote) {
            return Some((Stream::Plain(stream), peer));
        }
        match read_header(&mut stream, self.config.proxy_header_timeout).await {
            Ok(Header::Proxied { source, destination }) => {
                peer.remote = source;
                peer.local = destination;
                Some((Stream::Plain(stream), peer))
            }
            Ok(Header::Local | Header::Unknown | Header::Unix) => Some((Stream::Plain(stream), peer)),
            Ok(Header::Absent { read }) => Some((Stream::Rewound(Rewind::new(read, stream)), peer)),
            Err(error) => {
                tracing::debug!("{remote}: PROXY header: {error}");
                None
            }
        }
    }

    fn is_trusted(&self, remote: SocketAddr) -> bool {
        let networks = &self.config.proxy_trusted;
        let address = remote.ip().to_canonical();
        networks.is_empty() || networks.iter().any(|network| network.contains(&address))
    }
}

/// Somebody who sends nothing in time sends no header.
async fn read_header(stream: &mut TcpStream, limit: Duration) -> Result<Header, proxy_protocol::Error> {
    let mut reader = Reader::default();
    match tokio::time::timeout(limit, reader.read(stream)).await {
        Ok(header) => header,
        Err(_) => reader.give_up(),
    }
}
