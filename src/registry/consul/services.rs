//! Which instances there are: what is watched, and what is read when something moved.
//!
//! Two blocking queries see everything that happens: the list of service names, whose index moves with every service,
//! and the list of all checks. They say which services changed, and only those are read (node, service and checks in one
//! answer, which alone decides about routes). A service without route tags is never read.
//!
//! One kind of change shows in neither list: a new address or port with the same tags and the same checks. Only the
//! index of the names moves. Few services are then simply read again; for many, Consul's list of nodes, one query, says
//! which one it was.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};

use super::audit::Audit;
use super::doubt::Doubt;
use super::health::Rules;
use super::hold::Hold;
use super::instances::Instances;
use super::lists::{self, Checks, Names, Prints};
use super::overtaking::Overtaking;
use crate::consul::{Answer, Client, Consistency, Entry, Error, Failure, Keys, Mode, Read, Seen, Step, Watch};
use crate::life;
use crate::registry::publish::Feed;
use crate::registry::state::Inherited;
use crate::registry::status::{Board, Source};
use crate::route::{Datacenter, Instance};

type Name = Arc<str>;

pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) rules: Rules,
    pub(super) prefix: Arc<str>,
    /// Reads under way at once.
    pub(super) monitors: usize,
    /// 0: blocking queries.
    pub(super) poll: Duration,
    /// `None`: our own. Client and feed are of the same.
    pub(super) datacenter: Option<Arc<Datacenter>>,
    pub(super) feed: Feed,
    pub(super) sources: Sources,
}

/// What is reported on its own.
pub(super) struct Sources {
    pub(super) names: Source,
    pub(super) checks: Source,
    pub(super) reads: Source,
}

impl Sources {
    pub(super) fn of(board: &Board, datacenter: Option<&Arc<str>>) -> Self {
        let source = |name| board.source_in(datacenter, name);
        Self { names: source("services"), checks: source("checks"), reads: source("instances") }
    }
}

pub(super) struct Services {
    setup: Setup,
    names: Option<Names>,
    checks: Option<Checks>,
    names_index: u64,
    checks_index: u64,
    /// Services that were read newer than the last list of checks, and how new.
    ahead: HashMap<Name, u64>,
    /// Every service with a route tag.
    known: HashMap<Name, Known>,
    generation: u64,
    /// To be read, in order.
    queue: VecDeque<Name>,
    retries: BTreeSet<(Instant, Name)>,
    running: JoinSet<Done>,
    reading: usize,
    hold: Hold,
    /// Changes that wait for the rest of their round, and since when.
    batch: HashMap<Name, Arc<[Instance]>>,
    batch_since: Option<Instant>,
    overtaking: Overtaking,
    /// The last answer of each list was good.
    names_well: bool,
    checks_well: bool,
    /// Services never read yet.
    unread: usize,
    /// Services whose last answer was blank although the names list them. It is asked for again and never believed.
    blank: HashSet<Name>,
    /// When the names were first known.
    started: Option<Instant>,
    announced: bool,
    /// Whether the lists seem to leave things out.
    names_doubt: Doubt,
    checks_doubt: Doubt,
    audit: Audit,
    auditing: bool,
    /// When the list of nodes was refused: all services are read instead.
    no_nodes: Option<Instant>,
    /// Watches that wait until what they reported is read.
    waiting: Vec<(Instant, oneshot::Sender<()>)>,
    /// Before this, none of them goes on.
    paced: Option<Instant>,
}

