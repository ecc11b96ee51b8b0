//! Spans, as a collector gets them: decoded with the published messages.

use std::collections::HashMap;
use std::time::Duration;

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::h2::{H2Client, H2Origin, Served, message, send_data, status};
use crate::testing::origin::{self, Gate, Origin, reply};
use crate::testing::{PATIENCE, client, free_addr, until};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;

/// A collector that takes everything.
async fn collector() -> Origin {
    let collector = Origin::start("collector").await;
    collector.always(reply(200, &[("Content-Type", "application/x-protobuf")], ""));
    collector
}

/// These routes, traced to this collector at once.
fn traced(collector: &Origin, routes: impl Into<String>) -> Start {
    let endpoint = format!("http://{}", collector.addr());
    Start::routes(routes).property("tracing.otlp.endpoint", endpoint).property("tracing.otlp.interval", "10ms")
}

fn posted(collector: &Origin) -> Vec<ResourceSpans> {
    let bodies = collector.seen().into_iter().map(|seen| seen.body.bytes);
    bodies.flat_map(|body| ExportTraceServiceRequest::decode(&body[..]).expect("a request").resource_spans).collect()
}

fn spans(collector: &Origin) -> Vec<Span> {
    let scopes = posted(collector).into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// Waits for so many spans: those of requests, then those of tries, each in the order of their beginnings.
async fn wait(collector: &Origin, count: usize) -> Vec<Span> {
    let mut all = until(PATIENCE, &format!("{count} spans"), async || {
        let all = spans(collector);
        (all.len() >= count).then_some(all)
    })
    .await;
    assert_eq!(all.len(), count, "{all:?}");
    all.sort_by_key(|span| (span.kind, span.start_time_unix_nano));
    all
}

fn texts(attributes: &[KeyValue]) -> HashMap<&str, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let all: HashMap<_, _> = attributes.iter().map(|pair| (pair.key.as_str(), text(&pair.value))).collect();
    assert_eq!(all.len(), attributes.len(), "each once: {attributes:?}");
    all
}

/// These attributes, and none of those.
fn check(span: &Span, want: &[(&str, &str)], without: &[&str]) {
    let got = texts(&span.attributes);
    for (key, value) in want {
        assert_eq!(got.get(key).map(String::as_str), Some(*value), "{key} of {}: {got:?}", span.name);
    }
    for key in without {
        assert!(!got.contains_key(key), "{key} of {}: {got:?}", span.name);
    }
}

