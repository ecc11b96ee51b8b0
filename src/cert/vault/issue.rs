//! Certificates on demand: issued by Vault's PKI engine when a client first asks for a name, and again before they expire.
//!
//! Handshakes wait for the answer on the data plane; everything else happens here, on the control plane. What strangers can
//! cause is bounded: names are checked, one call is made per name, refusals are remembered, and names that nobody asks for
//! during the life of a certificate are forgotten instead of renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Vault, encoded};
use crate::cert::certificate::{Certificate, Pair};
use crate::cert::error::Error;
use crate::cert::report::Shared;
use crate::cert::store::now;

/// The side of the data plane.
#[derive(Clone, Debug)]
pub(crate) struct Issuer(mpsc::Sender<Request>);

#[derive(Debug)]
struct Request {
    name: String,
    done: oneshot::Sender<()>,
}

/// How long before the end of its validity a certificate is issued anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead(Duration);

impl Lead {
    pub(crate) fn new(refresh: Duration) -> Self {
        const LEAST: Duration = Duration::from_secs(60 * 60);
        Self(refresh.max(LEAST))
    }

    /// Seconds since 1970. Short lives are not spent on renewals: a third of them remains at most.
    fn renewal(self, not_before: i64, not_after: i64) -> i64 {
        let life = (not_after - not_before).max(0);
        not_after - (self.0.as_secs() as i64).min(life / 3)
    }
}

impl Issuer {
    /// The second value is the work of the control plane.
    pub(crate) fn start(
        vault: Arc<Vault>,
        path: &str,
        lead: Lead,
        shared: Arc<Shared>,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, requests) = mpsc::channel(QUEUE);
        let work = Work {
            vault,
            path: path.trim_matches('/').to_owned(),
            lead,
            shared,
            waiting: HashMap::new(),
            issued: HashMap::new(),
            refused: HashMap::new(),
            calls: JoinSet::new(),
            complained: None,
        };
        (Self(sender), work.run(requests))
    }

    /// Returns when there is a certificate for this name, or when there will be none.
    pub(crate) async fn obtain(&self, name: &str) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if !is_host_name(&name) {
            return;
        }
        let (done, finished) = oneshot::channel();
        if self.0.try_send(Request { name, done }).is_ok() {
            let _ = finished.await;
        }
    }
}

struct Work {
    vault: Arc<Vault>,
    path: String,
    lead: Lead,
    shared: Arc<Shared>,
    /// Names with a call under way, or about to have one.
    waiting: HashMap<String, Vec<oneshot::Sender<()>>>,
    issued: HashMap<String, Issued>,
    /// Until when not to ask again.
    refused: HashMap<String, Instant>,
    calls: JoinSet<(String, Result<Pair, Error>)>,
    complained: Option<Instant>,
}

struct Issued {
    pair: Arc<Pair>,
    /// Seconds since 1970: when it came, and when to do something about it.
    since: i64,
    due: i64,
    failures: u32,
}

