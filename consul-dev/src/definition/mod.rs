//! Service and check definitions: the body of an agent registration, and the files of a configuration folder.

mod agent;
mod catalog;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::decode::{self, Fields};
use crate::records::Service;

pub(crate) use agent::{AgentCheck, Probe, ServiceDefinition};

/// A service to register at start, in the form of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    value: Value,
}

/// Definitions that cannot be used.
#[derive(Debug)]
pub enum DefinitionError {
    /// A file or folder that cannot be read.
    Read(std::path::PathBuf, std::io::Error),
    /// Text that is no valid definition, with what is wrong and where it came from.
    Invalid(String, String),
}

impl Definition {
    /// The definitions in one configuration file: its `service` and `services`. Other settings are ignored.
    ///
    /// # Errors
    /// [`DefinitionError::Invalid`] if it is no JSON or a definition has a fault; `origin` names it then.
    pub fn parse(text: &str, origin: &str) -> Result<Vec<Self>, DefinitionError> {
        let invalid = |what: String| DefinitionError::Invalid(origin.to_owned(), what);
        let value = decode::json(text.as_bytes()).map_err(invalid)?;
        let mut file = Fields::new(value, None, "a configuration").map_err(invalid)?;
        let mut values: Vec<Value> = file.take("service").into_iter().collect();
        values.extend(file.list("services").map_err(invalid)?);
        values
            .into_iter()
            .map(|value| {
                ServiceDefinition::decode(value.clone()).map_err(|e| invalid(e.text().to_owned()))?;
                Ok(Self { value })
            })
            .collect()
    }

    /// The definitions of every `*.json` file in a folder, by file name.
    ///
    /// # Errors
    /// As for [`Definition::parse`], and if the folder or a file cannot be read.
    pub fn read_folder(folder: &Path) -> Result<Vec<Self>, DefinitionError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |e| DefinitionError::Read(path, e)
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                files.push(path);
            }
        }
        files.sort();
        let mut definitions = Vec::new();
        for path in files {
            let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
            definitions.extend(Self::parse(&text, &path.display().to_string())?);
        }
        Ok(definitions)
    }

    /// The sample services that are built in, a copy of `consul-dev/services/*.json`.
    #[must_use]
    pub fn samples() -> Vec<Self> {
        let files = [
            ("hello.json", include_str!("../../services/hello.json")),
            ("echo.json", include_str!("../../services/echo.json")),
            ("demo.json", include_str!("../../services/demo.json")),
        ];
        let parsed = files.into_iter().map(|(name, text)| Self::parse(text, name));
        parsed.flat_map(|result| result.expect("the built-in definitions are tested")).collect()
    }

    /// The service's id.
    #[must_use]
    pub fn id(&self) -> String {
        self.with_service(|service| service.id.clone())
    }

    /// The service's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.with_service(|service| service.name.clone())
    }

    /// The service's tags.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        self.with_service(|service| service.tags.clone())
    }

    /// The service's address, without port; empty if it has none of its own.
    #[must_use]
    pub fn address(&self) -> String {
        self.with_service(|service| service.address.clone())
    }

    /// The service's port; 0 if it has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.with_service(|service| u16::try_from(service.port).unwrap_or_default())
    }

    /// Give the service another port, in the definition itself and in the addresses of its checks.
    pub fn set_port(&mut self, port: u16) {
        let old = format!(":{}", self.port());
        let new = format!(":{port}");
        let Value::Object(members) = &mut self.value else { return };
        for (key, value) in members {
            match key.to_lowercase().as_str() {
                "port" => *value = port.into(),
                "check" | "checks" => replace_port(value, &old, &new),
                _ => {}
            }
        }
    }

    pub(crate) fn decode(&self) -> ServiceDefinition {
        ServiceDefinition::decode(self.value.clone()).expect("decoded once when it was made")
    }

    fn with_service<T>(&self, read: impl Fn(&Service) -> T) -> T {
        read(&self.decode().service)
    }
}

