//! The one funnel: takes whole values from the sources, keeps the last of each, builds and publishes tables, and says
//! what changed.
//!
//! Sources never wait for a build: they put their value down and go on. A value that was replaced before it was looked
//! at is never built.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, oneshot, watch};

use super::disabled::{Disabled, without};
use super::giver::Giver;
use super::preview::Ingredients;
use super::state::{Inherited, Inputs};
use super::status::{Board, Change, TableStatus, place, remember};
use super::{Publish, RoutesLog, SEVERAL_LINES};
use crate::metrics::names;
use crate::route::{self, Allow, Builder, Entry, ErrorPages, Instance, Named, Origin, Parsed, Reject, Settings, Table};

/// The sources' end. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Feed {
    inbox: Arc<Inbox>,
    /// Whose services come in here; `None`: those of our own datacenter, and all the rest.
    datacenter: Option<Arc<str>>,
}

#[derive(Default)]
struct Inbox {
    pending: Mutex<Pending>,
    wake: Notify,
}

/// What was put down and not looked at yet.
#[derive(Default)]
pub(super) struct Pending {
    /// No instances: the service is gone.
    pub(super) services: HashMap<Giver, Arc<[Instance]>>,
    pub(super) manual: Option<Manual>,
    whole: Option<Parsed>,
    pub(super) page: Option<Arc<str>>,
    /// Parsed, and as they were written.
    named: Option<(Named, Manual)>,
    error_pages: Option<(ErrorPages, Manual)>,
    down_page: Option<Arc<str>>,
    disabled: Option<Arc<[Disabled]>>,
    datacenter: Option<String>,
    /// Who wants to know what the table is made of.
    curious: Vec<oneshot::Sender<Ingredients>>,
    causes: Vec<String>,
    /// When the oldest and the newest of these changes came.
    since: Option<(Instant, Instant)>,
    /// What the first table waits for.
    pub(super) services_known: bool,
    pub(super) manual_known: bool,
    /// There will be entries that tags can name, and they are not known yet.
    named_awaited: bool,
    /// Other datacenters whose services are not known yet, nor known to be out of reach.
    awaited: HashMap<Arc<str>, Awaited>,
    /// Those that have said so, or were given up.
    settled: HashSet<Arc<str>>,
    /// What was kept on disk has come into force, some time ago or just now.
    fell_back: bool,
    /// What is in force is, at least in part, what was kept on disk.
    stale: bool,
    /// No longer so, as of now.
    caught_up: bool,
}

/// What is there for a datacenter that does not answer.
struct Awaited {
    kept: Inherited,
    /// Takes what of it has come into force.
    heir: Option<oneshot::Sender<Inherited>>,
}

/// Overrides: keys in order, and their texts.
pub(super) type Manual = Vec<(Arc<str>, Arc<str>)>;

impl Feed {
    pub(super) fn services(&self, changes: impl IntoIterator<Item = (Arc<str>, Arc<[Instance]>)>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        self.put(|pending| {
            for (service, instances) in changes {
                let giver = self.giver(service);
                pending.cause(|| format!("service {giver}"));
                pending.services.insert(giver, instances);
            }
        });
    }

    fn giver(&self, service: Arc<str>) -> Giver {
        Giver { datacenter: self.datacenter.clone(), service }
    }

    /// The end for services of another datacenter.
    pub(super) fn of(&self, datacenter: &Arc<str>) -> Self {
        Self { inbox: self.inbox.clone(), datacenter: Some(datacenter.clone()) }
    }

    /// The first table, if there is none yet, waits for this datacenter; see [`Feed::late`]. `heir` gets what of `kept` has
    /// come into force.
    pub(super) fn awaited(&self, kept: Inherited, heir: oneshot::Sender<Inherited>) {
        let Some(datacenter) = &self.datacenter else { return };
        self.put(|pending| {
            let mut awaited = Awaited { kept, heir: Some(heir) };
            if pending.fell_back {
                awaited.come_into_force();
            } else if !pending.complete_here() {
                pending.awaited.insert(datacenter.clone(), awaited);
            }
        });
    }

