//! Certificates ordered from a CA that checks everything for real.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use crate::proxy::{Proxy, Start};
use crate::testing::acme::{Acme, Place, trusting};
use crate::testing::client::Client;
use crate::testing::consul::Consul;
use crate::testing::ferrio::{Ferrio, Setup};
use crate::testing::origin::Origin;
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, free_addr, free_addrs, until};

/// Longer than an order, a renewal and their pauses take.
const LONG: Duration = PATIENCE;

fn source(acme: &Acme, options: &str) -> String {
    format!("cs=a;type=acme;cert={};ca={};retry=1s;refresh=1s;{options}", acme.directory(), acme.root().display())
}

/// The serial number of what is shown for a name to a client that trusts the CA.
async fn served(acme: &Acme, addr: SocketAddr, name: &str) -> Option<String> {
    let client = Client::connect(addr).await.try_tls(name, trusting(acme.issuer(), &["http/1.1"])).await.ok()?;
    let crate::testing::wire::Stream::Tls(stream) = &client.wire.stream else { return None };
    let leaf = stream.get_ref().1.peer_certificates()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf.first()?).ok()?;
    Some(parsed.raw_serial_as_string())
}

async fn gets(acme: &Acme, addr: SocketAddr, name: &str) -> String {
    until(LONG, &format!("a certificate for {name}; the CA says {:?}", acme.log().faults), async || {
        served(acme, addr, name).await
    })
    .await
}

async fn start(acme: &Acme, origin: &Origin, options: &str) -> Proxy {
    let routes = format!(
        "route add o shop.test/ {0}\nroute add o other.example/ {0}\nroute add o *.wild.test/ {0}",
        origin.url()
    );
    let proxy = Start::routes(routes)
        .property("proxy.cs", source(acme, options))
        .property("proxy.addr", "ADDR,MORE;cs=a;strictmatch=true")
        .start()
        .await;
    acme.rules(|rules| rules.places = vec![Place { http: Some(proxy.addr), tls: Some(proxy.more) }]);
    proxy
}

#[tokio::test]
async fn both_challenges_lead_to_a_certificate_and_disturb_nothing() {
    for (kind, alone) in [("http-01", false), ("tls-alpn-01", false), ("http-01", true), ("tls-alpn-01", true)] {
        let (acme, origin) = (Acme::start().await, Origin::start("o").await);
        let dir = tempfile::tempdir().unwrap();
        if alone {
            // `any` takes what the CA offers, and nonces that are refused are taken anew.
            acme.rules(|rules| (rules.kinds, rules.bad_nonces) = (vec![kind], true));
        }
        let challenge = if alone { "any" } else { kind };
        let options = format!("store={};challenge={challenge};filter=*.test", dir.path().display());
        let proxy = start(&acme, &origin, &options).await;
        gets(&acme, proxy.more, "shop.test").await;
        let log = acme.log();
        assert_eq!((log.passed, log.orders, log.accounts), (vec![kind.to_owned()], vec!["shop.test".to_owned()], 1));
        assert!(log.faults.is_empty(), "{:?}", log.faults);

        // Nothing is pending any more: such paths are routed, and such handshakes refused.
        let path = "/.well-known/acme-challenge/abc";
        assert_eq!(proxy.get("shop.test", path).await.text(), "o");
        let asking =
            Client::connect(proxy.more).await.try_tls("shop.test", trusting(acme.issuer(), &["acme-tls/1"])).await;
        assert!(asking.is_err());
        let mut client = Client::connect_tls(proxy.more, "shop.test", trusting(acme.issuer(), &[])).await;
        assert_eq!(client.get("shop.test", "/").await.text(), "o");
        proxy.ends_well().await;
    }
}

#[tokio::test]
async fn a_restart_keeps_account_and_certificate() {
    let (acme, origin, dir) = (Acme::start().await, Origin::start("o").await, tempfile::tempdir().unwrap());
    let options = format!("store={};names=\"fixed.example.com\";table=false", dir.path().display());
    let proxy = start(&acme, &origin, &options).await;
    let first = gets(&acme, proxy.more, "fixed.example.com").await;
    proxy.ends_well().await;
    let proxy = start(&acme, &origin, &options).await;
    assert_eq!(gets(&acme, proxy.more, "fixed.example.com").await, first);
    // What the CA has seen does not change with the second start; a question about renewal would be the first thing.
    let log = acme.log();
    assert_eq!((log.accounts, log.orders.len(), log.issued), (1, 1, 1));
    let files = walk(dir.path());
    assert!(files.len() > 2, "{files:?}");
    for entry in files {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", entry.display());
    }
    proxy.ends_well().await;
}

