//! What happens to a connection between accepting it and its protocol: PROXY header, TLS.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::admin::TlsListenerView;
use crate::cert::acme::Challenges;
use crate::cert::{self, Demand};
use crate::listen::tls::{AcceptError, Acceptor, Clients, handshake_limit};
use crate::listen::{self, ClientAuth, Door, Limits, Proto, Seat};
use crate::metrics::names;
use crate::net::proxy_protocol::{self, Header, Reader};
use crate::net::{Peer, Rewind, Stream};
use crate::proxy::http::ClientHeaders;
use crate::proxy::{http, tcp};

/// The outer side of one listener.
pub(super) struct Edge {
    config: listen::Config,
    tls: Option<Arc<Acceptor>>,
    client_headers: ClientHeaders,
    challenges: Option<Arc<Challenges>>,
    door: Arc<Door>,
    bad_headers: AtomicU64,
}

/// A connection whose client is known, and nothing else of it.
pub(super) struct Arrived {
    pub(super) stream: Rewind<TcpStream>,
    pub(super) peer: Peer,
    /// Our end of the socket, whatever a PROXY header says.
    pub(super) bound: SocketAddr,
}

/// What listeners have in common.
#[derive(Default)]
pub(super) struct Sources {
    /// Certificate sources by name.
    pub(super) certificates: HashMap<String, Arc<cert::Source>>,
    /// Some listener tells targets about certificates of clients.
    pub(super) client_headers: bool,
    /// Some source orders certificates, and its CA may ask on any listener.
    pub(super) challenges: Option<Arc<Challenges>>,
    /// How many connections there may be.
    pub(super) limits: Arc<Limits>,
}

impl Edge {
    /// Fails if the settings of the listener leave no TLS that could be spoken.
    pub(super) fn new(config: listen::Config, sources: &Sources) -> anyhow::Result<Self> {
        let protocols = alpn(config.proto);
        Self::speaking(config, sources, protocols, sources.limits.clone())
    }

    /// For pages, which speak HTTP/1.1 only.
    pub(super) fn of_pages(config: listen::Config, sources: &Sources) -> anyhow::Result<Self> {
        Self::speaking(config, sources, &[b"http/1.1"], Limits::of_pages())
    }

