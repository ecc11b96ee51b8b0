//! Which target of a route gets the next try.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;

use http::HeaderMap;

use super::cookies;
use crate::route::{Circumstances, HashKey, Priority, Route, Strategy, Target, stable_hash};
use crate::upstream::{RouteState, TargetState, Tick, Token};

/// What may have a say in the choice.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    /// `proxy.strategy`, for routes without a strategy of their own.
    pub(crate) strategy: &'a Strategy,
    /// The peer's address.
    pub(crate) client: IpAddr,
    /// `None`: no HTTP is spoken.
    pub(crate) headers: Option<&'a HeaderMap>,
    /// As it came, without query.
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
/// A client that is bound to a target by a cookie goes there. Else the first priority of which any target is available is
/// asked, and the strategy decides between its targets. Targets that are ejected or full are passed over while there are
/// others. But if more than half of them are ejected, the fault is likely not theirs, and all are used.
pub(crate) fn choose<'r>(route: &'r Route, wish: &Wish<'_>, tried: &[u128]) -> Option<&'r Target> {
    if let [only] = &*route.targets {
        // One target needs no turn.
        return (only.share > 0.0 && tried.is_empty() && wish.can_have(only)).then_some(only);
    }
    let strategy = match route.strategy().unwrap_or(wish.strategy) {
        // Further tries take no turns from other requests.
        Strategy::RoundRobin if !tried.is_empty() => &RANDOM,
        strategy => strategy,
    };
    let key = match strategy {
        Strategy::Hash(source) => wish.key(source),
        _ => None,
    };
    let now = Now { route, wish, tried, desperate: false, panic: Cell::new(None), clock: OnceCell::new() };
    if let Some(bound) = bound(&now, wish) {
        return Some(bound);
    }
    let chosen = route.choose(strategy, key, &now);
    let chosen = chosen.or_else(|| route.choose(strategy, key, &Now { desperate: true, ..now }));
    chosen.map(|index| &route.targets[index])
}

impl Wish<'_> {
    /// What a hash strategy goes by; `None` if the request does not have it.
    fn key(&self, source: &HashKey) -> Option<u64> {
        let hash = |bytes: &[u8]| stable_hash(&[bytes]);
        match source {
            HashKey::Header(name) => Some(hash(self.headers?.get(name)?.as_bytes())),
            HashKey::Cookie(name) => cookies::values(self.headers?, name).next().map(hash),
            HashKey::Address => Some(match self.client.to_canonical() {
                IpAddr::V4(address) => hash(&address.octets()),
                IpAddr::V6(address) => hash(&address.octets()),
            }),
            HashKey::Path => self.headers.map(|_| hash(self.path.as_bytes())),
        }
    }
}

/// The target that a cookie of the client names, if it may get something.
fn bound<'r>(now: &Now<'r, '_>, wish: &Wish<'_>) -> Option<&'r Target> {
    let sticky = now.route.sticky()?;
    cookies::values(wish.headers?, &sticky.name).filter_map(Token::parse).find_map(|token| {
        let is_it = |target: &&Target| state(target).is_some_and(|state| state.token == Some(token));
        let target = now.route.targets.iter().find(is_it)?;
        (target.share > 0.0 && now.fits(target)).then_some(target)
    })
}

/// What is known about the targets of a route at this moment.
struct Now<'r, 't> {
    route: &'r Route,
    wish: &'t Wish<'t>,
    tried: &'t [u128],
    /// Nobody is available, so all that were not tried will do.
    desperate: bool,
    /// Are more than half of the targets of this priority ejected?
    panic: Cell<Option<(Priority, bool)>>,
    /// Read only if somebody looks at latencies.
    clock: OnceCell<Tick>,
}

impl Now<'_, '_> {
    fn fits(&self, target: &Target) -> bool {
        if self.tried.contains(&target.identity()) || !self.wish.can_have(target) {
            return false;
        }
        match state(target) {
            Some(state) if !self.desperate => {
                !state.is_full() && (!state.is_ejected() || self.panics(target.priority()))
            }
            _ => true,
        }
    }

    fn panics(&self, priority: Priority) -> bool {
        if let Some((known, panic)) = self.panic.get()
            && known == priority
        {
            return panic;
        }
        let member =
            |target: &&Target| target.share > 0.0 && target.priority() == priority && self.wish.can_have(target);
        let group = || self.route.targets.iter().filter(member);
        let ejected = group().filter(|target| state(target).is_some_and(TargetState::is_ejected)).count();
        let all = group().count();
        // With all of them out, those of the next priority are there for just that.
        let panic = ejected * 2 > all && !(self.route.has_priorities() && ejected == all);
        self.panic.set(Some((priority, panic)));
        panic
    }

    fn state(&self, index: usize) -> Option<&TargetState> {
        state(&self.route.targets[index])
    }
}

impl Circumstances for Now<'_, '_> {
    fn usable(&self, index: usize) -> bool {
        let target = &self.route.targets[index];
        if !self.fits(target) {
            return false;
        }
        // A target that warms up is there for a part of the requests only.
        let ramp = state(target).map_or(1.0, TargetState::ramp);
        ramp >= 1.0 || self.desperate || fastrand::f64() < ramp
    }

    fn in_flight(&self, index: usize) -> u32 {
        self.state(index).map_or(0, |state| state.load.in_flight() + state.connections() as u32)
    }

