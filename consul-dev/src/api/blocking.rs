//! Reads: the options that all of them take, waiting for a change, and the headers that go with the answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Handled};
use super::filter::Filter;
use super::routes::Query;
use crate::agent::{Shared, State};
use crate::definition::NO_PATH;
use crate::go_text::parse_duration;

/// What the query string says about how to read.
#[derive(Debug)]
pub(super) struct Options {
    /// Wait for an index above this one; 0 does not wait.
    index: u64,
    wait: Duration,
    consistency: &'static str,
}

impl Options {
    pub(super) fn parse(query: &Query) -> Result<Self, Answer> {
        let wait = match query.get("wait") {
            None | Some("") => DEFAULT_WAIT,
            Some(text) => match parse_duration(text).ok_or_else(|| Answer::bad("Invalid wait time"))? {
                Duration::ZERO => DEFAULT_WAIT,
                wait => wait.min(MAX_WAIT),
            },
        };
        let index = match query.get("index") {
            None | Some("") => 0,
            Some(text) => text.parse().map_err(|_| Answer::bad("Invalid index"))?,
        };
        let consistency = match (query.has("stale"), query.has("consistent")) {
            (true, true) => {
                return Err(Answer::bad("Cannot specify ?stale with ?consistent, conflicting semantics."));
            }
            (true, false) => "stale",
            (false, true) => "consistent",
            (false, false) => "leader",
        };
        Ok(Self { index, wait, consistency })
    }
}

/// Whether the query asks for this data centre; others are not there.
pub(super) fn check_datacenter(shared: &Shared, query: &Query) -> Result<(), Answer> {
    match query.get("dc") {
        None | Some("") => Ok(()),
        Some(dc) if dc == shared.config.datacenter => Ok(()),
        Some(_) => Err(Answer::error(NO_PATH)),
    }
}

/// Answer a read of catalog or health: `index` says where the answer stands, `value` what it is.
pub(super) async fn read(
    shared: &Arc<Shared>,
    query: &Query,
    index: impl Fn(&State) -> u64,
    value: impl Fn(&State) -> Value,
) -> Handled {
    let options = Options::parse(query)?;
    check_datacenter(shared, query).map_err(Answer::unknown_leader)?;
    let filter = Filter::parse(query).map_err(Answer::unknown_leader)?;
    let filtered = |state: &State| {
        let mut value = value(state);
        if let Value::Array(items) = &mut value {
            items.retain(|item| filter.keeps(item));
        }
        Answer::json(value)
    };
    let mut answer = wait(shared, &options, index, filtered).await;
    answer.header("x-consul-effective-consistency", options.consistency);
    Ok(answer)
}

/// Wait until the index is above the one the client knows, or until its time is over, and answer with what is there then.
pub(super) async fn wait(
    shared: &Arc<Shared>,
    options: &Options,
    index: impl Fn(&State) -> u64,
    answer: impl Fn(&State) -> Answer,
) -> Answer {
    // Spread by up to a sixteenth, so that clients that began together do not come back together.
    let jitter = options.wait.mul_f64(crate::random::fraction() / 16.0);
    let deadline = Instant::now() + options.wait + jitter;
    let mut changes = shared.changes();
    let generation = shared.read(|state| state.generation);
    let mut over = options.index == 0;
    loop {
        changes.mark_unchanged();
        let ready = shared.read(|state| {
            // Never 0: a client would take it for no index at all, and not wait.
            let index = index(state).max(1);
            let ready = over || index > options.index || state.generation != generation;
            ready.then(|| (index, answer(state)))
        });
        if let Some((index, mut answer)) = ready {
            answer.header("x-consul-index", index.to_string());
            answer.header("x-consul-knownleader", "true");
            answer.header("x-consul-lastcontact", "0");
            return answer;
        }
        over = timeout_at(deadline, changes.changed()).await.is_err();
    }
}

/// Consul's defaults.
const DEFAULT_WAIT: Duration = Duration::from_secs(5 * 60);
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);
