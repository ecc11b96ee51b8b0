//! What happened, counted. Every series name stands in `names.rs`.

use std::sync::Arc;
use std::time::Duration;

/// `metrics.*`
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `metrics.target`: which exporters are on. Only `prometheus` is built yet.
    pub targets: Vec<String>,
    /// `metrics.prefix`, template expanded (see [`expand_prefix`]).
    pub prefix: String,
    /// `metrics.names`, a template.
    pub names: String,
    pub interval: Duration,
    pub prometheus_subsystem: String,
    /// Begins with `/`.
    pub prometheus_path: String,
    /// Seconds, strictly increasing.
    pub prometheus_buckets: Vec<f64>,
}

/// Which worker records: each has counters of its own, so that an add is never contended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard(pub usize);

/// All series. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {}

impl Metrics {
    /// `shards`: number of workers.
    pub fn new(_config: &Config, _shards: usize) -> Self {
        todo!()
    }

    /// The series of one target; they disappear from the output when the last handle is dropped.
    pub fn target(&self, _service: &str, _host: &str, _path: &str, _target: &str) -> Arc<TargetSeries> {
        todo!()
    }

    pub fn http(&self) -> &HttpSeries {
        todo!()
    }

    /// Text format 0.0.4: fabio's families, then what the `metrics` facade recorded.
    pub fn render(&self) -> String {
        todo!()
    }
}

/// `route`, `requests` and `http.status` of one target, in one histogram per status.
pub struct TargetSeries {}

impl TargetSeries {
    /// A finished request. `code` 0: no status was sent (counts in `route` and `requests` only).
    pub fn observe(&self, _shard: Shard, _code: u16, _took: Duration) {
        todo!()
    }

    /// Bytes to the client (`route.rx`) and to the target (`route.tx`), TCP only as in fabio.
    pub fn bytes(&self, _shard: Shard, _rx: u64, _tx: u64) {
        todo!()
    }
}

/// Counters of the HTTP listeners.
pub struct HttpSeries {}

impl HttpSeries {
    /// `notfound`
    pub fn not_found(&self, _shard: Shard) {
        todo!()
    }

    /// `http.redirect.count`
    pub fn redirected(&self, _shard: Shard, _code: u16) {
        todo!()
    }
}
