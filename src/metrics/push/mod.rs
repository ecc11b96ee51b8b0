//! Exporters that push: StatsD, DogStatsD, Graphite, Circonus, and lines on standard output.
//!
//! They read the same series as Prometheus does. What a histogram cannot give back, the single observations, workers put
//! into a bounded journal beside it, and only while somebody here wants them. A full journal costs observations, which are
//! counted, and never time.

mod circonus;
mod connection;
mod graphite;
mod journal;
mod naming;
mod statsd;
mod stdout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(super) use journal::{Journal, Observation, Reader};
pub(super) use naming::Naming;

use super::targets::Labels;
use super::traffic::grpc_code;
use super::{Inner, names};

/// Where exporters that push send to. Empty: nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// UDP, `host:port`.
    pub statsd: String,
    /// UDP.
    pub dogstatsd: String,
    /// TCP.
    pub graphite: String,
}

/// Sends a document to Circonus. The error is for people.
pub type Post = Box<dyn Fn(String) -> BoxFuture<Result<(), String>> + Send>;

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// What the exporters of one configuration need from the start on.
pub(super) struct Push {
    targets: Vec<String>,
    naming: Naming,
    addresses: Addresses,
    interval: Duration,
    reader: Reader,
}

impl Push {
    /// `None` if none of the targets is one of ours.
    pub(super) fn new(config: &super::Config) -> Option<(Self, Arc<Journal>)> {
        let targets: Vec<String> =
            config.targets.iter().filter(|target| TARGETS.contains(&target.as_str())).cloned().collect();
        if targets.is_empty() {
            return None;
        }
        let (journal, reader) = journal::new();
        let push = Self {
            targets,
            naming: Naming::new(&config.prefix, &config.names),
            addresses: config.addresses.clone(),
            interval: config.interval.max(TICK),
            reader,
        };
        Some((push, journal))
    }
}

/// Whether a text is a template for the names of routes.
pub(super) fn check_names(template: &str) -> Result<(), String> {
    naming::parse(template).map(drop)
}

/// A series with the labels of its internal name, in fabio's order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) labels: Vec<(&'static str, Arc<str>)>,
}

impl Series {
    fn plain(name: &'static str) -> Self {
        Self { name, labels: Vec::new() }
    }

    fn route(name: &'static str, labels: &Labels) -> Self {
        let labels = vec![
            ("service", labels.service.clone()),
            ("host", labels.host.clone()),
            ("path", labels.path.clone()),
            ("target", labels.target.clone()),
        ];
        Self { name, labels }
    }
}

/// A single request's time, in all the series in which it counts.
fn observed(observation: &Observation) -> impl Iterator<Item = Series> {
    let code = &observation.code;
    let Some(labels) = &observation.labels else {
        let label = || vec![("code", grpc_code(*code).into())];
        let statuses = [names::GREP_STATUS, names::GRPC_STATUS].map(|name| Series { name, labels: label() });
        let [odd, status] = statuses.map(Some);
        return [Some(Series::plain(names::GRPC_REQUESTS)), odd, status].into_iter().flatten();
    };
    let service = ("service", labels.service.clone());
    let status = (*code != 0)
        .then(|| Series { name: names::HTTP_STATUS, labels: vec![("code", code.to_string().into()), service.clone()] });
    let route = (!labels.target.is_empty()).then(|| Series::route(names::ROUTE, labels));
    let requests = Series { name: names::REQUESTS, labels: vec![service] };
    [route, Some(requests), status].into_iter().flatten()
}

/// What counters and gauges stand at.
#[derive(Default)]
struct Readings {
    counters: BTreeMap<Series, u64>,
    gauges: BTreeMap<Series, i64>,
    /// The targets that there are.
    live: HashMap<Series, ()>,
}

impl Readings {
    /// What is cheap to read.
    fn few(inner: &Inner) -> Self {
        let mut readings = Self::default();
        let mut put = |name, count: i64| {
            if count > 0 || name == names::NOT_FOUND {
                readings.counters.insert(Series::plain(name), count.max(0).unsigned_abs());
            }
        };
        put(names::NOT_FOUND, inner.http.not_found.get());
        put(names::GRPC_CONN, inner.grpc.conn.get());
        put(names::GRPC_NO_ROUTE, inner.grpc.no_route.get());
        for (series, [conn, fail, no_route]) in [
            (&inner.tcp, [names::TCP_CONN, names::TCP_CONN_FAIL, names::TCP_NO_ROUTE]),
            (&inner.tcp_sni, [names::TCP_SNI_CONN, names::TCP_SNI_CONN_FAIL, names::TCP_SNI_NO_ROUTE]),
        ] {
            put(conn, series.conn.get());
            put(fail, series.conn_fail.get());
            put(no_route, series.no_route.get());
        }
        for (code, count) in inner.http.redirects() {
            let labels = vec![("code", Arc::from(code.to_string()))];
            readings.counters.insert(Series { name: names::HTTP_REDIRECT_COUNT, labels }, count.max(0).unsigned_abs());
        }
        readings.gauges.insert(Series::plain(names::WS_CONN), inner.http.websockets.get().max(0));
        readings
    }

