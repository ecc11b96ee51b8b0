//! From an endpoint to a connected stream.

use std::future::Future;
use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use super::directory::{Endpoint, TargetTls};
use super::tls::Alpn;
use super::{Config, Error, Shared};
use crate::net::Stream;

/// Connects, within `limit` (0: none) for name, TCP and TLS together.
/// `preamble` is sent before anything else, TLS among it.
pub(super) async fn connect(
    endpoint: &Endpoint,
    tls: Option<(&TargetTls, Alpn)>,
    config: &Config,
    shared: &Shared,
    limit: Duration,
    preamble: &[u8],
) -> Result<Stream, Error> {
    within(limit, async {
        if let Some(socket) = &endpoint.socket {
            let mut stream = UnixStream::connect(&**socket).await.map_err(Error::Connect)?;
            stream.write_all(preamble).await.map_err(Error::Connect)?;
            return Ok(Stream::Unix(stream));
        }
        let mut stream = dial(endpoint, limit, shared).await.map_err(Error::Connect)?;
        set_options(&stream, config).map_err(Error::Connect)?;
        stream.write_all(preamble).await.map_err(Error::Connect)?;
        match tls {
            None => Ok(Stream::Plain(stream)),
            Some((tls, alpn)) => secure(stream, tls, alpn, shared).await.map_err(Error::Tls),
        }
    })
    .await
    .unwrap_or(Err(Error::ConnectTimeout))
}

/// `None` when the time is up. 0 is no limit.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    if limit.is_zero() { Some(work.await) } else { tokio::time::timeout(limit, work).await.ok() }
}

/// Tries the addresses of the endpoint in their order. One that says nothing leaves half of the time that is left to
/// those behind it.
async fn dial(endpoint: &Endpoint, limit: Duration, shared: &Shared) -> io::Result<TcpStream> {
    let addresses = shared.resolver.resolve(&endpoint.host, endpoint.port).await?;
    let mut share = limit / 2;
    let Some((last, others)) = addresses.split_last() else {
        return Err(io::Error::other("the name has no address"));
    };
    let mut failure = None;
    for address in others {
        match within(share, TcpStream::connect(address)).await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => failure = Some(error),
            None => share /= 2,
        }
    }
    TcpStream::connect(last).await.map_err(|error| failure.unwrap_or(error))
}

fn set_options(stream: &TcpStream, config: &Config) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    match config.keep_alive {
        None => socket.set_keepalive(false),
        Some(period) => socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(period).with_interval(period)),
    }
}

async fn secure(stream: TcpStream, tls: &TargetTls, alpn: Alpn, shared: &Shared) -> io::Result<Stream> {
    let name = ServerName::try_from(tls.server_name.clone())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{:?} is no server name", tls.server_name)))?;
    let config = shared.credentials.client_config(tls, alpn)?;
    let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
    Ok(Stream::Client(Box::new(stream)))
}
