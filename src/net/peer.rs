//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

/// The two ends of a client connection, after a PROXY header was applied.
#[derive(Clone, Debug)]
pub struct Peer {
    pub remote: SocketAddr,
    pub local: SocketAddr,
    /// Set when TLS is terminated here.
    pub tls: Option<Arc<TlsInfo>>,
}

/// What a TLS handshake settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// As on the wire: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
    pub version: u16,
    /// Cipher suite number as on the wire.
    pub cipher: u16,
    /// The name that the client asked for, in lower case.
    pub server_name: Option<String>,
}