    /// The datacenter does not say what its services are, so what was kept of them has to do until it does. `false`: it was
    /// not waited for.
    pub(super) fn late(&self) -> bool {
        let Some(datacenter) = &self.datacenter else { return false };
        let mut late = false;
        self.put(|pending| {
            pending.settled.insert(datacenter.clone());
            if let Some(awaited) = pending.awaited.remove(datacenter) {
                late = true;
                pending.inherit(datacenter, awaited);
            }
        });
        late
    }

    pub(super) fn manual(&self, manual: Manual) {
        self.put(|pending| {
            pending.cause(|| "overrides".into());
            pending.manual = Some(manual);
        });
    }

    /// All commands of a back-end that knows no services.
    pub(super) fn whole(&self, parsed: Parsed, cause: &str) {
        self.put(|pending| {
            pending.cause(|| cause.into());
            pending.whole = Some(parsed);
        });
    }

    pub(super) fn page(&self, page: &str) {
        self.put(|pending| {
            pending.cause(|| "no-route page".into());
            pending.page = Some(page.into());
        });
    }

    /// Names of entries, and their texts.
    pub(super) fn named(&self, texts: Manual) {
        let named = Named::parse(plain(&texts));
        self.put(|pending| {
            pending.cause(|| "options".into());
            pending.named = Some((named, texts));
        });
    }

    /// Keys below their base, and their texts. Gives what cannot be used.
    pub(super) fn error_pages(&self, texts: Manual) -> Vec<String> {
        let (pages, wrong) = ErrorPages::parse(plain(&texts));
        self.put(|pending| {
            pending.cause(|| "error pages".into());
            pending.error_pages = Some((pages, texts));
        });
        wrong
    }

    /// The value of `$DC`, if it turns out to be another.
    pub(super) fn datacenter(&self, datacenter: String) {
        self.put(|pending| pending.datacenter = Some(datacenter));
    }

    /// Fills in what nobody has told us yet and lets the first table go. `false`: all is known already.
    pub(super) fn fall_back(&self, inputs: &Inputs) -> bool {
        let named = Named::parse(plain(&inputs.named));
        let (pages, _) = ErrorPages::parse(plain(&inputs.error_pages));
        let mut stale = false;
        self.put(|pending| {
            // Whoever waits for other datacenters has an end for that.
            stale = !pending.complete_here() && !pending.stale;
            if !stale {
                return;
            }
            (pending.stale, pending.fell_back) = (true, true);
            pending.causes.insert(0, "routes kept on disk".into());
            pending.fill(None, &inputs.services);
            for (datacenter, services) in &inputs.remote {
                // What they have lost since then is known where they have settled, and nobody would take it away again.
                if !pending.settled.contains(datacenter) {
                    pending.fill(Some(datacenter), services);
                }
            }
            pending.awaited.values_mut().for_each(|awaited| _ = awaited.come_into_force());
            pending.manual.get_or_insert_with(|| inputs.manual.clone());
            pending.page.get_or_insert_with(|| inputs.page.as_str().into());
            pending.named.get_or_insert_with(|| (named, inputs.named.clone()));
            pending.error_pages.get_or_insert_with(|| (pages, inputs.error_pages.clone()));
        });
        stale
    }

    /// What is in force is, at least in part, what was kept on disk.
    pub(super) fn is_stale(&self) -> bool {
        self.inbox.pending.lock().unwrap_or_else(PoisonError::into_inner).stale
    }

    /// Routes that name entries would be missing in a table without these.
    pub(super) fn await_named(&self) {
        self.put(|pending| pending.named_awaited = true);
    }

    /// The entries are known, or known to be out of reach.
    pub(super) fn named_known(&self) {
        self.put(|pending| pending.named_awaited = false);
    }

    /// The page for routes whose targets are all down.
    pub(super) fn down_page(&self, page: &str) {
        self.put(|pending| pending.down_page = Some(page.into()));
    }

    /// What is taken out by hand.
    pub(super) fn disabled(&self, disabled: Arc<[Disabled]>) {
        self.put(|pending| {
            pending.cause(|| "disabled or enabled by hand".into());
            pending.disabled = Some(disabled);
        });
    }

