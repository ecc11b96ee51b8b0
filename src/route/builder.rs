//! Builds tables from commands, and builds again only what a change touches.
//!
//! Commands are kept by the place (host and path) they say something about. A change marks its places; a build makes the
//! routes of these places anew from the commands there, and puts them into a copy of the last table, which shares all the
//! rest with it. Where a route comes out as it was, it stays the same value, with whatever hangs on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::host::Kind;
use super::route_paths::PathKey;
use super::target::{identity, sameness};
use super::{Add, Class, Command, Entry, Origin, Reject, Route, Settings, Source, Table, Target, Weight, diff};

/// Builds tables, and builds again only the hosts that a change touches.
pub struct Builder {
    settings: Settings,
    services: HashMap<Arc<str>, Vec<Arc<Prepared>>>,
    manual: Manual,
    sites: HashMap<Source, Site>,
    dirty: HashSet<Source>,
    /// Sites with rejects.
    rejecting: BTreeSet<Source>,
    /// Services with commands that services cannot give.
    misplaced: BTreeSet<Arc<str>>,
    rejects: Vec<Reject>,
    rejects_changed: bool,
    /// How many targets have each name.
    aliases: BTreeMap<Arc<str>, usize>,
    aliases_changed: bool,
    table: Table,
    delta: Delta,
}

/// What a build gave.
pub struct Built {
    pub table: Arc<Table>,
    /// Commands that cannot be applied (a `route weight` without a match, say). Those found while parsing are not in it.
    /// All of them on every build, in a stable order.
    pub rejects: Vec<Reject>,
    /// Routes that are not in the table of the build before. Their slots are empty, and those of their targets; all others
    /// are shared with that table.
    pub fresh: Vec<Arc<Route>>,
    /// Routes of the table of the build before that are not in this one. One that changed is in both lists.
    pub gone: Vec<Arc<Route>>,
    /// How the commands differ from those of the build before.
    pub delta: Delta,
}

/// Commands that came and went. What `log.routes.format=delta` shows.
#[derive(Default)]
pub struct Delta {
    removed: Vec<Arc<Prepared>>,
    added: Vec<Arc<Prepared>>,
    manual: Option<[Vec<Arc<Prepared>>; 2]>,
}

/// An entry and what is worked out once for it.
struct Prepared {
    entry: Entry,
    line: Box<str>,
    /// 0 unless it adds a target.
    identity: u128,
    sameness: u128,
}

/// Commands after those of all services, in order, and where each has a say.
#[derive(Default)]
struct Manual {
    commands: Vec<Arc<Prepared>>,
    at: HashMap<Source, Vec<u32>>,
    /// Deletions without a source, by service, and those by tags alone.
    of_service: HashMap<Arc<str>, Vec<u32>>,
    anywhere: Vec<u32>,
}

#[derive(Default)]
struct Site {
    /// What services add here, in the order of targets.
    adds: Vec<Arc<Prepared>>,
    routes: Vec<Arc<Route>>,
    /// Each with the number of its manual command, counted from 1; 0 is for services.
    rejects: Vec<(u32, Reject)>,
}

/// One route of a class at a place, before and after.
struct Change {
    old: Option<Arc<Route>>,
    new: Option<Arc<Route>>,
}

impl Builder {
    pub fn new(settings: Settings) -> Self {
        Self {
            table: Table::empty(settings.matcher),
            settings,
            services: HashMap::new(),
            manual: Manual::default(),
            sites: HashMap::new(),
            dirty: HashSet::new(),
            rejecting: BTreeSet::new(),
            misplaced: BTreeSet::new(),
            rejects: Vec::new(),
            rejects_changed: false,
            aliases: BTreeMap::new(),
            aliases_changed: false,
            delta: Delta::default(),
        }
    }

