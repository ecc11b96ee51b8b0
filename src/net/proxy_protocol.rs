//! The PROXY protocol: whom a balancer in front of us speaks for.
//!
//! Reads a header of version 1 or 2 off a stream, exactly its bytes and not one more, so that TLS, HTTP or a splice can
//! take the bare stream afterwards. Whether a peer may send one, and how long to wait for it, is the caller's business.
//!
//! The framing is ours. The fields of version 2 are parsed by the proxy-protocol crate, which panics on truncated input
//! (a fuzzer finds that within seconds) and counts legal LOCAL headers as errors, but is sound once it is given a complete
//! header with the command PROXY: the fuzz target `proxy_protocol`, which goes through here, finds nothing in millions. Version 1 we parse here: framed, the crate does not panic on it either, but it
//! takes any byte for a separator, `TXX4` for `TCP4` and `+1` for a port, and refuses IPv4 literals in a TCP6 line,
//! which fabio accepts.
//!
//! Specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

mod crc32c;
mod write;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};
use proxy_protocol::ProxyHeader;
use proxy_protocol::version2::{ProxyAddresses, ProxyTransportProtocol};
use tokio::io::{AsyncRead, AsyncReadExt};

pub use write::{Facts, v1_line, v2_header};

/// What stood at the beginning of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// No PROXY header. `read` are the bytes that told so; they belong to the protocol above (see [`super::Rewind`]).
    Absent { read: Bytes },
    /// Version 2, LOCAL: the balancer speaks for itself (a health check). The addresses of the socket hold.
    Local,
    /// Version 1, UNKNOWN: the balancer does not know or say for whom. The addresses of the socket hold.
    Unknown,
    /// The client's address, and the address that it connected to. IPv4-mapped IPv6 addresses appear as IPv4.
    Proxied { source: SocketAddr, destination: SocketAddr },
    /// Version 2, a Unix socket: there are no addresses to tell, those of the socket hold.
    Unix,
}

/// A connection that began like a PROXY header and went on otherwise: it must be closed, nothing on it can be trusted.
#[derive(Debug)]
pub enum Error {
    /// Breaks the grammar; says where.
    Malformed(&'static str),
    /// More than 107 bytes in version 1, or a length above 4096 in version 2.
    TooLong,
    /// The stream ended, or time ran out, after the signature and before the end of the header.
    Truncated,
    /// A CRC32c is in the header and does not match.
    Checksum,
    Io(io::Error),
}

/// Reads the header at the beginning of `io`: all its bytes if there is one, and as few as it takes to know if there is
/// none. The end of the stream within the first bytes counts as "none".
///
/// Dropping the future loses what it has read; a caller with a deadline uses a [`Reader`].
pub async fn read_header<R: AsyncRead + Unpin>(io: &mut R) -> Result<Header, Error> {
    Reader::default().read(io).await
}

/// A header under way. [`Reader::read`] can be dropped at any time and called again.
#[derive(Debug, Default)]
pub struct Reader {
    read: BytesMut,
}

impl Reader {
    /// As [`read_header`].
    pub async fn read<R: AsyncRead + Unpin>(&mut self, io: &mut R) -> Result<Header, Error> {
        loop {
            match next(&self.read)? {
                Step::Read(most) => {
                    // As much as a valid header must still have; what follows it stays in the stream.
                    if io.read_buf(&mut (&mut self.read).limit(most)).await.map_err(Error::Io)? == 0 {
                        return self.give_up();
                    }
                }
                Step::Absent => return self.give_up(),
                Step::Found(header) => return Ok(header),
            }
        }
    }

