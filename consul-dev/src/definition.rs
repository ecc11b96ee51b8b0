//! Service and check definitions: the body of an agent registration, and the files of a configuration folder.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::decode::{self, Fields};
use crate::records::{Check, CheckDefinition, Node, Service, default_tagged_addresses};
use crate::store::Registration;

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

/// A service with the checks that the agent is to run for it.
#[derive(Debug)]
pub(crate) struct ServiceDefinition {
    pub(crate) service: Service,
    pub(crate) checks: Vec<AgentCheck>,
}

/// A check as an agent runs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentCheck {
    /// Empty: derived from the service, or for a check of the node from its name.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) notes: String,
    pub(crate) status: String,
    pub(crate) service_id: String,
    pub(crate) probe: Probe,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// Zero: never.
    pub(crate) deregister_after: Duration,
}

/// What a check does to find the state.
#[derive(Debug, Clone, Default)]
pub(crate) enum Probe {
    /// Somebody reports it within that time.
    Ttl(Duration),
    Http {
        url: String,
        method: String,
        headers: Vec<(String, String)>,
        body: String,
    },
    Tcp(String),
    /// Maintenance, aliases and the like: the state stays as it was set.
    #[default]
    Manual,
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
            ("hello.json", include_str!("../services/hello.json")),
            ("echo.json", include_str!("../services/echo.json")),
            ("demo.json", include_str!("../services/demo.json")),
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

impl ServiceDefinition {
    pub(crate) fn decode(value: Value) -> Result<Self, Refusal> {
        let mut fields = Fields::new(value, Some(SERVICE_FIELDS), SERVICE_TYPE)?;
        let mut service = Service {
            id: fields.text("id")?,
            name: fields.text("name")?,
            kind: fields.text("kind")?,
            tags: fields.texts("tags")?,
            address: fields.text("address")?,
            meta: fields.map("meta")?,
            port: fields.integer("port")?,
            enable_tag_override: fields.flag("enabletagoverride")?,
            weights: (1, 1),
            ..Service::default()
        };
        service.tagged_addresses = tagged_addresses(&mut fields)?;
        let weights = weights(&mut fields)?;
        let mut checks = Vec::new();
        // An empty `Check` is as good as none; in the list it is an error.
        if let Some(check) = fields.take("check").filter(|check| *check != serde_json::json!({})) {
            checks.push(AgentCheck::decode(check, SERVICE_CHECK_FIELDS)?);
        }
        for check in fields.list("checks")? {
            checks.push(AgentCheck::decode(check, SERVICE_CHECK_FIELDS)?);
        }
        if service.name.is_empty() {
            return Err(Refusal::Bad("Missing service name".to_owned()));
        }
        if ["0.0.0.0", "::", "[::]"].contains(&service.address.as_str()) {
            return Err(Refusal::Bad("Invalid service address".to_owned()));
        }
        if let Some(weights) = weights {
            service.weights = weights;
        }
        for check in &checks {
            check.validate("Status for checks must 'passing', 'warning', 'critical'")?;
        }
        if service.id.is_empty() {
            service.id.clone_from(&service.name);
        }
        if service.tagged_addresses.is_empty() {
            service.tagged_addresses = default_tagged_addresses(&service.address, service.port);
        }
        Ok(Self { service, checks })
    }
}

impl AgentCheck {
    /// The body of `/v1/agent/check/register`: a check of the node, or of a service that is there already.
    pub(crate) fn decode_alone(value: Value) -> Result<Self, Refusal> {
        let check = Self::decode(value, LONE_CHECK_FIELDS)?;
        if check.name.is_empty() {
            return Err(Refusal::Bad("Missing check name".to_owned()));
        }
        check.validate("Bad check status")?;
        Ok(check)
    }

