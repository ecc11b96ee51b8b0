//! What becomes of a request, counted and logged when it is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};

use super::answer::CLIENT_GONE;
use super::facts::Facts;
use super::is_websocket;
use super::limits::Held;
use crate::access_log::Outcome;
use crate::metrics::Shard;
use crate::upstream::{Effort, Flight, TargetState};

/// Lives as long as a request. Dropped without a status, the client has gone away.
pub(crate) struct Record {
    /// `None`: we answer ourselves. Nothing is counted then.
    target: Option<Arc<TargetState>>,
    shard: Shard,
    begun: Instant,
    /// When the listener's `wt` ends it.
    deadline: Option<Instant>,
    status: u16,
    /// Its status says nothing.
    upgraded: bool,
    /// Counts at the target until all is over; `None`: nobody wants to know.
    flight: Option<Flight>,
    /// Given back when the request is over.
    pub(crate) held: Held,
    /// `None`: nobody wants to know, or not about this request.
    facts: Option<Box<Facts>>,
}

impl Record {
    /// A request that goes to a target.
    pub(crate) fn new(
        target: Arc<TargetState>,
        shard: Shard,
        deadline: Option<Instant>,
        facts: Option<Box<Facts>>,
    ) -> Self {
        let begun = Instant::now();
        target.series.begin(shard);
        let (flight, held) = (target.begin(), Held::default());
        Self { target: Some(target), shard, begun, deadline, status: CLIENT_GONE, upgraded: false, flight, held, facts }
    }

    /// A request that we answer.
    pub(crate) fn own(status: u16, outcome: Outcome, shard: Shard, mut facts: Box<Facts>) -> Self {
        facts.outcome = outcome;
        Self {
            target: None,
            shard,
            begun: facts.begun,
            deadline: None,
            status,
            upgraded: false,
            flight: None,
            held: Held::default(),
            facts: Some(facts),
        }
    }

    /// The response has begun. What ends it is not known yet.
    pub(crate) fn status(&mut self, status: u16) {
        self.status = status;
        if let Some(flight) = &mut self.flight {
            flight.answered(matches!(status, 502..=504));
        }
        if let Some(facts) = &mut self.facts {
            facts.first_byte = Some(self.begun.elapsed());
        }
    }

    /// It goes to another target now.
    pub(crate) fn target(&mut self, target: Arc<TargetState>) {
        if let Some(flight) = &mut self.flight {
            flight.answered(true);
        }
        self.flight = target.begin();
        self.target = Some(target);
    }

    /// As it goes to the target.
    pub(crate) fn forwarded(&mut self, headers: &HeaderMap, target: &PathAndQuery) {
        if let Some(facts) = &mut self.facts {
            facts.forwarded(headers, target, is_websocket(headers));
        }
    }

    /// It goes to a target now, with these headers.
    pub(crate) fn begin_try(&mut self, target: &Arc<TargetState>, path: &PathAndQuery, headers: &mut HeaderMap) {
        if let Some(facts) = &mut self.facts {
            facts.begin_try(target, path, headers);
        }
    }

    /// What it took to get a response, or none.
    pub(crate) fn tried(&mut self, effort: &Effort, answer: Result<StatusCode, &'static str>) {
        if let Some(facts) = &mut self.facts {
            facts.connect = effort.connect.get();
            facts.retries = Some(effort.retries.get());
            facts.tried(answer.map(|status| status.as_u16()));
        }
    }

    /// There was no response; `why` in a word.
    pub(crate) fn failed(&mut self, status: u16, why: &'static str) {
        self.status = status;
        if let Some(flight) = &mut self.flight {
            flight.answered(true);
        }
        if let Some(facts) = &mut self.facts {
            facts.outcome = Outcome::Failed(why);
        }
    }

    /// The connection speaks another protocol now. Such a request has no status in fabio, and its time is that of the
    /// connection; the log shows it only if it shows everything.
    pub(crate) fn upgraded(&mut self, websocket: bool) {
        self.upgraded = true;
        self.facts.take_if(|facts| {
            facts.special();
            !facts.wanted()
        });
        if let Some(facts) = &mut self.facts
            && websocket
        {
            facts.protocol = "websocket";
        }
    }

    /// A call on a listener for calls: not among the HTTP statuses.
    pub(crate) fn call(&mut self) {
        self.upgraded = true;
    }

    /// `idletimeout` of the route.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        self.target.as_ref()?.options.idle_timeout
    }

    /// Fields that may tell how a gRPC call went: those of the head or the trailers.
    pub(crate) fn fields(&mut self, fields: &HeaderMap) {
        if let Some(facts) = &mut self.facts
            && let Some(status) = fields.get("grpc-status")
        {
            facts.grpc_status = status.to_str().ok().and_then(|status| status.parse().ok());
        }
    }

    /// Bytes of the body are on their way to the client.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(facts) = &mut self.facts {
            facts.sent += bytes as u64;
        }
    }

    /// What went through a connection that has changed its protocol.
    pub(crate) fn copied(&mut self, received: u64, sent: u64) {
        if let Some(facts) = &mut self.facts {
            facts.received = Some(received);
            facts.sent = sent;
            facts.outcome = Outcome::Done;
        }
    }

    /// The body is over.
    pub(crate) fn ended(mut self, whole: bool) {
        if let Some(facts) = &mut self.facts
            && facts.outcome == Outcome::ClientGone
        {
            facts.outcome = if whole { Outcome::Done } else { Outcome::Cut };
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        // Nobody has closed anything: the time was over, and we close.
        let late = |deadline: Instant| Instant::now() + TICK >= deadline;
        if self.status == CLIENT_GONE && self.deadline.is_some_and(late) {
            self.failed(StatusCode::GATEWAY_TIMEOUT.as_u16(), "write_timeout");
        }
        if let Some(target) = &self.target {
            let code = if self.upgraded { 0 } else { self.status };
            target.series.observe(self.shard, code, took);
        }
        if let Some(facts) = &self.facts {
            facts.end(self.target.as_deref(), self.status, took);
        }
    }
}

/// How exact timers are.
const TICK: Duration = Duration::from_millis(2);
