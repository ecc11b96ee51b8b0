//! What to believe when Consul comes back.
//!
//! An agent that just started may know nothing yet, and one that lost an ACL permission says "nothing" in good order.
//! Dropping all routes then is the worst that can be done. So after trouble, what an answer *lacks* is kept until the
//! picture is complete; if then more than half of the instances would go, they are held for a while. What an answer
//! *has* is always taken at once, and so is every loss that a healthy watch reports.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::route::Instance;

type Name = Arc<str>;

#[derive(Debug, Default)]
pub(super) struct Hold {
    phase: Phase,
    /// What is in force, held instances among it.
    current: HashMap<Name, Arc<[Instance]>>,
    /// Instances that the last answer lacked.
    held: HashMap<Name, Vec<Instance>>,
    /// Services that answered since the suspicion began.
    answered: HashSet<Name>,
    /// Since when something is held; more trouble meanwhile does not end that.
    since: Option<Instant>,
    instances: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Trusting,
    /// Until the picture is complete.
    Suspicious,
    /// Most is gone. `returned`: when an instance last came back.
    Holding { returned: Instant },
}

impl Hold {
    /// Something went wrong: what is missing from now on may be missing by mistake.
    pub(super) fn suspect(&mut self) {
        if self.phase != Phase::Suspicious {
            self.phase = Phase::Suspicious;
            self.answered.clear();
        }
    }

    pub(super) fn is_trusting(&self) -> bool {
        self.phase == Phase::Trusting
    }

    /// Instances that were in force before we started, and may still be right.
    pub(super) fn inherit(&mut self, name: &Name, instances: &[Instance]) {
        self.set(name, instances.to_vec());
    }

    /// Instances that are in force although the last answer lacked them.
    pub(super) fn held(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }

    /// The accepted instances of a service, as just read, sorted by id. `trusted`: a healthy watch told of this change.
    /// Returns what is to be in force now, if that is something new.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        name: &Name,
        new: Vec<Instance>,
        trusted: bool,
    ) -> Option<Arc<[Instance]>> {
        let has = |id: &str| new.binary_search_by(|i| (*i.id).cmp(id)).is_ok();
        let first = self.answered.insert(name.clone());
        let before = self.held.remove(name);
        let was = before.as_ref().map_or(0, Vec::len);
        let mut missing: Vec<Instance> = before.unwrap_or_default();
        missing.retain(|i| !has(&i.id));
        if missing.len() < was
            && let Phase::Holding { returned } = &mut self.phase
        {
            *returned = now;
        }
        if self.phase != Phase::Trusting && first && !trusted {
            let lacking = self.current.get(name).into_iter().flat_map(|all| all.iter());
            let lacking = lacking.filter(|i| !has(&i.id) && !missing.iter().any(|m| m.id == i.id)).cloned();
            missing.extend(lacking.collect::<Vec<_>>());
        }
        let mut all = new;
        all.extend(missing.iter().cloned());
        all.sort_by(|a, b| a.id.cmp(&b.id));
        if !missing.is_empty() {
            self.held.insert(name.clone(), missing);
        }
        self.set(name, all)
    }

    /// A healthy watch says that the service is no more.
    pub(super) fn gone(&mut self, name: &Name) -> Option<Arc<[Instance]>> {
        self.held.remove(name);
        self.set(name, Vec::new())
    }

    /// Whether anything is in force for this service.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.current.contains_key(name)
    }

    /// To be called when something was offered or time went by. `complete`: every list and every changed service was
    /// read since the trouble. `doubtful`: there is evidence that Consul leaves things out. Returns what changes.
    pub(super) fn judge(&mut self, now: Instant, complete: bool, doubtful: bool) -> Vec<(Name, Arc<[Instance]>)> {
        let held = self.held();
        let most = held * 2 > self.instances;
        let release = match self.phase {
            Phase::Trusting => held > 0,
            Phase::Suspicious if !complete => false,
            Phase::Suspicious if held > 0 && (most || doubtful || self.since.is_some()) => {
                self.phase = Phase::Holding { returned: now };
                self.since.get_or_insert(now);
                false
            }
            Phase::Suspicious => true,
            Phase::Holding { .. } if held == 0 => true,
            Phase::Holding { .. } if doubtful => {
                self.since = Some(now);
                false
            }
            Phase::Holding { returned } => {
                let since = self.since.unwrap_or(now);
                now.duration_since(since) >= HOLD || (!most && now.duration_since(returned) >= QUIET)
            }
        };
        if !release {
            return Vec::new();
        }
        self.phase = Phase::Trusting;
        self.since = None;
        self.answered.clear();
        let mut changed = Vec::new();
        for (name, missing) in std::mem::take(&mut self.held) {
            let all = self.current.get(&name).cloned().unwrap_or_default();
            let rest = all.iter().filter(|i| !missing.iter().any(|m| m.id == i.id)).cloned().collect();
            if let Some(value) = self.set(&name, rest) {
                changed.push((name, value));
            }
        }
        changed
    }

    /// Whether [`Hold::judge`] has to be called although nothing happens.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    fn set(&mut self, name: &Name, all: Vec<Instance>) -> Option<Arc<[Instance]>> {
        let old = self.current.get(name);
        if old.map_or(all.is_empty(), |old| **old == *all) {
            return None;
        }
        self.instances = self.instances + all.len() - old.map_or(0, |old| old.len());
        let all: Arc<[Instance]> = all.into();
        if all.is_empty() {
            self.current.remove(name);
        } else {
            self.current.insert(name.clone(), all.clone());
        }
        Some(all)
    }
}

