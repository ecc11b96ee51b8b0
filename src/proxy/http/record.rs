//! What becomes of a request, counted and logged when it is over.

use std::sync::Arc;
use std::time::Instant;

use super::answer::CLIENT_GONE;
use super::facts::{Ending, Facts};
use crate::access_log::Outcome;
use crate::metrics::Shard;
use crate::upstream::TargetState;

/// Lives as long as a request. Dropped without a status, the client has gone away.
pub(crate) struct Record {
    /// `None`: we answer ourselves. Nothing is counted then.
    target: Option<Arc<TargetState>>,
    shard: Shard,
    begun: Instant,
    status: u16,
    outcome: Outcome,
    /// Bytes of the body to the client, or both ways once the protocol has changed.
    sent: u64,
    received: Option<u64>,
    /// `None`: there is no access log, or it is not for this request.
    facts: Option<Box<Facts>>,
}

impl Record {
    /// A request that goes to a target.
    pub(crate) fn new(target: Arc<TargetState>, shard: Shard, facts: Option<Box<Facts>>) -> Self {
        Self {
            target: Some(target),
            shard,
            begun: Instant::now(),
            status: CLIENT_GONE,
            outcome: Outcome::ClientGone,
            sent: 0,
            received: None,
            facts,
        }
    }

    /// A request that we answer.
    pub(crate) fn own(status: u16, outcome: Outcome, shard: Shard, facts: Box<Facts>) -> Self {
        Self { target: None, shard, begun: facts.begun, status, outcome, sent: 0, received: None, facts: Some(facts) }
    }

    /// The response has begun. What ends it is not known yet.
    pub(crate) fn status(&mut self, status: u16) {
        self.status = status;
        if let Some(facts) = &mut self.facts {
            facts.answered();
        }
    }

    /// There was no response; `why` in a word.
    pub(crate) fn failed(&mut self, status: u16, why: &'static str) {
        self.status = status;
        self.outcome = Outcome::Failed(why);
    }

    /// The connection speaks another protocol now. Such a request has no status in fabio, and its time is that of the
    /// connection; the log shows it only if it shows everything.
    pub(crate) fn upgraded(&mut self, websocket: bool) {
        self.received = Some(0);
        self.facts.take_if(|facts| !facts.all());
        if let Some(facts) = &mut self.facts
            && websocket
        {
            facts.protocol = "websocket";
        }
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// What went through a connection that has changed its protocol.
    pub(crate) fn copied(&mut self, received: u64, sent: u64) {
        self.received = Some(received);
        self.sent = sent;
        self.outcome = Outcome::Done;
    }

    /// The body is over.
    pub(crate) fn ended(mut self, whole: bool) {
        if self.outcome == Outcome::ClientGone {
            self.outcome = if whole { Outcome::Done } else { Outcome::Cut };
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        if let Some(target) = &self.target {
            let code = if self.received.is_some() { 0 } else { self.status };
            target.series.observe(self.shard, code, took);
        }
        if let Some(facts) = &self.facts {
            facts.write(&Ending {
                target: self.target.as_deref(),
                status: self.status,
                sent: self.sent,
                received: self.received,
                took,
                outcome: self.outcome,
            });
        }
    }
}
