#![allow(clippy::unwrap_used)]
use super::*;
use crate::cert::certificate::Pair;
use crate::cert::testing::{Authority, Leaf};

fn certificate(name: &str, leaf: &Leaf) -> Certificate {
    let pair = Pair::parse(leaf.cert.as_bytes(), leaf.key.as_bytes()).unwrap();
    Certificate { name: name.into(), pair: Arc::new(pair) }
}

/// A store whose certificates are called as their first name.
fn store(sets: &[&[&str]]) -> Store {
    let authority = Authority::new("ca");
    let store = Store::new();
    store.replace(sets.iter().map(|names| certificate(names[0], &authority.leaf(names))).collect());
    store
}

/// Name of the certificate that is served.
fn served(store: &Store, asked: &Asked<'_>) -> Option<String> {
    let Selection::Found(key) = store.select(asked) else { return None };
    let all = store.certificates();
    Some(all.iter().find(|certificate| Arc::ptr_eq(&certificate.pair.key, &key)).unwrap().name.clone())
}

#[test]
fn selection() {
    let foo: &[&[&str]] = &[&["foo.com"]];
    let two: &[&[&str]] = &[&["bar.com"], &["foo.com"]];
    let wild: &[&[&str]] = &[&["*.bar.com"], &["foo.com"]];
    let both: &[&[&str]] = &[&["*.example.com"], &["www.example.com"]];
    let deep: &[&[&str]] = &[&["*.*.c.com"], &["foo.com"]];
    for (certificates, name, strict, want) in [
        (&[][..], Some("foo.com"), false, None),
        (two, Some("bar.com."), false, Some("bar.com")),
        (two, Some("FOO.com"), true, Some("foo.com")),
        (foo, Some("foo.com"), false, Some("foo.com")),
        (foo, Some("bar.com"), false, Some("foo.com")),
        (foo, Some("bar.com"), true, None),
        (foo, None, true, None),
        (foo, None, false, Some("foo.com")),
        (two, Some("whiz.com"), false, Some("bar.com")),
        (two, Some("whiz.com"), true, None),
        (wild, Some("quux.bar.com"), false, Some("*.bar.com")),
        (wild, Some("quux.bar.com"), true, Some("*.bar.com")),
        (wild, Some("bar.com"), true, None),
        (wild, Some("a.b.bar.com"), true, None),
        (both, Some("www.example.com"), true, Some("www.example.com")),
        (both, Some("api.example.com"), true, Some("*.example.com")),
        (both, Some("a.b.example.com"), true, None),
        (deep, Some("a.b.c.com"), true, Some("*.*.c.com")),
        (deep, Some("b.c.com"), true, None),
        (deep, Some(""), true, None),
        (deep, Some("..."), true, None),
    ] {
        let asked = Asked { name, strict, ..Asked::default() };
        assert_eq!(served(&store(certificates), &asked).as_deref(), want, "{certificates:?} {name:?} {strict}");
    }
    assert!(matches!(store(&[]).select(&Asked::default()), Selection::Empty));
    assert!(matches!(store(foo).select(&Asked { strict: true, ..Asked::default() }), Selection::Unknown));
    let long = "x".repeat(300);
    for name in [long.as_str(), &".".repeat(255), &"a.".repeat(126)] {
        assert_eq!(served(&store(wild), &Asked { name: Some(name), strict: true, ..Asked::default() }), None);
    }
}

#[test]
fn an_address_without_a_name() {
    let store = store(&[&["a.com"], &["b.com", "10.1.2.3", "::1"]]);
    for (address, strict, want) in [
        ("10.1.2.3", true, Some("b.com")),
        ("::ffff:10.1.2.3", true, Some("b.com")),
        ("::1", false, Some("b.com")),
        ("10.1.2.4", false, Some("a.com")),
        ("10.1.2.4", true, None),
    ] {
        let asked = Asked { address: Some(address.parse().unwrap()), strict, ..Asked::default() };
        assert_eq!(served(&store, &asked).as_deref(), want, "{address} {strict}");
    }
}

