//! `/api/control`: what can be changed while we run.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;

use super::answer::{Answer, error, not_allowed};
use super::api::json_answer;
use super::input;
use super::json::{Object, array};
use super::manual::in_time;
use super::{Access, State};
use crate::registry::Disabled;

/// `GET /api/control`, and `PUT /api/control/{drain,log,reload,disable,enable}`.
pub(super) async fn control(state: &State, action: &str, request: Request<Incoming>, client: Option<IpAddr>) -> Answer {
    let query = request.uri().query().map(str::to_owned);
    if action.is_empty() {
        return match *request.method() {
            Method::GET => json_answer(query.as_deref(), show(state)),
            _ => not_allowed("GET"),
        };
    }
    if !ACTIONS.contains(&action) {
        return error(StatusCode::NOT_FOUND, &format!("no such thing to control; there are {}", ACTIONS.join(", ")));
    }
    if request.method() != Method::PUT {
        return not_allowed("PUT");
    }
    if let Some(refusal) = input::refusal(state, request.headers()) {
        return refusal;
    }
    let body = match input::body(request, BODY_MAX).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let fields = if body.trim_ascii().is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
    let result = match fields {
        Ok(fields) => act(state, action, &fields, client).await,
        Err(reason) => Err((StatusCode::BAD_REQUEST, reason.to_string())),
    };
    match result {
        Ok(()) => json_answer(query.as_deref(), show(state)),
        Err((status, reason)) => error(status, &reason),
    }
}

async fn act(state: &State, action: &str, fields: &Value, client: Option<IpAddr>) -> Result<(), (StatusCode, String)> {
    let bad = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let operations = &state.views.operations;
    match action {
        "drain" => {
            let on = fields["on"].as_bool().ok_or_else(|| bad("write {\"on\":true} or {\"on\":false}".into()))?;
            operations.drain(on);
        }
        "log" => {
            let level = fields["level"].as_str().ok_or_else(|| bad("write {\"level\":\"DEBUG\"}".into()))?;
            operations.set_log_level(level).map_err(bad)?;
        }
        "reload" => operations.reload().map_err(|reason| (StatusCode::INTERNAL_SERVER_ERROR, reason))?,
        "disable" => {
            let entry = entry(fields, client).map_err(bad)?;
            let done = in_time(operations.disable(entry)).await;
            done.map_err(|reason| (StatusCode::INTERNAL_SERVER_ERROR, reason))?;
        }
        "enable" => {
            let (service, instance) = place(fields).map_err(bad)?;
            let done = in_time(operations.enable(&service, instance.as_deref())).await;
            if !done.map_err(|reason| (StatusCode::INTERNAL_SERVER_ERROR, reason))? {
                return Err((StatusCode::NOT_FOUND, "it is not disabled".into()));
            }
        }
        _ => {}
    }
    Ok(())
}

/// `{"service":"web","instance":"node/web-1","for":"30m","reason":"..."}`
fn entry(fields: &Value, client: Option<IpAddr>) -> Result<Disabled, String> {
    let (service, instance) = place(fields)?;
    let length = match &fields["for"] {
        Value::Null => HOUR,
        Value::String(text) => parse_time(text).ok_or("\"for\" is a time like 90s, 30m, 12h or 2d")?,
        Value::Number(seconds) => Duration::from_secs(seconds.as_u64().ok_or("\"for\" is a number of seconds")?),
        _ => return Err("\"for\" is a time like 30m".into()),
    };
    if length.is_zero() || length > LONGEST {
        return Err("\"for\" is a second at least and 90 days at most".into());
    }
    let reason: String = fields["reason"].as_str().unwrap_or_default().chars().take(TEXT_MAX).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let by = client.map(|client| client.to_string()).unwrap_or_default();
    Ok(Disabled { service, instance, until: (now + length).as_secs(), reason, by })
}

fn place(fields: &Value) -> Result<(String, Option<String>), String> {
    let service = fields["service"].as_str().filter(|service| !service.is_empty());
    let service = service.ok_or("\"service\" is missing")?;
    let instance = match &fields["instance"] {
        Value::Null => None,
        Value::String(instance) if instance.is_empty() => None,
        Value::String(instance) => Some(instance.clone()),
        _ => return Err("\"instance\" is a text: NODE/SERVICE-ID, or the destination".into()),
    };
    let long = |text: &str| text.len() > TEXT_MAX;
    if long(service) || instance.as_deref().is_some_and(long) {
        return Err(format!("names have {TEXT_MAX} bytes at most"));
    }
    Ok((service.to_owned(), instance))
}

/// A number and a unit.
fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u32>().ok()?.into()) * seconds)
}

fn show(state: &State) -> String {
    let operations = &state.views.operations;
    let mut out = String::new();
    let mut object = Object::new(&mut out);
    object.flag("writable", state.config.access == Access::ReadWrite).flag("draining", operations.is_draining());
    object.text("log_level", &operations.log_level());
    object.number("pid", f64::from(std::process::id())).text("upgrade", &operations.upgrade());
    // Whether other processes see what is disabled here.
    object.flag("shared", operations.is_shared());
    array(object.key("disabled"), operations.disabled(), |out, one| {
        let mut object = Object::new(out);
        object.text("service", &one.service);
        if let Some(instance) = &one.instance {
            object.text("instance", instance);
        }
        object.number("until", one.until as f64).text("reason", &one.reason).text("by", &one.by).end();
    });
    object.end();
    out
}

const ACTIONS: &[&str] = &["drain", "log", "reload", "disable", "enable"];
const BODY_MAX: usize = 16 * 1024;
const TEXT_MAX: usize = 512;
const HOUR: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, want) in [
            ("90s", Some(90)),
            (" 30m ", Some(1800)),
            ("12h", Some(43_200)),
            ("2d", Some(172_800)),
            ("", None),
            ("m", None),
            ("30", None),
            ("-1m", None),
            ("1.5h", None),
            ("99999999999d", None),
            ("3\u{e4}", None),
        ] {
            assert_eq!(parse_time(text), want.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn entries_need_a_service_and_an_end_that_comes() {
        for (json, want) in [
            (r#"{"service":"web"}"#, Some(None)),
            (r#"{"service":"web","instance":"n/web-1","for":"30m"}"#, Some(Some("n/web-1"))),
            (r#"{"service":"web","instance":"","for":60}"#, Some(None)),
            (r#"{}"#, None),
            (r#"null"#, None),
            (r#"[]"#, None),
            (r#"{"service":5}"#, None),
            (r#"{"service":"web","instance":5}"#, None),
            (r#"{"service":"web","for":"0s"}"#, None),
            (r#"{"service":"web","for":-1}"#, None),
            (r#"{"service":"web","for":"91d"}"#, None),
        ] {
            let fields: Value = serde_json::from_str(json).expect("JSON");
            let got = entry(&fields, None).ok().map(|entry| entry.instance);
            assert_eq!(got, want.map(|instance| instance.map(str::to_owned)), "{json}");
        }
    }
}
