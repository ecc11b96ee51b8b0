//! Answering for a target.

pub mod http;
mod preamble;
pub mod tcp;
pub mod udp;

use std::time::Duration;

use self::preamble::preamble;

/// What the HTTP proxy does beside forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub strategy: crate::route::Strategy,
    /// `proxy.noroutestatus`, 100 to 999.
    pub no_route_status: u16,
    /// `by=` in `Forwarded`; empty: none.
    pub local_ip: String,
    /// Header set to the peer's address (`proxy.header.clientip`); empty: none.
    pub client_ip_header: String,
    /// Header set on TLS requests and removed from others (`proxy.header.tls`); empty: none.
    pub tls_header: String,
    pub tls_header_value: String,
    /// Header for a fresh request id (`proxy.header.requestid`); empty: none.
    pub request_id_header: String,
    pub sts: Sts,
    /// Networks whose forwarding headers are believed (`proxy.trusted`, new); `None`: from everybody, as fabio.
    pub trusted: Option<Vec<ipnet::IpNet>>,
    /// Fall back to the host without its port when no route has `host:port` (`proxy.matchhostport=strip`, new).
    pub strip_port: bool,
    /// Header lines in one head (`proxy.maxheaders`, new; default 512).
    pub max_headers: usize,
    /// Bytes in one head (`proxy.maxheadersize`, new; default 256 KiB).
    pub max_header_size: usize,
    /// Bytes in one request target (`proxy.maxtargetsize`, new; default 64 KiB).
    pub max_target_size: usize,
    /// Bytes in one request body (`proxy.maxbody`, new); 0: no limit.
    pub max_body: u64,
    /// How long nothing may move on a WebSocket (`proxy.websocket.idletimeout`, new); 0: for ever.
    pub websocket_idle_timeout: Duration,
    /// `None`: responses are passed on as they are.
    pub compression: Option<http::Compression>,
    /// Accepted and without effect: nothing is held back.
    pub flush_interval: Duration,
    pub global_flush_interval: Duration,
}

/// `Strict-Transport-Security` (RFC 6797) on TLS listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sts {
    /// Seconds; 0: no header.
    pub max_age: u32,
    pub subdomains: bool,
    pub preload: bool,
}
