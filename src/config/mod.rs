//! Text to values: the only place that knows property names.
//!
//! Flags, `FABIO_` variables, plain variables, a properties file and defaults, in this order, fill one table of options
//! (`options`); each part then gets its `Config` (`parts`). Every mistake is found before anything is said.

mod acme;
mod agent;
mod auth;
mod bgp;
mod certificates;
mod compression;
mod document;
mod doubts;
pub mod duration;
mod effective;
mod environment;
mod expression;
mod flags;
mod inspect;
mod json;
mod kind;
pub mod kvlist;
mod listeners;
mod loader;
mod number;
mod options;
mod parts;
mod pending;
pub mod properties;
mod reference;
mod settings;
mod sockaddr;
mod suggest;
mod targets;
mod template;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt;
use std::str::FromStr;

pub use effective::Effective;
pub use inspect::{Inspection, Mistake, inspect};
pub use json::pretty;
pub use loader::load;
pub use reference::reference;
pub(crate) use suggest::near;

/// The effective configuration, one `Config` per part.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub log: Log,
    /// `None`: no access log.
    pub access_log: Option<crate::access_log::Config>,
    pub listeners: Vec<crate::listen::Config>,
    pub limits: crate::listen::LimitsConfig,
    /// What `cert_source` of the listeners and of the admin listener refer to; each name once.
    pub cert_sources: Vec<crate::cert::CertSource>,
    /// `None`: `ui.addr` is empty, no admin listener.
    pub admin: Option<crate::admin::Config>,
    pub registry: crate::registry::Config,
    pub proxy: crate::proxy::Config,
    pub auth: crate::auth::Config,
    pub upstream: crate::upstream::Config,
    pub metrics: crate::metrics::Config,
    /// `None`: nothing is traced.
    pub traces: Option<crate::traces::Config>,
    pub life: crate::life::Config,
    /// Data-plane threads (`runtime.gomaxprocs`, or the number of CPUs).
    pub workers: usize,
    /// Who to become once the sockets are bound: `user` or `user:group`; empty: nobody else.
    pub user: String,
    /// Only selects which warning root gets.
    pub insecure: bool,
    /// The whole of `/api/config` as JSON text in fabio's shape, secrets masked. Compact.
    pub json: String,
    /// Every option with its value and where that comes from, secrets masked.
    pub effective: Vec<Effective>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: Level,
}

/// How much the process log says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    #[default]
    Info,
    Warn,
    Error,
    Fatal,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Trace => "TRACE",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
            Level::Fatal => "FATAL",
        })
    }
}

/// In any case. No other word is a level.
impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Fatal];
        let upper = text.to_uppercase();
        levels.into_iter().find(|level| level.to_string() == upper).ok_or(())
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// `warnings` are to be logged once the level is set.
    Run { config: Box<Config>, warnings: Vec<(Level, String)> },
    /// Version or help: print and exit with `code`.
    Print { text: String, stdout: bool, code: u8 },
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// 1: mistakes in the configuration; log `message` as FATAL. 2: mistakes in the flags; print it as it is.
    pub code: u8,
    /// One mistake on a line. Ends without a line break.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
