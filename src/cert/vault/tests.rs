#![allow(clippy::unwrap_used)]
//! Against a stand-in: a server that answers as Vault's API documentation says for the few calls that are used. No real
//! Vault takes part.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::cert::testing::{Authority, Leaf, Request, config, serve};
use crate::cert::tests::{served, serves, until};
use crate::cert::{Asked, CertSource, Kind, Selection, Source, Store, start};

struct StandIn {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Plain tokens that are let in.
    tokens: BTreeMap<String, Token>,
    /// Wrapping token to what it holds; each opens once.
    wrapped: BTreeMap<String, String>,
    /// Of the KV engine mounted at `secret/`.
    version: u8,
    /// Below `secret/`.
    secrets: BTreeMap<String, Value>,
    /// Paths that fail with this status.
    broken: BTreeMap<String, u16>,
    authority: Authority,
    /// Seconds that issued certificates live.
    life: i64,
    /// Method and path, names for issue calls.
    calls: Vec<String>,
    down: bool,
}

#[derive(Clone, Copy)]
struct Token {
    /// 0: for ever.
    ttl: u64,
    renewable: bool,
    renewed: u32,
}

impl StandIn {
    async fn new(version: u8) -> Self {
        let state = Arc::new(Mutex::new(State {
            tokens: BTreeMap::from([("root".into(), Token { ttl: 0, renewable: false, renewed: 0 })]),
            wrapped: BTreeMap::new(),
            version,
            secrets: BTreeMap::new(),
            broken: BTreeMap::new(),
            authority: Authority::new("vault"),
            life: 24 * 60 * 60,
            calls: Vec::new(),
            down: false,
        }));
        let shared = state.clone();
        let addr = serve(move |request| {
            let mut state = shared.lock().unwrap();
            if state.down {
                return None;
            }
            let (status, body) = state.answer(request);
            Some((status, "Content-Type: application/json\r\n".into(), body.to_string()))
        });
        Self { addr: addr.await, state }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn env(&self, more: &[(&str, &str)]) -> Env {
        let address = format!("http://{}", self.addr);
        let mut all = vec![("VAULT_ADDR", address.as_str())];
        all.extend_from_slice(more);
        Env::of(&all)
    }

    fn put(&self, name: &str, leaf: &Leaf) {
        self.state().secrets.insert(name.into(), json!({ "cert": leaf.cert, "key": leaf.key }));
    }

    fn token(&self, name: &str, ttl: u64, renewable: bool) {
        self.state().tokens.insert(name.into(), Token { ttl, renewable, renewed: 0 });
    }

    fn calls(&self, of: &str) -> usize {
        self.state().calls.iter().filter(|call| call.contains(of)).count()
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> (u16, Value) {
        let error = |status: u16, text: &str| (status, json!({ "errors": [text] }));
        let path = request.path.strip_prefix("/v1/").unwrap_or_default();
        self.calls.push(format!("{} {path}", request.method));
        assert_eq!(request.header("x-vault-request"), Some("true"));
        let Some(token) = request.header("x-vault-token").map(str::to_owned) else {
            return error(400, "missing client token");
        };
        if path == "sys/wrapping/unwrap" && request.method == "PUT" {
            return match self.wrapped.remove(&token) {
                Some(inner) => (200, json!({ "auth": { "client_token": inner } })),
                None => error(400, "wrapping token is not valid or does not exist"),
            };
        }
        let Some(known) = self.tokens.get_mut(&token) else { return error(403, "permission denied") };
        if let Some(status) = self.broken.get(path) {
            return error(*status, "internal error");
        }
        if path == "auth/token/lookup-self" {
            let expires = (known.ttl > 0).then_some("2030-01-01T00:00:00Z");
            let data = json!({
                "ttl": known.ttl, "creation_ttl": known.ttl, "expire_time": expires, "renewable": known.renewable,
            });
            return (200, json!({ "data": data }));
        }
        if path == "auth/token/renew-self" {
            if !known.renewable {
                return error(400, "lease is not renewable");
            }
            assert_eq!(serde_json::from_str::<Value>(&request.body).unwrap()["increment"], known.ttl);
            known.renewed += 1;
            return (200, json!({ "auth": { "renewable": true, "lease_duration": known.ttl } }));
        }
        if path.starts_with("sys/internal/ui/mounts/secret/") {
            let options = if self.version == 1 { Value::Null } else { json!({ "version": "2" }) };
            return (200, json!({ "data": { "path": "secret/", "options": options } }));
        }
        if path.starts_with("pki/issue/") && request.method == "PUT" {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let name = body["common_name"].as_str().unwrap();
            assert_eq!(body.as_object().unwrap().len(), 1);
            self.calls.push(format!("issue {name}"));
            if name.ends_with("denied.test") {
                return error(400, "common name not allowed by this role");
            }
            let leaf = self.authority.leaf_for(&[name], self.life);
            let data = json!({ "certificate": leaf.cert, "private_key": leaf.key, "ca_chain": [self.authority.pem()] });
            return (200, json!({ "data": data }));
        }
        let (list, read) =
            if self.version == 1 { ("secret/", "secret/") } else { ("secret/metadata/", "secret/data/") };
        if let Some(folder) = path.strip_prefix(list).and_then(|path| path.strip_suffix("?list=true")) {
            let keys: Vec<_> =
                self.secrets.keys().filter_map(|key| key.strip_prefix(folder)?.strip_prefix('/')).collect();
            return if keys.is_empty() { error(404, "") } else { (200, json!({ "data": { "keys": keys } })) };
        }
        match path.strip_prefix(read).and_then(|path| self.secrets.get(path)) {
            Some(Value::Null) | None => error(404, ""),
            Some(secret) if self.version == 1 => (200, json!({ "data": secret })),
            Some(secret) => (200, json!({ "data": { "data": secret, "metadata": {} } })),
        }
    }
}

fn secrets(client_ca: Option<&str>) -> CertSource {
    let kind = Kind::Vault { cert: "secret/fabio/cert".into(), client_ca: client_ca.map(str::to_owned) };
    CertSource { refresh: Duration::from_secs(1), ..config(kind) }
}

#[tokio::test]
async fn secrets_of_both_versions() {
    for version in [1, 2] {
        let vault = StandIn::new(version).await;
        let authority = Authority::new("ca");
        let (a, b) = (authority.leaf(&["a.test"]), authority.leaf(&["b.test"]));
        vault.put("fabio/cert/a", &a);
        vault.put("fabio/cert/b", &b);
        vault.state().secrets.insert("fabio/ca/own".into(), json!({ "cert": authority.pem() }));
        vault.state().secrets.insert("fabio/cert/folder/".into(), json!({}));
        let source = start(&secrets(Some("/secret/fabio/ca/")), &vault.env(&[("VAULT_TOKEN", "root")])).await.unwrap();
        assert_eq!(served(&source), ["a-cert.pem", "b-cert.pem"], "{version}");
        assert!(source.authorities().is_some());
        // Two readers, one session.
        assert_eq!(vault.calls("lookup-self"), 1);

        // A read that fails is no reason to drop a certificate.
        let read = if version == 1 { "secret/fabio/cert/a" } else { "secret/data/fabio/cert/a" };
        vault.state().broken.insert(read.into(), 503);
        let newer = authority.leaf(&["b.test"]);
        vault.put("fabio/cert/b", &newer);
        until("the newer one", async || serves(&source, &newer)).await;
        assert!(serves(&source, &a));
        assert!(source.report().problems[0].to_string().contains("status 503: internal error"));
        vault.state().broken.clear();

        // Half of a pair; then a number where text should be; then nothing any more.
        for secret in [json!({ "cert": newer.cert }), json!({ "cert": newer.cert, "key": 5 })] {
            until("no problem", async || source.report().problems.is_empty()).await;
            vault.state().secrets.insert("fabio/cert/a".into(), secret);
            until("a problem", async || !source.report().problems.is_empty()).await;
            assert!(serves(&source, &a));
            vault.put("fabio/cert/a", &a);
        }
        vault.state().secrets.insert("fabio/cert/b".into(), Value::Null);
        until("the end of one", async || served(&source) == ["a-cert.pem"]).await;

        vault.state().down = true;
        until("an error", async || source.report().error.is_some()).await;
        assert!(serves(&source, &a));
    }
}

/// As fabio's matrix: renewable or not, wrapped or not.
#[tokio::test]
async fn tokens_are_unwrapped_once_and_renewed_in_time() {
    for (ttl, renewable, wrapped, renewed) in [
        (0, false, false, false),
        (2, true, false, true),
        (2, true, true, true),
        (100, true, true, false),
        (2, false, false, false),
        (2, false, true, false),
    ] {
        let what = format!("{ttl} {renewable} {wrapped}");
        let vault = StandIn::new(1).await;
        let a = Authority::new("ca").leaf(&["a.test"]);
        vault.put("fabio/cert/a", &a);
        vault.token("inner", ttl, renewable);
        vault.state().wrapped.insert("wrapping".into(), "inner".into());
        let given = if wrapped { "wrapping" } else { "inner" };
        let env = vault.env(&[("VAULT_TOKEN", given)]);
        let source = start(&secrets(None), &env).await.unwrap();
        // Another source with the same token.
        let other = start(&secrets(None), &env).await.unwrap();
        assert!(serves(&source, &a) && serves(&other, &a), "{what} {:?}", source.report());
        let count = || vault.state().tokens["inner"].renewed;
        if renewed {
            until(&what, async || count() >= 2).await;
        } else {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            assert_eq!(count(), 0, "{what}");
        }
        assert_eq!(vault.calls("sys/wrapping/unwrap"), 1, "{what}");
    }
}

#[tokio::test]
async fn another_token_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let vault = StandIn::new(2).await;
    let authority = Authority::new("ca");
    let a = authority.leaf(&["a.test"]);
    vault.put("fabio/cert/a", &a);
    vault.token("first", 100, true);
    std::fs::write(&file, "first\n").unwrap();
    let config = CertSource { vault_fetch_token: Some(format!("file:{}", file.display())), ..secrets(None) };
    let source = start(&config, &vault.env(&[])).await.unwrap();
    assert!(serves(&source, &a));

    // Not valid, and then gone: the one before is still good.
    std::fs::write(&file, "wrong").unwrap();
    until("an attempt", async || vault.calls("lookup-self") >= 2).await;
    let mut last = a;
    let mut renew = async |what: &str| {
        let newer = authority.leaf(&["a.test"]);
        vault.put("fabio/cert/a", &newer);
        until(what, async || serves(&source, &newer)).await;
        last = newer;
    };
    renew("a read with the old token").await;
    std::fs::remove_file(&file).unwrap();
    renew("a read without a file").await;

    // A plain one, and a wrapped one.
    vault.token("second", 0, false);
    std::fs::write(&file, "second").unwrap();
    until("the second token", async || vault.calls("lookup-self") >= 3).await;
    vault.state().tokens.remove("first");
    renew("a read with the second token").await;
    vault.token("third", 0, false);
    vault.state().wrapped.insert("wrapping".into(), "third".into());
    std::fs::write(&file, "wrapping").unwrap();
    until("the third token", async || vault.state().wrapped.is_empty()).await;
    vault.state().tokens.remove("second");
    renew("a read with the third token").await;
    assert!(serves(&source, &last));
    assert_eq!(source.report().error, None);
}

#[tokio::test]
async fn without_a_token_there_is_an_error() {
    let vault = StandIn::new(1).await;
    let source = start(&secrets(None), &vault.env(&[])).await.unwrap();
    assert_eq!(source.report().error.unwrap(), "vault: no token");
    let error = start(&secrets(Some("secret/ca")), &vault.env(&[])).await.err().unwrap().to_string();
    assert!(error.contains("clientca") && error.contains("no token"), "{error}");
    let source = start(&secrets(None), &vault.env(&[("VAULT_TOKEN", "stranger")])).await.unwrap();
    let error = source.report().error.unwrap();
    assert!(error.contains("permission denied") && !error.contains("stranger"), "{error}");
}

async fn on_demand(vault: &StandIn) -> (Arc<Source>, Arc<Store>) {
    let kind = Kind::VaultPki { cert: "pki/issue/role".into(), client_ca: None };
    let source = start(&config(kind), &vault.env(&[("VAULT_TOKEN", "root")])).await.unwrap();
    let store = source.store();
    (source, store)
}

/// As a handshake does it.
async fn ask(store: &Store, name: &str) -> bool {
    let asked = Asked { name: Some(name), strict: true, ..Asked::default() };
    if matches!(store.select(&asked), Selection::Found(_)) {
        return true;
    }
    store.obtain(name).await;
    matches!(store.select(&asked), Selection::Found(_))
}

#[tokio::test]
async fn a_name_is_issued_when_it_is_first_asked_for() {
    let vault = StandIn::new(1).await;
    let (source, store) = on_demand(&vault).await;
    assert!(store.issues() && matches!(store.select(&Asked::default()), Selection::Empty));
    let handshakes: Vec<_> = (0..50)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { ask(&store, if n % 2 == 0 { "a.test" } else { "A.test." }).await })
        })
        .collect();
    for handshake in handshakes {
        assert!(handshake.await.unwrap());
    }
    assert_eq!(vault.calls("issue a.test"), 1);
    assert!(ask(&store, "b.test").await);
    // Never another one, whatever the listener says.
    assert!(matches!(store.select(&Asked { name: Some("c.test"), ..Asked::default() }), Selection::Unknown));
    let report = source.report();
    assert_eq!((report.kind, report.certificates.len(), report.error), ("vault-pki", 2, None));

    let before = vault.calls("issue ");
    for name in ["a b", "", "10.0.0.1", "*.test", &"x".repeat(300)] {
        assert!(!ask(&store, name).await, "{name:?}");
    }
    assert_eq!(vault.calls("issue "), before);
    for _ in 0..5 {
        assert!(!ask(&store, "denied.test").await);
    }
    assert_eq!(vault.calls("issue denied.test"), 1);
    assert!(source.report().error.unwrap().contains("not allowed by this role"));
    assert!(ask(&store, "a.test").await);
}

