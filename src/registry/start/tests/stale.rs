//! Starts with and without Consul, with what an earlier process has kept.

use std::path::PathBuf;

use super::*;
use crate::registry::StateConfig;

/// A folder for one test.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ferrio-kept-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("routes.state")
    }

    fn config(&self, client: crate::consul::Config) -> Config {
        let mut consul = consul(client);
        consul.options_path = "ferrio/options".into();
        let state = Some(StateConfig { dir: self.0.clone(), max_age: Duration::from_secs(600) });
        let timeout = Duration::from_millis(600);
        Config { state, timeout, ..config(Backend::Consul(Box::new(consul))) }
    }

    async fn run(&self, client: crate::consul::Config) -> Running {
        let running = run(self.config(client)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(10), running.registry.ready()).await.unwrap();
        running
    }

    /// Until the file has this.
    async fn holds(&self, text: &str) {
        until(text, 10.0, async || std::fs::read_to_string(self.file()).is_ok_and(|all| all.contains(text))).await;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two services, an override and a named entry, all kept.
async fn kept(name: &str) -> (Kept, Fake) {
    let (kept, fake) = (Kept::new(name), Fake::start().await);
    let mut named = svc("b", "b", 2);
    named.tags = vec!["urlprefix-/b options=slow".into()];
    fake.put(svc("a", "a", 1));
    fake.put(named);
    fake.kv("ferrio/options/slow", Some("strip=/b"));
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    fake.kv("fabio/noroute.html", Some("nothing here"));
    let running = kept.run(fake.config()).await;
    assert!(running.registry.stale().is_none());
    kept.holds("nothing here").await;
    kept.holds("strip=/b").await;
    running.registry.stop();
    (kept, fake)
}

#[tokio::test]
async fn a_restart_without_consul_serves_what_was_known_and_catches_up() {
    let (kept, fake) = kept("restart").await;
    fake.refuse().await;
    let running = kept.run(fake.config()).await;
    let listing = running.tables.listing();
    for text in ["route add a /a http://10.0.0.1:1/", "route add b /b", "strip=/b", "route add m /m"] {
        assert!(listing.contains(text), "{text}: {listing}");
    }
    assert_eq!(running.tables.page().as_deref(), Some("nothing here"));
    assert!(running.registry.stale().is_some());
    assert!(serde_json::to_value(&*running.registry.status()).unwrap()["stale"].is_u64());

    // Gone, moved, new, and changed while nobody could tell us.
    fake.remove("n1/b");
    fake.put(svc("a", "a", 7));
    fake.put(svc("c", "c", 3));
    fake.kv("fabio/config", Some("route add m /m http://10.0.0.9:2/"));
    fake.accept().await;
    running.tables.until("the news", 10.0, |t| t.listing().contains("10.0.0.1:7/")).await;
    running
        .tables
        .until("all of it", 10.0, |t| {
            let now = t.listing();
            now.contains("/c http")
                && now.contains("10.0.0.9:2/")
                && !now.contains("/b ")
                && !now.contains("10.0.0.1:1/")
        })
        .await;
    until("fresh", 10.0, async || running.registry.stale().is_none()).await;
    // What is in force now is kept, too.
    kept.holds("\"port\":7").await;
}

#[tokio::test]
async fn an_agent_without_a_leader_is_no_consul_either() {
    let (kept, fake) = kept("leader").await;
    fake.fault("/health/", Fault::Status(500, "No cluster leader"));
    fake.fault("/catalog/", Fault::Status(500, "No cluster leader"));
    fake.fault("/kv/", Fault::Status(500, "No cluster leader"));
    let running = kept.run(fake.config()).await;
    assert!(running.registry.stale().is_some());
    assert!(running.tables.listing().contains("route add a /a"), "{}", running.tables.listing());
    fake.heal();
    until("fresh", 10.0, async || running.registry.stale().is_none()).await;
    assert!(running.tables.listing().contains("route add a /a"), "{}", running.tables.listing());
}

#[tokio::test]
async fn a_consul_that_comes_back_empty_is_not_believed_at_once() {
    let (kept, fake) = kept("empty").await;
    fake.refuse().await;
    let running = kept.run(fake.config()).await;
    fake.forget_everything();
    fake.accept().await;
    until("fresh", 10.0, async || running.registry.stale().is_none()).await;
    running
        .tables
        .stays("the routes", 1.0, |t| {
            let now = t.listing();
            now.contains("route add a /a") && now.contains("route add m /m")
        })
        .await;
}

#[tokio::test]
async fn with_consul_nothing_is_taken_from_disk() {
    let (kept, fake) = kept("well").await;
    fake.remove("n1/a");
    fake.kv("fabio/config", None);
    let running = kept.run(fake.config()).await;
    let listing = running.tables.listing();
    assert!(!listing.contains("/a http") && !listing.contains("/m ") && listing.contains("/b"), "{listing}");
    assert!(running.registry.stale().is_none());
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_none() {
    let (kept, fake) = kept("damaged").await;
    fake.refuse().await;
    let bytes = std::fs::read(kept.file()).unwrap();
    std::fs::write(kept.file(), &bytes[..bytes.len() - 5]).unwrap();
    let error = run(kept.config(fake.config())).await.err().unwrap();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_costs_nothing_else() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    let kept = Kept(PathBuf::from("/proc/ferrio/none"));
    let running = kept.run(fake.config()).await;
    assert!(running.tables.listing().contains("route add a /a"));
}

#[tokio::test]
async fn the_real_consul_dies_and_comes_back() {
    let mut real = Real::start().await;
    let kept = Kept::new("real");
    real.agent("w1", "web", 80, &["urlprefix-/web"]).await;
    let running = kept.run(address_config(&real.address)).await;
    running.tables.shows("route add web /web http://10.0.0.1:80/").await;
    kept.holds("urlprefix-/web").await;
    drop(running);
    real.kill().await;
    let running = kept.run(address_config(&real.address)).await;
    running.tables.shows("route add web /web http://10.0.0.1:80/").await;
    assert!(running.registry.stale().is_some());
    real.restart().await;
    until("fresh", 30.0, async || running.registry.stale().is_none()).await;
    real.agent("w1", "web", 81, &["urlprefix-/web"]).await;
    running.tables.shows("route add web /web http://10.0.0.1:81/").await;
}
