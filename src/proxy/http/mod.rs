//! The phases of an HTTP request, top to bottom.
//!
//! What a request means is written here once, against the types of the `http` crate; which codec reads and writes it is
//! below.

mod access;
mod answer;
mod body;
mod choice;
pub(crate) mod choose;
mod compress;
mod cookies;
mod explain;
mod facts;
mod forward;
mod grpc;
mod h2;
mod headers;
mod limits;
mod mirror;
mod packed;
mod record;
mod request;
mod serve;
mod traced;
mod tunnel;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response};

use self::answer::Refusal;
use self::body::Body;
use self::choice::Choice;
pub use self::compress::{Coding, Compression};
pub use self::explain::Explainer;
use self::facts::Facts;
pub use self::facts::Observers;
pub use self::headers::ClientHeaders;
use self::record::Record;
use self::request::Asked;
pub use self::serve::{Challenge, Listener, Misdirected, serve};
use crate::auth::{self, Auth};
use crate::http1::{Present, give_map};
use crate::life::{Flag, Phase, Watch};
use crate::metrics::{Metrics, OpenWebSocket, Shard};
use crate::net::{Peer, Supplies};
use crate::proxy::Config;
use crate::route::{LiveTable, Options, Redirect, Route, Snapshot, Table, Target, path};
use crate::upstream::{self, Inbound, Pools, RouteState, TargetState, Upgraded};

/// What all requests of one worker share. Never leaves its thread.
pub struct Worker {
    live: Arc<LiveTable>,
    config: Config,
    rules: headers::Rules,
    auth: Arc<Auth>,
    pools: Pools,
    metrics: Metrics,
    shard: Shard,
    supplies: Supplies,
    copies: mirror::Copies,
    /// `None`: neither an access log nor traces.
    observers: Option<Observers>,
    /// Raised with [`Phase::Closing`], for all connections at once; made with the first of them.
    closing: OnceCell<Rc<Flag>>,
    /// Since [`Phase::Replaced`] every answer is the last one of its connection.
    parting: Rc<Cell<bool>>,
}

impl Worker {
    pub fn new(
        live: Arc<LiveTable>,
        config: Config,
        auth: Arc<Auth>,
        pools: Pools,
        metrics: Metrics,
        shard: Shard,
        observers: Option<Observers>,
    ) -> Self {
        let rules = headers::Rules::new(&config);
        Self {
            live,
            config,
            rules,
            auth,
            pools,
            metrics,
            shard,
            supplies: Supplies::default(),
            copies: Default::default(),
            observers,
            closing: OnceCell::new(),
            parting: Rc::default(),
        }
    }

    /// Raised once no other request is to be taken on a connection.
    fn closing(&self, life: &Watch) -> &Rc<Flag> {
        self.closing.get_or_init(|| {
            let (flag, mut life) = (Rc::new(Flag::default()), life.clone());
            let (raised, parting) = (flag.clone(), self.parting.clone());
            tokio::task::spawn_local(async move {
                life.reached(Phase::Replaced).await;
                parting.set(true);
                life.reached(Phase::Closing).await;
                raised.raise();
            });
            flag
        })
    }
}

/// One client connection, as its requests see it.
struct Client {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    peer: Peer,
    /// Requests of one HTTP/2 connection share it.
    told: Rc<headers::Told>,
    /// Set when a target has agreed to change the protocol.
    tunnel: std::cell::RefCell<Option<Tunnel>>,
}

/// What is left of a request once the protocol has changed. Counted and logged when it is dropped.
struct Tunnel {
    upgraded: Upgraded,
    record: Record,
    /// Set for WebSockets.
    open: Option<OpenWebSocket>,
    /// The client said Origin.
    browser: bool,
}

/// What is to be done with a request.
enum Plan {
    Forward(Forward),
    Redirect {
        code: u16,
        location: String,
    },
    /// Only for those whom these schemes let in.
    Guarded {
        schemes: String,
        /// The set of pages for who is not.
        pages: Arc<str>,
        plan: Box<Plan>,
    },
    /// Boxed, for plans are moved about, and most are of another kind.
    Answer(Box<Response<Body>>),
}

impl Plan {
    fn answer(response: Response<Body>) -> Self {
        Self::Answer(Box::new(response))
    }

