#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use super::graphite::Histogram;
use super::stdout::Stdout;
use super::*;
use crate::life::{Life, Phase};
use crate::metrics::{Config, Metrics, Shard};

const SOON: Duration = Duration::from_secs(10);
const TARGET: &str = "http://10.1.2.3:12345/";

fn config(targets: &[&str], addresses: Addresses) -> Config {
    Config {
        targets: targets.iter().map(|t| t.to_string()).collect(),
        prefix: "h.fabio".into(),
        names: String::new(),
        interval: Duration::from_millis(50),
        addresses,
        circonus_url: String::new(),
        prometheus_subsystem: String::new(),
        prometheus_path: "/metrics".into(),
        prometheus_buckets: vec![1.0],
    }
}

fn naming() -> Naming {
    Naming::new("h.fabio", "")
}

fn observation(code: u16, took: Duration) -> Observation {
    let labels =
        Labels { service: "svc-a".into(), host: "www.example.com".into(), path: "/foo".into(), target: TARGET.into() };
    Observation { labels: Some(labels.into()), code, took }
}

/// One request to a target, one without a route, one redirect, some bytes, one WebSocket.
fn traffic(metrics: &Metrics) -> impl Sized {
    let target = metrics.target("svc-a", "www.example.com", "/foo", TARGET);
    target.observe(Shard(0), 200, Duration::from_millis(12));
    target.bytes(Shard(0), 4096, 0);
    metrics.http().not_found(Shard(0));
    metrics.http().not_found(Shard(1));
    metrics.http().redirected(Shard(0), 301);
    (metrics.http().websocket(Shard(0)), target)
}

/// What a server over UDP gets until all of `want` was there.
async fn datagrams(target: &str, want: &[&str]) -> Vec<String> {
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let addresses = Addresses { statsd: address.clone(), dogstatsd: address, ..Addresses::default() };
    let metrics = Metrics::new(&config(&[target], addresses), 2);
    let life = Life::new();
    let running = tokio::spawn(metrics.clone().run(life.watch(), None));
    let kept = traffic(&metrics);
    let mut got = Vec::new();
    let mut buffer = [0; 2000];
    while !want.iter().all(|line| got.iter().any(|g| g == line)) {
        let length = tokio::time::timeout(SOON, server.recv(&mut buffer))
            .await
            .unwrap_or_else(|_| panic!("only {got:#?}"))
            .unwrap();
        got.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    drop(kept);
    life.advance(Phase::Ended);
    running.await.unwrap();
    got
}

#[tokio::test]
async fn statsd_raw_lines() {
    let want = [
        "h.fabio.requests.service.svc-a:12.000000|ms",
        "h.fabio.http.status.code.200.service.svc-a:12.000000|ms",
        "h.fabio.svc-a.www_example_com./foo.10_1_2_3_12345:12.000000|ms",
        "h.fabio.svc-a.www_example_com./foo.10_1_2_3_12345.rx:4096.000000|c",
        "h.fabio.http.redirect.count.code.301:1.000000|c",
        "h.fabio.notfound:2.000000|c",
        "h.fabio.ws.conn:1.000000|g",
    ];
    let got = datagrams("statsd_raw", &want).await;
    let strict = regex::Regex::new(r"^[^:|@#\s]+:\d+\.\d{6}\|(c|g|ms)$").unwrap();
    for line in &got {
        assert!(strict.is_match(line), "{line}");
    }
    let counted = got.iter().filter(|line| line.contains("notfound")).count();
    assert_eq!(counted, 1, "what has not moved is not told again: {got:#?}");
}

#[tokio::test]
async fn dogstatsd_lines() {
    let want = [
        "h.fabio.requests:0.012000|h|#fabio-service:svc-a",
        "h.fabio.route:0.012000|h|#fabio-service:svc-a,fabio-host:www.example.com,path:/foo,target:http://10.1.2.3:12345/",
        "h.fabio.http.status:0.012000|h|#code:200,fabio-service:svc-a",
        "h.fabio.http.redirect.count:1.000000|c|#code:301",
        "h.fabio.notfound:2.000000|c",
        "h.fabio.ws.conn:1.000000|g",
    ];
    datagrams("dogstatsd", &want).await;
}

#[tokio::test]
async fn graphite_lines_also_after_the_server_was_away() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let addresses = Addresses { graphite: address.to_string(), ..Addresses::default() };
    let metrics = Metrics::new(&config(&["graphite"], addresses), 2);
    let life = Life::new();
    let running = tokio::spawn(metrics.clone().run(life.watch(), None));
    let kept = traffic(&metrics);
    // Long enough for a first attempt that fails.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let server = TcpListener::bind(address).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..2 {
            // The second connection comes after we have closed the first.
            let (stream, _) = server.accept().unwrap();
            for line in BufReader::new(stream).lines().take(9) {
                let _ = sender.send(line.unwrap());
            }
        }
    });
    let lines = tokio::task::spawn_blocking(move || -> Vec<String> {
        (0..18).map(|_| receiver.recv_timeout(SOON).unwrap()).collect()
    })
    .await
    .unwrap();
    let shape = regex::Regex::new(r"^\S+ -?\d+\.\d{6} \d{10}$").unwrap();
    assert!(lines.iter().all(|line| shape.is_match(line)), "{lines:#?}");
    drop(kept);
    life.advance(Phase::Ended);
    running.await.unwrap();
}

