#![allow(clippy::unwrap_used)]

use super::*;
use crate::registry::testing::{Recorder, logged};

fn setup(log: RoutesLog) -> Setup {
    Setup {
        settings: Settings::default(),
        tag_prefix: "urlprefix-".into(),
        datacenter: "dc1".into(),
        allow: Allow::default(),
        log,
    }
}

struct Bench {
    funnel: Funnel,
    recorder: Arc<Recorder>,
}

fn bench(log: RoutesLog) -> Bench {
    let recorder = Arc::new(Recorder::default());
    let (ready, aliases) = (watch::Sender::new(false), watch::Sender::new(Aliases::new()));
    let board = Arc::new(Board::default());
    let funnel = Funnel::new(Feed::default(), board, setup(log), recorder.clone(), ready, aliases);
    Bench { funnel, recorder }
}

impl Bench {
    /// Applies what was put down, without waiting.
    fn apply(&mut self) {
        let pending = self.funnel.feed.take();
        self.funnel.worker.apply(pending, &self.funnel.board);
    }

    fn put(&self, name: &str, ports: &[u16], tags: &[&str]) {
        let instances = ports.iter().map(|port| Instance {
            service: name.into(),
            id: format!("n1/{name}-{port}").into(),
            datacenter: None,
            address: "10.0.0.1".into(),
            port: *port,
            tags: tags.iter().map(|t| (*t).to_owned()).collect(),
            options: Default::default(),
            down: false,
        });
        self.funnel.feed.services([(Arc::from(name), instances.collect())]);
    }

    fn manual(&self, texts: &[(&str, &str)]) {
        self.funnel.feed.manual(texts.iter().map(|(k, t)| (Arc::from(*k), Arc::from(*t))).collect());
    }

    fn rejects(&self) -> Vec<String> {
        self.funnel.board.table.load().rejects.iter().map(|r| format!("{}: {}", place(&r.origin), r.text)).collect()
    }
}

#[test]
fn the_delta_has_one_line_per_change() {
    let mut b = bench(RoutesLog::Delta);
    b.put("a", &[80], &["urlprefix-/a"]);
    let log = logged(|| b.apply());
    assert_eq!(log, " INFO Config updates\n+ route add a /a http://10.0.0.1:80/\n");
    b.put("a", &[81], &["urlprefix-/a"]);
    let log = logged(|| b.apply());
    assert_eq!(
        log,
        " INFO Config updates\n- route add a /a http://10.0.0.1:80/\n+ route add a /a http://10.0.0.1:81/\n"
    );
    b.manual(&[("fabio/config", "route weight a /a weight 0.5 tags \"x\"")]);
    let log = logged(|| b.apply());
    assert!(log.contains("+ route weight a /a weight 0.5"), "{log}");
    let log = logged(|| {
        b.put("a", &[81], &["urlprefix-/a"]);
        b.apply();
    });
    assert_eq!(log, "", "nothing changed");
}

#[test]
fn other_formats() {
    for (format, expected) in [
        (
            RoutesLog::All,
            " INFO Updated config to\nroute add b /b http://10.0.0.1:81/\nroute add a /a http://10.0.0.1:80/\n",
        ),
        (RoutesLog::Off, ""),
    ] {
        let mut b = bench(format);
        b.put("a", &[80], &["urlprefix-/a"]);
        b.put("b", &[81], &["urlprefix-/b"]);
        assert_eq!(logged(|| b.apply()), expected, "{format:?}");
    }
    let mut b = bench(RoutesLog::Detail);
    b.put("a", &[80], &["urlprefix-/a"]);
    let log = logged(|| b.apply());
    assert!(log.starts_with(" INFO Updated config to\n+-- host=\n    +-- path=/a\n"), "{log}");
}

#[test]
fn a_bad_tag_or_line_costs_itself_and_is_logged_once() {
    let mut b = bench(RoutesLog::Off);
    b.put("a", &[80], &["urlprefix-/a", "urlprefix-/b redirect=999,http://x"]);
    b.manual(&[("fabio/config", "route add broken\nroute add m /m http://10.0.0.9:1/")]);
    let log = logged(|| b.apply());
    assert!(b.recorder.listing().contains("/a") && b.recorder.listing().contains("/m"));
    assert_eq!(log.matches("WARN").count(), 2, "{log}");
    assert!(log.contains("key fabio/config line 1") && log.contains("service a instance n1/a-80"), "{log}");
    assert_eq!(b.rejects().len(), 2);
    b.put("c", &[80], &["urlprefix-/c"]);
    assert_eq!(logged(|| b.apply()), "", "not again");
    b.manual(&[("fabio/config", "route add m /m http://10.0.0.9:1/")]);
    b.apply();
    assert_eq!(b.rejects().len(), 1);
    b.manual(&[("fabio/config", "route add broken")]);
    assert_eq!(logged(|| b.apply()).matches("WARN").count(), 1, "but when it comes back");
}

#[test]
fn a_flood_of_rejects_does_not_flood_the_log() {
    let mut b = bench(RoutesLog::Off);
    let text: String = (0..5000).map(|i| format!("route ad {i}\n")).collect();
    b.manual(&[("fabio/config", &text)]);
    let log = logged(|| b.apply());
    assert_eq!(log.lines().count(), REJECTS_LOGGED + 1);
    assert_eq!(b.rejects().len(), 5000);
}