#[derive(Default)]
struct Known {
    /// Nodes of its instances.
    nodes: HashSet<Name>,
    /// Sum of [`lists::shape`] over its instances.
    shape: u64,
    /// The fingerprint that the list of nodes had for the same shape, when it differed.
    seen: Option<u64>,
    reading: bool,
    queued: bool,
    /// Changed again while it was read.
    again: bool,
    /// In the list of retries.
    retrying: bool,
    /// To be read once more a second later: a stale server may not have heard of the change yet.
    confirm: bool,
    /// Tells apart a service from one of the same name before it.
    generation: u64,
    /// Every reason to read it was one that a healthy watch gave.
    trusted: bool,
    /// A healthy watch of the names said that it is no more.
    gone: bool,
    /// It was read at least once.
    read: bool,
    /// When its last read began, and how new the last answer was.
    begun: Option<Instant>,
    index: u64,
    failures: u32,
    /// Answers in a row without any instance although the names list the service.
    blank: u32,
}

enum Event {
    Inherit(Inherited),
    Names(Result<Seen<Names>, Failure>, oneshot::Sender<()>),
    Checks(Result<Seen<Checks>, Failure>, oneshot::Sender<()>),
}

enum Done {
    Read(Name, u64, Result<Answer<Vec<Entry>>, Error>),
    Audit(Result<Answer<Prints>, Error>),
}

