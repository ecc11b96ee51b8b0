//! The routing table at several sizes: building, building again after one change, looking up, picking.
//!
//! Run with `cargo bench --bench table`. Before measuring it makes sure that lookups and picks do not allocate.

// Counting allocations takes a global allocator, and that trait is unsafe to implement. It only counts and passes on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ferrio::route::{Builder, Entry, Instance, Matcher, Origin, Settings, Table, Turn, parse_tags, parse_text, path};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn instance(service: usize, number: usize, tags: Vec<String>) -> Instance {
    Instance {
        service: format!("service-{service}").into(),
        id: format!("node-{number}/service-{service}").into(),
        datacenter: None,
        address: format!("10.{}.{}.{}", number % 250, service / 250, service % 250),
        port: 8000,
        tags,
        options: Default::default(),
        down: false,
    }
}

fn entries(service: usize, instances: usize, tags: &[String]) -> Vec<Entry> {
    (0..instances).flat_map(|n| parse_tags(&instance(service, n, tags.to_vec()), "urlprefix-", "dc1").entries).collect()
}

/// `hosts` hosts with `routes / hosts` paths each, and `globs` patterns.
fn wide(routes: usize, hosts: usize, globs: usize) -> Builder {
    let mut builder = Builder::new(Settings::default());
    let each = (routes / hosts).max(1);
    for host in 0..hosts {
        let tags: Vec<String> = (0..each).map(|n| format!("urlprefix-host-{host}.example.com/path/{n}")).collect();
        builder.service(&format!("service-{host}"), entries(host, 1, &tags));
    }
    for glob in 0..globs {
        // Nine in ten are suffixes, as in practice.
        let source = if glob % 10 == 9 { format!("g{glob}-*.example.org/") } else { format!("*.g{glob}.example.org/") };
        builder.service(&format!("glob-{glob}"), entries(hosts + glob, 1, &[format!("urlprefix-{source}")]));
    }
    builder
}

/// Services of three instances each on the empty host, and some manual commands.
fn fleet(services: usize) -> Builder {
    let mut builder = Builder::new(Settings::default());
    for service in 0..services {
        builder.service(&format!("service-{service}"), entries(service, 3, &[format!("urlprefix-/service-{service}")]));
    }
    let manual = "route weight service-7 /service-7 weight 0.1\nroute del service-9\nroute del tags \"old\"\n\
                  route add extra /extra http://10.0.0.1:80/\nroute weight service-8 /service-8 weight 0";
    builder.manual(parse_text(manual, |line| Origin::Static { line }).entries);
    builder
}

fn lookup(table: &Table, host: &str, path: &[u8]) -> bool {
    table.http(black_box(host), false, black_box(path)).next().is_some()
}

fn assert_no_allocation(what: &str, mut run: impl FnMut()) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{what} allocates");
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    for (name, routes, hosts, globs) in [
        ("10 routes", 10, 2, 0),
        ("1k routes", 1_000, 200, 10),
        ("100k routes, 20k hosts, 100 globs", 100_000, 20_000, 100),
    ] {
        let table = wide(routes, hosts, globs).build().table;
        let literal = format!("host-{}.example.com", hosts / 2);
        let upper = literal.to_uppercase();
        let cases = [
            ("literal host", literal.as_str(), true),
            ("upper case and port", &format!("{upper}:80"), true),
            ("suffix pattern", "x.g5.example.org", globs > 5),
            ("no such host", "nobody.example.net", false),
        ];
        for (case, host, found) in cases {
            assert_eq!(lookup(&table, host, b"/path/1/and/more"), found, "{case}");
            assert_no_allocation(case, || {
                lookup(&table, host, b"/path/1/and/more");
            });
            group.bench_function(format!("{name}, {case}"), |b| b.iter(|| lookup(&table, host, b"/path/1/and/more")));
        }
    }
    let table = fleet(5_000).build().table;
    group.bench_function("5k paths on one host", |b| b.iter(|| lookup(&table, "any.example.com", b"/service-2500/x")));
    for matcher in [Matcher::IPrefix, Matcher::Glob] {
        let text: String = (0..100).map(|n| format!("route add s /a{n}/* http://h/\n")).collect();
        let mut builder = Builder::new(Settings { matcher, ..Settings::default() });
        builder.manual(parse_text(&text, |line| Origin::Static { line }).entries);
        let table = builder.build().table;
        assert_no_allocation("another matcher", || {
            lookup(&table, "any.example.com", b"/a57/x");
        });
        group.bench_function(format!("100 paths, {matcher:?}"), |b| {
            b.iter(|| lookup(&table, "any.example.com", b"/a57/x"))
        });
    }
    group.bench_function("clean a plain path", |b| {
        b.iter(|| path::clean(black_box("/service-2500/with/some/segments")).decoded.len())
    });
    group.finish();
}

fn picks(c: &mut Criterion) {
    let mut group = c.benchmark_group("pick");
    for (name, count, weight) in
        [("3 equal", 3, None), ("3 weighted", 3, Some(0.35)), ("1000 weighted", 1000, Some(0.2))]
    {
        let mut text: String = (1..count).map(|n| format!("route add s / http://h:{n}/\n")).collect();
        let weight = weight.map(|w| format!(" weight {w}")).unwrap_or_default();
        text.push_str(&format!("route add s / http://h:{count}/{weight}"));
        let mut builder = Builder::new(Settings::default());
        builder.manual(parse_text(&text, |line| Origin::Static { line }).entries);
        let table = builder.build().table;
        let route = table.http("h", false, b"/").next().expect("there is one");
        assert_no_allocation(name, || {
            route.pick(Turn::Nth(17));
        });
        let mut n = 0u64;
        group.bench_function(format!("{name}, in turn"), |b| {
            b.iter(|| {
                n = n.wrapping_add(1);
                route.pick(Turn::Nth(n)).map(|target| target.share)
            });
        });
        group.bench_function(format!("{name}, at random"), |b| {
            b.iter(|| {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                route.pick(Turn::Random(n)).map(|target| target.share)
            });
        });
    }
    group.finish();
}

fn builds(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    group.bench_function("100k routes, 20k hosts, 100 globs from tags", |b| {
        b.iter_batched(|| (), |()| wide(100_000, 20_000, 100).build().table, BatchSize::PerIteration);
    });
    group.bench_function("100k routes from text", |b| {
        let text: String = (0..100_000)
            .map(|n| format!("route add s{n} host-{}.example.com/{n} http://10.0.0.1:80/\n", n % 20_000))
            .collect();
        b.iter(|| {
            let mut builder = Builder::new(Settings::default());
            builder.manual(parse_text(&text, |line| Origin::Static { line }).entries);
            builder.build().table
        });
    });
    group.finish();

    let mut group = c.benchmark_group("one change");
    for (name, mut builder, host) in [
        ("5k services on one host", fleet(5_000), false),
        ("100k routes on 20k hosts", wide(100_000, 20_000, 100), true),
    ] {
        let mut published = builder.build().table;
        let service = 1234;
        let tag = if host { "urlprefix-host-1234.example.com/path/1" } else { "urlprefix-/service-1234" }.to_owned();
        let versions =
            [entries(service, 3, std::slice::from_ref(&tag)), entries(service, 2, std::slice::from_ref(&tag))];
        let mut n = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                n += 1;
                builder.service("service-1234", versions[n % 2].clone());
                // The last table is dropped as well, as when it is published.
                published = builder.build().table;
                Arc::strong_count(&published)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lookups, picks, builds);
criterion_main!(benches);