    /// `timeout` of the target: for everything from here to the end of the response.
    fn total(&self) -> Option<std::time::Duration> {
        match self {
            Plan::Forward(forward) => forward.tries()?.total,
            Plan::Guarded { plan, .. } => plan.total(),
            Plan::Redirect { .. } | Plan::Answer(_) => None,
        }
    }
}

/// A request, where it is looked for, and the table that it is looked for in.
struct Place<'a> {
    snapshot: &'a Snapshot,
    head: &'a Parts,
    host: &'a str,
    cleaned: &'a path::Cleaned<'a>,
    /// Identities of targets that are not wanted again.
    tried: &'a [u128],
    /// Nothing of the request was counted yet.
    first: bool,
}

impl Place<'_> {
    fn refuse(&self, refusal: Refusal, set: &str) -> Plan {
        Plan::answer(answer::with_page(refusal.answer(), &self.snapshot.error_pages, set, &self.head.headers))
    }
}

struct Forward {
    target: Arc<TargetState>,
    /// See [`Target::identity`].
    identity: u128,
    /// Set when something is counted on the route: retries, or requests under way.
    route: Option<Arc<RouteState>>,
    path_and_query: PathAndQuery,
    /// The route has no other target.
    alone: bool,
    /// The schemes of the target, and what they have found out about the client.
    grant: Option<(String, auth::Grant)>,
}

impl Client {
    /// `present`: fields that the request may have.
    async fn handle(&self, request: Request<Inbound>, present: Present) -> Response<Body> {
        let wt = self.listener.write_timeout;
        let deadline = (!wt.is_zero()).then(|| Instant::now() + wt);
        let (observers, rules) = (self.worker.observers.as_ref(), &self.worker.rules);
        let mut facts = observers.map(|observers| Box::new(Facts::new(observers, &self.peer, &request, rules)));
        let response = if self.listener.grpc || grpc::is_call(&request) {
            Box::pin(grpc::handle(self, request, present, deadline, &mut facts)).await
        } else {
            self.respond(request, present, deadline, &mut facts).await
        };
        let Some(mut facts) = facts else { return response };
        facts.special();
        if !facts.wanted() {
            return response;
        }
        let mut record = Record::own(response.status().as_u16(), answer::outcome(&response), self.worker.shard, facts);
        record.fields(response.headers());
        response.map(|body| body.with_record(record))
    }

    /// Takes the facts if the request goes to a target.
    async fn respond(
        &self,
        mut request: Request<Inbound>,
        mut present: Present,
        deadline: Option<Instant>,
        facts: &mut Option<Box<Facts>>,
    ) -> Response<Body> {
        let worker = &*self.worker;
        let host = match request::asked(&mut request, present, worker.config.max_target_size) {
            Ok(Asked::Path(host)) => host,
            Ok(Asked::Options) => return answer::options(),
            Err(refusal) => return self.paged(refusal.answer(), "", request.headers()),
        };
        // Before everything that a route says: the CA follows no rules of ours.
        if let Some(challenge) = &self.listener.challenge
            && let Some(text) = challenge(request.uri().path())
        {
            return answer::challenge(&text);
        }
        let host = if self.listener.grpc { grpc::host(request.headers(), host) } else { host };
        let host = host.to_str().unwrap_or_default();
        if let (Some(misdirected), Some(tls)) = (&self.listener.misdirected, &self.peer.tls)
            && misdirected(tls.server_name.as_deref(), self.peer.local.ip(), host)
        {
            return self.paged(Refusal::Misdirected.answer(), "", request.headers());
        }
        worker.rules.distrust(request.headers_mut(), &self.peer);
        self.listener.client_headers.apply(request.headers_mut(), &self.peer);
        if let Some(name) = &worker.rules.request_id {
            request.headers_mut().insert(name.clone(), request_id());
            present = present.with(Present::named(name.as_str()));
        }
        if let Some(facts) = facts {
            facts.received(request.headers(), present, &worker.rules, &self.peer);
        }
        let (mut head, body) = request.into_parts();
        if let Some(port) = self.listener.redirect
            && !used_scheme(&head.headers, self.peer.tls.is_some()).eq_ignore_ascii_case("https")
        {
            return self.to_tls(&head, host, port);
        }
        let kind = choice::Kind::of(&head, present);
        let Some(plan) = self.plan(&head, host, kind, &[], true) else {
            return self.no_route(&head, host, kind);
        };
        let end = plan.total().map(|total| tokio::time::Instant::now() + total);
        match self.admit(plan, &head, host, None, end).await {
            Ok(Some(forward)) => {
                let asked = forward::Asked { head: &mut head, body, present, host, kind, deadline, end };
                let response = self.forward(asked, forward, facts.take()).await;
                give_map(head.headers);
                response
            }
            Ok(None) => Refusal::Unauthorized.answer(),
            Err(response) => *response,
        }
    }

