//! Following what is stored, and ordering what is due.

mod http;
mod order;
mod plan;
mod publish;
mod record;
mod seal;
mod storage;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::{Account, CertificateIdentifier};
use tokio::sync::watch;

use self::http::Http;
use self::order::{Desk, Error};
use self::plan::{Gone, Plan};
use self::publish::Publisher;
use self::record::{ACCOUNT, CERTIFICATES, STATE, State};
use self::seal::Seal;
use self::storage::{Contents, Follow, Storage};
use super::{Config, Surroundings};
use crate::cert::certificate::{hex, sha256};
use crate::cert::report::{Shared, Waiting};
use crate::cert::store::now;
use crate::cert::{Env, Error as SourceError};
use crate::metrics::names;

/// What a source does, for its owner to spawn.
pub(in crate::cert) struct Work {
    pub(in crate::cert) follow: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(in crate::cert) issue: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// True once what is stored is in service.
    pub(in crate::cert) delivered: watch::Receiver<bool>,
}

/// Fails if secrets cannot be read, or what is configured cannot be a place.
pub(in crate::cert) async fn start(
    config: &Config,
    look: Duration,
    env: &Env,
    surroundings: Surroundings,
    shared: Arc<Shared>,
) -> Result<Work, SourceError> {
    let place = |text: String| SourceError::Place(format!("source {}: {text}", shared.name));
    let http = Http::new(&config.directory, config.ca.as_ref()).map_err(|error| place(error.to_string()))?;
    let secret = config.secret.as_ref().map(|secret| secret.read(env)).transpose()?;
    let seal = tokio::task::spawn_blocking(move || Seal::new(secret.as_deref()))
        .await
        .map_err(|_| place("the secret cannot be used".into()))?;
    if seal.is_open() && matches!(config.storage, super::Storage::Consul { .. }) {
        tracing::warn!(
            "acme: source {} keeps PRIVATE KEYS IN THE CLEAR in Consul: whoever may read these keys of the KV store has \
             them. Set secret=file:PATH or secret=env:NAME",
            shared.name
        );
    }
    let external_account = match &config.external_account {
        None => None,
        Some(account) => {
            let key =
                order::decode(&account.key.read(env)?).ok_or_else(|| place(format!("{} is no base64", account.key)))?;
            Some((account.id.clone(), key))
        }
    };
    let storage = Storage::new(&config.storage, &folder(&shared.name, &config.directory), look)?;
    let seal = Arc::new(seal);
    let publisher = Arc::new(Publisher::new(shared.clone(), seal.clone(), surroundings.challenges.clone()));
    let (changes, contents) = watch::channel(None);
    let (done, delivered) = watch::channel(false);
    let plain = surroundings.plain;
    let desk = Desk { config: config.clone(), storage: storage.clone(), seal, http, external_account, plain, contents };
    let clerk = Clerk { desk, surroundings, shared, publisher, gone: Gone::new(), trouble: 0, told: Vec::new() };
    let follow = follow(storage.follow(), clerk.publisher.clone(), clerk.shared.clone(), changes, done);
    Ok(Work { follow: Box::pin(follow), issue: Box::pin(clerk.run()), delivered })
}

/// A name of its own for each directory: accounts and certificates of a try-out are none of the real thing.
fn folder(source: &str, directory: &str) -> String {
    let host = directory.split("://").last().unwrap_or_default().split('/').next().unwrap_or_default();
    let clean = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' }).collect()
    };
    format!("{}/{}-{}", clean(source), clean(host), &hex(&sha256(directory.as_bytes()))[..8])
}

