//! Which targets do not get their usual share of requests, and why.

use crate::admin::Condition;
use crate::route::{Route, Table, Target};
use crate::upstream::{TargetState, moment};

/// In the order of the table.
pub(super) fn of(table: &Table) -> Vec<Condition> {
    let targets = table.routes().flat_map(|route| route.targets.iter().map(move |target| (route, target)));
    targets.filter_map(|(route, target)| condition(route, target)).collect()
}

fn condition(route: &Route, target: &Target) -> Option<Condition> {
    let of: &TargetState = target.state.get()?;
    let (in_flight, waiting) = of.endpoint.gate.counts();
    let share = of.ramp();
    let (state, reason, left) = if let Some((reason, left)) = of.endpoint.health.ejection(moment()) {
        ("ejected", reason.name(), left)
    } else if of.is_full() {
        ("full", "maxconn", None)
    } else if share < 1.0 {
        ("slow_start", "", of.options.slow_start.map(|time| time.mul_f64(1.0 - share)))
    } else {
        return None;
    };
    Some(Condition {
        service: target.service.to_string(),
        host: route.host.to_string(),
        path: route.path.to_string(),
        target: target.destination.text.to_string(),
        state,
        reason,
        left,
        share: if state == "ejected" { 0.0 } else { share },
        in_flight,
        waiting,
    })
}
