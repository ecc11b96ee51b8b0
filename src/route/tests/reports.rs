//! What was reported about others, where no other file of these tests has it.

use super::*;

#[test]
fn r4_a_port_in_the_request_is_compared() {
    let table = table("route add a app.example.com/ http://a/\nroute add b app.example.com:9998/ http://b/");
    for (host, want) in [("app.example.com:9999", "none"), ("app.example.com:9998", "b"), ("app.example.com", "a")] {
        assert_eq!(served_by(&table, host, "/"), want, "{host}");
    }
}

#[test]
fn r10_more_hosts_do_not_change_the_answer() {
    let mut text: String = (0..5_000).map(|n| format!("route add s{n} host-{n}.example.com/ http://h/\n")).collect();
    text.extend((0..10).map(|n| format!("route add g{n} *.g{n}.example.com/ http://g/\n")));
    let table = table(&text);
    for n in (0..5_000).step_by(7) {
        assert_eq!(served_by(&table, &format!("HOST-{n}.example.com:80"), "/x"), format!("s{n}"));
    }
    assert_eq!(served_by(&table, "x.y.g7.example.com", "/"), "g7");
    assert_eq!(table.size(), (5_010, 5_010));
}

#[test]
fn r16_strip_that_eats_the_whole_path_leaves_a_slash() {
    let table = table_of(Settings::default(), &[instance(&["urlprefix-/foo strip=/foo"])], "").table;
    for (request, sent) in [("/foo", "/"), ("/foo/", "/"), ("/foobar", "/bar"), ("/foo/x", "/x")] {
        let path = path::clean(request);
        let route = table.http("h", false, &path.decoded).next().unwrap();
        assert_eq!(path.forward(&route.targets[0].options), sent);
    }
}

#[test]
fn r25_a_count_that_goes_on_keeps_the_turn_through_rebuilds() {
    // The caller keeps the count of a route by its identity.
    let mut builder = Builder::new(Settings::default());
    let all: Vec<Entry> = (0..10)
        .flat_map(|n| {
            parse_tags(&named_instance("web", &format!("10.0.0.{n}"), &["urlprefix-/"]), "urlprefix-", "").entries
        })
        .collect();
    let (mut count, mut served) = (0, std::collections::HashMap::new());
    let mut identity = None;
    for round in 0..1000 {
        builder.service("web", all.clone());
        builder.manual(commands(&format!("route add other /other http://h:{}/", round + 1)));
        let table = builder.build().table;
        let route = find(&table, "h", false, "/")[0];
        assert_eq!(*identity.get_or_insert(route.identity()), route.identity());
        for _ in 0..3 {
            *served.entry(route.pick(Turn::Nth(count)).unwrap().identity()).or_insert(0) += 1;
            count += 1;
        }
    }
    assert_eq!(served.len(), 10);
    assert!(served.values().all(|n| *n == 300));
}

#[test]
fn r35_a_host_without_a_slash() {
    let table =
        table_of(Settings::default(), &[instance(&["urlprefix-app.example.com", "urlprefix-", "urlprefix-foo"])], "")
            .table;
    let sources: Vec<String> = table.routes().map(|r| format!("{}{}", r.host, r.path)).collect();
    assert_eq!(sources, ["app.example.com/", "foo/"]);
}

#[test]
fn r39_addresses_of_ipv6() {
    for (address, text, host) in [
        ("2001:db8::5", "http://[2001:db8::5]:2222/", "2001:db8::5"),
        ("fe80::1%eth0", "http://[fe80::1%25eth0]:2222/", "fe80::1%eth0"),
    ] {
        let table = table_of(Settings::default(), &[named_instance("a", address, &["urlprefix-/"])], "").table;
        let target = &table.routes().next().unwrap().targets[0];
        assert_eq!((target.destination.text.as_str(), target.destination.host.as_str()), (text, host));
        assert!(table.listing().contains(text));
    }
}

#[test]
fn r40_an_instance_without_a_port_is_skipped_with_a_reason() {
    let mut zero = instance(&["urlprefix-/zero"]);
    zero.port = 0;
    let parsed = parse_tags(&zero, "urlprefix-", "");
    assert_eq!((parsed.entries.len(), parsed.rejects.len()), (0, 1));
    assert!(parsed.rejects[0].reason.contains("no port"));
    assert_eq!(parsed.rejects[0].text, "urlprefix-/zero");
}

#[test]
fn r93_rules_fail_closed() {
    let access = |rules: &str| {
        let parsed = parse_tags(&instance(&[&format!("urlprefix-/a {rules}")]), "urlprefix-", "");
        let Command::Add(add) = &parsed.entries[0].command else { panic!() };
        (add.options.access.clone(), parsed.rejects.len())
    };
    let permits = |access: &Access, address: &str| access.permits(address.parse().unwrap());
    let (rules, rejects) = access("allow=ip:10.0.0.0/8,ip:2001:db8::/32");
    assert_eq!(rejects, 0);
    for (address, want) in
        [("10.1.1.1", true), ("192.0.2.1", false), ("::ffff:10.1.1.1", true), ("2001:db8::7", true), ("::1", false)]
    {
        assert_eq!(permits(&rules, address), want, "{address}");
    }
    for bad in ["allow=ip:bogus", "allow=ip:10.0.0.0/8 deny=ip:10.0.0.1", "deny=bogus", "allow="] {
        let (rules, rejects) = access(bad);
        assert!(!permits(&rules, "10.1.1.1") && rejects == 1, "{bad}");
    }
}

#[test]
fn thousands_of_paths_within_each_other() {
    // What the deepest tree looks like: nothing here may depend on the stack.
    let long = "a".repeat(2046);
    let text: String = (1..2046).map(|n| format!("route add s /{} http://h/\n", &long[..n])).collect();
    let table = table(&text);
    let path = format!("/{long}");
    let lengths: Vec<usize> = table.http("h", false, path.as_bytes()).take(3).map(|route| route.path.len()).collect();
    assert_eq!(lengths, [2046, 2045, 2044]);
    assert_eq!(table.routes().count(), 2045);
}
