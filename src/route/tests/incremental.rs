//! Building again after changes gives what building from nothing gives, shares what it can, and leaves old tables alone.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

/// Everything that can be seen of a table.
fn view(table: &Table) -> Vec<String> {
    let target = |t: &Target| {
        format!(
            "{} {:?} {} {:?} {:?} {:.6} [{}]",
            t.service,
            t.instance,
            t.destination.text,
            t.tags,
            t.weight,
            t.share,
            t.options.text()
        )
    };
    let route = |r: &Route| {
        format!("{:?} {}|{}: {:?}", r.class, r.host, r.path, r.targets.iter().map(target).collect::<Vec<_>>())
    };
    table.routes().map(route).collect()
}

const TAGS: &[&str] = &[
    "urlprefix-/",
    "urlprefix-/a",
    "urlprefix-/a/b strip=/a",
    "urlprefix-a.com/",
    "urlprefix-a.com/ weight=0.2",
    "urlprefix-a.com/x",
    "urlprefix-a.com:80/",
    "urlprefix-*.a.com/",
    "urlprefix-*.a.com:80/",
    "urlprefix-*.b.a.com/x weight=0",
    "urlprefix-?.com/",
    "urlprefix-*/",
    "urlprefix-:80/",
    "urlprefix-:1234 proto=tcp",
    "urlprefix-a.com/ proto=tcp register=r1",
    "urlprefix-/b register=r2",
    "urlprefix-/b[ register=r3",
    "urlprefix-[.com/",
    "blue",
    "green",
];

const LINES: &[&str] = &[
    "route add m / http://m/",
    "route add m a.com/ http://m/ weight 0.5 tags \"blue\"",
    "route add s0 a.com/ http://1.1.1.0:2222/",
    "route add m [.com/x http://m/",
    "route add m *.a.com/ http://m/ opts \"register=r1\"",
    "route del s0",
    "route del s1 /",
    "route del s2 a.com/",
    "route del s3 tags \"blue\"",
    "route del tags \"green\"",
    "route del m",
    "route weight s0 / weight 0.3",
    "route weight s1 a.com/ weight 0",
    "route weight a.com/ weight 0.4 tags \"blue\"",
    "route weight nobody /none weight 1",
];

#[derive(Clone, Debug)]
enum Step {
    Service(usize, Vec<Vec<usize>>),
    Manual(Vec<usize>),
    Build,
}

fn step() -> impl Strategy<Value = Step> {
    let tags = prop::collection::vec(0..TAGS.len(), 0..4);
    prop_oneof![
        4 => (0usize..5, prop::collection::vec(tags, 0..4)).prop_map(|(n, instances)| Step::Service(n, instances)),
        2 => prop::collection::vec(0..LINES.len(), 0..6).prop_map(Step::Manual),
        3 => Just(Step::Build),
    ]
}

