//! Where a redirect leads, and when it would lead nowhere.

use super::*;

/// Host foo.com, the first route that fits.
fn location(command: &str, request: &str) -> String {
    locate(command, "foo.com", request)
}

fn locate(command: &str, host: &str, request: &str) -> String {
    let table = table(command);
    let (path, query) = match request.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request, None),
    };
    let path = path::clean(path);
    let route = table.http(host, false, &path.decoded).next().expect(command);
    let target = route.pick(Turn::Nth(0)).unwrap();
    target.options.redirect.as_ref().unwrap().location(target, host, &path, query)
}

const FOUR: [&str; 4] = ["/", "/abc", "/a/b/c", "/?aaa=1"];
const FIVE: [&str; 5] = ["/", "/abc", "/a/b/c", "/?aaa=1", "/abc/?aaa=1"];

#[test]
fn fixed_urls_drop_path_and_query() {
    for request in FOUR {
        assert_eq!(location("route add r / http://bar.com/ opts \"redirect=301\"", request), "http://bar.com/");
        assert_eq!(
            location("route add r / http://bar.com/a/b/c?foo=bar opts \"redirect=301\"", request),
            "http://bar.com/a/b/c?foo=bar"
        );
    }
    for request in FIVE {
        assert_eq!(location("route add r *:80/ https://$host/ opts \"redirect=301\"", request), "https://foo.com/");
    }
}

#[test]
fn path_variable() {
    for (source, url, base) in [
        ("/", "http://bar.com/$path", "http://bar.com"),
        ("/", "http://bar.com$path", "http://bar.com"),
        ("*:80/", "https://$host/$path", "https://foo.com"),
        ("*:80/", "https://$host$path", "https://foo.com"),
        (":80/", "https://$host$path", "https://foo.com"),
        ("/", "http://bar.com/bbb/$path", "http://bar.com/bbb"),
        ("/", "http://bar.com/bbb$path", "http://bar.com/bbb"),
        ("*:80/", "https://$host/bbb/$path", "https://foo.com/bbb"),
        ("*:80/", "https://$host/bbb$path", "https://foo.com/bbb"),
    ] {
        for request in FIVE {
            let command = format!("route add r {source} {url} opts \"redirect=301\"");
            assert_eq!(location(&command, request), format!("{base}{request}"), "{command} {request}");
        }
    }
}

#[test]
fn strip_and_prepend() {
    for (options, source, url, request, want) in [
        ("strip=/stripme", "/stripme", "http://bar.com/$path", "/stripme/", "http://bar.com/"),
        ("strip=/stripme", "/stripme", "http://bar.com/$path", "/stripme/abc", "http://bar.com/abc"),
        ("strip=/stripme", "/stripme", "http://bar.com/$path", "/stripme/a/b/c", "http://bar.com/a/b/c"),
        ("strip=/stripme", "/stripme", "http://bar.com/$path", "/stripme/?aaa=1", "http://bar.com/?aaa=1"),
        ("strip=/stripme", "/stripme", "http://bar.com/$path", "/stripme/abc/?aaa=1", "http://bar.com/abc/?aaa=1"),
        ("strip=/stripme", "*:80/stripme", "https://bar.com/bbb$path", "/stripme", "https://bar.com/bbb"),
        ("strip=/stripme", "*:80/stripme", "https://bar.com/bbb$path", "/stripme/abc", "https://bar.com/bbb/abc"),
        ("strip=/stripme", "*:80/stripme", "https://bar.com/bbb$path", "/stripme/a/b/c", "https://bar.com/bbb/a/b/c"),
        ("strip=/stripme", "*:80/stripme", "https://bar.com/bbb$path", "/stripme/?aaa=1", "https://bar.com/bbb/?aaa=1"),
        (
            "strip=/stripme",
            "*:80/stripme",
            "https://bar.com/bbb$path",
            "/stripme/abc/?aaa=1",
            "https://bar.com/bbb/abc/?aaa=1",
        ),
        ("prepend=/prefix", "/", "http://bar.com/$path", "/", "http://bar.com/prefix/"),
        ("prepend=/prefix", "/", "http://bar.com/$path", "/abc", "http://bar.com/prefix/abc"),
        ("prepend=/prefix", "/", "http://bar.com/$path", "/a/b/c", "http://bar.com/prefix/a/b/c"),
        ("prepend=/prefix", "/", "http://bar.com/$path", "/?aaa=1", "http://bar.com/prefix/?aaa=1"),
        ("prepend=/prefix", "/", "http://bar.com/$path", "/abc/?aaa=1", "http://bar.com/prefix/abc/?aaa=1"),
        ("prepend=/prefix strip=/stripme", "/", "http://bar.com/$path", "/stripme/", "http://bar.com/prefix/"),
        ("prepend=/prefix strip=/stripme", "/", "http://bar.com/$path", "/stripme/abc", "http://bar.com/prefix/abc"),
        ("prepend=/prefix strip=/stripme", "/", "http://bar.com/$path", "/other", "http://bar.com/prefix/other"),
        ("strip=/bar", "/bar", "http://b.com/$path", "/bar", "http://b.com/"),
        ("strip=/bar", "/bar", "http://b.com/$path", "/bar/aaa", "http://b.com/aaa"),
        // What is left must not become a part of the host.
        ("strip=/bar", "/bar", "http://b.com$path", "/bar.evil.org/x", "http://b.com/.evil.org/x"),
        ("strip=/bar", "/bar", "http://b.com/$path", "/bar@evil.org", "http://b.com/@evil.org"),
        ("strip=/my%20docs", "/my%20docs", "http://b.com$path", "/m%79%20docs/a%2Fb", "http://b.com/a%2Fb"),
    ] {
        let command = format!("route add r {source} {url} opts \"redirect=302 {options}\"");
        assert_eq!(location(&command, request), want, "{command} {request}");
    }
}

