//! Text to values: the only place that knows property names.

/// The effective configuration, one `Config` per part.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub log: Log,
    pub listeners: Vec<crate::listen::Config>,
    /// `None`: `ui.addr` is empty, no admin listener.
    pub admin: Option<crate::admin::Config>,
    pub registry: crate::registry::Config,
    pub proxy: crate::proxy::Config,
    pub upstream: crate::upstream::Config,
    pub metrics: crate::metrics::Config,
    pub life: crate::life::Config,
    /// Data-plane threads (`runtime.gomaxprocs`, or the number of CPUs).
    pub workers: usize,
    /// Only selects which warning root gets.
    pub insecure: bool,
    /// The whole of `/api/config` as JSON text in fabio's shape, secrets masked. Compact.
    pub json: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: Level,
}

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
