//! From commands to tables: adding, deleting, weights, order.

use super::*;

/// The listing with the shares in the place of the weights.
fn listing(text: &str) -> Vec<String> {
    let table = table(text);
    let mut hosts: Vec<&Route> = table.routes().collect();
    hosts.sort_by(|a, b| b.host.cmp(&a.host));
    let line = |route: &Route, target: &Target| {
        let mut line =
            format!("{} {}{} {} {:.4}", target.service, route.host, route.path, target.destination.text, target.share);
        if !target.tags.is_empty() {
            line.push_str(&format!(" {}", target.tags.join(",")));
        }
        if !target.options.raw.is_empty() {
            line.push_str(&format!(" {}", target.options.text()));
        }
        line
    };
    hosts.iter().flat_map(|route| route.targets.iter().map(|target| line(route, target))).collect()
}

#[test]
fn tables_from_commands() {
    for (name, text, want) in [
        ("one", "route add svc-a / http://aaa.com/", &["svc-a / http://aaa.com/ 1.0000"][..]),
        (
            "three instances",
            "route add svc-a / http://aaa.com:1111\nroute add svc-a / http://aaa.com:2222\nroute add svc-a / http://aaa.com:3333",
            &[
                "svc-a / http://aaa.com:1111 0.3333",
                "svc-a / http://aaa.com:2222 0.3333",
                "svc-a / http://aaa.com:3333 0.3333",
            ],
        ),
        (
            "options",
            "route add svc-a / http://aaa.com/ opts \"strip=/foo\"\nroute add svc-b / http://bbb.com/ opts \"strip=/bar\"",
            &["svc-a / http://aaa.com/ 0.5000 strip=/foo", "svc-b / http://bbb.com/ 0.5000 strip=/bar"],
        ),
        (
            "two paths",
            "route add svc-a /one http://aaa.com/\nroute add svc-a /two http://aaa.com/",
            &["svc-a /two http://aaa.com/ 1.0000", "svc-a /one http://aaa.com/ 1.0000"],
        ),
        (
            "longer path first",
            "route add svc-a / http://aaa.com/\nroute add svc-b /b http://bbb.com/",
            &["svc-b /b http://bbb.com/ 1.0000", "svc-a / http://aaa.com/ 1.0000"],
        ),
        (
            "host first",
            "route add svc-a / http://aaa.com/\nroute add svc-b b.com/ http://bbb.com/",
            &["svc-b b.com/ http://bbb.com/ 1.0000", "svc-a / http://aaa.com/ 1.0000"],
        ),
        (
            "paths of a host",
            "route add svc-a a.com/ http://aaa.com/\nroute add svc-a a.com/a http://aaa.com/",
            &["svc-a a.com/a http://aaa.com/ 1.0000", "svc-a a.com/ http://aaa.com/ 1.0000"],
        ),
        (
            "delete a destination",
            "route add svc-a / http://aaa.com/\nroute add svc-b / http://bbb.com/\nroute del svc-b / http://bbb.com/",
            &["svc-a / http://aaa.com/ 1.0000"],
        ),
        (
            "delete a source",
            "route add svc-a / http://aaa.com/\nroute add svc-a / http://aab.com/\nroute add svc-b / http://bbb.com/\nroute del svc-a /",
            &["svc-b / http://bbb.com/ 1.0000"],
        ),
        (
            "delete a service",
            "route add svc-a /a http://aaa.com/\nroute add svc-a / http://aaa.com/\nroute add svc-b / http://bbb.com/\nroute del svc-a",
            &["svc-b / http://bbb.com/ 1.0000"],
        ),
        (
            "delete by service and tags",
            "route add svc-a /a http://aaa.com/ tags \"a,b\"\nroute add svc-a / http://aaa.com/ tags \"b,c\"\nroute add svc-b / http://bbb.com/ tags \"c,d\"\nroute del svc-a tags \"a,b\"",
            &["svc-a / http://aaa.com/ 0.5000 b,c", "svc-b / http://bbb.com/ 0.5000 c,d"],
        ),
        (
            "delete by tags",
            "route add svc-a /a http://aaa.com/ tags \"a,b\"\nroute add svc-a / http://aaa.com/ tags \"b,c\"\nroute add svc-b / http://bbb.com/ tags \"c,d\"\nroute del tags \"b\"",
            &["svc-b / http://bbb.com/ 1.0000 c,d"],
        ),
        (
            "the same command twice",
            "route add svc-a / http://aaa.com/\nroute add svc-a / http://aaa.com/",
            &["svc-a / http://aaa.com/ 1.0000"],
        ),
        (
            "options make another target",
            "route add svc-a / http://aaa.com/\nroute add svc-a / http://aaa.com/ opts \"strip=/a\"",
            &["svc-a / http://aaa.com/ 0.5000", "svc-a / http://aaa.com/ 0.5000 strip=/a"],
        ),
        ("nothing to weigh", "route weight svc-a / weight 0.5\nroute weight svc-b /b weight 0.5 tags \"x\"", &[]),
        (
            "deleting before adding",
            "route del svc-a\nroute add svc-a / http://aaa.com/",
            &["svc-a / http://aaa.com/ 1.0000"],
        ),
        (
            "delete nothing",
            "route add svc-a / http://aaa.com/\nroute del tags \"\"\nroute del nobody",
            &["svc-a / http://aaa.com/ 1.0000"],
        ),
        ("delete with empty tags", "route add svc-a / http://aaa.com/\nroute del svc-a tags \"\"", &[]),
        ("case of hosts", "route add svc-a A.com/ http://aaa.com/\nroute del svc-a a.COM/", &[]),
        (
            "add after delete",
            "route add s / http://a/\nroute del s\nroute add s / http://b/",
            &["s / http://b/ 1.0000"],
        ),
    ] {
        assert_eq!(listing(text), want, "{name}");
    }
}