    /// What the table in force is made of; `None`: there is none yet.
    pub(super) async fn ingredients(&self) -> Option<Ingredients> {
        let (answer, given) = oneshot::channel();
        self.put(|pending| pending.curious.push(answer));
        tokio::time::timeout(CURIOUS, given).await.ok()?.ok()
    }

    /// Every service was heard of; from now on a table without them is wrong.
    pub(super) fn services_known(&self) {
        self.put(|pending| match &self.datacenter {
            None => pending.services_known = true,
            Some(datacenter) => {
                pending.settled.insert(datacenter.clone());
                pending.awaited.remove(datacenter);
            }
        });
    }

    /// The overrides are known, or known to be out of reach.
    pub(super) fn manual_known(&self) {
        self.put(|pending| pending.manual_known = true);
    }

    /// Takes what is there, as the funnel does.
    #[cfg(test)]
    pub(super) fn take(&self) -> Pending {
        self.inbox.pending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = self.inbox.pending.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut pending);
        let now = Instant::now();
        pending.since = Some((pending.since.map_or(now, |(first, _)| first), now));
        drop(pending);
        self.inbox.wake.notify_one();
    }
}

impl Pending {
    fn cause(&mut self, cause: impl FnOnce() -> String) {
        if self.causes.len() <= CAUSES {
            self.causes.push(cause());
        }
    }

    /// All that a first table needs was told.
    fn complete(&self) -> bool {
        self.complete_here() && self.awaited.is_empty()
    }

    /// The same, other datacenters aside.
    fn complete_here(&self) -> bool {
        self.services_known && self.manual_known && !self.named_awaited
    }

    /// Fills in services that nobody has told us about yet.
    fn fill(&mut self, datacenter: Option<&Arc<str>>, kept: &Inherited) {
        for (service, instances) in kept {
            let giver = Giver { datacenter: datacenter.cloned(), service: service.clone() };
            self.services.entry(giver).or_insert_with(|| instances.clone());
        }
    }

    fn inherit(&mut self, datacenter: &Arc<str>, mut awaited: Awaited) {
        if let Some(kept) = awaited.come_into_force()
            && !kept.is_empty()
        {
            self.cause(|| format!("services of {datacenter} kept on disk"));
            self.fill(Some(datacenter), &kept);
        }
    }

    fn take(&mut self) -> Pending {
        let caught_up = self.stale && self.complete();
        self.stale &= !caught_up;
        Pending {
            stale: self.stale,
            caught_up,
            datacenter: self.datacenter.take(),
            services: std::mem::take(&mut self.services),
            manual: self.manual.take(),
            whole: self.whole.take(),
            page: self.page.take(),
            named: self.named.take(),
            error_pages: self.error_pages.take(),
            down_page: self.down_page.take(),
            disabled: self.disabled.take(),
            curious: std::mem::take(&mut self.curious),
            causes: std::mem::take(&mut self.causes),
            since: self.since.take(),
            services_known: self.services_known,
            manual_known: self.manual_known,
            named_awaited: self.named_awaited,
            awaited: HashMap::new(),
            settled: HashSet::new(),
            fell_back: self.fell_back,
        }
    }
}

impl Awaited {
    /// `None`: it has, already.
    fn come_into_force(&mut self) -> Option<Inherited> {
        let kept = std::mem::take(&mut self.kept);
        // Whoever would take it may be gone by now, at the end of the program.
        let _ = self.heir.take()?.send(kept.clone());
        Some(kept)
    }
}

/// What the funnel needs to know once.
pub(super) struct Setup {
    pub(super) settings: Settings,
    /// What service tags begin with, and the value of `$DC`.
    pub(super) tag_prefix: String,
    pub(super) datacenter: String,
    pub(super) allow: Allow,
    pub(super) log: RoutesLog,
}

/// The end where tables come out.
pub(super) struct Funnel {
    feed: Feed,
    board: Arc<Board>,
    ready: watch::Sender<bool>,
    aliases: watch::Sender<Aliases>,
    /// Counts changes of what tables are made of.
    changes: watch::Sender<u64>,
    worker: Worker,
}

pub(super) type Aliases = std::collections::BTreeSet<Arc<str>>;

