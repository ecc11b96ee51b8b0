//! The API and the pages of the admin listener.

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only `/health`.
    Closed,
    ReadOnly,
    ReadWrite,
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
