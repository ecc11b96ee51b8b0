//! One handshake.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::Accepted;
use rustls::{CertificateError, HandshakeKind, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::{StartHandshake, TlsStream};

use super::count::Outcome;
use super::{Acceptor, Chosen, WAITING};
use crate::cert::acme::ALPN;
use crate::cert::{Asked, Facts, Selection};
use crate::net::{ClientCertificate, TlsInfo};

/// Why a connection did not become a TLS connection. It is closed, and whoever can read it was told.
#[derive(Debug)]
pub enum AcceptError {
    /// Clear-text HTTP. It was answered with 400.
    Plain,
    /// There is no certificate for this name, or none at all.
    NoCertificate(Option<String>),
    Timeout,
    /// Too many handshakes under way.
    Busy,
    /// A CA has seen what it wanted to see (RFC 8737).
    Challenge(String),
    /// The client went away before it was done.
    Closed(io::Error),
    Tls(rustls::Error),
}

impl AcceptError {
    fn outcome(&self) -> Outcome {
        match self {
            AcceptError::Plain => Outcome::Plain,
            AcceptError::NoCertificate(_) => Outcome::NoCertificate,
            AcceptError::Timeout => Outcome::Timeout,
            AcceptError::Busy => Outcome::Busy,
            AcceptError::Challenge(_) => Outcome::Challenge,
            AcceptError::Closed(_) => Outcome::Closed,
            AcceptError::Tls(
                rustls::Error::NoCertificatesPresented
                | rustls::Error::InvalidCertificate(_)
                | rustls::Error::InvalidCertRevocationList(_),
            ) => Outcome::ClientCertificate,
            AcceptError::Tls(_) => Outcome::Failed,
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::Plain => f.write_str("clear-text HTTP on a TLS listener"),
            AcceptError::NoCertificate(Some(name)) => write!(f, "no certificate for {name:?}"),
            AcceptError::NoCertificate(None) => f.write_str("no certificate for a client that names no server"),
            AcceptError::Timeout => f.write_str("TLS handshake not finished in time"),
            AcceptError::Busy => f.write_str("too many TLS handshakes at the same time"),
            AcceptError::Challenge(name) => write!(f, "answered a challenge of a CA for {name:?}"),
            AcceptError::Closed(error) => write!(f, "closed during the TLS handshake: {error}"),
            AcceptError::Tls(error) => write!(f, "TLS handshake: {error}"),
        }
    }
}

impl std::error::Error for AcceptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AcceptError::Closed(error) => Some(error),
            AcceptError::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for AcceptError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => AcceptError::Tls(tls.clone()),
            None => AcceptError::Closed(error),
        }
    }
}

impl Acceptor {
    /// Makes a TLS connection out of a connection. `local` is our address that the client connected to, `limit` the time
    /// for all of it (see [`super::handshake_limit`]).
    ///
    /// Bytes that came with a PROXY header are part of `stream` (see [`crate::net::Rewind`]).
    pub async fn accept<IO>(
        &self,
        stream: IO,
        local: IpAddr,
        limit: Duration,
    ) -> Result<(TlsStream<IO>, TlsInfo), AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = match enter(&self.pending, self.limit) {
            None => Err(AcceptError::Busy),
            Some(entered) => match tokio::time::timeout(limit, self.handshake(stream, local, entered)).await {
                Ok(accepted) => accepted,
                Err(_) => Err(AcceptError::Timeout),
            },
        };
        match &accepted {
            Ok((stream, info)) => {
                self.counts.done(info, stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed));
            }
            Err(error) => self.counts.count(error.outcome()),
        }
        accepted
    }

    async fn handshake<'a, IO>(
        &'a self,
        mut stream: IO,
        local: IpAddr,
        mut entered: Entered<'a>,
    ) -> Result<(TlsStream<IO>, TlsInfo), AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = client_hello(&mut stream).await?;
        if let Some(config) = self.challenge(&accepted) {
            let name = accepted.client_hello().server_name().unwrap_or_default().to_owned();
            let mut stream = StartHandshake::from_parts(accepted, stream).into_stream(config).await?;
            // Nothing is ever said over such a connection.
            let _ = stream.shutdown().await;
            return Err(AcceptError::Challenge(name));
        }
        let chosen = match self.choose(&accepted, local) {
            // Issued when it is first asked for.
            Err((_, AcceptError::NoCertificate(Some(name)))) if self.setup.store.issues() => {
                // Vault may take its time: meanwhile this one is in nobody's way. It comes back whatever the limit says,
                // because most of the work is done.
                let Some(waiting) = enter(&self.waiting, WAITING) else { return Err(AcceptError::Busy) };
                drop(entered);
                self.setup.store.obtain(&name).await;
                drop(waiting);
                entered = Entered::new(&self.pending);
                self.choose(&accepted, local).map_err(|(_, error)| (INTERNAL_ERROR, error))
            }
            chosen => chosen,
        };
        let config = match chosen {
            Ok(config) => config,
            Err((alert, error)) => {
                refuse(&mut stream, alert).await;
                return Err(error);
            }
        };
        let stream = StartHandshake::from_parts(accepted, stream).into_stream(config).await?;
        drop(entered);
        let info = info(stream.get_ref().1)?;
        Ok((stream, info))
    }

    /// Set if this handshake is a challenge of a CA that somebody waits for: such a client offers this protocol and no
    /// other (RFC 8737 section 3).
    fn challenge(&self, accepted: &Accepted) -> Option<Arc<ServerConfig>> {
        let challenges = self.challenges.get()?;
        let hello = accepted.client_hello();
        let mut offered = hello.alpn()?;
        if offered.next() != Some(ALPN) || offered.next().is_some() {
            return None;
        }
        let key = challenges.certificate(hello.server_name()?)?;
        self.setup.for_challenge(key)
    }

    /// The configuration for this client, or the alert that tells it why there is none.
    fn choose(&self, accepted: &Accepted, local: IpAddr) -> Result<Arc<ServerConfig>, (u8, AcceptError)> {
        let hello = accepted.client_hello();
        let asked = Asked {
            name: hello.server_name(),
            address: Some(local),
            schemes: hello.signature_schemes(),
            strict: self.setup.strict,
        };
        let none = || AcceptError::NoCertificate(asked.name.map(str::to_owned));
        match self.setup.store.select(&asked) {
            Selection::Found(_) if asked.name.is_some() => Ok(self.config()),
            Selection::Found(key) => {
                let mut config = ServerConfig::clone(&self.config());
                config.cert_resolver = Arc::new(Chosen(key));
                Ok(Arc::new(config))
            }
            Selection::Unknown => Err((UNRECOGNIZED_NAME, none())),
            Selection::Empty => Err((INTERNAL_ERROR, none())),
        }
    }
}