impl Funnel {
    pub(super) fn new(
        feed: Feed,
        board: Arc<Board>,
        setup: Setup,
        publish: Arc<dyn Publish>,
        ready: watch::Sender<bool>,
        aliases: watch::Sender<Aliases>,
    ) -> Self {
        let worker = Worker {
            builder: Builder::new(setup.settings.clone()),
            setup,
            publish,
            services: HashMap::new(),
            manual: Vec::new(),
            manual_rejects: Vec::new(),
            whole: None,
            disabled: Arc::default(),
            page: "".into(),
            named: Named::default(),
            error_pages: Arc::default(),
            named_texts: Manual::new(),
            error_texts: Manual::new(),
            rejects: HashSet::new(),
            table: Arc::default(),
            builds: 0,
            news: 0,
        };
        Self { feed, board, ready, aliases, changes: watch::Sender::new(0), worker }
    }

    /// Hears of every change of what tables are made of.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) async fn run(mut self) {
        let mut applied: Option<Instant> = None;
        loop {
            self.feed.inbox.wake.notified().await;
            // The first change after a quiet time goes at once; its followers are joined.
            loop {
                let since = {
                    let pending = self.feed.inbox.pending.lock().unwrap_or_else(PoisonError::into_inner);
                    pending.since.filter(|_| pending.stale || pending.complete())
                };
                let Some((first, last)) = since else { break };
                let until = due(applied, first, last);
                let now = Instant::now();
                if until > now {
                    tokio::time::sleep(until - now).await;
                    continue;
                }
                let pending = self.feed.inbox.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (board, mut worker) = (self.board.clone(), self.worker);
                let done = tokio::task::spawn_blocking(move || {
                    // A fault in here must not end the updates: all is built anew from what is known.
                    if std::panic::catch_unwind(AssertUnwindSafe(|| worker.apply(pending, &board))).is_err() {
                        tracing::error!("Building the routing table failed, the last one stays");
                        worker.start_over();
                    }
                    worker
                });
                let Ok(worker) = done.await else {
                    // The runtime is going down, and with it the need for tables.
                    return;
                };
                self.worker = worker;
                applied = Some(Instant::now());
                let aliases = self.worker.aliases();
                self.aliases.send_if_modified(|known| {
                    let changed = *known != aliases;
                    *known = aliases;
                    changed
                });
                let news = self.worker.news;
                self.changes.send_if_modified(|known| std::mem::replace(known, news) != news);
                let published = self.worker.builds > 0;
                self.ready.send_if_modified(|ready| published && !std::mem::replace(ready, true));
            }
        }
    }
}

/// What a tag that names an entry contains.
const NAMING: &str = "options=";

/// Whether it has to be read again when the entries change.
fn names_an_entry(instance: &Instance) -> bool {
    instance.options.contains_key(Named::OPTION) || instance.tags.iter().any(|tag| tag.contains(NAMING))
}

fn plain(texts: &Manual) -> impl Iterator<Item = (&str, &str)> {
    texts.iter().map(|(name, text)| (&**name, &**text))
}

/// When pending changes go, the oldest of which came at `first` and the newest at `last`.
fn due(applied: Option<Instant>, first: Instant, last: Instant) -> Instant {
    match applied {
        Some(applied) if first.saturating_duration_since(applied) < JOIN => (last + JOIN).min(first + JOIN_AT_MOST),
        _ => first,
    }
}

/// Owns the builder and everything that was built from. Runs where blocking is allowed.
struct Worker {
    setup: Setup,
    publish: Arc<dyn Publish>,
    builder: Builder,
    services: HashMap<Giver, Known>,
    manual: Manual,
    manual_rejects: Vec<Reject>,
    whole: Option<Parsed>,
    disabled: Arc<[Disabled]>,
    page: Arc<str>,
    named: Named,
    error_pages: Arc<ErrorPages>,
    /// As they were written.
    named_texts: Manual,
    error_texts: Manual,
    /// The rejects of the table in force, to log only new ones.
    rejects: HashSet<(Origin, String)>,
    table: Arc<Table>,
    builds: u64,
    /// Changes of what tables are made of.
    news: u64,
}

struct Known {
    instances: Arc<[Instance]>,
    rejects: Vec<Reject>,
}