    /// To be called when waiting for a header takes too long: as if the stream had ended here.
    pub fn give_up(&mut self) -> Result<Header, Error> {
        if self.read.starts_with(V1_SIGNATURE) || self.read.starts_with(V2_SIGNATURE) {
            return Err(Error::Truncated);
        }
        Ok(Header::Absent { read: std::mem::take(&mut self.read).freeze() })
    }
}

enum Step {
    /// Undecided. At least this many bytes are missing.
    Read(usize),
    Absent,
    Found(Header),
}

/// What the bytes at the beginning of a stream say. Pure, and the only place that decides.
fn next(read: &[u8]) -> Result<Step, Error> {
    if read.starts_with(V1_SIGNATURE) {
        next_v1(read)
    } else if read.starts_with(V2_SIGNATURE) {
        next_v2(read)
    } else if V1_SIGNATURE.starts_with(read) || V2_SIGNATURE.starts_with(read) {
        Ok(Step::Read(V1_SHORTEST - read.len()))
    } else {
        Ok(Step::Absent)
    }
}

fn next_v1(read: &[u8]) -> Result<Step, Error> {
    if let Some(at) = read.iter().position(|&b| b == b'\n') {
        // More than the line can only have been read when the line is shorter than any valid one.
        if at + 1 != read.len() {
            return Err(Error::Malformed("version 1: line too short"));
        }
        let line = read.strip_suffix(b"\r\n").ok_or(Error::Malformed("version 1: LF without CR"))?;
        return parse_v1(line).map(Step::Found);
    }
    if read.len() < V1_SHORTEST {
        return Ok(Step::Read(V1_SHORTEST - read.len()));
    }
    let left = if read.ends_with(b"\r") {
        1
    } else if read.starts_with(b"PROXY TCP4 ") || read.starts_with(b"PROXY TCP6 ") {
        // Each of the six words has a byte at least; the one before the cut may be complete.
        let spaces = read.iter().filter(|&&b| b == b' ').count();
        2 * 5usize.saturating_sub(spaces) + 2
    } else if read.starts_with(b"PROXY UNKNOWN") {
        2
    } else {
        return Err(Error::Malformed("version 1: neither TCP4, TCP6 nor UNKNOWN"));
    };
    if read.len() + left > V1_LONGEST {
        return Err(Error::TooLong);
    }
    Ok(Step::Read(left))
}

/// `line` without CRLF. More words than six are ignored, as fabio does.
fn parse_v1(line: &[u8]) -> Result<Header, Error> {
    let line = std::str::from_utf8(line).map_err(|_| Error::Malformed("version 1: not ASCII"))?;
    if line.contains('\r') {
        return Err(Error::Malformed("version 1: CR without LF"));
    }
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(Header::Unknown);
    }
    let address: fn(&str) -> Option<IpAddr> = match family {
        Some("TCP4") => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some("TCP6") => |word| word.parse::<IpAddr>().ok(),
        _ => return Err(Error::Malformed("version 1: neither TCP4, TCP6 nor UNKNOWN")),
    };
    let mut address = || words.next().and_then(address).ok_or(Error::Malformed("version 1: address"));
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().and_then(port).ok_or(Error::Malformed("version 1: port"));
    let (source_port, destination_port) = (port()?, port()?);
    Ok(proxied(source, source_port, destination, destination_port))
}