/// Replace the port in every text of a check that names it; `:80` must not match in `:8080`.
fn replace_port(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => {
            if let Some(at) = text.rfind(old) {
                let end = at + old.len();
                if !text[end..].starts_with(|c: char| c.is_ascii_digit()) {
                    text.replace_range(at..end, new);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_port(item, old, new)),
        Value::Object(members) => members.values_mut().for_each(|item| replace_port(item, old, new)),
        _ => {}
    }
}

impl std::fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(path, _) => write!(f, "cannot read {}", path.display()),
            Self::Invalid(origin, what) => write!(f, "{origin}: {what}"),
        }
    }
}

impl std::error::Error for DefinitionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, e) => Some(e),
            Self::Invalid(..) => None,
        }
    }
}

/// Why a registration is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not even well-formed: what Consul puts after `Request decode failed: `.
    Decode(String),
    /// Well-formed, but not acceptable: the whole answer, with status 400.
    Bad(String),
    /// Not possible on this agent: the whole answer, with status 500.
    Unable(String),
}

impl Refusal {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Decode(text) | Self::Bad(text) | Self::Unable(text) => text,
        }
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self::Decode(text)
    }
}

/// What a call answers, with status 500, if it names another data centre.
pub(crate) const NO_PATH: &str = "No path to datacenter";

fn tagged_addresses(fields: &mut Fields) -> Result<BTreeMap<String, (String, i64)>, Refusal> {
    let Some(value) = fields.take("taggedaddresses") else { return Ok(Default::default()) };
    let Value::Object(members) = value else {
        return Err(Refusal::Decode("json: cannot unmarshal into Go struct field .TaggedAddresses".to_owned()));
    };
    members
        .into_iter()
        .map(|(name, value)| {
            let mut fields = Fields::new(value, None, "structs.ServiceAddress")?;
            Ok((name, (fields.text("address")?, fields.integer("port")?)))
        })
        .collect()
}

fn weights(fields: &mut Fields) -> Result<Option<(i64, i64)>, Refusal> {
    let Some(value) = fields.take("weights") else { return Ok(None) };
    let mut fields = Fields::new(value, None, "structs.Weights")?;
    let weights = (fields.integer("passing")?, fields.integer("warning")?);
    let bad = |text: &str| Err(Refusal::Bad(text.to_owned()));
    match weights {
        (..1, _) => bad("Invalid Weights: Passing must be greater than 0"),
        (_, ..0) => bad("Invalid Weights: Warning must be greater or equal than 0"),
        weights => Ok(Some(weights)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn built_in_samples() {
        let samples = Definition::samples();
        assert!(samples.len() >= 4, "{samples:?}");
        for sample in &samples {
            assert!(sample.port() > 0);
            assert_eq!(sample.address(), "127.0.0.1");
            assert!(sample.tags().iter().any(|tag| tag.starts_with("urlprefix-")));
            assert!(!sample.decode().checks.is_empty());
        }
    }

    #[test]
    fn the_built_in_copy_is_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("services");
        let mut from_files = Definition::read_folder(&folder).unwrap();
        let mut built_in = Definition::samples();
        for definitions in [&mut from_files, &mut built_in] {
            definitions.sort_by_key(Definition::id);
        }
        assert_eq!(from_files, built_in);
    }

    #[test]
    fn another_port() {
        let text = r#"{"service": {"name": "a", "port": 80, "checks": [
            {"http": "http://127.0.0.1:80/x", "interval": "1s"},
            {"tcp": "127.0.0.1:80", "interval": "1s"},
            {"http": "http://127.0.0.1:8080/x", "interval": "1s"}]}}"#;
        let mut definition = Definition::parse(text, "test").unwrap().remove(0);
        definition.set_port(99);
        assert_eq!(definition.port(), 99);
        let checks = definition.decode().checks;
        let probes: Vec<String> = checks.iter().map(|check| format!("{:?}", check.probe)).collect();
        assert!(
            probes[0].contains(":99/x") && probes[1].contains(":99") && probes[2].contains(":8080/x"),
            "{probes:?}"
        );
    }

    #[test]
    fn faulty_files() {
        for text in
            ["", "[]", r#"{"service": {}}"#, r#"{"services": [{"name": "a", "bogus": 1}]}"#, r#"{"services": 3}"#]
        {
            assert!(Definition::parse(text, "test").is_err(), "{text:?}");
        }
        assert_eq!(Definition::parse(r#"{"log_level": "warn"}"#, "test").unwrap(), []);
    }
}
