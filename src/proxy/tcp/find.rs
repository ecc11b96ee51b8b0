//! From a key to targets.

use std::net::IpAddr;
use std::sync::Arc;

use super::Worker;
use crate::route::{Route, Strategy, Target, Turn};
use crate::upstream::{RouteState, TargetState};

/// What the table says about a connection.
pub enum Found {
    /// No route.
    Nothing,
    /// A route, whose targets are all at weight 0.
    Nobody,
    /// The rules of the chosen target shut this address out.
    Denied(Arc<TargetState>),
    Targets(Candidates),
}

/// Where a connection can go.
pub struct Candidates {
    /// The one whose turn it is.
    pub(crate) first: Arc<TargetState>,
    /// To be tried if it cannot be reached.
    pub(super) others: Vec<Arc<TargetState>>,
}

impl Worker {
    /// Looks the keys up in order, and picks a target of the first route. Takes a turn, so it is to be called once per
    /// connection.
    pub fn find(&self, keys: &[&str], client: IpAddr) -> Found {
        let snapshot = self.live.load();
        match keys.iter().find_map(|key| snapshot.table.tcp(key)) {
            None => Found::Nothing,
            Some(route) => choose(route, &self.strategy, client),
        }
    }

    /// As [`Self::find`], for datagrams.
    pub(crate) fn find_udp(&self, key: &str, client: IpAddr) -> Found {
        match self.live.load().table.udp(key) {
            None => Found::Nothing,
            Some(route) => choose(route, &self.strategy, client),
        }
    }
}

fn choose(route: &Route, strategy: &Strategy, client: IpAddr) -> Found {
    let state = |target: &Target| target.state.share::<TargetState>();
    let turn = match (strategy, route.state.get::<RouteState>()) {
        (Strategy::RoundRobin, Some(state)) => Turn::Nth(state.next_turn()),
        _ => Turn::Random(fastrand::u64(..)),
    };
    let Some(target) = route.pick(turn) else { return Found::Nobody };
    let Some(first) = state(target) else { return Found::Nobody };
    if !target.options.access.permits(client) {
        return Found::Denied(first);
    }
    let mut others = Vec::new();
    if route.targets.len() > 1 {
        // Begins behind the first one, so that the load of a dead target does not all go to the same other one.
        let at = route.targets.iter().position(|other| std::ptr::eq(other, target)).unwrap_or_default();
        let (before, behind) = route.targets.split_at(at);
        let usable = |other: &&Target| other.share > 0.0 && other.options.access.permits(client);
        others.extend(behind[1..].iter().chain(before).filter(usable).filter_map(state).take(MORE));
    }
    Found::Targets(Candidates { first, others })
}

/// Two more tries: more would keep a client waiting for what is a general outage.
const MORE: usize = 2;
