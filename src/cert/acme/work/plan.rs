//! What is due: orders, questions about renewal, and what can be forgotten. Pure: the time comes in.

use std::collections::{BTreeSet, HashMap};

use super::super::Names;
use super::record::{self, CERTIFICATES, CHALLENGES, STATE, State};
use super::storage::Contents;
use crate::cert::certificate::Facts;

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Names without a certificate first.
    pub(super) orders: Vec<String>,
    /// Names whose certificates the CA has to be asked about.
    pub(super) questions: Vec<String>,
    /// Keys that nobody needs any more.
    pub(super) garbage: Vec<String>,
    /// When something becomes due that is not yet; seconds since 1970.
    pub(super) next: Option<i64>,
    /// Hosts of the table that would be ordered if there were not so many already.
    pub(super) excess: Vec<String>,
}

/// When hosts left the table, so that they stop counting after a while.
pub(super) type Gone = HashMap<String, i64>;

/// `served`: what the stored certificates say about themselves.
pub(super) fn plan(
    names: &Names,
    hosts: &[String],
    contents: &Contents,
    served: &HashMap<String, Facts>,
    gone: &mut Gone,
    now: i64,
) -> Plan {
    let mut plan = Plan::default();
    let known: BTreeSet<&str> = record::names(contents, CERTIFICATES).chain(record::names(contents, STATE)).collect();
    let fixed: BTreeSet<&str> = names.fixed.iter().map(String::as_str).collect();
    let admitted: BTreeSet<&str> =
        hosts.iter().map(String::as_str).filter(|host| !fixed.contains(host) && names.admits(host)).collect();
    gone.retain(|name, _| known.contains(name.as_str()) && !admitted.contains(name.as_str()));
    let mut count = 0;
    for name in known.iter().filter(|name| !fixed.contains(*name)) {
        let since = if admitted.contains(name) { now } else { *gone.entry((*name).to_owned()).or_insert(now) };
        // Whoever can write tags can change them every minute: a name goes on counting.
        if now - since < COUNTS {
            count += 1;
        }
    }
    let mut wanted: Vec<&str> = fixed.iter().copied().collect();
    for host in &admitted {
        if known.contains(host) {
            wanted.push(host);
        } else if count < names.most {
            count += 1;
            wanted.push(host);
        } else {
            plan.excess.push((*host).to_owned());
        }
    }
    let mut renewals = Vec::new();
    for name in &wanted {
        let state = State::of(contents, name);
        let Some(facts) = served.get(*name) else {
            plan.at(state.next, now, |plan| plan.orders.push((*name).to_owned()));
            continue;
        };
        let current = state.fingerprint == facts.fingerprint;
        let renew = if current && state.renew > 0 { state.renew } else { two_thirds(facts) };
        let at = renew.max(state.next);
        plan.at(at, now, |_| renewals.push((*name).to_owned()));
        if at > now {
            let ask = if current { state.ask } else { 0 };
            plan.at(ask, now, |plan| plan.questions.push((*name).to_owned()));
        }
    }
    plan.orders.extend(renewals);
    let wanted: BTreeSet<&str> = wanted.into_iter().collect();
    for name in known.iter().filter(|name| !wanted.contains(*name)) {
        let over = match served.get(*name) {
            Some(facts) => facts.not_after,
            None => State::of(contents, name).next + COUNTS,
        };
        if over < now {
            let keys = [CERTIFICATES, STATE].map(|kind| record::key(kind, name));
            plan.garbage.extend(keys.into_iter().filter(|key| contents.contains_key(key)));
        }
    }
    for token in record::names(contents, CHALLENGES) {
        let key = record::key(CHALLENGES, token);
        if record::read::<record::Open>(contents, &key).is_none_or(|open| open.until < now) {
            plan.garbage.push(key);
        }
    }
    plan
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.questions.is_empty() && self.garbage.is_empty()
    }

    fn at(&mut self, at: i64, now: i64, due: impl FnOnce(&mut Self)) {
        if at <= now {
            due(self);
        } else {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
    }
}

/// Of its lifetime.
fn two_thirds(facts: &Facts) -> i64 {
    facts.not_before + facts.not_after.saturating_sub(facts.not_before) / 3 * 2
}

