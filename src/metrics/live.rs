//! Totals per target for whoever looks at them now. Rates are made of two of these.

use std::sync::Arc;

use super::Metrics;

/// What was counted for the targets with these labels since they are there.
#[derive(Clone, Debug, Default)]
pub struct Total {
    pub service: Arc<str>,
    pub host: Arc<str>,
    pub path: Arc<str>,
    pub target: Arc<str>,
    /// Finished requests.
    pub requests: u64,
    /// Those of them that were answered with 500 and above.
    pub failed: u64,
    /// Per bucket of [`Metrics::bounds`] and one for all that is longer; without WebSockets, whose time says nothing.
    pub times: Vec<u64>,
    /// The sum of these times.
    pub seconds: f64,
    /// From the target and to it, TCP family only.
    pub received: u64,
    pub sent: u64,
}

impl Metrics {
    /// Totals of every target that has ever been used, in no order. Milliseconds for thousands of targets: not for a worker.
    pub fn totals(&self) -> Vec<Total> {
        let mut totals = Vec::new();
        self.0.targets.each(|labels, reading| {
            if reading.codes.is_empty() && reading.received == 0 && reading.sent == 0 {
                return;
            }
            let mut total = Total {
                service: labels.service.clone(),
                host: labels.host.clone(),
                path: labels.path.clone(),
                target: labels.target.clone(),
                times: vec![0; self.0.buckets.len()],
                received: reading.received,
                sent: reading.sent,
                ..Total::default()
            };
            for (code, sample) in &reading.codes {
                let count: u64 = sample.counts.iter().sum();
                total.requests += count;
                if *code >= 500 {
                    total.failed += count;
                }
                if *code != 101 {
                    total.seconds += sample.seconds();
                    total.times.iter_mut().zip(&sample.counts).for_each(|(sum, count)| *sum += count);
                }
            }
            totals.push(total);
        });
        totals
    }

    /// Upper bounds of the buckets in seconds, ascending.
    pub fn bounds(&self) -> Vec<f64> {
        self.0.buckets.seconds()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Addresses, Config, Metrics, Shard};

    #[test]
    fn totals_are_there_without_an_exporter_if_somebody_watches() {
        let config = Config {
            targets: vec![],
            prefix: String::new(),
            names: String::new(),
            interval: Duration::from_secs(30),
            addresses: Addresses::default(),
            circonus_url: String::new(),
            prometheus_subsystem: String::new(),
            prometheus_path: "/metrics".into(),
            prometheus_buckets: vec![0.01, 1.0],
        };
        for (metrics, want) in [(Metrics::new(&config, 2), 0), (Metrics::watched(&config, 2), 1)] {
            let target = metrics.target("web", "a.com", "/", "http://10.0.0.1/");
            let _unused = metrics.target("web", "a.com", "/", "http://10.0.0.2/");
            target.observe(Shard(0), 200, Duration::from_millis(5));
            target.observe(Shard(1), 503, Duration::from_millis(500));
            target.observe(Shard(1), 101, Duration::from_secs(500));
            let totals = metrics.totals();
            assert_eq!(totals.len(), want);
            if let Some(total) = totals.first() {
                assert_eq!((total.requests, total.failed, total.times.clone()), (3, 1, vec![1, 1, 0]));
                assert!((total.seconds - 0.505).abs() < 1e-6);
            }
        }
    }
}