    /// Replaces everything that one service contributes. No entries: the service is gone. Services only add: other
    /// commands are rejects.
    pub fn service(&mut self, name: &str, entries: Vec<Entry>) {
        let old = self.services.get(name).map_or(&[][..], Vec::as_slice);
        let head = old.iter().zip(&entries).take_while(|(old, new)| old.entry == **new).count();
        let rest = (&old[head..], &entries[head..]);
        let tail = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(|(old, new)| old.entry == **new).count();
        if head == old.len() && head == entries.len() {
            return;
        }
        let removed = old[head..old.len() - tail].to_vec();
        let count = entries.len() - head - tail;
        let added: Vec<_> =
            entries.into_iter().skip(head).take(count).map(|entry| Arc::new(Prepared::new(entry))).collect();
        let now = [&old[..head], &added, &old[old.len() - tail..]].concat();

        for prepared in &removed {
            self.withdraw(prepared);
        }
        for prepared in &added {
            self.contribute(prepared);
        }
        self.delta.removed.extend(removed);
        self.delta.added.extend(added);

        let name: Arc<str> = name.into();
        let misplaced = now.iter().any(|prepared| prepared.add().is_none());
        if misplaced || self.misplaced.contains(&name) {
            self.rejects_changed = true;
        }
        if misplaced {
            self.misplaced.insert(name.clone());
        } else {
            self.misplaced.remove(&name);
        }
        if now.is_empty() {
            self.services.remove(&name);
        } else {
            self.services.insert(name, now);
        }
    }

    /// Replaces the commands that are applied after those of all services, in order.
    pub fn manual(&mut self, entries: Vec<Entry>) {
        let old = &self.manual.commands;
        if old.len() == entries.len() && old.iter().zip(&entries).all(|(old, new)| old.entry == *new) {
            return;
        }
        let new = Manual::new(entries);
        let old = std::mem::replace(&mut self.manual, new);
        let new = &self.manual;

        let list = |manual: &Manual, indices: Option<&Vec<u32>>| -> Vec<Arc<Prepared>> {
            indices.into_iter().flatten().map(|i| manual.commands[*i as usize].clone()).collect()
        };
        // Where a deletion applies everywhere, its place between other commands counts.
        let simple = [&old, new].iter().all(|m| m.of_service.is_empty() && m.anywhere.is_empty());
        for source in old.at.keys().chain(new.at.keys()) {
            let (before, after) = (list(&old, old.at.get(source)), list(new, new.at.get(source)));
            if !simple || !same_entries(&before, &after) {
                self.dirty.insert(source.clone());
            }
        }
        let everywhere = !same_entries(&list(&old, Some(&old.anywhere)), &list(new, Some(&new.anywhere)));
        let services: HashSet<&Arc<str>> = old
            .of_service
            .keys()
            .chain(new.of_service.keys())
            .filter(|s| {
                old.of_service.contains_key(*s) != new.of_service.contains_key(*s) || {
                    !same_entries(&list(&old, old.of_service.get(*s)), &list(new, new.of_service.get(*s)))
                }
            })
            .collect();
        if everywhere || !services.is_empty() {
            for (source, site) in &self.sites {
                let mut adds = site.adds.iter().filter_map(|prepared| prepared.add());
                if everywhere || adds.any(|add| services.contains(&add.service)) {
                    self.dirty.insert(source.clone());
                }
            }
        }
        self.rejects_changed = true;
        let before = match self.delta.manual.take() {
            Some([before, _]) => before,
            None => old.commands,
        };
        self.delta.manual = Some([before, self.manual.commands.clone()]);
    }

