//! `ferrio rejects`: tags and lines that could not be used, why, and how to write them right.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::columns::{count, plain};
use super::remote::Remote;
use super::{Answer, Failure, consul, wait_for};
use crate::registry::place;
use crate::route::{Origin, Reject};

/// Something that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// In words.
    pub(super) place: String,
    /// Of a tag.
    pub(super) service: Option<String>,
    pub(super) text: String,
    pub(super) reason: String,
}

impl Row {
    pub(super) fn json(&self) -> Value {
        json!({ "place": self.place, "service": self.service, "text": self.text, "reason": self.reason })
    }

    fn of(reject: &Reject) -> Self {
        let service = match &reject.origin {
            Origin::Tag { service, .. } => Some(service.to_string()),
            _ => None,
        };
        Self { place: place(&reject.origin), service, text: reject.text.clone(), reason: reject.reason.clone() }
    }

    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let line = || value["line"].as_u64().unwrap_or_default();
        let place = match text("origin") {
            "tag" => format!("service {} instance {}", text("service"), text("instance")),
            "key" => format!("key {} line {}", text("key"), line()),
            "file" => format!("{}:{}", text("file"), line()),
            "static" => format!("registry.static.routes line {}", line()),
            _ => format!("custom registry, element {}", value["index"]),
        };
        let service = value["service"].as_str().map(str::to_owned);
        Self { place, service, text: text("text").to_owned(), reason: text("reason").to_owned() }
    }
}

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let mut rows = wait_for(rows(arguments))?;
    if let Some(service) = arguments.value("service") {
        rows.retain(|row| row.service.as_deref() == Some(service));
    }
    let good = rows.is_empty();
    if arguments.has("json") {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        return Ok(Answer { text: format!("{:#}\n", Value::Array(rows)), good });
    }
    if good {
        return Ok(Answer::good("Every tag and line could be used.\n"));
    }
    Ok(Answer::bad(format!("{}{} could not be used\n", text(&rows), count(rows.len(), "tag or line"))))
}

pub(super) fn text(rows: &[Row]) -> String {
    let one = |row: &Row| format!("{}\n  {}\n  {}\n", plain(&row.place), plain(&row.text), plain(&row.reason));
    rows.iter().map(one).collect()
}

/// Those of Consul or of a running ferrio, as the flags say.
pub(super) async fn rows(arguments: &Arguments) -> Result<Vec<Row>, Failure> {
    if arguments.has("consul") {
        let seen = consul::look(consul::registry_config(arguments)?).await?;
        return Ok(seen.registry.status().table.rejects.iter().map(Row::of).collect());
    }
    of(&Remote::of(arguments)?).await
}

pub(super) async fn of(remote: &Remote) -> Result<Vec<Row>, Failure> {
    let all = remote.json("/api/rejects").await?;
    Ok(all.as_array().into_iter().flatten().map(Row::read).collect())
}