    fn latency(&self, index: usize) -> f64 {
        self.state(index).map_or(0.0, |state| state.load.latency(*self.clock.get_or_init(Tick::now)))
    }

    fn random(&self) -> u64 {
        fastrand::u64(..)
    }

    fn turn(&self) -> u64 {
        self.route.state.get::<RouteState>().map_or_else(|| self.random(), RouteState::next_turn)
    }
}

static RANDOM: Strategy = Strategy::Random;

fn state(target: &Target) -> Option<&TargetState> {
    target.state.get()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::metrics::{self, Metrics};
    use crate::route::{Builder, Datacenter, Instance, Origin, Settings, Table, parse_tags, parse_text};
    use crate::upstream::{Directory, Verdict};

    fn table(routes: &str) -> Arc<Table> {
        let mut builder = Builder::new(Settings::default());
        builder.manual(parse_text(routes, |line| Origin::Static { line }).entries);
        attached(builder)
    }

    /// Instances of the service `s`, and where they are: empty for here, `-` before the address for one that is down.
    fn table_in(instances: &[(&str, &str)], tag: &str) -> Arc<Table> {
        let mut builder = Builder::new(Settings::default());
        for (datacenter, address) in instances {
            let elsewhere = |name: &str| Arc::new(Datacenter { name: name.into(), rank: 1 });
            let instance = Instance {
                service: "s".into(),
                id: "n/s".into(),
                datacenter: Some(*datacenter).filter(|name| !name.is_empty()).map(elsewhere),
                address: address.trim_start_matches('-').to_owned(),
                port: 80,
                tags: vec![format!("p-{tag}")],
                options: Default::default(),
                down: address.starts_with('-'),
            };
            builder.service_in(datacenter, address, parse_tags(&instance, "p-", "dc1").entries);
        }
        attached(builder)
    }

    fn config() -> metrics::Config {
        metrics::Config {
            targets: vec![],
            prefix: "p".into(),
            names: String::new(),
            interval: Duration::from_secs(30),
            prometheus_subsystem: String::new(),
            prometheus_path: "/metrics".into(),
            prometheus_buckets: vec![1.0],
            addresses: Default::default(),
            circonus_url: Default::default(),
        }
    }

    fn attached(mut builder: Builder) -> Arc<Table> {
        let table = builder.build().table;
        Directory::new(Metrics::new(&config(), 1), &Strategy::Random, "").attach(table.routes());
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
        let wish =
            Wish { strategy: &strategy, client: "127.0.0.1".parse().unwrap(), headers: None, path: "/", speaks: None };
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
                let got = counts(&table, strategy.clone(), tried);
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

    /// How often each address was chosen, as the last digit of it.
    fn addresses(table: &Table) -> String {
        let route = table.routes().next().unwrap();
        let chosen = counts(table, Strategy::Random, &[]).into_keys();
        let mut all: Vec<String> = chosen.map(|index| route.targets[index].destination.host[7..].to_owned()).collect();
        all.sort();
        all.join(" ")
    }

    fn eject_at(table: &Table, addresses: &[&str]) {
        let route = table.routes().next().unwrap();
        let at = |address: &&str| route.targets.iter().position(|t| t.destination.host.ends_with(*address)).unwrap();
        eject(table, &addresses.iter().map(at).collect::<Vec<_>>());
    }

    #[test]
    fn another_datacenter_is_asked_when_nobody_here_can_be() {
        let all = [("", "10.0.0.1"), ("", "10.0.0.2"), ("east", "10.0.0.3"), ("east", "10.0.0.4")];
        for (ejected, want) in [
            (&[][..], "1 2"),
            (&["1"], "2"),
            (&["1", "2"], "3 4"),
            (&["1", "2", "3"], "4"),
            // Everybody is out: here it is as good as there.
            (&["1", "2", "3", "4"], "1 2"),
        ] {
            let table = table_in(&all, "/");
            eject_at(&table, ejected);
            assert_eq!(addresses(&table), want, "{ejected:?}");
        }
        assert_eq!(addresses(&table_in(&[("", "-10.0.0.1"), ("east", "10.0.0.3")], "/")), "3", "kept, without traffic");
        assert_eq!(addresses(&table_in(&[("", "-10.0.0.1"), ("east", "10.0.0.3")], "/ failopen=true")), "3");
        assert_eq!(addresses(&table_in(&[("", "-10.0.0.1"), ("east", "-10.0.0.3")], "/ failopen=true")), "1");
    }

    #[test]
    fn a_mirror_is_here_if_there_is_one() {
        for (instances, want) in [
            (&[("east", "10.0.0.3"), ("", "10.0.0.1"), ("", "10.0.0.2")][..], "10.0.0.1 10.0.0.2"),
            (&[("east", "10.0.0.3")], "10.0.0.3"),
        ] {
            let table = table_in(instances, "/ mirror=s:100");
            let state: &TargetState = table.routes().next().unwrap().targets[0].state.get().unwrap();
            let mirror = state.mirror.as_ref().unwrap();
            let picked = (0..100).map(|n| mirror.pick(n * (u64::MAX / 100)).unwrap().destination.host.clone());
            let picked: std::collections::BTreeSet<String> = picked.collect();
            assert_eq!(picked.into_iter().collect::<Vec<_>>().join(" "), want);
        }
    }
}