    pub fn build(&mut self) -> Built {
        let mut dirty: Vec<Source> = self.dirty.drain().collect();
        dirty.sort_unstable();
        let (mut fresh, mut gone) = (Vec::new(), Vec::new());
        for sources in dirty.chunk_by(|a, b| a.host == b.host) {
            let mut changes = Vec::new();
            for source in sources {
                self.rebuild(source, &mut changes);
            }
            if changes.is_empty() {
                continue;
            }
            for Change { old, new } in &changes {
                self.account(old.as_deref(), false);
                self.account(new.as_deref(), true);
            }
            let matcher = self.settings.matcher;
            self.table.edit(&sources[0].host, self.settings.globs, |host| {
                for Change { old, new } in &changes {
                    let route = new.as_ref().or(old.as_ref()).expect("a change has an old or a new route");
                    host.set(matcher, route.class, &route.path, new.clone());
                }
            });
            for Change { old, new } in changes {
                gone.extend(old);
                fresh.extend(new);
            }
        }
        if std::mem::take(&mut self.aliases_changed) {
            self.table.aliases = Arc::new(self.aliases.keys().cloned().collect());
        }
        if std::mem::take(&mut self.rejects_changed) {
            self.rejects = self.all_rejects();
        }
        Built {
            table: Arc::new(self.table.clone()),
            rejects: self.rejects.clone(),
            fresh,
            gone,
            delta: std::mem::take(&mut self.delta),
        }
    }

    /// The commands in force as text: service commands sorted descending, then `manual` in order. One command per line.
    /// This is what `log.routes.format=all` shows; for `delta` see [`Built::delta`], which does not go through all of them.
    pub fn source_lines(&self) -> Vec<String> {
        let mut lines: Vec<&str> = self.services.values().flatten().map(|prepared| &*prepared.line).collect();
        lines.sort_unstable_by(|a, b| b.cmp(a));
        lines.extend(self.manual.commands.iter().map(|prepared| &*prepared.line));
        lines.into_iter().map(str::to_owned).collect()
    }

    fn contribute(&mut self, prepared: &Arc<Prepared>) {
        let Some(add) = prepared.add() else { return };
        let site = self.sites.entry(add.source.clone()).or_default();
        let at = site.adds.partition_point(|other| other.order(prepared).is_lt());
        site.adds.insert(at, prepared.clone());
        self.dirty.insert(add.source.clone());
    }

    fn withdraw(&mut self, prepared: &Arc<Prepared>) {
        let Some(add) = prepared.add() else { return };
        let Some(site) = self.sites.get_mut(&add.source) else { return };
        if let Ok(at) = site.adds.binary_search_by(|other| other.order(prepared)) {
            site.adds.remove(at);
        }
        self.dirty.insert(add.source.clone());
    }

    /// Makes the routes of a place anew, and tells which ones differ.
    fn rebuild(&mut self, source: &Source, changes: &mut Vec<Change>) {
        let mut site = self.sites.remove(source).unwrap_or_default();
        let (mut routes, rejects) = self.assemble(source, &site.adds);
        let mut old = std::mem::take(&mut site.routes);
        for route in &mut routes {
            let before = old.iter().position(|old| old.class == route.class).map(|at| old.swap_remove(at));
            match before {
                Some(before) if before.same(route) => *route = before,
                before => changes.push(Change { old: before, new: Some(route.clone()) }),
            }
        }
        changes.extend(old.into_iter().map(|old| Change { old: Some(old), new: None }));
        site.routes = routes;

        if !rejects.is_empty() || !site.rejects.is_empty() {
            self.rejects_changed = true;
        }
        if rejects.is_empty() {
            self.rejecting.remove(source);
        } else {
            self.rejecting.insert(source.clone());
        }
        site.rejects = rejects;
        if !(site.adds.is_empty() && site.routes.is_empty() && site.rejects.is_empty()) {
            self.sites.insert(source.clone(), site);
        }
    }

