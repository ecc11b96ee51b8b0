//! What `explain` says is what happens: each question is asked, and each request is sent.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::proxy::{Proxy, Start};
use crate::testing::client::Client;
use crate::testing::origin::Origin;

/// `ONE` to `FIVE` stand for origins that answer with their name.
const ROUTES: &str = r#"
route add one h.test/ http://ONE/
route add two h.test:8080/ http://TWO/
route add three *.wild.test/ http://THREE/ opts "strip=/a prepend=/b"
route add four h.test/a%2Fb http://FOUR/
route add four /a/b http://FOUR/?own=1
route add five h.test/Case http://FIVE/ opts "host=dst"
route add only g.test/ http://ONE/ opts "allow=ip:127.0.0.1"
route add never g.test/a http://TWO/ opts "deny=ip:127.0.0.0/8,ip:10.0.0.0/8"
route add odd g.test/a/b http://THREE/ opts "allow=nonsense"
route add moved m.test/ https://m.test/$path opts "redirect=301"
route add away m.test/a http://h.test/x$path opts "redirect=307 strip=/a"
route add loop l.test/ http://l.test/$path opts "redirect=302"
route add zero z.test/ http://ONE/ weight 0
route add both b.test/ http://ONE/ weight 0.5
route add both b.test/ http://TWO/
route add post c.test/ http://ONE/ opts "method=POST"
route add head c.test/ http://TWO/ opts "header=X-A:1"
route add asked c.test/ http://THREE/ opts "query=q"
route add exact c.test/a http://FOUR/ opts "path=exact"
route add small c.test/Case http://FIVE/ opts "maxbody=1k cors=*"
route add cut e.test/a http://ONE/ opts "replace=/a,/z"
route add turn e.test/ http://TWO/ opts "rewrite=^/(.*)$,/t/$1"
route add live w.test/ ws://ONE/
route add call w.test/a grpc://TWO/
route add raw t.test/ tcp://ONE
"#;

const HOSTS: &[&str] = &[
    "h.test",
    "H.Test:80",
    "h.test:8080",
    "h.test:9",
    "h.test:",
    "x.wild.test",
    "wild.test",
    "g.test",
    "m.test",
    "l.test",
    "z.test",
    "b.test",
    "c.test",
    "e.test",
    "w.test",
    "t.test",
    "",
    "no.test",
    "bad host",
    "h.test:99999",
];

const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/a//b",
    "/a/../a/b",
    "/a%2Fb/c",
    "/a%2fb",
    "/%61/b?q=1",
    "/Case?q",
    "/case",
    "/a/./b/?x=%zz",
    "/%",
    "//h/a",
    "/..",
    "/a?q=1&own=2",
    "/\u{e9}",
    "/a b",
    "/a\"b",
    "/a{b}|c",
    "/a;b=c/d,e",
];

/// Method and headers.
const KINDS: &[(&str, &[(&str, &str)])] = &[
    ("GET", &[]),
    ("POST", &[("Content-Length", "0")]),
    ("HEAD", &[("X-A", "1"), ("X-Forwarded-Proto", "https")]),
    ("GET", &[("X-Forwarded-For", "10.1.1.1, 127.0.0.1")]),
    ("OPTIONS", &[("Origin", "http://o.test"), ("Access-Control-Request-Method", "PUT")]),
    ("GET", &[("Content-Type", "application/grpc-web"), ("X-Forwarded-For", "127.0.0.1")]),
];