impl Worker {
    fn apply(&mut self, pending: Pending, board: &Board) {
        let started = Instant::now();
        let causes = causes(&pending.causes);
        let first = self.builds == 0;
        let mut changed = first;
        if pending.caught_up {
            board.fresh();
            self.news += 1;
        }
        if let Some(datacenter) = pending.datacenter
            && datacenter != self.setup.datacenter
        {
            tracing::warn!("registry: the datacenter is {datacenter}, not {} as it was kept", self.setup.datacenter);
            // What was watched as another one.
            let watched: Vec<Giver> =
                self.services.keys().filter(|giver| giver.datacenter() == datacenter).cloned().collect();
            for giver in watched {
                changed |= self.service(giver, Arc::default());
            }
            self.setup.datacenter = datacenter;
            changed |= self.read_again(|_| true);
        }
        if let Some((named, texts)) = pending.named
            && named != self.named
        {
            self.named = named;
            self.named_texts = texts;
            self.news += 1;
            changed |= self.read_again(names_an_entry);
        }
        if let Some(disabled) = pending.disabled {
            changed |= self.switch(disabled);
        }
        for (giver, instances) in pending.services {
            changed |= self.service(giver, instances);
        }
        if let Some(texts) = pending.manual
            && texts != self.manual
        {
            self.set_manual(texts);
            changed = true;
        }
        if let Some(whole) = pending.whole
            && Some(&whole) != self.whole.as_ref()
        {
            self.manual_rejects.clone_from(&whole.rejects);
            self.whole = Some(whole);
            self.builder.manual(self.manual_entries());
            changed = true;
        }
        if let Some(page) = pending.down_page {
            self.publish.down_page(page);
        }
        let mut page_changed = false;
        if let Some(page) = pending.page
            && page != self.page
        {
            match page.len() {
                0 => tracing::info!("Unset noroute HTML"),
                n => tracing::info!("Set noroute HTML ({n} bytes)"),
            }
            self.page = page;
            page_changed = true;
        }
        if let Some((pages, texts)) = pending.error_pages
            && pages != *self.error_pages
        {
            tracing::info!("Set error pages {pages:?}");
            self.error_texts = texts;
            self.error_pages = Arc::new(pages);
            self.publish.error_pages(self.error_pages.clone());
            page_changed = true;
        }
        self.news += u64::from(changed || page_changed);
        for curious in pending.curious {
            let _ = curious.send(self.ingredients());
        }
        if !changed {
            if page_changed {
                self.publish.publish(self.table.clone(), self.page.clone());
            }
            return;
        }
        let built = self.builder.build();
        self.table = built.table;
        self.builds += 1;
        self.publish.prepare(&built.fresh, &built.gone);
        self.publish.publish(self.table.clone(), self.page.clone());
        let took = started.elapsed();

        let difference = built.delta.lines();
        self.log(&difference);
        let rejects = self.collect_rejects(built.rejects);
        let lag = pending.since.map(|(since, _)| since.elapsed());
        self.report(board, took, lag, rejects, change(causes, difference));
    }

    fn start_over(&mut self) {
        let mut builder = Builder::new(self.setup.settings.clone());
        for (giver, known) in &self.services {
            let parsed = std::panic::catch_unwind(AssertUnwindSafe(|| self.parse(&known.instances)));
            let entries = without(parsed.map(|p| p.entries).unwrap_or_default(), &self.disabled);
            builder.service_in(giver.datacenter(), &giver.service, entries);
        }
        builder.manual(self.manual_entries());
        self.builder = builder;
    }

    /// `false`: nothing new.
    fn service(&mut self, giver: Giver, instances: Arc<[Instance]>) -> bool {
        let known = self.services.get(&giver);
        if known.map_or(instances.is_empty(), |k| k.instances == instances) {
            return false;
        }
        let parsed = self.parse(&instances);
        self.give(&giver, parsed.entries);
        if instances.is_empty() {
            self.services.remove(&giver);
        } else {
            self.services.insert(giver, Known { instances, rejects: parsed.rejects });
        }
        true
    }

