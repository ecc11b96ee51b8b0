#![allow(clippy::unwrap_used)]

use super::*;
use crate::route::{Builder, Matcher, Origin, Settings, parse_text};

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

#[test]
fn urls_as_people_write_them() {
    for (url, host, tls, path, query) in [
        ("http://h/p", "h", false, "/p", None),
        ("HTTPS://user:word@h:8443/p?q=1#f", "h:8443", true, "/p", Some("q=1")),
        ("h", "h", false, "/", None),
        ("h?q", "h", false, "/", Some("q")),
        ("/p/x", "", false, "/p/x", None),
        (" wss://[::1]:1/ ", "[::1]:1", true, "/", None),
    ] {
        let got = ask(url);
        let want =
            Question { host: host.into(), tls, path: path.into(), query: query.map(Into::into), ..Question::default() };
        assert_eq!(got, want, "{url}");
    }
    for url in ["", "   ", "ftp://h/", "http://", "http://a b/"] {
        assert!(Question::parse(url).is_err(), "{url:?}");
    }
    let mut question = ask("http://h/");
    question.header("HOST", " other ");
    question.header("X-Forwarded-For", "10.0.0.1, unknown, ::1");
    assert_eq!((question.host.as_str(), question.clients.len()), ("other", 2));
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
        question.clients = vec![client.parse().unwrap()];
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
