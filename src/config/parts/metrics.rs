//! `metrics.*`: the exporters.

use super::super::settings::Settings;
use super::super::suggest::near;
use super::super::template::{self, PrefixScope};
use super::super::{duration, pending};
use super::Machine;
use crate::metrics;

pub(super) fn metrics(settings: &mut Settings, machine: &Machine) -> Option<metrics::Config> {
    let mut targets: Vec<String> = Vec::new();
    for target in settings.values.metrics_target.clone() {
        if target == "statsd" {
            settings.mistake("metrics.target", "statsd support has been removed in favor of statsd_raw");
        } else if pending::METRICS_TARGETS.contains(&target.as_str()) {
            settings.mistake(
                "metrics.target",
                &format!("{target} is not built yet; nothing would be sent: write prometheus, or nothing"),
            );
        } else if target != "prometheus" && !metrics::PUSH_TARGETS.contains(&target.as_str()) {
            let known = pending::METRICS_TARGETS.iter().chain(metrics::PUSH_TARGETS).copied().chain(["prometheus"]);
            let hint = near(&target, known).map(|t| format!("; did you mean {t}?")).unwrap_or_default();
            settings.mistake("metrics.target", &format!("invalid metrics backend {target}{hint}"));
        } else {
            let target = if target == "flat" { "stdout".to_owned() } else { target };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    if targets.iter().any(|target| matches!(target.as_str(), "statsd_raw" | "dogstatsd" | "graphite"))
        && settings.values.metrics_interval <= 0
    {
        settings.mistake("metrics.interval", "must be above 0 for exporters that push");
    }
    for (target, key, empty) in [
        ("statsd_raw", "metrics.statsd.addr", settings.values.metrics_statsd_addr.is_empty()),
        ("dogstatsd", "metrics.dogstatsd.addr", settings.values.metrics_dogstatsd_addr.is_empty()),
        ("graphite", "metrics.graphite.addr", settings.values.metrics_graphite_addr.is_empty()),
    ] {
        if empty && targets.iter().any(|known| known == target) {
            settings.warn(key, &format!("{target} has no host:port to send to; nothing is sent"));
        }
    }
    if targets.iter().any(|target| target == "circonus") {
        let (key, url) = (&settings.values.metrics_circonus_apikey, &settings.values.metrics_circonus_submissionurl);
        if key.is_empty() && url.is_empty() {
            settings.mistake("metrics.target", "metrics: Circonus API token key or SubmissionURL");
        } else if url.is_empty() {
            settings.mistake(
                "metrics.circonus.apikey",
                "looking up a check by its key is not built yet, and nothing would be sent: set metrics.circonus.submissionurl",
            );
        } else if !url.starts_with("http://") && !url.starts_with("https://") {
            settings.mistake("metrics.circonus.submissionurl", "not a URL; write https://host/path");
        }
    }
    if let Err(reason) = metrics::check_names(&settings.values.metrics_names) {
        settings.mistake("metrics.names", &format!("metrics: invalid Names template: {reason}"));
    }
    let prefix = match settings.values.metrics_prefix.as_str() {
        "default" => DEFAULT_PREFIX.to_owned(),
        text => text.to_owned(),
    };
    let prefix = template::expand(&prefix, &PrefixScope { hostname: &machine.hostname, program: "fabio" })
        .unwrap_or_else(|reason| {
            let line = format!("metrics: invalid Prefix template: {reason}; write for instance {DEFAULT_PREFIX}");
            settings.mistake("metrics.prefix", &line);
            String::new()
        });
    if !settings.values.metrics_prometheus_path.starts_with('/') {
        settings.mistake("metrics.prometheus.path", "must begin with /");
    }
    let buckets = &mut settings.values.metrics_prometheus_buckets;
    if buckets.is_empty() {
        buckets.extend_from_slice(BUCKETS);
    }
    if !buckets.is_sorted_by(|a, b| a < b) {
        settings.mistake("metrics.prometheus.buckets", "must increase from one to the next");
    }
    let values = &settings.values;
    Some(metrics::Config {
        targets,
        prefix,
        names: values.metrics_names.clone(),
        interval: duration::positive(values.metrics_interval),
        circonus_url: values.metrics_circonus_submissionurl.clone(),
        addresses: metrics::Addresses {
            statsd: values.metrics_statsd_addr.clone(),
            dogstatsd: values.metrics_dogstatsd_addr.clone(),
            graphite: values.metrics_graphite_addr.clone(),
        },
        prometheus_subsystem: values.metrics_prometheus_subsystem.clone(),
        prometheus_path: values.metrics_prometheus_path.clone(),
        prometheus_buckets: values.metrics_prometheus_buckets.clone(),
    })
}

const DEFAULT_PREFIX: &str = "{{clean .Hostname}}.{{clean .Exec}}";

/// Seconds.
const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