    /// Services with instances that name entries, which have changed. `false`: there are none.
    fn read_again(&mut self, which: impl Fn(&Instance) -> bool) -> bool {
        let all: Vec<_> = self.services.iter().filter(|(_, known)| known.instances.iter().any(&which)).collect();
        let all: Vec<_> = all.into_iter().map(|(giver, known)| (giver.clone(), self.parse(&known.instances))).collect();
        let some = !all.is_empty();
        for (giver, parsed) in all {
            self.give(&giver, parsed.entries);
            if let Some(known) = self.services.get_mut(&giver) {
                known.rejects = parsed.rejects;
            }
        }
        some
    }

    /// To the builder, but for what is disabled.
    fn give(&mut self, giver: &Giver, entries: Vec<Entry>) {
        self.builder.service_in(giver.datacenter(), &giver.service, without(entries, &self.disabled));
    }

    fn parse(&self, instances: &[Instance]) -> Parsed {
        let mut all = Parsed::default();
        for instance in instances {
            let parsed = route::parse_tags_with(instance, &self.setup.tag_prefix, &self.setup.datacenter, &self.named);
            all.entries.extend(parsed.entries);
            all.rejects.extend(parsed.rejects);
        }
        self.setup.allow.apply(all)
    }

    /// Takes out what is disabled now, and puts back what no longer is. `false`: nothing new.
    fn switch(&mut self, disabled: Arc<[Disabled]>) -> bool {
        if disabled == self.disabled {
            return false;
        }
        let before = std::mem::replace(&mut self.disabled, disabled);
        let concerned: HashSet<&str> =
            before.iter().chain(self.disabled.iter()).map(|one| one.service.as_str()).collect();
        let concerned = self.services.iter().filter(|(giver, _)| concerned.contains(&*giver.service));
        let concerned: Vec<_> =
            concerned.map(|(giver, known)| (giver.clone(), self.parse(&known.instances).entries)).collect();
        for (giver, entries) in concerned {
            self.give(&giver, entries);
        }
        self.builder.manual(self.manual_entries());
        true
    }

    fn manual_entries(&self) -> Vec<Entry> {
        let entries = match &self.whole {
            Some(whole) => whole.entries.clone(),
            None => parse_keys(&self.manual).entries,
        };
        without(entries, &self.disabled)
    }

    fn ingredients(&self) -> Ingredients {
        Ingredients {
            settings: self.setup.settings.clone(),
            tag_prefix: self.setup.tag_prefix.clone(),
            datacenter: self.setup.datacenter.clone(),
            allow: self.setup.allow.clone(),
            named: self.named.clone(),
            named_texts: self.named_texts.clone(),
            error_texts: self.error_texts.clone(),
            page: self.page.clone(),
            services: self.services.iter().map(|(giver, known)| (giver.clone(), known.instances.clone())).collect(),
            manual: self.manual.clone(),
            whole: self.whole.clone(),
            disabled: self.disabled.clone(),
            table: self.table.clone(),
        }
    }

    fn set_manual(&mut self, texts: Manual) {
        let parsed = parse_keys(&texts);
        self.builder.manual(without(parsed.entries, &self.disabled));
        self.manual_rejects = parsed.rejects;
        self.manual = texts;
    }

    fn log(&self, difference: &[String]) {
        match self.setup.log {
            RoutesLog::Off => {}
            RoutesLog::Delta if difference.is_empty() => {}
            RoutesLog::Delta => tracing::info!(target: SEVERAL_LINES, "Config updates\n{}", difference.join("\n")),
            RoutesLog::All => {
                tracing::info!(target: SEVERAL_LINES, "Updated config to\n{}", self.builder.source_lines().join("\n"))
            }
            RoutesLog::Detail => tracing::info!(target: SEVERAL_LINES, "Updated config to\n{}", self.table.tree()),
        }
    }

