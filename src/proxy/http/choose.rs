//! Which target of a route gets the next try.

use std::net::IpAddr;

use http::HeaderMap;

use crate::route::{Route, Strategy, Target, Turn};
use crate::upstream::{RouteState, TargetState};

/// What may have a say in the choice.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    /// `proxy.strategy`.
    pub(crate) strategy: Strategy,
    /// The peer's address.
    #[allow(dead_code)]
    pub(crate) client: IpAddr,
    /// `None`: no HTTP is spoken.
    #[allow(dead_code)]
    pub(crate) headers: Option<&'a HeaderMap>,
    /// As it came, without query.
    #[allow(dead_code)]
    pub(crate) path: &'a str,
    /// Who can be talked to at all; `None`: everybody.
    pub(crate) speaks: Option<&'a dyn Fn(&Target) -> bool>,
}

impl Wish<'_> {
    fn can_have(&self, target: &Target) -> bool {
        self.speaks.is_none_or(|speaks| speaks(target))
    }
}

/// The target for a try, with its turn taken. `tried`: identities of targets that this request was sent to already; they
/// are not chosen again, so `None` means that there is no other, or that all are shut out by `weight 0`.
///
/// Targets that are ejected or full are passed over while there are others. But if more than half of a route's targets are
/// ejected, the fault is likely not theirs, and all of them are used.
pub(crate) fn choose<'r>(route: &'r Route, wish: &Wish<'_>, tried: &[u128]) -> Option<&'r Target> {
    if let [only] = &*route.targets {
        // One target needs no turn.
        return (only.share > 0.0 && tried.is_empty() && wish.can_have(only)).then_some(only);
    }
    if !tried.is_empty() {
        return another(route, None, wish, tried);
    }
    let turn = match (wish.strategy, route.state.get::<RouteState>()) {
        (Strategy::RoundRobin, Some(state)) => Turn::Nth(state.next_turn()),
        _ => Turn::Random(fastrand::u64(..)),
    };
    let picked = route.pick(turn)?;
    if !wish.can_have(picked) {
        return another(route, None, wish, tried);
    }
    let Some(state) = state(picked) else { return Some(picked) };
    let ramp = state.ramp();
    if state.available() && (ramp >= 1.0 || fastrand::f64() < ramp) {
        return Some(picked);
    }
    another(route, Some(picked), wish, tried)
}

/// By weight among those that may get something, else among all that were not tried. `picked`: whose turn it is.
fn another<'r>(route: &'r Route, picked: Option<&'r Target>, wish: &Wish<'_>, tried: &[u128]) -> Option<&'r Target> {
    let (mut all, mut ejected) = (0, 0);
    for target in route.targets.iter().filter(|target| target.share > 0.0) {
        all += 1;
        ejected += usize::from(is(target, TargetState::is_ejected));
    }
    let panic = ejected * 2 > all;
    if panic && picked.is_some_and(|target| is(target, TargetState::is_ejected) && !is(target, TargetState::is_full)) {
        return picked;
    }
    let rest = |target: &Target| target.share > 0.0 && wish.can_have(target) && !tried.contains(&target.identity());
    let good = |target: &Target| {
        rest(target) && !is(target, TargetState::is_full) && (panic || !is(target, TargetState::is_ejected))
    };
    draw(route, good).or_else(|| draw(route, rest))
}

/// At random, by weight.
fn draw(route: &Route, usable: impl Fn(&Target) -> bool) -> Option<&Target> {
    let weights = || {
        route.targets.iter().filter(|target| usable(target)).map(|target| {
            let ramp = state(target).map_or(1.0, TargetState::ramp);
            (target, target.share * ramp)
        })
    };
    let mut point = fastrand::f64() * weights().map(|(_, weight)| weight).sum::<f64>();
    let mut last = None;
    for (target, weight) in weights() {
        last = Some(target);
        point -= weight;
        if point < 0.0 {
            break;
        }
    }
    last
}

fn state(target: &Target) -> Option<&TargetState> {
    target.state.get()
}

