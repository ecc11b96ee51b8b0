//! What changes while somebody looks: samples of the traffic, and news of the table, as server-sent events.
//!
//! Nothing is sampled while nobody looks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::time::timeout;

use super::answer::{Answer, error};
use super::api::json_answer;
use super::body::Body;
use super::json::Object;
use super::stats::{self, Sampler, Stats};
use super::{Change, State};
use crate::life::{Phase, Watch};

/// Where samples go.
pub(super) struct Hub {
    latest: watch::Sender<Option<Arc<Stats>>>,
    events: broadcast::Sender<Bytes>,
    /// When somebody last looked; `None`: nothing is sampled.
    looked: Mutex<Option<Instant>>,
    /// Open event streams.
    streams: Arc<Semaphore>,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            latest: watch::Sender::new(None),
            events: broadcast::Sender::new(16),
            looked: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }
}

impl Hub {
    /// Somebody looks: begins to sample if nobody did before.
    fn look(state: &Arc<State>, life: &Watch) {
        let mut looked = state.hub.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.replace(Instant::now()).is_none() {
            tokio::spawn(sample(state.clone(), life.clone()));
        }
    }

    /// Whether it is time to stop, which then is noted.
    fn is_unwatched(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = looked.is_none_or(|at| at.elapsed() > IDLE) && self.events.receiver_count() == 0;
        if idle {
            *looked = None;
            self.latest.send_replace(None);
        }
        idle
    }
}

/// The numbers of now. The first look takes a moment.
pub(super) async fn stats(state: &Arc<State>, life: &Watch, query: Option<&str>) -> Answer {
    Hub::look(state, life);
    let mut latest = state.hub.latest.subscribe();
    let found = timeout(FIRST_STATS, latest.wait_for(Option::is_some)).await;
    match found.ok().and_then(Result::ok).and_then(|latest| latest.clone()) {
        Some(found) => json_answer(query, stats::full(&found)),
        None => error(StatusCode::SERVICE_UNAVAILABLE, "nothing is counted"),
    }
}

/// `stats` every other second and `table` for each change, until the client goes.
pub(super) fn events(state: &Arc<State>, life: &Watch) -> Answer {
    let Ok(permit) = state.hub.streams.clone().try_acquire_owned() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many event streams are open");
    };
    // Subscribed before anything else, so that nothing is missed.
    let mut events = state.hub.events.subscribe();
    Hub::look(state, life);
    let (send, body) = mpsc::channel(4);
    let first = state.hub.latest.borrow().clone().map(|latest| event("stats", &stats::brief(&latest)));
    let mut life = life.clone();
    tokio::spawn(async move {
        let _permit = permit;
        let hello = Bytes::from_static(b"retry: 3000\n\n");
        for bytes in [Some(hello), first].into_iter().flatten() {
            if send.send(bytes).await.is_err() {
                return;
            }
        }
        loop {
            let next = tokio::select! {
                next = events.recv() => next,
                () = send.closed() => return,
                () = life.reached(Phase::Closing) => return,
            };
            match next {
                // A client that does not keep up misses some.
                Ok(bytes) => {
                    if let Err(mpsc::error::TrySendError::Closed(_)) = send.try_send(bytes) {
                        return;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    });
    let mut answer: Response<Body> = Response::new(Body::Events(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // For proxies in front of us that would collect it (nginx).
    answer.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

/// Until nobody looks any more.
async fn sample(state: Arc<State>, mut life: Watch) {
    let Some(metrics) = state.views.metrics.clone() else { return };
    let mut sampler = Sampler::new(metrics.bounds());
    let mut builds = (state.views.status)().builds;
    let mut pause = Duration::ZERO;
    let mut rounds = 0_u32;
    loop {
        tokio::select! {
            () = life.reached(Phase::Closing) => return,
            () = tokio::time::sleep(pause) => {}
        }
        if state.hub.is_unwatched() {
            return;
        }
        let (metrics, mut at_work) = (metrics.clone(), sampler);
        let began = Instant::now();
        // Large tables take a while: nobody else of the control plane has to wait.
        let work = tokio::task::spawn_blocking(move || {
            let stats = at_work.sample(metrics.totals(), SystemTime::now());
            (at_work, stats)
        });
        let Ok((back, stats)) = work.await else { return };
        sampler = back;
        rounds = rounds.saturating_add(1);
        if rounds > 1 {
            if state.hub.events.receiver_count() > 0 {
                let _ = state.hub.events.send(event("stats", &stats::brief(&stats)));
            }
            state.hub.latest.send_replace(Some(Arc::new(stats)));
        }
        let status = (state.views.status)();
        if status.builds != builds {
            builds = status.builds;
            let _ = state.hub.events.send(event("table", &table_news(builds, status.changes.first())));
        }
        // Never more than a tenth of the time, whatever the size of the table.
        pause = (if rounds == 1 { FIRST } else { EVERY }).max(began.elapsed() * 10);
    }
}

fn table_news(builds: u64, change: Option<&Change>) -> String {
    let mut out = String::new();
    let mut object = Object::new(&mut out);
    object.number("builds", builds as f64);
    if let Some(change) = change {
        let at = change.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        object.number("at", at.as_secs_f64()).text("cause", &change.cause);
        object.number("added", change.added as f64).number("removed", change.removed as f64);
    }
    object.end();
    out
}

/// `data` has no line breaks: JSON escapes them.
fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

const EVERY: Duration = Duration::from_secs(2);
/// Something to compare with comes at once, the first numbers soon.
const FIRST: Duration = Duration::from_millis(500);
const FIRST_STATS: Duration = Duration::from_secs(5);
/// A script that asks twice a minute does not begin anew each time.
const IDLE: Duration = Duration::from_secs(60);
const STREAMS: usize = 64;
