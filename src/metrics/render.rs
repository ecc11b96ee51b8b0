//! fabio's families in the Prometheus text format, derived from what was counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exposition::Writer;
use super::series::Sample;
use super::targets::{Labels, Report};
use super::troubles::Trouble;
use super::{Inner, TcpSeries, names};

/// The names of the families, with prefix and subsystem.
pub(super) struct Names {
    route: String,
    route_rx: String,
    route_tx: String,
    not_found: String,
    requests: String,
    http_status: String,
    redirects: String,
    websockets: String,
    grpc: [String; 3],
    grpc_status: [String; 2],
    tcp: [String; 3],
    tcp_sni: [String; 3],
}

impl Names {
    pub(super) fn new(prefix: &str, subsystem: &str) -> Self {
        let family = |name| names::family(prefix, subsystem, name);
        Self {
            route: family(names::ROUTE),
            route_rx: family(names::ROUTE_RX),
            route_tx: family(names::ROUTE_TX),
            not_found: family(names::NOT_FOUND),
            requests: family(names::REQUESTS),
            http_status: family(names::HTTP_STATUS),
            redirects: family(names::HTTP_REDIRECT_COUNT),
            websockets: family(names::WS_CONN),
            grpc: [names::GRPC_CONN, names::GRPC_NO_ROUTE, names::GRPC_REQUESTS].map(family),
            grpc_status: [names::GREP_STATUS, names::GRPC_STATUS].map(family),
            tcp: [names::TCP_CONN, names::TCP_CONN_FAIL, names::TCP_NO_ROUTE].map(family),
            tcp_sni: [names::TCP_SNI_CONN, names::TCP_SNI_CONN_FAIL, names::TCP_SNI_NO_ROUTE].map(family),
        }
    }
}

/// Writes the families in the order of their names. A series is there from its first update on; only the number of open
/// WebSockets is there at once.
pub(super) fn write(inner: &Inner, writer: &mut Writer) {
    let names = &inner.names;
    let report = inner.targets.report();

    write_grpc(inner, writer);
    write_redirects(inner, writer);
    write_status(inner, writer, &report);
    write_counter(writer, &names.not_found, inner.http.not_found.get());
    write_requests(inner, writer, &report);
    write_route(inner, writer, &report);
    write_bytes(writer, &names.route_rx, report.targets.iter().map(|(labels, reading)| (labels, reading.received)));
    write_bytes(writer, &names.route_tx, report.targets.iter().map(|(labels, reading)| (labels, reading.sent)));
    write_tcp(writer, &names.tcp, &inner.tcp);
    write_tcp(writer, &names.tcp_sni, &inner.tcp_sni);
    writer.family(&names.websockets, "gauge", "");
    writer.sample(&names.websockets, &[], inner.http.websockets.get().max(0) as f64);
}

fn write_grpc(inner: &Inner, writer: &mut Writer) {
    let [conn, no_route, requests] = &inner.names.grpc;
    let [odd, status] = &inner.names.grpc_status;
    let codes = inner.grpc.codes();
    let by_status = |writer: &mut Writer, name: &str| {
        let mut family = Once::new(name, "histogram");
        for (code, sample) in &codes {
            family.begin(writer);
            writer.histogram(name, &[("code", code)], &inner.buckets, sample);
        }
    };
    by_status(writer, odd);
    write_counter(writer, conn, inner.grpc.conn.get());
    write_counter(writer, no_route, inner.grpc.no_route.get());
    if !codes.is_empty() {
        writer.family(requests, "histogram", "");
        let sample = sum(inner, codes.iter().map(|(_, sample)| sample));
        writer.histogram(requests, &[], &inner.buckets, &sample);
    }
    by_status(writer, status);
}

/// Our own families about targets that give trouble; see [`Trouble`].
pub(super) fn write_troubles(inner: &Inner, writer: &mut Writer) {
    let troubles = inner.targets.report().troubles;
    for kind in Trouble::ALL {
        let mut begun = false;
        for (labels, counts) in &troubles {
            for (_, reason, count) in counts.iter().filter(|(of, _, _)| *of == kind) {
                if !begun {
                    writer.family(kind.name(), "counter", kind.help());
                    begun = true;
                }
                let [host, path, service, target] = pairs(labels);
                writer.sample(kind.name(), &[host, path, ("reason", reason), service, target], *count as f64);
            }
        }
    }
}

