//! Who gives instances: a service of a datacenter.

use std::fmt;
use std::sync::Arc;

/// Services of one name in two datacenters are two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Giver {
    /// `None`: our own.
    pub(super) datacenter: Option<Arc<str>>,
    pub(super) service: Arc<str>,
}

impl Giver {
    /// For a builder.
    pub(super) fn datacenter(&self) -> &str {
        self.datacenter.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Giver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.datacenter {
            None => f.write_str(&self.service),
            Some(datacenter) => write!(f, "{} in {datacenter}", self.service),
        }
    }
}