#[test]
fn an_emptied_route_lets_the_shorter_path_serve() {
    for delete in ["route del b", "route del b /foo", "route del b /foo http://b/", "route del tags \"x\""] {
        let table = table(&format!("route add a / http://a/\nroute add b /foo http://b/ tags \"x\"\n{delete}"));
        assert_eq!(served_by(&table, "h", "/foo"), "a", "{delete}");
    }
}

#[test]
fn weights_of_a_route() {
    let base =
        "route add svca / http://a/\nroute add svcb / http://b/ tags \"b\"\nroute add svcb / http://c/ tags \"b\"\n";
    for (command, want) in [
        ("route weight svcb / weight 0.1", [0.9, 0.05, 0.05]),
        ("route weight svcb / weight 0.1 tags \"b\"", [0.9, 0.05, 0.05]),
        ("route weight / weight 0.1 tags \"b\"", [0.9, 0.05, 0.05]),
        ("route weight / weight 0.1 tags \"\"", [0.3333, 0.3333, 0.3333]),
        ("route weight svcb / weight 0", [1.0, 0.0, 0.0]),
        ("route weight svcb / weight 0.1\nroute weight svcb / weight -1", [0.3333, 0.3333, 0.3333]),
        ("route weight svcb / weight 0\nroute weight svcb / weight -1", [0.3333, 0.3333, 0.3333]),
        ("route weight svcb / weight 4", [0.0, 0.5, 0.5]),
        ("route weight svca / weight 0", [0.0, 0.5, 0.5]),
    ] {
        let got: Vec<f64> =
            shares(&table(&format!("{base}{command}")), "h", "/").into_iter().map(|(_, share)| share).collect();
        assert_eq!(got, want, "{command}");
    }
    let late = table(&format!("{base}route weight svcb / weight 0.5\nroute add svcc / http://d/"));
    assert_eq!(shares(&late, "h", "/").iter().map(|(_, s)| *s).collect::<Vec<_>>(), [0.25, 0.25, 0.25, 0.25]);
}

#[test]
fn r23_weight_from_a_tag() {
    let instances = [
        named_instance("a", "10.0.0.1", &["urlprefix-/ weight=0.2"]),
        named_instance("b", "10.0.0.2", &["urlprefix-/"]),
        named_instance("c", "10.0.0.3", &["urlprefix-/"]),
    ];
    let table = table_of(Settings::default(), &instances, "").table;
    let mut shares = shares(&table, "h", "/");
    shares.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(shares, [("a".to_owned(), 0.2), ("b".to_owned(), 0.4), ("c".to_owned(), 0.4)]);
}

#[test]
fn r24_hundreds_of_instances_and_a_tiny_weight() {
    let mut text: String = (1..500).map(|n| format!("route add s / http://h:{n}/\n")).collect();
    text.push_str("route add s / http://tiny/ weight 0.001");
    let table = table(&text);
    let route = find(&table, "h", false, "/")[0];
    let mut counts = std::collections::HashMap::new();
    for n in 0..100_000 {
        *counts.entry(&*route.pick(Turn::Nth(n)).unwrap().destination.text).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 500);
    assert!((95..=105).contains(&counts["http://tiny/"]));
}

