//! From a key to targets.

use std::net::IpAddr;
use std::sync::Arc;

use super::Worker;
use crate::proxy::http::choose::{Wish, choose};
use crate::route::{Route, Strategy, Target};
use crate::upstream::TargetState;

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
            Some(route) => candidates(route, &self.strategy, client),
        }
    }

    /// As [`Self::find`], for datagrams.
    pub(crate) fn find_udp(&self, key: &str, client: IpAddr) -> Found {
        match self.live.load().table.udp(key) {
            None => Found::Nothing,
            Some(route) => candidates(route, &self.strategy, client),
        }
    }
}

fn candidates(route: &Route, strategy: &Strategy, client: IpAddr) -> Found {
    let state = |target: &Target| target.state.share::<TargetState>();
    let wish = Wish { strategy, client, headers: None, path: "", speaks: None };
    let Some(target) = choose(route, &wish, &[]) else { return Found::Nobody };
    let Some(first) = state(target) else { return Found::Nobody };
    if !target.options.access.permits(client) {
        return Found::Denied(first);
    }
    let mut others = Vec::new();
    if route.targets.len() > 1 {
        let mut tried = vec![target.identity()];
        while others.len() < MORE
            && let Some(other) = choose(route, &wish, &tried)
        {
            tried.push(other.identity());
            if other.options.access.permits(client) {
                others.extend(state(other));
            }
        }
    }
    Found::Targets(Candidates { first, others })
}

/// Those that refuse at once cost a client nothing.
const MORE: usize = 15;
