#![allow(clippy::unwrap_used)]

use super::*;
use crate::route::{Builder, Matcher, Origin, Settings, parse_text};

fn explain(table: &Table, question: &Question) -> Explanation {
    Explainer::new(config(), Vec::new()).explain(table, question)
}

/// Everything at its default.
fn config() -> Config {
    crate::config::inspect(Vec::new(), std::iter::empty()).config.unwrap().proxy
}

fn table(matcher: Matcher, text: &str) -> std::sync::Arc<Table> {
    let parsed = parse_text(text, |line| Origin::Static { line });
    assert_eq!(parsed.rejects, []);
    let mut builder = Builder::new(Settings { matcher, ..Settings::default() });
    builder.manual(parsed.entries);
    builder.build().table
}

fn ask(url: &str) -> Question {
    Question::parse(url).unwrap()
}

const ROUTES: &str = r#"
route add web www.example.com/ http://10.0.0.1:80/ weight 0.25
route add web www.example.com/ http://10.0.0.2:80/
route add shop www.example.com/shop/ http://10.0.1.1:80/ opts "strip=/shop auth=staff allow=ip:10.0.0.0/8"
route add any *.example.com/ http://10.0.2.1:80/
route add gone old.test/ http://10.0.3.1:80/ weight 0
route add home old.test/here http://www.example.com/$path opts "redirect=301"
route add self loop.test/ http://loop.test/$path opts "redirect=302"
route add rest /api http://10.0.4.1:80/
route add sql db.test/ tcp://10.0.5.1:5432
"#;

#[test]
fn outcomes() {
    let table = table(Matcher::Prefix, ROUTES);
    for (url, outcome, place) in [
        ("http://www.example.com/x", Outcome::Forward, "www.example.com/"),
        ("http://WWW.example.com:80/x", Outcome::Forward, "www.example.com/"),
        ("https://www.example.com:443/", Outcome::Forward, "www.example.com/"),
        ("http://a.example.com/x", Outcome::Forward, "*.example.com/"),
        ("http://other.test/api/1", Outcome::Forward, "/api"),
        ("http://old.test/", Outcome::NoTarget, "old.test/"),
        ("http://old.test/here/1?q=2", Outcome::Redirect, "old.test/here"),
        ("http://loop.test/", Outcome::NoRoute, ""),
        ("http://nobody.test/", Outcome::NoRoute, ""),
    ] {
        let got = explain(&table, &ask(url));
        assert_eq!(got.outcome, outcome, "{url}: {}", got.summary);
        let chosen = got.chosen.map(|at| &got.candidates[at]);
        assert_eq!(chosen.map_or(String::new(), |c| format!("{}{}", c.host, c.path)), place, "{url}");
    }
}

#[test]
fn shares_options_and_what_is_asked_of_the_target() {
    let table = table(Matcher::Prefix, ROUTES);
    let got = explain(&table, &ask("http://www.example.com/x%20y?q=1"));
    let shares: Vec<f64> = got.candidates[0].targets.iter().map(|t| t.share).collect();
    assert_eq!((shares, got.path.as_str()), (vec![0.25, 0.75], "/x y"));
    assert_eq!(got.candidates[0].targets[0].forward.as_deref(), Some("/x%20y?q=1"));
    assert_eq!(got.candidates[1].host, "*.example.com");
    assert!(got.candidates[1].reason.contains("not reached"), "{}", got.candidates[1].reason);

    let mut question = ask("http://www.example.com/shop/cart");
    let got = explain(&table, &question);
    let target = &got.candidates[0].targets[0];
    assert_eq!((target.forward.as_deref(), target.permitted), (Some("/cart"), None));
    assert_eq!(target.auth.as_deref(), Some("staff"));
    assert!(got.summary.contains("staff"), "{}", got.summary);
    for (client, outcome) in [("10.1.1.1", Outcome::Forward), ("11.1.1.1", Outcome::Denied)] {
        question.peer = Some(client.parse().unwrap());
        assert_eq!(explain(&table, &question).outcome, outcome, "{client}");
    }
}