proptest! {
    #[test]
    fn equals_a_build_from_nothing(
        steps in prop::collection::vec(step(), 1..14),
        matcher in prop::sample::select(&[Matcher::Prefix, Matcher::IPrefix, Matcher::Glob][..]),
        globs: bool,
    ) {
        let settings = Settings { matcher, globs, ..Settings::default() };
        let mut builder = Builder::new(settings.clone());
        let mut services: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let mut manual = Vec::new();
        let mut versions: Vec<(Arc<Table>, Vec<String>)> = Vec::new();
        let mut source: Vec<String> = Vec::new();
        let mut last = Arc::new(Table::default());
        for step in steps.into_iter().chain([Step::Build]) {
            match step {
                Step::Service(n, instances) => {
                    let name = format!("s{n}");
                    let mut entries = Vec::new();
                    for (i, tags) in instances.iter().enumerate() {
                        let tags: Vec<&str> = tags.iter().map(|t| TAGS[*t]).collect();
                        entries.extend(parse_tags(&named_instance(&name, &format!("1.1.1.{i}"), &tags), "urlprefix-", "").entries);
                    }
                    builder.service(&name, entries.clone());
                    services.insert(name, entries);
                }
                Step::Manual(lines) => {
                    let text: Vec<&str> = lines.iter().map(|l| LINES[*l]).collect();
                    manual = commands(&text.join("\n"));
                    builder.manual(manual.clone());
                }
                Step::Build => {
                    let built = builder.build();
                    let mut anew = Builder::new(settings.clone());
                    for (name, entries) in services.iter().rev() {
                        anew.service(name, entries.clone());
                    }
                    anew.manual(manual.clone());
                    let reference = anew.build();
                    prop_assert_eq!(view(&built.table), view(&reference.table));
                    prop_assert_eq!(&built.rejects, &reference.rejects);
                    prop_assert_eq!(built.table.size(), reference.table.size());
                    prop_assert_eq!(built.table.aliases(), reference.table.aliases());
                    prop_assert_eq!(builder.source_lines(), anew.source_lines());
                    for (host, tls, path) in [("a.com", false, "/a/b"), ("x.a.com", true, "/x"), ("x.b.a.com:80", false, "/x"), ("q.com", false, "/b[")] {
                        let names = |t: &Table| find(t, host, tls, path).iter().map(|r| (r.host.clone(), r.path.clone())).collect::<Vec<_>>();
                        prop_assert_eq!(names(&built.table), names(&reference.table));
                    }
                    for key in [":1234", "a.com"] {
                        prop_assert_eq!(built.table.tcp(key).map(|r| r.identity()), reference.table.tcp(key).map(|r| r.identity()));
                    }

                    // Fresh and gone are exactly what differs from the table before, and all else is the same value.
                    let addresses = |t: &Table| t.routes().map(std::ptr::from_ref).collect::<std::collections::HashSet<_>>();
                    let (before, after) = (addresses(&last), addresses(&built.table));
                    let fresh: std::collections::HashSet<_> = built.fresh.iter().map(Arc::as_ptr).collect();
                    let gone: std::collections::HashSet<_> = built.gone.iter().map(Arc::as_ptr).collect();
                    prop_assert_eq!(&after - &before, fresh);
                    prop_assert_eq!(&before - &after, gone);
                    for route in built.table.routes() {
                        let is_fresh = built.fresh.iter().any(|f| std::ptr::eq(&**f, route));
                        prop_assert_eq!(route.state.is_empty(), is_fresh);
                        prop_assert!(route.targets.iter().all(|t| t.state.is_empty() == is_fresh));
                    }
                    for route in &built.fresh {
                        route.state.fill(Arc::new(()));
                        route.targets.iter().for_each(|t| t.state.fill(Arc::new(())));
                    }

                    // The delta leads from the old source to the new one.
                    let now = builder.source_lines();
                    let mut expected = source.clone();
                    for line in built.delta.lines() {
                        match line.split_at(2) {
                            ("- ", line) => {
                                let at = expected.iter().position(|l| l == line);
                                prop_assert!(at.is_some(), "{} was not there", line);
                                expected.remove(at.unwrap());
                            }
                            (_, line) => expected.push(line.to_owned()),
                        }
                    }
                    let mut sorted = now.clone();
                    sorted.sort();
                    expected.sort();
                    prop_assert_eq!(sorted, expected);
                    source = now;
                    last = built.table.clone();
                    versions.push((built.table.clone(), view(&built.table)));
                }
            }
        }
        for (table, seen) in versions {
            prop_assert_eq!(view(&table), seen);
        }
    }
}

#[test]
fn an_untouched_route_keeps_its_state() {
    let mut builder = Builder::new(Settings::default());
    let entries = |name: &str, address: &str| {
        parse_tags(
            &named_instance(name, address, &["urlprefix-/same", &format!("urlprefix-/{name}")]),
            "urlprefix-",
            "",
        )
        .entries
    };
    for name in ["a", "b"] {
        builder.service(name, entries(name, "1.1.1.1"));
    }
    let first = builder.build();
    assert_eq!((first.fresh.len(), first.gone.len()), (3, 0));
    for route in &first.fresh {
        route.state.fill(Arc::new(route.path.to_string()));
    }
    builder.service("b", entries("b", "2.2.2.2"));
    let second = builder.build();
    assert_eq!((second.fresh.len(), second.gone.len()), (2, 2));
    let state = |path: &str| find(&second.table, "h", false, path)[0].state.get::<String>().cloned();
    assert_eq!(state("/a"), Some("/a".to_owned()));
    assert_eq!(state("/b"), None);
    assert_eq!(state("/same"), None);
    // The same again is nothing at all.
    builder.service("b", entries("b", "2.2.2.2"));
    let third = builder.build();
    assert!(third.fresh.is_empty() && third.gone.is_empty() && third.delta.is_empty());
    // The old table still serves what it served.
    assert_eq!(first.table.size(), (3, 4));
    assert_eq!(find(&first.table, "h", false, "/b")[0].targets[0].destination.text, "http://1.1.1.1:2222/");
}

#[test]
fn services_can_only_add() {
    let mut builder = Builder::new(Settings::default());
    builder.service("a", commands("route add a / http://a/\nroute del a\nroute weight a / weight 0"));
    let built = builder.build();
    assert_eq!((built.table.size(), built.rejects.len()), ((1, 1), 2));
    builder.service("a", commands("route add a / http://a/"));
    assert_eq!(builder.build().rejects, []);
}