fn failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_request_and_its_try_are_spans_of_the_senders_trace() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    let start = traced(&collector, format!("route add web a.test/shop {}", origin.url()))
        .property("proxy.matchhostport", "strip")
        .property("tracing.service", "edge")
        .property("tracing.resource", "deployment.environment.name=prod,team=a%2Cb")
        .property("tracing.otlp.headers", "Authorization=Bearer%20x,X-Tenant=t")
        .property("log.access.target", "stdout")
        .property("log.access.format", "$trace_id $upstream_service")
        .property("log.access.masquery", "token")
        .property("proxy.header.requestid", "X-Request-Id");
    let mut proxy = start.start().await;
    let head = format!(
        "GET /shop/x?a=1&token=s3cret&sig=s3cret HTTP/1.1\r\nHost: a.test:81\r\nUser-Agent: tests/1\r\ntraceparent: {PARENT}\r\n\
         tracestate: a=1\r\ntracestate: b=2\r\n\r\n"
    );
    assert_eq!(proxy.raw(head).await.status, 200);
    let all = wait(&collector, 2).await;
    let (server, client) = (&all[0], &all[1]);
    assert_eq!((server.kind(), client.kind()), (SpanKind::Server, SpanKind::Client));
    for span in &all {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(span.trace_state, "a=1,b=2");
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000 && !failed(span));
        assert_eq!(span.span_id.len(), 8);
    }
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(client.parent_span_id, server.span_id);
    assert_ne!(client.span_id, server.span_id);
    // The parent of the one is elsewhere, that of the other here.
    assert_eq!((server.flags, client.flags), (0x301, 0x101));
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.start_time_unix_nano <= client.end_time_unix_nano);
    assert!(client.end_time_unix_nano <= server.end_time_unix_nano);

    let seen = origin.last();
    let told = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(seen.head.all("traceparent"), [&told]);
    assert_eq!(seen.head.all("tracestate"), ["a=1", "b=2"]);

    assert_eq!((server.name.as_str(), client.name.as_str()), ("GET /shop", "GET"));
    let request_id = seen.header("x-request-id").expect("an id").to_owned();
    let want = [
        ("http.request.method", "GET"),
        ("url.scheme", "http"),
        ("url.path", "/shop/x"),
        ("url.query", "a=1&token=***&sig=***"),
        ("server.address", "a.test"),
        ("server.port", "81"),
        ("client.address", "127.0.0.1"),
        ("network.peer.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "tests/1"),
        ("http.route", "/shop"),
        ("ferrio.route", "a.test/shop"),
        ("ferrio.service", "web"),
        ("ferrio.request_id", &request_id),
        ("http.response.status_code", "200"),
    ];
    check(server, &want, &["error.type", "rpc.system", "http.request.method_original"]);
    let full = format!("{}shop/x?a=1&token=***&sig=***", origin.url());
    let want = [
        ("http.request.method", "GET"),
        ("url.full", full.as_str()),
        ("server.address", "127.0.0.1"),
        ("server.port", &origin.port().to_string()),
        ("ferrio.service", "web"),
        ("http.response.status_code", "200"),
    ];
    check(client, &want, &["error.type", "http.request.resend_count"]);
    assert!(texts(&client.attributes).contains_key("ferrio.connect_time_us"), "a new connection");

    let posted = posted(&collector);
    let resource = texts(&posted[0].resource.as_ref().expect("a resource").attributes);
    assert_eq!((resource["service.name"].as_str(), resource["team"].as_str()), ("edge", "a,b"));
    assert_eq!(resource["deployment.environment.name"], "prod");
    assert!(!resource["host.name"].is_empty() && !resource["service.instance.id"].is_empty());
    assert_eq!(posted[0].scope_spans[0].scope.as_ref().expect("a scope").name, "ferrio");
    let post = collector.last();
    assert_eq!((post.method(), post.target()), ("POST", "/v1/traces"));
    assert_eq!(post.header("content-type"), Some("application/x-protobuf"));
    assert_eq!((post.header("authorization"), post.header("x-tenant")), (Some("Bearer x"), Some("t")));
    let process = proxy.ferrio.process();
    until(PATIENCE, "a line", async || (!process.stdout().is_empty()).then_some(())).await;
    assert_eq!(process.stdout(), format!("{TRACE} web\n"));
    assert!(!proxy.ferrio.stderr().contains("Bearer"), "{}", proxy.ferrio.stderr());
    assert_eq!(proxy.ferrio.stop().await, Some(0));
}