#[test]
fn what_came_close_says_what_differs() {
    let table = table(Matcher::Prefix, ROUTES);
    for (url, place, reason) in [
        ("http://www.example.com/shop", "www.example.com/shop/", "slash at the end"),
        ("http://www.example.com/Shop/x", "www.example.com/shop/", "case"),
        ("http://www.example.com:8080/", "www.example.com/", "port differs"),
        ("http://example.com/", "*.example.com/", "names below"),
        ("http://www.exmaple.com/", "www.example.com/", "the host is www.example.com"),
        ("http://x.test/apj/2", "/api", "the route is for /api"),
        ("http://db.test/", "db.test/", "no HTTP route"),
    ] {
        let got = explain(&table, &ask(url));
        let found = got.close.iter().find(|c| format!("{}{}", c.host, c.path) == place);
        let found = found.unwrap_or_else(|| panic!("{url}: {:#?}", got.close));
        assert!(found.reason.contains(reason), "{url}: {}", found.reason);
    }
    assert_eq!(explain(&table, &ask("http://far.away/nothing")).close, []);
}

#[test]
fn close_ones_are_few_in_a_large_table() {
    let text: String = (0..3000).map(|n| format!("route add s h{n}.test/ http://10.0.0.1:80/\n")).collect();
    let got = explain(&table(Matcher::Prefix, &text), &ask("http://h1.tesu/"));
    assert!((1..=8).contains(&got.close.len()), "{}", got.close.len());
    assert_eq!(got.close[0].host, "h1.test");
}

#[test]
fn routes_with_conditions_are_passed_over_unless_they_are_met() {
    let routes =
        "route add a h.test/ http://10.0.0.1:80/ opts \"method=POST\"\nroute add b h.test/ http://10.0.0.2:80/";
    let table = table(Matcher::Prefix, routes);
    let mut question = ask("http://h.test/x");
    for (method, service, candidates) in [("GET", "b", 2), ("POST", "a", 2)] {
        question.method = method.parse().unwrap();
        let got = explain(&table, &question);
        let chosen = &got.candidates[got.chosen.unwrap()];
        assert_eq!((chosen.targets[0].service.as_str(), got.candidates.len()), (service, candidates), "{method}");
        assert_eq!(got.candidates[0].reason.contains("conditions"), method == "GET", "{method}");
    }
}

#[test]
fn other_matchers() {
    let routes = "route add a h.test/A/* http://10.0.0.1:80/";
    let glob = explain(&table(Matcher::Glob, routes), &ask("http://h.test/A/x"));
    assert_eq!(glob.outcome, Outcome::Forward);
    let routes = "route add a h.test/Abc http://10.0.0.1:80/";
    let folded = explain(&table(Matcher::IPrefix, routes), &ask("http://h.test/aBC/x"));
    assert_eq!((folded.outcome, folded.close.len()), (Outcome::Forward, 0));
}

const CONDITIONS: &str = r#"
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
fn an_explanation_tells_what_is_passed_over() {
    let table = table(Matcher::Prefix, CONDITIONS);
    let explained = explain(&table, &ask("http://h/api?fast"));
    let chosen = &explained.candidates[explained.chosen.unwrap()];
    assert!(chosen.reason.contains("method=GET,HEAD query=fast"), "{}", chosen.reason);
    let before: Vec<&str> = explained.candidates.iter().map(|c| c.reason.as_str()).collect();
    assert!(before[0].contains("header=X-Host:yes") && before[0].contains("passed over"), "{before:?}");
    assert!(before.iter().filter(|reason| reason.contains("passed over")).count() >= 4, "{before:?}");
}