    /// Asks the schemes of the plan until `end`, unless they have let this request in already. Gives our own answer if
    /// there is one.
    async fn admit(
        &self,
        plan: Plan,
        head: &Parts,
        host: &str,
        granted: Option<&(String, auth::Grant)>,
        end: Option<tokio::time::Instant>,
    ) -> Result<Option<Forward>, Box<Response<Body>>> {
        let worker = &*self.worker;
        let (plan, grant) = match plan {
            Plan::Guarded { schemes, pages, plan } => {
                let grant = match granted {
                    Some(granted) if granted.0 == schemes => granted.clone(),
                    _ => {
                        let asked = auth::Request {
                            method: &head.method,
                            headers: &head.headers,
                            host,
                            path: &path::clean(head.uri.path()).raw,
                            query: head.uri.query(),
                            peer: &self.peer,
                            pools: &worker.pools,
                        };
                        let check = Box::pin(worker.auth.check(&schemes, &asked));
                        let checked = match end {
                            None => Some(check.await),
                            Some(end) => tokio::time::timeout_at(end, check).await.ok(),
                        };
                        let paged = |answer| Box::new(self.paged(answer, &pages, &head.headers));
                        let Some(checked) = checked else {
                            return Err(paged(answer::failed(&upstream::Error::TryTimeout)));
                        };
                        let grant = checked.map_err(|refusal| match refusal {
                            // The words of another service stay its own.
                            refusal @ auth::Refusal::Answer(_) => Box::new(answer::unauthorized(refusal)),
                            refusal => paged(answer::unauthorized(refusal)),
                        })?;
                        (schemes, grant)
                    }
                };
                (*plan, Some(grant))
            }
            plan => (plan, None),
        };
        match plan {
            Plan::Forward(forward) => Ok(Some(Forward { grant, ..forward })),
            Plan::Answer(response) => Err(response),
            Plan::Redirect { code, location } => {
                worker.metrics.http().redirected(worker.shard, code);
                Err(Box::new(answer::redirect(code, &location, &head.method)))
            }
            // Never made twice; closed all the same.
            Plan::Guarded { .. } => Ok(None),
        }
    }

    /// Everything that looks at the table. Ends before anything is waited for. `tried`: identities of targets that are not
    /// wanted again. `None`: no route.
    fn plan(&self, head: &Parts, host: &str, kind: choice::Kind, tried: &[u128], first: bool) -> Option<Plan> {
        let worker = &*self.worker;
        let snapshot = worker.live.load();
        let cleaned = path::clean(head.uri.path());
        let tls = self.peer.tls.is_some();
        let mut hosts = hosts(&snapshot.table, head, host, tls, &cleaned, kind, worker.config.strip_port);
        hosts.find_map(|host| {
            self.try_host(&Place { snapshot: &snapshot, head, host, cleaned: &cleaned, tried, first }, kind)
        })
    }

    fn try_host(&self, place: &Place<'_>, kind: choice::Kind) -> Option<Plan> {
        let Place { snapshot, head, host, cleaned, tried, .. } = *place;
        // Of routes whose targets speak something else, the first one counts if there is no other.
        let mut other: Option<(&Route, Option<&Target>)> = None;
        for route in snapshot.table.http(host, self.peer.tls.is_some(), &cleaned.decoded) {
            if !route.fits(head, &cleaned.decoded) {
                continue;
            }
            let wish = choose::Wish {
                strategy: &self.worker.config.strategy,
                client: self.peer.remote.ip(),
                headers: Some(&head.headers),
                path: head.uri.path(),
                speaks: None,
            };
            let plan = match kind.choose(route, &wish, tried, self.listener.grpc) {
                Choice::Fits(target) => self.plan_target(place, route, target),
                Choice::Other(target) => {
                    // Further tries stay on their route.
                    if other.is_none_or(|(_, other)| other.is_none() && target.is_some() && tried.is_empty()) {
                        other = Some((route, target));
                    }
                    continue;
                }
                Choice::Nobody => {
                    let page = self.worker.live.down_page();
                    if !page.is_empty() {
                        return Some(Plan::answer(answer::no_target(&page)));
                    }
                    let set = route.targets.first().map_or(&*route.host, |target| route.page_set(target));
                    Some(place.refuse(Refusal::NoTarget, set))
                }
            };
            if plan.is_some() {
                return plan;
            }
        }
        match other? {
            (route, Some(target)) => self.plan_target(place, route, target),
            (route, None) => {
                let set = route.targets.first().map_or(&*route.host, |target| route.page_set(target));
                Some(place.refuse(Refusal::Scheme, set))
            }
        }
    }

