//! Keys of our own in Consul's KV store. They lie below `ferrio/`, and never where overrides are read.

use super::super::Error;

/// Named after the path of the overrides, so that groups with different overrides are apart.
#[derive(Clone, Debug)]
pub(in crate::registry) struct OwnKeys {
    /// Without leading and trailing slashes.
    path: String,
}

impl OwnKeys {
    pub(in crate::registry) fn new(overrides: &str) -> Self {
        Self { path: overrides.trim_matches('/').to_owned() }
    }

    /// The list of what is disabled.
    pub(in crate::registry) fn disabled(&self) -> Option<String> {
        self.below("disabled").map(|key| key.trim_end_matches('/').to_owned())
    }

    /// What all versions of one override begin with; `suffix` is empty or begins with a slash.
    pub(in crate::registry) fn history(&self, suffix: &str) -> Option<String> {
        self.below("history").map(|key| format!("{}{suffix}/", key.trim_end_matches('/')))
    }

    pub(in crate::registry) fn refusal(&self) -> Error {
        Error::Setup(format!(
            "nothing can be kept in Consul: keys below ferrio/ would be read as overrides, which are at {:?}",
            self.path
        ))
    }

    /// `None`: fabio and ferrio read every key that begins with the path of the overrides.
    fn below(&self, what: &str) -> Option<String> {
        let key = format!("ferrio/{what}/{}", self.path);
        (!key.starts_with(&self.path)).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_are_never_overrides() {
        for (path, disabled, history) in [
            ("/fabio/config", Some("ferrio/disabled/fabio/config"), Some("ferrio/history/fabio/config/x/")),
            ("lb", Some("ferrio/disabled/lb"), Some("ferrio/history/lb/x/")),
            ("ferrio", None, None),
            ("/fer/", None, None),
            ("ferrio/disabled", None, Some("ferrio/history/ferrio/disabled/x/")),
            ("", None, None),
        ] {
            let keys = OwnKeys::new(path);
            assert_eq!(keys.disabled().as_deref(), disabled, "{path}");
            assert_eq!(keys.history("/x").as_deref(), history, "{path}");
        }
    }
}
