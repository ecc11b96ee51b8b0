//! Tests that need several files of this folder.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;

mod build;
mod conditions;
mod incremental;
mod language;
mod lookup;
mod model;
mod redirects;
mod reports;
mod tags;
mod text_forms;

fn line_of(line: u32) -> Origin {
    Origin::Static { line }
}

/// Commands that must all be fine.
fn commands(text: &str) -> Vec<Entry> {
    let parsed = parse_text(text, line_of);
    assert_eq!(parsed.rejects, [], "{text}");
    parsed.entries
}

fn built(text: &str, settings: Settings) -> Built {
    let mut builder = Builder::new(settings);
    builder.manual(commands(text));
    builder.build()
}

fn table(text: &str) -> Arc<Table> {
    built(text, Settings::default()).table
}

fn with_matcher(matcher: Matcher, text: &str) -> Arc<Table> {
    built(text, Settings { matcher, globs: true, ..Settings::default() }).table
}

fn without_globs(text: &str) -> Arc<Table> {
    built(text, Settings { matcher: Matcher::Prefix, globs: false, ..Settings::default() }).table
}

fn instance(tags: &[&str]) -> Instance {
    named_instance("svc-1", "1.1.1.1", tags)
}

fn named_instance(service: &str, address: &str, tags: &[&str]) -> Instance {
    Instance {
        service: service.into(),
        id: format!("node/{service}-{address}").into(),
        datacenter: None,
        address: address.to_owned(),
        port: 2222,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        options: Default::default(),
        down: false,
    }
}

/// A table of instances: each is a service of its own name.
fn table_of(settings: Settings, instances: &[Instance], manual: &str) -> Built {
    let mut builder = Builder::new(settings);
    let mut services: std::collections::BTreeMap<&str, Vec<Entry>> = Default::default();
    for instance in instances {
        services.entry(&instance.service).or_default().extend(parse_tags(instance, "urlprefix-", "dc1").entries);
    }
    for (name, entries) in services {
        builder.service(name, entries);
    }
    builder.manual(commands(manual));
    builder.build()
}

fn find<'t>(table: &'t Table, host: &str, tls: bool, path: &str) -> Vec<&'t Route> {
    let path = path::clean(path);
    table.http(host, tls, &path.decoded).collect()
}

/// The destination of the first target that fits.
fn first<'t>(table: &'t Table, host: &str, tls: bool, path: &str) -> &'t str {
    find(table, host, tls, path).first().map_or("none", |route| &route.targets[0].destination.text)
}

/// The service of the first target that fits.
fn served_by<'t>(table: &'t Table, host: &str, path: &str) -> &'t str {
    find(table, host, false, path).first().map_or("none", |route| &route.targets[0].service)
}

/// (service, share) of a route, four digits.
fn shares(table: &Table, host: &str, path: &str) -> Vec<(String, f64)> {
    let route = find(table, host, false, path)[0];
    route.targets.iter().map(|t| (t.service.to_string(), (t.share * 10_000.0).round() / 10_000.0)).collect()
}