/// A week, which is what CAs count by.
const COUNTS: i64 = 7 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;
    const NOW: i64 = 1_000 * DAY;

    fn facts(fingerprint: &str, from: i64, to: i64) -> Facts {
        Facts {
            fingerprint: fingerprint.into(),
            not_before: NOW + from * DAY,
            not_after: NOW + to * DAY,
            ..Facts::default()
        }
    }

    fn names(fixed: &[&str], most: usize) -> Names {
        let list = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        Names { fixed: list(fixed), table: true, filter: list(&["*.t"]), most }
    }

    struct World {
        contents: Contents,
        served: HashMap<String, Facts>,
        gone: Gone,
    }

    impl World {
        fn new() -> Self {
            Self { contents: Contents::new(), served: HashMap::new(), gone: Gone::new() }
        }

        fn certificate(&mut self, name: &str, facts: Facts) {
            self.contents.insert(record::key(CERTIFICATES, name), "{}".into());
            self.served.insert(name.into(), facts);
        }

        fn state(&mut self, name: &str, state: &State) {
            self.contents.insert(record::key(STATE, name), record::text(state));
        }

        fn plan(&mut self, names: &Names, hosts: &[&str], now: i64) -> Plan {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            plan(names, &hosts, &self.contents, &self.served, &mut self.gone, now)
        }
    }

    #[test]
    fn renewal_at_two_thirds_or_as_the_ca_wishes() {
        let state = |renew, ask, next| State {
            fingerprint: "f".into(),
            renew: if renew == 0 { 0 } else { NOW + renew },
            ask: NOW + ask,
            next: if next == 0 { 0 } else { NOW + next },
            ..State::default()
        };
        for (what, facts, state, orders, questions, next) in [
            ("young, never asked", facts("f", -10, 80), None, 0, 1, Some(50 * DAY)),
            ("young, asked", facts("f", -10, 80), Some(state(0, DAY, 0)), 0, 0, Some(DAY)),
            ("two thirds", facts("f", -60, 30), Some(state(0, DAY, 0)), 1, 0, None),
            ("the CA wishes it now", facts("f", -10, 80), Some(state(-1, DAY, 0)), 1, 0, None),
            ("the CA wishes it later", facts("f", -61, 29), Some(state(5, DAY, 0)), 0, 0, Some(5)),
            ("a wish about another one", facts("g", -10, 80), Some(state(-1, DAY, 0)), 0, 1, Some(50 * DAY)),
            ("failed a moment ago", facts("f", -60, 30), Some(state(0, DAY, 7)), 0, 0, Some(7)),
            ("expired", facts("f", -90, -1), None, 1, 0, None),
        ] {
            let mut world = World::new();
            world.certificate("a.t", facts);
            if let Some(state) = state {
                world.state("a.t", &state);
            }
            let plan = world.plan(&names(&["a.t"], 0), &[], NOW);
            assert_eq!((plan.orders.len(), plan.questions.len()), (orders, questions), "{what}");
            assert_eq!(plan.next, next.map(|next| NOW + next), "{what}");
        }
    }

    #[test]
    fn a_stray_tag_does_not_exhaust_the_account() {
        let mut world = World::new();
        let two = names(&["fixed.org"], 2);
        let plan = world.plan(&two, &["c.t", "a.t", "b.t", "x.org", "*.t"], NOW);
        assert_eq!(plan.orders, ["fixed.org", "a.t", "b.t"]);
        assert_eq!(plan.excess, ["c.t"]);
        // One has its certificate, the other one failed: both count, and go on to when they are gone.
        world.certificate("a.t", facts("f", -1, 89));
        world.state("b.t", &State { failures: 1, next: NOW + 60, ..State::default() });
        let plan = world.plan(&two, &["c.t", "d.t"], NOW);
        assert_eq!((plan.orders, plan.excess.len()), (vec!["fixed.org".to_owned()], 2));
        let plan = world.plan(&two, &["c.t", "d.t"], NOW + COUNTS + 1);
        assert_eq!((plan.orders.len(), plan.excess.len()), (3, 0));
        // It was there all the time.
        let mut world = World::new();
        world.certificate("a.t", facts("f", -1, 89));
        assert_eq!(world.plan(&names(&[], 1), &["a.t", "b.t"], NOW).excess, ["b.t"]);
    }

    #[test]
    fn what_nobody_needs_is_forgotten() {
        let mut world = World::new();
        world.certificate("old.t", facts("f", -90, -1));
        world.certificate("young.t", facts("f", -1, 89));
        world.certificate("wanted.t", facts("f", -90, -1));
        world.state("old.t", &State::default());
        world.state("failed.t", &State { next: NOW - 8 * DAY, ..State::default() });
        world.state("failing.t", &State { next: NOW + 8, ..State::default() });
        let open =
            |until| record::text(&record::Open { name: "n".into(), kind: "k".into(), answer: "a".into(), until });
        world.contents.insert("challenges/a".into(), open(NOW - 1));
        world.contents.insert("challenges/b".into(), open(NOW + 1));
        world.contents.insert("challenges/c".into(), "?".into());
        let plan = world.plan(&names(&["wanted.t"], 5), &[], NOW);
        let garbage = ["state/failed.t", "certificates/old.t", "state/old.t", "challenges/a", "challenges/c"];
        assert_eq!(plan.garbage, garbage);
        assert_eq!(plan.orders, ["wanted.t"]);
    }
}
