//! The read-only part of the API.

use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;

use super::answer::{Answer, error, text};
use super::json::{self, Object, array};
use super::stats::{id_text, route_id, target_id};
use super::target::{has, values};
use super::{Change, DatacenterView, Health, State};
use crate::route::{Class, Origin, Reject, Route, Snapshot, Table, Target, Weight};

pub(super) fn config(state: &State, query: Option<&str>) -> Answer {
    json_answer(query, json::escape_html(&state.views.config_json))
}

pub(super) async fn routes(state: &State, query: Option<&str>) -> Answer {
    let snapshot = state.views.table.load_full();
    let (content_type, body) = if has(query, "raw") {
        // Without a charset, as fabio.
        ("text/plain", aside(move || format!("{}\n", snapshot.table.listing())).await)
    } else {
        let compact = state.routes.lock().await.of(snapshot).await;
        let wanted = match compact {
            Some(compact) if has(query, "pretty") => {
                aside(move || json::pretty(&String::from_utf8_lossy(&compact))).await
            }
            compact => compact,
        };
        (JSON, wanted)
    };
    match body {
        Some(body) => text(content_type, body),
        None => error(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    }
}

/// Puts a large table into words where nobody else waits. `None`: that panicked.
async fn aside(work: impl FnOnce() -> String + Send + 'static) -> Option<Bytes> {
    tokio::task::spawn_blocking(work).await.ok().map(Bytes::from)
}

/// The routes of one table in JSON.
#[derive(Default)]
pub(super) struct RoutesCache {
    /// Weak: an old table must not live on because somebody once looked at it.
    table: Weak<Snapshot>,
    json: Bytes,
}

impl RoutesCache {
    async fn of(&mut self, snapshot: Arc<Snapshot>) -> Option<Bytes> {
        if self.table.upgrade().is_none_or(|known| !Arc::ptr_eq(&known, &snapshot)) {
            let table = Arc::downgrade(&snapshot);
            self.json = aside(move || routes_json(&snapshot.table)).await?;
            self.table = table;
        }
        Some(self.json.clone())
    }
}

/// As `/api/routes`, by route and with all that is known: ids as in `/api/stats`, kind, instances, weights as configured.
pub(super) async fn table(state: &State, query: Option<&str>) -> Answer {
    let snapshot = state.views.table.load_full();
    match aside(move || table_json(&snapshot.table)).await {
        Some(body) if has(query, "pretty") => text(JSON, json::pretty(&String::from_utf8_lossy(&body))),
        Some(body) => text(JSON, body),
        None => error(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    }
}

fn table_json(table: &Table) -> String {
    let mut out = String::new();
    array(&mut out, table.routes(), |out, route| {
        let class = match route.class {
            Class::Http => "http",
            Class::Tcp => "tcp",
            Class::Udp => "udp",
        };
        let mut object = Object::new(out);
        object.text("id", &id_text(route_id(&route.host, &route.path))).text("class", class);
        object.text("host", &route.host).text("path", &route.path);
        array(object.key("targets"), &route.targets, |out, target| {
            let dst = &target.destination.text;
            let mut object = Object::new(out);
            object.text("id", &id_text(target_id(&target.service, &route.host, &route.path, dst)));
            object.text("service", &target.service).text("dst", dst);
            if let Some(instance) = &target.instance {
                object.text("instance", instance);
            }
            if let Some(datacenter) = &target.datacenter {
                object.text("datacenter", &datacenter.name);
            }
            if !target.options.raw.is_empty() {
                object.text("opts", &target.options.text());
            }
            if !target.tags.is_empty() {
                object.texts("tags", target.tags.iter());
            }
            match target.weight {
                Weight::Automatic => {}
                Weight::Fixed(weight) => _ = object.number("fixed", weight),
                Weight::Excluded => _ = object.number("fixed", 0.0),
            }
            object.number("share", target.share).end();
        });
        object.end();
    });
    out
}

fn routes_json(table: &Table) -> String {
    let mut out = String::new();
    let rows = table.routes().flat_map(|route| route.targets.iter().map(move |target| (route, target)));
    array(&mut out, rows, |out, (route, target)| row(out, route, target));
    out
}

fn row(out: &mut String, route: &Route, target: &Target) {
    let mut object = Object::new(out);
    object
        .text("service", &target.service)
        .text("host", &route.host)
        .text("path", &route.path)
        .text("src", &format!("{}{}", route.host, route.path))
        .text("dst", &target.destination.text)
        .text("opts", &target.options.text())
        .text("cmd", "route add");
    if !target.tags.is_empty() {
        object.texts("tags", target.tags.iter());
    }
    // The last two have always been 0.
    object.number("weight", target.share).number("rate1", 0.0).number("pct99", 0.0);
    if let Some(datacenter) = &target.datacenter {
        object.text("datacenter", &datacenter.name);
    }
    object.end();
}

/// What could not be used, with its place and its reason.
pub(super) fn rejects(state: &State, query: Option<&str>) -> Answer {
    let mut out = String::new();
    array(&mut out, (state.views.rejects)(), |out, reject| reject_json(out, &reject));
    json_answer(query, out)
}

pub(super) fn reject_json(out: &mut String, reject: &Reject) {
    let mut object = Object::new(out);
    match &reject.origin {
        Origin::Tag { service, instance, tag } => {
            object.text("origin", "tag").text("service", service).text("instance", instance).text("tag", tag)
        }
        Origin::Key { key, line } => object.text("origin", "key").text("key", key).number("line", f64::from(*line)),
        Origin::File { path, line } => {
            object.text("origin", "file").text("file", path).number("line", f64::from(*line))
        }
        Origin::Static { line } => object.text("origin", "static").number("line", f64::from(*line)),
        Origin::Custom { index } => object.text("origin", "custom").number("index", f64::from(*index)),
    };
    object.text("text", &reject.text).text("reason", &reject.reason).end();
}

/// Targets that are passed over, full, or new.
pub(super) fn targets(state: &State, query: Option<&str>) -> Answer {
    let mut out = String::new();
    array(&mut out, (state.views.conditions)(), |out, condition| {
        let mut object = Object::new(out);
        object
            .text("service", &condition.service)
            .text("host", &condition.host)
            .text("path", &condition.path)
            .text("target", &condition.target)
            .text("state", condition.state)
            .text("reason", condition.reason);
        seconds(&mut object, "left", condition.left);
        object
            .number("share", condition.share)
            .number("in_flight", condition.in_flight as f64)
            .number("waiting", condition.waiting as f64)
            .end();
    });
    json_answer(query, out)
}

/// Sources, age and size of the table, recent changes.
pub(super) fn status(state: &State, query: Option<&str>) -> Answer {
    let status = (state.views.status)();
    let (routes, targets) = state.views.table.load().table.size();
    let mut out = String::new();
    let mut object = Object::new(&mut out);
    object.text("version", state.views.version);
    match (state.views.health)() {
        Health::Ready | Health::Stale(_) => object.flag("ready", true),
        Health::Unready(reason) => object.flag("ready", false).text("reason", &reason),
    };

    if status.stale.is_some() {
        object.flag("stale", true);
        seconds(&mut object, "stale_age", status.stale);
    }
    let mut table = Object::new(object.key("table"));
    table.number("routes", routes as f64).number("targets", targets as f64);
    seconds(&mut table, "age", status.table_age);
    seconds(&mut table, "lag", status.lag);
    seconds(&mut table, "build", (status.builds > 0).then_some(status.build));
    table.number("builds", status.builds as f64).number("rejects", (state.views.rejects)().len() as f64);
    table.number("services", status.services as f64).number("instances", status.instances as f64).end();
    if let Some((last, known)) = status.contact {
        let mut consul = Object::new(object.key("consul"));
        consul.flag("known_leader", known);
        seconds(&mut consul, "last_contact", Some(last));
        consul.end();
    }

    if !status.datacenters.is_empty() {
        array(object.key("datacenters"), status.datacenters, datacenter_json);
    }
    array(object.key("sources"), status.sources, |out, source| {
        let mut object = Object::new(out);
        object.text("name", &source.name);
        if let Some(datacenter) = &source.datacenter {
            object.text("datacenter", datacenter);
        }
        object.flag("up", source.failures == 0 && source.age.is_some());
        seconds(&mut object, "age", source.age);
        object.number("index", source.index as f64).number("failures", source.failures as f64);
        if let Some(warning) = &source.warning {
            object.text("warning", warning);
        }
        if let Some(error) = &source.error {
            object.text("error", error);
        }
        object.end();
    });
    array(object.key("changes"), status.changes.iter().take(STATUS_CHANGES), change_json);
    object.end();
    json_answer(query, out)
}

fn datacenter_json(out: &mut String, one: DatacenterView) {
    let mut object = Object::new(out);
    object.text("name", &one.name).flag("own", one.own).text("state", one.state());
    seconds(&mut object, "age", one.age);
    object.number("failures", one.failures as f64);
    object.number("services", one.services as f64).number("instances", one.instances as f64);
    if let Some((last, known)) = one.contact {
        object.flag("known_leader", known);
        seconds(&mut object, "last_contact", Some(last));
    }
    if let Some(warning) = &one.warning {
        object.text("warning", warning);
    }
    if let Some(error) = &one.error {
        object.text("error", error);
    }
    object.end();
}

/// What changed in the table, when, and why; newest first. `since=` and `until=` in seconds since 1970, `limit=`.
pub(super) fn timeline(state: &State, query: Option<&str>) -> Answer {
    let number = |key| values(query, key).next().and_then(|text| text.parse::<f64>().ok());
    let (since, until) = (number("since").unwrap_or(0.0), number("until").unwrap_or(f64::INFINITY));
    let limit = number("limit").map_or(usize::MAX, |limit| limit as usize);
    let status = (state.views.status)();
    let within = |change: &&Change| (since..=until).contains(&seconds_of(change));
    let mut out = String::new();
    let mut object = Object::new(&mut out);
    object.number("builds", status.builds as f64);
    let changes = status.changes.iter().filter(within).take(limit);
    array(object.key("changes"), changes, change_json);
    object.end();
    json_answer(query, out)
}

fn change_json(out: &mut String, change: &Change) {
    let mut object = Object::new(out);
    object.number("at", (seconds_of(change) * 1e3).round() / 1e3).text("cause", &change.cause);
    object.number("added", change.added as f64).number("removed", change.removed as f64);
    object.texts("lines", &change.lines).end();
}

fn seconds_of(change: &Change) -> f64 {
    change.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// To the millisecond; `null` if there is none.
fn seconds(object: &mut Object<'_>, key: &str, value: Option<Duration>) {
    object.number(key, value.map_or(f64::NAN, |value| (value.as_secs_f64() * 1e3).round() / 1e3));
}

pub(super) fn json_answer(query: Option<&str>, compact: String) -> Answer {
    if has(query, "pretty") { text(JSON, json::pretty(&compact)) } else { text(JSON, compact) }
}

/// The timeline has all of them.
const STATUS_CHANGES: usize = 50;
const JSON: &str = "application/json; charset=utf-8";
