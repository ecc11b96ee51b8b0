//! `/api/history` and `POST /api/manual/preview`: what an override was, and what another text would do.

use bytes::Bytes;
use http::{Request, StatusCode};
use hyper::body::Incoming;

use super::State;
use super::answer::{Answer, error};
use super::api::{json_answer, reject_json};
use super::input;
use super::json::{self, Object};
use super::manual::{BODY_MAX, Edit, failed, in_time};
use super::target::{decoded, values};

/// The versions of an override, or the text of one with `?id=`.
pub(super) async fn history(state: &State, suffix: &str, query: Option<&str>) -> Answer {
    let Some(overrides) = &state.views.overrides else { return json_answer(query, "[]".into()) };
    let mut out = String::new();
    if let Some(id) = values(query, "id").next().map(decoded) {
        match in_time(overrides.past(suffix, &id)).await {
            Ok(text) => Object::new(&mut out).text("id", &id).text("value", &text).end(),
            Err(reason) => return failed(&reason),
        }
        return json_answer(query, out);
    }
    match in_time(overrides.history(suffix)).await {
        Ok(versions) => json::array(&mut out, versions, |out, version| {
            Object::new(out).text("id", &version.id).number("at", version.at as f64 / 1e3).end();
        }),
        Err(reason) => return failed(&reason),
    }
    json_answer(query, out)
}

/// `{"suffix":"/x","value":"route add ..."}`: changes nothing, says what would change.
pub(super) async fn preview(state: &State, request: Request<Incoming>) -> Answer {
    let query = request.uri().query().map(str::to_owned);
    if let Err(refusal) = input::may_change(state, request.headers()) {
        return refusal;
    }
    let body: Bytes = match input::body(request, BODY_MAX).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let edit = match Edit::parse(&body) {
        Ok(edit) => edit,
        Err(reason) => return error(StatusCode::BAD_REQUEST, &reason),
    };
    let Some(overrides) = &state.views.overrides else {
        return error(StatusCode::CONFLICT, "this registry has no overrides");
    };
    match in_time(overrides.preview(&edit.suffix, &edit.value)).await {
        Ok(None) => error(StatusCode::SERVICE_UNAVAILABLE, "there is no routing table yet"),
        Ok(Some(preview)) => {
            let mut out = String::new();
            let mut object = Object::new(&mut out);
            object.number("added", preview.added as f64).number("removed", preview.removed as f64);
            object.texts("lines", &preview.lines);
            json::array(object.key("rejects"), &preview.rejects, reject_json);
            object.end();
            json_answer(query.as_deref(), out)
        }
        Err(reason) => failed(&reason),
    }
}