#[test]
fn escapes_are_kept() {
    let command = "route add r / http://bar.com/$path opts \"redirect=301\"";
    for request in ["/%20", "/a%2fbc", "/a/b%22/c", "/%20/a%2f/", "/it's", "/%zz"] {
        assert_eq!(location(command, request), format!("http://bar.com{request}"));
    }
    // A path of nothing but slashes is cleaned before; what reaches the redirect is kept.
    let table = table(command);
    let target = &table.routes().next().unwrap().targets[0];
    let path = path::Cleaned { raw: "/%2f/".into(), decoded: b"///"[..].into() };
    let location = target.options.redirect.as_ref().unwrap().location(target, "foo.com", &path, Some("aaa=1"));
    assert_eq!(location, "http://bar.com/%2f/?aaa=1");
    // Nor can an uncleaned path name another host where there is none.
    let relative = super::table("route add r / https://$host$path opts \"redirect=301\"");
    let target = &relative.routes().next().unwrap().targets[0];
    let path = path::Cleaned { raw: "//evil.org/x".into(), decoded: b"//evil.org/x"[..].into() };
    assert_eq!(target.options.redirect.as_ref().unwrap().location(target, "", &path, None), "/evil.org/x");
}

#[test]
fn hosts_queries_and_fragments() {
    for (url, host, request, want) in [
        ("https://$host$path", "foo.com:9999", "/x", "https://foo.com:9999/x"),
        ("https://$host:8443/$path", "foo.com", "/x", "https://foo.com:8443/x"),
        ("https://www.$host$path", "foo.com", "/x", "https://www.foo.com/x"),
        ("https://$host$path", "[2001:db8::1]:80", "/x", "https://[2001:db8::1]:80/x"),
        ("https://h/$path?own=1", "foo.com", "/x?theirs=2", "https://h/x?own=1"),
        ("https://h$path?own=1", "foo.com", "/x?theirs=2", "https://h/x?own=1"),
        ("https://h/x?", "foo.com", "/x?theirs=2", "https://h/x"),
        ("https://h/$path?", "foo.com", "/x?theirs=2", "https://h/x?theirs=2"),
        ("https://h/$path", "foo.com", "/x?", "https://h/x"),
        ("https://h/$path", "foo.com", "/x?a=%zz&b=?&c=/../", "https://h/x?a=%zz&b=?&c=/../"),
        ("https://h/#/app", "foo.com", "/x?a", "https://h/#/app"),
        ("https://h/$path.html", "foo.com", "/x", "https://h/x.html"),
        ("https://u:p@h", "foo.com", "/x", "https://h/"),
        ("https://bücher.$host.ö/", "foo.com", "/x", "https://b%C3%BCcher.foo.com.%C3%B6/"),
        ("https://bücher/", "foo.com", "/x", "https://b%C3%BCcher/"),
        ("https://x.example.com/?a=1,2", "foo.com", "/", "https://x.example.com/?a=1,2"),
        // Without a host to put in there is no absolute URL.
        ("https://$host$path", "", "/x?y", "/x?y"),
        ("https://$host/", "", "/x?y", "/"),
    ] {
        let command = format!("route add r / {url} opts \"redirect=301\"");
        assert_eq!(locate(&command, host, request), want, "{url} {host} {request}");
    }
}

#[test]
fn nothing_breaks_out_of_the_header() {
    let command = "route add r / https://$host/$path opts \"redirect=301\"";
    for (host, request, want) in [
        ("foo.com\r\nX: y", "/", "https://foo.com%0D%0AX:%20y/"),
        ("evil.com/x?", "/", "https://evil.com%2Fx%3F/"),
        ("a@evil.com", "/", "https://a%40evil.com/"),
        ("foo.com", "/a\r\nb", "https://foo.com/a%0D%0Ab"),
        ("foo.com", "/a b\"<>\\`é\u{7f}", "https://foo.com/a%20b%22%3C%3E%5C%60%C3%A9%7F"),
        ("foo.com", "/x?a\nb é", "https://foo.com/x?a%0Ab%20%C3%A9"),
    ] {
        assert_eq!(locate(command, host, request), want);
    }
}

