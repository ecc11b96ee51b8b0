//! Choices under made-up conditions.

#![allow(clippy::unwrap_used)]

mod simulation;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::*;
use crate::route::{Builder, Datacenter, Instance, Origin, Route, Settings, Table, parse_tags, parse_text};

/// Seeded, so that every run is the same.
struct Scene {
    rng: RefCell<fastrand::Rng>,
    turn: Cell<u64>,
    out: Vec<usize>,
    in_flight: Vec<u32>,
    latency: Vec<f64>,
}

impl Scene {
    fn of(targets: usize) -> Self {
        Self {
            rng: RefCell::new(fastrand::Rng::with_seed(7)),
            turn: Cell::new(0),
            out: vec![],
            in_flight: vec![0; targets],
            latency: vec![0.0; targets],
        }
    }
}

impl Circumstances for Scene {
    fn usable(&self, target: usize) -> bool {
        !self.out.contains(&target)
    }

    fn in_flight(&self, target: usize) -> u32 {
        self.in_flight[target]
    }

    fn latency(&self, target: usize) -> f64 {
        self.latency[target]
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().u64(..)
    }

    fn turn(&self) -> u64 {
        self.turn.replace(self.turn.get() + 1)
    }
}

/// `weight` and `opts` of each target, as they are written.
fn table(targets: &[&str]) -> Arc<Table> {
    let mut builder = Builder::new(Settings::default());
    let lines: String = targets
        .iter()
        .enumerate()
        .map(|(n, rest)| format!("route add s / http://10.0.1.{n:03}:80/ {rest}\n"))
        .collect();
    builder.manual(parse_text(&lines, |line| Origin::Static { line }).entries);
    let built = builder.build();
    assert_eq!(built.rejects, []);
    built.table
}

fn counts(route: &Route, strategy: &Strategy, scene: &Scene, requests: u32) -> Vec<u32> {
    let mut counts = vec![0; route.targets.len()];
    for _ in 0..requests {
        if let Some(index) = route.choose(strategy, Some(scene.random()), scene) {
            counts[index] += 1;
        }
    }
    counts
}

const ALL: [Strategy; 5] =
    [Strategy::Random, Strategy::RoundRobin, Strategy::TwoChoices, Strategy::Least, Strategy::Hash(HashKey::Address)];

#[test]
fn weights_hold_for_all_strategies() {
    let table = table(&["weight 0.6", "weight 0.3", "weight 0.1", "weight 0"]);
    let route = table.routes().next().unwrap();
    for strategy in ALL {
        let scene = Scene::of(4);
        let got = counts(route, &strategy, &scene, 10_000);
        for (count, want) in got.iter().zip([6000, 3000, 1000, 0]) {
            assert!(count.abs_diff(want) <= 200, "{strategy:?} {got:?}");
        }
        assert_eq!(got[3], 0);
    }
}

#[test]
fn weights_hold_among_those_that_are_left() {
    let table = table(&["weight 0.6", "weight 0.3", "weight 0.1"]);
    let route = table.routes().next().unwrap();
    for strategy in ALL {
        let scene = Scene { out: vec![0], ..Scene::of(3) };
        let got = counts(route, &strategy, &scene, 10_000);
        assert_eq!(got[0], 0, "{strategy:?}");
        assert!(got[1].abs_diff(7500) < 200, "{strategy:?} {got:?}");
        assert_eq!(counts(route, &strategy, &Scene { out: vec![0, 1, 2], ..Scene::of(3) }, 10), [0, 0, 0]);
        assert_eq!(counts(route, &strategy, &Scene { out: vec![0, 2], ..Scene::of(3) }, 10), [0, 10, 0]);
    }
}

