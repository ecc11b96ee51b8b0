//! The reference page of the metrics, from the one list of names.

use std::fmt::Write as _;

use super::names::{FAMILIES, Kind, LABELS, OWN, Own, PROCESS, TRAFFIC, clean};

/// As Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    out.push_str("\n## fabio's families\n\n| name | in Prometheus | type | labels | meaning |\n| --- | --- | --- | --- | --- |\n");
    for family in FAMILIES {
        let name = family.name;
        let kind = kind(family.kind);
        _ = writeln!(out, "| `{name}` | `PREFIX_{}` | {kind} | {} | {} |", clean(name), family.labels, family.help);
    }
    for (title, series) in [
        ("Traffic, under names of its own", TRAFFIC),
        ("Routes, certificates and the rest", OWN),
        ("The process", PROCESS),
    ] {
        _ = write!(out, "\n## {title}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n");
        for Own { name, kind: of, help } in series {
            let labels = LABELS.iter().find(|(of, _)| of == name).map_or("", |(_, labels)| *labels);
            _ = writeln!(out, "| `{name}` | {} | {labels} | {help} |", kind(*of));
        }
    }
    out
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

const INTRODUCTION: &str = "\
# Metrics

This page is made from the program: `ferrio config --metrics`.

fabio's families come first, under fabio's names, so that dashboards keep working: with `metrics.target=prometheus` their
prefix is `metrics.prefix`, then `metrics.prometheus.subsystem` if there is one, with `.` and `:` as `_`. Other targets
(`statsd_raw`, `dogstatsd`, `graphite`, `stdout`, `circonus`) send them with dots and by `metrics.names`. Histograms are in
seconds. ferrio's own series and facts about the process are shown by listeners with `proto=prometheus`.
";
