//! How many connections there may be: in all, per listener, and per source address.
//!
//! Whoever is too many is closed at once and counted. Leaving them in the queue of the kernel would let everybody wait for
//! an answer that does not come; who is closed can try another instance.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use crate::metrics::names;

/// `proxy.maxclients` and what is below it. 0: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsConfig {
    /// 0: as many as there are descriptors for.
    pub total: usize,
    pub listener: usize,
    pub source: usize,
    /// Networks whose addresses may have any number, such as those of balancers before us.
    pub exempt: Vec<IpNet>,
}

/// What all listeners share.
#[derive(Debug)]
pub struct Limits {
    total: usize,
    listener: usize,
    source: usize,
    exempt: Vec<IpNet>,
    open: AtomicUsize,
    /// Connections by source. Only touched if there is a limit, when a connection comes and when it goes; in parts, so that
    /// workers seldom meet.
    sources: [Mutex<HashMap<IpAddr, usize>>; PARTS],
}

/// The limits of one listener.
#[derive(Debug)]
pub struct Door {
    limits: Arc<Limits>,
    most: usize,
    open: AtomicUsize,
    refused: [AtomicU64; Reason::ALL.len()],
}

/// Why a connection was closed before anything was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Total,
    Listener,
    Source,
}

/// A connection that counts. Dropping it counts it out.
#[derive(Debug)]
pub struct Seat {
    door: Arc<Door>,
    source: Option<IpAddr>,
}

impl Limits {
    /// `descriptors`: how many this process may have.
    pub fn new(config: &LimitsConfig, descriptors: Option<u64>) -> Arc<Self> {
        let total = match (config.total, descriptors) {
            (0, None) => usize::MAX,
            (0, Some(all)) => for_descriptors(all),
            (given, _) => given,
        };
        Self::with(total, config)
    }

    fn with(total: usize, config: &LimitsConfig) -> Arc<Self> {
        let bound = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        Arc::new(Self {
            total,
            listener: bound(config.listener),
            source: bound(config.source),
            exempt: config.exempt.clone(),
            open: AtomicUsize::new(0),
            sources: Default::default(),
        })
    }

    /// For listeners of pages: they have no part in the numbers of the others, and few clients.
    pub fn of_pages() -> Arc<Self> {
        Self::with(PAGES, &LimitsConfig::default())
    }

    pub fn total(&self) -> usize {
        self.total
    }

    fn part(&self, source: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        let sum = match source {
            IpAddr::V4(v4) => {
                v4.octets().into_iter().fold(0, |sum: usize, octet| sum.wrapping_mul(31) + usize::from(octet))
            }
            IpAddr::V6(v6) => {
                v6.octets().into_iter().fold(0, |sum: usize, octet| sum.wrapping_mul(31) + usize::from(octet))
            }
        };
        &self.sources[sum % PARTS]
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: usize::MAX,
            listener: usize::MAX,
            source: usize::MAX,
            exempt: Vec::new(),
            open: AtomicUsize::new(0),
            sources: Default::default(),
        }
    }
}

impl Door {
    pub fn new(limits: Arc<Limits>) -> Arc<Self> {
        let most = limits.listener;
        Arc::new(Self { limits, most, open: AtomicUsize::new(0), refused: Default::default() })
    }

    /// A connection has come. `None`: it is one too many.
    pub fn enter(self: &Arc<Self>) -> Option<Seat> {
        // Counted first: two who come at the same time must not both take the last place.
        let seat = Seat { door: self.clone(), source: None };
        let here = self.open.fetch_add(1, Ordering::Relaxed);
        let all = self.limits.open.fetch_add(1, Ordering::Relaxed);
        if all >= self.limits.total {
            return self.refuse(Reason::Total);
        }
        if here >= self.most {
            return self.refuse(Reason::Listener);
        }
        Some(seat)
    }

    fn refuse(&self, reason: Reason) -> Option<Seat> {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
        None
    }

    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// Of the listener with this address. Gives how many were refused in all.
    pub fn publish(&self, listener: &str) -> u64 {
        let mut all = 0;
        for reason in Reason::ALL {
            let count = self.refused(reason);
            all += count;
            if count > 0 {
                let labels = [("listener", listener.to_owned()), ("reason", reason.name().to_owned())];
                metrics::counter!(names::CONNECTIONS_REFUSED, &labels).absolute(count);
            }
        }
        all
    }
}

