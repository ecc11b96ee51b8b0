//! What is written straight into the catalog.

use serde_json::Value;

use super::{NO_PATH, Refusal, tagged_addresses, weights};
use crate::decode::Fields;
use crate::records::{Check, CheckDefinition, Node, Service};
use crate::store::Registration;

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
