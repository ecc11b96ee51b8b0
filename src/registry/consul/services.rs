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
use tokio::task::JoinSet;

use super::health::Rules;
use super::hold::Hold;
use super::lists::{self, Checks, Names, Prints};
use crate::consul::{Answer, Client, Consistency, Entry, Error, Failure, Keys, Mode, Read, Seen, Step, Watch};
use crate::registry::publish::Feed;
use crate::registry::status::Source;
use crate::route::Instance;

type Name = Arc<str>;

pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) rules: Rules,
    pub(super) prefix: Arc<str>,
    /// Reads under way at once.
    pub(super) monitors: usize,
    /// 0: blocking queries.
    pub(super) poll: Duration,
    pub(super) feed: Feed,
    pub(super) sources: Sources,
}

/// What is reported on its own.
pub(super) struct Sources {
    pub(super) names: Source,
    pub(super) checks: Source,
    pub(super) reads: Source,
}

pub(super) struct Services {
    setup: Setup,
    names: Option<Names>,
    checks: Option<Checks>,
    /// Every service with a route tag.
    known: HashMap<Name, Known>,
    generation: u64,
    /// To be read, in order.
    queue: VecDeque<Name>,
    retries: BTreeSet<(Instant, Name)>,
    running: JoinSet<Done>,
    reading: usize,
    hold: Hold,
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
    doubt: Doubt,
    audit: Audit,
    /// Watches that wait until what they reported is read.
    waiting: Vec<(Instant, oneshot::Sender<()>)>,
    /// Changes to be published together, and since when they wait.
    batch: Vec<(Name, Arc<[Instance]>)>,
    batch_since: Option<Instant>,
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
    /// It was read at least once.
    read: bool,
    failures: u32,
    /// Answers in a row without any instance although the names list the service.
    blank: u32,
}

/// Signs that Consul leaves out what the token may not see. Each tells of a list that suddenly lacks what is always there.
#[derive(Default)]
struct Doubt {
    names: bool,
    checks: bool,
    /// `X-Consul-Results-Filtered-By-ACLs` as it was in good times.
    names_filtered: Option<bool>,
    checks_filtered: Option<bool>,
}

impl Audit {
    /// Takes a share of time.
    fn spend(&mut self, now: Instant, time: Duration) {
        self.free = Some(self.free.map_or(now, |at| at.max(now)) + time);
    }
}

impl Doubt {
    fn any(&self) -> bool {
        self.names || self.checks
    }
}

/// The search for changes that no list shows.
#[derive(Default)]
struct Audit {
    /// Indexes of moves of the names that nothing explained yet, and when the last came.
    moves: Vec<u64>,
    moved: Option<Instant>,
    /// A move was not explained.
    wanted: bool,
    /// A move was explained, but may have hidden another one.
    later: Option<Instant>,
    running: bool,
    /// Until when the share of time for audits is used up. A few in a row are allowed before that.
    free: Option<Instant>,
    /// Indexes of the latest reads, and of the last list of checks with a change.
    reads: VecDeque<u64>,
    checks: u64,
    /// When the list of nodes was refused: all services are read instead.
    refused: Option<Instant>,
}

