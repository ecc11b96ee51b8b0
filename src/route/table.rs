//! The routing table. Its parts are shared between versions, so that one that differs in a few routes is cheap to make.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use super::host::{Form, Host, Kind, default_port};
use super::tree::Tree;
use super::{Candidates, Class, Matcher, Route};

/// An immutable routing table.
#[derive(Clone, Default)]
pub struct Table {
    pub(super) matcher: Matcher,
    /// All hosts but the empty one.
    pub(super) hosts: Index,
    pub(super) hostless: Option<Arc<Host>>,
    /// For plain connections, and for TLS.
    pub(super) patterns: [Arc<Patterns>; 2],
    /// How many literal hosts end in `:80`, and in `:443`. Without any there is nothing to look for.
    pub(super) default_ports: [usize; 2],
    /// How many hosts are a bare port.
    pub(super) ports: usize,
    routes: usize,
    targets: usize,
    pub(super) aliases: Arc<BTreeSet<Arc<str>>>,
}

impl Table {
    /// Every route that fits, the most specific first: hosts in order, then paths. Most callers take the first.
    /// `host` as the client sent it; `path` decoded and cleaned (see [`super::path`]). Does not allocate, unless the host
    /// has more than 255 bytes or is not ASCII.
    pub fn http<'t, 'r>(&'t self, host: &str, tls: bool, path: &'r [u8]) -> Candidates<'t, 'r> {
        Candidates::new(self, host, tls, path)
    }

    /// The route of exactly this host key (`:1234`, `10.0.0.1:1234` or a server name), for the TCP family. TCP targets;
    /// for the key of a port also others, of which only host and port count then.
    pub fn tcp(&self, host: &str) -> Option<&Route> {
        let host = self.exact(host)?;
        let route = host.other("/", Class::Tcp).or_else(|| host.other("", Class::Tcp));
        let any = || host.other("", Class::Http).filter(|_| matches!(*host.kind, Kind::Port));
        route.or_else(any).map(|route| &**route)
    }

    /// As [`Self::tcp`], for datagrams: UDP targets only.
    pub fn udp(&self, host: &str) -> Option<&Route> {
        let host = self.exact(host)?;
        host.other("/", Class::Udp).or_else(|| host.other("", Class::Udp)).map(|route| &**route)
    }

    /// The ports that are named by hosts of TCP routes, `:1234` and `10.0.0.1:1234`: where somebody expects to be served.
    pub fn tcp_ports(&self) -> BTreeSet<u16> {
        let hosts = self.hosts.iter().filter_map(|host| Some((own_port(&host.key)?, host)));
        let tcp = |host: &Host| ["", "/"].into_iter().any(|path| host.other(path, Class::Tcp).is_some());
        hosts.filter(|(_, host)| tcp(host)).map(|(port, _)| port).collect()
    }

    fn exact(&self, host: &str) -> Option<&Host> {
        let mut buffer = [0; 256];
        let host = match buffer.get_mut(..host.len()) {
            Some(lower) if host.is_ascii() => {
                lower.copy_from_slice(host.as_bytes());
                lower.make_ascii_lowercase();
                self.hosts.get(lower)?
            }
            _ => self.hosts.get(host.to_lowercase().as_bytes())?,
        };
        Some(host)
    }

    /// All routes: hosts ascending (the empty one first), paths descending. The order of `/api/routes`.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.sorted_hosts().into_iter().flat_map(|host| host.routes()).map(|route| &**route)
    }

    /// `(routes, targets)`
    pub fn size(&self) -> (usize, usize) {
        (self.routes, self.targets)
    }

    /// The names of `register=` options in the table.
    pub fn aliases(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::clone(&self.aliases)
    }

    pub(super) fn empty(matcher: Matcher) -> Self {
        Self { matcher, ..Self::default() }
    }

    /// Ascending, the empty one first.
    pub(super) fn sorted_hosts(&self) -> Vec<&Arc<Host>> {
        let mut hosts: Vec<_> = self.hostless.iter().chain(self.hosts.iter()).collect();
        hosts.sort_by(|a, b| a.key.cmp(&b.key));
        hosts
    }

    /// Takes the host out, so that nobody else holds its parts, lets it be changed, and puts it back if anything is left.
    pub(super) fn edit(&mut self, key: &Arc<str>, globs: bool, change: impl FnOnce(&mut Host)) {
        let known = if key.is_empty() { self.hostless.take() } else { self.hosts.remove(key.as_bytes()) };
        let mut host = match known {
            Some(host) => {
                self.register(&host, false);
                host
            }
            None => {
                // Routes of a host that is no pattern are not built.
                let Ok(kind) = Kind::of(key, globs) else { return };
                Arc::new(Host::new(key.clone(), kind))
            }
        };
        change(Arc::make_mut(&mut host));
        if host.is_empty() {
            return;
        }
        self.register(&host, true);
        if key.is_empty() {
            self.hostless = Some(host);
        } else {
            self.hosts.insert(host);
        }
    }

    pub(super) fn count(&mut self, route: &Route, added: bool) {
        let step = |count: &mut usize, n: usize| *count = if added { *count + n } else { *count - n };
        step(&mut self.routes, 1);
        step(&mut self.targets, route.targets.len());
    }

    /// Enters the host into what its kind is found by, or strikes it off.
    fn register(&mut self, host: &Arc<Host>, present: bool) {
        let step = |count: &mut usize| *count = if present { *count + 1 } else { *count - 1 };
        match &*host.kind {
            Kind::Hostless => {}
            Kind::Port => step(&mut self.ports),
            Kind::Literal => {
                for (count, tls) in self.default_ports.iter_mut().zip([false, true]) {
                    if host.key.ends_with(default_port(tls)) {
                        step(count);
                    }
                }
            }
            Kind::Pattern(pattern) => {
                for (patterns, form) in self.patterns.iter_mut().zip(&pattern.forms) {
                    Arc::make_mut(patterns).set(host, form, present);
                }
            }
        }
    }
}

