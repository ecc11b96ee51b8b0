//! `/v1/session`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::agent::decode;
use super::answer::{Answer, Handled};
use super::blocking::{Options, check_datacenter, wait};
use super::routes::Call;
use crate::agent::{Shared, State};
use crate::decode::Fields;
use crate::definition::Refusal;
use crate::go_text::parse_duration;
use crate::random;
use crate::records::Session;
use crate::store::{SessionRequest, check_id};

pub(super) fn create(shared: &Arc<Shared>, call: &Call) -> Handled {
    check_datacenter(shared, &call.query)?;
    let request = if call.body.is_empty() {
        session_request(json!({}), &shared.config.node_name).map_err(|refusal| Answer::error(refusal.text()))?
    } else {
        decode(&call.body, |value| session_request(value, &shared.config.node_name))?
    };
    let id = random::uuid();
    shared
        .write(|state| {
            state.store.create_session(&id, request)?;
            shared.touch_session(state, &id);
            Ok(())
        })
        .map_err(|text: String| Answer::error(text))?;
    Ok(Answer::json(json!({"ID": id})))
}

fn session_request(value: Value, node: &str) -> Result<SessionRequest, Refusal> {
    let mut fields = Fields::new(value, None, "structs.SessionRequest")?;
    let lock_delay = match fields.take("lockdelay") {
        None => DEFAULT_LOCK_DELAY,
        Some(Value::String(text)) => {
            parse_duration(&text).ok_or_else(|| Refusal::Decode(format!("time: invalid duration {text:?}")))?
        }
        // Small numbers are seconds, others nanoseconds.
        Some(value) => match value.as_u64().unwrap_or_default() {
            seconds @ ..1000 => Duration::from_secs(seconds),
            nanos => Duration::from_nanos(nanos),
        },
    };
    // `Checks` is the old name, and `NodeChecks` the one since there are checks of services.
    let own_checks = fields.take("nodechecks").or_else(|| fields.take("checks"));
    let node_checks = match own_checks {
        None => vec!["serfHealth".to_owned()],
        Some(value) => value.as_array().into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect(),
    };
    let service_checks = fields.list("servicechecks")?;
    let service_checks = service_checks.iter().filter_map(|check| check.get("ID")?.as_str().map(str::to_owned));
    let own_node = fields.text("node")?;
    Ok(SessionRequest {
        name: fields.text("name")?,
        node: if own_node.is_empty() { node.to_owned() } else { own_node },
        lock_delay: lock_delay.min(MAX_LOCK_DELAY),
        behavior: fields.text("behavior")?,
        ttl: fields.text("ttl")?,
        node_checks,
        service_checks: service_checks.collect(),
    })
}

pub(super) fn destroy(shared: &Arc<Shared>, call: &Call) -> Handled {
    let id = need_id(call)?;
    check_datacenter(shared, &call.query)?;
    check_id(id).map_err(Answer::error)?;
    shared.write(|state| state.store.destroy_session(id));
    Ok(Answer::json(true.into()))
}

pub(super) fn renew(shared: &Arc<Shared>, call: &Call) -> Handled {
    let id = need_id(call)?;
    check_datacenter(shared, &call.query)?;
    check_id(id).map_err(Answer::error)?;
    let session = shared.write(|state| {
        shared.touch_session(state, id);
        state.store.session(id).map(Session::json)
    });
    match session {
        Some(session) => Ok(Answer::json(json!([session]))),
        None => Err(Answer::text(StatusCode::NOT_FOUND, format!("Session id '{id}' not found"))),
    }
}

pub(super) async fn info(shared: &Arc<Shared>, call: &Call) -> Handled {
    let id = need_id(call)?;
    check_id(id).map_err(|text| Answer::error(text).unknown_leader())?;
    sessions_where(shared, call, |session| session.id == id).await
}

pub(super) async fn node(shared: &Arc<Shared>, call: &Call) -> Handled {
    if call.rest.is_empty() {
        return Err(Answer::bad("Missing node name"));
    }
    sessions_where(shared, call, |session| session.node.eq_ignore_ascii_case(&call.rest)).await
}

pub(super) async fn list(shared: &Arc<Shared>, call: &Call) -> Handled {
    sessions_where(shared, call, |_| true).await
}

async fn sessions_where(shared: &Arc<Shared>, call: &Call, wanted: impl Fn(&Session) -> bool) -> Handled {
    let options = Options::parse(&call.query)?;
    check_datacenter(shared, &call.query).map_err(Answer::unknown_leader)?;
    let value = |state: &State| {
        let sessions = state.store.sessions().filter(|session| wanted(session));
        Answer::json(Value::Array(sessions.map(Session::json).collect()))
    };
    Ok(wait(shared, &options, |state| state.store.sessions_index(), value).await)
}

fn need_id(call: &Call) -> Result<&str, Answer> {
    if call.rest.is_empty() { Err(Answer::bad("Missing session")) } else { Ok(&call.rest) }
}

/// Consul's default and bound.
const DEFAULT_LOCK_DELAY: Duration = Duration::from_secs(15);
const MAX_LOCK_DELAY: Duration = Duration::from_secs(24 * 3600);