    fn decode(value: Value, known: &[&str]) -> Result<Self, Refusal> {
        let mut fields = Fields::new(value, Some(known), "structs.CheckType")?;
        let mut id = fields.text("checkid")?;
        if id.is_empty() {
            id = fields.text("id")?;
        }
        let ttl = fields.duration("ttl")?;
        let interval = fields.duration("interval")?;
        let (url, tcp) = (fields.text("http")?, fields.text("tcp")?);
        let mut headers = Vec::new();
        if let Some(Value::Object(members)) = fields.take("header") {
            for (name, values) in members {
                let Value::Array(values) = values else { continue };
                headers.extend(values.iter().filter_map(Value::as_str).map(|value| (name.clone(), value.to_owned())));
            }
        }
        let (method, body) = (fields.text("method")?, fields.text("body")?);
        let alias = !fields.text("aliasservice")?.is_empty() || !fields.text("aliasnode")?.is_empty();
        let probe = if !url.is_empty() {
            Probe::Http { url, method, headers, body }
        } else if !tcp.is_empty() {
            Probe::Tcp(tcp)
        } else if alias {
            Probe::Manual
        } else {
            Probe::Ttl(ttl)
        };
        let scripted = !fields.texts("args")?.is_empty() || !fields.texts("scriptargs")?.is_empty();
        let grpc = !fields.text("grpc")?.is_empty();
        let check = Self {
            id,
            name: fields.text("name")?,
            notes: fields.text("notes")?,
            status: fields.text("status")?,
            service_id: fields.text("serviceid")?,
            interval,
            timeout: fields.duration("timeout")?,
            deregister_after: fields.duration("deregistercriticalserviceafter")?,
            probe,
        };
        if interval > Duration::ZERO && ttl > Duration::ZERO {
            return Err(Refusal::Bad("Invalid check: Interval and TTL cannot both be specified".to_owned()));
        }
        if scripted {
            return Err(Refusal::Unable(
                "Scripts are disabled on this agent from remote calls; to enable, configure 'enable_script_checks' to true"
                    .to_owned(),
            ));
        }
        if grpc {
            return Err(Refusal::Unable("This agent runs no gRPC checks".to_owned()));
        }
        Ok(check)
    }

    fn validate(&self, bad_status: &str) -> Result<(), Refusal> {
        let fault = match &self.probe {
            Probe::Http { .. } | Probe::Tcp(_) if self.interval.is_zero() => {
                "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks"
            }
            Probe::Ttl(ttl) if ttl.is_zero() => "Invalid check: TTL must be > 0 for TTL checks",
            _ if !["", "passing", "warning", "critical"].contains(&self.status.as_str()) => bad_status,
            _ => return Ok(()),
        };
        Err(Refusal::Bad(fault.to_owned()))
    }

    /// The word for it in a check's `Type`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.probe {
            Probe::Ttl(_) => "ttl",
            Probe::Http { .. } => "http",
            Probe::Tcp(_) => "tcp",
            Probe::Manual => "alias",
        }
    }
}

impl Registration {
    /// The body of `/v1/catalog/register`.
    pub(crate) fn decode(value: Value, datacenter: &str) -> Result<Self, Refusal> {
        let mut fields = Fields::new(value, Some(REGISTRATION_FIELDS), "structs.RegisterRequest")?;
        let node = Node {
            id: fields.text("id")?,
            name: fields.text("node")?,
            address: fields.text("address")?,
            tagged_addresses: fields.map("taggedaddresses")?,
            meta: fields.map("nodemeta")?,
            ..Node::default()
        };
        let wanted = fields.text("datacenter")?;
        let skip_node_update = fields.flag("skipnodeupdate")?;
        let service = fields.take("service").map(|value| catalog_service(value, &node.name)).transpose()?;
        let mut checks = Vec::new();
        checks.extend(fields.take("check"));
        checks.extend(fields.list("checks")?);
        let checks = checks.into_iter().map(|value| catalog_check(value, &node.name)).collect::<Result<_, _>>()?;
        let unable = |text: &str| Err(Refusal::Unable(text.to_owned()));
        if !wanted.is_empty() && wanted != datacenter {
            return unable(NO_PATH);
        }
        if node.name.is_empty() {
            return unable("Must provide node");
        }
        if node.address.is_empty() && !skip_node_update {
            return unable("Must provide address if SkipNodeUpdate is not set");
        }
        if !node.id.is_empty() && node.id.len() != 36 {
            return unable("Bad node ID: uuid string is wrong length");
        }
        if service.as_ref().is_some_and(|service| !service.id.is_empty() && service.name.is_empty()) {
            return unable("Must provide service name with ID");
        }
        Ok(Self { node, skip_node_update, service, checks })
    }
}

/// What a call answers, with status 500, if it names another data centre.
pub(crate) const NO_PATH: &str = "No path to datacenter";

fn catalog_service(value: Value, node: &str) -> Result<Service, Refusal> {
    let mut fields = Fields::new(value, Some(CATALOG_SERVICE_FIELDS), "structs.NodeService")?;
    let mut service = Service {
        node: node.to_owned(),
        id: fields.text("id")?,
        name: fields.text("service")?,
        kind: fields.text("kind")?,
        tags: fields.texts("tags")?,
        address: fields.text("address")?,
        tagged_addresses: tagged_addresses(&mut fields)?,
        meta: fields.map("meta")?,
        port: fields.integer("port")?,
        weights: weights(&mut fields)?.unwrap_or((1, 1)),
        enable_tag_override: fields.flag("enabletagoverride")?,
        ..Service::default()
    };
    if service.id.is_empty() {
        service.id.clone_from(&service.name);
    }
    Ok(service)
}