/// How long instances are held that an otherwise well Consul does not know any more. Long enough for a server that lost
/// its data to be told again by every agent; meanwhile a target that is really gone costs its own requests only.
const HOLD: Duration = Duration::from_secs(120);

/// Once most have come back, and no more do, the rest is gone for good.
const QUIET: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn instance(id: &str, port: u16) -> Instance {
        Instance {
            service: "s".into(),
            id: id.into(),
            datacenter: None,
            address: "10.0.0.1".into(),
            port,
            tags: vec![],
            options: Default::default(),
            down: false,
        }
    }

    fn list(ids: &str) -> Vec<Instance> {
        ids.split_whitespace().map(|id| instance(id, 80)).collect()
    }

    struct Scene {
        hold: Hold,
        now: Instant,
    }

    impl Scene {
        /// `a: a1 a2` and so on, as known from good times.
        fn new(services: &[(&str, &str)]) -> Self {
            let mut scene = Self { hold: Hold::default(), now: Instant::now() };
            for (name, ids) in services {
                scene.offer(name, ids, false);
            }
            scene
        }

        fn offer(&mut self, name: &str, ids: &str, trusted: bool) {
            self.hold.offer(self.now, &name.into(), list(ids), trusted);
        }

        fn judge(&mut self, complete: bool, doubtful: bool) {
            self.hold.judge(self.now, complete, doubtful);
        }

        fn after(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn in_force(&self, name: &str) -> String {
            let all = self.hold.current.get(name).cloned().unwrap_or_default();
            all.iter().map(|i| &*i.id).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn in_good_times_every_loss_counts_at_once() {
        let mut s = Scene::new(&[("a", "a1 a2"), ("b", "b1")]);
        s.offer("a", "", false);
        s.offer("b", "", true);
        assert_eq!((s.in_force("a"), s.in_force("b"), s.hold.instances), (String::new(), String::new(), 0));
    }

    #[test]
    fn after_trouble_an_empty_answer_is_held_and_then_believed() {
        let mut s = Scene::new(&[("a", "a1 a2"), ("b", "b1")]);
        s.hold.suspect();
        s.offer("a", "", false);
        s.offer("b", "", false);
        assert_eq!((s.in_force("a"), s.in_force("b")), ("a1 a2".into(), "b1".into()), "before the judgement");
        s.judge(true, false);
        for _ in 0..60 {
            s.after(1);
            s.judge(true, false);
        }
        assert_eq!((s.in_force("a"), s.in_force("b")), ("a1 a2".into(), "b1".into()), "for a minute");
        s.after(61);
        s.judge(true, false);
        assert_eq!((s.in_force("a"), s.in_force("b"), s.hold.held()), (String::new(), String::new(), 0));
    }

    #[test]
    fn after_trouble_a_small_loss_counts_when_the_picture_is_complete() {
        let mut s = Scene::new(&[("a", "a1 a2"), ("b", "b1")]);
        s.hold.suspect();
        s.offer("b", "", false);
        s.judge(false, false);
        assert_eq!(s.in_force("b"), "b1");
        s.judge(true, false);
        assert_eq!((s.in_force("a"), s.in_force("b")), ("a1 a2".into(), String::new()));
        assert!(s.hold.is_trusting());
    }

    #[test]
    fn instances_come_back_one_by_one() {
        let mut s = Scene::new(&[("a", "a1"), ("b", "b1"), ("c", "c1"), ("d", "d1")]);
        s.hold.suspect();
        for name in ["a", "b", "c", "d"] {
            s.offer(name, "", false);
        }
        s.judge(true, false);
        for name in ["a", "b", "c"] {
            s.after(2);
            s.offer(name, &format!("{name}1"), true);
            s.judge(true, false);
            assert_eq!(s.in_force("d"), "d1");
        }
        s.after(3);
        s.judge(true, false);
        assert_eq!((s.in_force("c"), s.in_force("d")), ("c1".into(), String::new()), "d is gone for good");
    }

    #[test]
    fn a_held_instance_that_comes_back_elsewhere_is_replaced() {
        let mut s = Scene::new(&[("a", "a1")]);
        s.hold.suspect();
        s.offer("a", "", false);
        s.judge(true, false);
        let value = s.hold.offer(s.now, &"a".into(), vec![instance("a1", 81)], true).unwrap();
        assert_eq!((value.len(), value[0].port), (1, 81));
        s.judge(true, false);
        assert!(s.hold.is_trusting());
        s.offer("a", "", true);
        assert_eq!(s.in_force("a"), "", "a real loss afterwards");
    }

    #[test]
    fn while_holding_others_leave_as_usual() {
        let mut s = Scene::new(&[("a", "a1"), ("b", "b1 b2 b3"), ("c", "c1")]);
        s.hold.suspect();
        s.offer("b", "b1", false);
        s.offer("a", "", false);
        s.judge(true, false);
        assert_eq!(s.in_force("b"), "b1 b2 b3");
        s.offer("c", "", true);
        s.offer("b", "", true);
        assert_eq!((s.in_force("b"), s.in_force("c")), ("b2 b3".into(), String::new()), "b1 was confirmed, then left");
    }

    #[test]
    fn a_loss_that_a_healthy_watch_reports_counts_also_under_suspicion() {
        let mut s = Scene::new(&[("a", "a1")]);
        s.hold.suspect();
        s.offer("a", "a1", false);
        s.offer("a", "", true);
        assert_eq!(s.in_force("a"), "");
    }

    #[test]
    fn evidence_of_something_left_out_holds_for_ever() {
        let mut s = Scene::new(&[("a", "a1"), ("b", "b1 b2 b3")]);
        s.hold.suspect();
        s.offer("a", "", false);
        s.judge(true, true);
        s.after(10_000);
        s.judge(true, true);
        assert_eq!(s.in_force("a"), "a1");
        s.after(3);
        s.judge(true, false);
        assert_eq!(s.in_force("a"), "", "the evidence is gone");
    }

    #[test]
    fn new_trouble_while_holding_keeps_what_is_held() {
        let mut s = Scene::new(&[("a", "a1"), ("b", "b1")]);
        s.hold.suspect();
        s.offer("a", "", false);
        s.offer("b", "", false);
        s.judge(true, false);
        s.hold.suspect();
        s.offer("a", "a1", false);
        s.judge(true, false);
        assert_eq!((s.in_force("a"), s.in_force("b")), ("a1".into(), "b1".into()));
        s.after(3);
        s.judge(true, false);
        assert_eq!(
            (s.in_force("a"), s.in_force("b")),
            ("a1".into(), String::new()),
            "half is back: the other half is gone"
        );
    }
}
