//! What patterns match, against the obvious matcher and another library.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn matches(pattern: &str, text: &str) -> bool {
    Glob::parse(pattern.as_bytes()).expect(pattern).matches(text.as_bytes())
}

#[test]
fn semantics() {
    for (pattern, yes, no) in [
        ("", &[""][..], &["a"][..]),
        ("/foo", &["/foo"], &["/fo", "/fools", "/Foo"]),
        ("/foo?", &["/fool", "/foo/", "/fooé"], &["/foo", "/fools"]),
        ("/foo*", &["/foo", "/fool", "/fools", "/foo/x/y"], &["/fo"]),
        ("/foo.*", &["/foo.", "/foo.x"], &["/fools"]),
        ("/foo/*/bar", &["/foo/x/bar", "/foo/1/2/bar", "/foo//bar"], &["/foo/bar", "/foo/1/bar/x"]),
        ("/foo/**", &["/foo/x/y/z/w/bar", "/foo/"], &["/foo"]),
        ("/foo/**/bar", &["/foo/x/y/z/w/bar"], &["/foo/x/y/z/w/baz", "/foo/bar"]),
        ("api.*.net", &["api.x.net", "api.x.y.net", "api..net"], &["api.net"]),
        ("aba*aba", &["abaaba", "abaxaba"], &["aba", "ababa"]),
        ("*", &["", "a", "a.b:80/"], &[]),
        ("*.abc.com", &[".abc.com", "x.abc.com", "x.y.abc.com"], &["abc.com", "xabc.com", "x.abc.com."]),
        ("[abc].com", &["a.com", "c.com"], &["d.com", ".com", "ab.com"]),
        ("[a-c].com", &["b.com"], &["d.com", "-.com"]),
        ("[!abc].com", &["d.com", "é.com"], &["a.com", ".com"]),
        ("[!a-c].com", &["d.com"], &["b.com"]),
        ("[a-z0-9]", &["q", "5"], &["-", "A"]),
        ("[à-ü]", &["é"], &["e"]),
        ("[a-]", &["a", "-"], &["b"]),
        ("[\\]]", &["]"], &["\\"]),
        ("{a,b}.com", &["a.com", "b.com"], &["c.com", "ab.com"]),
        ("foo.{com,org}", &["foo.com", "foo.org"], &["foo.net"]),
        ("{a,b{c,d*}}x", &["ax", "bcx", "bdx", "bdxx"], &["bx", "acx"]),
        ("/x/{a,b}*", &["/x/b1", "/x/a"], &["/x/c"]),
        ("{,a}b", &["b", "ab"], &["aab"]),
        ("{a,b", &["a", "b"], &["{a,b"]),
        ("a,b}", &["a,b}"], &["a"]),
        ("a]", &["a]"], &[]),
        ("\\*\\?\\[\\{\\\\", &["*?[{\\"], &["a"]),
        ("a?b?c", &["axbyc", "aébüc"], &["abc"]),
        ("*é?", &["é1", "xéü"], &["é"]),
    ] {
        for text in yes {
            assert!(matches(pattern, text), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!matches(pattern, text), "{pattern} should not match {text}");
        }
    }
    assert!(Glob::parse(b"?\xff?").expect("fine").matches(b"\xfe\xff\xfd"));
}

#[test]
fn what_does_not_compile() {
    let wide = "{a,b}".repeat(7);
    let deep = "{".repeat(17);
    let long = "a".repeat(1025);
    for pattern in ["[", "/foo[", "foo[.com", "[]", "[!]", "[b-a]", "a\\", "[\\", "{a,[}", &wide, &deep, &long] {
        assert!(Glob::parse(pattern.as_bytes()).is_err(), "{pattern}");
    }
    assert!(Glob::parse("{a,b}".repeat(6).as_bytes()).is_ok());
}

#[test]
fn hostile_patterns_take_no_time() {
    let start = Instant::now();
    let text = "a".repeat(20_000);
    for pattern in
        ["*a*a*a*a*a*a*a*a*a*a*a*a*b", "{*a,*a*}{*a,*a*}{*a,*a*}{*a,*a*}b", "*?a?a?a?b", "*a*a*a*{b,{c,{d,e}}}"]
    {
        assert!(!matches(pattern, &text), "{pattern}");
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// The obvious matcher, exponential and right.
fn slow(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        (['*', rest @ ..], text) => (0..=text.len()).any(|n| slow(rest, &text[n..])),
        (['?', rest @ ..], [_, text @ ..]) => slow(rest, text),
        ([p, rest @ ..], [t, text @ ..]) => p == t && slow(rest, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn agrees_with_the_obvious_matcher(pattern in "[ab?*é]{0,8}", text in "[abé]{0,8}") {
        let p: Vec<char> = pattern.chars().collect();
        let t: Vec<char> = text.chars().collect();
        prop_assert_eq!(matches(&pattern, &text), slow(&p, &t));
    }

    #[test]
    fn agrees_with_globset(pattern in "([ab./:*?]|\\[ab\\]|\\[!a\\]|\\[a-b\\]|\\{a,b\\*\\}|\\{,b\\}){0,7}", text in "[abc./:]{0,8}") {
        let reference = globset::GlobBuilder::new(&pattern).literal_separator(false).empty_alternates(true).build();
        // It gives `**/` and the like a meaning of their own, which fabio has not.
        prop_assume!(!pattern.contains("**"));
        let reference = reference.expect("these compile").compile_matcher();
        // It matches paths: some of them it normalises.
        let matched = regex::bytes::Regex::new(reference.glob().regex()).expect("its own").is_match(text.as_bytes());
        prop_assert_eq!(matches(&pattern, &text), matched);
    }

    #[test]
    fn never_panics(pattern in prop::collection::vec(prop::sample::select(&b"ab*?[]!-{},\\\xc3\xa9"[..]), 0..24), text in prop::collection::vec(any::<u8>(), 0..12)) {
        if let Ok(glob) = Glob::parse(&pattern) {
            glob.matches(&text);
        }
    }
}
