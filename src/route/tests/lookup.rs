//! Which route a request gets.

use super::*;

const TABLE_A: &str = "
    route add s / http://foo.com:800
    route add s /foo http://foo.com:900
    route add s abc.com/ http://foo.com:1000
    route add s abc.com/foo http://foo.com:1500
    route add s abc.com/foo/ http://foo.com:2000
    route add s abc.com/foo/bar http://foo.com:2500
    route add s abc.com/foo/bar/ http://foo.com:3000
    route add s z.abc.com/foo/ http://foo.com:3100
    route add s *.abc.com/ http://foo.com:4000
    route add s *.abc.com/foo/ http://foo.com:5000
    route add s *.aaa.abc.com/ http://foo.com:6000
    route add s *.bbb.abc.com/ http://foo.com:6100
    route add s xyz.com:80/ https://xyz.com";

#[test]
fn table_a() {
    let table = table(TABLE_A);
    for (host, tls, path, want) in [
        ("abc.com", false, "/", "http://foo.com:1000"),
        ("abc.com", false, "/bar", "http://foo.com:1000"),
        ("abc.com", false, "/foo", "http://foo.com:1500"),
        ("abc.com", false, "/foo/", "http://foo.com:2000"),
        ("abc.com", false, "/foo/bar", "http://foo.com:2500"),
        ("abc.com", false, "/foo/bar/", "http://foo.com:3000"),
        ("def.com", false, "/", "http://foo.com:800"),
        ("def.com", false, "/bar", "http://foo.com:800"),
        ("def.com", false, "/foo", "http://foo.com:900"),
        ("abc.com:80", false, "/", "http://foo.com:1000"),
        ("abc.com:443", true, "/", "http://foo.com:1000"),
        ("abc.com:443", false, "/", "http://foo.com:800"),
        ("abc.com:80", true, "/", "http://foo.com:800"),
        ("x.abc.com", false, "/", "http://foo.com:4000"),
        ("y.abc.com", false, "/abc", "http://foo.com:4000"),
        ("x.abc.com", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com", false, "/foo/", "http://foo.com:5000"),
        (".abc.com", false, "/foo/", "http://foo.com:5000"),
        ("x.y.abc.com", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com:80", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com:443", true, "/foo/", "http://foo.com:5000"),
        ("x.aaa.abc.com", false, "/", "http://foo.com:6000"),
        ("x.aaa.abc.com", false, "/foo", "http://foo.com:6000"),
        ("x.bbb.abc.com", false, "/", "http://foo.com:6100"),
        ("x.bbb.abc.com", false, "/foo", "http://foo.com:6100"),
        ("z.abc.com", false, "/foo/", "http://foo.com:3100"),
        ("z.abc.com", false, "/", "http://foo.com:4000"),
        ("xyz.com", false, "/", "https://xyz.com"),
        ("xyz.com", true, "/", "http://foo.com:800"),
    ] {
        assert_eq!(first(&table, host, tls, path), want, "{host} {tls} {path}");
    }
}

#[test]
fn table_c_without_globs() {
    let table = without_globs(
        "route add r example.com:80/ https://example.com$path opts \"redirect=301\"\nroute add a example.com/ http://127.0.0.1:3000/",
    );
    assert_eq!(first(&table, "example.com", false, "/foo"), "https://example.com$path");
    assert_eq!(first(&table, "example.com", true, "/foo"), "http://127.0.0.1:3000/");
}

#[test]
fn default_ports_may_be_left_out() {
    let table =
        table("route add a foo.com/ http://a/\nroute add b foo.com:81/ http://b/\nroute add c foo.com:444/ http://c/");
    for (host, tls, want) in [
        ("foo.com", false, "http://a/"),
        ("foo.com:80", false, "http://a/"),
        ("foo.com:81", false, "http://b/"),
        ("foo.com", true, "http://a/"),
        ("foo.com:443", true, "http://a/"),
        ("foo.com:444", true, "http://c/"),
        ("foo.com:443", false, "none"),
        ("foo.com:80", true, "none"),
        ("foo.com:9999", false, "none"),
        ("foo.com.", false, "none"),
        ("", false, "none"),
    ] {
        assert_eq!(first(&table, host, tls, "/"), want, "{host} {tls}");
    }
}

#[test]
fn a_route_with_the_other_default_port_is_found_by_its_name_only() {
    let table = table("route add a foo.com:443/ http://a/\nroute add b foo.com:80/ http://b/");
    for (host, tls, want) in [
        ("foo.com:443", false, "http://a/"),
        ("foo.com", false, "http://b/"),
        ("foo.com", true, "http://a/"),
        ("foo.com:80", true, "http://b/"),
    ] {
        assert_eq!(first(&table, host, tls, "/"), want, "{host} {tls}");
    }
}

#[test]
fn matchers() {
    for (matcher, pattern, yes, no) in [
        (Matcher::Prefix, "/foo", &["/foo", "/fools"][..], &["/fo", "/bar", "/Foo"][..]),
        (Matcher::Glob, "/foo", &["/foo"], &["/fo", "/fools"]),
        (Matcher::Glob, "/foo?", &["/fool"], &["/foo"]),
        (Matcher::Glob, "/foo*", &["/fool", "/fools"], &["/fo"]),
        (Matcher::Glob, "/foo.*", &["/foo.x"], &["/fools"]),
        (Matcher::Glob, "/foo/*/bar", &["/foo/x/bar"], &["/foo/bar"]),
        (Matcher::Glob, "/foo/**", &["/foo/x/y/z/w/bar"], &["/foo"]),
        (Matcher::Glob, "/foo/**/bar", &["/foo/x/y/z/w/bar"], &["/foo/x/y/z/w/baz"]),
        (Matcher::Glob, "*.png", &["/x.png"], &["/x.pngs"]),
        (Matcher::IPrefix, "/fool", &["/fool"], &["/foo"]),
        (Matcher::IPrefix, "/foo", &["/foo", "/Fool"], &["/fo"]),
        (Matcher::IPrefix, "/Foo", &["/foo"], &["/fo"]),
        (Matcher::IPrefix, "/CAFÉ", &["/café/x", "/caf%C3%A9", "/CAF%C3%89"], &["/cafe"]),
    ] {
        // A source without a host begins with a slash; this one is any host.
        let table = with_matcher(
            matcher,
            &format!(
                "route add s {} http://h/",
                if pattern.starts_with('/') { pattern.to_owned() } else { format!("/{pattern}") }
            ),
        );
        for path in yes {
            assert_eq!(first(&table, "h", false, path), "http://h/", "{matcher:?} {pattern} {path}");
        }
        for path in no {
            assert_eq!(first(&table, "h", false, path), "none", "{matcher:?} {pattern} {path}");
        }
    }
}

#[test]
fn every_route_that_fits_in_order() {
    let table = table(
        "route add s / http://1/
         route add s /a http://2/
         route add s h.com/ http://3/
         route add s h.com/a/b http://4/
         route add s h.com/a http://5/
         route add s h.com/ab http://6/
         route add s h.com:80/a http://7/
         route add s *.com/ http://8/
         route add s *.com/a/ http://9/
         route add s *:80/ http://10/
         route add s :80/a http://11/
         route add s *h.com/a http://12/
         route add s h.com/ tcp://13:1",
    );
    let all: Vec<&str> =
        find(&table, "H.com", false, "/a/b/c").iter().map(|r| r.targets[0].destination.authority.as_str()).collect();
    assert_eq!(all, ["7", "4", "5", "3", "12", "9", "8", "11", "10", "2", "1"]);
}

#[test]
fn order_of_patterns_is_by_reversed_host() {
    // Each host alone for request a.b.example.com, most specific first.
    let hosts = [
        "a.b.example.com",
        "?.b.example.com",
        "[a-z].b.example.com",
        "*.b.example.com",
        "*b.example.com",
        "*.example.com",
        "*.example.*",
        "*.{com,org}",
        "a.*",
        "*",
        "**",
    ];
    let mut text: String = hosts.iter().map(|host| format!("route add s {host}/ http://h/\n")).collect();
    text.push_str("route add s / http://h/");
    let table = table(&text);
    let got: Vec<&str> = find(&table, "a.b.example.com", false, "/").iter().map(|r| &*r.host).collect();
    // By descending bytes of the reversed text: a closing brace sorts high, a star low.
    let mut want = hosts[1..].to_vec();
    want.sort_by_key(|host| std::cmp::Reverse(host.chars().rev().collect::<String>()));
    want.insert(0, "a.b.example.com");
    want.push("");
    assert_eq!(got, want);
}

#[test]
fn a_literal_host_goes_before_any_pattern() {
    let table = table(
        "route add a foo.com/ http://a/\nroute add b *foo.com/ http://b/\nroute add c 1.org/ http://c/\nroute add d ?.org/ http://d/\nroute add e foo.{com,net}/ http://e/",
    );
    for (host, want) in [("foo.com", "a"), ("xfoo.com", "b"), ("1.org", "c"), ("2.org", "d"), ("foo.net", "e")] {
        assert_eq!(served_by(&table, host, "/"), want, "{host}");
    }
}

#[test]
fn any_host_on_the_default_port() {
    let table = table("route add a *:80/ http://a/\nroute add b foo.com/ http://b/");
    for (host, tls, want) in [
        ("bar.com", false, "http://a/"),
        ("bar.com:81", false, "http://a/"),
        ("foo.com", false, "http://b/"),
        ("bar.com", true, "none"),
        ("bar.com:80", true, "http://a/"),
    ] {
        assert_eq!(first(&table, host, tls, "/"), want, "{host} {tls}");
    }
}

#[test]
fn ports_of_patterns() {
    let table = table(
        "route add a *.x.com:8080/ http://a/\nroute add b *.x.com/ http://b/\nroute add c *:8080/ http://c/\nroute add d *.x.com:443/ http://d/",
    );
    for (host, tls, want) in [
        ("h.x.com:8080", false, "http://a/"),
        ("h.x.com", false, "http://b/"),
        ("h.x.com:80", false, "http://b/"),
        ("y.com:8080", false, "http://c/"),
        ("h.x.com", true, "http://d/"),
        ("h.x.com:443", true, "http://d/"),
        ("h.x.com:443", false, "http://d/"),
    ] {
        assert_eq!(first(&table, host, tls, "/"), want, "{host} {tls}");
    }
}

#[test]
fn without_globs_patterns_are_names() {
    let table = without_globs(
        "route add a *.foo.com/ http://a/\nroute add b foo.com/ http://b/\nroute add c / http://c/\nroute add d foo[.com/ http://d/",
    );
    for (host, want) in [
        ("x.foo.com", "c"),
        ("foo.com", "b"),
        ("FOO.com", "b"),
        ("*.foo.com", "a"),
        ("foo.com:80", "b"),
        ("foo[.com", "d"),
    ] {
        assert_eq!(served_by(&table, host, "/"), want, "{host}");
    }
}

#[test]
fn hosts_that_are_odd() {
    let long = "a".repeat(300);
    let table = table(&format!(
        "route add a {long}.com/ http://a/\nroute add b münchen.de/ http://b/\nroute add c *.münchen.de/ http://c/\nroute add d / http://d/"
    ));
    for (host, want) in [
        (format!("{}.COM", long.to_uppercase()), "a"),
        (format!("{long}.com:80"), "a"),
        ("MÜNCHEN.de".to_owned(), "b"),
        ("x.MÜNCHEN.de:80".to_owned(), "c"),
        (":80".to_owned(), "d"),
        (":".to_owned(), "d"),
        ("[".to_owned(), "d"),
        ("*".to_owned(), "d"),
        ("\0".to_owned(), "d"),
    ] {
        assert_eq!(served_by(&table, &host, "/"), want, "{host}");
    }
}

#[test]
fn tcp_keys() {
    let table = table(
        "route add a :1234 tcp://a:1
         route add b :1235 http://b/
         route add c 10.0.0.1:1234 tcp://c:1
         route add d 10.0.0.1:1235 http://d/
         route add e H.example.com/ tcp://e:1
         route add f h.example.com/ http://f/
         route add g only.example.com/ http://g/
         route add h *.example.com/ tcp://h:1
         route add i path.example.com/x tcp://i:1
         route add j :80/ http://j/
         route add k both.example.com tcp://k:1",
    );
    for (key, want) in [
        (":1234", "a"),
        (":1235", "b"),
        ("10.0.0.1:1234", "c"),
        ("10.0.0.1:1235", "none"),
        ("h.example.com", "e"),
        ("H.EXAMPLE.COM", "e"),
        ("only.example.com", "none"),
        ("x.example.com", "none"),
        ("path.example.com", "none"),
        (":80", "none"),
        ("both.example.com", "k"),
        ("", "none"),
        (":1", "none"),
    ] {
        assert_eq!(table.tcp(key).map_or("none", |route| &route.targets[0].service), want, "{key}");
    }
    assert!(table.tcp(&"x".repeat(1000)).is_none() && table.tcp("é").is_none());
    // A bare port is nothing for HTTP.
    assert_eq!(served_by(&table, "h:1235", "/"), "none");
    assert_eq!(served_by(&table, ":1235", "/"), "none");
}

#[test]
fn r1_the_longer_pattern_wins_in_any_order() {
    let wide = named_instance("gen", "10.0.0.1", &["urlprefix-*.example.com/x"]);
    let spec = named_instance("spec", "10.0.0.2", &["urlprefix-*.edge.example.com/x"]);
    for instances in [[wide.clone(), spec.clone()], [spec, wide]] {
        for _ in 0..20 {
            let table = table_of(Settings::default(), &instances, "").table;
            assert_eq!(served_by(&table, "a.edge.example.com", "/x"), "spec");
            assert_eq!(served_by(&table, "a.example.com", "/x"), "gen");
        }
    }
}

#[test]
fn r2_an_exact_host_beats_a_pattern_in_every_rebuild() {
    for _ in 0..100 {
        let table = table("route add a *.example.com/ http://a/\nroute add b www.example.com/ http://b/");
        assert_eq!(served_by(&table, "www.example.com", "/"), "b");
    }
}

#[test]
fn r3_a_redirect_on_port_80_beside_the_service() {
    let web = named_instance(
        "web",
        "10.0.0.1",
        &["urlprefix-app.example.com:80/ redirect=301,https://app.example.com$path", "urlprefix-app.example.com/"],
    );
    let table = table_of(Settings::default(), &[web], "").table;
    assert_eq!(first(&table, "app.example.com", false, "/a"), "https://app.example.com$path");
    assert_eq!(first(&table, "app.example.com", true, "/a"), "http://10.0.0.1:2222/");
}

#[test]
fn r5_hosts_compare_without_case() {
    for globs in [true, false] {
        let settings = Settings { matcher: Matcher::Prefix, globs, ..Settings::default() };
        let table =
            table_of(settings, &[named_instance("a", "1.1.1.1", &["urlprefix-App.Example.COM/Path"])], "").table;
        assert_eq!(served_by(&table, "aPP.example.com", "/Path"), "a");
        assert_eq!(served_by(&table, "aPP.example.com", "/path"), "none");
    }
}

#[test]
fn r6_paths_without_case_only_with_iprefix() {
    for (matcher, want) in [(Matcher::IPrefix, "a"), (Matcher::Prefix, "none")] {
        assert_eq!(served_by(&with_matcher(matcher, "route add a /Foo http://a/"), "h", "/fOO/bar"), want);
    }
}

#[test]
fn r8_the_longest_path_wins_and_hosts_go_first() {
    let base = "route add a / http://a/\nroute add b /api http://b/\nroute add c /api/v2 http://c/\n";
    let wide = table(&format!("{base}route add d h.example.com/ http://d/"));
    for (host, path, want) in [
        ("other", "/api/v2/x", "c"),
        ("other", "/api/v1", "b"),
        ("other", "/z", "a"),
        ("h.example.com", "/api/v2/x", "d"),
    ] {
        assert_eq!(served_by(&wide, host, path), want);
    }
    let narrow = table(&format!("{base}route add d h.example.com/only http://d/"));
    assert_eq!(served_by(&narrow, "h.example.com", "/api"), "b");
}

#[test]
fn r9_stars_cross_slashes() {
    let table = with_matcher(Matcher::Glob, "route add a /foo/*/bar http://a/\nroute add b /x/{a,b}* http://b/");
    for (path, want) in [("/foo/1/bar", "a"), ("/foo/1/2/bar", "a"), ("/foo/1/bar/x", "none"), ("/x/b1", "b")] {
        assert_eq!(served_by(&table, "h", path), want);
    }
    let plain = super::table("route add a /foo/*/bar http://a/");
    assert_eq!((served_by(&plain, "h", "/foo/1/bar"), served_by(&plain, "h", "/foo/*/bar/x")), ("none", "a"));
}

#[test]
fn r11_an_ipv6_host_is_no_list_of_characters() {
    for table in [
        table("route add a [2001:db8::1]/ http://a/\nroute add b [2001:DB8::1]:8080/ http://b/"),
        without_globs("route add a [2001:db8::1]/ http://a/\nroute add b [2001:DB8::1]:8080/ http://b/"),
    ] {
        for (host, want) in [
            ("[2001:db8::1]", "a"),
            ("[2001:DB8::1]:80", "a"),
            ("[2001:db8::1]:8080", "b"),
            ("2", "none"),
            ("d", "none"),
        ] {
            assert_eq!(served_by(&table, host, "/"), want, "{host}");
        }
    }
}

#[test]
fn r13_http_and_tcp_do_not_mix() {
    let instances = [
        named_instance("w", "10.0.0.1", &["urlprefix-h.example.com/"]),
        named_instance("t", "10.0.0.2", &["urlprefix-h.example.com/ proto=tcp"]),
    ];
    let table = table_of(Settings::default(), &instances, "").table;
    let http = find(&table, "h.example.com", false, "/");
    assert_eq!((http.len(), http[0].targets.len(), &*http[0].targets[0].service), (1, 1, "w"));
    let tcp = table.tcp("h.example.com").unwrap();
    assert_eq!((tcp.targets.len(), &*tcp.targets[0].service), (1, "t"));
    assert_eq!(table.size(), (2, 2));
}

#[test]
fn r14_everything_on_a_port() {
    let table = table(
        "route add redir :80/ https://$host$path opts \"redirect=301\"\nroute add a a.com/x http://a/\nroute add b *.b.com/ http://b/\nroute add c 10.0.0.*/ http://c/\nroute add d / http://d/",
    );
    for (host, tls, path, want) in [
        ("any.org", false, "/", "https://$host$path"),
        ("any.org:80", false, "/", "https://$host$path"),
        ("", false, "/", "https://$host$path"),
        ("any.org:81", false, "/", "http://d/"),
        ("any.org", true, "/", "http://d/"),
        ("any.org:80", true, "/", "https://$host$path"),
        ("a.com", false, "/x", "http://a/"),
        ("a.com", false, "/y", "https://$host$path"),
        ("h.b.com", false, "/", "http://b/"),
        ("10.0.0.1", false, "/", "http://c/"),
        ("[::1]", false, "/", "https://$host$path"),
        ("[::1]:81", false, "/", "http://d/"),
    ] {
        assert_eq!(first(&table, host, tls, path), want, "{host} {tls} {path}");
    }
}

#[test]
fn r15_an_escape_in_a_rule_and_in_a_request_are_the_same() {
    let instances =
        [named_instance("a", "10.0.0.1", &["urlprefix-/my%20docs", "urlprefix-/100%/x", "urlprefix-/%E4%BD%A0"])];
    for matcher in [Matcher::Prefix, Matcher::IPrefix] {
        let table = table_of(Settings { matcher, globs: true, ..Settings::default() }, &instances, "").table;
        for path in ["/my%20docs/a", "/m%79%20docs", "/100%25/x", "/100%/x", "/%e4%bd%a0/a", "/你"] {
            assert_eq!(served_by(&table, "h", path), "a", "{path}");
        }
        assert_eq!(served_by(&table, "h", "/my%2520docs"), "none");
        assert!(table.listing().contains("/my%20docs "));
    }
    let glob = with_matcher(Matcher::Glob, "route add a /a%2Ab%20*c%C3%A9 http://a/");
    for (path, want) in [("/a*b%20xc%c3%a9", "a"), ("/a%2ab%20c%C3%A9", "a"), ("/axb%20cé", "none")] {
        assert_eq!(served_by(&glob, "h", path), want, "{path}");
    }
}

#[test]
fn r142_there_is_no_way_around_a_rule() {
    let table = table("route add a /public http://a/\nroute add b /admin http://b/ opts \"auth=a\"");
    for path in
        ["/public/../admin", "/public/%2e%2e/admin", "/public/..%2fadmin", "//admin/../admin", "/./admin", "/%61dmin"]
    {
        assert_eq!(served_by(&table, "h", path), "b", "{path}");
    }
    assert_eq!(served_by(&table, "h", "/public/%252e%252e/admin"), "a");
}

#[test]
fn iprefix_and_glob_order_is_by_the_written_path() {
    let table = with_matcher(
        Matcher::IPrefix,
        "route add a /Foo/bar http://a/\nroute add b /foo http://b/\nroute add c /FOO http://c/\nroute add d / http://d/",
    );
    let order: Vec<&str> = find(&table, "h", false, "/foo/bar/x").iter().map(|r| &*r.targets[0].service).collect();
    assert_eq!(order, ["b", "a", "c", "d"]);
    let table = with_matcher(
        Matcher::Glob,
        "route add a /a* http://a/\nroute add b /*b http://b/\nroute add c /ab http://c/\nroute add d /{a,x}b http://d/\nroute add e /?b http://e/",
    );
    let order: Vec<&str> = find(&table, "h", false, "/ab").iter().map(|r| &*r.targets[0].service).collect();
    assert_eq!(order, ["d", "c", "a", "e", "b"]);
}

#[test]
fn tcp_tcps_and_udp_are_looked_up_exactly_and_apart() {
    let table = table(
        "route add a :53 tcp://10.0.0.1:53
        route add b :53 udp://10.0.0.2:53
        route add c :80 http://10.0.0.3:80
        route add d 127.0.0.1:1234 tcps://10.0.0.4:1
        route add e [::1]:1235 tcp://10.0.0.4:1
        route add f h.test/ http://10.0.0.5:80
        route add g h.test/ tcp://10.0.0.6:443
        route add h *.test/ tcp://10.0.0.7:443
        route add i h.test:1236 tcp://10.0.0.8:1",
    );
    let service = |route: Option<&Route>| route.map_or("none".to_owned(), |route| route.targets[0].service.to_string());
    for (key, tcp, udp) in [
        (":53", "a", "b"),
        (":80", "c", "none"),
        ("127.0.0.1:1234", "d", "none"),
        ("H.Test", "g", "none"),
        ("x.test", "none", "none"),
        ("", "none", "none"),
    ] {
        assert_eq!((service(table.tcp(key)), service(table.udp(key))), (tcp.into(), udp.into()), "{key}");
    }
    assert_eq!(served_by(&table, "h.test", "/"), "f");
    assert_eq!(table.tcp_ports().into_iter().collect::<Vec<_>>(), [53, 1234, 1235]);
}