#[test]
fn unprintable_tags_do_no_harm() {
    let mut b = bench(RoutesLog::Delta);
    b.put("a", &[80], &["urlprefix-/a", "\u{0}\u{1b}[31m", "urlprefix-/x\ty", "urlprefix-"]);
    let log = logged(|| b.apply());
    assert!(b.recorder.listing().contains("/a"));
    assert!(!log.contains('\u{1b}') && !log.contains('\u{0}'), "{log:?}");
}

#[test]
fn one_change_in_a_large_table_is_a_few_lines_and_quick() {
    let mut b = bench(RoutesLog::Delta);
    for i in 0..5000u32 {
        let ports = [1000, 1001, 1002];
        b.put(&format!("s{i}"), &ports, &[&format!("urlprefix-/{i}")]);
    }
    logged(|| b.apply());
    b.put("s77", &[1000, 1001, 2002], &["urlprefix-/77"]);
    let started = Instant::now();
    let log = logged(|| b.apply());
    eprintln!("{:?}", started.elapsed());
    assert_eq!(log.lines().count(), 3, "{log}");
    // Debug builds are some ten times slower than the real thing.
    assert!(started.elapsed() < Duration::from_millis(50), "{:?}", started.elapsed());
    assert_eq!((b.funnel.worker.table.size(), b.funnel.board.table.load().instances), ((5000, 15_000), 15_000));
}

#[test]
fn large_overrides_that_change_all_the_time_take_no_more_memory() {
    let mut b = bench(RoutesLog::Off);
    let rounds = |b: &mut Bench, count: usize| {
        for round in 0..count {
            let line = |i: usize| format!("route add s{i} /{i}/{} http://10.0.0.1:80/ opts \"strip=/x\"\n", round % 7);
            let text: String = (0..1500).map(line).collect();
            b.manual(&[("fabio/config", &text)]);
            b.apply();
            b.recorder.forget();
        }
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = rounds(&mut b, 15);
    let after = rounds(&mut b, 60);
    assert!(after < before + (20 << 20), "{before} bytes, later {after}");
}

#[test]
fn the_page_alone_is_published_too() {
    let mut b = bench(RoutesLog::Off);
    b.funnel.feed.page("<html>");
    let log = logged(|| b.apply());
    assert_eq!((b.recorder.page().as_deref(), log.as_str()), (Some("<html>"), " INFO Set noroute HTML (6 bytes)\n"));
    b.funnel.feed.page("");
    assert_eq!(logged(|| b.apply()), " INFO Unset noroute HTML\n");
    b.funnel.feed.page("");
    b.apply();
    assert_eq!(b.recorder.count(), 2);
}

#[test]
fn what_changed_is_remembered() {
    let mut b = bench(RoutesLog::Off);
    b.put("a", &[80], &["urlprefix-/a"]);
    b.apply();
    b.put("a", &[], &[]);
    b.apply();
    let table = b.funnel.board.table.load();
    let change = table.changes.back().unwrap();
    assert_eq!((change.added, change.removed, change.cause.as_str()), (0, 1, "service a"));
    assert_eq!(change.lines, ["- route add a /a http://10.0.0.1:80/"]);
    assert_eq!((table.services, table.instances, table.builds), (0, 0, 2));
}

#[test]
fn times_of_changes() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    for (name, applied, first, last, expected) in [
        ("the very first", None, 0, 0, 0),
        ("after a quiet time", Some(0), 60, 60, 60),
        ("right after another", Some(0), 10, 10, 60),
        ("the followers go on", Some(0), 10, 100, 150),
        ("but not for ever", Some(0), 10, 255, 260),
    ] {
        assert_eq!(due(applied.map(at), at(first), at(last)), at(expected), "{name}");
    }
}

#[tokio::test]
async fn bursts_are_joined_and_nothing_waits_long() {
    let b = bench(RoutesLog::Off);
    let (feed, recorder) = (b.funnel.feed.clone(), b.recorder.clone());
    let tables = b.recorder.clone();
    let task = tokio::spawn(b.funnel.run());
    let put = |i: u16| {
        let instance = Instance {
            service: "s".into(),
            id: "n/s".into(),
            datacenter: None,
            address: "10.0.0.1".into(),
            port: i,
            tags: vec!["urlprefix-/".into()],
            options: Default::default(),
            down: false,
        };
        feed.services([(Arc::from("s"), [instance].into())]);
    };
    put(1);
    feed.manual_known();
    recorder.stays("nothing on overrides alone", 0.1, |r| r.count() == 0).await;
    feed.services_known();
    recorder.shows(":1/").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    put(2);
    let took = recorder.shows(":2/").await;
    assert!(took < Duration::from_millis(40), "the first one goes at once: {took:?}");
    let mut i = 3;
    while started.elapsed() < Duration::from_secs(1) {
        put(i);
        i += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    recorder.shows(&format!(":{}/", i - 1)).await;
    let times = tables.times();
    let gaps: Vec<u128> = times[1..].windows(2).map(|w| (w[1] - w[0]).as_millis()).collect();
    assert!(times.len() < 12, "{gaps:?}");
    assert!(gaps.iter().skip(1).all(|gap| *gap <= 330), "{gaps:?}");
    task.abort();
}
