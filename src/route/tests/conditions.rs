//! Routes with conditions beside host and path: their order, who gets there, and options from elsewhere than the tag.

use http::Request;

use super::*;

/// The service of the route that a request gets.
fn served(table: &Table, request: &str) -> String {
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut builder = Request::builder().method(method).uri(target);
    for header in words {
        let (name, value) = header.split_once(':').unwrap();
        builder = builder.header(name, value);
    }
    let (head, ()) = builder.body(()).unwrap().into_parts();
    let path = path::clean(head.uri.path());
    let found = table.http("h", false, &path.decoded).find(|route| route.fits(&head, &path.decoded));
    found.map_or_else(String::new, |route| route.targets[0].service.to_string())
}

fn build(matcher: Matcher, text: &str) -> Table {
    let parsed = parse_text(text, |line| Origin::Static { line });
    assert_eq!(parsed.rejects, []);
    let mut builder = Builder::new(Settings { matcher, globs: true, ..Settings::default() });
    builder.manual(parsed.entries);
    Table::clone(&builder.build().table)
}

const ROUTES: &str = r#"
route add plain /api http://a:1/
route add canary /api http://a:2/ opts "header=X-Canary:1"
route add both /api http://a:3/ opts "header=X-Canary:1 method=POST"
route add reads /api http://a:4/ opts "method=GET,HEAD query=fast"
route add whole /api http://a:5/ opts "path=exact cookie=beta=yes"
route add deep /api/v2 http://a:6/ opts "method=PUT"
route add all / http://a:7/
route add host h/api http://a:8/ opts "header=X-Host:yes"
"#;

#[test]
fn the_route_with_most_conditions_comes_first() {
    for matcher in [Matcher::Prefix, Matcher::IPrefix] {
        let table = build(matcher, ROUTES);
        for (request, service) in [
            ("GET /api", "plain"),
            ("GET /api X-Canary:1", "canary"),
            ("GET /api X-Canary:2", "plain"),
            ("POST /api X-Canary:1", "both"),
            ("POST /api", "plain"),
            ("GET /api?fast", "reads"),
            ("GET /api?fast X-Canary:1", "reads"),
            ("DELETE /api?fast", "plain"),
            ("GET /api Cookie:beta=yes", "whole"),
            ("GET /api/ Cookie:beta=yes", "plain"),
            ("GET /apix Cookie:beta=yes", "plain"),
            ("GET /%61pi Cookie:beta=yes", "whole"),
            ("PUT /api/v2", "deep"),
            ("GET /api/v2", "plain"),
            ("PUT /api/v2/x X-Canary:1", "deep"),
            ("GET /other", "all"),
            ("GET /api X-Host:yes", "host"),
            ("POST /api X-Host:yes X-Canary:1", "host"),
        ] {
            assert_eq!(served(&table, request), service, "{matcher:?} {request}");
        }
    }
    let table = build(Matcher::IPrefix, ROUTES);
    assert_eq!(served(&table, "GET /API Cookie:beta=yes"), "whole");
    let globs = build(Matcher::Glob, &ROUTES.replace("/api ", "/api* ").replace("/ http", "/* http"));
    for (request, service) in [
        ("GET /api/x", "plain"),
        ("GET /api/x X-Canary:1", "canary"),
        ("POST /apix X-Canary:1", "both"),
        ("GET /x", "all"),
    ] {
        assert_eq!(served(&globs, request), service, "{request}");
    }
}

#[test]
fn there_may_be_nobody_left() {
    let table = build(Matcher::Prefix, "route add a /x http://a:1/ opts \"method=POST\"");
    assert_eq!(served(&table, "POST /x"), "a");
    assert_eq!(served(&table, "GET /x"), "");
    let exact = build(
        Matcher::Prefix,
        "route add a /x http://a:1/ opts \"path=exact\"\nroute add b /ä http://a:1/ opts \"path=exact\"",
    );
    for (request, service) in
        [("GET /x", "a"), ("GET /x/", ""), ("GET /x?a", "a"), ("GET /%C3%A4", "b"), ("GET /%C3%A4a", "")]
    {
        assert_eq!(served(&exact, request), service, "{request}");
    }
}

#[test]
fn targets_of_the_same_conditions_share_a_route() {
    let text = r#"
route add a /x http://a:1/ weight 0.2
route add a /x http://a:2/
route add a /x http://a:3/ opts "method=GET,HEAD header=B"
route add a /x http://a:4/ opts "header=B method=GET,HEAD strip=/x"
route weight a /x weight 0.5
"#;
    let table = build(Matcher::Prefix, text);
    assert_eq!(table.size(), (2, 4));
    let shares: Vec<Vec<f64>> =
        table.routes().map(|route| route.targets.iter().map(|target| target.share).collect()).collect();
    // A weight is divided in each route for itself.
    assert_eq!(shares, [[0.5, 0.5], [0.5, 0.5]]);
    let identities: std::collections::BTreeSet<u128> = table.routes().map(Route::identity).collect();
    assert_eq!(identities.len(), 2);
    let listing = table.listing();
    let ports: Vec<&str> = listing.lines().map(|line| &line[line.find("a:").unwrap()..][..3]).collect();
    assert_eq!(ports, ["a:3", "a:4", "a:1", "a:2"], "{listing}");
    let again = build(Matcher::Prefix, &listing);
    assert_eq!(again.listing(), listing, "what is shown can be read");
}