fn port(word: &str) -> Option<u16> {
    // `parse` alone would take a sign.
    word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

fn next_v2(read: &[u8]) -> Result<Step, Error> {
    // Version and command (13th byte) are judged as soon as they are there: the rest may never come.
    let local = match read.get(12) {
        None => return Ok(Step::Read(V1_SHORTEST - read.len())),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(b) if b >> 4 == 2 => return Err(Error::Malformed("version 2: command")),
        Some(_) => return Err(Error::Malformed("version 2: version")),
    };
    let Some(&[high, low]) = read.get(14..V2_FIXED) else {
        return Ok(Step::Read(V2_FIXED - read.len()));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > V2_LONGEST {
        return Err(Error::TooLong);
    }
    if read.len() < V2_FIXED + length {
        return Ok(Step::Read(V2_FIXED + length - read.len()));
    }
    // Whatever a LOCAL header carries is to be skipped, families that nobody knows among it.
    if local { Ok(Step::Found(Header::Local)) } else { parse_v2(read).map(Step::Found) }
}

/// `header` is complete, of version 2, and its command is PROXY.
fn parse_v2(header: &[u8]) -> Result<Header, Error> {
    let mut rest = header;
    let ProxyHeader::Version2 { transport_protocol, addresses, .. } =
        proxy_protocol::parse(&mut rest).map_err(|_| Error::Malformed("version 2: family or length"))?
    else {
        return Err(Error::Malformed("version 2: version"));
    };
    let (header_of, length) = match addresses {
        // The specification leaves it to us; fabio refuses.
        ProxyAddresses::Unspec => return Err(Error::Malformed("version 2: unspecified family")),
        ProxyAddresses::Ipv4 { source: s, destination: d } => {
            (proxied(IpAddr::V4(*s.ip()), s.port(), IpAddr::V4(*d.ip()), d.port()), 12)
        }
        ProxyAddresses::Ipv6 { source: s, destination: d } => {
            (proxied(IpAddr::V6(*s.ip()), s.port(), IpAddr::V6(*d.ip()), d.port()), 36)
        }
        ProxyAddresses::Unix { .. } => (Header::Unix, 216),
    };
    if transport_protocol == ProxyTransportProtocol::Unspec {
        return Err(Error::Malformed("version 2: unspecified transport"));
    }
    check_sum(header, V2_FIXED + length)?;
    Ok(header_of)
}

/// Compares the CRC32c of the header with the one in it, if one of its TLVs, which begin at `tlvs`, is one.
///
/// TLVs that do not fit end the search without being an error: before there were TLVs, senders padded.
fn check_sum(header: &[u8], tlvs: usize) -> Result<(), Error> {
    let mut at = tlvs;
    while let Some(&[kind, high, low]) = header.get(at..at + 3) {
        let value = at + 3;
        let next = value + usize::from(u16::from_be_bytes([high, low]));
        if kind == TLV_CRC32C {
            let Some(&[a, b, c, d]) = header.get(value..next) else {
                return Err(Error::Checksum);
            };
            // Computed with zeros in its own place.
            let sum = crc32c::sum(&[&header[..value], &[0; 4], &header[next..]]);
            return if sum == u32::from_be_bytes([a, b, c, d]) { Ok(()) } else { Err(Error::Checksum) };
        }
        at = next;
    }
    Ok(())
}

fn proxied(source: IpAddr, source_port: u16, destination: IpAddr, destination_port: u16) -> Header {
    Header::Proxied {
        source: SocketAddr::new(source.to_canonical(), source_port),
        destination: SocketAddr::new(destination.to_canonical(), destination_port),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Malformed(what) => write!(f, "malformed PROXY header, {what}"),
            Error::TooLong => f.write_str("PROXY header too long"),
            Error::Truncated => f.write_str("incomplete PROXY header"),
            Error::Checksum => f.write_str("PROXY header with a wrong checksum"),
            Error::Io(_) => f.write_str("reading a PROXY header failed"),
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

const V1_SIGNATURE: &[u8] = b"PROXY";
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// `PROXY UNKNOWN` and CRLF. Shorter than the 16 bytes every version 2 header has, so it is safe to read that many before
/// the version is known.
const V1_SHORTEST: usize = 15;
/// With CRLF. From the specification, which counts the longest TCP6 and UNKNOWN lines.
const V1_LONGEST: usize = 107;
/// Signature, version and command, family and transport, length.
const V2_FIXED: usize = 16;
/// fabio's limit on what follows them; a length has 16 bits, and nobody has so much to say.
const V2_LONGEST: usize = 4096;
/// `PP2_TYPE_CRC32C`
const TLV_CRC32C: u8 = 0x03;

#[cfg(test)]
mod tests;