#[test]
fn r26_weight_0_drains() {
    let one = table_of(
        Settings::default(),
        &[named_instance("a", "1.1.1.1", &["urlprefix-/ weight=0"]), named_instance("b", "2.2.2.2", &["urlprefix-/"])],
        "",
    )
    .table;
    let route = find(&one, "h", false, "/")[0];
    assert!((0..20).all(|n| &*route.pick(Turn::Nth(n)).unwrap().service == "b"));
    // With nobody left the route is still there, and has nobody to give.
    let none = table_of(
        Settings::default(),
        &[named_instance("a", "1.1.1.1", &["urlprefix-/x weight=0"]), named_instance("b", "2.2.2.2", &["urlprefix-/"])],
        "",
    )
    .table;
    let route = find(&none, "h", false, "/x")[0];
    assert_eq!(&*route.path, "/x");
    assert!(route.pick(Turn::Nth(0)).is_none() && route.pick(Turn::Random(5)).is_none());
    // So it is with a weight of 0 in JSON, where it means nothing.
    let parsed =
        parse_json(br#"[{"cmd": "route add", "service": "a", "src": "/", "dst": "http://a/", "weight": 0}]"#).unwrap();
    let mut builder = Builder::new(Settings::default());
    builder.manual(parsed.entries);
    assert!(find(&builder.build().table, "h", false, "/")[0].pick(Turn::Nth(0)).is_some());
}

#[test]
fn r27_a_total_is_shared() {
    let instances: Vec<_> = (1..=6)
        .map(|n| named_instance("web", &format!("10.0.0.{n}"), &["urlprefix-/x", if n <= 4 { "v2" } else { "v1" }]))
        .collect();
    let table = table_of(Settings::default(), &instances, "route weight web /x weight 0.1 tags \"v2\"").table;
    for target in &find(&table, "h", false, "/x")[0].targets {
        let want = if target.tags.iter().any(|tag| &**tag == "v2") { 0.025 } else { 0.45 };
        assert!((target.share - want).abs() < 1e-9);
    }
}

#[test]
fn r28_odd_weights_starve_nobody() {
    for weight in ["NaN", "Inf", "-1", "abc", "", "1e308"] {
        let tag = format!("urlprefix-/ weight={weight}");
        let instances = [
            named_instance("odd", "1.1.1.1", &[&tag, "urlprefix-/odd"]),
            named_instance("b", "2.2.2.2", &["urlprefix-/b"]),
        ];
        let table = table_of(Settings::default(), &instances, "").table;
        assert_eq!((served_by(&table, "h", "/odd"), served_by(&table, "h", "/b")), ("odd", "b"), "{weight}");
    }
}

#[test]
fn r29_delete_by_tag_and_by_destination() {
    let base = "route add web /x http://10.0.0.1:1/ tags \"blue,eu\"\nroute add web /x http://10.0.0.2:1/ tags \"green\"\nroute add db /x http://10.0.0.3:1/ tags \"eu,blue\"\n";
    for (command, left) in [
        ("route del web tags \"blue\"", vec!["http://10.0.0.2:1/", "http://10.0.0.3:1/"]),
        ("route del tags \"blue,eu\"", vec!["http://10.0.0.2:1/"]),
        ("route del web /x http://10.0.0.1:1/", vec!["http://10.0.0.2:1/", "http://10.0.0.3:1/"]),
        ("route del web /x http://10.0.0.1:1", vec!["http://10.0.0.2:1/", "http://10.0.0.3:1/"]),
        ("route del web /x http://10.0.0.1", vec!["http://10.0.0.1:1/", "http://10.0.0.2:1/", "http://10.0.0.3:1/"]),
    ] {
        let table = table(&format!("{base}{command}"));
        let got: Vec<_> = table.routes().flat_map(|r| &r.targets).map(|t| t.destination.text.as_str()).collect();
        assert_eq!(got, left, "{command}");
    }
}

#[test]
fn r30_options_belong_to_their_target() {
    let instances = [
        named_instance("a", "10.0.0.1", &["urlprefix-/x host=a.internal"]),
        named_instance("b", "10.0.0.2", &["urlprefix-/x host=b.internal strip=/x"]),
    ];
    let table = table_of(Settings::default(), &instances, "").table;
    let route = find(&table, "h", false, "/x")[0];
    for n in 0..4 {
        let target = route.pick(Turn::Nth(n)).unwrap();
        assert_eq!(target.options.host, Some(HostOption::Name(format!("{}.internal", target.service))));
        assert_eq!(target.options.strip.is_some(), &*target.service == "b");
    }
}

#[test]
fn two_tags_that_differ_in_options_are_two_targets() {
    let table = table_of(
        Settings::default(),
        &[instance(&["urlprefix-/ strip=/a", "urlprefix-/ strip=/b", "urlprefix-/ strip=/a"])],
        "",
    )
    .table;
    let targets = &find(&table, "h", false, "/")[0].targets;
    assert_eq!(targets.len(), 2);
    assert_ne!(targets[0].identity(), targets[1].identity());
}

#[test]
fn identities() {
    let of = |text: &str| {
        let table = table(text);
        let route = table.routes().next().unwrap();
        (route.identity(), route.targets[0].identity())
    };
    let base = of("route add s h/ http://a/");
    assert_eq!(base, of("route add s h/ http://a/ weight 3 tags \"x\"\nroute add t h/ http://b/"));
    for other in ["route add t h/ http://a/", "route add s h/ http://b/", "route add s h/ http://a/ opts \"x=y\""] {
        let other = of(other);
        assert_eq!(base.0, other.0);
        assert_ne!(base.1, other.1);
    }
    for other in ["route add s h/x http://a/", "route add s / http://a/"] {
        let other = of(other);
        assert_ne!(base.0, other.0);
        assert_eq!(base.1, other.1);
    }
    // The same place for another class is another route.
    assert_ne!(base.0, of("route add s h/ tcp://a:1").0);
}

#[test]
fn long_lists_of_targets_know_their_duplicates() {
    let mut text = String::new();
    for round in 0..2 {
        text.extend((0..100).map(|n| format!("route add s / http://h:{}/\n", n + 1)));
        if round == 0 {
            text.push_str("route del s / http://h:7/\n");
        }
    }
    assert_eq!(table(&text).size(), (1, 100));
}

#[test]
fn order_of_targets_is_that_of_the_lines() {
    let instances = [
        named_instance("a", "10.0.0.1", &["urlprefix-/"]),
        named_instance("b", "10.0.0.1", &["urlprefix-/"]),
        named_instance("b", "10.0.0.2", &["urlprefix-/"]),
    ];
    let want = ["http://10.0.0.2:2222/", "http://10.0.0.1:2222/", "http://10.0.0.1:2222/", "http://m/"];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let instances: Vec<_> = order.iter().map(|i| instances[*i].clone()).collect();
        let table = table_of(Settings::default(), &instances, "route add z / http://m/").table;
        let got: Vec<_> =
            find(&table, "h", false, "/")[0].targets.iter().map(|t| t.destination.text.as_str()).collect();
        assert_eq!(got, want);
    }
}