fn write_redirects(inner: &Inner, writer: &mut Writer) {
    let name = &inner.names.redirects;
    let mut family = Once::new(name, "counter");
    for (code, count) in inner.http.redirects() {
        family.begin(writer);
        writer.sample(name, &[("code", &code.to_string())], count as f64);
    }
}

fn write_status(inner: &Inner, writer: &mut Writer, report: &Report) {
    let name = &inner.names.http_status;
    let mut family = Once::new(name, "histogram");
    let mut by_code: BTreeMap<String, Vec<(&Arc<str>, &Sample)>> = BTreeMap::new();
    for (service, codes) in &report.services {
        for (code, sample) in codes.iter().filter(|(code, _)| **code != 0) {
            by_code.entry(code.to_string()).or_default().push((service, sample));
        }
    }
    for (code, services) in &by_code {
        for (service, sample) in services {
            family.begin(writer);
            writer.histogram(name, &[("code", code), ("service", service)], &inner.buckets, sample);
        }
    }
}

fn write_requests(inner: &Inner, writer: &mut Writer, report: &Report) {
    let name = &inner.names.requests;
    let mut family = Once::new(name, "histogram");
    for (service, codes) in &report.services {
        family.begin(writer);
        writer.histogram(name, &[("service", service)], &inner.buckets, &sum(inner, codes.values()));
    }
}

fn write_route(inner: &Inner, writer: &mut Writer, report: &Report) {
    let name = &inner.names.route;
    let mut family = Once::new(name, "histogram");
    for (labels, reading) in &report.targets {
        if reading.codes.is_empty() || labels.target.is_empty() {
            continue;
        }
        family.begin(writer);
        let sample = sum(inner, reading.codes.iter().map(|(_, sample)| sample));
        writer.histogram(name, &pairs(labels), &inner.buckets, &sample);
    }
}

fn write_bytes<'a>(writer: &mut Writer, name: &str, series: impl Iterator<Item = (&'a Labels, u64)>) {
    let mut family = Once::new(name, "counter");
    for (labels, count) in series.filter(|(labels, count)| *count > 0 && !labels.target.is_empty()) {
        family.begin(writer);
        writer.sample(name, &pairs(labels), count as f64);
    }
}

fn write_tcp(writer: &mut Writer, [conn, conn_fail, no_route]: &[String; 3], series: &TcpSeries) {
    write_counter(writer, conn, series.conn.get());
    write_counter(writer, conn_fail, series.conn_fail.get());
    write_counter(writer, no_route, series.no_route.get());
}

fn write_counter(writer: &mut Writer, name: &str, count: i64) {
    if count > 0 {
        writer.family(name, "counter", "");
        writer.sample(name, &[], count as f64);
    }
}

fn sum<'a>(inner: &Inner, samples: impl Iterator<Item = &'a Sample>) -> Sample {
    let mut sum = Sample::empty(inner.buckets.len());
    for sample in samples {
        sum.add(sample);
    }
    sum
}

fn pairs(labels: &Labels) -> [(&str, &str); 4] {
    [("host", &labels.host), ("path", &labels.path), ("service", &labels.service), ("target", &labels.target)]
}

/// Writes the head of a family before its first series.
struct Once<'a> {
    name: &'a str,
    kind: &'a str,
    begun: bool,
}

impl<'a> Once<'a> {
    fn new(name: &'a str, kind: &'a str) -> Self {
        Self { name, kind, begun: false }
    }

