//! `ferrio routes`: the table, as a person, a program or an override wants it.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::columns::{columns, count};
use super::remote::Remote;
use super::{Answer, Failure, consul, wait_for};
use crate::route::{Command, Origin, Table, parse_text};

/// One target of one route, as `/api/routes` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) service: String,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) dst: String,
    pub(super) opts: String,
    pub(super) tags: Vec<String>,
    /// Its share of the requests, 0 to 1.
    pub(super) weight: f64,
}

impl Row {
    /// Host and path.
    pub(super) fn src(&self) -> String {
        format!("{}{}", self.host, self.path)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "service": self.service, "host": self.host, "path": self.path, "src": self.src(), "dst": self.dst,
            "opts": self.opts, "tags": self.tags, "weight": self.weight,
        })
    }

    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let tags = value["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Self {
            service: text("service"),
            host: text("host"),
            path: text("path"),
            dst: text("dst"),
            opts: text("opts"),
            tags: tags.collect(),
            weight: value["weight"].as_f64().unwrap_or_default(),
        }
    }
}

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let filter = Filter {
        service: arguments.value("service").map(str::to_owned),
        host: arguments.value("host").map(str::to_lowercase),
    };
    let all = wait_for(both(arguments))?;
    let rows: Vec<&Row> = all.rows.iter().filter(|row| filter.takes(&row.service, &row.host)).collect();
    let good = !rows.is_empty();
    if arguments.has("json") {
        let rows: Vec<Value> = rows.iter().map(|row| row.json()).collect();
        return Ok(Answer { text: format!("{:#}\n", Value::Array(rows)), good });
    }
    if arguments.has("config") {
        return Ok(Answer { text: filter.listing(&all.listing), good });
    }
    if rows.is_empty() {
        return Ok(Answer::bad(format!("No route{}. ferrio rejects shows what could not be used.\n", filter.words())));
    }
    Ok(Answer::good(table(&rows)))
}

fn table(rows: &[&Row]) -> String {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| [row.src(), row.service.clone(), row.dst.clone(), share(row.weight), row.opts.clone()])
        .collect();
    let mut text = columns(["SOURCE", "SERVICE", "TARGET", "SHARE", "OPTIONS"], &cells);
    let mut sources: Vec<String> = rows.iter().map(|row| row.src()).collect();
    sources.dedup();
    text.push_str(&format!("{}, {}\n", count(sources.len(), "route"), count(rows.len(), "target")));
    text
}

/// `33.3%`
pub(super) fn share(weight: f64) -> String {
    let percent = weight * 100.0;
    if (percent - percent.round()).abs() < 0.05 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

/// A table in both forms.
pub(super) struct Both {
    pub(super) rows: Vec<Row>,
    /// In the route language.
    pub(super) listing: String,
}

/// The routes of Consul or of a running ferrio, as the flags say.
pub(super) async fn both(arguments: &Arguments) -> Result<Both, Failure> {
    if arguments.has("consul") {
        let seen = consul::look(consul::registry_config(arguments)?).await?;
        return Ok(Both { rows: of_table(&seen.table), listing: seen.table.listing() });
    }
    let remote = Remote::of(arguments)?;
    let listing = if arguments.has("config") { remote.text("/api/routes?raw").await? } else { String::new() };
    Ok(Both { rows: rows(&remote).await?, listing })
}

/// What a running ferrio or fabio serves.
pub(super) async fn rows(remote: &Remote) -> Result<Vec<Row>, Failure> {
    let all = remote.json("/api/routes").await?;
    // fabio's empty table.
    if all.is_null() {
        return Ok(Vec::new());
    }
    let all = all.as_array().ok_or_else(|| Failure::Unknown(format!("{}/api/routes is no list", remote.base())))?;
    Ok(all.iter().map(Row::read).collect())
}

pub(super) fn of_table(table: &Table) -> Vec<Row> {
    let targets = table.routes().flat_map(|route| route.targets.iter().map(move |target| (route, target)));
    targets
        .map(|(route, target)| Row {
            service: target.service.to_string(),
            host: route.host.to_string(),
            path: route.path.to_string(),
            dst: target.destination.text.to_string(),
            opts: target.options.text(),
            tags: target.tags.iter().map(|tag| tag.to_string()).collect(),
            weight: target.share,
        })
        .collect()
}

struct Filter {
    service: Option<String>,
    /// In lower case, as the table has them.
    host: Option<String>,
}

impl Filter {
    fn takes(&self, service: &str, host: &str) -> bool {
        self.service.as_deref().is_none_or(|wanted| wanted == service)
            && self.host.as_deref().is_none_or(|wanted| wanted == host)
    }

    /// The lines of a listing that are wanted.
    fn listing(&self, text: &str) -> String {
        let wanted = |line: &&str| {
            let parsed = parse_text(line, |line| Origin::Static { line });
            parsed.entries.iter().any(|entry| match &entry.command {
                Command::Add(add) => self.takes(&add.service, &add.source.host),
                _ => false,
            })
        };
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines: Vec<&str> = if self.service.is_none() && self.host.is_none() {
            lines.collect()
        } else {
            lines.filter(wanted).collect()
        };
        lines.into_iter().map(|line| format!("{line}\n")).collect()
    }

    fn words(&self) -> String {
        let service = self.service.iter().map(|service| format!(" to service {service:?}"));
        service.chain(self.host.iter().map(|host| format!(" of host {host:?}"))).collect()
    }
}
