//! A route and its targets, as a table holds them.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::balance::{Circumstances, Group, stable_hash};
use super::glob::Glob;
use super::path::decode;
use super::route_paths::folded;
use super::{Add, Class, Conditions, Datacenter, Destination, Options, Priority, Slot, Sticky, Strategy, Turn, Weight};

/// Targets that serve one host and path.
#[derive(Debug)]
pub struct Route {
    pub class: Class,
    /// Lower case; may be empty, may carry a port, may be a pattern.
    pub host: Arc<str>,
    /// As written. Empty for routes of a port.
    pub path: Arc<str>,
    pub targets: Box<[Target]>,
    /// What requests must be beside host and path to get here; the same for all targets.
    pub conditions: Option<Arc<Conditions>>,
    /// State of this (class, host, path) that outlives the table, hung on by its owner before the table is published.
    pub state: Slot,
    /// By priority, the first one first.
    groups: Box<[Group]>,
    /// Options of the first target that has a strategy, and of the first one with a sticky cookie: they count for all.
    strategy: Option<Arc<Options>>,
    sticky: Option<Arc<Options>>,
    /// The path as a pattern, when paths are matched as patterns.
    pub(super) glob: Option<Glob>,
    identity: u128,
}

impl Route {
    pub(super) fn new(
        class: Class,
        host: Arc<str>,
        path: Arc<str>,
        glob: Option<Glob>,
        mut targets: Vec<Target>,
    ) -> Self {
        let groups = Group::divide(&mut targets);
        let conditions = targets.first().and_then(|target| target.options.conditions.clone());
        let identity = match &conditions {
            None => wide_hash(&(class, &host, &path)),
            Some(conditions) => wide_hash(&(class, &host, &path, conditions.text())),
        };
        let first =
            |has: fn(&Options) -> bool| targets.iter().map(|t| &t.options).find(|options| has(options)).cloned();
        let strategy = first(|options| options.balance.as_ref().is_some_and(|balance| balance.strategy.is_some()));
        let sticky = first(|options| options.sticky.is_some());
        Self {
            class,
            host,
            path,
            targets: targets.into(),
            conditions,
            state: Slot::default(),
            groups,
            strategy,
            sticky,
            glob,
            identity,
        }
    }

    /// The target whose turn it is by weight, of the first priority. `None` if every target is excluded by `weight 0`.
    pub fn pick(&self, turn: Turn) -> Option<&Target> {
        self.groups.iter().find_map(|group| group.pick(turn)).map(|index| &self.targets[index])
    }

    /// Has it targets of several priorities?
    pub fn has_priorities(&self) -> bool {
        self.groups.len() > 1
    }

    /// The index of the best target under these conditions: of the first priority of which any is usable. `None` if none
    /// is. `key` is what [`Strategy::Hash`] goes by; without one the choice is random.
    pub fn choose(&self, strategy: &Strategy, key: Option<u64>, conditions: &impl Circumstances) -> Option<usize> {
        let turn = OnceCell::new();
        self.groups.iter().find_map(|group| group.choose(&self.targets, strategy, key, conditions, &turn))
    }

    /// How its targets are chosen, if it does not go by `proxy.strategy`.
    pub fn strategy(&self) -> Option<&Strategy> {
        self.strategy.as_ref()?.balance.as_ref()?.strategy.as_ref()
    }

    /// The cookie that binds its clients.
    pub fn sticky(&self) -> Option<&Sticky> {
        self.sticky.as_ref()?.sticky.as_deref()
    }

    /// Does a request fulfil the conditions of the route? `path` is what the route was found by.
    pub fn fits(&self, request: &http::request::Parts, path: &[u8]) -> bool {
        let Some(conditions) = &self.conditions else { return true };
        (!conditions.exact || self.is_whole(path))
            && conditions.fit(&request.method, &request.headers, request.uri.query())
    }

    /// Is there nothing behind the path of the route? Patterns are for whole paths anyway.
    fn is_whole(&self, path: &[u8]) -> bool {
        let own = decode(&self.path);
        // In lower case a letter can be longer or shorter.
        self.glob.is_some() || own.len() == path.len() || folded(&own).len() == folded(path).len()
    }