    fn speaking(
        config: listen::Config,
        sources: &Sources,
        protocols: &'static [&'static [u8]],
        limits: Arc<Limits>,
    ) -> anyhow::Result<Self> {
        let source = config.cert_source.as_ref().and_then(|name| sources.certificates.get(name));
        let tls = match (&config.cert_source, source) {
            (None, _) => None,
            // Never served in the clear what was meant to be encrypted.
            (Some(name), None) => anyhow::bail!("listener {}: there is no certificate source {name:?}", config.addr),
            (Some(_), Some(source)) => {
                let demand = match config.client_auth {
                    ClientAuth::Required => Some(Demand::Required),
                    ClientAuth::Optional => Some(Demand::Optional),
                    ClientAuth::Off => None,
                };
                let clients = source.authorities().zip(demand);
                let clients = clients.map(|(authorities, demand)| Clients { authorities, demand });
                let acceptor = Acceptor::new(&config, source.store(), clients, protocols)
                    .map_err(|error| anyhow::anyhow!("listener {}: {error}", config.addr))?;
                if let Some(challenges) = &sources.challenges {
                    acceptor.answer_challenges(challenges.clone());
                }
                Some(acceptor)
            }
        };
        let client_headers = match (config.client_headers, sources.client_headers) {
            (true, _) => ClientHeaders::Set,
            (false, true) => ClientHeaders::Removed,
            (false, false) => ClientHeaders::Ordinary,
        };
        let challenges = sources.challenges.clone();
        let door = Door::new(limits);
        Ok(Self { config, tls, client_headers, challenges, door, bad_headers: AtomicU64::new(0) })
    }

    pub(super) fn http_listener(&self) -> http::Listener {
        let config = &self.config;
        let grpc = matches!(config.proto, Proto::Grpc | Proto::Grpcs);
        // Calls have deadlines of their own.
        let limit = |limit: Duration| if grpc { Duration::ZERO } else { limit };
        http::Listener {
            read_timeout: limit(config.read_timeout),
            write_timeout: limit(config.write_timeout),
            idle_timeout: limit(if config.idle_timeout.is_zero() { config.read_timeout } else { config.idle_timeout }),
            half_close: config.half_close,
            grpc,
            h2c: config.h2c,
            redirect: config.redirect,
            client_headers: self.client_headers,
            challenge: self
                .challenges
                .clone()
                .map(|challenges| -> http::Challenge { Rc::new(move |path| challenges.answer(path)) }),
            misdirected: self.tls.clone().map(|tls| -> http::Misdirected {
                Rc::new(move |server_name, local, authority| tls.store().is_misdirected(server_name, local, authority))
            }),
        }
    }

    /// `None`: TLS does not end here.
    pub(super) fn view(&self) -> Option<TlsListenerView> {
        let counts = self.tls.as_ref()?.counts();
        Some(TlsListenerView {
            addr: self.config.addr.clone(),
            source: self.config.cert_source.clone().unwrap_or_default(),
            resumed: counts.resumed(),
            results: counts.results().collect(),
            ciphers: counts.ciphers().collect(),
        })
    }

    /// A connection has come. `None`: it is one too many, and is to be closed.
    pub(super) fn seat(&self) -> Option<Seat> {
        self.door.enter()
    }

    /// What is counted here. Gives how many connections were refused.
    pub(super) fn publish_counts(&self) -> u64 {
        let bad = self.bad_headers.load(Ordering::Relaxed);
        if bad > 0 {
            ::metrics::counter!(names::PROXY_HEADERS_BAD, "listener" => self.config.addr.clone()).absolute(bad);
        }
        if let Some(tls) = &self.tls {
            tls.counts().publish(&self.config.addr);
        }
        self.door.publish(&self.config.addr)
    }

    pub(super) fn tcp_listener(&self) -> tcp::Listener {
        let config = &self.config;
        tcp::Listener {
            family: match config.proto {
                Proto::TcpSni | Proto::HttpsTcpSni => tcp::Family::ServerName,
                _ => tcp::Family::Port,
            },
            idle_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
        }
    }

    pub(super) fn proto(&self) -> Proto {
        self.config.proto
    }

    /// Of the TCP family, `https+tcp+sni` among it.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.config.proto, Proto::Tcp | Proto::TcpSni | Proto::TcpDynamic | Proto::HttpsTcpSni)
    }

    /// TLS ends here.
    pub(super) fn ends_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// For a handshake, or its first message.
    pub(super) fn handshake_limit(&self) -> Duration {
        handshake_limit(&self.config)
    }

    /// `None`: the connection was closed here, and why was said where somebody looks for it.
    pub(super) async fn admit(&self, stream: TcpStream, remote: SocketAddr, seat: &mut Seat) -> Option<(Stream, Peer)> {
        let arrived = self.introduce(stream, remote, seat).await?;
        self.secure(arrived.stream, arrived.peer).await
    }

    /// Finds out who the client is. `None` as in [`Self::admit`].
    pub(super) async fn introduce(
        &self,
        mut stream: TcpStream,
        remote: SocketAddr,
        seat: &mut Seat,
    ) -> Option<Arrived> {
        let bound = stream.local_addr().ok()?;
        let mut peer = Peer { remote, local: bound, tls: None };
        let mut read = Bytes::new();
        if self.config.proxy_protocol && self.is_trusted(remote) {
            match read_header(&mut stream, self.config.proxy_header_timeout).await {
                Ok(Header::Proxied { source, destination }) => {
                    peer.remote = source;
                    peer.local = destination;
                }
                Ok(Header::Local | Header::Unknown | Header::Unix) => {}
                Ok(Header::Absent { read: begun }) => read = begun,
                Err(error) => {
                    self.bad_headers.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!("{remote}: PROXY header: {error}");
                    return None;
                }
            }
        }
        // Before a handshake, which costs more than anything else that a stranger can ask for.
        if !seat.is_from(peer.remote.ip()) {
            return None;
        }
        Some(Arrived { stream: Rewind::new(read, stream), peer, bound })
    }

    /// Ends TLS, if this listener does. `None` as in [`Self::admit`].
    pub(super) async fn secure(&self, stream: Rewind<TcpStream>, mut peer: Peer) -> Option<(Stream, Peer)> {
        let Some(tls) = &self.tls else {
            let stream = if stream.is_spent() { Stream::Plain(stream.into_parts().1) } else { Stream::Rewound(stream) };
            return Some((stream, peer));
        };
        match tls.accept(stream, peer.local.ip(), self.handshake_limit()).await {
            Ok((stream, info)) => {
                peer.tls = Some(Arc::new(info));
                Some((Stream::Server(Box::new(stream)), peer))
            }
            Err(error) => {
                say(&error, peer.remote);
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

/// Port scanners and broken clients are no reason to fill the log.
fn say(error: &AcceptError, remote: SocketAddr) {
    tracing::debug!("{remote}: TLS handshake: {error}");
}

/// What is spoken on a TCP listener is between client and target.
fn alpn(proto: Proto) -> &'static [&'static [u8]] {
    match proto {
        Proto::Tcp | Proto::TcpDynamic => &[],
        Proto::Grpcs => &[b"h2"],
        _ => &[b"h2", b"http/1.1"],
    }
}
