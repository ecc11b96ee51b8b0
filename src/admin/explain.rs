//! `/api/explain`: where a URL goes, and why.

use std::sync::Arc;

use http::StatusCode;

use super::State;
use super::answer::{Answer, error};
use super::api::json_answer;
use super::json;
use super::target::{decoded, values};
use crate::route::Question;

/// `url=`, and also `method=`, `client=` and any number of `header=Name: value`.
pub(super) async fn explain(state: &State, query: Option<&str>) -> Answer {
    let Some(url) = values(query, "url").next().map(decoded) else {
        return error(StatusCode::BAD_REQUEST, "which URL? Write ?url=https://host/path, percent-encoded");
    };
    let mut question = match Question::parse(&url) {
        Ok(question) => question,
        Err(reason) => return error(StatusCode::BAD_REQUEST, &reason),
    };
    if let Some(client) = values(query, "client").next().map(decoded).filter(|client| !client.trim().is_empty()) {
        let Ok(client) = client.trim().parse() else {
            return error(StatusCode::BAD_REQUEST, &format!("client {client:?} is no IP address"));
        };
        question.peer = Some(client);
    }
    for header in values(query, "header").map(decoded) {
        if let Some((name, value)) = header.split_once(':') {
            question.header(name, value);
        } else if !header.trim().is_empty() {
            return error(StatusCode::BAD_REQUEST, &format!("header {header:?} has no colon; write Name: value"));
        }
    }
    if let Some(method) = values(query, "method").next().map(decoded).filter(|method| !method.is_empty()) {
        let Ok(method) = method.parse() else {
            return error(StatusCode::BAD_REQUEST, &format!("{method:?} is no method"));
        };
        question.method = method;
    }
    let snapshot = state.views.table.load_full();
    let explain = state.views.explain.clone();
    let work = tokio::task::spawn_blocking(move || {
        let explanation = explain(&snapshot.table, &question);
        let mut value = serde_json::to_value(explanation).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("url".into(), url.into());
            object.insert("method".into(), question.method.as_str().into());
        }
        json::escape_html(&value.to_string())
    });
    match work.await {
        Ok(text) => json_answer(query, text),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    }
}

/// For views that are the same for everybody.
pub(super) fn ready_made(json: &Arc<str>, query: Option<&str>) -> Answer {
    json_answer(query, json::escape_html(json))
}