impl Services {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            setup,
            names: None,
            checks: None,
            names_index: 0,
            checks_index: 0,
            ahead: HashMap::new(),
            known: HashMap::new(),
            generation: 0,
            queue: VecDeque::new(),
            retries: BTreeSet::new(),
            running: JoinSet::new(),
            reading: 0,
            hold: Hold::default(),
            batch: HashMap::new(),
            batch_since: None,
            overtaking: Overtaking::default(),
            names_well: false,
            checks_well: false,
            unread: 0,
            blank: HashSet::new(),
            started: None,
            announced: false,
            names_doubt: Doubt::default(),
            checks_doubt: Doubt::default(),
            audit: Audit::default(),
            auditing: false,
            no_nodes: None,
            waiting: Vec::new(),
            paced: None,
        }
    }

    pub(super) async fn run(mut self, inherited: oneshot::Receiver<Inherited>) {
        let (events, mut inbox) = mpsc::channel(2);
        let kept = events.clone();
        // They end with this task: nobody receives any more.
        let mut watches = JoinSet::new();
        let mut names = self.watch_names(Duration::ZERO, &events, &mut watches);
        let mut checks = self.watch_checks(Duration::ZERO, &events, &mut watches);
        watches.spawn(async move {
            if let Ok(inherited) = inherited.await {
                let _ = kept.send(Event::Inherit(inherited)).await;
            }
        });
        loop {
            self.settle();
            let timer = self.timer();
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(Event::Inherit(inherited)) => self.inherit(inherited),
                    Some(Event::Names(seen, go)) => {
                        let index = seen.as_ref().map_or(u64::MAX, |seen| seen.index);
                        self.on_names(seen);
                        self.look_at_all(index);
                        self.wait(go, self.names_doubt.is_active());
                    }
                    Some(Event::Checks(seen, go)) => {
                        self.on_checks(seen);
                        self.wait(go, self.checks_doubt.is_active());
                    }
                    None => return,
                },
                Some(done) = self.running.join_next(), if !self.running.is_empty() => match done {
                    Ok(Done::Read(name, generation, answer)) => self.on_read(&name, generation, answer),
                    Ok(Done::Audit(answer)) => self.on_audit(answer),
                    // The runtime is going down.
                    Err(_) => return,
                },
                Some(Err(ended)) = watches.join_next(), if !watches.is_empty() => {
                    // One that has panicked begins anew: it knows nothing, and takes whatever there is.
                    if ended.id() == names {
                        names = self.watch_names(AFTER_PANIC, &events, &mut watches);
                    } else if ended.id() == checks {
                        checks = self.watch_checks(AFTER_PANIC, &events, &mut watches);
                    }
                }
                () = tokio::time::sleep_until(timer.into()) => {}
            }
        }
    }

    /// The table has services from disk: each stays until Consul says something else, and what Consul lacks is believed
    /// as slowly as after an outage.
    fn inherit(&mut self, inherited: Inherited) {
        self.hold.suspect();
        for (name, instances) in inherited {
            if self.known.get(&name).is_some_and(|known| known.read) {
                continue;
            }
            self.hold.inherit(&name, &instances);
            if self.names.is_some() {
                self.mark(&name, false);
            } else if !self.known.contains_key(&name) {
                self.generation += 1;
                self.known.insert(name, Known { generation: self.generation, ..Known::default() });
                self.unread += 1;
            }
        }
    }

    fn watch_names(&self, pause: Duration, events: &mpsc::Sender<Event>, watches: &mut JoinSet<()>) -> Id {
        let (watch, prefix, events) = (self.watch(Keys::SERVICES), self.setup.prefix.clone(), events.clone());
        let names = async move {
            tokio::time::sleep(pause).await;
            watch_names(watch, prefix, events).await;
        };
        watches.spawn(names).id()
    }

    fn watch_checks(&self, pause: Duration, events: &mpsc::Sender<Event>, watches: &mut JoinSet<()>) -> Id {
        let (watch, prefix, events) = (self.watch(Keys::CHECKS), self.setup.prefix.clone(), events.clone());
        let checks = async move {
            tokio::time::sleep(pause).await;
            watch_checks(watch, prefix, events).await;
        };
        watches.spawn(checks).id()
    }

    fn watch(&self, path: &str) -> Watch {
        let mode = if self.setup.poll.is_zero() { Mode::Block(WAIT) } else { Mode::Poll(self.setup.poll) };
        Watch::new(self.setup.client.clone(), path.to_owned(), "", mode, false)
    }

    /// Everything that follows from what happened.
    fn settle(&mut self) {
        let now = Instant::now();
        while let Some((at, name)) = self.retries.first().cloned() {
            if at > now {
                break;
            }
            self.retries.pop_first();
            // Meanwhile it may have been read for another reason.
            if let Some(known) = self.known.get_mut(&name)
                && std::mem::take(&mut known.retrying)
            {
                self.enqueue(&name);
            }
        }
        self.look_for_hidden(now);
        self.start_reads();
        let idle = self.is_idle();
        let settled = idle && self.audit.settles(self.setup.poll).is_none();
        let lists_lag = self.lists_lag(now).is_some();
        let paced = self.paced.is_some_and(|at| at > now);
        // They go on when this is dropped.
        self.waiting.retain(|(until, _)| !lists_lag && (paced || (!settled && *until > now)));
        let complete = self.names_well && self.checks_well && idle;
        let changed = self.hold.judge(now, complete, self.is_doubtful());
        for (name, value) in changed {
            self.put(&name, Some(value));
        }
        let warning =
            "Consul lacks most instances after it was away; they are kept for two minutes, or until they come back";
        self.setup.sources.checks.warn(self.hold.waits().then(|| warning.to_owned()));
        self.publish(now);
        self.announce(now);
    }

    /// Nothing is to be read but what failed.
    fn is_idle(&self) -> bool {
        self.reading == 0 && self.queue.is_empty() && !self.auditing
    }

    /// The first table may be built once every service was read; one that cannot be read is waited for a little.
    fn announce(&mut self, now: Instant) {
        if self.announced {
            return;
        }
        let known = self.names.is_some() && self.checks.is_some();
        let waited = self.started.is_some_and(|at| now.duration_since(at) >= FIRST_READS);
        let failing = self.known.values().filter(|k| !k.read && k.failures > 0).count();
        if known && (self.unread == 0 || (waited && self.unread == failing)) {
            self.announced = true;
            self.setup.feed.services_known();
        }
    }

    fn timer(&self) -> Instant {
        let now = Instant::now();
        let mut at = now + Duration::from_secs(3600);
        let mut sooner = |other: Instant| at = at.min(other);
        if let Some((retry, _)) = self.retries.first() {
            sooner(*retry);
        }
        if let Some((until, _)) = self.waiting.first() {
            sooner(self.paced.filter(|at| *at > now).unwrap_or(*until));
        }
        if let Some(since) = self.batch_since {
            sooner(since + ROUND);
        }
        if let Some(at) = self.lists_lag(now) {
            sooner(at);
        }
        if self.hold.waits() {
            sooner(now + Duration::from_millis(500));
        }
        if !self.announced && self.started.is_some() {
            sooner(now + Duration::from_millis(250));
        }
        if self.is_idle() {
            let audit = self.audit.due(now).filter(|_| self.may_audit());
            for at in [self.audit.settles(self.setup.poll), audit].into_iter().flatten() {
                sooner(at.max(now + Duration::from_millis(1)));
            }
        }
        at
    }

    /// A watch goes on when what it told of is read, so that a burst costs one list and not many.
    fn wait(&mut self, go: oneshot::Sender<()>, doubtful: bool) {
        if doubtful {
            // What is left out now may be there again without any change that ends a blocking query.
            let _ = go.send(());
            return;
        }
        self.waiting.push((Instant::now() + LIST_PAUSE, go));
    }

    fn on_names(&mut self, seen: Result<Seen<Names>, Failure>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                self.names_well = false;
                self.trouble(&failure.error);
                self.setup.sources.names.failed(&failure.error);
                if self.setup.datacenter.is_some() && failure.error.is_unknown_datacenter() {
                    let warning = "the Consul servers here know no way to it: is its name in registry.consul.datacenters \
                                   right, and are the datacenters joined over WAN?";
                    self.setup.sources.names.warn(Some(warning.to_owned()));
                }
                return;
            }
        };
        self.names_well = true;
        self.names_index = seen.index;
        self.overtaking.listed(Instant::now(), seen.index);
        self.setup.sources.names.good(seen.index);
        let names = seen.value.unwrap_or_default();
        if let Some(name) = &names.unaskable
            && self.names.as_ref().is_none_or(|old| old.unaskable.as_ref() != Some(name))
        {
            tracing::warn!(
                "registry: the service {name:?} has route tags, but Consul cannot be asked about a service of that name; \
                 its routes are not served. Rename it"
            );
        }
        let doubt = self.names_doubt.look(names.consul, names.tagged.len(), seen.filtered);
        self.on_doubt();
        let trusted = self.is_trusted(seen.step, seen.after_failures) && !doubt;
        if self.names.is_none() {
            // Kept on disk, and not among the names: asking tells.
            let gone = self.known.keys().filter(|name| !names.tagged.contains_key(*name));
            for name in gone.cloned().collect::<Vec<_>>() {
                self.mark_known(&name, false);
            }
        }
        let old = self.names.take().unwrap_or_default();
        for name in lists::changed(&old.tagged, &names.tagged) {
            if names.tagged.contains_key(name) {
                self.mark(name, trusted);
            } else if self.checks_index >= seen.index && self.has_no_checks(name) {
                self.forget(name, trusted);
            } else {
                // It may be back already: reading it decides.
                self.mark_known(name, trusted);
                if let Some(known) = self.known.get_mut(name) {
                    known.gone = trusted;
                }
            }
        }
        self.names = Some(names);
        let now = Instant::now();
        self.started.get_or_insert(now);
        match seen.step {
            // Only if the query was waiting is one move surely one change.
            Step::Moved => self.audit.names_moved(now, seen.index, seen.waited < WAITED),
            Step::Missing => self.audit.want_later(now),
            Step::Reset => self.audit.want(),
            Step::First | Step::Same => {}
        }
        if seen.after_failures > 0 {
            self.audit.want();
        }
    }

    fn on_checks(&mut self, seen: Result<Seen<Checks>, Failure>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                self.checks_well = false;
                self.trouble(&failure.error);
                self.setup.sources.checks.failed(&failure.error);
                return;
            }
        };
        self.checks_well = true;
        self.setup.sources.checks.good(seen.index);
        let checks = seen.value.unwrap_or_default();
        let doubt = self.checks_doubt.look(checks.serf, checks.services.len(), seen.filtered);
        self.on_doubt();
        let trusted = self.is_trusted(seen.step, seen.after_failures) && !doubt;
        if let Some(old) = self.checks.take() {
            let mut any = false;
            for name in lists::changed(&old.services, &checks.services) {
                any = true;
                self.mark_known(name, trusted);
            }
            let nodes: HashSet<&Name> = lists::changed(&old.nodes, &checks.nodes).collect();
            if !nodes.is_empty() {
                any = true;
                let there = self.known.iter().filter(|(_, k)| k.nodes.iter().any(|n| nodes.contains(n)));
                let there: Vec<Name> = there.map(|(name, _)| name.clone()).collect();
                for name in there {
                    self.mark_known(&name, trusted);
                }
            }
            if any {
                self.audit.checks_changed(seen.index);
            }
        }
        // This list may be newer than the names.
        for name in &checks.tagged {
            if !self.known.contains_key(name) && self.names.is_some() {
                self.mark(name, trusted);
            }
        }
        self.checks = Some(checks);
        self.checks_index = seen.index;
        self.overtaking.listed(Instant::now(), seen.index);
        // What was read between two states that are equal is in neither list.
        for (name, index) in std::mem::take(&mut self.ahead) {
            if seen.index != index {
                self.mark_known(&name, trusted);
            }
        }
    }

    /// A loss that such an answer shows is one that really happened just now.
    fn is_trusted(&mut self, step: Step, after_failures: u32) -> bool {
        if step == Step::Reset {
            self.hold.suspect();
            for known in self.known.values_mut() {
                known.index = 0;
            }
        }
        after_failures == 0 && matches!(step, Step::Moved | Step::Same | Step::Missing)
    }

    fn trouble(&mut self, error: &Error) {
        // Without an answer it may be the agent that is away.
        if let (Some(datacenter), Error::Status { .. }) = (&self.setup.datacenter, error)
            && !self.announced
            && self.setup.feed.late()
        {
            tracing::warn!("registry: no answer about the datacenter {} yet, going on without", datacenter.name);
        }
        if !matches!(error, Error::Setup(_) | Error::Invalid(_)) {
            self.hold.suspect();
        }
    }

    /// The list of checks says that this service is no more, and it has what is always in it.
    fn has_no_checks(&self, name: &Name) -> bool {
        let sound = |checks: &Checks| checks.serf && !self.checks_doubt.is_active();
        self.checks.as_ref().is_some_and(|checks| sound(checks) && !checks.services.contains_key(name))
    }

    fn is_doubtful(&self) -> bool {
        self.names_doubt.is_active() || self.checks_doubt.is_active()
    }

    fn on_doubt(&mut self) {
        let doubtful = self.is_doubtful();
        if doubtful {
            self.hold.suspect();
        }
        let warning = "Consul suddenly leaves out what was always there; probably the ACL token lost a permission \
                       (node_prefix and service_prefix need read). Keeping the last known routes";
        self.setup.sources.names.warn(doubtful.then(|| warning.to_owned()));
    }

    fn put(&mut self, name: &Name, value: Option<Arc<[Instance]>>) {
        if let Some(value) = value {
            self.batch.insert(name.clone(), value);
            self.batch_since.get_or_insert_with(Instant::now);
        }
    }

    /// What changed together is published together, so that nobody sees a change before one that was made earlier. But one
    /// slow read does not hold up all others for long.
    fn publish(&mut self, now: Instant) {
        let done = self.reading == 0 && self.queue.is_empty() && self.lists_lag(now).is_none();
        if self.batch_since.is_some_and(|since| done || now.duration_since(since) >= ROUND) {
            self.batch_since = None;
            self.overtaking = Overtaking::default();
            self.setup.feed.services(std::mem::take(&mut self.batch));
        } else if done {
            self.overtaking = Overtaking::default();
        }
    }

    /// Until when the lists are waited for, because a service was read newer than both: what was written before it, and
    /// is of other services, may be in the lists only.
    fn lists_lag(&self, now: Instant) -> Option<Instant> {
        if self.batch.is_empty() || !self.setup.poll.is_zero() || !self.names_well || !self.checks_well {
            return None;
        }
        self.overtaking.until(now, self.names_index, self.checks_index)
    }

    /// A service with route tags has to be read.
    fn mark(&mut self, name: &Name, trusted: bool) {
        if !self.known.contains_key(name) {
            self.generation += 1;
            self.known.insert(name.clone(), Known { trusted: true, generation: self.generation, ..Known::default() });
            self.unread += 1;
        }
        self.mark_known(name, trusted);
    }

    /// Something changed: it is read now, even if the last read failed and its retry is still to come.
    fn mark_known(&mut self, name: &Name, trusted: bool) {
        if let Some(known) = self.known.get_mut(name) {
            known.trusted &= trusted;
            known.confirm = self.setup.client.config().consistency == Consistency::Stale;
            self.enqueue(name);
        }
    }

    fn enqueue(&mut self, name: &Name) {
        let Some(known) = self.known.get_mut(name) else { return };
        if known.reading {
            known.again = true;
        } else if !known.queued {
            known.queued = true;
            self.queue.push_back(name.clone());
        }
    }

    /// The service has no instance with a route tag any more.
    fn forget(&mut self, name: &Name, trusted: bool) {
        if let Some(known) = self.known.remove(name) {
            self.unread -= usize::from(!known.read);
            if self.blank.remove(name) && self.blank.is_empty() {
                self.setup.sources.reads.warn(None);
            }
            let value =
                if trusted { self.hold.gone(name) } else { self.hold.offer(Instant::now(), name, Vec::new(), false) };
            self.put(name, value);
        }
    }

    fn start_reads(&mut self) {
        if self.checks.is_none() {
            // What is read now could be older than that list, and a change between the two would be lost.
            return;
        }
        // One is fabio's default and too few; many at once are for the first load and the like.
        let limit = self.setup.monitors.max(if self.queue.len() > 64 { 16 } else { 4 }).min(MOST_READS);
        while self.reading < limit {
            let Some(name) = self.queue.pop_front() else { return };
            let Some(known) = self.known.get_mut(&name) else { continue };
            known.queued = false;
            known.reading = true;
            known.begun = Some(Instant::now());
            self.reading += 1;
            let (client, generation) = (self.setup.client.clone(), known.generation);
            self.running.spawn(async move {
                let answer = life::caught(client.service(&name)).await;
                Done::Read(name, generation, answer.unwrap_or_else(|_| Err(broken())))
            });
        }
    }

    fn on_read(&mut self, name: &Name, generation: u64, answer: Result<Answer<Vec<Entry>>, Error>) {
        self.reading -= 1;
        let gone = self.has_no_checks(name);
        let Some(known) = self.known.get_mut(name).filter(|k| k.generation == generation) else { return };
        known.reading = false;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                known.failures += 1;
                known.again = false;
                let pause = Duration::from_millis(1000 + fastrand::u64(0..if known.failures > 2 { 500 } else { 200 }));
                if !std::mem::replace(&mut known.retrying, true) {
                    self.retries.insert((Instant::now() + pause, name.clone()));
                }
                self.setup.sources.reads.failed(&format_args!("service {name}: {error}"));
                return;
            }
        };
        self.setup.sources.reads.good(answer.index);
        self.unread -= usize::from(!std::mem::replace(&mut known.read, true));
        known.failures = 0;
        known.retrying = false;
        known.index = answer.index;
        self.audit.service_read(answer.index);
        self.overtaking.read(Instant::now(), answer.index, self.names_index, self.checks_index);
        if answer.index > self.checks_index {
            self.ahead.insert(name.clone(), answer.index);
        }
        let entries = answer.value.unwrap_or_default();
        known.blank = if entries.is_empty() { known.blank + 1 } else { 0 };
        known.gone &= known.blank > 0;
        let listed = self.names.as_ref().is_some_and(|names| names.tagged.contains_key(name));
        if known.blank > 0 && !listed {
            let trusted = known.trusted || known.gone;
            self.forget(name, trusted);
            return;
        }
        if known.blank > 0 && !gone && self.hold.has(name) {
            // If it is gone, the names say so in a moment. If they do not, the token may not see its nodes.
            let pause = Duration::from_secs(if known.blank > 5 { 10 } else { 1 });
            let suspicious = known.blank > 1;
            if !std::mem::replace(&mut known.retrying, true) {
                self.retries.insert((Instant::now() + pause, name.clone()));
            }
            self.blank.insert(name.clone());
            if suspicious {
                let warning = format!(
                    "service {name} is in Consul's list of services, but none of its instances can be seen; probably the \
                     ACL token lacks node_prefix or service_prefix read. Keeping its last known routes"
                );
                self.setup.sources.reads.warn(Some(warning));
            }
            return;
        }
        if self.blank.remove(name) && self.blank.is_empty() {
            self.setup.sources.reads.warn(None);
        }
        let trusted = std::mem::replace(&mut known.trusted, true);
        let read = Instances::of(name, &entries, &self.setup.prefix, &self.setup.rules, self.setup.datacenter.as_ref());
        if known.shape != read.shape {
            known.seen = None;
        }
        known.shape = read.shape;
        known.nodes = read.nodes;
        if std::mem::take(&mut known.again) {
            self.enqueue(name);
        } else if std::mem::take(&mut known.confirm) && !known.retrying {
            known.retrying = true;
            self.retries.insert((Instant::now() + Duration::from_secs(1), name.clone()));
        }
        let value = self.hold.offer(Instant::now(), name, read.accepted, trusted);
        self.put(name, value);
    }

    /// With few services, all of them are read when the names move, in the same round as those that are known to have
    /// changed. The watches are paced then, so that this does not happen all the time.
    fn look_at_all(&mut self, index: u64) {
        if self.known.len() > FEW {
            return;
        }
        let Some(since) = self.audit.hasten() else { return };
        self.audit.begin();
        self.read_older_than(Some(since), index);
        let now = Instant::now();
        let share = self.all_reads();
        self.audit.spend(now, share);
        // Audits of other kinds may have left a debt; that is not to hold up the lists.
        self.paced = self.audit.allowed().map(|at| at.min(now + share));
    }

    /// The share of time that reading all services takes up, if they are few.
    fn all_reads(&self) -> Duration {
        ONE_READ * u32::try_from(self.known.len()).unwrap_or(u32::MAX)
    }

    /// Looks for an address or a port that changed alone.
    fn look_for_hidden(&mut self, now: Instant) {
        if !self.is_idle() {
            return;
        }
        self.audit.judge(now, self.setup.poll);
        if !self.may_audit() || self.audit.due(now).is_none_or(|at| at > now) {
            return;
        }
        let since = self.audit.begin();
        let few = self.known.len() <= FEW;
        if few || self.no_nodes.is_some_and(|at| now.duration_since(at) < REFUSED) {
            self.audit.spend(now, if few { self.all_reads() } else { MANY_READS });
            self.read_older_than(since, u64::MAX);
            return;
        }
        self.auditing = true;
        let client = self.setup.client.clone();
        let read = async move {
            let answer = life::caught(client.get(Keys::NODES, "", Read::default(), lists::shapes)).await;
            Done::Audit(answer.unwrap_or_else(|_| Err(broken())))
        };
        self.running.spawn(read);
    }

    /// Reads all services again but those whose last read began after this, or is at least as new as this index.
    fn read_older_than(&mut self, since: Option<Instant>, index: u64) {
        let trusted = self.hold.is_trusting();
        // Those that failed have their own time.
        let old = self.known.iter().filter(|(_, k)| {
            k.index < index && (since.is_none() || k.begun < since) && !(k.retrying && k.failures > 0)
        });
        for name in old.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.mark_known(&name, trusted);
        }
    }

    fn may_audit(&self) -> bool {
        self.announced && !self.known.is_empty()
    }

    fn on_audit(&mut self, answer: Result<Answer<Prints>, Error>) {
        self.auditing = false;
        let now = Instant::now();
        let prints = match answer {
            Ok(answer) => {
                // It is the longest answer of all: a tenth of the time for it at most.
                self.audit.spend(now, answer.took * 10);
                answer.value.unwrap_or_default()
            }
            Err(Error::Status { status: 400..500, .. }) => {
                self.no_nodes = Some(now);
                self.audit.want();
                return;
            }
            Err(error) => {
                self.audit.failed(now, Duration::from_secs(1));
                self.setup.sources.reads.failed(&error);
                return;
            }
        };
        let trusted = self.hold.is_trusting();
        let mut differing = Vec::new();
        for (name, known) in &mut self.known {
            let print = prints.get(name).copied().unwrap_or(0);
            if print != known.shape && known.seen != Some(print) {
                known.seen = Some(print);
                differing.push(name.clone());
            }
        }
        for name in differing {
            self.mark_known(&name, trusted);
        }
    }
}

