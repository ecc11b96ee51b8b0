//! `/v1/agent`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Handled};
use super::filter::Filter;
use super::routes::Call;
use crate::agent::{Shared, VERSION};
use crate::decode::{self, Fields};
use crate::definition::{AgentCheck, Refusal, ServiceDefinition};
use crate::go_text::parse_bool;

/// Decode a body; the error is the answer to it.
pub(super) fn decode<T>(body: &Bytes, decode: impl FnOnce(Value) -> Result<T, Refusal>) -> Result<T, Answer> {
    let value = decode::json(body).map_err(Refusal::Decode);
    value.and_then(decode).map_err(refused)
}

fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Decode(text) => Answer::bad(format!("Request decode failed: {text}")),
        Refusal::Bad(text) => Answer::bad(text),
        Refusal::Unable(text) => Answer::error(text),
    }
}

/// The parts of `/v1/agent/self` that clients look at; Consul has far more in `DebugConfig` and `Stats`.
pub(super) fn this(shared: &Shared) -> Answer {
    let config = &shared.config;
    let (services, checks) = shared.read(|state| (state.local.services().count(), state.local.checks().count()));
    Answer::json(json!({
        "Config": {
            "Datacenter": config.datacenter,
            "NodeName": config.node_name,
            "NodeID": shared.node_id,
            "Revision": "",
            "Server": true,
            "Version": VERSION,
        },
        "DebugConfig": {
            "ACLDatacenter": config.datacenter,
            "ACLsEnabled": false,
            "Datacenter": config.datacenter,
            "DevMode": true,
            "NodeID": shared.node_id,
            "NodeName": config.node_name,
            "PrimaryDatacenter": config.datacenter,
            "ServerMode": true,
            "ServerPort": config.server_port,
            "Version": VERSION,
        },
        "Coord": {"Vec": [0, 0, 0, 0, 0, 0, 0, 0], "Error": 1.5, "Adjustment": 0, "Height": 0.00001},
        "Member": member(shared),
        "Stats": {
            "agent": {"checks": checks.to_string(), "services": services.to_string()},
            "build": {"prerelease": "", "revision": "", "version": VERSION},
            "consul": {
                "acl": "disabled",
                "bootstrap": "false",
                "known_datacenters": "1",
                "leader": "true",
                "leader_addr": format!("127.0.0.1:{}", config.server_port),
                "server": "true",
            },
        },
        "Meta": {"consul-network-segment": ""},
    }))
}

pub(super) fn members(shared: &Shared) -> Answer {
    Answer::json(json!([member(shared)]))
}

fn member(shared: &Shared) -> Value {
    json!({
        "Name": shared.config.node_name,
        "Addr": "127.0.0.1",
        "Port": 8301,
        "Tags": {
            "acls": "0",
            "build": format!("{VERSION}:"),
            "dc": shared.config.datacenter,
            "ft_fs": "1",
            "id": shared.node_id,
            "port": shared.config.server_port.to_string(),
            "raft_vsn": "3",
            "role": "consul",
            "segment": "",
            "vsn": "2",
            "vsn_max": "3",
            "vsn_min": "2",
            "wan_join_port": "8302",
        },
        "Status": 1,
        "ProtocolMin": 1,
        "ProtocolMax": 5,
        "ProtocolCur": 2,
        "DelegateMin": 2,
        "DelegateMax": 5,
        "DelegateCur": 4,
    })
}

pub(super) fn services(shared: &Shared, call: &Call) -> Handled {
    let filter = Filter::parse(&call.query)?;
    let mut services: Map<String, Value> = shared.read(|state| {
        let services = state.local.services();
        services.map(|service| (service.id.clone(), Value::Object(service.agent_json()))).collect()
    });
    services.retain(|_, service| filter.keeps(service));
    Ok(Answer::json(Value::Object(services)))
}

pub(super) fn service(shared: &Shared, call: &Call) -> Handled {
    let id = &call.rest;
    let service = shared.read(|state| state.local.service(id).map(|service| service.agent_json()));
    let Some(mut members) = service else {
        return Err(Answer::text(StatusCode::NOT_FOUND, format!("unknown service ID: {id}")));
    };
    let mut hasher = DefaultHasher::new();
    Value::Object(members.clone()).to_string().hash(&mut hasher);
    let hash = format!("{:016x}", hasher.finish());
    members.insert("ContentHash".to_owned(), json!(hash));
    let mut answer = Answer::json(Value::Object(members));
    answer.header("x-consul-contenthash", hash);
    Ok(answer)
}

