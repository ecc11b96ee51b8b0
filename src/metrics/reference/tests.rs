//! What stands in docs/ about metrics holds: every name there is one that is exported.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::*;

fn docs(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn known(name: &str) -> bool {
    let all = || OWN.iter().chain(TRAFFIC).chain(PROCESS);
    let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
    all().any(|own| own.name == name)
        || of_histogram.is_some_and(|stem| all().any(|own| own.name == stem && own.kind == Kind::Histogram))
}

/// Every name of ours in a text.
fn named(text: &str) -> BTreeSet<String> {
    let names = Regex::new(r"\b(?:ferrio|process)_[a-z_]+").expect("a fixed expression");
    names.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

#[test]
fn alerts_and_dashboard_name_series_that_there_are() {
    for (file, at_least) in [("alerts.yml", 12), ("dashboard.json", 20)] {
        let names = named(&docs(file));
        assert!(names.len() >= at_least, "{file}: {names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn the_dashboard_is_one() {
    let dashboard: serde_json::Value = serde_json::from_str(&docs("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 15);
    let mut ids = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        assert!(places.insert((panel["gridPos"]["x"].as_u64(), panel["gridPos"]["y"].as_u64())), "{panel}");
        for target in panel["targets"].as_array().expect("queries") {
            let expr = target["expr"].as_str().expect("a query");
            let balance = |open, close| expr.matches(open).count() == expr.matches(close).count();
            assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{expr}");
        }
    }
}

/// Prometheus' own tool, where it is installed.
#[test]
fn the_rules_are_read_by_prometheus() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.yml");
    let Ok(output) = std::process::Command::new("promtool").arg("check").arg("rules").arg(&path).output() else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn every_series_that_is_rendered_is_in_the_reference() {
    let config = crate::metrics::Config {
        targets: vec!["prometheus".into()],
        prefix: "p".into(),
        names: String::new(),
        interval: std::time::Duration::from_secs(1),
        addresses: Default::default(),
        circonus_url: String::new(),
        prometheus_subsystem: String::new(),
        prometheus_path: "/metrics".into(),
        prometheus_buckets: vec![1.0],
    };
    let metrics = crate::metrics::Metrics::new(&config, 2);
    let target = metrics.target("s", "h", "/", "http://a/");
    let open = metrics.connection(crate::metrics::Shard(1));
    target.begin(crate::metrics::Shard(1));
    target.begin(crate::metrics::Shard(0));
    target.observe(crate::metrics::Shard(0), 200, std::time::Duration::from_millis(5));
    let text = metrics.render();
    for line in [
        "ferrio_requests_in_flight 1",
        "ferrio_connections_open 1",
        "ferrio_connections_total 1",
        "ferrio_requests_total{code=\"200\",service=\"s\"} 1",
        "ferrio_request_duration_seconds_count{service=\"s\"} 1",
    ] {
        assert!(text.lines().any(|have| have == line), "no {line:?} in\n{text}");
    }
    drop(open);
    assert!(metrics.render().contains("\nferrio_connections_open 0\n"));
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap_or_default();
        let ours = name.starts_with("ferrio_") || name.starts_with("process_");
        assert!(!ours || known(name), "{name} is in no list of names.rs");
    }
}
