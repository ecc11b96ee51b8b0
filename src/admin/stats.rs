//! Requests per second, errors and times of each route and target, made of totals that are counted anyway.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::json::{self, Object};
use crate::metrics::Total;

/// What is known about the last moments.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) at: Duration,
    /// Seconds between this one and the one before.
    pub(super) interval: f64,
    /// Times below this one are not told apart, in seconds.
    pub(super) resolution: f64,
    pub(super) total: Row,
    /// By [`route_id`].
    pub(super) routes: HashMap<u64, Row>,
    pub(super) targets: Vec<(Named, Row)>,
}

#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) route: u64,
    pub(super) target: u64,
    pub(super) service: std::sync::Arc<str>,
    pub(super) host: std::sync::Arc<str>,
    pub(super) path: std::sync::Arc<str>,
    pub(super) destination: std::sync::Arc<str>,
}

/// Of a target, a route or all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Requests per second.
    pub(super) rate: f64,
    /// The share of answers with 500 and above, 0 to 1.
    pub(super) errors: f64,
    /// Seconds; NaN without requests.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) mean: f64,
    /// Bytes per second, TCP family only.
    pub(super) received: f64,
    pub(super) sent: f64,
}

/// A moment ago, and what was going on lately.
#[derive(Default)]
pub(super) struct Sampler {
    bounds: Vec<f64>,
    known: HashMap<u64, Recent>,
    before: Option<SystemTime>,
}

#[derive(Default)]
struct Recent {
    last: Total,
    lately: Lately,
    seen: bool,
}

/// Counts that fade: what happened a few samples ago still says something about times and errors.
#[derive(Clone, Default)]
struct Lately {
    requests: f64,
    failed: f64,
    times: Vec<f64>,
    seconds: f64,
    rate: f64,
    received: f64,
    sent: f64,
}

impl Sampler {
    pub(super) fn new(bounds: Vec<f64>) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// The first one has nothing to compare with, and is empty.
    pub(super) fn sample(&mut self, totals: Vec<Total>, now: SystemTime) -> Stats {
        let elapsed = self.before.and_then(|before| now.duration_since(before).ok()).unwrap_or_default().as_secs_f64();
        let first = self.before.replace(now).is_none();
        let mut stats = Stats {
            at: now.duration_since(UNIX_EPOCH).unwrap_or_default(),
            interval: elapsed,
            resolution: self.bounds.first().copied().unwrap_or_default(),
            ..Stats::default()
        };
        let mut routes: HashMap<u64, (Lately, usize)> = HashMap::new();
        let mut all = Lately::default();
        for total in totals {
            let id = target_id(&total.service, &total.host, &total.path, &total.target);
            let recent = self.known.entry(id).or_default();
            recent.seen = true;
            if !first && elapsed > 0.0 {
                recent.lately.fade(&recent.last, &total, elapsed);
            }
            let named = Named {
                route: route_id(&total.host, &total.path),
                target: id,
                service: total.service.clone(),
                host: total.host.clone(),
                path: total.path.clone(),
                destination: total.target.clone(),
            };
            recent.last = total;
            if recent.lately.is_quiet() {
                continue;
            }
            let route = routes.entry(named.route).or_default();
            route.0.add(&recent.lately);
            route.1 += 1;
            all.add(&recent.lately);
            stats.targets.push((named, recent.lately.row(&self.bounds)));
        }
        self.known.retain(|_, recent| std::mem::take(&mut recent.seen));
        stats.routes = routes.into_iter().map(|(id, (lately, _))| (id, lately.row(&self.bounds))).collect();
        stats.total = all.row(&self.bounds);
        stats
    }
}

impl Lately {
    fn fade(&mut self, before: &Total, now: &Total, elapsed: f64) {
        let keep = KEEP.powf(elapsed);
        let step = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let requests = step(now.requests, before.requests);
        self.times.resize(now.times.len(), 0.0);
        for (index, sum) in self.times.iter_mut().enumerate() {
            *sum = *sum * keep + step(now.times[index], before.times.get(index).copied().unwrap_or_default());
        }
        self.requests = self.requests * keep + requests;
        self.failed = self.failed * keep + step(now.failed, before.failed);
        self.seconds = self.seconds * keep + (now.seconds - before.seconds).max(0.0);
        self.rate = requests / elapsed;
        self.received = step(now.received, before.received) / elapsed;
        self.sent = step(now.sent, before.sent) / elapsed;
    }

