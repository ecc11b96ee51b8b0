//! Environment variables as a source of options.

use std::collections::HashMap;
use std::ffi::OsString;

use super::options::{DUMMIES, OPTIONS};
use super::suggest::near;

/// The variables of the process. Names that differ only in case are one for options; the later wins.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// By name as it is, for `${NAME}` and for variables of others.
    exact: HashMap<String, String>,
    /// By name in upper case: the name as it was written, the value.
    folded: HashMap<String, (String, String)>,
}

impl Environment {
    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            // A name that is no text is none of ours.
            let Ok(name) = name.into_string() else { continue };
            let value = value.to_string_lossy().into_owned();
            environment.folded.insert(name.to_uppercase(), (name.clone(), value.clone()));
            environment.exact.insert(name, value);
        }
        environment
    }

    /// A variable of exactly this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.exact.get(name).map(String::as_str)
    }

    /// As [`get`](Self::get), but an empty variable is none.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The variable that sets a key, as it is written, and its value: first with `FABIO_` in front, then without.
    pub(crate) fn option(&self, key: &str) -> Option<(&str, &str)> {
        let name = folded(key);
        let found = self.folded.get(&format!("{PREFIX}{name}")).or_else(|| self.folded.get(&name));
        found.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Variables that begin with `FABIO_` and look as if they were meant to be an option, with the option's variable. The
    /// others are not reported: container platforms make such names of their own for a service called fabio.
    pub(crate) fn mistyped(&self) -> Vec<(String, String)> {
        let names: Vec<String> = OPTIONS
            .iter()
            .flat_map(|spec| std::iter::once(&spec.key).chain(spec.aliases))
            .map(|key| folded(key))
            .collect();
        let mut found: Vec<(String, String)> = self
            .folded
            .iter()
            .filter_map(|(name, (written, _))| Some((name.strip_prefix(PREFIX)?, written)))
            .filter(|(name, _)| !names.iter().any(|n| n == name) && !DUMMIES.iter().any(|d| folded(d) == *name))
            .filter_map(|(name, written)| {
                let meant = near(name, names.iter().map(String::as_str))?;
                Some((written.clone(), format!("{PREFIX}{meant}")))
            })
            .collect();
        found.sort();
        found
    }
}

fn folded(key: &str) -> String {
    key.replace('.', "_").to_uppercase()
}

const PREFIX: &str = "FABIO_";

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::new(variables.iter().map(|(n, v)| (n.into(), v.into())))
    }

    #[test]
    fn names_are_found_in_any_case_and_with_the_prefix_first() {
        for (variables, want) in [
            (&[("FABIO_PROXY_ADDR", "a"), ("PROXY_ADDR", "b")][..], Some(("FABIO_PROXY_ADDR", "a"))),
            (&[("PROXY_ADDR", "b"), ("FABIO_PROXY_ADDR", "a")], Some(("FABIO_PROXY_ADDR", "a"))),
            (&[("FABIO_proxy_addr", "a")], Some(("FABIO_proxy_addr", "a"))),
            (&[("fabio_PROXY_ADDR", "a")], Some(("fabio_PROXY_ADDR", "a"))),
            (&[("proxy_addr", "a")], Some(("proxy_addr", "a"))),
            (&[("PROXY_ADDR", "a"), ("proxy_addr", "b")], Some(("proxy_addr", "b"))),
            (&[("FABIO_PROXY_ADDR", ""), ("PROXY_ADDR", "b")], Some(("FABIO_PROXY_ADDR", ""))),
            (&[("PROXY.ADDR", "a"), ("FABIOPROXY_ADDR", "b")], None),
        ] {
            assert_eq!(environment(variables).option("proxy.addr"), want, "{variables:?}");
        }
        let poll = environment(&[("REGISTRY_CONSUL_CHECKSREQUIRED", "all")]);
        assert!(poll.option("registry.consul.checksRequired").is_some());
    }

    #[test]
    fn a_mistyped_variable_is_noticed_and_a_strange_one_is_not() {
        let environment = environment(&[
            ("FABIO_PROXY_ADR", ":80"),
            ("FABIO_SERVICE_HOST", "10.0.0.1"),
            ("FABIO_PORT_9999_TCP_PROTO", "tcp"),
            ("FABIO_CFG", "x"),
            ("FABIO_UI_TITLE", "x"),
            ("PROXY_ADR", ":80"),
        ]);
        assert_eq!(environment.mistyped(), [("FABIO_PROXY_ADR".to_owned(), "FABIO_PROXY_ADDR".to_owned())]);
    }
}
