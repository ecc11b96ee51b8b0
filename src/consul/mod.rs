//! Consul's HTTP API: blocking queries by the book, consistency, tokens, namespaces.
//!
//! It knows Consul, not what its answers are used for.

mod calls;
mod client;
mod lock;
mod model;
mod position;
mod watch;

pub use calls::{Keys, Stored, pairs};
pub(crate) use client::go_duration;
pub use client::{Answer, Client, Contact, Error, Read};
pub use lock::Lock;
pub use model::{AgentCheck, AgentService, Check, Entry, Node, Pair, Registration, Service};
pub use position::{Position, Step};
pub use watch::{Failure, Mode, Seen, Watch};

/// How to reach Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `host:port`, or `unix:///path`.
    pub addr: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Below which path the API lives; usually empty.
    pub path_prefix: String,
    pub token: Token,
    pub namespace: Option<String>,
    pub partition: Option<String>,
    /// Whose catalog is asked for; `None`: that of the agent's own.
    pub datacenter: Option<String>,
    pub consistency: Consistency,
    pub tls: Tls,
}

impl Config {
    /// Where it is, for people.
    pub fn place(&self) -> String {
        match self.addr.starts_with("unix://") {
            true => self.addr.clone(),
            false => format!("{}://{}{}", self.scheme, self.addr, self.path_prefix),
        }
    }
}

/// Sent as `X-Consul-Token`. Never part of a URL or a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Token {
    #[default]
    None,
    Value(String),
    /// Read again when it changes.
    File(std::path::PathBuf),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Token::None => "None",
            Token::Value(_) => "Value(..)",
            Token::File(_) => "File(..)",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    Default,
    #[default]
    Consistent,
    Stale,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub key_file: Option<String>,
    pub cert_file: Option<String>,
    pub ca_file: Option<String>,
    pub ca_path: Option<String>,
    pub server_name: Option<String>,
    pub insecure_skip_verify: bool,
}
