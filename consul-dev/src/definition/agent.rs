//! What is registered with the agent: a service with checks, or a check alone.

use std::time::Duration;

use serde_json::Value;

use super::{Refusal, tagged_addresses, weights};
use crate::decode::Fields;
use crate::records::{Service, default_tagged_addresses};

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
    /// Maintenance: the state stays as it was set.
    #[default]
    Manual,
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
        } else {
            Probe::Ttl(ttl)
        };
        let scripted = !fields.texts("args")?.is_empty() || !fields.texts("scriptargs")?.is_empty();
        let grpc = !fields.text("grpc")?.is_empty();
        let docker = !fields.text("dockercontainerid")?.is_empty();
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
        // Better than a check that says something untrue for ever.
        if grpc || docker || alias {
            return Err(Refusal::Unable("consul-dev runs TTL, HTTP and TCP checks only".to_owned()));
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
            Probe::Manual => "maintenance",
        }
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