impl Work {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                request = requests.recv(), if self.calls.len() < CALLS => match request {
                    Some(request) => self.ask(request),
                    None => return,
                },
                Some(call) = self.calls.join_next() => {
                    if let Ok((name, result)) = call {
                        self.answered(name, result);
                    }
                }
                _ = tick.tick() => self.renew(),
            }
        }
    }

    fn ask(&mut self, Request { name, done }: Request) {
        if let Some(others) = self.waiting.get_mut(&name) {
            others.push(done);
            return;
        }
        // Dropping `done` tells that there is nothing to wait for.
        if self.issued.contains_key(&name) || self.refused.get(&name).is_some_and(|until| *until > Instant::now()) {
            return;
        }
        if self.issued.len() + self.waiting.len() >= NAMES {
            tracing::error!("cert: more than {NAMES} names have certificates of {}: none for {name:?}", self.path);
            return;
        }
        self.waiting.insert(name.clone(), vec![done]);
        self.call(name);
    }

    fn call(&mut self, name: String) {
        let (vault, path) = (self.vault.clone(), self.path.clone());
        self.calls.spawn(async move {
            let result = issue(&vault, &path, &name).await;
            (name, result)
        });
    }

    fn answered(&mut self, name: String, result: Result<Pair, Error>) {
        let waiting = self.waiting.remove(&name);
        match result {
            Ok(pair) => {
                tracing::info!("cert: issued a certificate for {name}, serial {}", pair.facts.serial.replace(':', "-"));
                self.shared.succeeded();
                self.refused.remove(&name);
                let due = self.lead.renewal(pair.facts.not_before.max(now()), pair.facts.not_after);
                let issued = Issued { pair: Arc::new(pair), since: now(), due, failures: 0 };
                self.issued.insert(name, issued);
                self.publish();
            }
            Err(error) => {
                // Strangers choose the names: what they cause must not fill the log.
                let quiet = self.complained.is_some_and(|at| at.elapsed() < AGAIN);
                if !quiet {
                    self.complained = Some(Instant::now());
                }
                self.shared.failed(&error, !quiet);
                match self.issued.get_mut(&name) {
                    Some(issued) => {
                        issued.failures += 1;
                        let pause = AGAIN.as_secs() << issued.failures.min(5);
                        issued.due = now() + pause as i64;
                        tracing::error!("cert: cannot renew the certificate for {name}: {error}; again in {pause} s");
                    }
                    None => {
                        if self.refused.len() >= NAMES {
                            let now = Instant::now();
                            self.refused.retain(|_, until| *until > now);
                        }
                        if self.refused.len() < NAMES {
                            self.refused.insert(name, Instant::now() + AGAIN);
                        }
                    }
                }
            }
        }
        drop(waiting);
    }

    /// What is due is issued anew if somebody has used it, else forgotten. What has expired is not shown any more.
    fn renew(&mut self) {
        let now = now();
        let mut wanted = Vec::new();
        let before = self.issued.len();
        self.issued.retain(|name, issued| {
            if issued.pair.facts.not_after < now {
                return false;
            }
            if issued.due > now || self.waiting.contains_key(name) {
                return true;
            }
            let used = issued.pair.used.load(Ordering::Relaxed) >= issued.since;
            if used {
                wanted.push(name.clone());
            }
            used
        });
        if self.issued.len() < before {
            self.publish();
        }
        for name in wanted.into_iter().take(CALLS.saturating_sub(self.calls.len())) {
            self.waiting.insert(name.clone(), Vec::new());
            self.call(name);
        }
    }

    fn publish(&self) {
        let certificate =
            |(name, issued): (&String, &Issued)| Certificate { name: name.clone(), pair: issued.pair.clone() };
        self.shared.replace(self.issued.iter().map(certificate).collect());
    }
}

async fn issue(vault: &Arc<Vault>, path: &str, name: &str) -> Result<Pair, Error> {
    let fail = |what: String| Error::Fetch(format!("vault: {path}: no certificate for {name}: {what}"));
    let body = json!({ "common_name": name });
    let answer = vault.call(Method::PUT, &encoded(path), Some(body)).await?;
    if answer.status != 200 {
        return Err(fail(answer.complaint()));
    }
    let data = &answer.body["data"];
    let text = |field: &str| data[field].as_str().filter(|text| !text.is_empty());
    let key = text("private_key").ok_or_else(|| fail("the answer has no private_key".into()))?;
    let mut cert = text("certificate").ok_or_else(|| fail("the answer has no certificate".into()))?.to_owned();
    for authority in data["ca_chain"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        cert.push('\n');
        cert.push_str(authority);
    }
    let pair = Pair::parse(cert.as_bytes(), key.as_bytes()).map_err(|error| fail(error.to_string()))?;
    // Shown to nobody, it would be asked for again and again.
    if !pair.facts.names.iter().any(|own| own == name) {
        return Err(fail("the certificate is for another name".into()));
    }
    Ok(pair)
}

/// Letters, digits, hyphens and underscores between dots. Addresses are none.
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(label) && name.parse::<std::net::IpAddr>().is_err()
}

/// Calls at the same time.
const CALLS: usize = 16;
/// Handshakes that wait for a call to begin.
const QUEUE: usize = 1024;
const NAMES: usize = 10_000;
/// Before a name that was refused is asked for again.
const AGAIN: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names() {
        let long = "a".repeat(64);
        let longer = "a.".repeat(150);
        for (name, want) in [
            ("localhost", true),
            ("a.example.com", true),
            ("_acme.a-b.1", true),
            ("", false),
            (".", false),
            ("a..b", false),
            ("a b", false),
            ("*.a.com", false),
            ("10.0.0.1", false),
            ("::1", false),
            (&long, false),
            (&longer, false),
            ("b\u{fc}cher.de", false),
        ] {
            assert_eq!(is_host_name(name), want, "{name:?}");
        }
    }

    #[test]
    fn renewal_is_before_the_end_but_not_at_once() {
        const HOUR: i64 = 3600;
        for (refresh, life, want) in [
            (3, 72 * HOUR, 71 * HOUR),
            (2 * HOUR, 72 * HOUR, 70 * HOUR),
            (3, HOUR, HOUR * 2 / 3),
            (3, 30, 20),
            (100 * HOUR, 72 * HOUR, 48 * HOUR),
            (3, 0, 0),
        ] {
            let lead = Lead::new(Duration::from_secs(refresh as u64));
            assert_eq!(lead.renewal(1000, 1000 + life) - 1000, want, "{refresh} {life}");
        }
    }
}