    fn is_quiet(&self) -> bool {
        self.requests < QUIET && self.received + self.sent == 0.0
    }

    fn add(&mut self, other: &Self) {
        self.times.resize(self.times.len().max(other.times.len()), 0.0);
        self.times.iter_mut().zip(&other.times).for_each(|(sum, count)| *sum += count);
        self.requests += other.requests;
        self.failed += other.failed;
        self.seconds += other.seconds;
        self.rate += other.rate;
        self.received += other.received;
        self.sent += other.sent;
    }

    fn row(&self, bounds: &[f64]) -> Row {
        let timed: f64 = self.times.iter().sum();
        Row {
            rate: self.rate,
            errors: if self.requests > 0.0 { self.failed / self.requests } else { 0.0 },
            p50: quantile(&self.times, bounds, 0.5),
            p99: quantile(&self.times, bounds, 0.99),
            mean: if timed > 0.0 { self.seconds / timed } else { f64::NAN },
            received: self.received,
            sent: self.sent,
        }
    }
}

/// As Prometheus' `histogram_quantile` does it: evenly spread within a bucket; what is beyond the last bound counts as it.
fn quantile(times: &[f64], bounds: &[f64], q: f64) -> f64 {
    let all: f64 = times.iter().sum();
    if all <= 0.0 {
        return f64::NAN;
    }
    let (mut below, mut from) = (0.0, 0.0);
    for (count, to) in times.iter().zip(bounds) {
        if below + count >= all * q && *count > 0.0 {
            return from + (to - from) * (all * q - below) / count;
        }
        below += count;
        from = *to;
    }
    from
}

/// The same in every answer of a process.
pub(super) fn target_id(service: &str, host: &str, path: &str, destination: &str) -> u64 {
    hash(&(service, host, path, destination))
}

pub(super) fn route_id(host: &str, path: &str) -> u64 {
    hash(&(host, path))
}

/// As text: JavaScript has no integers of this size.
pub(super) fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// All of it with names.
pub(super) fn full(stats: &Stats) -> String {
    let mut out = String::new();
    let mut object = head(&mut out, stats);
    let mut targets: Vec<_> = stats.targets.iter().collect();
    targets.sort_by(|a, b| (&a.0.host, &a.0.path, &a.0.destination).cmp(&(&b.0.host, &b.0.path, &b.0.destination)));
    let routes = targets.chunk_by(|a, b| a.0.route == b.0.route);
    json::array(object.key("routes"), routes, |out, targets| {
        let Some((named, _)) = targets.first() else { return };
        let mut route = Object::new(out);
        route.text("id", &id_text(named.route)).text("host", &named.host).text("path", &named.path);
        numbers(&mut route, stats.routes.get(&named.route).unwrap_or(&Row::default()));
        json::array(route.key("targets"), targets, |out, (named, row)| {
            let mut target = Object::new(out);
            target.text("id", &id_text(named.target)).text("service", &named.service).text("dst", &named.destination);
            numbers(&mut target, row);
            target.end();
        });
        route.end();
    });
    object.end();
    out
}

/// For many in a second: ids, and numbers in a fixed order.
pub(super) fn brief(stats: &Stats) -> String {
    let mut out = String::new();
    let mut object = head(&mut out, stats);
    let mut routes = Object::new(object.key("routes"));
    for (id, row) in &stats.routes {
        tuple(routes.key(&id_text(*id)), row);
    }
    routes.end();
    let mut targets = Object::new(object.key("targets"));
    for (named, row) in &stats.targets {
        tuple(targets.key(&id_text(named.target)), row);
    }
    targets.end();
    object.end();
    out
}

fn head<'a>(out: &'a mut String, stats: &Stats) -> Object<'a> {
    let mut object = Object::new(out);
    object.number("at", round(stats.at.as_secs_f64())).number("interval", round(stats.interval));
    object.number("resolution", stats.resolution);
    let mut total = Object::new(object.key("total"));
    numbers(&mut total, &stats.total);
    total.end();
    object
}