#[tokio::test]
async fn without_tracing_headers_go_through_as_they_are() {
    let origin = Origin::start("a").await;
    let proxy = Start::routes(format!("route add web / {}", origin.url())).start().await;
    let lines = "traceparent: 00-what\r\ntracestate: a=1\r\nb3: 0\r\nX-B3-TraceId: x\r\n";
    assert_eq!(proxy.raw(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n")).await.status, 200);
    let seen = origin.last();
    let all = ["traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid"].map(|name| seen.header(name));
    assert_eq!(all, [Some("00-what"), Some("a=1"), Some("0"), Some("x"), None]);
}

#[tokio::test]
async fn who_decides_what_is_sampled() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    let route = format!("route add web / {}", origin.url());
    let (not, odd) = (PARENT.replace("-01", "-00"), PARENT.replace("00-", "ff-"));
    for (sample, parents, parent, sampled, joined) in [
        ("1", "any", None, true, false),
        ("0", "any", None, false, false),
        ("0", "any", Some(PARENT), true, true),
        ("1", "any", Some(&*not), false, true),
        ("1", "any", Some(&*odd), true, false),
        ("0", "none", Some(PARENT), false, false),
        // Whoever connects to us is not one of those.
        ("0", "trusted", Some(PARENT), false, false),
    ] {
        let before = spans(&collector).len();
        let start = traced(&collector, route.clone()).property("tracing.sample", sample);
        let start = start.property("tracing.parents", parents).property("proxy.trusted", "10.0.0.0/8");
        let mut proxy = start.start().await;
        let line = parent.map(|parent| format!("traceparent: {parent}\r\n")).unwrap_or_default();
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\ntracestate: x=y\r\n{line}\r\n");
        assert_eq!(proxy.raw(head).await.status, 200);
        let seen = origin.last();
        let told = seen.header("traceparent").expect("always told").to_owned();
        let case = format!("{sample} {parents} {parent:?}: {told}");
        assert_eq!(told.ends_with("-01"), sampled, "{case}");
        assert_eq!(told.starts_with(&format!("00-{TRACE}")), joined, "{case}");
        assert_eq!(seen.header("tracestate").is_some(), joined, "{case}");
        assert_eq!(proxy.ferrio.stop().await, Some(0));
        let got = spans(&collector).split_off(before);
        assert_eq!(got.len(), if sampled { 2 } else { 0 }, "{case}");
        let root = got.iter().find(|span| span.kind() == SpanKind::Server);
        assert!(root.is_none_or(|root| root.parent_span_id.is_empty() != joined), "{case}");
    }
}

#[tokio::test]
async fn b3_in_both_forms() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    let start = traced(&collector, format!("route add web / {}", origin.url()));
    let proxy = start.property("tracing.propagate", "b3,b3multi").start().await;
    let lines = format!("X-B3-TraceId: {TRACE}\r\nX-B3-SpanId: 00f067aa0ba902b7\r\nX-B3-Sampled: 1\r\n");
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\ntraceparent: as it is\r\n{lines}\r\n");
    assert_eq!(proxy.raw(head).await.status, 200);
    let all = wait(&collector, 2).await;
    assert_eq!((hex(&all[0].trace_id), hex(&all[0].parent_span_id)), (TRACE.into(), "00f067aa0ba902b7".into()));
    let (server, client) = (hex(&all[0].span_id), hex(&all[1].span_id));
    let seen = origin.last();
    assert_eq!(seen.head.all("b3"), [format!("{TRACE}-{client}-1-{server}")]);
    assert_eq!(seen.head.all("x-b3-spanid"), [client]);
    assert_eq!(seen.head.all("x-b3-parentspanid"), [server]);
    assert_eq!((seen.header("x-b3-sampled"), seen.header("traceparent")), (Some("1"), Some("as it is")));
}

#[tokio::test]
async fn each_try_is_a_span() {
    let (collector, origin, bad) = (collector().await, Origin::start("a").await, Origin::start("bad").await);
    bad.always(reply(503, &[], ""));
    let gone = free_addr();
    let routes = format!(
        "route add web /moved http://{gone}/ opts \"priority=1\"\nroute add web /moved {origin} opts \"priority=2\"\n\
         route add web /again {bad} opts \"priority=1 retry=1 retryon=503\"\n\
         route add web /again {origin} opts \"priority=2 retry=1 retryon=503\"\nroute add web /dead http://{gone}/",
        origin = origin.url(),
        bad = bad.url()
    );
    let mut proxy = traced(&collector, routes).property("metrics.target", "prometheus").start().await;
    for (path, status) in [("/moved", 200), ("/again", 200), ("/dead", 502)] {
        assert_eq!(proxy.get("h", path).await.status, status, "{path}");
    }
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    let all = spans(&collector);
    for (path, status, tries) in [
        ("/moved", "200", &[("connect", None), ("", Some("200"))][..]),
        ("/again", "200", &[("503", Some("503")), ("", Some("200"))]),
        ("/dead", "502", &[("connect", None)]),
    ] {
        let server = all.iter().find(|span| span.name == format!("GET {path}")).expect(path);
        check(server, &[("http.response.status_code", status)], &[]);
        assert_eq!(failed(server), status == "502", "{path}");
        let mut children: Vec<&Span> = all
            .iter()
            .filter(|span| span.parent_span_id == server.span_id && span.trace_id == server.trace_id)
            .collect();
        children.sort_by_key(|span| span.start_time_unix_nano);
        assert_eq!(children.len(), tries.len(), "{path}");
        for (count, (child, (error, status))) in children.iter().zip(tries).enumerate() {
            let got = texts(&child.attributes);
            let value = |key: &str| got.get(key).map(String::as_str);
            assert_eq!(value("error.type").unwrap_or_default(), *error, "{path} {count}");
            assert_eq!(value("http.response.status_code"), *status, "{path} {count}");
            assert_eq!(failed(child), !error.is_empty(), "{path} {count}");
            assert_eq!(value("http.request.resend_count"), (count > 0).then_some("1"), "{path}");
        }
        // One after the other.
        assert!(children.windows(2).all(|two| two[0].end_time_unix_nano <= two[1].start_time_unix_nano), "{path}");
    }
    let told = |seen: &origin::Seen| seen.header("traceparent").map(|line| line[36..52].to_owned());
    let ids: Vec<String> = origin.seen().iter().chain(&bad.seen()).filter_map(told).collect();
    assert_eq!(ids.len(), 3);
    for id in ids {
        assert!(all.iter().any(|span| span.kind() == SpanKind::Client && hex(&span.span_id) == id), "{id}");
    }
}

