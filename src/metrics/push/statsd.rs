//! StatsD over UDP, one datagram for each line: the plain dialect and that of Datadog.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::connection::Sender;
use super::naming::{Naming, tag_value};
use super::{Deltas, Exporter, Observation, Readings, Series, observed};

/// `statsd_raw`: labels are part of names.
pub(super) struct Raw {
    sender: Sender,
    lines: Lines,
}

/// `dogstatsd`: labels are tags.
pub(super) struct Dog {
    sender: Sender,
    lines: Lines,
}

/// What both have to remember.
#[derive(Default)]
struct Lines {
    waiting: Vec<String>,
    counters: Deltas,
    gauges: BTreeMap<Series, i64>,
}

impl Lines {
    fn flush(&mut self, readings: &Readings, name: impl Fn(&Series) -> String, tags: impl Fn(&Series) -> String) {
        for (series, delta) in self.counters.take(readings.counters.clone()) {
            self.waiting.push(format!("{}:{:.6}|c{}", name(&series), delta as f64, tags(&series)));
        }
        for (series, value) in &readings.gauges {
            if self.gauges.insert(series.clone(), *value) != Some(*value) {
                self.waiting.push(format!("{}:{:.6}|g{}", name(series), *value as f64, tags(series)));
            }
        }
    }
}

impl Raw {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, lines: Lines::default() }
    }
}

impl Exporter for Raw {
    fn observe(&mut self, observations: &[Observation], naming: &Naming) {
        for observation in observations {
            let millis = millis(observation.took);
            for series in observed(observation) {
                self.lines.waiting.push(format!("{}:{millis:.6}|ms", naming.flat(&series)));
            }
        }
        self.sender.send_many(&mut self.lines.waiting, EARLY);
    }

    fn flush(&mut self, readings: &Readings, naming: &Naming, _: SystemTime) {
        self.lines.flush(readings, |series| naming.flat(series), |_| String::new());
        self.sender.send_many(&mut self.lines.waiting, 0);
    }
}

impl Dog {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, lines: Lines::default() }
    }
}

impl Exporter for Dog {
    fn observe(&mut self, observations: &[Observation], naming: &Naming) {
        for observation in observations {
            let seconds = observation.took.as_secs_f64();
            for series in observed(observation) {
                self.lines.waiting.push(format!("{}:{seconds:.6}|h{}", naming.bare(&series), tags(&series)));
            }
        }
        self.sender.send_many(&mut self.lines.waiting, EARLY);
    }

    fn flush(&mut self, readings: &Readings, naming: &Naming, _: SystemTime) {
        self.lines.flush(readings, |series| naming.bare(series), tags);
        self.sender.send_many(&mut self.lines.waiting, 0);
    }
}

/// `|#fabio-service:svc-a,path:/foo`. Keys that Datadog has a meaning of its own for are renamed as in fabio.
fn tags(series: &Series) -> String {
    let mut tags = String::new();
    for (key, value) in &series.labels {
        let reserved = matches!(*key, "host" | "device" | "source" | "service" | "env" | "version");
        tags.push_str(if tags.is_empty() { "|#" } else { "," });
        let _ = write!(tags, "{}{key}:{}", if reserved { "fabio-" } else { "" }, tag_value(value));
    }
    tags
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}

/// Lines that wait for the next flush. More are sent at once: a burst of datagrams would be lost on the way.
const EARLY: usize = 4096;
