//! Counting on the data plane: shards that belong to one worker each, so that an add is never contended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Shard;

/// The upper bounds of the histograms, as numbers for comparing and as text for the label `le`.
pub(super) struct Buckets {
    /// Nanoseconds, ascending.
    bounds: Box<[u64]>,
    pub(super) labels: Box<[String]>,
}

impl Buckets {
    /// `seconds`: ascending. Bounds that are not finite are dropped; the last bucket is always `+Inf`.
    pub(super) fn new(seconds: &[f64]) -> Self {
        let finite = || seconds.iter().copied().filter(|s| s.is_finite());
        let bounds = finite().map(|s| (s * 1e9).round().max(0.0) as u64).collect();
        let labels = finite().map(super::exposition::float).chain(["+Inf".to_string()]).collect();
        Self { bounds, labels }
    }

    fn index(&self, took: Duration) -> usize {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.bounds.partition_point(|bound| *bound < nanos)
    }

    /// The bounds that are finite.
    pub(super) fn seconds(&self) -> Vec<f64> {
        self.bounds.iter().map(|nanos| *nanos as f64 / 1e9).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }
}

/// Eight adjacent counters that share a cache line with nothing else.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// The observations of one worker with one status: the sum in slot 0, then a slot per bucket.
struct Node {
    code: u16,
    lines: Box<[Line]>,
    next: OnceLock<Box<Node>>,
}

impl Node {
    fn new(code: u16, buckets: usize) -> Self {
        let lines = (0..(1 + buckets).div_ceil(8)).map(|_| Line::default()).collect();
        Self { code, lines, next: OnceLock::new() }
    }

    fn slot(&self, index: usize) -> &AtomicU64 {
        &self.lines[index / 8].0[index % 8]
    }
}

/// What one worker counted for one target.
#[derive(Default)]
#[repr(align(64))]
struct Part {
    /// Statuses by their low bits, then a chain. A usual target has two or three statuses.
    heads: [OnceLock<Box<Node>>; HEADS],
    received: AtomicU64,
    sent: AtomicU64,
}

impl Part {
    fn node(&self, code: u16, buckets: usize) -> &Node {
        let mut slot = &self.heads[usize::from(code) % HEADS];
        loop {
            let node = slot.get_or_init(|| Box::new(Node::new(code, buckets)));
            if node.code == code {
                return node;
            }
            slot = &node.next;
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.heads.iter().flat_map(|head| std::iter::successors(head.get(), |node| node.next.get())).map(|node| &**node)
    }
}

/// All that is counted for one target. Costs 16 bytes per worker until something is.
pub(super) struct Series {
    parts: Box<[OnceLock<Box<Part>>]>,
}

impl Series {
    pub(super) fn new(shards: usize) -> Self {
        Self { parts: (0..shards.max(1)).map(|_| OnceLock::new()).collect() }
    }

    pub(super) fn observe(&self, buckets: &Buckets, shard: Shard, code: u16, took: Duration) {
        let code = if code > 999 { 0 } else { code };
        let node = self.part(shard).node(code, buckets.len());
        node.slot(1 + buckets.index(took)).fetch_add(1, Relaxed);
        node.slot(0).fetch_add(ticks(took), Relaxed);
    }

    pub(super) fn bytes(&self, shard: Shard, received: u64, sent: u64) {
        let part = self.part(shard);
        if received > 0 {
            part.received.fetch_add(received, Relaxed);
        }
        if sent > 0 {
            part.sent.fetch_add(sent, Relaxed);
        }
    }

    fn part(&self, Shard(index): Shard) -> &Part {
        // An unknown worker shares with the last one: slower, never wrong.
        self.parts[index.min(self.parts.len() - 1)].get_or_init(Box::default)
    }

    /// Reads everything. Counts of requests that end meanwhile may be in or not, but never by half a request in the
    /// buckets of one status.
    pub(super) fn read(&self, buckets: &Buckets) -> Reading {
        let mut reading = Reading::default();
        for part in self.parts.iter().filter_map(|part| part.get()) {
            reading.received = reading.received.wrapping_add(part.received.load(Relaxed));
            reading.sent = reading.sent.wrapping_add(part.sent.load(Relaxed));
            for node in part.nodes() {
                let sample = reading.sample(node.code, buckets.len());
                sample.ticks = sample.ticks.wrapping_add(node.slot(0).load(Relaxed));
                for (index, count) in sample.counts.iter_mut().enumerate() {
                    *count = count.wrapping_add(node.slot(1 + index).load(Relaxed));
                }
            }
        }
        reading
    }
}

/// What was counted for a target at one moment.
#[derive(Default)]
pub(super) struct Reading {
    /// Ascending by status; 0 is "no status".
    pub(super) codes: Vec<(u16, Sample)>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Reading {
    fn sample(&mut self, code: u16, buckets: usize) -> &mut Sample {
        let at = match self.codes.binary_search_by_key(&code, |(code, _)| *code) {
            Ok(at) => at,
            Err(at) => {
                self.codes.insert(at, (code, Sample::empty(buckets)));
                at
            }
        };
        &mut self.codes[at].1
    }
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// Per bucket, not cumulated.
    pub(super) counts: Vec<u64>,
    /// Units of 100 ns: nanoseconds would overflow after three weeks of 10,000 open WebSockets.
    ticks: u64,
}

impl Sample {
    pub(super) fn empty(buckets: usize) -> Self {
        Self { counts: vec![0; buckets], ticks: 0 }
    }