#[test]
fn routes_come_and_go_one_by_one() {
    let mut builder = Builder::new(Settings::default());
    let entries = |tags: &[&str]| parse_tags(&instance(tags), "urlprefix-", "").entries;
    let all = ["urlprefix-/x", "urlprefix-/x method=GET", "urlprefix-/x header=A", "urlprefix-/x header=A method=GET"];
    for tags in [&all[..1], &all, &all[1..], &all[2..3], &[], &all[3..], &all[..2]] {
        builder.service("svc-1", entries(tags));
        let built = builder.build();
        let mut fresh = Builder::new(Settings::default());
        fresh.service("svc-1", entries(tags));
        assert_eq!(built.table.listing(), fresh.build().table.listing());
        assert_eq!(built.table.size().0, tags.len());
        for (request, wanted) in [
            ("GET /x A:1", &all[..]),
            ("GET /x", &all[..2]),
            ("POST /x A:1", &[all[0], all[2]]),
            ("POST /x", &all[..1]),
        ] {
            let some = wanted.iter().any(|tag| tags.contains(tag));
            assert_eq!(!served(&built.table, request).is_empty(), some, "{request} {tags:?}");
        }
    }
}

#[test]
fn conditions_are_for_http() {
    for tag in ["urlprefix-:1234 proto=tcp method=GET", "urlprefix-:1234 header=A", "urlprefix-/x method=get"] {
        let parsed = parse_tags(&instance(&[tag]), "urlprefix-", "");
        assert!(parsed.entries.is_empty() && parsed.rejects.len() == 1, "{tag}");
    }
    for text in ["route add a /x http://a:1/ opts \"options=e\"", "route add a :1 tcp://a:1 opts \"path=exact\""] {
        assert_eq!(parse_text(text, |line| Origin::Static { line }).rejects.len(), 1, "{text}");
    }
}

#[test]
fn options_from_elsewhere() {
    let named = Named::parse([
        ("web", "auth=basic\nstrip=/n\nrespset=X-A:b c"),
        ("secure", "deny=ip:10.0.0.0/8"),
        ("moved", "redirect=301,https://h$path"),
        ("tls", "proto=https"),
        ("bad", "no option"),
    ]);
    let with = |options: &[(&str, &str)], tag: &str| {
        let mut instance = instance(&[tag]);
        instance.options = options.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let parsed = parse_tags_with(&instance, "urlprefix-", "", &named);
        match parsed.entries.first() {
            Some(entry) => entry.command.to_string(),
            None => format!("reject: {}", parsed.rejects[0].reason),
        }
    };
    for (options, tag, want) in [
        (&[][..], "urlprefix-/", "route add svc-1 / http://1.1.1.1:2222/"),
        (&[("strip", "/m")], "urlprefix-/", r#"route add svc-1 / http://1.1.1.1:2222/ opts "strip=/m""#),
        (&[("strip", "/m")], "urlprefix-/ strip=/t", r#"route add svc-1 / http://1.1.1.1:2222/ opts "strip=/t""#),
        (
            &[("strip", "/m"), ("prepend", "/m")],
            "urlprefix-/ options=web",
            r#"route add svc-1 / http://1.1.1.1:2222/ opts "auth=basic prepend=/m respset=X-A:b%20c strip=/n""#,
        ),
        (
            &[("options", "secure")],
            "urlprefix-/",
            r#"route add svc-1 / http://1.1.1.1:2222/ opts "deny=ip:10.0.0.0/8""#,
        ),
        (
            &[("options", "secure")],
            "urlprefix-/ options=web strip=/t",
            r#"route add svc-1 / http://1.1.1.1:2222/ opts "auth=basic respset=X-A:b%20c strip=/t""#,
        ),
        (&[], "urlprefix-/ options=moved", r#"route add svc-1 / https://h$path opts "redirect=301""#),
        (&[], "urlprefix-/ options=tls", "route add svc-1 / https://1.1.1.1:2222"),
        (&[("weight", "0.5")], "urlprefix-/", "route add svc-1 / http://1.1.1.1:2222/ weight 0.5"),
        (&[("weight", "0.5")], "urlprefix-/ weight=0.1", "route add svc-1 / http://1.1.1.1:2222/ weight 0.1"),
    ] {
        assert_eq!(with(options, tag), want, "{tag}");
    }
    for (tag, why) in [
        ("urlprefix-/ options=missing", "\"missing\""),
        ("urlprefix-/ options=bad", "line 1"),
        ("urlprefix-/ options", "\"\""),
    ] {
        let got = with(&[], tag);
        assert!(got.starts_with("reject") && got.contains(why), "{tag}: {got}");
    }
}