#[tokio::test]
async fn what_explain_says_is_what_happens() {
    let mut origins = BTreeMap::new();
    let mut routes = ROUTES.to_owned();
    for name in ["ONE", "TWO", "THREE", "FOUR", "FIVE"] {
        let origin = Origin::start(name).await;
        routes = routes.replace(name, &origin.addr().to_string());
        origins.insert(name, origin);
    }
    let mut seen = BTreeMap::<String, usize>::new();
    for (matcher, port, trusted) in
        [("prefix", "exact", None), ("iprefix", "strip", Some("127.0.0.1")), ("glob", "strip", Some("10.0.0.0/8"))]
    {
        let routes = if matcher == "glob" { globs(&routes) } else { routes.clone() };
        let start = Start::routes(routes).property("proxy.matcher", matcher).property("proxy.matchhostport", port);
        let start = match trusted {
            Some(networks) => start.property("proxy.trusted", networks),
            None => start,
        };
        let proxy = start.start().await;
        let mut turn = 0;
        for host in HOSTS {
            for path in PATHS {
                // Two kinds of each, so that all of them come together with all hosts and all paths.
                for _ in 0..2 {
                    turn += 1;
                    let peer = ["127.0.0.1", "127.0.0.2"][turn % 2];
                    let kind = KINDS[turn / 2 % KINDS.len()];
                    let outcome = compare(&proxy, &origins, host, path, peer, kind).await;
                    *seen.entry(outcome).or_default() += 1;
                }
            }
        }
        proxy.ends_well().await;
    }
    for outcome in ["forward", "redirect", "denied", "no-target", "no-route", "answered"] {
        assert!(seen.get(outcome).is_some_and(|count| *count >= 10), "{outcome}: {seen:?}");
    }
}

/// The same routes, where a path has to fit as a whole.
fn globs(routes: &str) -> String {
    let glob = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if let Some(source) = words.get_mut(3).filter(|source| !source.contains("*.")) {
            source.push('*');
        }
        words.join(" ")
    };
    routes.lines().map(glob).collect::<Vec<_>>().join("\n")
}

/// Asks and sends; gives the outcome.
async fn compare(
    proxy: &Proxy,
    origins: &BTreeMap<&str, Origin>,
    host: &str,
    path: &str,
    peer: &str,
    (method, headers): (&str, &[(&str, &str)]),
) -> String {
    let mut question = format!("/api/explain?url={}&client={peer}&method={method}", escaped(path));
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in [&[("Host", host)], headers].concat() {
        question.push_str(&format!("&header={}", escaped(&format!("{name}: {value}"))));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let page = proxy.page(&question).await;
    assert_eq!(page.status, 200, "{question}: {}", page.text());
    let said: Value = serde_json::from_str(&page.text()).expect("JSON");
    let mut client = Client::connect_from(peer, proxy.addr).await;
    client.send(format!("{request}\r\n")).await;
    let got = client.response_to(method).await;

    let about = format!("{peer} {request}\nsaid: {said:#}\ngot: {} {:?} {}", got.status, got.head, got.text());
    let targets = || {
        let chosen = said["chosen"].as_u64().unwrap_or_else(|| panic!("nothing is taken\n{about}")) as usize;
        said["candidates"][chosen]["targets"].as_array().expect("targets").iter().filter(|one| one["share"] != 0.0)
    };
    match said["status"].as_u64() {
        Some(status) => {
            assert_eq!(u64::from(got.status), status, "{about}");
            if let Some(location) = got.header("location") {
                assert!(targets().any(|one| one["location"] == location), "{about}");
            }
        }
        // The origins do not speak gRPC.
        None if targets().any(|one| one["destination"].as_str().is_some_and(|to| to.starts_with("grpc"))) => {
            assert_eq!(got.status, 502, "{about}");
        }
        None => {
            assert_eq!(got.status, 200, "{about}");
            let (name, origin) = origins
                .iter()
                .find(|(_, origin)| {
                    let place = format!("{}/", origin.addr());
                    targets().any(|one| one["destination"].as_str().is_some_and(|to| to.contains(&place)))
                        && (method == "HEAD" || got.text() == origin_name(origins, origin))
                })
                .unwrap_or_else(|| panic!("another target\n{about}"));
            let target = origin.last().target().to_owned();
            // With several targets a HEAD may have gone to the other one.
            assert!(
                targets().count() > 1 || targets().any(|one| one["forward"] == target.as_str()),
                "{name} {target}\n{about}"
            );
        }
    }
    said["outcome"].as_str().expect("an outcome").to_owned()
}

fn origin_name<'o>(origins: &BTreeMap<&'o str, Origin>, origin: &Origin) -> &'o str {
    origins.iter().find(|(_, other)| other.addr() == origin.addr()).map_or("", |(name, _)| name)
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