#[test]
fn lower_priorities_come_first() {
    let opts = |n: u32| format!("opts \"priority={n}\"");
    let table = table(&["", "", &opts(5), &opts(5), &format!("weight 0.9 {}", opts(9))]);
    let route = table.routes().next().unwrap();
    // Descending by line: those with options, and their text, decide the order of targets; find them by their address.
    let index = |n: usize| {
        let text = format!("http://10.0.1.{n:03}:80/");
        route.targets.iter().position(|target| target.destination.text == text).unwrap()
    };
    assert_eq!(route.targets[index(4)].share, 1.0);
    assert_eq!(route.targets[index(0)].share, 0.5);
    for strategy in ALL {
        for (out, want) in [
            (&[][..], &[0, 1][..]),
            (&[0], &[1]),
            (&[0, 1], &[2, 3]),
            (&[0, 1, 3], &[2]),
            (&[0, 1, 2, 3], &[4]),
            (&[0, 1, 2, 3, 4], &[]),
        ] {
            let scene = Scene { out: out.iter().map(|n| index(*n)).collect(), ..Scene::of(5) };
            let got = counts(route, &strategy, &scene, 200);
            let mut asked: Vec<usize> = want.iter().map(|n| index(*n)).collect();
            asked.sort_unstable();
            let who: Vec<usize> = (0..5).filter(|index| got[*index] > 0).collect();
            assert_eq!(who, asked, "{strategy:?} {out:?}");
        }
    }
    assert_eq!(route.pick(crate::route::Turn::Nth(0)).unwrap().share, 0.5);
}

#[test]
fn datacenters_come_before_priorities() {
    let text = |n: u32| format!("10.0.1.{n:03}");
    let mut builder = Builder::new(Settings::default());
    for (n, datacenter, options) in [
        (0, None, "priority=0"),
        (1, None, "priority=1"),
        (2, Some((1, "east")), "priority=0"),
        (3, Some((1, "east")), "priority=1"),
        (4, Some((2, "west")), "priority=0"),
        // Nobody else is left.
        (5, None, "priority=4294967295"),
    ] {
        let datacenter = datacenter.map(|(rank, name): (u32, &str)| Arc::new(Datacenter { name: name.into(), rank }));
        let at = datacenter.as_ref().map_or(String::new(), |datacenter| datacenter.name.to_string());
        let instance = Instance {
            service: "s".into(),
            // The same name in each of them.
            id: datacenter.as_ref().map_or("n/s".into(), |datacenter| datacenter.name_instance("n", "s")),
            datacenter,
            address: text(n),
            port: 80,
            tags: vec![format!("p-/ {options}")],
            options: Default::default(),
            down: false,
        };
        builder.service_in(&at, &format!("s{n}"), parse_tags(&instance, "p-", "dc1").entries);
    }
    let table = builder.build().table;
    let route = table.routes().next().unwrap();
    let index = |n: u32| route.targets.iter().position(|target| target.destination.text.contains(&text(n))).unwrap();
    for strategy in ALL {
        for gone in 0..6 {
            let scene = Scene { out: (0..gone).map(index).collect(), ..Scene::of(6) };
            assert_eq!(counts(route, &strategy, &scene, 20)[index(gone)], 20, "{strategy:?} {gone}");
        }
    }
    // What stands in a sticky cookie is the same in every datacenter.
    let (east, west) = (&route.targets[index(2)], &route.targets[index(4)]);
    assert_eq!((east.home_instance(), west.home_instance()), (Some("n/s"), Some("n/s")));
}

#[test]
fn a_weight_is_that_of_each_datacenter() {
    let mut builder = Builder::new(Settings::default());
    let east = Arc::new(Datacenter { name: "east".into(), rank: 1 });
    let instance = |n: usize, tag: &str, datacenter: Option<&Arc<Datacenter>>| Instance {
        service: "s".into(),
        id: format!("n/{n}").into(),
        datacenter: datacenter.cloned(),
        address: format!("10.0.0.{n}"),
        port: 80,
        tags: vec!["p-/".into(), tag.into()],
        options: Default::default(),
        down: false,
    };
    let parse = |instance: Instance| parse_tags(&instance, "p-", "dc1").entries;
    builder.service("s", [parse(instance(0, "old", None)), parse(instance(1, "new", None))].concat());
    let there = [instance(2, "old", Some(&east)), instance(3, "new", Some(&east)), instance(4, "new", Some(&east))];
    builder.service_in("east", "s", there.map(parse).concat());
    builder.manual(parse_text("route weight s / weight 0.2 tags \"new\"", |line| Origin::Static { line }).entries);
    let table = builder.build().table;
    let mut shares: Vec<_> =
        table.routes().next().unwrap().targets.iter().map(|t| (t.destination.text.clone(), t.share)).collect();
    shares.sort_by(|a, b| a.0.cmp(&b.0));
    let shares: Vec<f64> = shares.into_iter().map(|(_, share)| share).collect();
    assert_eq!(shares, [0.8, 0.2, 0.8, 0.1, 0.1]);
}

