//! Tags of an instance: what command each becomes, and what costs only itself.

use super::*;

/// Commands in the route language, and reasons of rejects.
fn read(instance: &Instance, prefix: &str, dc: &str) -> (Vec<String>, Vec<String>) {
    let parsed = parse_tags(instance, prefix, dc);
    let lines = parsed.entries.iter().map(|entry| entry.command.to_string()).collect();
    (lines, parsed.rejects.into_iter().map(|reject| reject.reason).collect())
}

fn lines(tags: &[&str]) -> Vec<String> {
    let (lines, rejects) = read(&instance(tags), "urlprefix-", "FRA1");
    assert_eq!(rejects, [""; 0], "{tags:?}");
    lines
}

/// The reason why a tag is refused. Another tag of the instance must not suffer.
fn refused(tag: &str) -> String {
    let (lines, rejects) = read(&instance(&[tag, "urlprefix-/good"]), "urlprefix-", "FRA1");
    assert!(lines.len() == 1 && lines[0].contains("/good"), "{tag}: {lines:?}");
    assert_eq!(rejects.len(), 1, "{tag}: {rejects:?}");
    rejects[0].clone()
}

#[test]
fn tags_and_their_commands() {
    for (tags, want) in [
        (&["urlprefix-foo/bar"][..], &["route add svc-1 foo/bar http://1.1.1.1:2222/"][..]),
        (&[" urlprefix-foo/bar"], &["route add svc-1 foo/bar http://1.1.1.1:2222/"]),
        (
            &["urlprefix-foo/bar", "  urlprefix-test/foo"],
            &["route add svc-1 foo/bar http://1.1.1.1:2222/", "route add svc-1 test/foo http://1.1.1.1:2222/"],
        ),
        (&["urlprefix-:1234 proto=tcp"], &["route add svc-1 :1234 tcp://1.1.1.1:2222"]),
        (&["urlprefix-:1234"], &["route add svc-1 :1234 http://1.1.1.1:2222/"]),
        (&["urlprefix-/foo strip=/foo"], &[r#"route add svc-1 /foo http://1.1.1.1:2222/ opts "strip=/foo""#]),
        (
            &["urlprefix-/foo proto=https tlsskipverify=true"],
            &[r#"route add svc-1 /foo https://1.1.1.1:2222 opts "tlsskipverify=true""#],
        ),
        (&["urlprefix-/foo proto=http"], &[r#"route add svc-1 /foo http://1.1.1.1:2222/ opts "proto=http""#]),
        (
            &["urlprefix-/foo weight=0.2 strip=/x", "v1", "dc-fra"],
            &[r#"route add svc-1 /foo http://1.1.1.1:2222/ weight 0.2 tags "v1,dc-fra" opts "strip=/x""#],
        ),
        (
            &["urlprefix-www.bar.com:80/foo redirect=302,https://www.bar.com"],
            &[r#"route add svc-1 www.bar.com:80/foo https://www.bar.com opts "redirect=302""#],
        ),
        (
            &["urlprefix-/p redirect=303,https://www.foo.com$path"],
            &[r#"route add svc-1 /p https://www.foo.com$path opts "redirect=303""#],
        ),
        (&["urlprefix-${DC}.example.com/$DC"], &["route add svc-1 fra1.example.com/FRA1 http://1.1.1.1:2222/"]),
        (&["urlprefix-/a b c"], &[r#"route add svc-1 /a http://1.1.1.1:2222/ opts "b= c=""#]),
        (
            &["urlprefix-/p proto=https redirect=301,http://x/"],
            &[r#"route add svc-1 /p http://x/ opts "redirect=301""#],
        ),
        (
            &["urlprefix-/p redirect=301,http://x/ proto=https"],
            &[r#"route add svc-1 /p https://1.1.1.1:2222 opts "redirect=301""#],
        ),
        (&["urlprefix-/p weight=1 weight=2"], &["route add svc-1 /p http://1.1.1.1:2222/ weight 2"]),
        (&["urlprefix-/p proto=h2c"], &[r#"route add svc-1 /p http://1.1.1.1:2222/ opts "proto=h2c""#]),
        (
            &["urlprefix-:80/ redirect=301,https://$host$path"],
            &[r#"route add svc-1 :80/ https://$host$path opts "redirect=301""#],
        ),
        // A quote in a tag is a quote in a tag.
        (&["urlprefix-/foo", "note=\"x\""], &[r#"route add svc-1 /foo http://1.1.1.1:2222/ tags "note=\"x\"""#]),
    ] {
        assert_eq!(lines(tags), want, "{tags:?}");
    }
}

#[test]
fn sources_of_tags() {
    for (tag, source, options) in [
        ("p-/", "/", ""),
        (" p-/", "/", ""),
        ("p-/ ", "/", ""),
        ("p- / ", "/", ""),
        ("p-/foo", "/foo", ""),
        ("p- /foo", "/foo", ""),
        ("p-1.1.1.1:999", "1.1.1.1:999/", ""),
        ("p-foo.com", "foo.com/", ""),
        ("p-bar/foo", "bar/foo", ""),
        ("p-bar/foo/foo", "bar/foo/foo", ""),
        ("p-WWW.BAR.COM/Foo/foo", "www.bar.com/Foo/foo", ""),
        ("p-Foo.com", "foo.com/", ""),
        ("p-bar/foo a b c", "bar/foo", "a= b= c="),
        ("p-$x/$y", "/", ""),
        ("p-${x}/${y}", "/", ""),
        ("p-$DC/$DC", "xx/Xx", ""),
        ("p-${DC}/${DC}x", "xx/Xxx", ""),
        ("p-$DCx/$DC_/$DC-/$DC.", "/", ""),
        ("p-/$9x$*y$$z${}a$.b$", "/xyza$.b$", ""),
        ("p-/a${DC", "/aDC", ""),
        ("p-/a strip=$DC", "/a", "strip=$DC"),
        // Only host and path are expanded.
        ("p-$DC", "$dc/", ""),
    ] {
        let parsed = parse_tags(&instance(&[tag]), "p-", "Xx");
        let Some(Entry { command: Command::Add(add), .. }) = parsed.entries.first() else {
            panic!("{tag}: {parsed:?}")
        };
        let want = if tag.starts_with("p-$DCx") { "//Xx-/Xx." } else { source };
        assert_eq!((add.source.to_string().as_str(), add.options.text().as_str()), (want, options), "{tag}");
    }
    assert_eq!(parse_tags(&instance(&["p"]), "p-", "Xx"), Parsed::default());
}

#[test]
fn bad_tags_cost_themselves() {
    for (tag, hint) in [
        ("urlprefix-", "missing behind the prefix"),
        ("urlprefix-  ", "missing behind the prefix"),
        ("urlprefix-/foo weight=abc", "weight value invalid"),
        ("urlprefix-/foo weight=NaN", "weight value invalid"),
        ("urlprefix-/foo weight=Inf", "weight value invalid"),
        ("urlprefix-/p redirect=301", "write redirect=301,https://"),
        ("urlprefix-/p redirect", "write redirect=301,https://"),
        ("urlprefix-/p redirect=,http://x/a", "no code from 300 to 399"),
        ("urlprefix-/p redirect=999,http://x", "no code from 300 to 399"),
        ("urlprefix-/p redirect=abc,http://x", "no code from 300 to 399"),
        ("urlprefix-/p redirect=0301,http://x", "no code from 300 to 399"),
        ("urlprefix-/p redirect=301,x.com", "write http://x.com/"),
        ("urlprefix-/p redirect=301,tcp://x:1", "needs an http or https URL"),
        ("urlprefix-:port proto=tcp", "is not a port"),
        ("urlprefix-/p redirect=301,grpc://x", "needs an http or https URL"),
        ("urlprefix-/c\thttp://1.1.1.1:1/\nroute\tdel\tvictim\n#", "line breaks"),
        ("urlprefix-/c\x01", "control characters"),
        ("urlprefix-/c host=\x7f", "control characters"),
        ("urlprefix-/c host=müller.de", "no host name"),
    ] {
        let reason = refused(tag);
        assert!(reason.contains(hint), "{tag}: {reason}");
    }
}

#[test]
fn addresses_of_instances() {
    let mut instance = instance(&["urlprefix-/a", "urlprefix-/r redirect=301,http://x/"]);
    for (address, port, want) in [
        ("10.9.8.7", 1, Some("http://10.9.8.7:1/")),
        ("fe80::1", 2222, Some("http://[fe80::1]:2222/")),
        ("fe80::1%eth0", 2222, Some("http://[fe80::1%25eth0]:2222/")),
        ("", 1, None),
        ("10.9.8.7", 0, None),
    ] {
        instance.address = address.to_owned();
        instance.port = port;
        let (lines, rejects) = read(&instance, "urlprefix-", "");
        // A redirect needs no address.
        assert!(lines.last().unwrap().contains("http://x/"));
        match want {
            Some(want) => assert!(lines[0].ends_with(want), "{lines:?}"),
            None => assert_eq!((lines.len(), rejects.len()), (1, 1), "{lines:?} {rejects:?}"),
        }
    }
}

#[test]
fn rules_that_cannot_be_read_deny_and_are_reported() {
    for options in ["allow=ip:1.2.3.4,5.6.7.8", "deny=xx:1.2.3.4", "allow=ip:1.2.3.4 deny=ip:1.2.3.4"] {
        let parsed = parse_tags(&instance(&[&format!("urlprefix-/a {options}")]), "urlprefix-", "");
        let Command::Add(add) = &parsed.entries[0].command else { panic!() };
        assert!(
            !add.options.access.permits("1.2.3.4".parse().unwrap())
                && !add.options.access.permits("9.9.9.9".parse().unwrap())
        );
        assert!(parsed.rejects[0].reason.contains("denies everybody"), "{:?}", parsed.rejects);
    }
}

#[test]
fn r21_a_redirect_url_may_hold_commas() {
    assert_eq!(
        lines(&["urlprefix-/p redirect=301,https://x.example.com/?a=1,2"]),
        [r#"route add svc-1 /p https://x.example.com/?a=1,2 opts "redirect=301""#]
    );
}

#[test]
fn r28_odd_weights() {
    for (weight, want) in
        [("-1", Weight::Automatic), ("", Weight::Automatic), ("0", Weight::Excluded), ("1e308", Weight::Fixed(1e308))]
    {
        let parsed = parse_tags(&instance(&[&format!("urlprefix-/a weight={weight}")]), "urlprefix-", "");
        let Command::Add(add) = &parsed.entries[0].command else { panic!() };
        assert_eq!(add.weight, want, "{weight}");
    }
}

#[test]
fn r33_white_space_around_and_inside() {
    assert_eq!(
        lines(&[
            " urlprefix-/a ",
            "urlprefix- /b",
            "urlprefix-/c   strip=/c  weight=0.5 ",
            "urlprefix-/d\tstrip=/d\t weight=2"
        ]),
        [
            "route add svc-1 /a http://1.1.1.1:2222/",
            "route add svc-1 /b http://1.1.1.1:2222/",
            r#"route add svc-1 /c http://1.1.1.1:2222/ weight 0.5 opts "strip=/c""#,
            r#"route add svc-1 /d http://1.1.1.1:2222/ weight 2 opts "strip=/d""#,
        ]
    );
}

#[test]
fn r34_a_value_may_hold_equals_signs() {
    assert_eq!(
        lines(&["urlprefix-/x redirect=302,https://h.example.com/?a=b&c=d"]),
        [r#"route add svc-1 /x https://h.example.com/?a=b&c=d opts "redirect=302""#]
    );
}

#[test]
fn r36_a_rule_cut_at_its_comma_is_a_service_tag() {
    assert_eq!(
        lines(&["urlprefix-/x allow=ip:192.0.2.0/24", "ip:198.51.100.0/24"]),
        [r#"route add svc-1 /x http://1.1.1.1:2222/ tags "ip:198.51.100.0/24" opts "allow=ip:192.0.2.0/24""#]
    );
}

#[test]
fn r37_service_names_that_are_no_words() {
    for name in ["my svc", "a#b", "weight", "tags", "web\"x", "a\nb", "é"] {
        let mut odd = instance(&["urlprefix-/odd"]);
        odd.service = name.into();
        let built =
            table_of(Settings::default(), &[odd, named_instance("other", "2.2.2.2", &["urlprefix-/other"])], "");
        assert_eq!(built.rejects, []);
        assert_eq!(served_by(&built.table, "h", "/odd"), name);
        assert_eq!(served_by(&built.table, "h", "/other"), "other");
        assert_eq!(built.table.listing().lines().count(), 2, "{name}");
    }
    assert_eq!(lines(&["urlprefix-/x"])[0].split(' ').count(), 5);
}

#[test]
fn what_is_nearly_a_route_tag_is_told_and_stays_a_service_tag() {
    let (lines, rejects) = read(&instance(&["URLPREFIX-/foo", "urlprefix-/x"]), "urlprefix-", "");
    assert_eq!(lines, [r#"route add svc-1 /x http://1.1.1.1:2222/ tags "URLPREFIX-/foo""#]);
    assert!(matches!(&rejects[..], [reason] if reason.contains("does not begin with")), "{rejects:?}");
}

#[test]
fn what_does_nothing_is_told_and_costs_no_route() {
    for (tag, told) in [
        ("urlprefix-/a stirp=/a", "did you mean strip?"),
        ("urlprefix-/a tlsskipverify=1", "tlsskipverify=true"),
        ("urlprefix-/a/../b", "a dot segment"),
        ("urlprefix-http://a.com/b", "a double slash"),
    ] {
        let (lines, rejects) = read(&instance(&[tag]), "urlprefix-", "");
        assert_eq!(lines.len(), 1, "{tag}");
        assert!(matches!(&rejects[..], [reason] if reason.contains(told)), "{tag}: {rejects:?}");
    }
    for (tag, told) in [("urlprefix-/a secure=1", "secure=\"1\""), ("urlprefix-/a compress=no", "compress=\"no\"")] {
        let (lines, rejects) = read(&instance(&[tag]), "urlprefix-", "");
        assert_eq!(lines.len(), 0, "{tag}");
        assert!(matches!(&rejects[..], [reason] if reason.contains(told)), "{tag}: {rejects:?}");
    }
}
