//! `/v1/kv`.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::answer::{Answer, Handled};
use super::blocking::{Options, check_datacenter, wait};
use super::routes::{Call, Query};
use crate::agent::{Shared, State};
use crate::records::Entry;
use crate::store::Write;

pub(super) async fn handle(shared: &Arc<Shared>, call: &Call) -> Handled {
    let options = Options::parse(&call.query)?;
    match call.method {
        Method::PUT => put(shared, call),
        Method::DELETE => delete(shared, call),
        _ if call.query.has("keys") => keys(shared, call, &options).await,
        _ => get(shared, call, &options).await,
    }
}

async fn get(shared: &Arc<Shared>, call: &Call, options: &Options) -> Handled {
    let key = &call.rest;
    if call.query.has("recurse") {
        check_datacenter(shared, &call.query)?;
        let index = |state: &State| state.store.prefix_index(key);
        let list = |state: &State| match state.store.kv_list(key).map(Entry::json).collect::<Vec<_>>() {
            entries if entries.is_empty() => Answer::not_found(),
            entries => Answer::json(Value::Array(entries)),
        };
        return Ok(wait(shared, options, index, list).await);
    }
    need_key(key)?;
    check_datacenter(shared, &call.query)?;
    let raw = call.query.has("raw");
    let one = |state: &State| match state.store.kv_get(key) {
        None => Answer::not_found(),
        Some(entry) if raw => Answer::raw(entry.value.clone()),
        Some(entry) => Answer::json(json!([entry.json()])),
    };
    Ok(wait(shared, options, |state| state.store.key_index(key), one).await)
}

async fn keys(shared: &Arc<Shared>, call: &Call, options: &Options) -> Handled {
    check_datacenter(shared, &call.query)?;
    let prefix = &call.rest;
    let separator = call.query.get("separator").unwrap_or_default();
    let list = |state: &State| {
        let mut keys: Vec<&str> = Vec::new();
        for entry in state.store.kv_list(prefix) {
            let tail = &entry.key[prefix.len()..];
            let key = match tail.find(separator) {
                Some(at) if !separator.is_empty() => &entry.key[..prefix.len() + at + separator.len()],
                _ => &entry.key,
            };
            if keys.last() != Some(&key) {
                keys.push(key);
            }
        }
        if keys.is_empty() && !prefix.is_empty() { Answer::not_found() } else { Answer::json(json!(keys)) }
    };
    Ok(wait(shared, options, |state| state.store.prefix_index(prefix), list).await)
}

fn put(shared: &Arc<Shared>, call: &Call) -> Handled {
    need_key(&call.rest)?;
    check_conflicts(&call.query, &["cas", "acquire", "release"])?;
    check_datacenter(shared, &call.query)?;
    let flags = match call.query.get("flags") {
        None => 0,
        Some(text) => number(text)?,
    };
    let write = if let Some(text) = call.query.get("cas") {
        Write::Cas(number(text)?)
    } else if let Some(session) = call.query.get("acquire") {
        Write::Acquire(session.to_owned())
    } else if let Some(session) = call.query.get("release") {
        Write::Release(session.to_owned())
    } else {
        Write::Set
    };
    if call.body.len() > MAX_VALUE {
        let text = format!(
            "Request body({} bytes) too large, max size: {MAX_VALUE} bytes. See \
             https://www.consul.io/docs/agent/options.html#kv_max_value_size.",
            call.body.len()
        );
        return Err(Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text).closing());
    }
    let value = call.body.to_vec();
    let done = shared.write(|state| state.store.kv_put(&call.rest, value, flags, &write, Instant::now()));
    Ok(Answer::json(done.map_err(Answer::error)?.into()))
}

fn delete(shared: &Arc<Shared>, call: &Call) -> Handled {
    check_conflicts(&call.query, &["recurse", "cas"])?;
    let tree = call.query.has("recurse");
    if !tree {
        need_key(&call.rest)?;
    }
    check_datacenter(shared, &call.query)?;
    let cas = call.query.get("cas").map(number).transpose()?;
    let done = shared.write(|state| {
        if tree {
            state.store.kv_delete_tree(&call.rest, Instant::now());
            return true;
        }
        state.store.kv_delete(&call.rest, cas, Instant::now())
    });
    Ok(Answer::json(done.into()))
}

fn need_key(key: &str) -> Result<(), Answer> {
    if key.is_empty() { Err(Answer::bad("Missing key name")) } else { Ok(()) }
}

fn check_conflicts(query: &Query, names: &[&str]) -> Result<(), Answer> {
    match names.iter().filter(|name| query.has(name)).count() {
        0 | 1 => Ok(()),
        _ => Err(Answer::bad(format!("Conflicting flags: {}", query.encoded()))),
    }
}

fn number(text: &str) -> Result<u64, Answer> {
    text.parse().map_err(|_| Answer::error(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")))
}

/// Consul's default for `kv_max_value_size`.
const MAX_VALUE: usize = 512 * 1024;
