//! `/v1/catalog`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::agent::decode;
use super::answer::{Answer, Handled};
use super::blocking::read;
use super::routes::{Call, Query};
use crate::agent::{Shared, State};
use crate::decode::Fields;
use crate::definition::NO_PATH;
use crate::records::{Node, Service};
use crate::store::Registration;

pub(super) fn register(shared: &Arc<Shared>, call: &Call) -> Handled {
    let registration = decode(&call.body, |value| Registration::decode(value, &shared.config.datacenter))?;
    shared.write(|state| state.store.register(registration)).map_err(Answer::error)?;
    Ok(Answer::json(true.into()))
}

pub(super) fn deregister(shared: &Arc<Shared>, call: &Call) -> Handled {
    let [datacenter, node, service, check] = decode(&call.body, |value| {
        let mut fields = Fields::new(value, None, "structs.DeregisterRequest")?;
        Ok([fields.text("datacenter")?, fields.text("node")?, fields.text("serviceid")?, fields.text("checkid")?])
    })?;
    if !datacenter.is_empty() && datacenter != shared.config.datacenter {
        return Err(Answer::error(NO_PATH));
    }
    if node.is_empty() {
        return Err(Answer::error("Must provide node"));
    }
    shared.write(|state| state.store.deregister(&node, &service, &check));
    Ok(Answer::json(true.into()))
}

pub(super) fn datacenters(shared: &Shared) -> Answer {
    Answer::json(json!([shared.config.datacenter]))
}

pub(super) async fn nodes(shared: &Arc<Shared>, call: &Call) -> Handled {
    let meta = node_meta(&call.query);
    let value = |state: &State| {
        let nodes = state.store.nodes().filter(|node| has_meta(node, &meta));
        Value::Array(nodes.map(|node| node.json(&shared.config.datacenter)).collect())
    };
    read(shared, &call.query, |state| state.store.nodes_index(), value).await
}

pub(super) async fn node(shared: &Arc<Shared>, call: &Call) -> Handled {
    let name = &call.rest;
    if name.is_empty() {
        return Err(Answer::bad("Missing node name"));
    }
    let value = |state: &State| {
        let Some(node) = state.store.node(name) else { return Value::Null };
        let services = state.store.services_on(name).map(|service| (service.id.clone(), service.node_json()));
        json!({"Node": node.json(&shared.config.datacenter), "Services": services.collect::<Map<_, _>>()})
    };
    read(shared, &call.query, |state| state.store.node_index(name), value).await
}

pub(super) async fn services(shared: &Arc<Shared>, call: &Call) -> Handled {
    let meta = node_meta(&call.query);
    let index = |state: &State| {
        let services = state.store.services_index();
        if meta.is_empty() { services } else { services.max(state.store.nodes_index()) }
    };
    let value = |state: &State| {
        let mut tags: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for service in state.store.services() {
            if state.store.node_of(service).is_some_and(|node| has_meta(node, &meta)) {
                tags.entry(&service.name).or_default().extend(service.tags.iter().map(String::as_str));
            }
        }
        json!(tags)
    };
    read(shared, &call.query, index, value).await
}

pub(super) async fn service(shared: &Arc<Shared>, call: &Call) -> Handled {
    let name = &call.rest;
    if name.is_empty() {
        return Err(Answer::bad("Missing service name"));
    }
    let tags: Vec<&str> = call.query.all("tag").collect();
    let meta = node_meta(&call.query);
    let value = |state: &State| {
        let instances = state.store.instances(name).filter(|service| has_tags(service, &tags));
        let instances = instances.filter_map(|service| {
            let node = state.store.node_of(service).filter(|node| has_meta(node, &meta))?;
            Some(service.catalog_json(node, &shared.config.datacenter))
        });
        Value::Array(instances.collect())
    };
    read(shared, &call.query, |state| state.store.service_index(name, false), value).await
}

/// The `node-meta=key:value` conditions of a query.
pub(super) fn node_meta(query: &Query) -> Vec<(String, String)> {
    let pairs = query.all("node-meta").map(|pair| pair.split_once(':').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn has_meta(node: &Node, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(name, value)| node.meta.as_ref().is_some_and(|meta| meta.get(name) == Some(value)))
}

/// Consul does not tell the case of tags apart here.
pub(super) fn has_tags(service: &Service, wanted: &[&str]) -> bool {
    wanted.iter().all(|wanted| service.tags.iter().any(|tag| tag.to_lowercase() == wanted.to_lowercase()))
}