    /// The routes of a place by the commands that have a say there.
    fn assemble(&self, source: &Source, adds: &[Arc<Prepared>]) -> (Vec<Arc<Route>>, Vec<(u32, Reject)>) {
        let commands = self.manual.commands_for(source, adds);
        let place =
            Kind::of(&source.host, self.settings.globs).and_then(|_| PathKey::of(self.settings.matcher, &source.path));
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                let manual = commands.iter().map(|i| (i + 1, &self.manual.commands[*i as usize]));
                let all = adds.iter().map(|prepared| (0, prepared)).chain(manual);
                let rejects = all.filter(|(_, p)| p.add().is_some()).map(|(i, p)| (i, p.reject(&why))).collect();
                return (Vec::new(), rejects);
            }
        };
        let mut targets = Targets::default();
        let mut rejects = Vec::new();
        for prepared in adds {
            targets.push(prepared);
        }
        for index in commands {
            let prepared = &self.manual.commands[index as usize];
            match &prepared.entry.command {
                Command::Add(_) => targets.push(prepared),
                Command::Delete(delete) => targets.remove(|add| delete.fits(add)),
                Command::Weight(set) => {
                    if !targets.set_weight(set.weight, |add| set.fits(add)) {
                        rejects
                            .push((index + 1, prepared.reject(&format!("route: no target match: {}", prepared.line))));
                    }
                }
            }
        }
        let routes = targets.by_class().map(|(class, targets)| {
            let glob = place.glob.clone();
            Arc::new(Route::new(class, source.host.clone(), source.path.clone(), glob, targets))
        });
        (routes.collect(), rejects)
    }

    fn account(&mut self, route: Option<&Route>, added: bool) {
        let Some(route) = route else { return };
        self.table.count(route, added);
        for name in route.targets.iter().filter_map(|target| target.options.register.as_ref()) {
            let count = self.aliases.entry(name.clone()).or_default();
            if added {
                *count += 1;
                self.aliases_changed |= *count == 1;
            } else {
                *count -= 1;
                if *count == 0 {
                    self.aliases.remove(name);
                    self.aliases_changed = true;
                }
            }
        }
    }

    fn all_rejects(&self) -> Vec<Reject> {
        let sites = self.rejecting.iter().filter_map(|source| self.sites.get(source));
        let mut all: Vec<(u32, Reject)> = sites.flat_map(|site| site.rejects.iter().cloned()).collect();
        let misplaced = self.misplaced.iter().filter_map(|name| self.services.get(name)).flatten();
        all.extend(misplaced.filter(|p| p.add().is_none()).map(|p| (0, p.reject("a service can only add routes"))));
        all.sort_by(|(i, a), (k, b)| (i, &a.origin, &a.text).cmp(&(k, &b.origin, &b.text)));
        all.into_iter().map(|(_, reject)| reject).collect()
    }
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// `- old` and `+ new`: services first, in descending order, then manual commands in theirs.
    pub fn lines(&self) -> Vec<String> {
        let sorted = |list: &[Arc<Prepared>]| {
            let mut lines: Vec<String> = list.iter().map(|prepared| prepared.line.to_string()).collect();
            lines.sort_unstable_by(|a, b| b.cmp(a));
            lines
        };
        let mut lines = diff(&sorted(&self.removed), &sorted(&self.added));
        if let Some([old, new]) = &self.manual {
            let plain = |list: &[Arc<Prepared>]| list.iter().map(|p| p.line.to_string()).collect::<Vec<_>>();
            lines.extend(diff(&plain(old), &plain(new)));
        }
        lines
    }
}

impl Prepared {
    fn new(entry: Entry) -> Self {
        let line = entry.command.to_string().into();
        let (identity, sameness) = match &entry.command {
            Command::Add(add) => (identity(add), sameness(add)),
            _ => (0, 0),
        };
        Self { entry, line, identity, sameness }
    }

    fn add(&self) -> Option<&Add> {
        match &self.entry.command {
            Command::Add(add) => Some(add),
            _ => None,
        }
    }

    /// The order of targets: descending by line. Of equal lines one becomes the target, and always the same.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.line.cmp(&self.line).then_with(|| self.entry.origin.cmp(&other.entry.origin))
    }

    fn reject(&self, why: &str) -> Reject {
        let text = match &self.entry.origin {
            Origin::Tag { tag, .. } => tag,
            _ => &*self.line,
        };
        Reject::new(self.entry.origin.clone(), text, why)
    }
}