#[test]
fn graphite_tells_counters_gauges_and_quantiles() {
    let metrics = Metrics::new(&config(&["prometheus"], Addresses::default()), 2);
    let kept = traffic(&metrics);
    let (sender, mut receive) = connection::pair();
    let mut graphite = graphite::Graphite::new(sender);
    let naming = naming();
    graphite.observe(&[observation(200, Duration::from_millis(12))], &naming);
    let now = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    graphite.flush(&Readings::all(&metrics.0), &naming, now);
    let text = receive.try_recv().unwrap();
    for line in [
        "h.fabio.notfound 2.000000 1700000000",
        "h.fabio.http.redirect.count.code.301 1.000000 1700000000",
        "h.fabio.ws.conn 1.000000 1700000000",
        "h.fabio.svc-a.www_example_com./foo.10_1_2_3_12345.rx 4096.000000 1700000000",
        "h.fabio.svc-a.www_example_com./foo.10_1_2_3_12345.p50 12.000000 1700000000",
        "h.fabio.svc-a.www_example_com./foo.10_1_2_3_12345.p99 12.000000 1700000000",
        "h.fabio.requests.service.svc-a.p90 12.000000 1700000000",
        "h.fabio.http.status.code.200.service.svc-a.p95 12.000000 1700000000",
    ] {
        assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
    }
    graphite.flush(&Readings::all(&metrics.0), &naming, now);
    let text = receive.try_recv().unwrap();
    assert!(text.contains("h.fabio.notfound 0.000000 ") && text.contains(".p50 12.000000 "), "{text}");

    drop(kept);
    graphite.flush(&Readings::all(&metrics.0), &naming, now);
    let _ = receive.try_recv();
    graphite.flush(&Readings::all(&metrics.0), &naming, now);
    let text = receive.try_recv().unwrap();
    assert!(!text.contains("/foo"), "a target that left goes on:\n{text}");
    assert!(text.contains("h.fabio.requests.service.svc-a.p50 12.000000 "), "{text}");
}

