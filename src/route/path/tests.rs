//! Request paths through `clean`, `strip` and `forward`.

use proptest::prelude::*;

use super::*;
use crate::route::options;

fn cleaned(raw: &str) -> (String, String) {
    let cleaned = clean(raw);
    (cleaned.raw.into_owned(), String::from_utf8_lossy(&cleaned.decoded).into_owned())
}

#[test]
fn table_of_request_targets() {
    for (request, routed, sent) in [
        ("/foo%2Fbar", "/foo/bar", "/foo%2Fbar"),
        ("/foo/../bar", "/bar", "/bar"),
        ("/foo//bar", "/foo/bar", "/foo/bar"),
        ("/api%2F..%2Fv2//users/", "/v2/users/", "/v2/users/"),
        ("/api/users/", "/api/users/", "/api/users/"),
        ("/a%2F", "/a/", "/a%2F"),
        ("/%2e%2e/etc", "/etc", "/etc"),
        ("/../../etc", "/etc", "/etc"),
        // Decoded once: these are no slash, no end of the path, no dot segment.
        ("/a%252Fb", "/a%2Fb", "/a%252Fb"),
        ("/%252e%252e/x", "/%2e%2e/x", "/%252e%252e/x"),
        ("/a%3Fb", "/a?b", "/a%3Fb"),
        ("/a%23b", "/a#b", "/a%23b"),
        ("/100%25", "/100%", "/100%25"),
        ("/a%00b", "/a\0b", "/a%00b"),
        ("//host/x", "/host/x", "/host/x"),
        ("//host", "/host", "/host"),
        ("///x", "/x", "/x"),
        ("/foo/.", "/foo", "/foo"),
        ("/foo/./", "/foo/", "/foo/"),
        ("/foo/./bar", "/foo/bar", "/foo/bar"),
        ("/a/b/../", "/a/", "/a/"),
        ("/a/b/..", "/a", "/a"),
        ("", "/", "/"),
        ("/", "/", "/"),
        ("//", "/", "/"),
        ("/.", "/", "/"),
        ("/..", "/", "/"),
        ("/../", "/", "/"),
        ("/%2F", "/", "/"),
        ("/a%2F%2Fb", "/a/b", "/a%2F%2Fb"),
        ("/a/%2Fb", "/a/b", "/a/%2Fb"),
        ("/%20/a%2f/", "/ /a/", "/%20/a%2f/"),
        ("/%2f/a", "/a", "/a"),
        ("/a//%2F//b", "/a/b", "/a/%2F/b"),
        ("/a%2f./b", "/a/b", "/a/b"),
        ("/a%2f.%2fb", "/a/b", "/a%2fb"),
        ("/a%2f/../b", "/b", "/b"),
        ("/a/b%2f/..%2Fc", "/a/c", "/a/c"),
        ("/a%2F%2fb%2f..%2fc", "/a/c", "/a%2fc"),
        ("/a%2F/b", "/a/b", "/a%2F/b"),
        ("/a%2fb%2f..%2fc", "/a/c", "/a%2fc"),
        ("/a/b%2f..%2fc", "/a/c", "/a/c"),
        ("/public/../admin", "/admin", "/admin"),
        ("/public/%2e%2e/admin", "/admin", "/admin"),
        ("/public/%2E./admin", "/admin", "/admin"),
        ("/public/..%2fadmin", "/admin", "/admin"),
        ("/public%2F..%2Fadmin", "/admin", "/admin"),
        ("//admin/../admin", "/admin", "/admin"),
        // What is no dot segment stays.
        ("/...", "/...", "/..."),
        ("/.a/..b/c.", "/.a/..b/c.", "/.a/..b/c."),
        // As they came: characters, case of digits, needless and broken escapes.
        ("/it's", "/it's", "/it's"),
        ("/a$&+,;=:@b", "/a$&+,;=:@b", "/a$&+,;=:@b"),
        ("/caf%c3%a9", "/café", "/caf%c3%a9"),
        ("/%41bc", "/Abc", "/%41bc"),
        ("/%zz/%4/%", "/%zz/%4/%", "/%zz/%4/%"),
        ("/%zz//%4/%", "/%zz/%4/%", "/%zz/%4/%"),
        ("foo", "/foo", "/foo"),
        ("..", "/", "/"),
    ] {
        assert_eq!(cleaned(request), (sent.to_owned(), routed.to_owned()), "{request}");
    }
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(&*clean("/%ff//%fe").decoded, b"/\xff/\xfe");
}

#[test]
fn nothing_is_copied_without_need() {
    let path = clean("/a/b.c/");
    assert!(matches!((&path.raw, &path.decoded), (Cow::Borrowed(_), Cow::Borrowed(_))));
    assert!(matches!(clean("/a%20b").raw, Cow::Borrowed(_)));
    assert!(matches!(path.strip("/a"), Some(Cow::Borrowed("/b.c/"))));
}

