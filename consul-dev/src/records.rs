//! What the catalog holds, and how each record looks as JSON. The order of the members is Consul's.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::go_text::format_duration;

/// Names and values that the user attached to a node or service. `None` is shown as `null`.
pub(crate) type Meta = Option<BTreeMap<String, String>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) tagged_addresses: Meta,
    pub(crate) meta: Meta,
    pub(crate) stamp: Stamp,
}

/// When a record was created and last changed, as indexes. Not part of a record's identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) create: u64,
    pub(crate) modify: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) node: String,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) tags: Vec<String>,
    pub(crate) address: String,
    pub(crate) tagged_addresses: BTreeMap<String, (String, i64)>,
    pub(crate) meta: Meta,
    pub(crate) port: i64,
    /// Passing and warning.
    pub(crate) weights: (i64, i64),
    pub(crate) enable_tag_override: bool,
    pub(crate) stamp: Stamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) node: String,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) notes: String,
    pub(crate) output: String,
    pub(crate) service_id: String,
    pub(crate) service_name: String,
    pub(crate) service_tags: Vec<String>,
    pub(crate) kind: String,
    pub(crate) definition: CheckDefinition,
    pub(crate) stamp: Stamp,
}

/// What a check that somebody wrote straight into the catalog says about itself; nobody runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CheckDefinition {
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) deregister_after: Duration,
    pub(crate) http: String,
    pub(crate) tcp: String,
    pub(crate) method: String,
    pub(crate) body: String,
    pub(crate) header: Option<Value>,
    pub(crate) tls_skip_verify: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) lock_delay: Duration,
    /// Delete the keys it holds when it ends, instead of releasing them.
    pub(crate) deletes: bool,
    /// As the client wrote it; empty for none.
    pub(crate) ttl: String,
    pub(crate) node_checks: Vec<String>,
    pub(crate) service_checks: Vec<String>,
    pub(crate) stamp: Stamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u64,
    pub(crate) session: String,
    pub(crate) lock_index: u64,
    pub(crate) stamp: Stamp,
}

impl Node {
    /// `meta` is the name under which the node's metadata appear: it differs between endpoints.
    fn members(&self, datacenter: &str, meta: &str) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("ID".into(), json!(self.id));
        members.insert("Node".into(), json!(self.name));
        members.insert("Address".into(), json!(self.address));
        members.insert("Datacenter".into(), json!(datacenter));
        members.insert("TaggedAddresses".into(), json!(self.tagged_addresses));
        members.insert(meta.into(), json!(self.meta));
        members
    }

    pub(crate) fn json(&self, datacenter: &str) -> Value {
        let mut members = self.members(datacenter, "Meta");
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }
}

impl Service {
    /// As `/v1/agent/services` shows it.
    pub(crate) fn agent_json(&self) -> Map<String, Value> {
        let mut members = Map::new();
        if !self.kind.is_empty() {
            members.insert("Kind".into(), json!(self.kind));
        }
        members.insert("ID".into(), json!(self.id));
        members.insert("Service".into(), json!(self.name));
        members.insert("Tags".into(), json!(self.tags));
        members.insert("Meta".into(), json!(self.meta.clone().unwrap_or_default()));
        members.insert("Port".into(), json!(self.port));
        members.insert("Address".into(), json!(self.address));
        if !self.tagged_addresses.is_empty() {
            members.insert("TaggedAddresses".into(), self.tagged_json());
        }
        members.insert("Weights".into(), self.weights_json());
        members.insert("EnableTagOverride".into(), json!(self.enable_tag_override));
        members
    }

    /// As `/v1/health/service` and `/v1/catalog/node` show it.
    pub(crate) fn node_json(&self) -> Value {
        let mut members = Map::new();
        if !self.kind.is_empty() {
            members.insert("Kind".into(), json!(self.kind));
        }
        members.insert("ID".into(), json!(self.id));
        members.insert("Service".into(), json!(self.name));
        members.insert("Tags".into(), json!(self.tags));
        members.insert("Address".into(), json!(self.address));
        if !self.tagged_addresses.is_empty() {
            members.insert("TaggedAddresses".into(), self.tagged_json());
        }
        members.insert("Meta".into(), json!(self.meta));
        members.insert("Port".into(), json!(self.port));
        members.insert("Weights".into(), self.weights_json());
        members.insert("EnableTagOverride".into(), json!(self.enable_tag_override));
        members.insert("Proxy".into(), no_proxy());
        members.insert("Connect".into(), json!({}));
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }

    /// As `/v1/catalog/service` shows it, with its node.
    pub(crate) fn catalog_json(&self, node: &Node, datacenter: &str) -> Value {
        let mut members = node.members(datacenter, "NodeMeta");
        members.insert("ServiceKind".into(), json!(self.kind));
        members.insert("ServiceID".into(), json!(self.id));
        members.insert("ServiceName".into(), json!(self.name));
        members.insert("ServiceTags".into(), json!(self.tags));
        members.insert("ServiceAddress".into(), json!(self.address));
        if !self.tagged_addresses.is_empty() {
            members.insert("ServiceTaggedAddresses".into(), self.tagged_json());
        }
        members.insert("ServiceWeights".into(), self.weights_json());
        members.insert("ServiceMeta".into(), json!(self.meta.clone().unwrap_or_default()));
        members.insert("ServicePort".into(), json!(self.port));
        members.insert("ServiceEnableTagOverride".into(), json!(self.enable_tag_override));
        members.insert("ServiceProxy".into(), no_proxy());
        members.insert("ServiceConnect".into(), json!({}));
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }

    fn weights_json(&self) -> Value {
        json!({"Passing": self.weights.0, "Warning": self.weights.1})
    }

    fn tagged_json(&self) -> Value {
        let tagged = self.tagged_addresses.iter();
        Value::Object(tagged.map(|(k, (a, p))| (k.clone(), json!({"Address": a, "Port": p}))).collect())
    }

    /// Equal but for the indexes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Self { stamp: Stamp::default(), ..self.clone() } == Self { stamp: Stamp::default(), ..other.clone() }
    }
}

impl Check {
    pub(crate) fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("Node".into(), json!(self.node));
        members.insert("CheckID".into(), json!(self.id));
        members.insert("Name".into(), json!(self.name));
        members.insert("Status".into(), json!(self.status));
        members.insert("Notes".into(), json!(self.notes));
        members.insert("Output".into(), json!(self.output));
        members.insert("ServiceID".into(), json!(self.service_id));
        members.insert("ServiceName".into(), json!(self.service_name));
        members.insert("ServiceTags".into(), json!(self.service_tags));
        members.insert("Type".into(), json!(self.kind));
        members.insert("Definition".into(), self.definition.json());
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }

    /// Equal but for the indexes and the type, which Consul leaves out of the comparison.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let plain = |check: &Self| Self { stamp: Stamp::default(), kind: String::new(), ..check.clone() };
        plain(self) == plain(other)
    }
}

impl CheckDefinition {
    fn json(&self) -> Value {
        let mut members = Map::new();
        for (name, duration) in [
            ("Interval", self.interval),
            ("Timeout", self.timeout),
            ("DeregisterCriticalServiceAfter", self.deregister_after),
        ] {
            if !duration.is_zero() {
                members.insert(name.into(), json!(format_duration(duration)));
            }
        }
        for (name, text) in [("HTTP", &self.http), ("Method", &self.method), ("Body", &self.body)] {
            if !text.is_empty() {
                members.insert(name.into(), json!(text));
            }
            if name == "HTTP"
                && let Some(header) = &self.header
            {
                members.insert("Header".into(), header.clone());
            }
        }
        if self.tls_skip_verify {
            members.insert("TLSSkipVerify".into(), json!(true));
        }
        if !self.tcp.is_empty() {
            members.insert("TCP".into(), json!(self.tcp));
        }
        Value::Object(members)
    }
}

impl Session {
    pub(crate) fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("ID".into(), json!(self.id));
        members.insert("Name".into(), json!(self.name));
        members.insert("Node".into(), json!(self.node));
        members.insert("LockDelay".into(), json!(self.lock_delay.as_nanos() as u64));
        members.insert("Behavior".into(), json!(if self.deletes { "delete" } else { "release" }));
        members.insert("TTL".into(), json!(self.ttl));
        members.insert("NodeChecks".into(), json!(self.node_checks));
        let ids: Vec<Value> = self.service_checks.iter().map(|id| json!({"ID": id, "Namespace": ""})).collect();
        members.insert("ServiceChecks".into(), if ids.is_empty() { Value::Null } else { Value::Array(ids) });
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }
}

impl Entry {
    pub(crate) fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("LockIndex".into(), json!(self.lock_index));
        members.insert("Key".into(), json!(self.key));
        members.insert("Flags".into(), json!(self.flags));
        let value = base64::engine::general_purpose::STANDARD.encode(&self.value);
        members.insert("Value".into(), if value.is_empty() { Value::Null } else { json!(value) });
        if !self.session.is_empty() {
            members.insert("Session".into(), json!(self.session));
        }
        self.stamp.add_to(&mut members);
        Value::Object(members)
    }
}

impl Stamp {
    fn add_to(self, members: &mut Map<String, Value>) {
        members.insert("CreateIndex".into(), json!(self.create));
        members.insert("ModifyIndex".into(), json!(self.modify));
    }

    /// The stamp of a record that is written at `index` over one that has `old`.
    pub(crate) fn written(old: Option<Self>, index: u64) -> Self {
        Self { create: old.map_or(index, |old| old.create), modify: index }
    }
}

/// Two sorts of address get a name each; anything else has none.
pub(crate) fn default_tagged_addresses(address: &str, port: i64) -> BTreeMap<String, (String, i64)> {
    let names = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => ["lan_ipv4", "wan_ipv4"],
        Ok(std::net::IpAddr::V6(_)) => ["lan_ipv6", "wan_ipv6"],
        Err(_) => return BTreeMap::new(),
    };
    names.into_iter().map(|name| (name.to_owned(), (address.to_owned(), port))).collect()
}

fn no_proxy() -> Value {
    json!({"MeshGateway": {}, "Expose": {}})
}