#[tokio::test]
async fn what_is_used_is_renewed_and_what_expires_is_not_shown() {
    let vault = StandIn::new(1).await;
    vault.state().life = 5;
    let (source, store) = on_demand(&vault).await;
    assert!(ask(&store, "used.test").await && ask(&store, "idle.test").await);
    let begun = Instant::now();
    // Issued once per life and not in a storm, although the life is shorter than the lead.
    until("a renewal", async || ask(&store, "used.test").await && vault.calls("issue used.test") == 2).await;
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    vault.state().broken.insert("pki/issue/role".into(), 500);
    until("the end of the idle one", async || served(&source) == ["used.test"]).await;
    until("an end without renewal", async || !ask(&store, "used.test").await).await;
    assert!(served(&source).is_empty());
    // The handshake that it was issued for is a use.
    assert!(vault.calls("issue idle.test") <= 2);
    assert!(vault.calls("issue used.test") <= 4);
}

#[test]
fn durations() {
    for (text, want) in [("60", Some(60)), ("5s", Some(5)), ("2m", Some(120)), ("x", None), ("", None), ("5x", None)] {
        assert_eq!(seconds(text), want.map(Duration::from_secs), "{text}");
    }
}

#[tokio::test]
async fn places_of_vault() {
    for (address, part) in [("nonsense", "VAULT_ADDR"), ("ftp://x", "must begin with"), ("https://", "VAULT_ADDR")] {
        let error = start(&secrets(None), &Env::of(&[("VAULT_ADDR", address)])).await.err().expect(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    let vault = Vault::new(&Env::of(&[("VAULT_ADDR", "http://u:1/below/")]), None).unwrap();
    assert_eq!(vault.place("/secret/x/"), "secret/x in Vault at http://u:1/below");
}
