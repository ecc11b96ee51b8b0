//! Which targets have series: found by labels, ended with the last handle, bounded in number.
//!
//! Handles live in the state that hangs on a table, so a worker may well drop the last one. It only counts down then;
//! the control plane clears up when it renders, at upkeep, or when many have gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::Shard;
use super::push::{Journal, Observation};
use super::series::{Buckets, Counter, Reading, Sample, Series};
use super::troubles::{Count, Trouble, Troubles};

/// `route`, `requests` and `http.status` of one target, in one histogram per status.
pub struct TargetSeries {
    live: Arc<Live>,
    buckets: Arc<Buckets>,
    /// Requests that are not over, of all targets.
    in_flight: Arc<Counter>,
    /// Somebody exports what we count.
    enabled: bool,
    /// Somebody wants each observation, under these labels.
    journal: Option<(Arc<Journal>, Arc<Labels>)>,
}

impl TargetSeries {
    /// A request begins; [`TargetSeries::observe`] ends it.
    pub fn begin(&self, shard: Shard) {
        if self.enabled {
            self.in_flight.add(shard, 1);
        }
    }

    /// A finished request. `code` 0: no status was sent (counts in `route` and `requests` only).
    pub fn observe(&self, shard: Shard, code: u16, took: Duration) {
        if self.enabled {
            self.in_flight.sub(shard, 1);
            self.live.series.observe(&self.buckets, shard, code, took);
        }
        if let Some((journal, labels)) = &self.journal {
            journal.put(Observation { labels: Some(labels.clone()), code, took });
        }
    }

    /// A try at the target failed, for this reason.
    pub fn error(&self, reason: &'static str) {
        self.trouble(Trouble::Error, reason);
    }

    /// A request was sent again, to this target, for this reason.
    pub fn retried(&self, reason: &'static str) {
        self.trouble(Trouble::Retry, reason);
    }

    /// The target is passed over for a while, for this reason.
    pub fn ejected(&self, reason: &'static str) {
        self.trouble(Trouble::Ejection, reason);
    }

    /// A request was refused by a limit of this name.
    pub fn limited(&self, limit: &'static str) {
        self.trouble(Trouble::Limited, limit);
    }

    fn trouble(&self, kind: Trouble, reason: &'static str) {
        if self.enabled {
            self.live.troubles.add(kind, reason);
        }
    }

    /// Bytes to the client (`route.rx`) and to the target (`route.tx`), TCP only as in fabio.
    pub fn bytes(&self, shard: Shard, rx: u64, tx: u64) {
        if self.enabled {
            self.live.series.bytes(shard, rx, tx);
        }
    }
}

impl Drop for TargetSeries {
    fn drop(&mut self) {
        // Release: who reads 0 in `sweep` sees every count made through this handle.
        if self.live.handles.fetch_sub(1, Ordering::Release) == 1 {
            // Release again: who sees this also sees the 0 and need not come back for it.
            self.live.retired.fetch_add(1, Ordering::Release);
        }
    }
}

/// Labels of the `route` families, in the order in which the text format sorts series: by label name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Labels {
    pub(crate) host: Arc<str>,
    pub(crate) path: Arc<str>,
    pub(crate) service: Arc<str>,
    /// Empty: the shared series of targets beyond the limit, which has no `route` families.
    pub(crate) target: Arc<str>,
}

struct Live {
    series: Series,
    troubles: Troubles,
    handles: AtomicUsize,
    /// How many series have lost their last handle since the last sweep.
    retired: Arc<AtomicUsize>,
}

pub(super) struct Targets {
    state: Mutex<State>,
    retired: Arc<AtomicUsize>,
    buckets: Arc<Buckets>,
    in_flight: Arc<Counter>,
    shards: usize,
    limit: usize,
    enabled: bool,
    journal: Option<Arc<Journal>>,
}

#[derive(Default)]
struct State {
    live: HashMap<Labels, Entry>,
    /// What targets that are gone left behind: `requests` and `http.status` of their services never go down.
    past: HashMap<Arc<str>, BTreeMap<u16, Sample>>,
}

struct Entry {
    live: Arc<Live>,
    handle: Weak<TargetSeries>,
}

/// Everything about targets at one moment.
#[derive(Default)]
pub(super) struct Report {
    /// In order of labels.
    pub(super) targets: Vec<(Labels, Reading)>,
    /// service, then status.
    pub(super) services: BTreeMap<Arc<str>, BTreeMap<u16, Sample>>,
    /// Those of targets that had any, in order of labels.
    pub(super) troubles: Vec<(Labels, Vec<Count>)>,
}

