//! The API and the pages of the admin listener.
//!
//! Runs in the control plane and sees the other parts through [`Views`] only. HTTP/1.1 on whatever stream it is given:
//! sockets and TLS are somebody else's business. Everything that comes in is bounded: connections, heads, bodies, the
//! time for each, and the time that a client may take to read.

mod answer;
mod api;
mod body;
mod certificates;
mod colors;
mod control;
mod explain;
mod history;
mod hosts;
mod input;
mod json;
mod live;
mod login;
mod manual;
mod origin;
mod pages;
mod serve;
mod stall;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

pub use certificates::{CertificateSourceView, CertificateView, CertificatesView, TlsListenerView, WaitingView};
pub use colors::is_color;
pub use login::{Login, Refused};
pub use serve::{serve, serve_connection};
pub use views::{
    BoxError, BoxFuture, Change, Condition, DatacenterView, Explain, Health, Operations, Override, Overrides,
    SourceView, StatusView, Views, Written,
};

/// `ui.*`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub listen: crate::listen::Config,
    pub access: Access,
    /// Base path without trailing slash; empty: none. `/health` is never below it.
    pub path: String,
    pub title: String,
    pub color: String,
    pub source_link: SourceLink,
    /// `ui.hosts`: names that browsers may call us by, beside those that cannot be anybody else's. Set: no others at all.
    pub hosts: Vec<String>,
    /// `ui.auth`: the scheme of `proxy.auth` that lets people in.
    pub auth: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only `/health`.
    Closed,
    ReadOnly,
    ReadWrite,
}

impl Access {
    /// As `ui.access` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Access::Closed => "no",
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        }
    }
}

/// `ui.routingtable.source.*`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLink {
    pub enabled: bool,
    pub new_tab: bool,
    pub scheme: String,
    pub host: String,
    pub port: String,
}

/// What every connection shares.
pub struct State {
    config: Config,
    /// `ui.path`, with a leading and without a trailing slash, or empty.
    base: String,
    views: Views,
    /// The last answer of `/api/routes`: large tables are put into words once, not once per reader.
    routes: tokio::sync::Mutex<api::RoutesCache>,
    hub: live::Hub,
    /// A permit per open connection.
    connections: tokio::sync::Semaphore,
}

impl State {
    pub fn new(config: Config, views: Views) -> Arc<Self> {
        let base = match config.path.trim_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        let connections = tokio::sync::Semaphore::new(serve::CONNECTIONS_MAX);
        Arc::new(Self { config, base, views, routes: Default::default(), hub: Default::default(), connections })
    }
}
