//! Graphite's plaintext protocol over TCP: counters since the last flush, gauges, and quantiles over the life of a series.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use super::connection::Sender;
use super::{Deltas, Exporter, Naming, Observation, Readings, Series, observed};
use crate::metrics::names;

pub(super) struct Graphite {
    sender: Sender,
    counters: Deltas,
    histograms: HashMap<Series, Histogram>,
}

impl Graphite {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, counters: Deltas::default(), histograms: HashMap::new() }
    }
}

impl Exporter for Graphite {
    fn observe(&mut self, observations: &[Observation], _: &Naming) {
        for observation in observations {
            let millis = observation.took.as_secs_f64() * 1000.0;
            for series in observed(observation) {
                if self.histograms.len() < HISTOGRAMS_MAX || self.histograms.contains_key(&series) {
                    self.histograms.entry(series).or_default().add(millis);
                }
            }
        }
    }

    fn flush(&mut self, readings: &Readings, naming: &Naming, now: SystemTime) {
        // What has left the table is told once more and forgotten.
        let time = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut out = String::new();
        let moved: HashMap<Series, u64> = self.counters.take(readings.counters.clone()).into_iter().collect();
        for series in readings.counters.keys() {
            let delta = moved.get(series).copied().unwrap_or(0);
            let _ = writeln!(out, "{} {:.6} {time}", naming.flat(series), delta as f64);
        }
        for (series, value) in &readings.gauges {
            let _ = writeln!(out, "{} {:.6} {time}", naming.flat(series), *value as f64);
        }
        for (series, histogram) in &self.histograms {
            let name = naming.flat(series);
            for (suffix, part) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)] {
                let _ = writeln!(out, "{name}.{suffix} {:.6} {time}", histogram.quantile(part));
            }
        }
        self.sender.send(out);
        self.histograms.retain(|series, _| series.name != names::ROUTE || readings.live.contains_key(series));
    }
}

/// A distribution in a bounded number of bins (Ben-Haim and Tom-Tov, "A Streaming Parallel Decision Tree Algorithm").
#[derive(Default)]
pub(super) struct Histogram {
    /// Value and weight, ascending by value.
    bins: Vec<(f64, f64)>,
    total: f64,
}

impl Histogram {
    pub(super) fn add(&mut self, value: f64) {
        self.total += 1.0;
        let at = self.bins.partition_point(|(bin, _)| *bin < value);
        match self.bins.get_mut(at) {
            Some((bin, weight)) if *bin == value => *weight += 1.0,
            _ => self.bins.insert(at, (value, 1.0)),
        }
        if self.bins.len() > BINS {
            self.merge_closest();
        }
    }

    fn merge_closest(&mut self) {
        let gap = |at: &usize| self.bins[at + 1].0 - self.bins[*at].0;
        let closest = (0..self.bins.len() - 1).min_by(|a, b| gap(a).total_cmp(&gap(b)));
        let Some(at) = closest else { return };
        let (right, more) = self.bins.remove(at + 1);
        let (left, weight) = &mut self.bins[at];
        *left = (*left * *weight + right * more) / (*weight + more);
        *weight += more;
    }

    /// -1 if there is nothing.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let mut rest = part * self.total;
        for (value, weight) in &self.bins {
            rest -= weight;
            if rest <= 0.0 {
                return *value;
            }
        }
        self.bins.last().map_or(-1.0, |(value, _)| *value)
    }
}

/// fabio's.
const BINS: usize = 50;
/// More than series of targets are counted apart; bounds services under ever new names.
const HISTOGRAMS_MAX: usize = 400_000;