#[test]
fn r19_strip_holds_for_redirects() {
    let table = table_of(
        Settings::default(),
        &[instance(&["urlprefix-/old strip=/old redirect=302,https://new.example.com$path"])],
        "",
    )
    .table;
    let path = path::clean("/old/a");
    let route = table.http("h", false, &path.decoded).next().unwrap();
    let redirect = route.targets[0].options.redirect.as_ref().unwrap();
    assert_eq!(redirect.code, 302);
    assert_eq!(redirect.location(&route.targets[0], "h", &path, Some("b=c")), "https://new.example.com/a?b=c");
}

#[test]
fn r22_each_request_has_its_own_location() {
    let table = table("route add r *:80/ https://$host$path opts \"redirect=301\"");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..1000 {
                    let (host, raw) = (format!("h{n}.com"), format!("/{n}/{i}"));
                    let path = path::clean(&raw);
                    let route = table.http(&host, false, &path.decoded).next().unwrap();
                    let target = route.pick(Turn::Random(i)).unwrap();
                    let location = target.options.redirect.as_ref().unwrap().location(target, &host, &path, None);
                    assert_eq!(location, format!("https://{host}{raw}"));
                }
            });
        }
    });
}

#[test]
fn loops() {
    for (location, scheme, host, path, want) in [
        ("https://h/a", "https", "h", "/a", true),
        ("https://h/a", "http", "h", "/a", false),
        ("https://h/a", "https", "h", "/b", false),
        ("https://h/a", "https", "g", "/a", false),
        ("https://h/a", "HTTPS", "H", "/a", true),
        ("https://h", "https", "h", "/", true),
        ("https://h/", "https", "h", "", true),
        ("https://h:443/a", "https", "h", "/a", true),
        ("https://h/a", "https", "h:443", "/a", true),
        ("http://h:80/a", "http", "h", "/a", true),
        ("http://h:443/a", "http", "h", "/a", false),
        ("https://h:80/a", "https", "h", "/a", false),
        ("https://h/a?x=1", "https", "h", "/a", true),
        ("https://h?x=1", "https", "h", "/", true),
        ("https://h/#x", "https", "h", "/", true),
        ("https://h/A", "https", "h", "/a", false),
        ("/a", "https", "h", "/a", true),
        ("/b", "https", "h", "/a", false),
        ("https://h/a", "", "h", "/a", false),
    ] {
        assert_eq!(Redirect::loops(location, scheme, host, path), want, "{location} {scheme} {host} {path}");
    }
}

/// What a caller does: a redirect to where the client already is does not count, and the next route is tried.
fn serve<'t>(table: &'t Table, host: &str, tls: bool, raw: &str, forwarded: Option<&str>) -> Option<&'t Target> {
    let path = path::clean(raw);
    let scheme = forwarded.unwrap_or(if tls { "https" } else { "http" });
    table.http(host, tls, &path.decoded).filter_map(|route| route.pick(Turn::Nth(0))).find(|target| {
        let redirect = target.options.redirect.as_ref();
        redirect.is_none_or(|redirect| {
            !Redirect::loops(&redirect.location(target, host, &path, None), scheme, host, &path.raw)
        })
    })
}

#[test]
fn table_b() {
    let table = table(
        "route add s foo.com:80/ https://foo.com/ opts \"redirect=301\"
         route add s aaa.com:80/ http://bbb.com/ opts \"redirect=301\"
         route add s ccc.com:443/bar https://ccc.com/baz opts \"redirect=301\"
         route add s / http://foo.com/",
    );
    for (host, tls, path, forwarded, want) in [
        ("foo.com", false, "/", None, "https://foo.com/"),
        ("foo.com", false, "/", Some("http"), "https://foo.com/"),
        ("foo.com", true, "/", Some("https"), "http://foo.com/"),
        ("aaa.com", false, "/", Some("http"), "http://bbb.com/"),
        ("ccc.com", true, "/bar", Some("https"), "https://ccc.com/baz"),
        // Behind a balancer that ends TLS.
        ("foo.com", false, "/", Some("https"), "http://foo.com/"),
    ] {
        let target = serve(&table, host, tls, path, forwarded).unwrap();
        assert_eq!(target.destination.text, want, "{host} {tls} {path} {forwarded:?}");
    }
}

#[test]
fn r20_no_loop_behind_a_balancer_that_ends_tls() {
    let table = table(
        "route add r h.example.com/ https://h.example.com$path opts \"redirect=301\"\nroute add app / http://app/",
    );
    assert_eq!(serve(&table, "h.example.com", false, "/a", Some("https")).unwrap().service.as_ref(), "app");
    assert_eq!(serve(&table, "h.example.com", false, "/a", None).unwrap().service.as_ref(), "r");
    // A redirect without a host is the last in line: skipped, there is nothing left.
    let alone = super::table("route add r / https://$host opts \"redirect=301\"");
    assert!(serve(&alone, "h", false, "/", Some("https")).is_none());
    assert!(serve(&alone, "h", false, "/", Some("http")).is_some());
}