fn walk(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn certificates_are_renewed_before_they_expire_and_as_the_ca_wishes() {
    for renewal in [None, Some(1)] {
        let (acme, origin, dir) = (Acme::start().await, Origin::start("o").await, tempfile::tempdir().unwrap());
        acme.rules(|rules| {
            rules.renewal = renewal;
            // Two thirds of it are 6 s; the wish of the CA comes long before two thirds.
            rules.lifetime = if renewal.is_some() { 3600 } else { 9 };
        });
        let proxy = start(&acme, &origin, &format!("store={};filter=shop.test", dir.path().display())).await;
        let first = gets(&acme, proxy.more, "shop.test").await;
        let renewed = until(LONG, "another certificate", async || {
            let serial = served(&acme, proxy.more, "shop.test").await.expect("there is always a certificate");
            (serial != first).then_some(serial)
        });
        renewed.await;
        let log = acme.log();
        assert!(log.faults.is_empty() && log.accounts == 1, "{log:?}");
        assert_eq!(log.replaced > 0, renewal.is_some(), "{log:?}");
        proxy.ends_well().await;
    }
}

#[tokio::test]
async fn a_ca_that_is_down_or_refuses_costs_no_certificate() {
    let (acme, origin, dir) = (Acme::start().await, Origin::start("o").await, tempfile::tempdir().unwrap());
    acme.rules(|rules| rules.down = true);
    let proxy = start(&acme, &origin, &format!("store={};filter=shop.test", dir.path().display())).await;
    until(LONG, "an attempt", async || (acme.log().requests > 1).then_some(())).await;
    assert_eq!(proxy.get("shop.test", "/").await.text(), "o", "traffic goes on");
    // It comes back, refuses by its limit, and then takes orders.
    acme.rules(|rules| (rules.down, rules.rate_limit) = (false, Some(2)));
    until(LONG, "a refusal", async || (acme.log().limited > 0).then_some(())).await;
    let limited = std::time::Instant::now();
    acme.rules(|rules| (rules.rate_limit, rules.lifetime) = (None, 9));
    let first = gets(&acme, proxy.more, "shop.test").await;
    assert!(limited.elapsed() > Duration::from_millis(900), "sooner than the CA said");
    // Renewals fail, and the certificate stays.
    acme.rules(|rules| rules.rate_limit = Some(1));
    let before = acme.log().limited;
    until(LONG, "a renewal that is refused", async || (acme.log().limited > before).then_some(())).await;
    assert_eq!(served(&acme, proxy.more, "shop.test").await, Some(first));
    let (ferrio, report) = (&proxy.ferrio, proxy.ferrio.stderr());
    assert!(report.contains("keeping the previous certificate"), "{}", ferrio.stderr());
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_challenge_that_fails_costs_its_name_only_and_the_other_kind_is_tried() {
    let (acme, origin, dir) = (Acme::start().await, Origin::start("o").await, tempfile::tempdir().unwrap());
    let proxy = start(&acme, &origin, &format!("store={};filter=shop.test", dir.path().display())).await;
    // Nothing reaches the plain listener from outside.
    acme.rules(|rules| rules.places = vec![Place { http: Some(free_addr()), tls: Some(proxy.more) }]);
    gets(&acme, proxy.more, "shop.test").await;
    let log = acme.log();
    assert!(log.passed == ["tls-alpn-01"] && log.faults.is_empty(), "{log:?}");
    proxy.ends_well().await;
}

#[tokio::test]
async fn the_cap_and_the_filter_hold() {
    let (acme, origin, dir) = (Acme::start().await, Origin::start("o").await, tempfile::tempdir().unwrap());
    let lines = |names: &[&str]| -> String {
        names.iter().map(|name| format!("route add o {name}/ {}\n", origin.url())).collect()
    };
    let stray = ["a.ok.test", "b.ok.test", "c.ok.test", "evil.org", "*.ok.test", "10.0.0.1", "ok.test"];
    let options = format!("store={};filter=\"*.ok.test\";max=2;names=fixed.org", dir.path().display());
    let proxy = Start::routes(lines(&stray))
        .property("proxy.cs", source(&acme, &options))
        .property("proxy.addr", "ADDR,MORE;cs=a;strictmatch=true")
        .start()
        .await;
    acme.rules(|rules| rules.places = vec![Place { http: Some(proxy.addr), tls: Some(proxy.more) }]);
    for name in ["fixed.org", "a.ok.test", "b.ok.test"] {
        gets(&acme, proxy.more, name).await;
    }
    // Other hosts come and go: they are not ordered, as the others count on.
    proxy.set_routes(&lines(&["d.ok.test", "e.ok.test"]));
    proxy.serves("d.ok.test", "/", "o").await;
    let said = "2 more have none";
    until(LONG, said, async || proxy.ferrio.stderr().contains(said).then_some(())).await;
    let mut orders = acme.log().orders;
    orders.sort();
    assert_eq!(orders, ["a.ok.test", "b.ok.test", "fixed.org"]);
    proxy.ends_well().await;
}

#[tokio::test]
async fn many_share_one_account_and_order_once() {
    let (acme, origin, consul) = (Acme::start().await, Origin::start("o").await, Consul::real().await);
    // Until both of them can be asked.
    acme.rules(|rules| rules.down = true);
    acme.rules(|rules| rules.external = Some(("key-1".into(), b"a shared secret".to_vec())));
    consul.put("o1", "o", origin.addr(), &["urlprefix-shop.test/"], &["passing"]).await;
    let mut running: Vec<(Ferrio, SocketAddr)> = Vec::new();
    let mut places = Vec::new();
    let secrets = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = secrets.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (hmac, secret) = (file("hmac", "YSBzaGFyZWQgc2VjcmV0\n"), file("secret", "correct horse"));
    // Tests that run at the same time may take a port; then all are chosen anew.
    let sets: [[SocketAddr; 3]; 2] = [free_addrs(), free_addrs()];
    for [http, tls, admin] in sets {
        let options = format!("eabkid=key-1;eabhmac=file:{hmac};secret=file:{secret};filter=shop.test");
        let setup = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
            .property("registry.consul.addr", consul.addr())
            .property("registry.consul.register.enabled", false)
            .property("proxy.cs", source(&acme, &options))
            .property("proxy.addr", format!("{http},{tls};cs=a"))
            .property("ui.addr", admin);
        places.push(Place { http: Some(http), tls: Some(tls) });
        acme.rules(|rules| rules.places = places.clone());
        running.push((setup.spawn(), tls));
    }
    acme.rules(|rules| rules.places = places.clone());
    for (ferrio, _) in &mut running {
        ferrio.listening().await;
    }
    acme.rules(|rules| rules.down = false);
    let mut serials = Vec::new();
    for (_, tls) in &running {
        serials.push(gets(&acme, *tls, "shop.test").await);
    }
    assert_eq!(serials[0], serials[1]);
    let log = acme.log();
    assert_eq!((log.accounts, log.orders.len(), log.issued), (1, 1, 1), "{log:?}");
    assert!(log.faults.is_empty(), "{log:?}");

    // Nothing in Consul is a key that can be read.
    let keys = consul.ok("GET", "/v1/kv/ferrio/?keys", "").await;
    let keys: Vec<String> = keys.as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect();
    assert!(keys.iter().any(|key| key.ends_with("certificates/shop.test")), "{keys:?}");
    for key in &keys {
        let value = consul.kv_get(key).await.unwrap_or_default();
        assert!(!value.contains("PRIVATE KEY") && !value.contains("key_pkcs8"), "{key}");
    }

    // Another one comes later, finds everything there, and orders nothing.
    drop(running.pop());
    let [http, tls, admin] = free_addrs();
    let options = format!("eabkid=key-1;eabhmac=file:{hmac};secret=file:{secret};filter=shop.test");
    let _late = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("registry.consul.addr", consul.addr())
        .property("registry.consul.register.enabled", false)
        .property("proxy.cs", source(&acme, &options))
        .property("proxy.addr", format!("{http},{tls};cs=a"))
        .property("ui.addr", admin)
        .start()
        .await;
    assert_eq!(gets(&acme, tls, "shop.test").await, serials[0]);
    assert_eq!((acme.log().accounts, acme.log().issued), (1, 1));
}

#[tokio::test]
async fn another_takes_over_when_the_one_that_orders_dies() {
    let (acme, origin, consul) = (Acme::start().await, Origin::start("o").await, Consul::real().await);
    consul.put("o1", "o", origin.addr(), &["urlprefix-shop.test/"], &["passing"]).await;
    acme.rules(|rules| rules.stalled = true);
    let ferrio = async || {
        let [http, tls, admin] = free_addrs();
        let place = Place { http: Some(http), tls: Some(tls) };
        acme.rules(|rules| rules.places.push(place));
        let setup = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
            .property("registry.consul.addr", consul.addr())
            .property("registry.consul.register.enabled", false)
            .property("proxy.cs", source(&acme, "filter=shop.test"))
            .property("proxy.addr", format!("{http},{tls};cs=a"))
            .property("ui.addr", admin);
        (setup.start().await, place, tls)
    };
    let (mut first, place, _) = ferrio().await;
    let ordered = || acme.log().orders.len();
    until(LONG, "an order", async || (ordered() == 1).then_some(())).await;
    let (_second, _, tls) = ferrio().await;
    first.signal(Signal::KILL);
    first.process().wait(LONG).await;
    // Nobody answers there any more.
    acme.rules(|rules| rules.places.retain(|other| *other != place));
    acme.rules(|rules| rules.stalled = false);
    // Consul ends the session of the dead after 15 to 30 seconds.
    until(LONG * 3, "a certificate", async || served(&acme, tls, "shop.test").await).await;
    let log = acme.log();
    assert_eq!((log.accounts, log.issued), (1, 1), "{log:?}");
    assert!(log.faults.is_empty(), "{log:?}");
}