fn printed(labels: bool, say: impl FnOnce(&mut Stdout, &Naming)) -> Vec<String> {
    let (sender, receiver) = mpsc::sync_channel(100);
    let mut stdout = Stdout::with(labels, Some(sender));
    say(&mut stdout, &naming());
    drop(stdout);
    receiver.iter().flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn lines_on_standard_output() {
    let metrics = Metrics::new(&config(&["prometheus"], Addresses::default()), 2);
    let say = |stdout: &mut Stdout, naming: &Naming| {
        stdout.tick(&Readings::few(&metrics.0), naming);
        stdout.observe(&[observation(200, Duration::from_micros(12_400)), observation(0, Duration::ZERO)], naming);
        let kept = traffic(&metrics);
        stdout.tick(&Readings::all(&metrics.0), naming);
        stdout.tick(&Readings::few(&metrics.0), naming);
        drop(kept);
        stdout.flush(&Readings::all(&metrics.0), naming, SystemTime::now());
    };
    let lines = printed(false, say);
    assert_eq!(
        lines,
        [
            "h.fabio.ws.conn:0|g",
            ":h.fabio.route.service.host.path.target:12|ms",
            ":h.fabio.requests.service:12|ms",
            ":h.fabio.http.status.code.service:12|ms",
            ":h.fabio.route.service.host.path.target:0|ms",
            ":h.fabio.requests.service:0|ms",
            "h.fabio.http.redirect.count.code:1|c",
            "h.fabio.notfound:1|c",
            "h.fabio.notfound:2|c",
            "h.fabio.route.rx.service.host.path.target:4096|c",
            "h.fabio.ws.conn:1|g",
            "h.fabio.ws.conn:0|g",
        ]
    );
    let metrics = Metrics::new(&config(&["prometheus"], Addresses::default()), 2);
    let lines = printed(true, |stdout, naming| {
        stdout.observe(&[observation(200, Duration::from_millis(12))], naming);
        let _kept = traffic(&metrics);
        stdout.tick(&Readings::few(&metrics.0), naming);
    });
    assert_eq!(
        lines,
        [
            "h.fabio.route:12|ms|#service:svc-a,host:www.example.com,path:/foo,target:http://10.1.2.3:12345/",
            "h.fabio.requests:12|ms|#service:svc-a",
            "h.fabio.http.status:12|ms|#code:200,service:svc-a",
            "h.fabio.http.redirect.count:1|c|#code:301",
            "h.fabio.notfound:1|c",
            "h.fabio.notfound:2|c",
            "h.fabio.ws.conn:1|g",
        ]
    );
}

#[test]
fn an_empty_prefix_keeps_its_dot_on_standard_output_only() {
    let naming = Naming::new("", "");
    let series = Series { name: names::HTTP_REDIRECT_COUNT, labels: vec![("code", "301".into())] };
    assert_eq!(naming.dotted_keys(&series, true), ".http.redirect.count.code");
    assert_eq!(naming.bare(&series), "http.redirect.count");
    assert_eq!(Naming::new("lab.", "").flat(&series), "lab.http.redirect.count.code.301");
}

#[test]
fn tags_cannot_end_a_line_or_begin_another_tag() {
    assert_eq!(naming::tag_value("a,b|c\nd:e/"), "a_b_c_d:e/");
}

#[test]
fn circonus_documents() {
    let metrics = Metrics::new(&config(&["prometheus"], Addresses::default()), 2);
    let _kept = traffic(&metrics);
    let (sender, mut receive) = connection::pair();
    let mut circonus = circonus::Circonus::new(sender);
    let took = Duration::from_millis(12);
    circonus.observe(&[observation(200, took), observation(200, took)], &naming());
    circonus.flush(&Readings::all(&metrics.0), &naming(), SystemTime::now());
    let document: serde_json::Value = serde_json::from_str(&receive.try_recv().unwrap()).unwrap();
    for (name, want) in [
        ("h.fabio`notfound", serde_json::json!({ "_type": "L", "_value": 2 })),
        ("h.fabio`ws.conn", serde_json::json!({ "_type": "l", "_value": 1 })),
        ("h.fabio`requests.service.svc-a", serde_json::json!({ "_type": "n", "_value": ["H[1.2e+07]=2"] })),
        (
            "h.fabio`svc-a.www_example_com./foo.10_1_2_3_12345",
            serde_json::json!({ "_type": "n", "_value": ["H[1.2e+07]=2"] }),
        ),
    ] {
        assert_eq!(document[name], want, "{name} in {document:#}");
    }
    circonus.flush(&Readings::all(&metrics.0), &naming(), SystemTime::now());
    let document: serde_json::Value = serde_json::from_str(&receive.try_recv().unwrap()).unwrap();
    assert_eq!(document.as_object().unwrap().keys().collect::<Vec<_>>(), ["h.fabio`ws.conn"]);
}

#[test]
fn quantiles_of_a_stream_are_near_enough() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.quantile(0.5), -1.0);
    for n in 0..10_000u32 {
        // All of 0..10,000 in a mixed order.
        histogram.add(f64::from(n.wrapping_mul(7919) % 10_000));
    }
    for part in [0.5, 0.9, 0.95, 0.99] {
        let got = histogram.quantile(part);
        assert!((got - part * 10_000.0).abs() < 500.0, "{part}: {got}");
    }
}

#[test]
fn a_full_journal_costs_observations_and_no_time() {
    let (journal, reader) = journal::new();
    let begun = Instant::now();
    for _ in 0..100_000 {
        journal.put(observation(200, Duration::ZERO));
    }
    assert!(begun.elapsed() < SOON);
    let mut got = Vec::new();
    reader.take(&mut got);
    assert_eq!(got.len() as u64 + reader.dropped(), 100_000);
    assert!(got.len() > 50_000);
}

/// An address that no name server knows, and one where nobody listens: it starts, and goes on.
#[tokio::test]
async fn servers_that_are_not_there_are_no_reason_to_stop() {
    let addresses = Addresses {
        statsd: "no-such-host.invalid:8125".into(),
        dogstatsd: "127.0.0.1:9".into(),
        graphite: "nonsense".into(),
    };
    let metrics = Metrics::new(&config(&["statsd_raw", "dogstatsd", "graphite"], addresses), 2);
    let life = Life::new();
    let running = tokio::spawn(metrics.clone().run(life.watch(), None));
    for _ in 0..5 {
        drop(traffic(&metrics));
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(!running.is_finished());
    }
    life.advance(Phase::Ended);
    tokio::time::timeout(SOON, running).await.unwrap().unwrap();
}