#[test]
fn of_several_for_a_name_the_last_usable_one() {
    let authority = Authority::new("ca");
    let store = Store::new();
    let elliptic = authority.leaf(&["a.com"]);
    let later = authority.leaf(&["a.com"]);
    let expired = authority.leaf_valid(&["a.com"], -20, -10);
    store.replace(vec![certificate("1", &elliptic), certificate("2", &later)]);
    let asked = Asked { name: Some("a.com"), ..Asked::default() };
    assert_eq!(served(&store, &asked).unwrap(), "2");
    store.replace(vec![certificate("1", &elliptic), certificate("2", &later), certificate("3", &expired)]);
    assert_eq!(served(&store, &asked).unwrap(), "2");
    store.replace(vec![certificate("3", &expired)]);
    assert_eq!(served(&store, &asked).unwrap(), "3");

    let rsa = authority.leaf_rsa(&["a.com"]);
    store.replace(vec![certificate("ec", &elliptic), certificate("rsa", &rsa)]);
    assert_eq!(served(&store, &asked).unwrap(), "rsa");
    for (schemes, want) in [
        (&[SignatureScheme::ECDSA_NISTP256_SHA256][..], "ec"),
        (&[SignatureScheme::RSA_PSS_SHA256][..], "rsa"),
        (&[SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256][..], "rsa"),
        (&[SignatureScheme::ED25519][..], "rsa"),
    ] {
        assert_eq!(served(&store, &Asked { schemes, ..asked }).unwrap(), want, "{schemes:?}");
    }
}

#[test]
fn misdirected_requests() {
    let store = store(&[&["*.foo.com", "foo.com"], &["bar.com", "10.0.0.1"], &["both.com", "also.com"]]);
    for (server_name, authority, want) in [
        (Some("foo.com"), "foo.com", false),
        (Some("foo.com"), "FOO.com.:443", false),
        (Some("foo.com"), "a.foo.com", false),
        (Some("foo.com"), "bar.com", true),
        (Some("foo.com"), "bar.com:8443", true),
        (Some("foo.com"), "nobody.com", false),
        (Some("both.com"), "also.com", false),
        (Some("foo.com"), "10.0.0.1", true),
        (Some("bar.com"), "10.0.0.1:443", false),
        (Some("foo.com"), "[::1]:443", false),
        // The first one was shown.
        (None, "x.foo.com", false),
        (None, "bar.com", true),
        (Some("nobody.com"), "foo.com", false),
        (Some("nobody.com"), "bar.com", true),
        (Some("foo.com"), "", false),
        (Some("foo.com"), "]:[", false),
    ] {
        let elsewhere = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(store.is_misdirected(server_name, elsewhere, authority), want, "{server_name:?} {authority:?}");
    }
    // A client that has no name, and was shown the certificate of the address.
    let address = IpAddr::from([10, 0, 0, 1]);
    for (authority, want) in [("10.0.0.1:8443", false), ("bar.com", false), ("x.foo.com", true)] {
        assert_eq!(store.is_misdirected(None, address, authority), want, "{authority:?}");
    }
}

#[test]
fn two_thousand_certificates_are_found_quickly() {
    let authority = Authority::new("ca");
    let leaf = authority.leaf(&["x.com"]);
    let pair = Pair::parse(leaf.cert.as_bytes(), leaf.key.as_bytes()).unwrap();
    let key = pair.key.clone();
    let certificates = (0..2000).map(|n| {
        let mut facts = pair.facts.clone();
        facts.names = vec![format!("host{n}.com"), format!("*.host{n}.com")];
        Certificate { name: format!("{n}"), pair: Arc::new(Pair { key: key.clone(), facts, used: Default::default() }) }
    });
    let store = Store::new();
    store.replace(certificates.collect());
    let names: Vec<String> = (0..2000).map(|n| format!("www.host{n}.com")).collect();
    let begun = std::time::Instant::now();
    for name in &names {
        let asked = Asked { name: Some(name), strict: true, ..Asked::default() };
        assert!(matches!(store.select(&asked), Selection::Found(_)));
    }
    // Built without optimisation, on a busy machine: far from the goal of 1 us, and far from a linear search.
    assert!(begun.elapsed() < std::time::Duration::from_millis(100), "{:?}", begun.elapsed());
}
