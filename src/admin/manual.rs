//! `/api/manual` and `/api/paths`: reading and writing the overrides.

use std::fmt::Write;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::answer::{Answer, error};
use super::api::json_answer;
use super::json::{self, Object};
use super::{BoxError, Override, State, Written, input, target};
use crate::route::{self, Origin};

pub(super) async fn paths(state: &State, query: Option<&str>) -> Answer {
    let paths = match &state.views.overrides {
        None => Vec::new(),
        Some(overrides) => match in_time(overrides.paths()).await {
            Ok(paths) => paths,
            Err(reason) => return failed(&reason),
        },
    };
    let mut out = String::new();
    if paths.is_empty() {
        // As fabio, and so as its own pages expect it.
        out.push_str("null");
    } else {
        json::array(&mut out, &paths, |out, path| json::string(out, path));
    }
    json_answer(query, out)
}

pub(super) async fn read(state: &State, suffix: &str, query: Option<&str>) -> Answer {
    let found = match &state.views.overrides {
        None => Override::default(),
        Some(overrides) => match in_time(overrides.read(suffix)).await {
            Ok(found) => found,
            Err(reason) => return failed(&reason),
        },
    };
    let mut out = String::new();
    Object::new(&mut out).text("value", &found.value).text("version", &found.version.to_string()).end();
    json_answer(query, out)
}

/// Writes a text that parses, or any text with `?force=true`.
pub(super) async fn write(state: &State, suffix: &str, request: Request<Incoming>) -> Answer {
    if let Err(refusal) = input::may_change(state, request.headers()) {
        return refusal;
    }
    let force = target::value(request.uri().query(), "force") == Some("true");
    let body = match input::body(request, BODY_MAX).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let edit = match Edit::parse(&body) {
        Ok(edit) => edit,
        Err(reason) => return error(StatusCode::BAD_REQUEST, &reason),
    };
    if edit.value.len() > VALUE_MAX {
        let reason = format!("the text has {} bytes, Consul takes {VALUE_MAX}", edit.value.len());
        return error(StatusCode::PAYLOAD_TOO_LARGE, &reason);
    }
    if !force && let Some(mistakes) = mistakes(&edit.value) {
        return error(StatusCode::BAD_REQUEST, &mistakes);
    }

    let Some(overrides) = &state.views.overrides else { return conflict() };
    match in_time(overrides.write(suffix, &edit.value, edit.version)).await {
        Ok(Written::Done) => Response::default(),
        Ok(Written::Conflict) => conflict(),
        Err(reason) => failed(&reason),
    }
}

/// What a client wants to write.
#[derive(Debug, PartialEq)]
pub(super) struct Edit {
    pub(super) value: String,
    version: u64,
    /// For previews: which override is meant.
    pub(super) suffix: String,
}

impl Edit {
    /// The first JSON value of the body; what follows is ignored, and so are keys that nobody knows. Keys are compared
    /// without regard to case, the last one counts. All of this as Go decodes.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let first = serde_json::Deserializer::from_slice(body).into_iter::<Value>().next();
        let Value::Object(fields) = first.ok_or("EOF")?.map_err(|reason| reason.to_string())? else {
            return Err("expected an object with \"value\" and \"version\"".into());
        };
        let (mut value, mut version, mut suffix) = (None, 0, String::new());
        for (key, field) in fields {
            match (key.to_ascii_lowercase().as_str(), field) {
                ("value", Value::String(text)) => value = Some(text),
                ("value", _) => return Err("\"value\" must be a string".into()),
                ("version", Value::String(text)) if is_decimal(&text) => {
                    version = text.parse().map_err(|_| "\"version\" is too large")?;
                }
                ("version", Value::Null) => version = 0,
                ("suffix", Value::String(text)) => suffix = text,
                ("version", _) => return Err("\"version\" must be a string that holds a decimal number".into()),
                _ => {}
            }
        }
        // Without this an empty object would empty the key.
        Ok(Self { value: value.ok_or("\"value\" is missing")?, version, suffix })
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// One line per line that could not be used, or `None`.
fn mistakes(text: &str) -> Option<String> {
    let rejects = route::parse_text(text, |line| Origin::Static { line }).rejects;
    let mut out = String::new();
    for reject in rejects.iter().take(MISTAKES_MAX) {
        let separator = if out.is_empty() { "" } else { "\n" };
        let line = match reject.origin {
            Origin::Static { line } => line,
            _ => 0,
        };
        let _ = write!(out, "{separator}line {line}: {}", reject.reason);
    }
    if rejects.len() > MISTAKES_MAX {
        let _ = write!(out, "\nand {} more", rejects.len() - MISTAKES_MAX);
    }
    (!out.is_empty()).then_some(out)
}

pub(super) async fn in_time<T>(call: impl Future<Output = Result<T, BoxError>>) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(reason)) => Err(chain(&*reason)),
        Err(_) => Err(format!("no answer within {CALL_TIMEOUT:?}")),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

pub(super) fn failed(reason: &str) -> Answer {
    error(StatusCode::INTERNAL_SERVER_ERROR, reason)
}

fn conflict() -> Answer {
    error(StatusCode::CONFLICT, "version mismatch")
}

/// The largest value that Consul takes by default.
const VALUE_MAX: usize = 512 * 1024;
/// A byte may take six in JSON.
pub(super) const BODY_MAX: usize = 6 * VALUE_MAX + 4096;
/// For the store to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const MISTAKES_MAX: usize = 50;
