//! Answering for a target.

pub mod http;
mod note;
mod preamble;
pub mod tcp;
pub mod udp;

use std::time::Duration;

use self::note::note;
use self::preamble::preamble;

/// Whose WebSockets end with a close frame when the process goes. Others see the end of the connection, as with fabio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Farewell {
    /// Clients that sent Origin, as all browsers do (RFC 6455, section 4.1): their scripts see code 1001 instead of 1006.
    #[default]
    Browsers,
    All,
    Nobody,
}

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
    /// Bytes in one gRPC message, from a client or a target (`proxy.grpcmaxrxmsgsize`).
    pub grpc_max_received: u64,
    /// Bytes in one gRPC message to a client (`proxy.grpcmaxtxmsgsize`).
    pub grpc_max_sent: u64,
    /// Retries that a route may have, in percent of its requests (`proxy.retrybudget`, new; default 20).
    pub retry_budget: u32,
    /// Bytes of a request body that are kept for a retry (`proxy.retrybuffer`, new; default 64 KiB).
    pub retry_buffer: usize,
    /// Bytes in one request body (`proxy.maxbody`, new); 0: no limit.
    pub max_body: u64,
    /// Who is told when this process goes (`proxy.websocket.closeframe`, new).
    pub farewell: Farewell,
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
