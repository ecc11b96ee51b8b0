//! Faults of our own. A panic costs the connection or the task that it is in; it is told, and counted.

use std::panic::PanicHookInfo;

use crate::metrics::names;

/// From now on, for the whole process.
pub(super) fn tell() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // These are not there to have it written.
        if matches!(std::thread::current().name(), None | Some("main" | "log")) {
            usual(info);
        }
        note(info);
    }));
}

fn note(info: &PanicHookInfo<'_>) {
    metrics::counter!(names::PANICS).increment(1);
    let what = info.payload_as_str().unwrap_or("without a message");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("without a name").to_owned();
    tracing::error!("This is a fault in ferrio, please report it: panicked at {place} in thread {thread}: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_counted() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        tell();
        metrics::with_local_recorder(&recorder, || {
            std::panic::catch_unwind(|| panic!("for a test")).expect_err("a panic");
        });
        assert!(handle.render().lines().any(|line| line == "ferrio_panics_total 1"), "{}", handle.render());
    }
}