/// Counts as under way until it is dropped.
struct Entered<'a>(&'a AtomicUsize);

impl<'a> Entered<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

/// `None`: so many are there already.
fn enter(count: &AtomicUsize, limit: usize) -> Option<Entered<'_>> {
    let before = count.fetch_add(1, Ordering::Relaxed);
    let entered = Entered(count);
    (before < limit).then_some(entered)
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads until the ClientHello is complete.
async fn client_hello<IO>(stream: &mut IO) -> Result<Accepted, AcceptError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut acceptor = rustls::server::Acceptor::default();
    let mut first = true;
    loop {
        // The buffer lives in the closure, not in the future that waits.
        let read = poll_fn(|cx| {
            let mut space = [MaybeUninit::uninit(); READ];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            let mut bytes = buffer.filled();
            if bytes.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if first && bytes[0].is_ascii_uppercase() {
                return Poll::Ready(Ok(Read::Http));
            }
            first = false;
            while !bytes.is_empty() {
                acceptor.read_tls(&mut bytes)?;
            }
            Poll::Ready(Ok::<_, io::Error>(Read::Tls))
        });
        match read.await? {
            Read::Http => {
                answer_http(stream).await;
                return Err(AcceptError::Plain);
            }
            Read::Tls => {}
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() && stream.write_all(&bytes).await.is_ok() {
                    close(stream).await;
                }
                return Err(AcceptError::Tls(error));
            }
        }
    }
}

enum Read {
    Tls,
    /// The first byte is a letter, as of a method. A TLS record begins with 22.
    Http,
}

async fn answer_http<IO: AsyncRead + AsyncWrite + Unpin>(stream: &mut IO) {
    if stream.write_all(HTTP_ANSWER).await.is_ok() {
        close(stream).await;
    }
}

/// A fatal alert in a record of its own (RFC 8446 sections 5.1 and 6).
async fn refuse<IO: AsyncRead + AsyncWrite + Unpin>(stream: &mut IO, alert: u8) {
    if stream.write_all(&[21, 3, 3, 0, 2, 2, alert]).await.is_ok() {
        close(stream).await;
    }
}

/// Ends our side and reads what the client had sent: closing over unread bytes would reset the connection, and the client
/// might never see the answer.
async fn close<IO: AsyncRead + AsyncWrite + Unpin>(stream: &mut IO) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let drain = async {
        let mut left = DRAIN;
        let mut waste = [0; 512];
        while left > 0 {
            match stream.read(&mut waste).await {
                Ok(0) | Err(_) => break,
                Ok(n) => left = left.saturating_sub(n),
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

fn info(connection: &ServerConnection) -> Result<TlsInfo, AcceptError> {
    let client = match connection.peer_certificates().and_then(|chain| chain.first()) {
        Some(certificate) => Some(Arc::new(client(certificate)?)),
        None => None,
    };
    Ok(TlsInfo {
        version: connection.protocol_version().map_or(0, u16::from),
        cipher: connection.negotiated_cipher_suite().map_or(0, |suite| u16::from(suite.suite())),
        server_name: connection.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase()),
        client,
    })
}

/// A ticket can outlive the certificate that it was given for.
fn client(der: &[u8]) -> Result<ClientCertificate, AcceptError> {
    let refused = |error: CertificateError| AcceptError::Tls(error.into());
    let facts = Facts::of(der).map_err(|_| refused(CertificateError::BadEncoding))?;
    if facts.not_after < UnixTime::now().as_secs() as i64 {
        return Err(refused(CertificateError::Expired));
    }
    Ok(ClientCertificate {
        subject: facts.subject,
        issuer: facts.issuer,
        serial: facts.serial,
        alternative: facts.alternative,
        fingerprint: facts.fingerprint,
        not_after: facts.not_after,
    })
}

const UNRECOGNIZED_NAME: u8 = 112;
const INTERNAL_ERROR: u8 = 80;

const HTTP_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks TLS, and the request came without: use https.\n";

/// A ClientHello with post-quantum keys has 1.5 kB.
const READ: usize = 4096;
const DRAIN: usize = 64 * 1024;
const LINGER: Duration = Duration::from_secs(1);