    pub(super) fn add(&mut self, other: &Sample) {
        self.ticks = self.ticks.wrapping_add(other.ticks);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    pub(super) fn seconds(&self) -> f64 {
        self.ticks as f64 / TICKS_PER_SECOND as f64
    }
}

/// A counter with a cache line per worker.
pub struct Counter(Box<[Cell]>);

impl Counter {
    pub(super) fn new(shards: usize) -> Self {
        Self((0..shards.max(1)).map(|_| Cell::default()).collect())
    }

    pub fn add(&self, Shard(index): Shard, n: u64) {
        self.0[index.min(self.0.len() - 1)].0.fetch_add(n as i64, Relaxed);
    }

    pub(super) fn sub(&self, Shard(index): Shard, n: u64) {
        self.0[index.min(self.0.len() - 1)].0.fetch_sub(n as i64, Relaxed);
    }

    /// The sum over all workers. Negative only while a gauge is read in mid-air.
    pub fn get(&self) -> i64 {
        self.0.iter().fold(0, |sum, cell| sum.wrapping_add(cell.0.load(Relaxed)))
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Cell(AtomicI64);

fn ticks(took: Duration) -> u64 {
    u64::try_from((took.as_nanos() + 50) / 100).unwrap_or(u64::MAX)
}

const TICKS_PER_SECOND: u64 = 10_000_000;
/// 200, 301, 302, 304, 404 and 500 fall into different chains; the longest chain of hostile statuses has 125.
const HEADS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        let buckets = Buckets::new(&[0.005, 0.1, 1.0, f64::INFINITY]);
        assert_eq!(&*buckets.labels, ["0.005", "0.1", "1", "+Inf"]);
        for (nanos, want) in [
            (0, 0),
            (4_999_999, 0),
            (5_000_000, 0),
            (5_000_001, 1),
            (100_000_000, 1),
            (1_000_000_000, 2),
            (1_000_000_001, 3),
        ] {
            assert_eq!(buckets.index(Duration::from_nanos(nanos)), want, "{nanos} ns");
        }
        assert_eq!(buckets.index(Duration::MAX), 3);
    }

    #[test]
    fn every_status_has_its_own_histogram() {
        let buckets = Buckets::new(&[1.0]);
        let series = Series::new(2);
        for code in (0..=999).chain(0..=999) {
            series.observe(&buckets, Shard(usize::from(code) % 3), code, Duration::from_millis(1));
        }
        series.observe(&buckets, Shard(0), 1000, Duration::from_secs(2));
        let reading = series.read(&buckets);
        assert_eq!(reading.codes.len(), 1000);
        assert!(reading.codes.windows(2).all(|w| w[0].0 < w[1].0), "not ascending");
        for (code, sample) in &reading.codes {
            let want = if *code == 0 { vec![2, 1] } else { vec![2, 0] };
            assert_eq!(sample.counts, want, "{code}");
        }
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const THREADS: usize = 8;
        const EACH: u64 = 20_000;
        let buckets = Buckets::new(&[0.001, 0.01]);
        // Fewer shards than threads: some share, which must not cost a count either.
        let series = Series::new(3);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (series, buckets) = (&series, &buckets);
                scope.spawn(move || {
                    for n in 0..EACH {
                        let code = [200, 404, 500, 208, 216][n as usize % 5];
                        let took = Duration::from_micros([100, 5_000, 20_000][n as usize % 3]);
                        series.observe(buckets, Shard(thread), code, took);
                        series.bytes(Shard(thread), 3, 5);
                    }
                });
            }
        });
        let reading = series.read(&buckets);
        assert_eq!(reading.codes.len(), 5);
        let mut all = Sample::empty(3);
        for (_, sample) in &reading.codes {
            assert_eq!(sample.count(), THREADS as u64 * EACH / 5);
            all.add(sample);
        }
        let thirds = |n: u64| (0..EACH).filter(|i| i % 3 == n).count() as u64 * THREADS as u64;
        assert_eq!(all.counts, [thirds(0), thirds(1), thirds(2)]);
        let micros = thirds(0) * 100 + thirds(1) * 5_000 + thirds(2) * 20_000;
        assert_eq!(all.ticks, micros * 10);
        assert_eq!((reading.received, reading.sent), (3 * THREADS as u64 * EACH, 5 * THREADS as u64 * EACH));
    }

    #[test]
    fn long_connections_do_not_overflow_the_sum() {
        let buckets = Buckets::new(&[1.0]);
        let series = Series::new(1);
        for _ in 0..10_000 {
            series.observe(&buckets, Shard(0), 101, Duration::from_secs(30 * 86_400));
        }
        let reading = series.read(&buckets);
        assert_eq!(reading.codes[0].1.seconds(), 10_000.0 * 30.0 * 86_400.0);
        series.observe(&buckets, Shard(0), 101, Duration::MAX);
    }

    #[test]
    fn a_counter_adds_up() {
        let counter = Counter::new(2);
        for shard in 0..5 {
            counter.add(Shard(shard), 2);
        }
        counter.sub(Shard(0), 1);
        assert_eq!(counter.get(), 9);
    }
}
