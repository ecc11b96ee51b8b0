//! ferrio's own families about traffic, made of what fabio's are made of and a few counters more. Their names do not depend
//! on `metrics.prefix`, and their labels are services and statuses only: as many series as there are services.

use std::sync::Arc;

use super::exposition::Writer;
use super::series::{Counter, Sample};
use super::{Inner, Metrics, Shard, names};

/// Connections of clients, whatever their protocol.
pub(super) struct Connections {
    open: Arc<Counter>,
    accepted: Counter,
}

impl Connections {
    pub(super) fn new(shards: usize) -> Self {
        Self { open: Arc::new(Counter::new(shards)), accepted: Counter::new(shards) }
    }
}

/// An open connection of a client; see [`Metrics::connection`].
pub struct OpenConnection {
    open: Arc<Counter>,
    shard: Shard,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.sub(self.shard, 1);
    }
}

impl Metrics {
    /// A client has connected: one more until the guard is dropped.
    pub fn connection(&self, shard: Shard) -> OpenConnection {
        let Connections { open, accepted } = &self.0.connections;
        accepted.add(shard, 1);
        open.add(shard, 1);
        OpenConnection { open: open.clone(), shard }
    }
}

pub(super) fn write(inner: &Inner, writer: &mut Writer) {
    writer.family(names::BUILD_INFO, "gauge", help(names::BUILD_INFO));
    writer.sample(names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut plain = |name, kind: &str, value: i64| {
        writer.family(name, kind, help(name));
        writer.sample(name, &[], value.max(0) as f64);
    };
    plain(names::CONNECTIONS, "counter", inner.connections.accepted.get());
    plain(names::CONNECTIONS_OPEN, "gauge", inner.connections.open.get());
    plain(names::IN_FLIGHT, "gauge", inner.targets.in_flight());
    plain(names::NO_ROUTE, "counter", inner.http.not_found.get());
    plain(names::WEBSOCKETS_OPEN, "gauge", inner.http.websockets.get());
    write_services(inner, writer);
    writer.family(names::REDIRECTS, "counter", help(names::REDIRECTS));
    for (code, count) in inner.http.redirects() {
        writer.sample(names::REDIRECTS, &[("code", &code.to_string())], count as f64);
    }
    let tcp = [("tcp", &inner.tcp), ("sni", &inner.tcp_sni)];
    writer.family(names::TCP_CONNECTIONS, "counter", help(names::TCP_CONNECTIONS));
    for (kind, series) in tcp {
        writer.sample(names::TCP_CONNECTIONS, &[("kind", kind)], series.conn.get().max(0) as f64);
    }
    writer.family(names::TCP_FAILURES, "counter", help(names::TCP_FAILURES));
    for (kind, series) in tcp {
        writer.sample(names::TCP_FAILURES, &[("kind", kind)], series.conn_fail.get().max(0) as f64);
    }
}

fn write_services(inner: &Inner, writer: &mut Writer) {
    let services = inner.targets.report().services;
    writer.family(names::SERVICE_REQUESTS, "counter", help(names::SERVICE_REQUESTS));
    for (service, codes) in &services {
        for (code, sample) in codes {
            let code = if *code == 0 { "none".to_owned() } else { code.to_string() };
            let count: u64 = sample.counts.iter().sum();
            writer.sample(names::SERVICE_REQUESTS, &[("code", &code), ("service", service)], count as f64);
        }
    }
    writer.family(names::SERVICE_SECONDS, "histogram", help(names::SERVICE_SECONDS));
    for (service, codes) in &services {
        let mut all = Sample::empty(inner.buckets.len());
        // What changed its protocol lasts as long as its connection.
        codes.iter().filter(|(code, _)| **code != 0).for_each(|(_, sample)| all.add(sample));
        writer.histogram(names::SERVICE_SECONDS, &[("service", service)], &inner.buckets, &all);
    }
}

fn help(name: &str) -> &'static str {
    names::TRAFFIC.iter().find(|own| own.name == name).map_or("", |own| own.help)
}