pub(super) fn checks(shared: &Shared, call: &Call) -> Handled {
    let filter = Filter::parse(&call.query)?;
    let mut checks: Map<String, Value> =
        shared.read(|state| state.local.checks().map(|check| (check.id.clone(), check.json())).collect());
    checks.retain(|_, check| filter.keeps(check));
    Ok(Answer::json(Value::Object(checks)))
}

pub(super) fn register_service(shared: &Arc<Shared>, call: &Call) -> Handled {
    let definition = decode(&call.body, ServiceDefinition::decode)?;
    let replace = match call.query.get("replace-existing-checks") {
        None => false,
        Some("") => true,
        Some(text) => parse_bool(text).unwrap_or(false),
    };
    shared.register_service(definition, replace);
    Ok(Answer::ok())
}

pub(super) fn deregister_service(shared: &Arc<Shared>, call: &Call) -> Handled {
    if call.rest.is_empty() {
        return Err(Answer::error("ServiceID missing"));
    }
    shared.write(|state| state.local.remove_service(&mut state.store, &call.rest));
    Ok(Answer::ok())
}

pub(super) fn service_maintenance(shared: &Arc<Shared>, call: &Call) -> Handled {
    let id = &call.rest;
    if id.is_empty() {
        return Err(Answer::bad("Missing service ID"));
    }
    let (on, reason) = maintenance(call)?;
    shared.write(|state| {
        if state.local.service(id).is_none() {
            return Err(Answer::text(StatusCode::NOT_FOUND, format!("No service registered with ID {id:?}")));
        }
        state.local.set_maintenance(&mut state.store, Some(id), on, reason);
        Ok(Answer::ok())
    })
}

pub(super) fn node_maintenance(shared: &Arc<Shared>, call: &Call) -> Handled {
    let (on, reason) = maintenance(call)?;
    shared.write(|state| state.local.set_maintenance(&mut state.store, None, on, reason));
    Ok(Answer::ok())
}

fn maintenance(call: &Call) -> Result<(bool, &str), Answer> {
    let Some(text) = call.query.get("enable") else { return Err(Answer::bad("Missing value for enable")) };
    let on = parse_bool(text).ok_or_else(|| Answer::bad(format!("Invalid value for enable: {text:?}")))?;
    Ok((on, call.query.get("reason").unwrap_or_default()))
}

pub(super) fn register_check(shared: &Arc<Shared>, call: &Call) -> Handled {
    let check = decode(&call.body, AgentCheck::decode_alone)?;
    shared.register_check(check).map_err(refused)?;
    Ok(Answer::ok())
}

pub(super) fn deregister_check(shared: &Arc<Shared>, call: &Call) -> Handled {
    if call.rest.is_empty() {
        return Err(Answer::error("CheckID missing"));
    }
    shared.write(|state| state.local.remove_check(&mut state.store, &call.rest));
    Ok(Answer::ok())
}

pub(super) fn report(shared: &Arc<Shared>, call: &Call, status: &str) -> Handled {
    report_state(shared, &call.rest, status, call.query.get("note").unwrap_or_default())
}

pub(super) fn update_check(shared: &Arc<Shared>, call: &Call) -> Handled {
    let (status, output) = decode(&call.body, |value| {
        let mut fields = Fields::new(value, Some(&["status", "output"]), "agent.checkUpdate")?;
        Ok((fields.text("status")?, fields.text("output")?))
    })?;
    if !["passing", "warning", "critical"].contains(&status.as_str()) {
        return Err(Answer::bad(format!("Invalid check status: '{status}'")));
    }
    report_state(shared, &call.rest, &status, &output)
}

fn report_state(shared: &Arc<Shared>, id: &str, status: &str, output: &str) -> Handled {
    if shared.report(id, status, output) {
        return Ok(Answer::ok());
    }
    Err(Answer::error(format!("CheckID {id:?} does not have associated TTL")))
}
