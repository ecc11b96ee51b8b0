//! The lookup against a slow and obvious one.

use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};

use super::*;

/// `*` and `?`, the obvious way.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => (0..=text.len()).any(|n| fits(rest, &text[n..])),
        ([b'?', rest @ ..], [_, text @ ..]) => fits(rest, text),
        ([p, rest @ ..], [t, text @ ..]) => p == t && fits(rest, text),
        _ => false,
    }
}

fn without_port(host: &str, tls: bool) -> &str {
    host.strip_suffix(if tls { ":443" } else { ":80" }).unwrap_or(host)
}

fn reversed(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) => format!("{}:{port}", name.chars().rev().collect::<String>()),
        None => host.chars().rev().collect(),
    }
}

/// All hosts scanned, sorted, then all their paths scanned, sorted.
fn model(
    sources: &[(String, String)],
    matcher: Matcher,
    globs: bool,
    host: &str,
    tls: bool,
    path: &str,
) -> Vec<(String, String)> {
    let host = host.to_lowercase();
    let name = without_port(&host, tls);
    let port = match name.rsplit_once(':') {
        Some((_, port)) => format!(":{port}"),
        None => (if tls { ":443" } else { ":80" }).to_owned(),
    };
    let pattern = |key: &str| globs && key.contains(['*', '?']);
    let everything = |key: &str| pattern(key) && without_port(key, tls).trim_matches('*').is_empty();
    let mut keys: Vec<&str> = sources.iter().map(|(host, _)| host.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut literal: Vec<&str> = Vec::new();
    let mut patterns: Vec<&str> = Vec::new();
    let mut rest: Vec<&str> = Vec::new();
    for key in keys {
        if key.is_empty() || key.starts_with(':') {
            if key.is_empty() || key == port {
                rest.push(key);
            }
        } else if pattern(key) {
            if fits(without_port(key, tls).as_bytes(), name.as_bytes()) {
                patterns.push(key);
            }
        } else if without_port(key, tls) == name {
            literal.push(key);
        }
    }
    literal.sort_by_key(|key| std::cmp::Reverse(key.len()));
    patterns.sort_by(|a, b| reversed(b).cmp(&reversed(a)).then(a.cmp(b)));
    rest.sort_unstable();
    let mut order = literal;
    let cut = patterns.iter().position(|key| everything(key)).unwrap_or(patterns.len());
    order.extend(&patterns[..cut]);
    order.extend(rest.iter().filter(|key| !key.is_empty()));
    order.extend(&patterns[cut..]);
    order.extend(rest.iter().filter(|key| key.is_empty()));

    let mut found = Vec::new();
    for key in order {
        let mut paths: Vec<&str> =
            sources.iter().filter(|(host, _)| host == key).map(|(_, path)| path.as_str()).collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        paths.dedup();
        for route in paths {
            let fits = match matcher {
                Matcher::Prefix => path.starts_with(route),
                Matcher::IPrefix => path.to_lowercase().starts_with(&route.to_lowercase()),
                Matcher::Glob => fits(route.as_bytes(), path.as_bytes()),
            };
            if fits && !route.is_empty() {
                found.push((key.to_owned(), route.to_owned()));
            }
        }
    }
    found
}

const HOST: &str = "(\\*|\\*\\.|\\?|)(a|b|ab|1|)(\\.|)(a|b|\\*|)(\\.c|)(:80|:443|:8|)";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn agrees_with_the_model(
        sources in prop::collection::vec((HOST, "/([abAB*?]/?){0,4}"), 1..24),
        requests in prop::collection::vec(("(a|b|ab|1|B|)(\\.|)(a|b|)(\\.c|)(:80|:443|:8|)", any::<bool>(), "/[abAB/]{0,5}"), 1..8),
        matcher in prop::sample::select(&[Matcher::Prefix, Matcher::IPrefix, Matcher::Glob][..]),
        globs: bool,
    ) {
        let text: Vec<String> = sources.iter().map(|(host, path)| format!("route add s {host}{path} http://h/")).collect();
        let table = built(&text.join("\n"), Settings { matcher, globs, ..Settings::default() }).table;
        for (host, tls, path) in requests {
            let got: Vec<_> = table.http(&host, tls, path.as_bytes()).map(|r| (r.host.to_string(), r.path.to_string())).collect();
            prop_assert_eq!(got, model(&sources, matcher, globs, &host, tls, &path), "{} {} {}", host, tls, path);
        }
    }

    #[test]
    fn no_text_panics(text in "(route (add|del|weight) |[a-z/:*\\[\\]{}$%\" ,=.\\\\\n\t]{0,12}|weight |tags |opts |http://|\\PC){0,12}", host in "\\PC{0,10}") {
        let parsed = parse_text(&text, line_of);
        let mut builder = Builder::new(Settings { matcher: Matcher::Glob, globs: true, ..Settings::default() });
        builder.manual(parsed.entries);
        let built = builder.build();
        find(&built.table, &host, false, &text);
        built.table.listing();
        built.table.tree();
    }

    #[test]
    fn no_tag_panics(tags in prop::collection::vec("(urlprefix-|)[a-z/:*\\[\\]{}$% ,=.\\\\\n\t]{0,20}(proto=tcp|redirect=301,|weight=|strip=|\\PC|){0,3}", 0..6)) {
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        let built = table_of(Settings::default(), &[instance(&tags)], "");
        for route in built.table.routes() {
            for target in &route.targets {
                let path = path::clean(&route.path);
                path.forward(&target.options);
                if let Some(redirect) = &target.options.redirect {
                    redirect.location(target, &route.host, &path, None);
                }
            }
        }
    }
}
