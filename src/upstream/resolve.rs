//! Names of targets to addresses.
//!
//! The system's resolver blocks a thread for as long as it likes, so it is asked for a name by one at a time, by few at
//! once, and not for each connection. It does not tell for how long an answer holds; `proxy.dnsttl` does. The last good
//! answer is kept when a name cannot be looked up any more, and nobody waits while there is one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

/// Shared by all workers.
pub struct Resolver {
    lookup: Lookup,
    /// How long an answer is used before it is asked for again.
    hold: Duration,
    slots: Arc<Semaphore>,
    names: Mutex<HashMap<Box<str>, Name>>,
}

type Lookup = Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;
/// The addresses, with port 0 (IPv6 ones may have a zone), or why there are none.
type Answer = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

struct Name {
    /// `None`: the first look-up is not over.
    answer: watch::Sender<Option<Answer>>,
    until: Instant,
    /// Somebody is at it.
    asking: bool,
    used: Instant,
}

impl Resolver {
    pub fn new(hold: Duration) -> Self {
        // The port is put in later; the zone of an address is part of what comes back.
        Self::with(hold, |name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    fn with(hold: Duration, lookup: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { lookup: Box::new(lookup), hold, slots: Arc::new(Semaphore::new(AT_ONCE)), names: Mutex::default() }
    }

    /// Where to connect to, the best one first. At least one.
    pub async fn resolve(self: &Arc<Self>, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let answer = self.answer(host).await.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let with_port = |address: &SocketAddr| {
            let mut address = *address;
            address.set_port(port);
            address
        };
        Ok(answer.iter().map(with_port).collect())
    }

    async fn answer(self: &Arc<Self>, host: &str) -> Answer {
        let mut waiting = {
            let now = Instant::now();
            let mut names = self.names();
            if !names.contains_key(host) {
                make_room(&mut names);
                let name = Name { answer: watch::Sender::new(None), until: now, asking: false, used: now };
                names.insert(host.into(), name);
            }
            let name = names.get_mut(host).expect("it was put there");
            name.used = now;
            if name.until <= now && !name.asking {
                name.asking = true;
                // In a task of its own: whoever asked first may go away.
                tokio::spawn(self.clone().refresh(host.into()));
            }
            name.answer.subscribe()
        };
        let gone = || Arc::new(io::Error::other("the look-up was given up"));
        match waiting.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or_else(|| Err(gone())),
            Err(_) => Err(gone()),
        }
    }

    async fn refresh(self: Arc<Self>, host: Box<str>) {
        let _slot = self.slots.acquire().await.expect("never closed");
        let (this, name) = (self.clone(), host.clone());
        let answer = match tokio::task::spawn_blocking(move || (this.lookup)(&name)).await {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(io::Error::other("the name has no address")),
            Ok(answer) => answer,
            Err(_) => Err(io::Error::other("the look-up was cut off")),
        };
        let mut names = self.names();
        let Some(name) = names.get_mut(&host) else { return };
        name.asking = false;
        match answer {
            Ok(addresses) => {
                name.until = Instant::now() + self.hold;
                name.answer.send_replace(Some(Ok(addresses.into())));
            }
            Err(error) => {
                name.until = Instant::now() + AFTER_FAILURE;
                if matches!(&*name.answer.borrow(), Some(Ok(_))) {
                    tracing::warn!("cannot look up {host}, its last addresses are used: {error}");
                    return;
                }
                name.answer.send_replace(Some(Err(Arc::new(error))));
            }
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Box<str>, Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets the name that nobody has asked for the longest.
fn make_room(names: &mut HashMap<Box<str>, Name>) {
    if names.len() < MOST {
        return;
    }
    let oldest = names.iter().filter(|(_, name)| !name.asking).min_by_key(|(_, name)| name.used);
    if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
        names.remove(&oldest);
    }
}

/// Names that are looked up at the same time, in the whole process.
const AT_ONCE: usize = 4;
/// Names that are kept. More are all right, but are forgotten soon.
const MOST: usize = 4096;
/// A name that could not be looked up is not asked for before.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn addresses_are_not_looked_up() {
        let resolver = Arc::new(Resolver::with(Duration::ZERO, |_| panic!("looked up")));
        assert_eq!(resolver.resolve("10.0.0.1", 80).await.unwrap(), [addr("10.0.0.1:80")]);
        assert_eq!(resolver.resolve("::1", 81).await.unwrap(), [addr("[::1]:81")]);
    }

    #[tokio::test]
    async fn many_at_once_are_one_look_up() {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let resolver = Arc::new(Resolver::with(Duration::from_secs(60), move |name| {
            seen.fetch_add(1, SeqCst);
            assert_eq!(name, "web.test");
            Ok(vec![addr("10.0.0.1:0"), addr("[::1]:0")])
        }));
        let asking: Vec<_> = (0..100)
            .map(|port| {
                let resolver = resolver.clone();
                tokio::spawn(async move { resolver.resolve("web.test", port).await.unwrap() })
            })
            .collect();
        for (port, task) in asking.into_iter().enumerate() {
            let found = task.await.unwrap();
            assert_eq!(found, [addr(&format!("10.0.0.1:{port}")), addr(&format!("[::1]:{port}"))]);
        }
        assert_eq!(count.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn the_last_good_answer_stays_and_is_not_waited_for() {
        let broken = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let (fails, seen) = (broken.clone(), count.clone());
        let resolver = Arc::new(Resolver::with(Duration::ZERO, move |_| {
            seen.fetch_add(1, SeqCst);
            if fails.load(SeqCst) { Err(io::Error::other("no")) } else { Ok(vec![addr("10.0.0.1:0")]) }
        }));
        assert_eq!(resolver.resolve("web.test", 1).await.unwrap(), [addr("10.0.0.1:1")]);
        broken.store(true, SeqCst);
        // Each of these finds the answer expired and asks again behind the back of its caller.
        let end = Instant::now() + Duration::from_secs(20);
        while count.load(SeqCst) < 2 {
            assert_eq!(resolver.resolve("web.test", 1).await.unwrap(), [addr("10.0.0.1:1")]);
            assert!(Instant::now() < end, "never asked again");
            tokio::task::yield_now().await;
        }
        assert_eq!(resolver.resolve("web.test", 1).await.unwrap(), [addr("10.0.0.1:1")]);
        let error = resolver.resolve("other.test", 1).await.unwrap_err();
        assert_eq!(error.to_string(), "no");
    }

    #[tokio::test]
    async fn few_are_looked_up_at_once_and_names_are_bounded() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (inside, peak) = (now.clone(), most.clone());
        let resolver = Arc::new(Resolver::with(Duration::from_secs(60), move |_| {
            peak.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            inside.fetch_sub(1, SeqCst);
            Ok(vec![addr("10.0.0.1:0")])
        }));
        let asking: Vec<_> = (0..64)
            .map(|n| {
                let resolver = resolver.clone();
                tokio::spawn(async move { resolver.resolve(&format!("{n}.test"), 1).await.unwrap() })
            })
            .collect();
        for task in asking {
            task.await.unwrap();
        }
        assert!((1..=AT_ONCE).contains(&most.load(SeqCst)), "{most:?}");

        let mut names = HashMap::new();
        let begin = Instant::now();
        for n in 0..MOST + 10 {
            make_room(&mut names);
            let used = begin + Duration::from_secs(n as u64);
            let name = Name { answer: watch::Sender::new(None), until: used, asking: false, used };
            names.insert(n.to_string().into(), name);
        }
        assert_eq!(names.len(), MOST);
        assert!(!names.contains_key("9") && names.contains_key("10"));
    }
}