    /// All rejects of the table in force. New ones are logged.
    fn collect_rejects(&mut self, of_build: Vec<Reject>) -> Vec<Reject> {
        let services: BTreeMap<_, _> = self.services.iter().filter(|(_, k)| !k.rejects.is_empty()).collect();
        let mut all: Vec<Reject> = services.into_values().flat_map(|k| k.rejects.iter().cloned()).collect();
        all.extend(self.manual_rejects.iter().cloned());
        all.extend(of_build);
        let mut said = 0;
        let mut now = HashSet::with_capacity(all.len());
        for reject in &all {
            let key = (reject.origin.clone(), reject.text.clone());
            if !self.rejects.contains(&key) && !now.contains(&key) {
                said += 1;
                if said <= REJECTS_LOGGED {
                    tracing::warn!("Ignoring {:?} of {}: {}", reject.text, place(&reject.origin), reject.reason);
                }
            }
            now.insert(key);
        }
        if said > REJECTS_LOGGED {
            tracing::warn!("Ignoring {} more that cannot be used", said - REJECTS_LOGGED);
        }
        self.rejects = now;
        all
    }

    fn report(&self, board: &Board, took: Duration, lag: Option<Duration>, rejects: Vec<Reject>, change: Change) {
        let (routes, targets) = self.table.size();
        metrics::counter!(names::REGISTRY_UPDATES).increment(1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        metrics::gauge!(names::REGISTRY_UPDATED).set(now.as_secs_f64());
        if let Some(lag) = lag {
            metrics::gauge!(names::REGISTRY_LAG).set(lag.as_secs_f64());
        }
        metrics::gauge!(names::REGISTRY_BUILD_SECONDS).set(took.as_secs_f64());
        metrics::gauge!(names::REGISTRY_REJECTS).set(rejects.len() as f64);
        metrics::gauge!(names::REGISTRY_ROUTES).set(routes as f64);
        metrics::gauge!(names::REGISTRY_TARGETS).set(targets as f64);
        let changes = remember(&board.table.load().changes, change);
        board.table.store(Arc::new(TableStatus {
            built: Some(SystemTime::now()),
            builds: self.builds,
            build_ms: took.as_secs_f64() * 1000.0,
            lag_ms: lag.map(|lag| lag.as_secs_f64() * 1000.0),
            routes,
            targets,
            services: self.services.len(),
            instances: self.services.values().map(|k| k.instances.len()).sum(),
            shares: self.shares(),
            rejects: rejects.into(),
            changes,
        }));
    }

    /// Services and instances of other datacenters.
    fn shares(&self) -> BTreeMap<Arc<str>, (usize, usize)> {
        let mut shares = BTreeMap::new();
        for (giver, known) in &self.services {
            if let Some(datacenter) = &giver.datacenter {
                let (services, instances): &mut (usize, usize) = shares.entry(datacenter.clone()).or_default();
                *services += 1;
                *instances += known.instances.len();
            }
        }
        shares
    }

    fn aliases(&self) -> Aliases {
        self.table.aliases()
    }
}

fn parse_keys(texts: &Manual) -> Parsed {
    let mut all = Parsed::default();
    for (key, text) in texts {
        let parsed = route::parse_text(text, |line| Origin::Key { key: key.clone(), line });
        all.entries.extend(parsed.entries);
        all.rejects.extend(parsed.rejects);
    }
    all
}

fn causes(causes: &[String]) -> String {
    let mut text = causes.iter().take(CAUSES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if causes.len() > CAUSES {
        text.push_str(" and more");
    }
    text
}

fn change(cause: String, difference: Vec<String>) -> Change {
    let count = |mark| difference.iter().filter(|line| line.starts_with(mark)).count();
    Change {
        at: Some(SystemTime::now()),
        cause,
        added: count('+'),
        removed: count('-'),
        lines: difference.iter().take(CHANGE_LINES).map(|line| line.chars().take(CHANGE_WIDTH).collect()).collect(),
    }
}

/// Changes within this time after a table are joined ...
const JOIN: Duration = Duration::from_millis(50);

/// ... but none waits longer than this.
const JOIN_AT_MOST: Duration = Duration::from_millis(250);

/// For the funnel to look up from a build.
const CURIOUS: Duration = Duration::from_secs(10);

/// Causes that are named per change.
const CAUSES: usize = 8;

/// Rejects that are logged per table; the rest are counted. All of them are in the status.
const REJECTS_LOGGED: usize = 50;

const CHANGE_LINES: usize = 50;

const CHANGE_WIDTH: usize = 500;

#[cfg(test)]
mod tests;