fn numbers(object: &mut Object<'_>, row: &Row) {
    object.number("rate", round(row.rate)).number("error_rate", fine(row.errors)).number("p50", fine(row.p50));
    object.number("p99", fine(row.p99)).number("mean", fine(row.mean));
    object.number("rx", row.received.round()).number("tx", row.sent.round());
}

fn tuple(out: &mut String, row: &Row) {
    let numbers = [round(row.rate), fine(row.errors), fine(row.p50), fine(row.p99), fine(row.mean)];
    json::array(out, numbers, json::number);
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn fine(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Of what a count was worth, what is left after a second: half after five.
const KEEP: f64 = 0.87;
/// Less than this of a request is no news.
const QUIET: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn total(target: &str, requests: u64, failed: u64, times: [u64; 3]) -> Total {
        let seconds = requests as f64 * 0.004;
        Total {
            service: "s".into(),
            host: "h".into(),
            path: "/".into(),
            target: target.into(),
            requests,
            failed,
            times: times.into(),
            seconds,
            ..Total::default()
        }
    }

    #[test]
    fn rates_are_differences() {
        let mut sampler = Sampler::new(vec![0.01, 0.1]);
        let start = UNIX_EPOCH + Duration::from_secs(1000);
        let first = sampler.sample(vec![total("a", 100, 50, [100, 0, 0])], start);
        assert_eq!((first.targets.len(), first.total.rate), (0, 0.0), "what was before is no news");
        let totals = vec![total("a", 140, 50, [140, 0, 0]), total("b", 20, 20, [0, 20, 0])];
        let second = sampler.sample(totals.clone(), start + Duration::from_secs(2));
        assert_eq!(second.total.rate, 30.0);
        let a = second.targets.iter().find(|(named, _)| &*named.destination == "a").expect("a").1;
        assert_eq!((a.rate, a.errors), (20.0, 0.0));
        assert!((a.mean - 0.004).abs() < 1e-9, "{}", a.mean);
        let route = second.routes[&route_id("h", "/")];
        assert!((route.errors - 1.0 / 3.0).abs() < 1e-9, "{}", route.errors);
        assert!(route.p99 > 0.01 && route.p99 <= 0.1, "{}", route.p99);

        let third = sampler.sample(totals, start + Duration::from_secs(4));
        assert_eq!(third.total.rate, 0.0);
        assert!((third.total.errors - 1.0 / 3.0).abs() < 1e-9, "fades, with its proportions");
        let gone = sampler.sample(vec![], start + Duration::from_secs(6));
        assert_eq!((gone.targets.len(), sampler.known.len()), (0, 0));
    }

    #[test]
    fn quantiles() {
        let bounds = [0.01, 0.1, 1.0];
        for (times, q, want) in [
            ([0.0, 0.0, 0.0, 0.0], 0.5, f64::NAN),
            ([10.0, 0.0, 0.0, 0.0], 0.5, 0.005),
            ([10.0, 10.0, 0.0, 0.0], 0.99, 0.0982),
            ([0.0, 0.0, 0.0, 5.0], 0.5, 1.0),
            ([0.0, 4.0, 0.0, 0.0], 0.5, 0.055),
        ] {
            let got = quantile(&times, &bounds, q);
            assert!((got - want).abs() < 1e-9 || got.is_nan() && want.is_nan(), "{times:?} {q}: {got}");
        }
    }

    #[test]
    fn both_forms_are_json() {
        let mut sampler = Sampler::new(vec![0.01, 0.1]);
        let start = UNIX_EPOCH + Duration::from_secs(1000);
        sampler.sample(vec![], start);
        let stats = sampler.sample(vec![total("a\"", 4, 0, [4, 0, 0])], start + Duration::from_secs(2));
        let brief: serde_json::Value = serde_json::from_str(&brief(&stats)).expect("JSON");
        assert_eq!(brief["targets"].as_object().map(serde_json::Map::len), Some(1));
        let full: serde_json::Value = serde_json::from_str(&full(&stats)).expect("JSON");
        assert_eq!(full["routes"][0]["targets"][0]["dst"], "a\"");
        assert_eq!(full["routes"][0]["rate"], 2.0);
        let id = full["routes"][0]["id"].as_str().expect("text");
        assert_eq!(brief["routes"][id][0], 2.0);
    }
}
