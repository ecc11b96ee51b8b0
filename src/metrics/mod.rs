//! What happened, counted. Every series name stands in `names.rs`.
//!
//! Two kinds of series. fabio's families are counted here, in atomics that each worker has for itself, because a request
//! must not wait for a lock, series of targets must disappear with their target, and a histogram must not keep samples.
//! Everything else is recorded by the control plane through the `metrics` facade with a name of [`names`]:
//! `metrics::counter!(names::REGISTRY_ERRORS, "source" => "kv").increment(1)`. The facade takes locks: never on a worker.
//!
//! Exporters read; nothing is pushed into them. An exporter to come reads the same series through [`Metrics`].

mod exposition;
mod facade;
mod live;
pub mod names;
mod own;
mod prefix;
mod process;
mod push;
mod reference;
mod render;
mod series;
mod targets;
mod traffic;
mod troubles;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::life;

pub use live::Total;
pub use own::OpenConnection;
pub use prefix::{DEFAULT_PREFIX, PrefixError, expand_prefix};
pub use push::{Addresses, Post, TARGETS as PUSH_TARGETS};
pub use reference::reference;
pub use series::Counter;
pub use targets::TargetSeries;
pub use traffic::{GrpcSeries, HttpSeries, OpenWebSocket, TcpSeries};

/// `metrics.*`
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `metrics.target`: which exporters are on: `prometheus` and those of [`PUSH_TARGETS`].
    pub targets: Vec<String>,
    /// `metrics.prefix`, template expanded (see [`expand_prefix`]).
    pub prefix: String,
    /// `metrics.names`, a template (see [`check_names`]).
    pub names: String,
    /// How often exporters push. Not 0.
    pub interval: Duration,
    pub addresses: Addresses,
    /// `metrics.circonus.submissionurl`; empty: none. Whoever runs the exporters posts there.
    pub circonus_url: String,
    pub prometheus_subsystem: String,
    /// Begins with `/`.
    pub prometheus_path: String,
    /// Seconds, strictly increasing.
    pub prometheus_buckets: Vec<f64>,
}

/// What is wrong with a text for `metrics.names`, if something is.
pub fn check_names(template: &str) -> Result<(), String> {
    push::check_names(template)
}

/// Which worker records: each has counters of its own, so that an add is never contended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard(pub usize);

/// All series. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    buckets: Arc<series::Buckets>,
    targets: targets::Targets,
    connections: own::Connections,
    http: HttpSeries,
    grpc: GrpcSeries,
    tcp: TcpSeries,
    tcp_sni: TcpSeries,
    names: render::Names,
    prometheus: bool,
    path: String,
    /// Until it runs.
    push: Mutex<Option<push::Push>>,
}

impl Metrics {
    /// `shards`: number of workers. Nothing of the data plane is counted when no exporter is configured.
    pub fn new(config: &Config, shards: usize) -> Self {
        Self::with_limit(config, shards, TARGETS_MAX, false)
    }

    /// As [`Metrics::new`], and counts without an exporter, too: there are pages that show it.
    pub fn watched(config: &Config, shards: usize) -> Self {
        Self::with_limit(config, shards, TARGETS_MAX, true)
    }

    fn with_limit(config: &Config, shards: usize, limit: usize, watched: bool) -> Self {
        facade::handle();
        let buckets = Arc::new(series::Buckets::new(&config.prometheus_buckets));
        let enabled = watched || !config.targets.is_empty();
        let (push, journal) = push::Push::new(config).unzip();
        Self(Arc::new(Inner {
            grpc: GrpcSeries::new(shards, buckets.clone(), enabled, journal.clone()),
            targets: targets::Targets::new(buckets.clone(), shards, limit, enabled, journal),
            buckets,
            connections: own::Connections::new(shards),
            http: HttpSeries::new(shards, enabled),
            tcp: TcpSeries::new(shards),
            tcp_sni: TcpSeries::new(shards),
            names: render::Names::new(&config.prefix, &config.prometheus_subsystem),
            prometheus: config.targets.iter().any(|target| target == "prometheus"),
            path: config.prometheus_path.clone(),
            push: Mutex::new(push),
        }))
    }

    /// The series of one target; they disappear from the output when the last handle is dropped. For the control plane:
    /// it takes a lock. Dropping a handle does not.
    pub fn target(&self, service: &str, host: &str, path: &str, target: &str) -> Arc<TargetSeries> {
        self.0.targets.handle(service, host, path, target)
    }

    pub fn http(&self) -> &HttpSeries {
        &self.0.http
    }

    /// Of gRPC calls, on whatever listener.
    pub fn grpc(&self) -> &GrpcSeries {
        &self.0.grpc
    }

    /// Of tcp and tcp-dynamic listeners.
    pub fn tcp(&self) -> &TcpSeries {
        &self.0.tcp
    }

    /// Of tcp+sni and https+tcp+sni listeners.
    pub fn tcp_sni(&self) -> &TcpSeries {
        &self.0.tcp_sni
    }

    /// Text format 0.0.4: fabio's families (with the target `prometheus` only), facts about the process, then what the
    /// `metrics` facade recorded. Takes milliseconds per thousand targets: not for a worker.
    pub fn render(&self) -> String {
        let mut writer = exposition::Writer::new();
        if self.0.prometheus {
            render::write(&self.0, &mut writer);
        }
        render::write_troubles(&self.0, &mut writer);
        own::write(&self.0, &mut writer);
        process::write(&mut writer);
        let mut text = writer.finish();
        let handle = facade::handle();
        handle.run_upkeep();
        text.push_str(&handle.render());
        text
    }

    /// Pushes, clears up after targets that are gone, and empties buffers, until the end. Then it pushes once more.
    /// `circonus` posts a document to the submission URL.
    pub async fn run(self, life: life::Watch, circonus: Option<Post>) {
        let mut ended = life.clone();
        let upkeep = async {
            loop {
                tokio::select! {
                    () = ended.reached(life::Phase::Ended) => return,
                    () = tokio::time::sleep(UPKEEP) => self.upkeep(),
                }
            }
        };
        let push = self.0.push.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut ended = life;
        let pushing = async {
            if let Some(push) = push {
                push::run(push, &self.0, circonus, ended.reached(life::Phase::Ended)).await;
            }
        };
        tokio::join!(upkeep, pushing);
    }

    fn upkeep(&self) {
        self.0.targets.upkeep();
        facade::handle().run_upkeep();
    }

    /// Answers for a listener with `proto=prometheus`, whatever the method. Renders on the spot, see [`Metrics::render`].
    pub fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let serves = &self.0.path;
        let mut response = Response::new(Full::default());
        if path == serves || serves == "/" {
            *response.body_mut() = Full::from(self.render());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
        } else {
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            // A configured path that no header can carry is not worth more than a redirect to the root.
            let location = HeaderValue::from_str(serves).unwrap_or_else(|_| HeaderValue::from_static("/"));
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }
}

/// Label sets of targets that are counted apart. 100,000 routes are what a table is built for.
const TARGETS_MAX: usize = 200_000;
/// Rendering does the same; this is for the time when nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