fn catalog_check(value: Value, node: &str) -> Result<Check, Refusal> {
    let mut fields = Fields::new(value, Some(CATALOG_CHECK_FIELDS), "structs.HealthCheck")?;
    let mut check = Check {
        node: fields.text("node")?,
        id: fields.text("checkid")?,
        name: fields.text("name")?,
        status: fields.text("status")?,
        notes: fields.text("notes")?,
        output: fields.text("output")?,
        service_id: fields.text("serviceid")?,
        kind: fields.text("type")?,
        ..Check::default()
    };
    if let Some(definition) = fields.take("definition") {
        let mut fields = Fields::new(definition, None, "structs.HealthCheckDefinition")?;
        check.definition = CheckDefinition {
            interval: fields.duration("interval")?,
            timeout: fields.duration("timeout")?,
            deregister_after: fields.duration("deregistercriticalserviceafter")?,
            http: fields.text("http")?,
            tcp: fields.text("tcp")?,
            method: fields.text("method")?,
            body: fields.text("body")?,
            header: fields.take("header"),
            tls_skip_verify: fields.flag("tlsskipverify")?,
        };
    }
    if check.id.is_empty() {
        check.id.clone_from(&check.name);
    }
    if check.node.is_empty() {
        node.clone_into(&mut check.node);
    }
    if check.status.is_empty() {
        "critical".clone_into(&mut check.status);
    }
    if check.kind.is_empty() {
        let kind = match &check.definition {
            definition if !definition.http.is_empty() => "http",
            definition if !definition.tcp.is_empty() => "tcp",
            _ => "",
        };
        kind.clone_into(&mut check.kind);
    }
    Ok(check)
}

fn tagged_addresses(fields: &mut Fields) -> Result<std::collections::BTreeMap<String, (String, i64)>, Refusal> {
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

/// Go's name for the type that an agent registration is decoded into; it shows in an error.
const SERVICE_TYPE: &str = "struct { EnableTagOverrideSnake bool \"json:\\\"enable_tag_override\\\"\"; \
    TaggedAddressesSnake map[string]structs.ServiceAddress \"json:\\\"tagged_addresses\\\"\"; *structs.Alias }";

const SERVICE_FIELDS: &[&str] = &[
    "id",
    "name",
    "kind",
    "tags",
    "address",
    "taggedaddresses",
    "meta",
    "port",
    "check",
    "checks",
    "weights",
    "enabletagoverride",
    "token",
    "proxy",
    "connect",
    "enterprisemeta",
];

const SERVICE_CHECK_FIELDS: &[&str] = &[
    "checkid",
    "name",
    "status",
    "notes",
    "args",
    "scriptargs",
    "http",
    "header",
    "method",
    "body",
    "tcp",
    "interval",
    "aliasnode",
    "aliasservice",
    "dockercontainerid",
    "shell",
    "grpc",
    "grpcusetls",
    "tlsskipverify",
    "timeout",
    "ttl",
    "successbeforepassing",
    "failuresbeforecritical",
    "proxyhttp",
    "proxygrpc",
    "deregistercriticalserviceafter",
    "outputmaxsize",
    "id",
];

const LONE_CHECK_FIELDS: &[&str] = &[
    "id",
    "name",
    "status",
    "notes",
    "serviceid",
    "token",
    "args",
    "scriptargs",
    "http",
    "header",
    "method",
    "body",
    "tcp",
    "interval",
    "aliasnode",
    "aliasservice",
    "dockercontainerid",
    "shell",
    "grpc",
    "grpcusetls",
    "tlsskipverify",
    "timeout",
    "ttl",
    "successbeforepassing",
    "failuresbeforecritical",
    "deregistercriticalserviceafter",
    "outputmaxsize",
    "enterprisemeta",
];

const REGISTRATION_FIELDS: &[&str] = &[
    "datacenter",
    "id",
    "node",
    "address",
    "taggedaddresses",
    "nodemeta",
    "service",
    "check",
    "checks",
    "skipnodeupdate",
    "writerequest",
    "token",
    "enterprisemeta",
];

const CATALOG_SERVICE_FIELDS: &[&str] = &[
    "kind",
    "id",
    "service",
    "tags",
    "address",
    "taggedaddresses",
    "meta",
    "port",
    "weights",
    "enabletagoverride",
    "proxy",
    "connect",
    "locallyregisteredassidecar",
    "createindex",
    "modifyindex",
    "enterprisemeta",
];

const CATALOG_CHECK_FIELDS: &[&str] = &[
    "node",
    "checkid",
    "name",
    "status",
    "notes",
    "output",
    "serviceid",
    "servicename",
    "servicetags",
    "type",
    "definition",
    "createindex",
    "modifyindex",
    "enterprisemeta",
];

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