    fn begin(&mut self, writer: &mut Writer) {
        if !self.begun {
            writer.family(self.name, self.kind, "");
            self.begun = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::metrics::{Config, Metrics, Shard};

    fn metrics(targets: &[&str], subsystem: &str, path: &str) -> Metrics {
        let config = Config {
            targets: targets.iter().map(|t| t.to_string()).collect(),
            prefix: "my-host.lab".into(),
            names: String::new(),
            interval: Duration::from_secs(30),
            addresses: Default::default(),
            circonus_url: String::new(),
            prometheus_subsystem: subsystem.into(),
            prometheus_path: path.into(),
            prometheus_buckets: vec![0.1, 0.5, 2.0],
        };
        Metrics::new(&config, 2)
    }

    fn ours(metrics: &Metrics, prefix: &str) -> String {
        let text = metrics.render();
        let mine = |line: &&str| line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ").starts_with(prefix);
        text.lines().filter(mine).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn nothing_but_the_gauge_before_the_first_update() {
        let metrics = metrics(&["prometheus"], "", "/metrics");
        let _idle = metrics.target("svc-a", "foo.com", "/x", "http://1.2.3.4:80/");
        let want = "# HELP my_host_lab_ws_conn \n# TYPE my_host_lab_ws_conn gauge\nmy_host_lab_ws_conn 0\n";
        assert_eq!(ours(&metrics, "my_host_lab_"), want);
    }

    #[test]
    fn calls_count_by_the_names_of_their_statuses() {
        let metrics = metrics(&["prometheus"], "", "/metrics");
        for status in [0, 0, 5, 16, 17, u16::MAX] {
            metrics.grpc().finished(Shard(0), status, Duration::from_millis(200));
        }
        metrics.grpc().conn.add(Shard(1), 3);
        let text = ours(&metrics, "my_host_lab_gr");
        for line in [
            "my_host_lab_grpc_conn 3",
            "my_host_lab_grpc_requests_count 6",
            "my_host_lab_grep_status_count{code=\"OK\"} 2",
            "my_host_lab_grpc_status_count{code=\"NotFound\"} 1",
            "my_host_lab_grpc_status_count{code=\"Unauthenticated\"} 1",
            "my_host_lab_grpc_status_count{code=\"Unknown\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("noroute"), "{text}");
    }

    #[test]
    fn every_family_to_the_letter() {
        let metrics = metrics(&["prometheus"], "", "/metrics");
        let a = metrics.target("svc-a", "foo.com", "/x", "http://1.2.3.4:80/");
        let b = metrics.target("svc-b", "", "/<\"q\\\n>", "tcp://1.2.3.4:81");
        a.observe(Shard(0), 200, Duration::from_millis(100));
        a.observe(Shard(1), 200, Duration::from_millis(250));
        a.observe(Shard(0), 502, Duration::from_secs(3));
        a.observe(Shard(0), 0, Duration::from_millis(150));
        b.bytes(Shard(1), 7000, 1_500_000);
        metrics.http().not_found(Shard(0));
        metrics.http().not_found(Shard(1));
        metrics.http().redirected(Shard(0), 307);
        metrics.http().redirected(Shard(0), 301);
        metrics.http().redirected(Shard(1), 301);
        metrics.http().redirected(Shard(1), 200);
        metrics.tcp().conn.add(Shard(0), 2);
        metrics.tcp_sni().no_route.add(Shard(0), 1);
        let first = metrics.http().websocket(Shard(0));
        let _second = metrics.http().websocket(Shard(1));
        drop(first);

        let histogram = |name: &str, labels: &str, counts: [u64; 4], sum: &str| {
            let mut out = String::new();
            for (le, count) in ["0.1", "0.5", "2", "+Inf"].iter().zip(counts) {
                out += &format!("my_host_lab_{name}_bucket{{{labels},le=\"{le}\"}} {count}\n");
            }
            out += &format!("my_host_lab_{name}_sum{{{labels}}} {sum}\n");
            out + &format!("my_host_lab_{name}_count{{{labels}}} {}\n", counts[3])
        };
        let head = |name: &str, kind: &str| format!("# HELP my_host_lab_{name} \n# TYPE my_host_lab_{name} {kind}\n");
        let b_labels = "host=\"\",path=\"/<\\\"q\\\\\\n>\",service=\"svc-b\",target=\"tcp://1.2.3.4:81\"";
        let want = [
            head("http_redirect_count", "counter"),
            "my_host_lab_http_redirect_count{code=\"301\"} 2\n".into(),
            "my_host_lab_http_redirect_count{code=\"307\"} 1\n".into(),
            head("http_status", "histogram"),
            histogram("http_status", "code=\"200\",service=\"svc-a\"", [1, 2, 2, 2], "0.35"),
            histogram("http_status", "code=\"502\",service=\"svc-a\"", [0, 0, 0, 1], "3"),
            head("notfound", "counter"),
            "my_host_lab_notfound 2\n".into(),
            head("requests", "histogram"),
            histogram("requests", "service=\"svc-a\"", [1, 3, 3, 4], "3.5"),
            head("route", "histogram"),
            histogram(
                "route",
                "host=\"foo.com\",path=\"/x\",service=\"svc-a\",target=\"http://1.2.3.4:80/\"",
                [1, 3, 3, 4],
                "3.5",
            ),
            head("route_rx", "counter"),
            format!("my_host_lab_route_rx{{{b_labels}}} 7000\n"),
            head("route_tx", "counter"),
            format!("my_host_lab_route_tx{{{b_labels}}} 1.5e+06\n"),
            head("tcp_conn", "counter"),
            "my_host_lab_tcp_conn 2\n".into(),
            head("tcp_sni_noroute", "counter"),
            "my_host_lab_tcp_sni_noroute 1\n".into(),
            head("ws_conn", "gauge"),
            "my_host_lab_ws_conn 1\n".into(),
        ]
        .concat();
        assert_eq!(ours(&metrics, "my_host_lab_"), want);

        drop((a, b));
        let text = ours(&metrics, "my_host_lab_");
        assert!(!text.contains("_route"), "series of targets that are gone in\n{text}");
        assert!(text.contains("my_host_lab_requests_count{service=\"svc-a\"} 4\n"), "{text}");
        assert!(text.contains("my_host_lab_http_status_count{code=\"200\",service=\"svc-a\"} 2\n"), "{text}");
    }

    #[test]
    fn without_the_target_only_facts_about_the_process() {
        let metrics = metrics(&[], "", "/metrics");
        metrics.target("s", "", "/", "http://a/").observe(Shard(0), 200, Duration::ZERO);
        metrics.http().not_found(Shard(0));
        assert_eq!(ours(&metrics, "my_host_lab_"), "");
        assert!(metrics.render().contains("\nprocess_open_fds "));
    }

    #[test]
    fn the_listener_serves_one_path_and_redirects_the_rest() {
        for (configured, asked, status, location) in [
            ("/metrics", "/metrics", 200, None),
            ("/metrics", "/", 308, Some("/metrics")),
            ("/metrics", "/metrics/", 308, Some("/metrics")),
            ("/m", "/other", 308, Some("/m")),
            ("/", "/", 200, None),
            ("/", "/other", 200, None),
        ] {
            let response = metrics(&["prometheus"], "sub", configured).answer(asked);
            assert_eq!(response.status(), status, "{configured} {asked}");
            let got = response.headers().get("location").map(|v| v.as_bytes());
            assert_eq!(got, location.map(str::as_bytes), "{configured} {asked}");
            let empty = http_body::Body::size_hint(response.body()).exact() == Some(0);
            assert_eq!(empty, status == 308, "{configured} {asked}");
        }
        let response = metrics(&["prometheus"], "sub", "/").answer("/");
        let kind = response.headers()["content-type"].to_str().unwrap_or_default();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        assert!(metrics(&["prometheus"], "sub", "/").render().contains("\nmy_host_lab_sub_ws_conn 0\n"));
    }

    #[test]
    fn many_targets_render_completely() {
        const TARGETS: usize = 5_000;
        let metrics = metrics(&["prometheus"], "", "/metrics");
        let handles: Vec<_> = (0..TARGETS)
            .map(|n| metrics.target(&format!("s{}", n % 100), "h", &format!("/{n}"), &format!("http://10.0.0.1:{n}/")))
            .collect();
        for (n, handle) in handles.iter().enumerate() {
            handle.observe(Shard(n % 2), 200, Duration::from_millis(n as u64));
        }
        let text = metrics.render();
        assert_eq!(text.lines().filter(|l| l.starts_with("my_host_lab_route_count{")).count(), TARGETS);
        assert_eq!(text.lines().filter(|l| l.starts_with("my_host_lab_requests_count{")).count(), 100);
        let total: f64 = text
            .lines()
            .filter(|l| l.starts_with("my_host_lab_http_status_count{"))
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        assert_eq!(total, TARGETS as f64);
    }
}