#[test]
fn the_configuration_of_the_proxy_counts() {
    let routes = r#"
route add port h.test:8080/ http://10.0.0.1:80/
route add bare h.test/ http://10.0.0.2:80/
route add only g.test/ http://10.0.0.3:80/?own=1 opts "allow=ip:10.0.0.0/8"
route add tls s.test/ https://s.test/$path opts "redirect=301"
route add mixed x.test/ http://10.0.0.4:80/
route add mixed x.test/ https://x.test/$path opts "redirect=301"
route add live w.test/ ws://10.0.0.5:80/
"#;
    let table = table(Matcher::Prefix, routes);
    let plain = config();
    let strip = Config { strip_port: true, ..config() };
    let trusting = Config { trusted: Some(vec!["172.16.0.0/12".parse().unwrap()]), ..config() };
    for (config, url, peer, headers, status, service) in [
        (&plain, "http://h.test:8080/", None, &[][..], None, "port"),
        (&plain, "http://h.test:9/", None, &[], Some(404), ""),
        (&strip, "http://h.test:9/", None, &[], None, "bare"),
        (&strip, "http://h.test:8080/", None, &[], None, "port"),
        (&plain, "http://h.test:/", None, &[], None, "bare"),
        (&plain, "http://g.test/", Some("10.1.1.1"), &[], None, "only"),
        (&plain, "http://g.test/", Some("10.1.1.1"), &[("X-Forwarded-For", "11.1.1.1")], Some(403), "only"),
        (&plain, "http://g.test/", None, &[("X-Forwarded-For", "11.1.1.1")], Some(403), "only"),
        (&trusting, "http://g.test/", Some("10.1.1.1"), &[("X-Forwarded-For", "11.1.1.1")], None, "only"),
        (&trusting, "http://g.test/", Some("172.16.0.1"), &[("X-Forwarded-For", "10.1.1.1")], None, "only"),
        (&trusting, "http://g.test/", Some("172.16.0.1"), &[("X-Forwarded-For", "11.1.1.1")], Some(403), "only"),
        (&plain, "http://s.test/a", None, &[], Some(301), "tls"),
        (&plain, "https://s.test/a", None, &[], Some(404), ""),
        (&plain, "http://s.test/a", None, &[("X-Forwarded-Proto", "https")], Some(404), ""),
        (&trusting, "http://s.test/a", Some("10.1.1.1"), &[("X-Forwarded-Proto", "https")], Some(301), "tls"),
        (&plain, "http://w.test/", None, &[], Some(500), "live"),
        (&plain, "http://w.test/", None, &[("Upgrade", "websocket"), ("Connection", "Upgrade")], None, "live"),
        (&plain, "http://h.test/a b", None, &[], Some(400), ""),
        (&plain, "http://h.test:x/", None, &[], Some(400), ""),
        (&plain, "http://h.test/", None, &[("Expect", "much")], Some(417), ""),
    ] {
        let mut question = ask(url);
        question.peer = peer.map(|peer: &str| peer.parse().unwrap());
        for (name, value) in headers {
            question.header(name, value);
        }
        let got = Explainer::new(config.clone(), Vec::new()).explain(&table, &question);
        let chosen = got.chosen.map_or("", |at| got.candidates[at].targets[0].service.as_str());
        assert_eq!((got.status, chosen), (status, service), "{url} {peer:?} {headers:?}: {}", got.summary);
    }
    let got = explain(&table, &ask("https://x.test/"));
    assert!(got.status.is_none() && got.summary.contains("share goes to the next route"), "{}", got.summary);
    let got = explain(&table, &ask("http://g.test/x?a=%zz|"));
    assert_eq!(got.candidates[0].targets[0].forward.as_deref(), Some("/x?own=1&a=%zz%7C"));
}

#[test]
fn listeners_send_everybody_to_tls() {
    let table = table(Matcher::Prefix, "route add a / http://10.0.0.1:80/");
    for (plain, url, want) in [
        (&[(80, Some(443))][..], "http://h.test/a?b", Some("https://h.test/a?b")),
        (&[(80, Some(8443))], "http://h.test:80/", Some("https://h.test:8443/")),
        (&[(80, Some(443))], "https://h.test/", None),
        // Whatever is before us may know the port by another number.
        (&[(8080, Some(443))], "http://h.test/", Some("https://h.test/")),
        (&[(8080, Some(443)), (9999, None)], "http://h.test/", None),
        (&[(8080, Some(443)), (9999, None)], "http://h.test:8080/", Some("https://h.test/")),
        (&[(8080, Some(443)), (9999, None)], "http://h.test:9999/", None),
    ] {
        let got = Explainer::new(config(), plain.to_vec()).explain(&table, &ask(url));
        assert_eq!(got.status, want.map(|_| 301), "{plain:?} {url}");
        assert!(want.is_none_or(|want| got.summary.contains(&format!("{want}."))), "{plain:?} {url}: {}", got.summary);
    }
}