    /// `None`: a redirect to where the request came from.
    fn plan_target(&self, place: &Place<'_>, route: &Route, target: &Target) -> Option<Plan> {
        let Place { head, host, cleaned, first, .. } = *place;
        let refuse = |refusal| Some(place.refuse(refusal, route.page_set(target)));
        let options = &*target.options;
        let location = match &options.redirect {
            None => None,
            Some(redirect) => {
                let location = redirect.location(target, host, cleaned, head.uri.query());
                if Redirect::loops(&location, used_scheme(&head.headers, self.peer.tls.is_some()), host, &cleaned.raw) {
                    return None;
                }
                Some((redirect.code, location))
            }
        };
        let trusted = self.worker.config.trusted.as_deref();
        if !access::permits(&options.access, self.peer.remote.ip(), &head.headers, trusted) {
            return refuse(Refusal::AccessDenied);
        }
        if let Some(cors) = options.edits.as_ref().and_then(|edits| edits.cors.as_ref())
            && answer::is_preflight(head)
        {
            // Browsers ask without credentials, so this comes before auth.
            return Some(Plan::answer(answer::preflight(cors, &head.headers)));
        }
        if let Some(rate) = options.limits.as_ref().and_then(|limits| limits.rate.as_ref())
            && first
            && let Some(state) = route.state.get::<RouteState>()
            && let Err(wait) = limits::rate(rate, state, self.peer.remote.ip(), &head.headers, trusted)
        {
            if let Some(target) = target.state.get::<TargetState>() {
                target.series.limited("rate");
            }
            return Some(Plan::answer(answer::too_many(wait)));
        }
        let plan = match location {
            Some((code, location)) => Plan::Redirect { code, location },
            None => match self.plan_forward(head, route, target, cleaned) {
                Ok(forward) => Plan::Forward(forward),
                Err(refusal) => return refuse(refusal),
            },
        };
        Some(match &options.auth {
            None => plan,
            Some(schemes) => Plan::Guarded {
                schemes: schemes.clone(),
                pages: target.options.error_pages.clone().unwrap_or_else(|| route.host.clone()),
                plan: Box::new(plan),
            },
        })
    }

    /// The same URL with TLS at this port.
    fn to_tls(&self, head: &Parts, host: &str, port: u16) -> Response<Body> {
        let Some((code, location)) = tls_location(head, host, port) else {
            return self.paged(Refusal::MissingHost.answer(), "", &head.headers);
        };
        self.worker.metrics.http().redirected(self.worker.shard, code);
        answer::redirect(code, &location, &head.method)
    }

    fn no_route(&self, head: &Parts, host: &str, kind: choice::Kind) -> Response<Body> {
        let worker = &*self.worker;
        if kind == choice::Kind::Call {
            worker.metrics.grpc().no_route.add(worker.shard, 1);
        } else {
            worker.metrics.http().not_found(worker.shard);
        }
        let host = host.strip_suffix(':').unwrap_or(host);
        tracing::warn!("No route for {}{}", host, head.uri.path_and_query().map_or("/", PathAndQuery::as_str));
        let snapshot = worker.live.load();
        let answer = answer::no_route(worker.config.no_route_status, &snapshot.page);
        if !snapshot.page.is_empty() || snapshot.error_pages.is_empty() {
            return answer;
        }
        let set = without_port(host).unwrap_or(host).to_ascii_lowercase();
        answer::with_page(answer, &snapshot.error_pages, &set, &head.headers)
    }