    /// Everything: also what is kept for each target.
    fn all(inner: &Inner) -> Self {
        let mut readings = Self::few(inner);
        for (labels, reading) in inner.targets.report().targets {
            if labels.target.is_empty() {
                continue;
            }
            for (name, bytes) in [(names::ROUTE_RX, reading.received), (names::ROUTE_TX, reading.sent)] {
                if bytes > 0 {
                    readings.counters.insert(Series::route(name, &labels), bytes);
                }
            }
            readings.live.insert(Series::route(names::ROUTE, &labels), ());
        }
        readings
    }
}

/// How far counters have come since somebody looked last. Series that are gone are forgotten.
#[derive(Default)]
struct Deltas(BTreeMap<Series, u64>);

impl Deltas {
    /// Series that have moved, with how far.
    fn take(&mut self, counters: BTreeMap<Series, u64>) -> Vec<(Series, u64)> {
        let moved = counters
            .iter()
            .filter_map(|(series, now)| {
                let before = self.0.get(series).copied().unwrap_or(0);
                // One that came back begins at nothing.
                let delta = if *now >= before { now - before } else { *now };
                (delta > 0).then(|| (series.clone(), delta))
            })
            .collect();
        self.0 = counters;
        moved
    }
}

/// One way to tell somebody.
trait Exporter: Send {
    /// Every request as it ended, a few milliseconds late.
    fn observe(&mut self, observations: &[Observation], naming: &Naming);

    /// Called between flushes, with what is cheap to read.
    fn tick(&mut self, _: &Readings, _: &Naming) {}

    /// Called once for each interval, and at the end.
    fn flush(&mut self, readings: &Readings, naming: &Naming, now: SystemTime);
}

/// Runs until `ended` is ready, then flushes once more.
pub(super) async fn run(push: Push, inner: &Inner, circonus: Option<Post>, ended: impl Future<Output = ()>) {
    let Push { targets, naming, addresses, interval, reader } = push;
    let mut connections = Vec::new();
    let mut exporters: Vec<Box<dyn Exporter>> = Vec::new();
    let mut circonus = circonus;
    for target in &targets {
        let mut connect = |address: &String, kind| {
            if address.is_empty() {
                tracing::warn!("metrics: {target} has no address; nothing is sent");
                return connection::Sender::nowhere();
            }
            let (sender, connection) = connection::new(kind, address);
            connections.push(connection);
            sender
        };
        if target == "circonus" {
            let Some(post) = circonus.take() else { continue };
            let (sender, connection) = connection::posting(post);
            connections.push(connection);
            exporters.push(Box::new(circonus::Circonus::new(sender)));
            continue;
        }
        exporters.push(match target.as_str() {
            "statsd_raw" => Box::new(statsd::Raw::new(connect(&addresses.statsd, connection::Kind::Udp))),
            "dogstatsd" => Box::new(statsd::Dog::new(connect(&addresses.dogstatsd, connection::Kind::Udp))),
            "graphite" => Box::new(graphite::Graphite::new(connect(&addresses.graphite, connection::Kind::Tcp))),
            "label" => Box::new(stdout::Stdout::new(true)),
            _ => Box::new(stdout::Stdout::new(false)),
        });
    }

    tokio::pin!(ended);
    let mut due = Instant::now() + interval;
    let mut bytes_due = Instant::now();
    let tells_events = targets.iter().any(|target| matches!(target.as_str(), "stdout" | "label"));
    let mut observations = Vec::new();
    let mut lost = 0;
    loop {
        let over = tokio::select! {
            () = &mut ended => true,
            () = tokio::time::sleep(TICK) => false,
        };
        reader.take(&mut observations);
        for exporter in &mut exporters {
            exporter.observe(&observations, &naming);
        }
        observations.clear();
        let dropped = reader.dropped();
        if dropped > lost {
            tracing::warn!("metrics: {} observations were lost to {}", dropped - lost, targets.join(", "));
            ::metrics::counter!(names::OBSERVATIONS_DROPPED).absolute(dropped);
            lost = dropped;
        }
        if over || Instant::now() >= due {
            due = Instant::now() + interval;
            let readings = Readings::all(inner);
            for exporter in &mut exporters {
                exporter.flush(&readings, &naming, SystemTime::now());
            }
        } else {
            // Bytes are kept for each target: not to be read with every tick.
            let with_bytes = tells_events && Instant::now() >= bytes_due;
            let readings = if with_bytes { Readings::all(inner) } else { Readings::few(inner) };
            if with_bytes {
                bytes_due = Instant::now() + BYTES;
            }
            for exporter in &mut exporters {
                exporter.tick(&readings, &naming);
            }
        }
        if over {
            break;
        }
    }
    drop(exporters);
    for connection in connections {
        connection.ended().await;
    }
}

/// The words of `metrics.target` that are served here.
pub const TARGETS: &[&str] = &["stdout", "flat", "label", "statsd_raw", "dogstatsd", "graphite", "circonus"];
/// How often the journal is emptied, and how late a line on standard output may be.
const TICK: Duration = Duration::from_millis(20);
/// How late a line about bytes may be.
const BYTES: Duration = Duration::from_secs(1);
