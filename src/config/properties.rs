//! The properties file: `key = value` lines with escapes, continuation and `${}`.
//!
//! Whitespace at the end of a value belongs to it. There are no comments behind a value.

mod expand;
mod scan;

use std::collections::{BTreeMap, HashMap, HashSet};

use expand::Expander;
use scan::Scanner;

/// One `key = value` of a file, expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub key: String,
    pub value: String,
    /// Where the key stands, counted from 1.
    pub line: usize,
    /// Another value mentions it in `${}`.
    pub referenced: bool,
    /// Where the same key stands before, with a value that does not count.
    pub earlier: Vec<usize>,
    /// Names in `${}` that neither the file nor the environment knows. They stand for nothing.
    pub undefined: Vec<String>,
}

/// Reads a whole file. A key that stands twice is returned once, with its last value. `environment` answers `${NAME}` for
/// names that are no keys of the file. All mistakes are returned, not just the first.
pub fn parse(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Vec<Property>, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scanner = Scanner { rest: text, line: 1 };
    let (mut properties, mut mistakes) = (Vec::<Property>::new(), Vec::new());
    let mut places: HashMap<String, usize> = HashMap::new();
    while let Some(found) = scanner.next() {
        match found {
            Err(mistake) => mistakes.push(mistake),
            Ok(mut property) => match places.get(&property.key) {
                Some(&at) => {
                    property.earlier = std::mem::take(&mut properties[at].earlier);
                    property.earlier.push(properties[at].line);
                    properties[at] = property;
                }
                None => {
                    places.insert(property.key.clone(), properties.len());
                    properties.push(property);
                }
            },
        }
    }

    let raw: BTreeMap<&str, &str> = properties.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
    let mut expander =
        Expander { raw, environment: &environment, done: HashMap::new(), referenced: HashSet::new(), spent: 0 };
    let mut expanded = Vec::with_capacity(properties.len());
    for property in &properties {
        match expander.key(&property.key, &mut Vec::new()) {
            Ok(value) => expanded.push((value.text, value.undefined)),
            Err(mistake) => mistakes.push(format!("properties: Line {}: {}: {mistake}", property.line, property.key)),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let referenced = std::mem::take(&mut expander.referenced);
    for (property, value) in properties.iter_mut().zip(expanded) {
        property.referenced = referenced.contains(&property.key);
        (property.value, property.undefined) = value;
    }
    Ok(properties)
}

/// Replaces `${NAME}` by what `environment` knows, else by nothing.
pub fn expand(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    Expander {
        raw: BTreeMap::new(),
        environment: &environment,
        done: HashMap::new(),
        referenced: HashSet::new(),
        spent: 0,
    }
    .text(text, &mut Vec::new())
    .map(|value| value.text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "MYADDR" => Some(":1234".to_owned()),
            "NESTED" => Some("<${MYADDR}>".to_owned()),
            "LOOP" => Some("${LOOP}".to_owned()),
            _ => None,
        }
    }

    fn read(text: &str) -> String {
        match parse(text, environment) {
            Ok(list) => list.iter().map(|p| format!("{}[{}]", p.key, p.value)).collect::<Vec<_>>().join(" "),
            Err(mistakes) => mistakes.join(" | "),
        }
    }

    #[test]
    fn files_are_read_as_documented() {
        for (text, want) in [
            ("", ""),
            ("\u{feff}a=b", "a[b]"),
            ("k v", "k[v]"),
            ("k=v\nk2: v\rk3 = v\r\nk4\tv", "k[v] k2[v] k3[v] k4[v]"),
            ("k = = v", "k[= v]"),
            ("k : = v", "k[= v]"),
            ("  # no\n ! no = x \\\nk v", "k[v]"),
            ("a = b # c", "a[b # c]"),
            ("a = b  \t", "a[b  \t]"),
            ("a", "a[]"),
            ("a =\nb", "a[] b[]"),
            ("a=1\nb=2\na=3", "a[3] b[2]"),
            (r"a\ b\:c\=d = e", "a b:c=d[e]"),
            (r"a = \n\r\t\f\ \:\=\+\\", "a[\n\r\t\x0c :=+\\]"),
            (r"a = \u0041\u00e9x", "a[A\u{e9}x]"),
            (r"a = \ud83d\ude00", "a[\u{1f600}]"),
            (r"a = \ud83dx", "a[\u{fffd}x]"),
            ("a = Se\\\n    cure\nb", "a[Secure] b[]"),
            ("a = x, \\\n  y", "a[x, y]"),
            ("a = x, \\\r\n  y\r\nb = z\r\n", "a[x, y] b[z]"),
            ("a = x\\\n\nb = y", "a[x] b[y]"),
            (r"proxy.gzip.contenttype = ^.*\\+json$", r"proxy.gzip.contenttype[^.*\+json$]"),
            (r"proxy.gzip.contenttype = ^.*\+json$", r"proxy.gzip.contenttype[^.*+json$]"),
            (
                "r = route add a /a http://h:1/\\n\\\n  route add b /b http://h:2/",
                "r[route add a /a http://h:1/\nroute add b /b http://h:2/]",
            ),
            ("proxy.addr = :80;proto=http, \\\n  :443;cs=x", "proxy.addr[:80;proto=http, :443;cs=x]"),
            ("proxy.strategy = rr ", "proxy.strategy[rr ]"),
            ("a = ${MYADDR}", "a[:1234]"),
            ("a = ${NESTED}", "a[<:1234>]"),
            ("a = <${b}>${b}\nb = ${c}\nc = x", "a[<x>x] b[x] c[x]"),
            ("a = ${none}y $z ${}", "a[y $z ]"),
            ("a = $remote_host $x", "a[$remote_host $x]"),
        ] {
            assert_eq!(read(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_does_not_count_and_what_nobody_knows_is_told() {
        let text = "a = 1\nb = ${none}x${MYADDR}${b2}\na = 2\nb2 = ${gone}\na = 3";
        let found = parse(text, environment).unwrap();
        let found: Vec<_> = found.iter().map(|p| (p.key.as_str(), &p.earlier[..], p.undefined.join(" "))).collect();
        let want = [("a", &[1, 3][..], ""), ("b", &[], "none gone"), ("b2", &[], "gone")];
        assert_eq!(found, want.map(|(key, earlier, names)| (key, earlier, names.to_owned())));
    }

    #[test]
    fn every_mistake_of_a_file_is_found() {
        for (text, want) in [
            ("a = b\n= v", "properties: Line 2: \"v\": a value without a key"),
            (
                "a = \\u00zz\nb = \\u12",
                "properties: Line 1: invalid unicode literal | properties: Line 2: invalid unicode literal",
            ),
            ("a = b\\", "properties: Line 1: premature EOF"),
            ("\n\na = ${open", "properties: Line 3: a: malformed expression: \"${open\" has no closing brace"),
            (
                "a = ${b}\nb = ${a}",
                "properties: Line 1: a: circular reference in: a -> b -> a | properties: Line 2: b: circular reference in: b -> a -> b",
            ),
            ("a = ${LOOP}", "properties: Line 1: a: circular reference in: a -> LOOP -> LOOP"),
        ] {
            assert_eq!(read(text), want, "{text:?}");
        }
    }

    #[test]
    fn expansion_is_bounded_whatever_the_order_of_lines() {
        let chain = |n: usize| (0..n).map(|i| format!("k{i} = ${{k{}}}\n", i + 1)).collect::<Vec<_>>();
        for lines in [chain(60), chain(60).into_iter().rev().collect()] {
            assert!(parse(&lines.concat(), environment).is_ok());
        }
        for lines in [chain(70), chain(70).into_iter().rev().collect()] {
            let mistakes = parse(&lines.concat(), environment).unwrap_err();
            assert!(mistakes.iter().all(|m| m.ends_with("expansion too deep")), "{mistakes:?}");
        }
        let doubling =
            |last: &str| (0..60).map(|i| format!("k{i} = ${{k{0}}}${{k{0}}}\n", i + 1)).collect::<String>() + last;
        assert!(parse(&doubling("k60 ="), environment).is_ok());
        assert!(parse(&doubling("k60 = x"), environment).unwrap_err()[0].contains("expansion too long"));
    }

    #[test]
    fn a_path_is_expanded_from_the_environment_alone() {
        assert_eq!(expand("/etc/${NONE}x${MYADDR}", environment).as_deref(), Ok("/etc/x:1234"));
        assert!(expand("${open", environment).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ab=: \\\\u0-9d${}\r\n#!\t]*") {
            let _ = parse(&text, environment);
        }
    }
}