enum Event {
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
            known: HashMap::new(),
            generation: 0,
            queue: VecDeque::new(),
            retries: BTreeSet::new(),
            running: JoinSet::new(),
            reading: 0,
            hold: Hold::default(),
            batch: Vec::new(),
            batch_since: None,
            names_well: false,
            checks_well: false,
            unread: 0,
            blank: HashSet::new(),
            started: None,
            announced: false,
            doubt: Doubt::default(),
            audit: Audit::default(),
            waiting: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let (events, mut inbox) = mpsc::channel(2);
        // They end with this task: nobody receives any more.
        let mut watches = JoinSet::new();
        watches.spawn(watch_names(self.watch(Keys::SERVICES), self.setup.prefix.clone(), events.clone()));
        watches.spawn(watch_checks(self.watch(Keys::CHECKS), events));
        loop {
            self.settle();
            let timer = self.timer();
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(Event::Names(seen, go)) => {
                        self.on_names(seen);
                        self.wait(go, self.doubt.names);
                    }
                    Some(Event::Checks(seen, go)) => {
                        self.on_checks(seen);
                        self.wait(go, self.doubt.checks);
                    }
                    None => return,
                },
                Some(done) = self.running.join_next(), if !self.running.is_empty() => match done {
                    Ok(Done::Read(name, generation, answer)) => self.on_read(name, generation, answer),
                    Ok(Done::Audit(answer)) => self.on_audit(answer),
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(timer.into()) => {}
            }
        }
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
            if let Some(known) = self.known.get_mut(&name) {
                known.retrying = false;
                self.enqueue(&name);
            }
        }
        self.look_for_hidden(now);
        self.start_reads();
        let idle = self.is_idle();
        self.waiting.retain(|(until, _)| !idle && *until > now);
        let complete = self.names_well && self.checks_well && idle;
        let changed = self.hold.judge(now, complete, self.doubt.any());
        self.batch(changed);
        // What changed together is published together, but one slow read does not hold up all others for long.
        let round = self.reading == 0 && self.queue.is_empty();
        if self.batch_since.is_some_and(|since| round || now.duration_since(since) >= ROUND) {
            self.batch_since = None;
            self.setup.feed.services(std::mem::take(&mut self.batch));
        }
        self.announce(now);
    }

    fn batch(&mut self, changes: impl IntoIterator<Item = (Name, Arc<[Instance]>)>) {
        for change in changes {
            self.batch_since.get_or_insert_with(Instant::now);
            self.batch.push(change);
        }
    }

    /// Nothing is to be read but what failed.
    fn is_idle(&self) -> bool {
        self.reading == 0 && self.queue.is_empty() && !self.audit.running
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
            self.setup.feed.services(std::mem::take(&mut self.batch));
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
            sooner(*until);
        }
        if let Some(since) = self.batch_since {
            sooner(since + ROUND);
        }
        if self.hold.waits() {
            sooner(now + Duration::from_millis(500));
        }
        if !self.announced && self.started.is_some() {
            sooner(now + Duration::from_millis(250));
        }
        if let Some(audit) = self.next_audit(now) {
            sooner(audit.max(now + Duration::from_millis(1)));
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
                return;
            }
        };
        self.names_well = true;
        self.setup.sources.names.good(seen.index);
        let names = seen.value.unwrap_or_default();
        let lacks = self.names.as_ref().is_some_and(|old| old.consul) && !names.consul;
        let doubt = is_doubtful(self.doubt.names, lacks, &mut self.doubt.names_filtered, seen.filtered, || {
            self.names.as_ref().is_some_and(|old| names.tagged.len() * 2 < old.tagged.len())
        });
        self.set_doubt(doubt, self.doubt.checks);
        let trusted = Self::is_trusted(seen.step, seen.after_failures) && !doubt;
        let old = self.names.take().unwrap_or_default();
        for name in lists::changed(&old.tagged, &names.tagged) {
            if names.tagged.contains_key(name) {
                self.mark(name, trusted);
            } else {
                self.forget(name, trusted);
            }
        }
        // What is always there counts as seen once and for all.
        self.names = Some(Names { consul: names.consul || old.consul, ..names });
        self.started.get_or_insert_with(Instant::now);
        match seen.step {
            Step::Moved => {
                self.audit.moves.push(seen.index);
                self.audit.moved = Some(Instant::now());
            }
            Step::Missing => self.audit.later = self.audit.later.or(Some(Instant::now() + LATER)),
            Step::Reset => self.audit.wanted = true,
            Step::First | Step::Same => {}
        }
        self.audit.wanted |= seen.after_failures > 0 || self.audit.moves.len() > 16;
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
        let lacks = self.checks.as_ref().is_some_and(|old| old.serf) && !checks.serf;
        let doubt = is_doubtful(self.doubt.checks, lacks, &mut self.doubt.checks_filtered, seen.filtered, || {
            self.checks.as_ref().is_some_and(|old| checks.services.len() * 2 < old.services.len())
        });
        self.set_doubt(self.doubt.names, doubt);
        let trusted = Self::is_trusted(seen.step, seen.after_failures) && !doubt;
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
                self.audit.checks = seen.index;
            }
            self.checks = Some(Checks { serf: checks.serf || old.serf, ..checks });
        } else {
            self.checks = Some(checks);
        }
    }

    /// A loss that such an answer shows is one that really happened just now.
    fn is_trusted(step: Step, after_failures: u32) -> bool {
        after_failures == 0 && matches!(step, Step::Moved | Step::Same | Step::Missing)
    }

    fn trouble(&mut self, error: &Error) {
        if !matches!(error, Error::Setup(_) | Error::Invalid(_)) {
            self.hold.suspect();
        }
    }

    fn set_doubt(&mut self, names: bool, checks: bool) {
        let before = self.doubt.any();
        (self.doubt.names, self.doubt.checks) = (names, checks);
        if self.doubt.any() != before {
            if self.doubt.any() {
                self.hold.suspect();
            }
            let warning = "Consul suddenly leaves out what was always there; probably the ACL token lost a permission \
                           (node_prefix and service_prefix need read). Keeping the last known routes";
            self.setup.sources.names.warn(self.doubt.any().then(|| warning.to_owned()));
        }
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
        } else if !known.queued && (!known.retrying || known.failures == 0) {
            // One that failed waits for its retry, whatever else happens.
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
            self.batch(value.map(|v| (name.clone(), v)));
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
            self.reading += 1;
            let (client, generation) = (self.setup.client.clone(), known.generation);
            self.running.spawn(async move {
                let answer = client.service(&name).await;
                Done::Read(name, generation, answer)
            });
        }
    }

    fn on_read(&mut self, name: Name, generation: u64, answer: Result<Answer<Vec<Entry>>, Error>) {
        self.reading -= 1;
        let Some(known) = self.known.get_mut(&name).filter(|k| k.generation == generation) else { return };
        known.reading = false;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                known.failures += 1;
                known.again = false;
                let pause = Duration::from_millis(1000 + fastrand::u64(0..if known.failures > 2 { 1000 } else { 200 }));
                known.retrying = true;
                self.retries.insert((Instant::now() + pause, name.clone()));
                self.setup.sources.reads.failed(&format_args!("service {name}: {error}"));
                return;
            }
        };
        self.setup.sources.reads.good(answer.index);
        self.unread -= usize::from(!std::mem::replace(&mut known.read, true));
        known.failures = 0;
        let entries = answer.value.unwrap_or_default();
        known.blank = if entries.is_empty() { known.blank + 1 } else { 0 };
        if known.blank > 0 && self.hold.has(&name) {
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
        if self.blank.remove(&name) && self.blank.is_empty() {
            self.setup.sources.reads.warn(None);
        }
        let trusted = std::mem::replace(&mut known.trusted, true);
        let read = Instances::of(&name, &entries, &self.setup.prefix, &self.setup.rules);
        if known.shape != read.shape {
            known.seen = None;
        }
        known.shape = read.shape;
        known.nodes = read.nodes;
        if std::mem::take(&mut known.again) {
            self.enqueue(&name);
        } else if std::mem::take(&mut known.confirm) && !known.retrying {
            known.retrying = true;
            self.retries.insert((Instant::now() + Duration::from_secs(1), name.clone()));
        }
        self.audit.reads.push_back(answer.index);
        if self.audit.reads.len() > 64 {
            self.audit.reads.pop_front();
        }
        let value = self.hold.offer(Instant::now(), &name, read.accepted, trusted);
        self.batch(value.map(|v| (name, v)));
    }

    /// Moves of the names that nothing else explains mean that an address or a port changed somewhere.
    fn look_for_hidden(&mut self, now: Instant) {
        let settled = self.audit.moved.is_some_and(|at| now.duration_since(at) >= SETTLED + self.setup.poll);
        if settled && self.reading == 0 && self.queue.is_empty() {
            let audit = &mut self.audit;
            audit.moved = None;
            let unexplained =
                self.known.len() <= FEW || audit.moves.iter().any(|i| *i != audit.checks && !audit.reads.contains(i));
            audit.moves.clear();
            if unexplained {
                audit.wanted = true;
            } else {
                audit.later.get_or_insert(now + LATER);
            }
        }
        if self.next_audit(now).is_none_or(|at| at > now) {
            return;
        }
        self.audit.wanted = false;
        self.audit.later = None;
        let refused = self.audit.refused.is_some_and(|at| now.duration_since(at) < REFUSED);
        if self.known.len() <= FEW || refused {
            let trusted = self.hold.is_trusting();
            let spacing = if self.known.len() <= FEW { 1 } else { 10 };
            self.audit.spend(now, Duration::from_secs(spacing));
            for name in self.known.keys().cloned().collect::<Vec<_>>() {
                self.mark_known(&name, trusted);
            }
            return;
        }
        self.audit.running = true;
        let client = self.setup.client.clone();
        self.running
            .spawn(async move { Done::Audit(client.get(Keys::NODES, "", Read::default(), lists::shapes).await) });
    }

    fn next_audit(&self, now: Instant) -> Option<Instant> {
        let audit = &self.audit;
        if audit.running || self.known.is_empty() || !self.announced {
            return None;
        }
        let due = if audit.wanted {
            Some(now)
        } else {
            let settled = audit.moved.map(|at| at + SETTLED + self.setup.poll).filter(|_| self.is_idle());
            [settled, audit.later].into_iter().flatten().min()
        };
        let allowed = audit.free.and_then(|at| at.checked_sub(IN_A_ROW)).unwrap_or(now);
        due.map(|at| if audit.wanted { at.max(allowed) } else { at })
    }

    fn on_audit(&mut self, answer: Result<Answer<Prints>, Error>) {
        self.audit.running = false;
        let now = Instant::now();
        let prints = match answer {
            Ok(answer) => {
                // It is the longest answer of all: a tenth of the time for it at most.
                self.audit.spend(now, (answer.took * 10).clamp(Duration::from_secs(1), LATER));
                answer.value.unwrap_or_default()
            }
            Err(Error::Status { status: 400..500, .. }) => {
                self.audit.refused = Some(now);
                self.audit.wanted = true;
                return;
            }
            Err(error) => {
                self.audit.free = Some(now + IN_A_ROW + Duration::from_secs(1));
                self.audit.wanted = true;
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

/// What one answer says about a service.
struct Instances {
    /// Those that may have traffic, by id.
    accepted: Vec<Instance>,
    shape: u64,
    nodes: HashSet<Name>,
}

impl Instances {
    fn of(name: &Name, entries: &[Entry], prefix: &str, rules: &Rules) -> Self {
        let mut read = Self { accepted: Vec::new(), shape: 0, nodes: HashSet::new() };
        for Entry { node, service, checks } in entries {
            // Consul finds names whatever their case.
            if service.name != **name || !lists::is_ordinary(&service.kind) {
                continue;
            }
            let address = if service.address.is_empty() { &node.address } else { &service.address };
            let tags = service.tags.iter().map(String::as_str);
            read.shape = read.shape.wrapping_add(lists::shape(&node.name, &service.id, address, service.port, tags));
            if !read.nodes.contains(node.name.as_str()) {
                read.nodes.insert(node.name.as_str().into());
            }
            let routed = service.tags.iter().any(|tag| lists::is_route(tag, prefix));
            if routed && rules.accept(&service.id, checks) {
                read.accepted.push(Instance {
                    service: name.clone(),
                    id: format!("{}/{}", node.name, service.id).into(),
                    address: address.clone(),
                    port: u16::try_from(service.port).unwrap_or(0),
                    tags: service.tags.clone(),
                });
            }
        }
        read.accepted.sort_by(|a, b| a.id.cmp(&b.id));
        read.accepted.dedup_by(|a, b| a.id == b.id);
        read
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

async fn watch_checks(mut watch: Watch, events: mpsc::Sender<Event>) {
    loop {
        let seen = watch.next(Checks::read).await;
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

/// Whether an answer gives reason to believe that it leaves things out. `before`: whether the last one did. `lacks`:
/// something that is always there is not. `most_gone` is asked when Consul's own word about filtering changed.
fn is_doubtful(
    before: bool,
    lacks: bool,
    usual: &mut Option<bool>,
    filtered: bool,
    most_gone: impl Fn() -> bool,
) -> bool {
    if lacks {
        return true;
    }
    match *usual {
        Some(false) if filtered && (before || most_gone()) => true,
        _ => {
            *usual = Some(filtered);
            false
        }
    }
}

/// A list that nothing happens to is repeated this often.
const WAIT: Duration = Duration::from_secs(30);

/// The longest that a change waits for other reads of its round.
const ROUND: Duration = Duration::from_millis(500);
/// The longest that a list waits for the reads it caused.
const LIST_PAUSE: Duration = Duration::from_millis(250);

/// Below Consul's limit of 200 connections per client, with room for others on this machine.
const MOST_READS: usize = 100;

/// The two lists tell of one change at about the same time.
const SETTLED: Duration = Duration::from_millis(25);

/// How much of the time for audits may be used in advance.
const IN_A_ROW: Duration = Duration::from_secs(10);

/// That many services are simply read again.
const FEW: usize = 8;

/// Changes that came in one moment can hide each other; this finds them.
const LATER: Duration = Duration::from_secs(30);

/// After that time the list of nodes is tried again.
const REFUSED: Duration = Duration::from_secs(600);

/// How long the first table waits for services that cannot be read.
const FIRST_READS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
