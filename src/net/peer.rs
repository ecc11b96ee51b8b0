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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// As on the wire: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
    pub version: u16,
    /// Cipher suite number as on the wire.
    pub cipher: u16,
    /// The name that the client asked for, in lower case.
    pub server_name: Option<String>,
    /// The certificate that the client has shown. It was verified, else there would be no connection.
    pub client: Option<Arc<ClientCertificate>>,
}

/// What a client's certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    /// As in RFC 4514: `CN=a,O=b`, ASCII, with escapes.
    pub subject: String,
    pub issuer: String,
    /// Hex: `0a:ff`.
    pub serial: String,
    /// Subject alternative names with their kind: `DNS:a.com`, `URI:spiffe://a/b`.
    pub alternative: Vec<String>,
    /// SHA-256 of the certificate, hex.
    pub fingerprint: String,
    /// Seconds since 1970.
    pub not_after: i64,
}
