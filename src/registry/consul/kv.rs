//! Overrides and the no-route page: what stands below two keys of the KV store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consul::{self, Client, Keys, Mode, Pair, Step, Watch};
use crate::registry::publish::{Feed, Manual};
use crate::registry::status::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Overrides,
    Page,
    Options,
    ErrorPages,
    /// The page for routes whose targets are all down.
    DownPage,
}

pub(super) struct Kv {
    pub(super) client: Client,
    pub(super) kind: Kind,
    /// Without a leading slash.
    pub(super) path: String,
    /// 0: blocking queries.
    pub(super) poll: Duration,
    pub(super) feed: Feed,
    pub(super) source: Source,
}

impl Kv {
    pub(super) async fn run(self) {
        let mode = match (self.poll, self.kind) {
            (Duration::ZERO, Kind::Overrides) => Mode::Block(HEARTBEAT),
            (Duration::ZERO, _) => Mode::Block(WAIT),
            (poll, _) => Mode::Poll(poll),
        };
        let mut watch = Watch::new(self.client.clone(), Keys::kv(&self.path), "recurse", mode, true);
        let started = Instant::now();
        let mut known = false;
        // Of the last answer that counted: whether there was anything.
        let mut had = false;
        let mut held: Option<Instant> = None;
        let mut next = Box::pin(step(watch));
        loop {
            let timer = match held {
                Some(since) => since + HOLD,
                None if !known && !self.feed.is_stale() => started + GIVE_UP,
                None => started + Duration::from_secs(1 << 30),
            };
            let seen = tokio::select! {
                (seen, w) = &mut next => {
                    watch = w;
                    next = Box::pin(step(watch));
                    seen
                }
                () = tokio::time::sleep_until(timer.into()) => {
                    if held.take().is_some() {
                        had = false;
                        self.give(&[]);
                    } else if !known && !self.feed.is_stale() {
                        tracing::warn!("registry: no answer about {} yet, going on without", self.path);
                        known = true;
                        self.known();
                    }
                    continue;
                }
            };
            match seen {
                Ok(seen) => {
                    self.source.good(seen.index);
                    let pairs = seen.value.unwrap_or_default();
                    let pairs = self.own(pairs);
                    let doubtful = seen.after_failures > 0 || matches!(seen.step, Step::Reset | Step::First);
                    // What is in force may be from disk.
                    had |= !known && self.feed.is_stale();
                    if pairs.is_empty() && had && (held.is_some() || doubtful) {
                        // A store that just came back may have lost its data, or not have them yet.
                        held.get_or_insert_with(Instant::now);
                    } else {
                        held = None;
                        had = !pairs.is_empty();
                        self.give(&pairs);
                    }
                    if !known {
                        known = true;
                        self.known();
                    }
                }
                Err(failure) => {
                    let refused = failure.error.is_refusal();
                    self.source.failed(&failure.error);
                    // What was kept on disk is better than nothing.
                    let impatient = !self.feed.is_stale();
                    if !known && (refused || impatient && started.elapsed() >= GIVE_UP_FAILING) {
                        known = true;
                        self.known();
                    }
                }
            }
        }
    }

    fn known(&self) {
        match self.kind {
            Kind::Overrides => self.feed.manual_known(),
            Kind::Options => self.feed.named_known(),
            Kind::Page | Kind::DownPage | Kind::ErrorPages => {}
        }
    }

    /// The key itself and what lies below it; Consul matches any key that begins so.
    fn own(&self, mut pairs: Vec<Pair>) -> Vec<Pair> {
        let all = pairs.len();
        let path = self.path.trim_end_matches('/');
        let sibling = pairs.iter().find(|p| !is_below(&p.key, path)).map(|p| p.key.clone());
        pairs.retain(|p| is_below(&p.key, path));
        let ignored = all - pairs.len();
        self.source.warn(sibling.map(|key| {
            format!("ignoring {ignored} keys that only begin like {path}, such as {key}; keys below {path}/ are read")
        }));
        pairs
    }

    fn give(&self, pairs: &[Pair]) {
        match self.kind {
            Kind::Overrides => self.feed.manual(overrides(pairs)),
            Kind::Page => self.feed.page(&page(pairs)),
            Kind::Options => {
                self.feed.named(self.below(pairs));
            }
            Kind::ErrorPages => {
                let wrong = self.feed.error_pages(self.below(pairs));
                self.source.warn((!wrong.is_empty()).then(|| format!("ignoring {}", wrong.join("; "))));
            }
            Kind::DownPage => self.feed.down_page(&page(pairs)),
        }
    }
}

impl Kv {
    /// Texts with the names of their keys below the path.
    fn below(&self, pairs: &[Pair]) -> Manual {
        let path = self.path.trim_end_matches('/');
        let name = |pair: &Pair| pair.key.strip_prefix(path).unwrap_or(&pair.key).trim_start_matches('/').into();
        let texts = pairs.iter().map(|pair| (name(pair), pair.text().into()));
        texts.filter(|(name, _): &(Arc<str>, _)| !name.is_empty()).collect()
    }
}

type Answer = Result<consul::Seen<Vec<Pair>>, consul::Failure>;

/// One answer, and the watch back: so the wait for it survives a timer that goes off meanwhile.
async fn step(mut watch: Watch) -> (Answer, Watch) {
    let seen = watch.next(consul::pairs).await;
    (seen, watch)
}

/// Consul lists keys in ascending order, the prefix itself first.
fn overrides(pairs: &[Pair]) -> Manual {
    pairs.iter().map(|pair| (pair.key.as_str().into(), pair.text().into())).collect()
}

fn page(pairs: &[Pair]) -> String {
    pairs.iter().map(|pair| pair.text().trim().to_owned()).collect::<Vec<_>>().join("\n\n")
}

pub(super) fn is_below(key: &str, path: &str) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.is_empty())
}

/// The overrides' watch is short and its answers small: it notices that Consul hangs for all the others.
const HEARTBEAT: Duration = Duration::from_secs(10);

const WAIT: Duration = Duration::from_secs(30);

/// When the first table no longer waits for overrides: so long after the start if Consul answers with errors ...
const GIVE_UP_FAILING: Duration = Duration::from_secs(5);

/// ... or not at all.
const GIVE_UP: Duration = Duration::from_secs(6);

/// How long keys are held that vanished all at once right after trouble.
const HOLD: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_what_is_below() {
        for (key, path, expected) in [
            ("fabio/config", "fabio/config", true),
            ("fabio/config/a", "fabio/config", true),
            ("fabio/config/a/b", "fabio/config", true),
            ("fabio/config2", "fabio/config", false),
            ("fabio/configuration/x", "fabio/config", false),
            ("fabio/noroute.html", "fabio/noroute.html", true),
            ("fabio/noroute.html.bak", "fabio/noroute.html", false),
            ("anything", "", true),
        ] {
            assert_eq!(is_below(key, path), expected, "{key} {path}");
        }
    }

    #[test]
    fn pages_are_trimmed_and_joined() {
        let pair = |key: &str, value: &str| Pair { key: key.into(), value: value.into(), modify_index: 1 };
        // "  a\n" and "b"
        assert_eq!(page(&[pair("p", "ICBhCg=="), pair("p/x", "Yg==")]), "a\n\nb");
        assert_eq!(page(&[]), "");
    }
}
