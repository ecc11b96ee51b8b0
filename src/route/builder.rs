//! Builds tables from commands, and builds again only what a change touches.
//!
//! Commands are kept by the place (host and path) they say something about. A change marks its places; a build makes the
//! routes of these places anew from the commands there, and puts them into a copy of the last table, which shares all the
//! rest with it. Where a route comes out as it was, it stays the same value, with whatever hangs on it.

mod commands;
mod targets;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use commands::{Manual, Prepared, same_entries};
use targets::Targets;

use super::host::Kind;
use super::route_paths::PathKey;
use super::{Command, Entry, Reject, Route, Settings, Source, Table, diff};

/// Builds tables, and builds again only the routes that a change touches.
pub struct Builder {
    settings: Settings,
    services: HashMap<Giver, Vec<Arc<Prepared>>>,
    manual: Manual,
    sites: HashMap<Source, Site>,
    dirty: HashSet<Source>,
    /// Sites with rejects.
    rejecting: BTreeSet<Source>,
    /// Services with commands that services cannot give.
    misplaced: BTreeSet<Giver>,
    rejects: Vec<Reject>,
    rejects_changed: bool,
    /// How many targets have each name.
    aliases: BTreeMap<Arc<str>, usize>,
    aliases_changed: bool,
    table: Table,
    delta: Delta,
}

/// Who gives commands: a datacenter, empty for our own, and a service in it.
type Giver = (Arc<str>, Arc<str>);

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

#[derive(Default)]
struct Site {
    /// What services add here, in the order of targets.
    adds: Vec<Arc<Prepared>>,
    routes: Vec<Arc<Route>>,
    /// Each with the number of its manual command, counted from 1; 0 is for services.
    rejects: Vec<(u32, Reject)>,
}

/// One route of a class and conditions at a place, before and after.
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
        self.service_in("", name, entries);
    }

    /// The same for a service of another datacenter. Services of one name are as many services as they have datacenters.
    pub fn service_in(&mut self, datacenter: &str, name: &str, entries: Vec<Entry>) {
        let giver: Giver = (datacenter.into(), name.into());
        let old = self.services.get(&giver).map_or(&[][..], Vec::as_slice);
        let head = old.iter().zip(&entries).take_while(|(old, new)| old.entry == **new).count();
        let rest = (&old[head..], &entries[head..]);
        let tail = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(|(old, new)| old.entry == **new).count();
        if head == old.len() && head == entries.len() {
            return;
        }
        let removed = old[head..old.len() - tail].to_vec();
        let count = entries.len() - head - tail;
        let added: Vec<_> = entries
            .into_iter()
            .skip(head)
            .take(count)
            .map(|entry| Arc::new(Prepared::new(entry, &self.settings.known)))
            .collect();
        let now = [&old[..head], &added, &old[old.len() - tail..]].concat();

        for prepared in &removed {
            self.withdraw(prepared);
        }
        for prepared in &added {
            self.contribute(prepared);
        }
        self.delta.removed.extend(removed);
        self.delta.added.extend(added);

        let misplaced = now.iter().any(|prepared| prepared.add().is_none());
        if misplaced || self.misplaced.contains(&giver) {
            self.rejects_changed = true;
        }
        if misplaced {
            self.misplaced.insert(giver.clone());
        } else {
            self.misplaced.remove(&giver);
        }
        if now.is_empty() {
            self.services.remove(&giver);
        } else {
            self.services.insert(giver, now);
        }
    }

    /// Replaces the commands that are applied after those of all services, in order.
    pub fn manual(&mut self, entries: Vec<Entry>) {
        let old = &self.manual.commands;
        if old.len() == entries.len() && old.iter().zip(&entries).all(|(old, new)| old.entry == *new) {
            return;
        }
        let new = Manual::new(entries, &self.settings.known);
        let old = std::mem::replace(&mut self.manual, new);
        let new = &self.manual;

        // Where a deletion applies everywhere, its place between other commands counts.
        let simple = [&old, new].iter().all(|m| m.of_service.is_empty() && m.anywhere.is_empty());
        for source in old.at.keys() {
            if !simple || !new.at.contains_key(source) {
                self.dirty.insert(source.clone());
            }
        }
        for (source, after) in &new.at {
            let before = old.at.get(source).map_or(&[][..], Vec::as_slice);
            if !simple || !same_entries(&old, before, new, after) {
                self.dirty.insert(source.clone());
            }
        }
        let everywhere = !same_entries(&old, &old.anywhere, new, &new.anywhere);
        let of = |manual: &Manual, service| manual.of_service.get(service).cloned().unwrap_or_default();
        let services: HashSet<&Arc<str>> = old
            .of_service
            .keys()
            .chain(new.of_service.keys())
            .filter(|service| !same_entries(&old, &of(&old, *service), new, &of(new, *service)))
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
                    match (old, new) {
                        (_, Some(new)) => host.put(matcher, new),
                        (Some(old), None) => host.remove(matcher, old),
                        (None, None) => {}
                    }
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
            let before = old
                .iter()
                .position(|old| old.class == route.class && old.conditions == route.conditions)
                .map(|at| old.swap_remove(at));
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
            match &prepared.refused {
                None => targets.push(prepared),
                Some(why) => rejects.push((0, prepared.reject(why))),
            }
        }
        for index in commands {
            let prepared = &self.manual.commands[index as usize];
            match &prepared.entry.command {
                Command::Add(_) => match &prepared.refused {
                    None => targets.push(prepared),
                    Some(why) => rejects.push((index + 1, prepared.reject(why))),
                },
                Command::Delete(delete) => targets.remove(|add| delete.fits(add)),
                Command::Weight(set) => {
                    if !targets.set_weight(set.weight, |add| set.fits(add)) {
                        rejects
                            .push((index + 1, prepared.reject(&format!("route: no target match: {}", prepared.line))));
                    }
                }
            }
        }
        let routes = targets.by_kind().map(|(class, targets)| {
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