#[tokio::test]
async fn answers_of_our_own_and_broken_ones_are_spans_too() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    origin.on("/cut", origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").close());
    origin.on("/missing", reply(404, &[], ""));
    origin.on("/broken", reply(500, &[], ""));
    let gate = Gate::new();
    origin.on("/slow", origin::chunked(&[]).chunk("begin").gate(&gate).chunk("end").end(&[]));
    origin.on("/hang", origin::hang());
    let routes = format!(
        "route add web h/ {url}\nroute add r /old http://x/ opts \"redirect=301\"\nroute add d /deny {url} opts \"deny=ip:127.0.0.1\"",
        url = origin.url()
    );
    let mut proxy = traced(&collector, routes).start().await;
    let cases: &[(&str, &str, &str, u16, &str, bool)] = &[
        ("h", "GET", "/missing", 404, "", false),
        ("h", "GET", "/broken", 500, "500", true),
        ("h", "SPAM", "/odd", 200, "", false),
        ("no", "GET", "/none", 404, "", false),
        ("no", "GET", "/old", 301, "", false),
        ("no", "GET", "/deny", 403, "", false),
        ("a b", "GET", "/bad", 400, "", false),
    ];
    for (host, method, path, status, _, _) in cases {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(proxy.status(head).await, *status, "{path}");
    }
    let mut client = proxy.client().await;
    client.send("GET /cut HTTP/1.1\r\nHost: h\r\n\r\n").await;
    client.rest().await;
    let mut client = proxy.client().await;
    client.send("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n").await;
    until(PATIENCE, "the request", async || origin.seen().iter().any(|seen| seen.target() == "/hang").then_some(()))
        .await;
    drop(client);
    // A span lasts as long as the body.
    let mut client = proxy.client().await;
    client.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").await;
    client.final_head().await;
    wait(&collector, 14).await;
    let begun = std::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(30)).await;
    gate.open();
    assert_eq!(client.chunk().await.as_deref(), Some(&b"begin"[..]));
    assert_eq!(client.chunk().await.as_deref(), Some(&b"end"[..]));
    let waited = begun.elapsed();
    assert_eq!(proxy.ferrio.stop().await, Some(0));

    let all = spans(&collector);
    let server = |path: &str| {
        let is = |span: &&Span| span.kind() == SpanKind::Server && texts(&span.attributes)["url.path"] == path;
        all.iter().find(is).unwrap_or_else(|| panic!("{path}: {all:?}"))
    };
    let children =
        |span: &Span| all.iter().filter(|one| one.parent_span_id == span.span_id).cloned().collect::<Vec<_>>();
    for (_, method, path, status, error, is_failed) in cases {
        let span = server(path);
        check(span, &[("http.response.status_code", &status.to_string())], &[]);
        let got = texts(&span.attributes);
        assert_eq!(got.get("error.type").map(String::as_str).unwrap_or_default(), *error, "{path}");
        assert_eq!(failed(span), *is_failed, "{path}");
        let ours = matches!(*path, "/none" | "/old" | "/deny" | "/bad");
        assert_eq!(children(span).len(), usize::from(!ours), "{path}");
        assert_eq!(got.contains_key("http.route"), !ours, "{path}");
        let name = if *method == "SPAM" { "HTTP" } else { "GET" };
        assert_eq!(span.name, if ours { name.to_owned() } else { format!("{name} /") }, "{path}");
    }
    check(server("/odd"), &[("http.request.method", "_OTHER"), ("http.request.method_original", "SPAM")], &[]);
    let missing = &children(server("/missing"))[0];
    assert!(failed(missing), "for whoever asks, it is a fault");
    check(missing, &[("error.type", "404")], &[]);
    let cut = server("/cut");
    check(cut, &[("http.response.status_code", "200"), ("error.type", "cut")], &[]);
    assert!(failed(cut) && failed(&children(cut)[0]));
    let gone = server("/hang");
    check(gone, &[("error.type", "client_gone")], &["http.response.status_code"]);
    check(&children(gone)[0], &[("error.type", "client_gone")], &["http.response.status_code"]);
    assert!(!failed(gone) && !failed(&children(gone)[0]));
    for span in [server("/slow"), &children(server("/slow"))[0]] {
        let took = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
        assert!(took >= waited.min(Duration::from_millis(30)), "{took:?} {waited:?}");
    }
}

