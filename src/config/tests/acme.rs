//! Certificate sources of `type=acme`.

use super::*;
use crate::cert::acme::{Challenge, Config, LETSENCRYPT, Secret, Storage};
use crate::cert::{CertSource, Kind};

fn source(options: &str) -> CertSource {
    let cs = format!("cs=a;type=acme;{options}");
    let (config, _) = flags(&["-proxy.addr", ":443;cs=a", "-proxy.cs", &cs]);
    config.cert_sources.into_iter().next().unwrap()
}

fn acme(options: &str) -> Config {
    match source(options).kind {
        Kind::Acme { config, .. } => *config,
        other => panic!("{}", other.word()),
    }
}

#[test]
fn defaults() {
    let config = acme("cert=letsencrypt");
    assert_eq!(config.directory, LETSENCRYPT);
    assert!(config.names.table && config.names.fixed.is_empty() && config.names.filter.is_empty());
    assert_eq!((config.names.most, config.challenge, config.secret), (50, Challenge::Any, None));
    match config.storage {
        Storage::Consul { client, prefix } => {
            assert_eq!((client.addr.as_str(), prefix.as_str()), ("localhost:8500", "ferrio/acme"))
        }
        Storage::Directory(path) => panic!("{}", path.display()),
    }
}

#[test]
fn everything() {
    let config = acme(
        "cert=https://ca.test/dir;ca=/ca.pem;email=a@b.c;eabkid=k;eabhmac=env:HMAC;names=\"A.test., b.test\";table=false;\
         filter=\"*.x.test\";max=7;challenge=tls-alpn-01;profile=short;store=/var/lib/acme;secret=file:/s;retry=1m",
    );
    assert_eq!(config.names.fixed, ["a.test", "b.test"]);
    assert_eq!((config.names.table, config.names.most, config.names.filter.len()), (false, 7, 1));
    assert_eq!(config.challenge, Challenge::TlsAlpn);
    assert!(config.storage == Storage::Directory("/var/lib/acme".into()));
    assert_eq!(config.secret, Some(Secret::File("/s".into())));
    assert_eq!((config.retry.as_secs(), config.profile.as_deref()), (60, Some("short")));
    assert!(config.external_account.is_some_and(|account| account.key == Secret::Variable("HMAC".into())));
}

#[test]
fn refusals() {
    for (options, part) in [
        ("cert=/etc/certs", "no ACME directory"),
        ("cert=letsencrypt;names=*.a.test", "wildcards"),
        ("cert=letsencrypt;names=a_b", "no name"),
        ("cert=letsencrypt;filter=a/b", "no pattern"),
        ("cert=letsencrypt;table=false", "nothing to order"),
        ("cert=letsencrypt;table=no", "neither true nor false"),
        ("cert=letsencrypt;max=-1", "max is a number"),
        ("cert=letsencrypt;secret=hunter2", "write file:PATH or env:NAME"),
        ("cert=letsencrypt;eabkid=k", "needs both"),
        ("cert=letsencrypt;challenge=dns-01", "write any, http-01 or tls-alpn-01"),
        ("cert=letsencrypt;retry=0", "above 0"),
        ("cert=letsencrypt;store=consul:/fabio/config/acme", "lies below"),
    ] {
        let cs = format!("cs=a;type=acme;{options}");
        let text = refused(&["-proxy.addr", ":443;cs=a", "-proxy.cs", &cs]).to_string();
        assert!(text.contains(part), "{options}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
