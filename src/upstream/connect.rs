//! From an endpoint to a connected stream.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::directory::{Endpoint, TargetTls};
use super::tls::{self, Alpn};
use super::{Config, Error};
use crate::net::Stream;

/// Connects, within `limit` (0: none) for name, TCP and TLS together.
/// `preamble` is sent before anything else, TLS among it.
pub(super) async fn connect(
    endpoint: &Endpoint,
    tls: Option<(&TargetTls, Alpn)>,
    config: &Config,
    limit: Duration,
    preamble: &[u8],
) -> Result<Stream, Error> {
    within(limit, async {
        let mut stream = dial(endpoint).await.map_err(Error::Connect)?;
        set_options(&stream, config).map_err(Error::Connect)?;
        stream.write_all(preamble).await.map_err(Error::Connect)?;
        match tls {
            None => Ok(Stream::Plain(stream)),
            Some((tls, alpn)) => secure(stream, tls, alpn).await.map_err(Error::Tls),
        }
    })
    .await
    .unwrap_or(Err(Error::ConnectTimeout))
}

/// `None` when the time is up. 0 is no limit.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    if limit.is_zero() { Some(work.await) } else { tokio::time::timeout(limit, work).await.ok() }
}

async fn dial(endpoint: &Endpoint) -> io::Result<TcpStream> {
    if let Ok(address) = endpoint.host.parse::<IpAddr>() {
        return TcpStream::connect(SocketAddr::new(address, endpoint.port)).await;
    }
    // Zone ids (`fe80::1%eth0`) and names.
    TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await
}

fn set_options(stream: &TcpStream, config: &Config) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    match config.keep_alive {
        None => socket.set_keepalive(false),
        Some(period) => socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(period).with_interval(period)),
    }
}

async fn secure(stream: TcpStream, tls: &TargetTls, alpn: Alpn) -> io::Result<Stream> {
    let name = ServerName::try_from(tls.server_name.clone())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{:?} is no server name", tls.server_name)))?;
    let stream = tokio_rustls::TlsConnector::from(tls::client_config(tls, alpn)).connect(name, stream).await?;
    Ok(Stream::Client(Box::new(stream)))
}