#[tokio::test]
async fn a_websocket_is_a_span_until_it_ends() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    origin.on("/ws", origin::websocket());
    let proxy = traced(&collector, format!("route add web / {}", origin.url())).start().await;
    let mut client = proxy.client().await;
    client.send("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.response().await.status, 101);
    client.send("frame").await;
    assert_eq!(client.exact(5).await, b"frame");
    // Something else is told meanwhile, this one is not.
    assert_eq!(proxy.get("h", "/").await.status, 200);
    wait(&collector, 2).await;
    client.finish().await;
    client.closed().await;
    let all = wait(&collector, 4).await;
    let ws: Vec<&Span> =
        all.iter().filter(|span| texts(&span.attributes)["http.response.status_code"] == "101").collect();
    assert_eq!(ws.len(), 2);
    check(ws[0], &[("url.scheme", "ws"), ("url.path", "/ws")], &["error.type"]);
    assert_eq!(ws[1].parent_span_id, ws[0].span_id);
    assert!(origin.seen()[0].header("traceparent").is_some_and(|line| line.contains(&hex(&ws[1].span_id))));
}

async fn serve(mut served: Served) {
    let grpc: &[(&str, &str)] = &[("content-type", "application/grpc")];
    if !served.head.headers.contains_key("te") {
        return served.reply(&[], "plain").await;
    }
    let code = if served.head.uri.path().ends_with("/Fine") { 0 } else { 12 };
    let Some(mut stream) = served.head(grpc, false) else { return };
    let _ = send_data(&mut stream, message("one").into(), false).await;
    let _ = stream.send_trailers(status(code, ""));
}

