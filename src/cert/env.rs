//! What sources have around them: environment variables by which clients of Consul and Vault are set up everywhere, and
//! sessions with Vault that they share.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::vault::Vault;

/// One for all sources. A value, so that tests need not change the environment of the process.
#[derive(Clone)]
pub struct Env(Arc<Inner>);

struct Inner {
    lookup: Box<Lookup>,
    vaults: Mutex<Vaults>,
}

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// By address, namespace, and where the token comes from.
type Vaults = HashMap<(String, Option<String>, Option<String>), Weak<Vault>>;

impl Env {
    /// Of this process: always the same one.
    pub fn process() -> Self {
        static PROCESS: LazyLock<Env> = LazyLock::new(|| Env::with(|name| std::env::var(name).ok()));
        PROCESS.clone()
    }

    fn with(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { lookup: Box::new(lookup), vaults: Mutex::default() }))
    }

    pub(super) fn vaults(&self) -> MutexGuard<'_, Vaults> {
        self.0.vaults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: not set, or empty.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0.lookup)(name).filter(|value| !value.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn of(all: &[(&str, &str)]) -> Self {
        let all: HashMap<String, String> =
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::with(move |name| all.get(name).cloned())
    }
}