    /// One of our own errors, with its page.
    fn paged(&self, response: Response<Body>, set: &str, asked: &HeaderMap) -> Response<Body> {
        answer::with_page(response, &self.worker.live.load().error_pages, set, asked)
    }

    fn plan_forward(
        &self,
        head: &Parts,
        route: &Route,
        target: &Target,
        cleaned: &path::Cleaned<'_>,
    ) -> Result<Forward, Refusal> {
        let limit = self.max_body(&target.options);
        if limit > 0 && content_length(&head.headers).is_some_and(|length| length > limit) {
            return Err(Refusal::BodyTooLarge);
        }
        let Some(state) = target.state.share::<TargetState>() else {
            return Err(Refusal::Scheme);
        };
        let path = cleaned.forward(&target.options);
        let query = target.destination.query.as_deref();
        let Some(path_and_query) = request::forward_target(head.uri.path_and_query(), &path, query) else {
            return Err(Refusal::BadTarget);
        };
        let options = &target.options;
        let counted = options.limits.as_ref().is_some_and(|limits| limits.route_in_flight.is_some());
        let asked = counted || options.tries.as_ref().is_some_and(|tries| tries.asked());
        Ok(Forward {
            target: state,
            identity: target.identity(),
            route: if asked { route.state.share() } else { None },
            path_and_query,
            alone: route.targets.len() == 1,
            grant: None,
        })
    }

    /// Bytes; 0: no limit.
    fn max_body(&self, options: &Options) -> u64 {
        options.max_body.unwrap_or(self.worker.config.max_body)
    }
}

/// The hosts that are looked for, one after the other.
fn hosts<'h>(
    table: &Table,
    head: &Parts,
    host: &'h str,
    tls: bool,
    cleaned: &path::Cleaned<'_>,
    kind: choice::Kind,
    strip_port: bool,
) -> impl Iterator<Item = &'h str> {
    // `h:` is `h` (RFC 3986, section 3.2.3).
    let host = host.strip_suffix(':').unwrap_or(host);
    let bare = without_port(host).filter(|_| strip_port || kind == choice::Kind::Call);
    let named = |host: &str| {
        let mut routes = table.http(host, tls, &cleaned.decoded);
        let first = routes.find(|route| route.fits(head, &cleaned.decoded));
        first.is_some_and(|route| !route.host.is_empty())
    };
    // gRPC clients write the port wherever they get it from, so a route of the bare host is better than one of none.
    let hosts = match bare {
        Some(bare) if kind == choice::Kind::Call && !named(host) && named(bare) => [Some(bare), Some(host)],
        bare => [Some(host), bare],
    };
    hosts.into_iter().flatten()
}

/// The scheme that the client used, as far as we are told.
fn used_scheme(headers: &HeaderMap, tls: bool) -> &str {
    headers
        .get(headers::X_FORWARDED_PROTO)
        .and_then(|value| value.to_str().ok())
        .filter(|proto| !proto.is_empty())
        .unwrap_or(if tls { "https" } else { "http" })
}

/// The same URL with TLS at this port, and the code that sends a client there. `None`: there is no host.
fn tls_location(head: &Parts, host: &str, port: u16) -> Option<(u16, String)> {
    let bare = without_port(host).unwrap_or(host).trim_end_matches(':');
    if bare.is_empty() {
        return None;
    }
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    // Only reading may change its method on the way (RFC 9110, section 15.4.2).
    let code = if matches!(head.method, Method::GET | Method::HEAD) { 301 } else { 308 };
    Some((code, format!("https://{bare}{port}{target}")))
}

/// As far as it can be read; what cannot is refused elsewhere.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn without_port(host: &str) -> Option<&str> {
    let (bare, port) = host.rsplit_once(':')?;
    (!port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())).then_some(bare)
}

/// 128 random bits in the form 8-4-4-4-12.
fn request_id() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bits = fastrand::u128(..);
    let mut text = [b'-'; 36];
    let mut nibble = 0;
    for (place, byte) in text.iter_mut().enumerate() {
        if !matches!(place, 8 | 13 | 18 | 23) {
            *byte = DIGITS[(bits >> (4 * nibble)) as usize & 15];
            nibble += 1;
        }
    }
    HeaderValue::from_bytes(&text).expect("hex digits and dashes")
}
