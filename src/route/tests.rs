//! Tests that need several files of this folder.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;

mod lookup;

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

fn instance(tags: &[&str]) -> Instance {
    Instance {
        service: "svc-1".into(),
        id: "node/svc-1".into(),
        address: "1.1.1.1".to_owned(),
        port: 2222,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

fn find<'t>(table: &'t Table, host: &str, tls: bool, path: &str) -> Vec<&'t Route> {
    let path = path::clean(path);
    table.http(host, tls, &path.decoded).collect()
}

/// The destination of the first target that fits.
fn first<'t>(table: &'t Table, host: &str, tls: bool, path: &str) -> &'t str {
    find(table, host, tls, path).first().map_or("none", |route| &route.targets[0].destination.text)
}
