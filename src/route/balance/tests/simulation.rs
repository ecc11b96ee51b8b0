//! What the strategies do to thousands of requests, in a time of its own. `scripts/simulate` prints the figures that
//! stand in docs/balancing.md.
//!
//! Ten instances take 5 ms and an exponentially distributed 5 ms more for a request, eight at a time each; 500 requests
//! come per second, at random. One instance may be ten times slower.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::upstream::{Load, Tick};

/// What happened.
struct Outcome {
    /// Requests by target.
    counts: Vec<u32>,
    /// Milliseconds, ascending.
    times: Vec<f64>,
}

impl Outcome {
    fn quantile(&self, part: f64) -> f64 {
        self.times[(self.times.len() as f64 * part) as usize]
    }
}

/// The conditions are those that a proxy would see.
struct World {
    rng: RefCell<fastrand::Rng>,
    turn: Cell<u64>,
    now: Cell<u64>,
    in_flight: Vec<Cell<u32>>,
    loads: Vec<Load>,
}

impl Circumstances for World {
    fn usable(&self, _: usize) -> bool {
        true
    }

    fn in_flight(&self, target: usize) -> u32 {
        self.in_flight[target].get()
    }

    fn latency(&self, target: usize) -> f64 {
        self.loads[target].latency(Tick(self.now.get()))
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().u64(..)
    }

    fn turn(&self) -> u64 {
        self.turn.replace(self.turn.get() + 1)
    }
}

impl World {
    fn new(targets: usize) -> Self {
        Self {
            rng: RefCell::new(fastrand::Rng::with_seed(20_261_201)),
            turn: Cell::new(0),
            now: Cell::new(0),
            in_flight: (0..targets).map(|_| Cell::new(0)).collect(),
            loads: (0..targets).map(|_| Load::default()).collect(),
        }
    }

    /// Exponentially distributed, with this mean.
    fn exponential(&self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.borrow_mut().f64()).ln()
    }

    /// Microseconds throughout.
    fn run(&self, route: &Route, strategy: &Strategy, slow: Option<usize>) -> Outcome {
        let targets = route.targets.len();
        let mut outcome = Outcome { counts: vec![0; targets], times: Vec::with_capacity(REQUESTS) };
        let mut seats = vec![[0u64; SEATS]; targets];
        let mut running: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
        let mut arrival = 0.0;
        for number in 0..REQUESTS {
            arrival += self.exponential(1e6 / RATE);
            let now = arrival as u64;
            while let Some(Reverse((end, begin, target))) =
                running.peek().copied().filter(|Reverse((end, ..))| *end <= now)
            {
                running.pop();
                self.in_flight[target].set(self.in_flight[target].get() - 1);
                self.loads[target].measured(Duration::from_micros(end - begin), Tick(end));
            }
            self.now.set(now);
            let key = stable_hash(&[&self.rng.borrow_mut().u32(..KEYS).to_be_bytes()]);
            let target = route.choose(strategy, Some(key), self).unwrap();
            let work = 5000.0 + self.exponential(5000.0);
            let work = if slow == Some(target) { work * 10.0 } else { work };
            let seat = seats[target].iter_mut().min().unwrap();
            *seat = now.max(*seat) + work as u64;
            running.push(Reverse((*seat, now, target)));
            self.in_flight[target].set(self.in_flight[target].get() + 1);
            // The first second is there to warm up.
            if number >= RATE as usize {
                outcome.counts[target] += 1;
                outcome.times.push((*seat - now) as f64 / 1000.0);
            }
        }
        outcome.times.sort_by(f64::total_cmp);
        outcome
    }
}

/// Which part of the keys has another target, and which part of those whose target is still there.
fn moved(before: &Route, after: &Route) -> (f64, f64) {
    let strategy = Strategy::Hash(HashKey::Address);
    let home = |route: &Route, key: u64| {
        let index = route.choose(&strategy, Some(key), &Scene::of(route.targets.len())).unwrap();
        route.targets[index].place()
    };
    let (mut moved, mut needless) = (0, 0);
    for key in 0..MANY_KEYS {
        let key = stable_hash(&[&key.to_be_bytes()]);
        let (old, new) = (home(before, key), home(after, key));
        let left = !after.targets.iter().any(|target| target.place() == old);
        let came = !before.targets.iter().any(|target| target.place() == new);
        moved += u32::from(old != new);
        needless += u32::from(old != new && !left && !came);
    }
    (f64::from(moved) / f64::from(MANY_KEYS), f64::from(needless) / f64::from(MANY_KEYS))
}

