//! `/v1/health`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, Handled};
use super::blocking::read;
use super::catalog::{has_meta, has_tags, node_meta};
use super::routes::Call;
use crate::agent::{Shared, State};
use crate::go_text::parse_bool;
use crate::records::Check;

pub(super) async fn state(shared: &Arc<Shared>, call: &Call) -> Handled {
    let wanted = &call.rest;
    if wanted.is_empty() {
        return Err(Answer::bad("Missing check state"));
    }
    checks_where(shared, call, |_, check| wanted == "any" || check.status == *wanted).await
}

pub(super) async fn node(shared: &Arc<Shared>, call: &Call) -> Handled {
    if call.rest.is_empty() {
        return Err(Answer::bad("Missing node name"));
    }
    let node = call.rest.to_lowercase();
    checks_where(shared, call, |_, check| check.node.to_lowercase() == node).await
}

pub(super) async fn checks(shared: &Arc<Shared>, call: &Call) -> Handled {
    if call.rest.is_empty() {
        return Err(Answer::bad("Missing service name"));
    }
    let name = call.rest.to_lowercase();
    checks_where(shared, call, |_, check| check.service_name.to_lowercase() == name).await
}

async fn checks_where(shared: &Arc<Shared>, call: &Call, wanted: impl Fn(&State, &Check) -> bool) -> Handled {
    let meta = node_meta(&call.query);
    let value = |state: &State| {
        let checks = state.store.checks().filter(|check| {
            wanted(state, check) && state.store.node(&check.node).is_some_and(|node| has_meta(node, &meta))
        });
        Value::Array(checks.map(Check::json).collect())
    };
    read(shared, &call.query, |state| state.store.checks_index(), value).await
}

pub(super) async fn service(shared: &Arc<Shared>, call: &Call) -> Handled {
    let name = &call.rest;
    if name.is_empty() {
        return Err(Answer::bad("Missing service name"));
    }
    let passing = match call.query.get("passing") {
        None => false,
        Some("") => true,
        Some(text) => parse_bool(text).ok_or_else(|| Answer::bad("Invalid value for ?passing"))?,
    };
    let tags: Vec<&str> = call.query.all("tag").collect();
    let meta = node_meta(&call.query);
    let value = |state: &State| {
        let store = &state.store;
        let instances = store.instances(name).filter(|service| has_tags(service, &tags)).filter_map(|service| {
            let node = store.node_of(service).filter(|node| has_meta(node, &meta))?;
            let of_node = store.checks_on(&service.node).filter(|check| check.service_id.is_empty());
            let own = store.checks_on(&service.node).filter(|c| c.service_id.eq_ignore_ascii_case(&service.id));
            let checks: Vec<&Check> = of_node.chain(own).collect();
            if passing && checks.iter().any(|check| check.status != "passing") {
                return None;
            }
            let checks: Vec<Value> = checks.into_iter().map(Check::json).collect();
            let datacenter = &shared.config.datacenter;
            Some(json!({"Node": node.json(datacenter), "Service": service.node_json(), "Checks": checks}))
        });
        Value::Array(instances.collect())
    };
    read(shared, &call.query, |state| state.store.service_index(name, true), value).await
}