fn is(target: &Target, what: fn(&TargetState) -> bool) -> bool {
    state(target).is_some_and(what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::metrics::{self, Metrics};
    use crate::route::{Builder, Origin, Settings, Table, parse_text};
    use crate::upstream::{Directory, Verdict};

    fn table(routes: &str) -> Arc<Table> {
        let config = metrics::Config {
            targets: vec![],
            prefix: "p".into(),
            names: String::new(),
            interval: Duration::from_secs(30),
            prometheus_subsystem: String::new(),
            prometheus_path: "/metrics".into(),
            prometheus_buckets: vec![1.0],
            addresses: Default::default(),
            circonus_url: Default::default(),
        };
        let mut builder = Builder::new(Settings::default());
        builder.manual(parse_text(routes, |line| Origin::Static { line }).entries);
        let table = builder.build().table;
        Directory::new(Metrics::new(&config, 1)).attach(table.routes());
        table
    }

    /// As many targets, with their options.
    fn of(options: &[&str]) -> Arc<Table> {
        let lines: String = options
            .iter()
            .enumerate()
            .map(|(n, o)| format!("route add s / http://10.0.0.{n}:80/ opts \"{o}\"\n"))
            .collect();
        table(&lines)
    }

    fn eject(table: &Table, numbers: &[usize]) {
        let route = table.routes().next().unwrap();
        for number in numbers {
            let state: &TargetState = route.targets[*number].state.get().unwrap();
            assert!((0..5).any(|_| state.note(Verdict::Broken).is_some()));
        }
    }

    fn counts(table: &Table, strategy: Strategy, tried: &[usize]) -> BTreeMap<usize, usize> {
        let route = table.routes().next().unwrap();
        let wish = Wish { strategy, client: "127.0.0.1".parse().unwrap(), headers: None, path: "/", speaks: None };
        let tried: Vec<u128> = tried.iter().map(|number| route.targets[*number].identity()).collect();
        let mut counts = BTreeMap::new();
        for _ in 0..3000 {
            if let Some(target) = choose(route, &wish, &tried) {
                let number = route.targets.iter().position(|other| std::ptr::eq(other, target)).unwrap();
                *counts.entry(number).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn who_gets_a_request() {
        for (targets, ejected, tried, want) in [
            (1, &[][..], &[][..], &[0][..]),
            (1, &[0], &[], &[0]),
            (1, &[], &[0], &[]),
            (3, &[], &[], &[0, 1, 2]),
            (3, &[1], &[], &[0, 2]),
            (2, &[1], &[], &[0]),
            // More than half: all are used.
            (3, &[0, 1], &[], &[0, 1, 2]),
            (3, &[0, 1, 2], &[], &[0, 1, 2]),
            (3, &[], &[0], &[1, 2]),
            (3, &[1], &[0], &[2]),
            (3, &[1], &[0, 2], &[1]),
            (3, &[], &[0, 1, 2], &[]),
        ] {
            for strategy in [Strategy::Random, Strategy::RoundRobin] {
                let table = of(&vec![""; targets]);
                eject(&table, ejected);
                let got = counts(&table, strategy, tried);
                assert_eq!(got.keys().copied().collect::<Vec<_>>(), want, "{targets} {ejected:?} {tried:?} {got:?}");
                let fair = 3000 / want.len().max(1);
                assert!(got.values().all(|count| count.abs_diff(fair) < 300), "{got:?}");
            }
        }
    }

    #[test]
    fn weight_0_is_never_chosen() {
        let table = table(
            "route add s / http://10.0.0.0/\nroute add s / http://10.0.0.1/\nroute add s / http://10.0.0.2/ tags \"x\"\nroute weight s / weight 0 tags \"x\"",
        );
        for tried in [&[][..], &[0], &[0, 1]] {
            assert!(!counts(&table, Strategy::Random, tried).contains_key(&2));
        }
        eject(&table, &[0, 1]);
        assert!(!counts(&table, Strategy::Random, &[]).contains_key(&2));
    }

    #[test]
    fn a_new_target_begins_with_a_small_share() {
        let counts = counts(&of(&["", "slowstart=1h"]), Strategy::RoundRobin, &[]);
        // A tenth of a half at once, and a bit of what it left to both.
        assert!((150..600).contains(&counts[&1]), "{counts:?}");
    }
}