#[test]
fn one_slow_instance() {
    let equal = table(&[""; 10]);
    let heavy = table(&[&["weight 0.3"], &[""; 9][..]].concat());
    let (equal, heavy) = (equal.routes().next().unwrap(), heavy.routes().next().unwrap());
    let mut lines = String::new();
    for (name, strategy) in [("rnd", &ALL[0]), ("rr", &ALL[1]), ("p2c", &ALL[2]), ("least", &ALL[3]), ("hash", &ALL[4])]
    {
        let run = |route: &Route, slow| World::new(10).run(route, strategy, slow);
        let (even, slow, weighted) = (run(equal, None), run(equal, Some(4)), run(heavy, None));
        let percent = |count: u32| f64::from(count) / even.times.len() as f64 * 100.0;
        let (p99, p99_slow) = (even.quantile(0.99), slow.quantile(0.99));
        let ratio = p99_slow / p99;
        let heavy_share = weighted.counts.iter().zip(&heavy.targets).find(|(_, t)| t.share > 0.2).unwrap().0;
        writeln!(
            lines,
            "| `{name}` | {:.1} - {:.1} % | {:.1} % | {:.0} ms | {:.0} ms | {p99:.0} ms | {p99_slow:.0} ms | {ratio:.1} | {:.1} % |",
            percent(*even.counts.iter().min().unwrap()),
            percent(*even.counts.iter().max().unwrap()),
            percent(*heavy_share),
            even.quantile(0.5),
            slow.quantile(0.5),
            percent(slow.counts[4]),
        )
        .unwrap();
        match strategy {
            Strategy::TwoChoices => assert!(ratio < 2.0, "{lines}"),
            Strategy::Random => assert!(ratio > 5.0, "{lines}"),
            _ => {}
        }
        assert!(even.counts.iter().all(|count| (5.0..16.0).contains(&percent(*count))), "{lines}");
        assert!((25.0..35.0).contains(&percent(*heavy_share)), "{lines}");
    }
    println!(
        "| strategy | part of each of ten | of one with weight 0.3 | p50 | p50, one slow | p99 | p99, one slow | ratio | to the slow one |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n{lines}"
    );
}

#[test]
fn keys_that_move() {
    let ten: Vec<String> = vec![String::new(); 10];
    let all = |lines: &[String]| table(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let (base, nine) = (all(&ten), all(&ten[..9]));
    let eleven = all(&[&ten[..], &ten[..1]].concat());
    let weights = |last: &str| all(&[&vec!["weight 0.1".to_owned(); 9][..], &[format!("weight {last}")]].concat());
    let (light, heavy) = (weights("0.1"), weights("0.2"));
    let first = |table: &Arc<Table>| -> *const Route { table.routes().next().unwrap() };
    assert_ne!(first(&base), first(&nine));
    println!("| change | keys that move | of those, needlessly |\n| --- | --- | --- |");
    for (name, before, after, ideal) in [
        ("one of ten leaves", &base, &nine, 0.1),
        ("an eleventh comes", &base, &eleven, 1.0 / 11.0),
        ("the weight of one of ten doubles", &light, &heavy, 1.0 / 11.0),
    ] {
        let (moved, needless) = moved(before.routes().next().unwrap(), after.routes().next().unwrap());
        println!("| {name} | {:.1} % (ideal: {:.1} %) | {:.1} % |", moved * 100.0, ideal * 100.0, needless * 100.0);
        assert!((moved - ideal).abs() < 0.02, "{name}: {moved}");
        if !name.contains("weight") {
            assert_eq!(needless, 0.0, "{name}");
        }
    }
    println!();
}

const REQUESTS: usize = 60_000;
/// Per second.
const RATE: f64 = 500.0;
/// Requests that an instance works on at a time.
const SEATS: usize = 8;
const KEYS: u32 = 5000;
const MANY_KEYS: u32 = 20_000;