#[test]
fn strip_and_prepend() {
    for (opts, request, sent) in [
        ("strip=/foo", "/foo/bar", "/bar"),
        ("strip=/foo", "/foo", "/"),
        ("strip=/foo", "/foo/", "/"),
        ("strip=/foo", "/foobar", "/bar"),
        ("strip=/foo", "/foo/foo/x", "/foo/x"),
        ("strip=/foo", "/Foo/x", "/Foo/x"),
        ("strip=/foo", "/f%6Fo/a%2Fb", "/a%2Fb"),
        ("strip=/foo", "/foo%2fb%2Fc", "/b%2Fc"),
        ("strip=/foo", "/foo//x", "/x"),
        ("strip=/foo", "/foo%2F%2Fx%2F/y", "/x%2F/y"),
        ("strip=/foo", "/foo%2F/x", "/x"),
        ("strip=/foo/x", "/foo%2F/x%2F/y", "/y"),
        ("strip=/foo/", "/foo%2F/x", "/x"),
        ("strip=/foo", "/foo../x", "/x"),
        ("strip=/foo", "/foo.%2e/x", "/x"),
        ("strip=/foo", "/foo.", "/"),
        ("strip=/foo", "/foo%2e%2f%2e%2e%2fx", "/x"),
        ("strip=/foo", "/foo...", "/..."),
        ("strip=/foo/", "/foo/a", "/a"),
        ("strip=/", "/foo", "/foo"),
        ("strip=/my%20docs", "/my%20docs/a", "/a"),
        ("strip=/my%20docs", "/m%79%20docs/a", "/a"),
        ("strip=/caf\u{e9}", "/caf%C3%A9/x", "/x"),
        ("strip=/%zz", "/%zz/x", "/x"),
        ("strip=/c/d", "/c/x", "/c/x"),
        ("strip=/foo/bar/baz", "/foo", "/foo"),
        ("strip=/bar", "/foo/bar", "/foo/bar"),
        ("prepend=/foo", "/bar", "/foo/bar"),
        ("prepend=foo", "/bar", "/foo/bar"),
        ("prepend=/a/", "/b", "/a//b"),
        ("prepend=/", "/b", "/b"),
        ("prepend=//evil", "/b", "/evil/b"),
        ("prepend=/a/../b", "/c", "/b/c"),
        ("prepend=/%2e%2e", "/c", "/c"),
        ("prepend=/a?b#c\u{e9}%zz%20", "/c", "/a%3Fb%23c%C3%A9%25zz%20/c"),
        ("strip=/old prepend=/new", "/old/world", "/new/world"),
        ("strip=/old prepend=/new", "/old", "/new/"),
        ("strip=/old prepend=/new", "/other", "/new/other"),
        ("", "/a%2Fb", "/a%2Fb"),
    ] {
        let (options, _) = Options::parse(options::split(opts)).expect(opts);
        assert_eq!(clean(request).forward(&options), sent, "{opts} {request}");
    }
}

fn collapsed(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    path.dedup_by(|a, b| *a == b'/' && *b == b'/');
    path
}

/// Dots, slashes and escapes of both, mixed.
const MIXED: &str = "(/|%2F|%2f|\\.|%2e|%2E|a|b|%41|%25|%|%zz|é){0,14}";

proptest! {
    #[test]
    fn cleaning_is_complete_and_final(raw in MIXED, prefix in MIXED, prepend in MIXED) {
        let once = clean(&raw);
        prop_assert!(once.raw.starts_with('/'));
        prop_assert!(is_clean(&once.decoded));
        prop_assert!(!once.raw.contains("//"));
        prop_assert_eq!(collapsed(&decode(&once.raw)), once.decoded.to_vec());
        let again = clean(&once.raw);
        prop_assert_eq!(&again.raw, &once.raw);

        let (options, _) = Options::parse([("strip".to_owned(), prefix)].into()).expect("any strip is fine");
        let sent = once.forward(&options);
        prop_assert_eq!(&clean(&sent).raw, &sent);
        prop_assert!(!decode(&sent).starts_with(b"//"));

        let (options, _) = Options::parse([("prepend".to_owned(), prepend)].into()).expect("any prepend is fine");
        let sent = once.forward(&options);
        prop_assert!(sent.starts_with('/') && !sent.starts_with("//"));
        prop_assert!(!decode(&sent).split(|b| *b == b'/').any(|s| matches!(s, b"." | b"..")));
    }

    #[test]
    fn strip_agrees_with_the_decoded_view(raw in MIXED, cut in 0usize..9) {
        let path = clean(&raw);
        let prefix = &path.decoded[..cut.min(path.decoded.len())];
        if let Ok(prefix) = std::str::from_utf8(prefix) && !prefix.contains('%') {
            let rest = path.without(prefix).expect("it is a prefix");
            let rest = collapsed(&decode(rest));
            // Of a run of encoded slashes a part may be left.
            let slash = usize::from(prefix.ends_with('/') && rest.starts_with(b"/"));
            prop_assert_eq!(&rest[slash..], &path.decoded[prefix.len()..]);
        }
    }
}