#[test]
fn two_choices_avoid_the_busy_and_the_slow() {
    let table = table(&[""; 4]);
    let route = table.routes().next().unwrap();
    let busy = Scene { in_flight: vec![9, 0, 0, 0], ..Scene::of(4) };
    assert_eq!(counts(route, &Strategy::TwoChoices, &busy, 1000)[0], 0);
    let slow = Scene { latency: vec![0.01, 0.01, 0.1, 0.01], ..Scene::of(4) };
    assert_eq!(counts(route, &Strategy::TwoChoices, &slow, 1000)[2], 0);
    // A little slower is no reason for all to run away.
    let same = Scene { latency: vec![0.010, 0.011, 0.012, 0.010], ..Scene::of(4) };
    assert!(counts(route, &Strategy::TwoChoices, &same, 4000).iter().all(|count| count.abs_diff(1000) < 150));
    // One that nobody has measured is judged by its load alone.
    let new = Scene { latency: vec![0.0, 0.1, 0.1, 0.1], ..Scene::of(4) };
    assert!(counts(route, &Strategy::TwoChoices, &new, 4000)[0].abs_diff(1000) < 150);
}

#[test]
fn least_takes_the_emptiest_for_its_weight() {
    let equal = table(&[""; 4]);
    let scene = Scene { in_flight: vec![3, 2, 1, 2], ..Scene::of(4) };
    assert_eq!(counts(equal.routes().next().unwrap(), &Strategy::Least, &scene, 50), [0, 0, 50, 0]);
    let unequal = table(&["weight 0.8", "weight 0.2"]);
    let scene = Scene { in_flight: vec![7, 2], ..Scene::of(2) };
    assert_eq!(counts(unequal.routes().next().unwrap(), &Strategy::Least, &scene, 50), [50, 0]);
    let scene = Scene { in_flight: vec![12, 2], ..Scene::of(2) };
    assert_eq!(counts(unequal.routes().next().unwrap(), &Strategy::Least, &scene, 50), [0, 50]);
}

#[test]
fn a_key_keeps_its_target_until_that_is_overloaded() {
    let table = table(&[""; 10]);
    let route = table.routes().next().unwrap();
    let strategy = Strategy::Hash(HashKey::Path);
    let mut scene = Scene::of(10);
    let key = Some(stable_hash(&[b"/a"]));
    let home = route.choose(&strategy, key, &scene).unwrap();
    assert!((0..100).all(|_| route.choose(&strategy, key, &scene) == Some(home)));
    // Without a key there is no home.
    assert!((0..100).any(|_| route.choose(&strategy, None, &scene) != Some(home)));
    // Below the bound, at the bound, and with others as busy.
    scene.in_flight[home] = 7;
    assert_eq!(route.choose(&strategy, key, &scene), Some(home));
    scene.in_flight[home] = 8;
    let second = route.choose(&strategy, key, &scene).unwrap();
    assert_ne!(second, home);
    scene.in_flight = vec![8; 10];
    assert_eq!(route.choose(&strategy, key, &scene), Some(home));
    // The second choice is where the key goes when its home is gone.
    let gone = Scene { out: vec![home], ..Scene::of(10) };
    assert_eq!(route.choose(&strategy, key, &gone), Some(second));
}

#[test]
fn stable_hashes_never_change() {
    // Other processes, and other versions, must come to the same target.
    assert_eq!(stable_hash(&[b"a", b"b"]), 13_335_797_911_308_226_821);
    assert_ne!(stable_hash(&[b"a", b"b"]), stable_hash(&[b"ab"]));
    assert_ne!(stable_hash(&[b"", b"a"]), stable_hash(&[b"a", b""]));
}
