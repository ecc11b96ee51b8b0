//! The `metrics` facade: what the control plane records under its own names, kept by the Prometheus exporter.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::names::{Kind, OWN};

/// The process-wide recorder, installed at the first call.
pub(super) fn handle() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets(BUCKETS)
            .map(PrometheusBuilder::build_recorder)
            .expect("the bounds are not empty");
        let handle = recorder.handle();
        if ::metrics::set_global_recorder(recorder).is_err() {
            // A program around this library has its own: our series go there.
            tracing::debug!("another metrics recorder is installed");
        }
        for own in OWN {
            match own.kind {
                Kind::Counter => ::metrics::describe_counter!(own.name, own.help),
                Kind::Gauge => ::metrics::describe_gauge!(own.name, own.help),
                Kind::Histogram => ::metrics::describe_histogram!(own.name, own.help),
            }
        }
        handle
    })
}

/// Seconds. For work of the control plane, which takes from a millisecond to a time-out.
const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names;

    #[test]
    fn recorded_series_are_rendered_with_their_help() {
        let handle = handle();
        ::metrics::counter!(names::REGISTRY_ERRORS, "source" => "facade-test").increment(2);
        ::metrics::histogram!("facade_test_seconds").record(0.003);
        handle.run_upkeep();
        let text = handle.render();
        for line in [
            "# HELP ferrio_registry_errors_total Failed reads of a route source.",
            "# TYPE ferrio_registry_errors_total counter",
            "ferrio_registry_errors_total{source=\"facade-test\"} 2",
            "# TYPE facade_test_seconds histogram",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line:?} in\n{text}");
        }
    }
}
