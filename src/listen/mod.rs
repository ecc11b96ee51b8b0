//! From a socket to a connection: bind, accept, PROXY protocol, TLS.

mod accept;
mod bind;
mod inherited;
mod limits;
pub mod tls;

use std::time::Duration;

pub use accept::accept;
pub use bind::{Bound, Error, bind, bind_udp};
pub use inherited::Inherited;
pub use limits::{Door, Limits, LimitsConfig, Reason, Seat};

/// One entry of `proxy.addr` or `ui.addr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `host:port` as configured, templates expanded. The host may be empty (all addresses) or a name.
    pub addr: String,
    pub proto: Proto,
    /// Name of the certificate source, if TLS is terminated here.
    pub cert_source: Option<String>,
    /// 0: no limit. Time for a request head and for each pause in a body (`rt`).
    pub read_timeout: Duration,
    /// 0: no limit. From the end of the request head to the end of the response (`wt`).
    pub write_timeout: Duration,
    /// 0: as `read_timeout`. Between requests on a kept-alive connection (`it`).
    pub idle_timeout: Duration,
    /// Expect a PROXY protocol header (`pxyproto`).
    pub proxy_protocol: bool,
    /// How long to wait for it (`pxytimeout`; 250 ms if enabled and not set).
    pub proxy_header_timeout: Duration,
    /// Networks whose PROXY headers are believed (`pxytrusted`, new); empty: from everybody, as fabio.
    pub proxy_trusted: Vec<ipnet::IpNet>,
    /// Keep serving a request whose client has closed its sending side (`halfclose`, new).
    pub half_close: bool,
    /// HTTP/2 by prior knowledge as well (`h2c`, new). Plain HTTP listeners only.
    pub h2c: bool,
    /// Port to which plain HTTP is sent with TLS (`redirect=https`, `redirect=https:8443`, new).
    pub redirect: Option<u16>,
    /// Whom the certificate source's `clientca` is asked about (`clientauth`, new).
    pub client_auth: ClientAuth,
    /// Tell targets about the certificate of the client (`clientheaders`, new).
    pub client_headers: bool,
    /// `strictmatch`: no certificate for the server name, no handshake.
    pub strict_match: bool,
    /// TLS version numbers as on the wire (0x0303); 0: not set.
    pub tls_min: u16,
    pub tls_max: u16,
    /// Cipher suite numbers as on the wire; empty: all.
    pub tls_ciphers: Vec<u16>,
    /// tcp-dynamic only.
    pub refresh: Duration,
}

/// Whether clients have to show a certificate of an authority of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They have to, if the source has authorities.
    #[default]
    Required,
    /// They may go without. A certificate that is not good ends the handshake all the same.
    Optional,
    /// They are not asked, whatever the source has.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proto {
    Http,
    Https,
    Tcp,
    TcpSni,
    TcpDynamic,
    HttpsTcpSni,
    Udp,
    Grpc,
    Grpcs,
    Prometheus,
}

impl Proto {
    /// As `proto=` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Proto::Http => "http",
            Proto::Https => "https",
            Proto::Tcp => "tcp",
            Proto::TcpSni => "tcp+sni",
            Proto::TcpDynamic => "tcp-dynamic",
            Proto::HttpsTcpSni => "https+tcp+sni",
            Proto::Udp => "udp",
            Proto::Grpc => "grpc",
            Proto::Grpcs => "grpcs",
            Proto::Prometheus => "prometheus",
        }
    }
}
