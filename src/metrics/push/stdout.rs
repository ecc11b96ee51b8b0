//! `stdout` and `label`: a line on standard output for each event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::SystemTime;

use super::naming::{Naming, tag_value};
use super::{Exporter, Observation, Readings, Series, observed};
use crate::metrics::names;

pub(super) struct Stdout {
    /// Labels with their values; else only their keys.
    labels: bool,
    counters: BTreeMap<Series, u64>,
    gauges: BTreeMap<Series, i64>,
    /// To a thread that may wait for whoever reads. `None`: there is none.
    out: Option<SyncSender<String>>,
}

impl Stdout {
    pub(super) fn new(labels: bool) -> Self {
        let (sender, receiver) = mpsc::sync_channel::<String>(WAITING);
        let written = thread::Builder::new().name("metrics-stdout".into()).spawn(move || {
            for text in receiver {
                let mut out = std::io::stdout().lock();
                // A closed standard output is whoever closed it does not want to read.
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        });
        Self::with(labels, written.is_ok().then_some(sender))
    }

    pub(super) fn with(labels: bool, out: Option<SyncSender<String>>) -> Self {
        Self { labels, counters: BTreeMap::new(), gauges: BTreeMap::new(), out }
    }

    fn name(&self, series: &Series, naming: &Naming) -> String {
        naming.dotted_keys(series, !self.labels)
    }

    fn tags(&self, series: &Series) -> String {
        let mut tags = String::new();
        for (key, value) in series.labels.iter().filter(|_| self.labels) {
            tags.push_str(if tags.is_empty() { "|#" } else { "," });
            let _ = write!(tags, "{key}:{}", tag_value(value));
        }
        tags
    }

    fn write(&self, text: String) {
        if let (false, Some(out)) = (text.is_empty(), &self.out) {
            let _ = out.try_send(text);
        }
    }

    /// A line for each step that a counter has made.
    fn count(&mut self, readings: &Readings, naming: &Naming) -> String {
        let mut text = String::new();
        let mut now: BTreeMap<Series, u64> = BTreeMap::new();
        for (series, value) in &readings.counters {
            // Without their values, label sets of a family are one counter.
            let series = match self.labels {
                true => series.clone(),
                false => Series {
                    name: series.name,
                    labels: series.labels.iter().map(|(key, _)| (*key, "".into())).collect(),
                },
            };
            *now.entry(series).or_default() += value;
        }
        for (series, now) in now {
            let before = self.counters.get(&series).copied().unwrap_or(0);
            if now <= before {
                // Lower: targets have gone. It goes on from there.
                self.counters.insert(series, now);
                continue;
            }
            let in_bytes = matches!(series.name, names::ROUTE_RX | names::ROUTE_TX);
            let first = if in_bytes { now } else { (before + 1).max(now.saturating_sub(STEPS)) };
            let (name, tags) = (self.name(&series, naming), self.tags(&series));
            for value in first..=now {
                let _ = writeln!(text, "{name}:{value}|c{tags}");
            }
            self.counters.insert(series, now);
        }
        text
    }
}

impl Exporter for Stdout {
    fn observe(&mut self, observations: &[Observation], naming: &Naming) {
        let mut text = String::new();
        for observation in observations {
            let millis = (observation.took.as_secs_f64() * 1000.0).round();
            for series in observed(observation) {
                let colon = if self.labels { "" } else { ":" };
                let _ = writeln!(text, "{colon}{}:{millis}|ms{}", self.name(&series, naming), self.tags(&series));
            }
        }
        self.write(text);
    }

    fn tick(&mut self, readings: &Readings, naming: &Naming) {
        let mut text = self.count(readings, naming);
        for (series, value) in &readings.gauges {
            if self.gauges.insert(series.clone(), *value) != Some(*value) {
                let _ = writeln!(text, "{}:{value}|g{}", self.name(series, naming), self.tags(series));
            }
        }
        self.write(text);
    }

    fn flush(&mut self, readings: &Readings, naming: &Naming, _: SystemTime) {
        self.tick(readings, naming);
    }
}

/// Texts that nobody has read yet; more are dropped.
const WAITING: usize = 256;
/// Lines at most for what a counter did between two looks.
const STEPS: u64 = 1000;