async fn follow(
    mut follow: Follow,
    publisher: Arc<Publisher>,
    shared: Arc<Shared>,
    changes: watch::Sender<Option<Arc<Contents>>>,
    done: watch::Sender<bool>,
) {
    loop {
        match follow.next().await {
            Ok(contents) => {
                shared.succeeded();
                let contents = Arc::new(contents);
                publisher.publish(contents.clone()).await;
                changes.send_replace(Some(contents));
                done.send_replace(true);
            }
            Err(error) => {
                shared.failed(&error, true);
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Makes the orders.
struct Clerk {
    desk: Desk,
    surroundings: Surroundings,
    shared: Arc<Shared>,
    publisher: Arc<Publisher>,
    gone: Gone,
    /// Passes that failed in a row.
    trouble: u32,
    /// Hosts that were said to be too many.
    told: Vec<String>,
}

/// What came of a pass.
enum Passed {
    Done,
    /// Somebody else is at work.
    Busy,
    Trouble(Error),
}

impl Clerk {
    async fn run(mut self) {
        loop {
            let contents = self.desk.contents.borrow_and_update().clone();
            let hosts = self.surroundings.hosts.borrow_and_update().clone();
            let wait = match (contents, hosts) {
                (Some(contents), Some(hosts)) => self.turn(&contents, &hosts).await,
                _ => LONGEST,
            };
            let until = tokio::time::Instant::now() + wait;
            let (contents, hosts) = (&mut self.desk.contents, &mut self.surroundings.hosts);
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                changed = contents.changed() => if changed.is_err() { return },
                changed = hosts.changed() => if changed.is_err() { return },
            }
            if self.trouble > 0 {
                // News does not make the CA answer.
                tokio::time::sleep_until(until).await;
            }
        }
    }

    /// Does what is due, and says how long to wait.
    async fn turn(&mut self, contents: &Contents, hosts: &[String]) -> Duration {
        let plan = self.plan(contents, hosts);
        self.tell(&plan, contents);
        let until = |at: i64| Duration::from_secs(at.saturating_sub(now()).max(0) as u64).clamp(AGAIN, LONGEST);
        if plan.is_empty() {
            return plan.next.map_or(LONGEST, until);
        }
        let pause = pause(contents);
        if pause > now() {
            return until(pause);
        }
        match self.work(hosts).await {
            Passed::Done => {
                self.trouble = 0;
                self.shared.trouble(None);
                AGAIN
            }
            Passed::Busy => BUSY,
            Passed::Trouble(error) => {
                self.shared.trouble(Some(format!("{}: {error}", self.desk.config.directory)));
                self.trouble = self.trouble.saturating_add(1);
                let first = self.desk.config.retry.min(TROUBLE);
                let wait = (first * 2_u32.saturating_pow(self.trouble.min(16) - 1)).min(TROUBLE_MOST);
                wait.mul_f64(0.9 + 0.2 * fastrand::f64()).max(AGAIN)
            }
        }
    }

    fn plan(&mut self, contents: &Contents, hosts: &[String]) -> Plan {
        let served = self.publisher.served();
        plan::plan(&self.desk.config.names, hosts, contents, &served, &mut self.gone, now())
    }

    async fn work(&mut self, hosts: &[String]) -> Passed {
        let lock = match self.desk.storage.lock(&self.shared.name).await {
            Ok(Some(lock)) => lock,
            Ok(None) => return Passed::Busy,
            Err(error) => return Passed::Trouble(error.into()),
        };
        let passed = tokio::select! {
            passed = self.pass(hosts) => passed,
            () = lock.lost() => Err(Error::Own("the lock of the storage was lost".into())),
        };
        lock.release().await;
        match passed {
            Ok(()) => Passed::Done,
            Err(error) => Passed::Trouble(error),
        }
    }

    /// With the lock held. Others may have worked since the last look.
    async fn pass(&mut self, hosts: &[String]) -> Result<(), Error> {
        let contents = Arc::new(self.desk.storage.read().await?);
        self.publisher.publish(contents.clone()).await;
        if pause(&contents) > now() {
            return Ok(());
        }
        let plan = self.plan(&contents, hosts);
        for key in &plan.garbage {
            self.desk.storage.delete(key).await?;
        }
        if plan.orders.is_empty() && plan.questions.is_empty() {
            return Ok(());
        }
        self.desk.http.take();
        let account = match self.desk.account(&contents).await {
            Ok(account) => account,
            Err(error) => return Err(self.general(error).await),
        };
        for name in &plan.questions {
            self.ask(&account, name, &contents).await?;
        }
        for name in &plan.orders {
            self.order(&account, name, &contents).await?;
        }
        Ok(())
    }

    /// When to renew (RFC 9773). A CA that does not say is asked again tomorrow.
    async fn ask(&self, account: &Account, name: &str, contents: &Contents) -> Result<(), Error> {
        let Some(pair) = self.publisher.pair(name) else { return Ok(()) };
        let mut state = State::of(contents, name);
        if state.fingerprint != pair.facts.fingerprint {
            state = State { fingerprint: pair.facts.fingerprint.clone(), ..State::default() };
        }
        state.ask = now() + ASK_AGAIN;
        if let Some(id) = pair.key.cert.first().and_then(|leaf| CertificateIdentifier::try_from(leaf).ok()) {
            match account.renewal_info(&id).await {
                Ok((info, again)) => {
                    let window = info.suggested_window;
                    let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
                    // A wish holds until it changes; the point within it is chosen once.
                    if !(start..=end.max(start)).contains(&state.renew) {
                        state.renew =
                            start.saturating_add((end.saturating_sub(start).max(0) as f64 * fastrand::f64()) as i64);
                    }
                    state.replaces = true;
                    state.ask = now().saturating_add((again.as_secs() as i64).clamp(ASK_LEAST, ASK_AGAIN));
                }
                Err(error) => tracing::debug!("acme: {name}: no renewal information: {error}"),
            }
        }
        self.desk.storage.write(&record::key(STATE, name), &record::text(&state)).await?;
        Ok(())
    }

    /// Only what concerns more than this name is an error.
    async fn order(&self, account: &Account, name: &str, contents: &Contents) -> Result<(), Error> {
        let mut state = State::of(contents, name);
        let pair = self.publisher.pair(name);
        let replaces = pair.as_ref().filter(|pair| state.replaces && state.fingerprint == pair.facts.fingerprint);
        let replaces = replaces.and_then(|pair| CertificateIdentifier::try_from(pair.key.cert.first()?).ok());
        let renewal = pair.is_some();
        tracing::info!("acme: {} a certificate for {name}", if renewal { "renewing" } else { "ordering" });
        let result = self.desk.order(account, name, replaces, state.failures).await;
        let word = match &result {
            Ok(_) => "ok",
            Err(error) if error.is_rate_limit() => "rate_limited",
            Err(error) if error.is_general() => "unavailable",
            Err(_) => "failed",
        };
        metrics::counter!(names::ACME_ORDERS, "source" => self.shared.name.clone(), "result" => word).increment(1);
        let place = record::key(STATE, name);
        let error = match result {
            Ok(mut stored) => {
                let key = record::key(CERTIFICATES, name);
                stored.key = self.desk.seal.seal(&key, &stored.key).map_err(|why| Error::Own(why.into()))?;
                self.desk.storage.write(&key, &record::text(&stored)).await?;
                self.desk.storage.delete(&place).await?;
                tracing::info!("acme: new certificate for {name}");
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_general() && !error.is_rate_limit() && !error.is_about_replacing() {
            return Err(self.general(error).await);
        }
        let kept = if renewal { "; keeping the previous certificate" } else { "" };
        tracing::error!("acme: no certificate for {name}: {error}{kept}");
        state.failures = state.failures.saturating_add(1);
        if error.is_about_replacing() {
            state.replaces = false;
        }
        let again = self.desk.http.take().again.map(seconds);
        state.next = now() + backoff(self.desk.config.retry, state.failures);
        if error.is_rate_limit() {
            state.next = again.unwrap_or(state.next).max(now() + 1);
        }
        state.error = Some(error.to_string());
        self.desk.storage.write(&place, &record::text(&state)).await?;
        if error.is_rate_limit() {
            // It may concern this name or all of them: the others try later, and one after the other.
            let until = state.next.min(now() + PAUSE);
            self.desk.storage.write(PAUSE_KEY, &until.to_string()).await?;
            return Err(error);
        }
        Ok(())
    }

    /// What to do about an error that concerns all names, beside trying later.
    async fn general(&self, error: Error) -> Error {
        if let Error::Refused(problem) = &error
            && problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
        {
            tracing::warn!("acme: the CA does not know the account any more; making a new one");
            let _ = self.desk.storage.delete(ACCOUNT).await;
        }
        if let Some(again) = self.desk.http.take().again {
            let until = seconds(again).min(now() + PAUSE);
            let _ = self.desk.storage.write(PAUSE_KEY, &until.to_string()).await;
        }
        error
    }

    /// Shows what has no certificate, and why.
    fn tell(&mut self, plan: &Plan, contents: &Contents) {
        if plan.excess != self.told {
            if let Some(first) = plan.excess.first() {
                tracing::warn!(
                    "acme: source {} orders certificates for {} hosts of the routing table at most (max=); {} more have none, \
                     {first:?} for example",
                    self.shared.name,
                    self.desk.config.names.most,
                    plan.excess.len()
                );
            }
            self.told = plan.excess.clone();
        }
        let failing = record::names(contents, STATE).filter_map(|name| {
            let state = State::of(contents, name);
            Some(Waiting { name: name.to_owned(), reason: state.error?, next: Some(state.next) })
        });
        let excess = plan.excess.iter().map(|name| Waiting {
            name: name.clone(),
            reason: "more hosts of the routing table than max= allows".into(),
            next: None,
        });
        self.shared.wait(failing.chain(excess).take(SHOWN).collect());
    }
}

/// Nobody orders before that.
fn pause(contents: &Contents) -> i64 {
    contents.get(PAUSE_KEY).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Seconds, with some variation, so that names that failed together are not tried together.
fn backoff(first: Duration, failures: u32) -> i64 {
    let wait = first.saturating_mul(2_u32.saturating_pow(failures.clamp(1, 20) - 1)).min(MOST);
    (wait.as_secs_f64() * (0.9 + 0.2 * fastrand::f64())).ceil() as i64
}

fn seconds(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Of the storage: an order is refused for a while.
const PAUSE_KEY: &str = "pause";
/// After a rate limit, for the other names; seconds.
const PAUSE: i64 = 600;
/// The least time between two looks.
const AGAIN: Duration = Duration::from_secs(1);
/// Somebody else holds the lock. Releasing it is a change as well, so this is for the case that nobody does.
const BUSY: Duration = Duration::from_secs(5);
/// The clock may have been set.
const LONGEST: Duration = Duration::from_secs(3600);
/// After a pass that failed, twice as long each time.
const TROUBLE: Duration = Duration::from_secs(10);
const TROUBLE_MOST: Duration = Duration::from_secs(600);
/// Between orders for a name that fail.
const MOST: Duration = Duration::from_secs(12 * 3600);
/// Seconds between questions about renewal; RFC 9773 section 4.3 lets the CA choose.
const ASK_AGAIN: i64 = 24 * 3600;
const ASK_LEAST: i64 = 60;
/// Names in a report.
const SHOWN: usize = 1000;