    /// The order in which routes of one host are tried, and of which only one is reached by most requests.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        other.path.cmp(&self.path).then_with(|| self.order_here(other))
    }

    /// The same for routes of one path.
    pub(super) fn order_here(&self, other: &Self) -> Ordering {
        Conditions::order(self.conditions.as_deref(), other.conditions.as_deref())
    }

    /// What makes two routes the same across tables: class, host, path and conditions. Stable in a process.
    pub fn identity(&self) -> u128 {
        self.identity
    }

    /// The set of pages for our own errors about a target of this route.
    pub fn page_set<'a>(&'a self, target: &'a Target) -> &'a str {
        target.options.error_pages.as_deref().unwrap_or(&self.host)
    }

    /// Would nobody see a difference, state aside?
    pub(super) fn same(&self, other: &Self) -> bool {
        let same = |(a, b): (&Target, &Target)| {
            a.identity == b.identity && a.weight == b.weight && a.share == b.share && a.tags == b.tags
        };
        self.identity == other.identity
            && self.targets.len() == other.targets.len()
            && self.targets.iter().zip(&other.targets).all(same)
    }
}

/// One destination of a route.
#[derive(Debug)]
pub struct Target {
    pub service: Arc<str>,
    /// `<node>/<service id>`, if it comes from a tag.
    pub instance: Option<Arc<str>>,
    /// That of the instance; `None`: our own.
    pub datacenter: Option<Arc<Datacenter>>,
    pub tags: Arc<[Arc<str>]>,
    pub destination: Arc<Destination>,
    pub options: Arc<Options>,
    /// As configured.
    pub weight: Weight,
    /// The share of the requests of its route, or of its priority there if it has several; 0 to 1.
    pub share: f64,
    /// State of this identity that outlives the table, hung on by its owner before the table is published.
    pub state: Slot,
    identity: u128,
    place: u64,
    priority: Priority,
}

impl Target {
    pub(super) fn new(add: &Add, weight: Weight, identity: u128) -> Self {
        Self {
            service: add.service.clone(),
            instance: add.instance.clone(),
            datacenter: add.datacenter.clone(),
            tags: add.tags.clone(),
            destination: add.destination.clone(),
            options: add.options.clone(),
            weight,
            share: 0.0,
            state: Slot::default(),
            identity,
            place: place(add),
            priority: Priority::of(&add.options, add.datacenter.as_deref()),
        }
    }

    /// Lower ones are asked first.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The instance as its own datacenter calls it: the same name everywhere, and only there without an equal.
    pub fn home_instance(&self) -> Option<&str> {
        home_instance(self.instance.as_deref(), self.datacenter.as_deref())
    }

    /// A hash of service, instance and destination that is the same on every machine.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// What makes two targets the same across tables: service, instance, destination and options. Stable in a process.
    pub fn identity(&self) -> u128 {
        self.identity
    }
}

/// See [`Target::identity`].
pub(super) fn identity(add: &Add) -> u128 {
    wide_hash(&(&add.service, &add.instance, &add.datacenter, &add.destination.text, &add.options.raw))
}

/// See [`Target::place`].
fn place(add: &Add) -> u64 {
    let instance = home_instance(add.instance.as_deref(), add.datacenter.as_deref()).unwrap_or_default();
    stable_hash(&[add.service.as_bytes(), instance.as_bytes(), add.destination.text.as_bytes()])
}

fn home_instance<'a>(instance: Option<&'a str>, datacenter: Option<&Datacenter>) -> Option<&'a str> {
    let instance = instance?;
    Some(datacenter.map_or(instance, |datacenter| datacenter.home_name(instance)))
}

/// What two commands have in common that give one target, their weight aside.
pub(super) fn sameness(add: &Add) -> u128 {
    wide_hash(&(&add.service, &add.datacenter, &add.destination.text, &add.tags, &add.options.raw))
}

/// 128 bits, so that nobody has to think about collisions.
fn wide_hash(value: &impl Hash) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