#[test]
fn bad_patterns_cost_their_commands() {
    let text = "route add a foo[.com/ http://a/\nroute add b /foo[ http://b/\nroute add c / http://c/\nroute weight b /foo[ weight 1";
    let all = built(text, Settings { matcher: Matcher::Glob, globs: true, ..Settings::default() });
    assert_eq!(all.rejects.iter().map(|r| r.origin.clone()).collect::<Vec<_>>(), [line_of(1), line_of(2)]);
    assert_eq!(all.table.size(), (1, 1));
    // A path is a pattern only for one matcher, a host only with globs.
    let some = built(text, Settings::default());
    assert_eq!(some.rejects.len(), 1);
    assert_eq!(served_by(&some.table, "h", "/foo[x"), "b");
    let none = built(text, Settings { matcher: Matcher::Prefix, globs: false, ..Settings::default() });
    assert_eq!(none.rejects, []);
    assert_eq!(served_by(&none.table, "foo[.com", "/"), "a");
}

#[test]
fn names_to_register() {
    let alias = |text: &str| table(text).aliases().iter().map(|name| name.to_string()).collect::<Vec<_>>();
    for (text, want) in [
        (r#"route add alpha-be alpha/ http://1.2.3.4/ opts "strip=/path prepend=/new proto=https""#, &[][..]),
        (
            r#"route add alpha-be alpha/ http://1.2.3.4/ opts "strip=/path prepend=/new proto=https register=alpha""#,
            &["alpha"],
        ),
        (
            "route add a a/ http://1/ opts \"register=alpha\"\nroute add b b/ http://1/ opts \"register=bravo\"\nroute add c c/ http://1/\nroute add d d/ http://1/ opts \"register=delta\"",
            &["alpha", "bravo", "delta"],
        ),
        // What was deleted is not registered.
        ("route add a a/ http://1/ opts \"register=alpha\"\nroute del a", &[]),
        (
            "route add a a/ http://1/ opts \"register=x\"\nroute add b b/ http://1/ opts \"register=x\"\nroute del a",
            &["x"],
        ),
    ] {
        assert_eq!(alias(text), want, "{text}");
    }
}