impl Targets {
    pub(super) fn new(
        buckets: Arc<Buckets>,
        shards: usize,
        limit: usize,
        enabled: bool,
        journal: Option<Arc<Journal>>,
    ) -> Self {
        let in_flight = Arc::new(Counter::new(shards));
        Self { state: Mutex::default(), retired: Arc::default(), buckets, in_flight, shards, limit, enabled, journal }
    }

    /// The handle for these labels; those who ask with the same labels share it.
    pub(super) fn handle(&self, service: &str, host: &str, path: &str, target: &str) -> Arc<TargetSeries> {
        let mut state = self.lock();
        if self.retired.load(Ordering::Relaxed) > SWEEP_AT {
            self.sweep(&mut state);
        }
        let mut labels =
            Labels { host: host.into(), path: path.into(), service: service.into(), target: target.into() };
        if !state.live.contains_key(&labels) && state.live.len() >= self.limit {
            ::metrics::counter!(super::names::SERIES_OVERFLOW).increment(1);
            let nothing: Arc<str> = "".into();
            labels = Labels { host: nothing.clone(), path: nothing.clone(), target: nothing.clone(), ..labels };
            // As many services as targets are allowed; what comes after those is one.
            if !state.live.contains_key(&labels) && state.live.len() >= self.limit.saturating_mul(2) {
                labels.service = nothing;
            }
        }

        let journal = self.journal.as_ref().map(|journal| (journal.clone(), Arc::new(labels.clone())));
        let entry = state.live.entry(labels).or_insert_with(|| Entry {
            live: Arc::new(Live {
                series: Series::new(self.shards),
                troubles: Troubles::default(),
                handles: AtomicUsize::new(0),
                retired: self.retired.clone(),
            }),
            handle: Weak::new(),
        });
        if let Some(handle) = entry.handle.upgrade() {
            return handle;
        }
        // Before the old handle's end is seen, if one is just ending: the series then simply goes on.
        entry.live.handles.fetch_add(1, Ordering::Relaxed);
        let handle = Arc::new(TargetSeries {
            live: entry.live.clone(),
            buckets: self.buckets.clone(),
            in_flight: self.in_flight.clone(),
            enabled: self.enabled,
            journal,
        });
        entry.handle = Arc::downgrade(&handle);
        handle
    }

    /// Folds the counts of targets that are gone into their services.
    pub(super) fn upkeep(&self) {
        if self.retired.load(Ordering::Relaxed) > 0 {
            self.sweep(&mut self.lock());
        }
    }

    /// Requests at all targets that are not over.
    pub(super) fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    pub(super) fn report(&self) -> Report {
        let mut state = self.lock();
        self.sweep(&mut state);
        let mut report = Report {
            targets: state.live.iter().map(|(l, e)| (l.clone(), e.live.series.read(&self.buckets))).collect(),
            services: state.past.iter().map(|(service, codes)| (service.clone(), codes.clone())).collect(),
            troubles: Vec::new(),
        };
        let troubles = state.live.iter().map(|(labels, entry)| (labels.clone(), entry.live.troubles.read()));
        report.troubles.extend(troubles.filter(|(_, counts)| !counts.is_empty()));
        drop(state);

        report.targets.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        report.troubles.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (labels, reading) in &report.targets {
            if !reading.codes.is_empty() {
                fold(report.services.entry(labels.service.clone()).or_default(), &reading.codes);
            }
        }
        report
    }

    /// What is counted for each target, in no order.
    pub(super) fn each(&self, mut see: impl FnMut(&Labels, &Reading)) {
        let live: Vec<(Labels, Arc<Live>)> = {
            let mut state = self.lock();
            self.sweep(&mut state);
            state.live.iter().map(|(labels, entry)| (labels.clone(), entry.live.clone())).collect()
        };
        for (labels, live) in &live {
            see(labels, &live.series.read(&self.buckets));
        }
    }

