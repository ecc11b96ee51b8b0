//! Schemes together, on real files.

#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use http::header::AUTHORIZATION;

use super::*;
use crate::life::Life;

pub(super) fn peer() -> Peer {
    Peer { remote: "127.0.0.9:1".parse().unwrap(), local: "127.0.0.1:2".parse().unwrap(), tls: None }
}

pub(super) fn pools() -> Pools {
    let config = crate::upstream::Config {
        dial_timeout: Duration::from_secs(1),
        max_idle: 1,
        max_headers: 100,
        max_header_size: 65536,
        ..Default::default()
    };
    let shared = crate::upstream::Shared::new(&config).unwrap();
    Pools::new(config, shared)
}

pub(super) fn request<'a>(headers: &'a HeaderMap, peer: &'a Peer, pools: &'a Pools) -> Request<'a> {
    Request { method: &Method::GET, headers, host: "h.com", path: "/a b", query: Some("q=1"), peer, pools }
}

struct Case {
    _dir: tempfile::TempDir,
    auth: Arc<Auth>,
}

fn case(files: &[(&str, &str)]) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let schemes = files.iter().map(|(name, text)| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let kind = Kind::Basic(BasicConfig { file, refresh: None });
        SchemeConfig { name: (*name).to_owned(), realm: format!("realm of {name}"), kind }
    });
    let config = Config { schemes: schemes.collect() };
    let auth = Auth::start(&config, &Life::new().watch()).unwrap();
    Case { _dir: dir, auth }
}

impl Case {
    async fn check(&self, names: &str, user: Option<&str>) -> Result<(), Vec<String>> {
        let mut headers = HeaderMap::new();
        if let Some(user) = user {
            let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user));
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
        }
        match self.auth.check(names, &request(&headers, &peer(), &pools())).await {
            Ok(_) => Ok(()),
            Err(Refusal::Challenge(challenges)) => {
                Err(challenges.iter().map(|value| value.to_str().unwrap().to_owned()).collect())
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn one_of_them_or_all_of_them() {
    let case = case(&[("a", "u:p\nboth:x\n"), ("b", "v:q\nboth:x\n"), ("c,d", "w:r\n")]);
    for (names, user, right) in [
        ("a", Some("u:p"), true),
        ("a", Some("u:q"), false),
        ("a", None, false),
        ("a,b", Some("u:p"), true),
        ("a,b", Some("v:q"), true),
        ("a, b", Some("v:q"), true),
        ("a,b", Some("w:r"), false),
        ("a+b", Some("u:p"), false),
        ("a+b", Some("both:x"), true),
        ("c,d", Some("w:r"), true),
        ("none", Some("u:p"), false),
        ("a,none", Some("u:p"), true),
        ("none,a", Some("u:p"), true),
        ("a+none", Some("u:p"), false),
        ("a+", Some("u:p"), false),
        (",", Some("u:p"), false),
    ] {
        let got = case.check(names, user).await;
        assert_eq!(got.is_ok(), right, "{names} {user:?}");
        assert!(got.is_ok() || !got.unwrap_err().is_empty(), "{names}: a challenge belongs to each 401");
    }
    assert_eq!(case.check("a", None).await.unwrap_err(), ["Basic realm=\"realm of a\""]);
}

#[tokio::test]
async fn a_slow_hash_is_computed_once() {
    let stored = bcrypt::hash("secret", 11).unwrap();
    let case = case(&[("a", &format!("u:{stored}\n"))]);
    let begun = Instant::now();
    assert!(case.check("a", Some("u:secret")).await.is_ok());
    let once = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(case.check("a", Some("u:secret")).await.is_ok());
    }
    assert!(begun.elapsed() < once * 10, "{:?} for a hundred, {once:?} for one", begun.elapsed());
    assert!(case.check("a", Some("u:wrong")).await.is_err());
    assert!(case.check("a", Some("nobody:secret")).await.is_err());
}

#[test]
fn a_realm_cannot_break_out_of_its_quotes() {
    for (realm, want) in
        [("The Realm", "Basic realm=\"The Realm\""), ("a\"b\\c", "Basic realm=\"a\\\"b\\\\c\""), ("a\nb", "Basic")]
    {
        assert_eq!(challenge(realm), want);
    }
}
