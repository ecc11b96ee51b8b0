//! Traces of requests, told to an OpenTelemetry collector by OTLP over HTTP (protobuf).
//!
//! A worker finds out which trace a request belongs to, and whether anybody wants to see it; at the end it writes the spans
//! into a buffer in the form in which they are sent, and puts that into a bounded queue. A task of the control plane takes
//! it from there to the collector. When that cannot keep up, spans are dropped and counted; nobody on the data plane waits.

mod b3;
mod context;
mod export;
mod propagate;
mod protobuf;
mod queue;
mod sample;
mod span;
mod w3c;

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::access_log::Mask;
use crate::fetch;
use crate::life::{Phase, Watch};

pub use context::{Context, hex};
pub use propagate::{Formats, UnknownFormat};
pub use sample::Ratio;
pub use span::{Attributes, Kind, Span, Spans};

/// `tracing.*`
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where spans are posted to: a URL with its path.
    pub endpoint: String,
    /// Sent with each post.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub tls: fetch::Tls,
    /// For one post, with its answer. Not 0.
    pub timeout: Duration,
    /// How long a span waits for others at most. Not 0.
    pub interval: Duration,
    /// So many spans are not waited for any longer, and sent together. Not 0.
    pub batch: usize,
    /// `service.name` and whatever else tells who we are, each once.
    pub resource: Vec<(String, String)>,
    /// Of the requests whose sender has not decided.
    pub sample: Ratio,
    /// What is read and written.
    pub formats: Formats,
    pub parents: Parents,
    /// For the query in a span.
    pub mask: Mask,
}

/// Whose traces are joined. The requests of others begin traces of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    #[default]
    Everybody,
    /// Those whose forwarding headers are believed.
    Trusted,
    Nobody,
}

/// The traces of the process. Cheap to clone.
#[derive(Clone)]
pub struct Traces(Arc<Shared>);

struct Shared {
    config: Config,
    queue: queue::Queue,
    client: fetch::Client,
    /// Until it runs.
    reader: Mutex<Option<queue::Reader>>,
}

impl Traces {
    /// Fails if the files for TLS cannot be used.
    pub fn new(config: Config) -> Result<Self, fetch::Error> {
        let settings = fetch::Settings {
            https: config.endpoint.starts_with("https:"),
            tls: config.tls.clone(),
            idle_connections: 1,
            ..fetch::Settings::default()
        };
        let client = fetch::Client::new(settings)?;
        let (queue, reader) = queue::new();
        Ok(Self(Arc::new(Shared { config, queue, client, reader: Mutex::new(Some(reader)) })))
    }

    /// What one worker traces with.
    pub fn tracer(&self) -> Tracer {
        // The default seed of generators is a time: proxies that are started together by a machine must not draw the same ids.
        let seed = RandomState::new().hash_one(std::process::id());
        Tracer {
            shared: self.0.clone(),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            scratch: RefCell::default(),
        }
    }

    /// Sends until the end, and then what is left, for a moment at most.
    pub async fn run(self, life: Watch) {
        let reader = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut life = life;
        if let Some(reader) = reader {
            export::Exporter::new(&self.0, reader).run(life.reached(Phase::Ended)).await;
        }
    }
}

/// Traces the requests of one worker.
pub struct Tracer {
    shared: Arc<Shared>,
    random: RefCell<fastrand::Rng>,
    scratch: RefCell<Vec<u8>>,
}

impl Tracer {
    /// The trace of a request with these headers, and what is decided about it. `trusted`: is its sender to be believed?
    pub fn begin(&self, headers: &HeaderMap, trusted: impl FnOnce() -> bool) -> Context {
        let config = &self.shared.config;
        let joins = match config.parents {
            Parents::Everybody => true,
            Parents::Trusted => trusted(),
            Parents::Nobody => false,
        };
        let mut random = self.random.borrow_mut();
        if joins {
            config.formats.context(headers, config.sample, &mut random)
        } else {
            Context::new(None, config.sample, &mut random)
        }
    }

    /// The id of one more span.
    pub fn span_id(&self) -> NonZeroU64 {
        context::span_id(&mut self.random.borrow_mut())
    }

    /// Tells whoever gets a request about the span that it is sent in.
    pub fn introduce(&self, context: &Context, span: NonZeroU64, headers: &mut HeaderMap) {
        self.shared.config.formats.write(context, span, headers);
    }

    /// What is to be hidden in queries.
    pub fn mask(&self) -> &Mask {
        &self.shared.config.mask
    }

    /// Takes the spans of a request that has ended. Never waits.
    pub fn put(&self, write: impl FnOnce(&mut Spans<'_>)) {
        let mut scratch = self.scratch.borrow_mut();
        scratch.clear();
        let mut spans = Spans::new(&mut scratch);
        write(&mut spans);
        let count = spans.count();
        self.shared.queue.put(&scratch, count);
        if scratch.capacity() > SCRATCH_MAX {
            *scratch = Vec::new();
        }
    }
}

/// One request with many tries must not cost its size for ever.
const SCRATCH_MAX: usize = 64 << 10;