    fn sweep(&self, state: &mut State) {
        if self.retired.swap(0, Ordering::Acquire) == 0 {
            return;
        }
        let State { live, past } = state;
        live.retain(|labels, entry| {
            if entry.live.handles.load(Ordering::Acquire) > 0 {
                return true;
            }
            let reading = entry.live.series.read(&self.buckets);
            if reading.codes.is_empty() {
                return false;
            }
            // Bounds what services under ever new names leave behind.
            if past.contains_key(&labels.service) || past.len() < self.limit {
                fold(past.entry(labels.service.clone()).or_default(), &reading.codes);
            }
            false
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fold(into: &mut BTreeMap<u16, Sample>, codes: &[(u16, Sample)]) {
    for (code, sample) in codes {
        into.entry(*code).and_modify(|sum| sum.add(sample)).or_insert_with(|| sample.clone());
    }
}

/// Sweeping walks through all series, so `handle` does it for many gone at a time.
const SWEEP_AT: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn targets(limit: usize) -> Targets {
        Targets::new(Arc::new(Buckets::new(&[1.0])), 2, limit, true, None)
    }

    fn count(report: &Report, service: &str, code: u16) -> Option<u64> {
        Some(report.services.get(service)?.get(&code)?.count())
    }

    #[test]
    fn same_labels_share_a_handle() {
        let targets = targets(10);
        let a = targets.handle("s", "h", "/", "http://a/");
        let b = targets.handle("s", "h", "/", "http://a/");
        let c = targets.handle("s", "h", "/", "http://c/");
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!Arc::ptr_eq(&a, &c));
    }

    #[test]
    fn a_target_that_went_leaves_its_counts_to_the_service() {
        let targets = targets(10);
        let a = targets.handle("s", "h", "/", "http://a/");
        let b = targets.handle("s", "h", "/", "http://b/");
        a.observe(Shard(0), 200, Duration::ZERO);
        a.observe(Shard(1), 404, Duration::ZERO);
        b.observe(Shard(1), 200, Duration::ZERO);
        let in_flight = a.clone();
        drop(a);
        assert_eq!(targets.report().targets.len(), 2, "a request is still under way");
        in_flight.observe(Shard(0), 200, Duration::ZERO);
        drop(in_flight);

        let report = targets.report();
        assert_eq!(report.targets.iter().map(|(l, _)| &*l.target).collect::<Vec<_>>(), ["http://b/"]);
        assert_eq!((count(&report, "s", 200), count(&report, "s", 404)), (Some(3), Some(1)));

        // Back again: the target begins at nothing, the service goes on.
        let a = targets.handle("s", "h", "/", "http://a/");
        a.observe(Shard(0), 200, Duration::ZERO);
        drop(b);
        let report = targets.report();
        assert_eq!(report.targets.len(), 1);
        assert_eq!(report.targets[0].1.codes[0].1.count(), 1);
        assert_eq!(count(&report, "s", 200), Some(4));
    }

    #[test]
    fn a_label_set_asked_for_again_before_the_sweep_goes_on() {
        let targets = targets(10);
        for _ in 0..3 {
            targets.handle("s", "h", "/", "http://a/").observe(Shard(0), 200, Duration::ZERO);
        }
        let handle = targets.handle("s", "h", "/", "http://a/");
        targets.upkeep();
        handle.observe(Shard(0), 200, Duration::ZERO);
        let report = targets.report();
        assert_eq!(report.targets[0].1.codes[0].1.count(), 4);
        assert_eq!(count(&report, "s", 200), Some(4));
    }

    #[test]
    fn label_sets_are_bounded_and_no_request_is_lost() {
        let targets = targets(3);
        let handles: Vec<_> =
            (0..20).map(|n| targets.handle(&format!("s{n}"), "h", "/", &format!("http://{n}/"))).collect();
        for handle in &handles {
            handle.observe(Shard(0), 200, Duration::ZERO);
        }
        let report = targets.report();
        assert_eq!(report.targets.iter().filter(|(l, _)| !l.target.is_empty()).count(), 3);
        assert!(report.targets.len() <= 7, "{}", report.targets.len());
        let total: u64 = report.services.values().map(|codes| codes[&200].count()).sum();
        assert_eq!(total, 20);

        drop(handles);
        let report = targets.report();
        assert_eq!((report.targets.len(), report.services.len()), (0, 3));
        // There is room again.
        let handle = targets.handle("new", "h", "/", "http://new/");
        handle.observe(Shard(0), 200, Duration::ZERO);
        assert_eq!(&*targets.report().targets[0].0.target, "http://new/");
    }

    #[test]
    fn counts_never_go_down_while_targets_come_and_go() {
        let targets = targets(100);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let targets = &targets;
                    scope.spawn(move || {
                        for n in 0..2_000 {
                            let handle = targets.handle("s", "h", "/", &format!("http://{}/", n % 5));
                            handle.observe(Shard(worker), 200, Duration::ZERO);
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let now = count(&targets.report(), "s", 200).unwrap_or(0);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let report = targets.report();
        assert_eq!(count(&report, "s", 200), Some(8_000));
        assert!(report.targets.is_empty());
    }
}
