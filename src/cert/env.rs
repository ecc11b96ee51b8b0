//! Environment variables by which clients of Consul and Vault are set up everywhere.

use std::sync::Arc;

/// Looks variables up. A value of its own, so that tests need not change the environment of the process.
#[derive(Clone)]
pub struct Env(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Env {
    /// Of this process.
    pub fn process() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }

    /// `None`: not set, or empty.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn of(all: &[(&str, &str)]) -> Self {
        let all: std::collections::HashMap<String, String> =
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self(Arc::new(move |name| all.get(name).cloned()))
    }
}