async fn watch_names(mut watch: Watch, prefix: Arc<str>, events: mpsc::Sender<Event>) {
    loop {
        let prefix = prefix.clone();
        let seen = watch.next(move |bytes| Names::read(bytes, &prefix)).await;
        let cost = seen.as_ref().map_or(Duration::ZERO, |s| s.decoding);
        let (go, gone) = oneshot::channel();
        if events.send(Event::Names(seen, go)).await.is_err() {
            return;
        }
        rest(&mut watch, gone, cost).await;
    }
}

async fn watch_checks(mut watch: Watch, prefix: Arc<str>, events: mpsc::Sender<Event>) {
    loop {
        let prefix = prefix.clone();
        let seen = watch.next(move |bytes| Checks::read(bytes, &prefix)).await;
        let cost = seen.as_ref().map_or(Duration::ZERO, |s| s.decoding);
        let (go, gone) = oneshot::channel();
        if events.send(Event::Checks(seen, go)).await.is_err() {
            return;
        }
        rest(&mut watch, gone, cost).await;
    }
}

/// Until the reads are done; and a list that is long to decode is not asked for all the time.
async fn rest(watch: &mut Watch, gone: oneshot::Receiver<()>, cost: Duration) {
    let started = Instant::now();
    // Dropped when it may go on, sent when the answer was not believed.
    if gone.await.is_ok() {
        watch.disbelieve();
    }
    if cost > Duration::from_millis(5) {
        tokio::time::sleep((cost * 3).min(Duration::from_secs(1)).saturating_sub(started.elapsed())).await;
    }
}

/// For a read that has panicked.
fn broken() -> Error {
    Error::Answer("reading it failed by a fault of ferrio".to_owned())
}

/// Before a watch that has panicked begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// A list that nothing happens to is repeated this often.
const WAIT: Duration = Duration::from_secs(30);

/// The longest that a list waits for the reads it caused.
const LIST_PAUSE: Duration = Duration::from_millis(250);

/// The longest that a change waits for others of the same round.
const ROUND: Duration = Duration::from_millis(800);

/// Below Consul's limit of 200 connections per client, with room for others on this machine.
const MOST_READS: usize = 100;

/// A query that was answered faster than this may have been late.
const WAITED: Duration = Duration::from_millis(50);

/// The share of time for each of the services, if they are few and all are read: a hundred reads a second in the long run.
const ONE_READ: Duration = Duration::from_millis(10);

/// The share of time for reading all services, if they are many.
const MANY_READS: Duration = Duration::from_secs(10);

/// That many services are simply read again.
const FEW: usize = 16;

/// After that time the list of nodes is tried again.
const REFUSED: Duration = Duration::from_secs(600);

/// How long the first table waits for services that cannot be read.
const FIRST_READS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
