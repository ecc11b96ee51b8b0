//! Whom a TLS client wants to talk to, read from its ClientHello without being a party to the handshake.
//!
//! The bytes are kept and given back: whoever serves the connection, an origin behind us or our own TLS, needs all of
//! them. Post-quantum key shares make a hello larger than a segment, and it may be cut into several records (RFC 8446,
//! section 5.1), which fabio does not follow. How long to wait is the caller's business.
//!
//! Not a validator of TLS: what does not matter for finding the name is skipped, but every length must fit.

use std::fmt;
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// First DNS name of the server_name extension, as sent: case and a trailing dot are kept. `None`: no such extension,
    /// or an empty name.
    pub server_name: Option<String>,
    /// Protocols of the ALPN extension, in the client's order.
    pub alpn: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub enum Error {
    /// The first bytes are no TLS handshake; perhaps the client speaks plain HTTP.
    NotTls,
    /// Breaks the grammar; says where.
    Malformed(&'static str),
    /// More than 16 KiB, or in more than 64 records.
    TooLong,
    /// The stream ended within the hello.
    Truncated,
    Io(io::Error),
}

/// A ClientHello under way. [`Reader::read`] can be dropped at any time and called again.
#[derive(Debug, Default)]
pub struct Reader {
    read: BytesMut,
}

impl Reader {
    /// Reads until the hello is complete, or cannot become one. What follows the hello may be read with it.
    pub async fn read<R: AsyncRead + Unpin>(&mut self, io: &mut R) -> Result<ClientHello, Error> {
        loop {
            if let Some(hello) = parse(&self.read)? {
                return Ok(hello);
            }
            // A hello of today fits twice; what `parse` accepts is bounded by itself.
            self.read.reserve(4096);
            if io.read_buf(&mut self.read).await.map_err(Error::Io)? == 0 {
                return Err(Error::Truncated);
            }
        }
    }

    /// Everything that was read, whatever came of it (see [`super::Rewind`]).
    pub fn into_read(self) -> Bytes {
        self.read.freeze()
    }
}

/// What a stream that begins with `bytes` says; `None`: more of it is needed.
pub fn parse(bytes: &[u8]) -> Result<Option<ClientHello>, Error> {
    match message(bytes)? {
        Some(fragments) => hello(&fragments).map(Some),
        None => Ok(None),
    }
}

/// The body of the ClientHello message, put together from its records.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut rest = bytes;
    let mut fragments: Vec<&[u8]> = Vec::new();
    let mut have = 0;
    for _ in 0..MAX_RECORDS {
        let Some(&content_type) = rest.first() else { return Ok(None) };
        if content_type != HANDSHAKE {
            // After the first record something else may stand between fragments in no version of TLS.
            return Err(if fragments.is_empty() { Error::NotTls } else { Error::Malformed("record type") });
        }
        // The version of a record says nothing: it must be ignored (RFC 8446, section 5.1).
        let Some(&[high, low]) = rest.get(3..5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > MAX_RECORD {
            return Err(if fragments.is_empty() { Error::NotTls } else { Error::Malformed("record length") });
        }
        let complete = rest.len() >= 5 + length;
        let fragment = &rest[5..rest.len().min(5 + length)];
        fragments.push(fragment);
        have += fragment.len();
        // Judged as soon as it is there, so that a stranger is not kept waiting for the rest of its "record".
        let mut start = fragments.iter().flat_map(|f| f.iter()).copied();
        if start.next().is_some_and(|kind| kind != CLIENT_HELLO) {
            return Err(Error::NotTls);
        }
        if let (Some(a), Some(b), Some(c)) = (start.next(), start.next(), start.next()) {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if length < MIN_HELLO {
                return Err(Error::Malformed("message length"));
            }
            if length > MAX_HELLO {
                return Err(Error::TooLong);
            }
            if have >= 4 + length {
                return Ok(Some(fragments.concat()[4..4 + length].to_vec()));
            }
        }
        if !complete {
            return Ok(None);
        }
        rest = &rest[5 + length..];
    }
    Err(Error::TooLong)
}

/// RFC 8446, section 4.1.2; the same in TLS 1.2.
fn hello(body: &[u8]) -> Result<ClientHello, Error> {
    let mut body = Fields(body);
    body.take(2 + 32).ok_or(Error::Malformed("version or random"))?;
    let session = body.vector8().ok_or(Error::Malformed("session id"))?;
    if session.0.len() > 32 {
        return Err(Error::Malformed("session id"));
    }
    let suites = body.vector16().ok_or(Error::Malformed("cipher suites"))?;
    if suites.0.is_empty() || suites.0.len() % 2 == 1 {
        return Err(Error::Malformed("cipher suites"));
    }
    body.vector8().filter(|methods| !methods.0.is_empty()).ok_or(Error::Malformed("compression methods"))?;
    let mut found = ClientHello::default();
    if body.0.is_empty() {
        // No extensions at all: old, and legal.
        return Ok(found);
    }
    let mut extensions = body.vector16().filter(|_| body.0.is_empty()).ok_or(Error::Malformed("extensions"))?;
    let mut seen = [false; 2];
    while !extensions.0.is_empty() {
        let kind = extensions.u16().ok_or(Error::Malformed("extension"))?;
        let data = extensions.vector16().ok_or(Error::Malformed("extension"))?;
        let (which, what) = match kind {
            SERVER_NAME => (0, "server name"),
            ALPN => (1, "ALPN"),
            _ => continue,
        };
        // Two names, of which the server behind us might take the other one.
        if std::mem::replace(&mut seen[which], true) {
            return Err(Error::Malformed("extension twice"));
        }
        let read = if which == 0 { server_name(data, &mut found) } else { alpn(data, &mut found) };
        read.ok_or(Error::Malformed(what))?;
    }
    Ok(found)
}

/// RFC 6066, section 3.
fn server_name(mut data: Fields, found: &mut ClientHello) -> Option<()> {
    let mut list = data.vector16().filter(|_| data.0.is_empty())?;
    while !list.0.is_empty() {
        let kind = list.take(1)?[0];
        let name = list.vector16()?;
        if kind == HOST_NAME && found.server_name.is_none() && !name.0.is_empty() {
            found.server_name = Some(String::from_utf8(name.0.to_vec()).ok()?);
        }
    }
    Some(())
}

/// RFC 7301, section 3.1.
fn alpn(mut data: Fields, found: &mut ClientHello) -> Option<()> {
    let mut list = data.vector16().filter(|_| data.0.is_empty())?;
    while !list.0.is_empty() {
        found.alpn.push(list.vector8()?.0.to_vec());
    }
    Some(())
}

/// Takes fields off the front; `None` when there is not enough.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn vector8(&mut self) -> Option<Fields<'a>> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length).map(Fields)
    }

    fn vector16(&mut self) -> Option<Fields<'a>> {
        let length = usize::from(self.u16()?);
        self.take(length).map(Fields)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotTls => f.write_str("not a TLS handshake"),
            Error::Malformed(what) => write!(f, "malformed ClientHello, {what}"),
            Error::TooLong => f.write_str("ClientHello too long"),
            Error::Truncated => f.write_str("incomplete ClientHello"),
            Error::Io(_) => f.write_str("reading a ClientHello failed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// Content type of a record.
const HANDSHAKE: u8 = 22;
/// Type of a handshake message.
const CLIENT_HELLO: u8 = 1;
/// Extensions.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// The only kind of server name there is.
const HOST_NAME: u8 = 0;
/// RFC 8446, section 5.1: 2^14.
const MAX_RECORD: usize = 16 * 1024;
/// Nobody's hello is that large; fabio's limit is a record.
const MAX_HELLO: usize = 16 * 1024;
/// Version, random, and the three shortest vectors.
const MIN_HELLO: usize = 2 + 32 + 1 + 4 + 2;
/// Bounds the work for somebody who sends records of one byte, byte by byte.
const MAX_RECORDS: usize = 64;

#[cfg(test)]
mod tests;
