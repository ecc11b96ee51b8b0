//! What became of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::Family;
use crate::net::TlsInfo;
use crate::upstream::TargetState;

/// A connection that is over, for the access log.
#[derive(Clone, Copy)]
pub struct Ended<'a> {
    pub family: Family,
    /// Both after a PROXY header was applied.
    pub remote: SocketAddr,
    pub local: SocketAddr,
    /// As the client sent it, if it was read.
    pub server_name: Option<&'a str>,
    /// Set when TLS was ended here.
    pub tls: Option<&'a TlsInfo>,
    /// The one that it went to, or the last that was tried, or that it was denied.
    pub target: Option<&'a TargetState>,
    /// Bytes that the target took.
    pub from_client: u64,
    /// Bytes that the client took.
    pub from_target: u64,
    /// Since it was accepted.
    pub took: Duration,
    pub reason: Reason,
}

/// Hears of connections that are over. Runs on the worker, so it must not wait.
pub type Hook = Rc<dyn Fn(&Ended<'_>)>;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Both sides have ended it.
    Done,
    /// The client's connection broke.
    ClientFailed,
    /// The target's connection broke.
    TargetFailed,
    /// Nothing moved for too long.
    Idle,
    /// The client did not take its bytes.
    Stuck,
    /// What the client sent is no ClientHello, or names no server, or did not come in time.
    NoName,
    /// Our TLS handshake with the client failed.
    Handshake,
    NoRoute,
    /// By an access rule.
    Denied,
    /// No target could be reached.
    Unreachable,
    /// Cut when time was up at the end of the process.
    Shutdown,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::Done => "done",
            Reason::ClientFailed => "client_failed",
            Reason::TargetFailed => "target_failed",
            Reason::Idle => "idle",
            Reason::Stuck => "stuck",
            Reason::NoName => "no_name",
            Reason::Handshake => "handshake",
            Reason::NoRoute => "no_route",
            Reason::Denied => "denied",
            Reason::Unreachable => "unreachable",
            Reason::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