#[tokio::test]
async fn http2_and_calls() {
    let (collector, origin) = (collector().await, H2Origin::start(serve).await);
    let routes = format!("route add web / http://{} opts \"proto=h2c\"", origin.addr());
    let proxy = traced(&collector, routes).property("proxy.addr", "ADDR;h2c=true").start().await;
    let client = H2Client::connect(proxy.addr).await;
    let request = client.request("GET", "a.test", "/page?x=1").header("traceparent", PARENT);
    assert_eq!(client.send(request, b"").await.text(), "plain");
    for (method, code) in [("Fine", 0), ("Unknown", 12)] {
        let answer = client.send(client.call("a.test", &format!("/shop.Cart/{method}")), &message("x")).await;
        assert_eq!(answer.grpc(), Some(code));
    }
    let all = wait(&collector, 6).await;
    let told: Vec<String> = origin
        .seen()
        .iter()
        .map(|head| head.headers["traceparent"].to_str().expect("text")[36..52].to_owned())
        .collect();
    assert_eq!(told, all[3..].iter().map(|span| hex(&span.span_id)).collect::<Vec<_>>());
    assert_eq!(hex(&all[0].trace_id), TRACE);
    let want = [("server.address", "a.test"), ("network.protocol.version", "2"), ("url.query", "x=1")];
    check(&all[0], &want, &["rpc.system", "error.type"]);
    let rpc = [("rpc.system", "grpc"), ("rpc.service", "shop.Cart")];
    for (span, name) in
        [(&all[1], "shop.Cart/Fine"), (&all[4], "shop.Cart/Fine"), (&all[2], "POST /"), (&all[5], "POST")]
    {
        assert_eq!(span.name, name);
        check(span, &rpc, &[]);
        assert_eq!(failed(span), name.starts_with("POST"), "{name}");
    }
    check(&all[1], &[("rpc.grpc.status_code", "0"), ("rpc.method", "Fine")], &["error.type"]);
    check(&all[2], &[("rpc.grpc.status_code", "12"), ("error.type", "12")], &[]);
}

/// A series of the process, summed over its labels.
async fn metric(proxy: &Proxy, name: &str) -> u64 {
    let text = client::get(proxy.more, "h", "/metrics").await.text();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// As [`traced`], with metrics.
fn counted(collector: &Origin, origin: &Origin) -> Start {
    traced(collector, format!("route add web / {}", origin.url()))
        .property("metrics.target", "prometheus")
        .property("proxy.addr", "ADDR,MORE;proto=prometheus")
}

#[tokio::test]
async fn a_collector_that_is_busy_gets_them_later() {
    let origin = Origin::start("a").await;
    for (answer, least) in [
        (reply(503, &[("Retry-After", "1")], ""), 900),
        (reply(429, &[("Retry-After", "2")], "x"), 1900),
        (reply(502, &[], "<html>"), 500),
        (origin::hang_up(), 500),
        (origin::reset(), 500),
        (origin::hang(), 500),
    ] {
        let collector = collector().await;
        collector.once("/v1/traces", answer);
        let proxy = counted(&collector, &origin).property("tracing.otlp.timeout", "300ms").start().await;
        let begun = std::time::Instant::now();
        assert_eq!(proxy.get("h", "/").await.status, 200);
        until(PATIENCE, "all of them", async || (metric(&proxy, "ferrio_traces_sent_total").await == 2).then_some(()))
            .await;
        let took = begun.elapsed().as_millis();
        assert!(took >= least, "{took} {least}");
        assert_eq!(metric(&proxy, "ferrio_traces_dropped_total").await, 0);
        let bodies: Vec<_> = collector.seen().into_iter().map(|seen| seen.body.bytes).collect();
        assert!(bodies.len() == 2 && bodies[0] == bodies[1], "the same ones again");
        let said = proxy.ferrio.stderr();
        assert!(said.contains("does not take spans") && said.contains("takes spans again"), "{said}");
    }
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted_and_not_sent_again() {
    let origin = Origin::start("a").await;
    let partial = |rejected_spans| ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess { rejected_spans, error_message: "no room\n".to_owned() }),
    };
    for (answer, lost, said) in [
        (reply(400, &[], ""), 2, "status 400"),
        (reply(503, &[("Retry-After", "18446744073709551615")], ""), 2, "status 503"),
        (reply(401, &[("WWW-Authenticate", "Basic")], "<html>"), 2, "status 401"),
        (reply(301, &[("Location", "http://127.0.0.1:1/")], ""), 2, "status 301"),
        (reply(500, &[], vec![b'x'; 1 << 20]), 2, "status 500"),
        (reply(200, &[], partial(1).encode_to_vec()), 1, "no room\\n"),
        (reply(200, &[], partial(i64::MAX).encode_to_vec()), 2, "no room"),
        (reply(200, &[], vec![b'x'; 1 << 20]), 0, ""),
        (origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx").close(), 0, ""),
    ] {
        let collector = collector().await;
        collector.once("/v1/traces", answer);
        let proxy = counted(&collector, &origin).start().await;
        assert_eq!(proxy.get("h", "/").await.status, 200);
        let counts = async || {
            (metric(&proxy, "ferrio_traces_sent_total").await, metric(&proxy, "ferrio_traces_dropped_total").await)
        };
        until(PATIENCE, "an end", async || (counts().await == (2 - lost, lost)).then_some(())).await;
        assert_eq!(collector.seen().len(), 1);
        if lost > 0 {
            until(PATIENCE, said, async || proxy.ferrio.stderr().contains(said).then_some(())).await;
        }
        // One that wants to be left alone for ages is, for five minutes.
        if said == "status 503" {
            continue;
        }
        // And the next ones are sent as ever.
        assert_eq!(proxy.get("h", "/").await.status, 200);
        until(PATIENCE, "the next ones", async || (counts().await.0 == 4 - lost).then_some(())).await;
    }
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_nothing_else() {
    let origin = Origin::start("a").await;
    // One that refuses, and one that takes connections and says nothing.
    let silent = Origin::start("silent").await;
    silent.always(origin::hang());
    for addr in [free_addr(), silent.addr()] {
        let start = Start::routes(format!("route add web / {}", origin.url()))
            .property("tracing.otlp.endpoint", format!("http://{addr}"))
            .property("tracing.otlp.interval", "10ms")
            .property("metrics.target", "prometheus")
            .property("proxy.addr", "ADDR,MORE;proto=prometheus");
        let mut proxy = start.start().await;
        let mut client = proxy.client().await;
        // More than there is room for.
        let requests = 18_000;
        for _ in 0..requests / 50 {
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50)).await;
            for _ in 0..50 {
                assert_eq!(client.response().await.status, 200);
            }
        }
        let dropped = until(PATIENCE, "drops", async || {
            Some(metric(&proxy, "ferrio_traces_dropped_total").await).filter(|dropped| *dropped > 0)
        })
        .await;
        assert!(dropped < 2 * requests, "{dropped}");
        let begun = std::time::Instant::now();
        assert_eq!(proxy.ferrio.stop().await, Some(0));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let said = proxy.ferrio.stderr();
        assert!(said.contains("spans were lost"), "{said}");
        // A few lines, not one for each.
        assert!(said.matches("traces:").count() < 10, "{said}");
    }
}