impl Manual {
    fn new(entries: Vec<Entry>) -> Self {
        let mut manual = Self::default();
        for (entry, index) in entries.into_iter().zip(0..) {
            let source = match &entry.command {
                Command::Add(add) => Some(&add.source),
                Command::Weight(set) => Some(&set.source),
                Command::Delete(delete) => delete.source.as_ref(),
            };
            match (source, &entry.command) {
                (Some(source), _) => manual.at.entry(source.clone()).or_default().push(index),
                (None, Command::Delete(delete)) => match &delete.service {
                    Some(service) => manual.of_service.entry(service.clone()).or_default().push(index),
                    None => manual.anywhere.push(index),
                },
                (None, _) => {}
            }
            manual.commands.push(Arc::new(Prepared::new(entry)));
        }
        manual
    }

    /// In order.
    fn commands_for(&self, source: &Source, adds: &[Arc<Prepared>]) -> Vec<u32> {
        let mut indices = self.at.get(source).cloned().unwrap_or_default();
        if !self.of_service.is_empty() {
            let own = indices.iter().map(|i| &self.commands[*i as usize]);
            let services: HashSet<_> = adds.iter().chain(own).filter_map(|p| p.add()).map(|add| &add.service).collect();
            indices.extend(services.into_iter().filter_map(|service| self.of_service.get(service)).flatten());
        }
        indices.extend(&self.anywhere);
        indices.sort_unstable();
        indices
    }
}

/// The targets of a place while commands are applied.
#[derive(Default)]
struct Targets<'a> {
    list: Vec<(&'a Prepared, &'a Add, Weight)>,
    /// Kept up only for long lists, and made anew after anything but adding.
    seen: HashSet<(u128, u64)>,
}

impl<'a> Targets<'a> {
    fn push(&mut self, prepared: &'a Prepared) {
        let Some(add) = prepared.add() else { return };
        let key = |sameness: u128, weight: Weight| (sameness, weight.number().unwrap_or(-1.0).to_bits());
        let new = key(prepared.sameness, add.weight);
        let mut known = self.list.iter().map(|(p, _, weight)| key(p.sameness, *weight));
        if self.list.len() < 32 {
            if known.any(|old| old == new) {
                return;
            }
        } else {
            if self.seen.is_empty() {
                self.seen.extend(known);
            }
            if !self.seen.insert(new) {
                return;
            }
        }
        self.list.push((prepared, add, add.weight));
    }

    fn remove(&mut self, fits: impl Fn(&Add) -> bool) {
        self.seen.clear();
        self.list.retain(|(_, add, _)| !fits(add));
    }

    /// Divides the weight between the targets that fit, for each class of its own. False if there are none.
    fn set_weight(&mut self, weight: Weight, fits: impl Fn(&Add) -> bool) -> bool {
        self.seen.clear();
        let mut any = false;
        for class in Class::ALL {
            let fitting = |add: &Add| add.class() == class && fits(add);
            let count = self.list.iter().filter(|(_, add, _)| fitting(add)).count();
            for (_, _, current) in self.list.iter_mut().filter(|(_, add, _)| fitting(add)) {
                *current = weight.part_of(count);
                any = true;
            }
        }
        any
    }

    fn by_class(self) -> impl Iterator<Item = (Class, Vec<Target>)> {
        Class::ALL.into_iter().filter_map(move |class| {
            let own = self.list.iter().filter(|(_, add, _)| add.class() == class);
            let targets: Vec<_> =
                own.map(|(prepared, add, weight)| Target::new(add, *weight, prepared.identity)).collect();
            (!targets.is_empty()).then_some((class, targets))
        })
    }
}

fn same_entries(a: &[Arc<Prepared>], b: &[Arc<Prepared>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.entry == b.entry)
}