/// Hosts that are patterns, for one kind of connection.
#[derive(Clone, Default)]
pub(super) struct Patterns {
    /// `*` and a suffix, by the reversed suffix. Several have the same when one of them names the default port.
    pub(super) suffixes: Tree<Vec<Arc<Host>>>,
    /// All others, in the order in which they are tried.
    pub(super) general: Vec<Arc<Host>>,
}

impl Patterns {
    fn set(&mut self, host: &Arc<Host>, form: &Form, present: bool) {
        match form {
            Form::Suffix(suffix) => self.suffixes.update(suffix, |place| {
                let mut hosts = place.take().unwrap_or_default();
                set_in_order(&mut hosts, host, present);
                *place = (!hosts.is_empty()).then_some(hosts);
            }),
            _ => set_in_order(&mut self.general, host, present),
        }
    }
}

/// The port of a host that is nothing but a port, or an IP address with a port.
fn own_port(host: &str) -> Option<u16> {
    let port = match host.strip_prefix(':') {
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok()?,
        Some(_) => return None,
        None => host.parse::<SocketAddr>().ok()?.port(),
    };
    (port != 0).then_some(port)
}

fn set_in_order(hosts: &mut Vec<Arc<Host>>, host: &Arc<Host>, present: bool) {
    match hosts.binary_search_by(|other| before(other, host)) {
        Ok(at) if present => hosts[at] = host.clone(),
        Ok(at) => {
            hosts.remove(at);
        }
        Err(at) if present => hosts.insert(at, host.clone()),
        Err(_) => {}
    }
}

/// Is `a` tried before `b`? Different patterns may have the same rank; their text decides then.
pub(super) fn before(a: &Host, b: &Host) -> std::cmp::Ordering {
    pattern_rank(b).cmp(pattern_rank(a)).then_with(|| a.key.cmp(&b.key))
}

fn pattern_rank(host: &Host) -> &[u8] {
    match &*host.kind {
        Kind::Pattern(pattern) => &pattern.rank,
        _ => &[],
    }
}

/// Hosts by name, in shards that versions share.
#[derive(Clone, Default)]
pub(super) struct Index {
    hasher: RandomState,
    /// In order of their hashes. No shards at all while there are no hosts.
    shards: Vec<Arc<Shard>>,
}

type Shard = Vec<(u64, Arc<Host>)>;

impl Index {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Arc<Host>> {
        let hash = self.hash(key);
        let shard = self.shards.get(shard(hash))?;
        let start = shard.partition_point(|(other, _)| *other < hash);
        let same = shard[start..].iter().take_while(|(other, _)| *other == hash);
        same.map(|(_, host)| host).find(|host| host.key.as_bytes() == key)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.shards.iter().flat_map(|shard| shard.iter()).map(|(_, host)| host)
    }

    fn insert(&mut self, host: Arc<Host>) {
        if self.shards.is_empty() {
            self.shards = vec![Arc::default(); SHARDS];
        }
        let hash = self.hash(host.key.as_bytes());
        let shard = Arc::make_mut(&mut self.shards[shard(hash)]);
        let at = shard.partition_point(|(other, _)| *other < hash);
        shard.insert(at, (hash, host));
    }

    fn remove(&mut self, key: &[u8]) -> Option<Arc<Host>> {
        let hash = self.hash(key);
        let shard = self.shards.get_mut(shard(hash))?;
        let at = shard.iter().position(|(other, host)| *other == hash && host.key.as_bytes() == key)?;
        Some(Arc::make_mut(shard).remove(at).1)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }
}

fn shard(hash: u64) -> usize {
    hash as usize % SHARDS
}

/// A changed host costs a copy of its shard and of the list of shards; with this many both are small up to 100,000 hosts.
const SHARDS: usize = 256;
