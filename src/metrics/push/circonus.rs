//! Circonus: a JSON document for an HTTPTRAP check, whose submission URL is configured.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::connection::Sender;
use super::{Deltas, Exporter, Naming, Observation, Readings, Series, observed};

pub(super) struct Circonus {
    sender: Sender,
    counters: Deltas,
    /// Observations since the last flush: how many fell into which bin.
    histograms: HashMap<Series, BTreeMap<String, u64>>,
}

impl Circonus {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, counters: Deltas::default(), histograms: HashMap::new() }
    }
}

impl Exporter for Circonus {
    fn observe(&mut self, observations: &[Observation], _: &Naming) {
        for observation in observations {
            let bin = bin(observation.took.as_nanos());
            for series in observed(observation) {
                if self.histograms.len() < HISTOGRAMS_MAX || self.histograms.contains_key(&series) {
                    *self.histograms.entry(series).or_default().entry(bin.clone()).or_default() += 1;
                }
            }
        }
    }

    fn flush(&mut self, readings: &Readings, naming: &Naming, _: SystemTime) {
        let mut document = Map::new();
        for (series, delta) in self.counters.take(readings.counters.clone()) {
            document.insert(naming.ticked(&series), json!({ "_type": "L", "_value": delta }));
        }
        for (series, value) in &readings.gauges {
            document.insert(naming.ticked(series), json!({ "_type": "l", "_value": value }));
        }
        for (series, bins) in self.histograms.drain() {
            let bins: Vec<String> = bins.into_iter().map(|(bin, count)| format!("H[{bin}]={count}")).collect();
            document.insert(naming.ticked(&series), json!({ "_type": "n", "_value": bins }));
        }
        self.sender.send(Value::Object(document).to_string());
    }
}

/// The bin of a log-linear histogram: two digits, the rest cut off.
fn bin(nanos: u128) -> String {
    if nanos == 0 {
        return "0".into();
    }
    let exponent = nanos.ilog10();
    let digits = if exponent == 0 { nanos * 10 } else { nanos / 10u128.pow(exponent - 1) };
    format!("{}.{}e+{exponent:02}", digits / 10, digits % 10)
}

/// Between two flushes.
const HISTOGRAMS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_two_digits() {
        for (nanos, want) in [
            (0, "0"),
            (7, "7.0e+00"),
            (12, "1.2e+01"),
            (12_999_999, "1.2e+07"),
            (999, "9.9e+02"),
            (100_000_000_000, "1.0e+11"),
        ] {
            assert_eq!(bin(nanos), want);
        }
    }
}