impl Seat {
    /// Who it is. `false`: this source has too many.
    pub fn is_from(&mut self, source: IpAddr) -> bool {
        let limits = &self.door.limits;
        if limits.source == usize::MAX || self.source.is_some() {
            return true;
        }
        let address = source.to_canonical();
        if limits.exempt.iter().any(|network| network.contains(&address)) {
            return true;
        }
        let source = neighbourhood(address);
        let mut counts = limits.part(source).lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= limits.source {
            drop(counts);
            self.door.refuse(Reason::Source);
            return false;
        }
        *count += 1;
        drop(counts);
        self.source = Some(source);
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.door.open.fetch_sub(1, Ordering::Relaxed);
        let limits = &self.door.limits;
        limits.open.fetch_sub(1, Ordering::Relaxed);
        let Some(source) = self.source else { return };
        let mut counts = limits.part(source).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&source);
            }
        }
    }
}

impl Reason {
    pub const ALL: [Reason; 3] = [Reason::Total, Reason::Listener, Reason::Source];

    pub fn name(self) -> &'static str {
        match self {
            Reason::Total => "total",
            Reason::Listener => "listener",
            Reason::Source => "source",
        }
    }
}

/// Half of them: a request needs a connection to its target as well. Some are for everything else.
fn for_descriptors(all: u64) -> usize {
    usize::try_from(all.saturating_sub(RESERVED) / 2).unwrap_or(usize::MAX).max(LEAST)
}

/// Whoever has one IPv6 address has a whole network of 64 bits.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64)).into(),
    }
}

const PARTS: usize = 16;
const PAGES: usize = 1000;
/// Descriptors for listeners, logs, Consul and the like.
const RESERVED: u64 = 128;
const LEAST: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn door(total: usize, listener: usize, source: usize) -> Arc<Door> {
        let exempt = vec!["10.9.0.0/16".parse().unwrap()];
        Door::new(Limits::new(&LimitsConfig { total, listener, source, exempt }, Some(1024)))
    }

    #[test]
    fn places_are_given_and_taken_back() {
        for (total, listener, most, reason) in
            [(3, 0, 3, Reason::Total), (0, 2, 2, Reason::Listener), (5, 4, 4, Reason::Listener)]
        {
            let door = door(total, listener, 0);
            let mut seats: Vec<Seat> = (0..most).map(|_| door.enter().unwrap()).collect();
            assert!(door.enter().is_none() && door.enter().is_none());
            assert_eq!(door.refused(reason), 2);
            seats.pop();
            seats.push(door.enter().unwrap());
            assert!(door.enter().is_none());
            drop(seats);
            assert_eq!((door.open.load(Ordering::Relaxed), door.limits.open.load(Ordering::Relaxed)), (0, 0));
        }
    }

    #[test]
    fn listeners_share_the_total() {
        let limits = Limits::new(&LimitsConfig { total: 2, ..LimitsConfig::default() }, None);
        let (a, b) = (Door::new(limits.clone()), Door::new(limits));
        let (_one, _two) = (a.enter().unwrap(), b.enter().unwrap());
        assert!(a.enter().is_none() && b.enter().is_none());
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let door = door(0, 0, 2);
        let sit = |address: &str| {
            let mut seat = door.enter().unwrap();
            seat.is_from(address.parse().unwrap()).then_some(seat)
        };
        let seats = [sit("10.0.0.1"), sit("::ffff:10.0.0.1")];
        assert!(seats.iter().all(Option::is_some));
        assert!(sit("10.0.0.1").is_none());
        assert!(sit("10.0.0.2").is_some());
        let of_a_network = [sit("2001:db8::1"), sit("2001:db8::2:0:0:1")];
        assert!(of_a_network.iter().all(Option::is_some));
        assert!(sit("2001:db8::ffff").is_none() && sit("2001:db8:0:1::1").is_some());
        let balancer: Vec<_> = (0..9).map(|_| sit("10.9.1.1")).collect();
        assert!(balancer.iter().all(Option::is_some));
        assert_eq!(door.refused(Reason::Source), 2);
        drop((seats, of_a_network));
        assert!(sit("10.0.0.1").is_some());
        drop(balancer);
        assert!(door.limits.sources.iter().all(|part| part.lock().unwrap().is_empty()), "nothing is remembered");
    }

    #[test]
    fn descriptors_are_left_for_targets() {
        for (all, most) in [(0, 64), (256, 64), (1024, 448), (1_048_576, 524_224)] {
            assert_eq!(Limits::new(&LimitsConfig::default(), Some(all)).total(), most, "{all}");
        }
        assert_eq!(Limits::new(&LimitsConfig::default(), None).total(), usize::MAX);
    }
}