#[tokio::test]
async fn a_collector_with_tls_is_believed_by_its_authority() {
    let (ca, origin) = (Ca::new(), Origin::start("a").await);
    let collector = Origin::start_tls("collector", ca.server(&ca.leaf(&["localhost"]), &["http/1.1"])).await;
    collector.always(reply(200, &[], ""));
    for (authority, taken) in [(ca.pem(), true), (Ca::new().pem(), false)] {
        let start = counted(&collector, &origin).file("ca.pem", authority);
        let endpoint = format!("https://localhost:{}", collector.port());
        let start = start.property("tracing.otlp.endpoint", endpoint).property("tracing.otlp.tls.cafile", "ca.pem");
        let proxy = start.start().await;
        assert_eq!(proxy.get("h", "/").await.status, 200);
        if taken {
            wait(&collector, 2).await;
            continue;
        }
        let said = || proxy.ferrio.stderr();
        until(PATIENCE, "a word about it", async || said().contains("does not take spans").then_some(())).await;
        assert!(said().contains("certificate") && spans(&collector).len() == 2, "{}", said());
    }
}

#[tokio::test]
async fn what_is_left_is_sent_at_the_end() {
    let (collector, origin) = (collector().await, Origin::start("a").await);
    let start = traced(&collector, format!("route add web / {}", origin.url()));
    let mut proxy = start.property("tracing.otlp.interval", "1h").property("tracing.otlp.batch", 10).start().await;
    let mut client = proxy.client().await;
    for _ in 0..7 {
        assert_eq!(client.get("h", "/").await.status, 200);
    }
    // A whole batch does not wait.
    wait(&collector, 10).await;
    assert_eq!(proxy.ferrio.stop().await, Some(0));
    assert_eq!(spans(&collector).len(), 14);
    assert!(!proxy.ferrio.stderr().contains("lost"), "{}", proxy.ferrio.stderr());
}
