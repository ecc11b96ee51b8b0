//! The phases of an HTTP request, top to bottom.
//!
//! What a request means is written here once, against the types of the `http` crate; which codec reads and writes it is
//! below.

mod access;
mod answer;
mod body;
pub(crate) mod choose;
mod compress;
mod cookies;
mod facts;
mod forward;
mod h2;
mod headers;
mod limits;
mod mirror;
mod packed;
mod record;
mod request;
mod serve;

use std::rc::Rc;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response};

use self::answer::Refusal;
use self::body::Body;
pub use self::compress::{Coding, Compression};
use self::facts::Facts;
use self::record::Record;
use self::request::Asked;
pub use self::serve::{Listener, Misdirected, serve};
use crate::access_log::Logger;
use crate::auth::{self, Auth};
use crate::metrics::{Metrics, OpenWebSocket, Shard};
use crate::net::{Clock, Peer};
use crate::proxy::Config;
use crate::route::{LiveTable, Redirect, Route, Scheme, Snapshot, Target, path};
use crate::upstream::{Inbound, Pools, RouteState, TargetState, Upgraded};

/// What all requests of one worker share. Never leaves its thread.
pub struct Worker {
    live: Arc<LiveTable>,
    config: Config,
    rules: headers::Rules,
    auth: Arc<Auth>,
    pools: Pools,
    metrics: Metrics,
    shard: Shard,
    copies: mirror::Copies,
    /// `None`: no access log.
    logger: Option<Rc<Logger>>,
}

impl Worker {
    pub fn new(
        live: Arc<LiveTable>,
        config: Config,
        auth: Arc<Auth>,
        pools: Pools,
        metrics: Metrics,
        shard: Shard,
        logger: Option<Logger>,
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
            copies: Default::default(),
            logger: logger.map(Rc::new),
        }
    }
}

/// One client connection, as its requests see it.
struct Client {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    peer: Peer,
    clock: Rc<Clock>,
    /// Set when a target has agreed to change the protocol.
    tunnel: std::cell::RefCell<Option<Tunnel>>,
}

/// What is left of a request once the protocol has changed. Counted and logged when it is dropped.
struct Tunnel {
    upgraded: Upgraded,
    record: Record,
    _open: Option<OpenWebSocket>,
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
        plan: Box<Plan>,
    },
    Answer(Response<Body>),
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
    async fn handle(&self, request: Request<Inbound>) -> Response<Body> {
        let logger = self.worker.logger.as_ref();
        let mut facts = logger.map(|logger| Box::new(Facts::new(logger, &self.peer, &request)));
        let response = self.respond(request, &mut facts).await;
        let Some(facts) = facts.filter(|facts| facts.all()) else { return response };
        let record = Record::own(response.status().as_u16(), answer::outcome(&response), self.worker.shard, facts);
        response.map(|body| body.with_record(record))
    }

    /// Takes the facts if the request goes to a target.
    async fn respond(&self, mut request: Request<Inbound>, facts: &mut Option<Box<Facts>>) -> Response<Body> {
        let worker = &*self.worker;
        let host = match request::asked(&mut request, worker.config.max_target_size) {
            Ok(Asked::Path(host)) => host,
            Ok(Asked::Options) => return answer::options(),
            Err(refusal) => return refusal.answer(),
        };
        if let (Some(misdirected), Some(tls)) = (&self.listener.misdirected, &self.peer.tls)
            && misdirected(tls.server_name.as_deref(), &host)
        {
            return Refusal::Misdirected.answer();
        }
        worker.rules.distrust(request.headers_mut(), &self.peer);
        if let Some(name) = &worker.rules.request_id {
            request.headers_mut().insert(name.clone(), request_id());
        }
        if let Some(facts) = facts {
            facts.received(request.headers(), &worker.rules, &self.peer);
        }
        let (head, body) = request.into_parts();
        let Some(plan) = self.plan(&head, &host, &[]) else {
            worker.metrics.http().not_found(worker.shard);
            tracing::warn!("No route for {}{}", host, head.uri.path_and_query().map_or("/", PathAndQuery::as_str));
            return answer::no_route(worker.config.no_route_status, &worker.live.load().page);
        };
        match self.admit(plan, &head, &host, None).await {
            Ok(Some(forward)) => {
                let asked = forward::Asked { head, body, host: &host };
                self.forward(asked, forward, facts.take()).await
            }
            Ok(None) => Refusal::Unauthorized.answer(),
            Err(response) => response,
        }
    }

    /// Asks the schemes of the plan, unless they have let this request in already. Gives our own answer if there is one.
    async fn admit(
        &self,
        plan: Plan,
        head: &Parts,
        host: &str,
        granted: Option<&(String, auth::Grant)>,
    ) -> Result<Option<Forward>, Response<Body>> {
        let worker = &*self.worker;
        let (plan, grant) = match plan {
            Plan::Guarded { schemes, plan } => {
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
                        let grant = worker.auth.check(&schemes, &asked).await.map_err(answer::unauthorized)?;
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
                Err(answer::redirect(code, &location, &head.method))
            }
            // Never made twice; closed all the same.
            Plan::Guarded { .. } => Ok(None),
        }
    }

    /// Everything that looks at the table. Ends before anything is waited for. `tried`: identities of targets that are not
    /// wanted again. `None`: no route.
    fn plan(&self, head: &Parts, host: &str, tried: &[u128]) -> Option<Plan> {
        let worker = &*self.worker;
        let snapshot = worker.live.load();
        let cleaned = path::clean(head.uri.path());
        let tls = self.peer.tls.is_some();
        // `h:` is `h` (RFC 3986, section 3.2.3).
        let host = host.strip_suffix(':').unwrap_or(host);
        let found = self.try_host(&snapshot, head, host, &cleaned, tls, tried);
        if found.is_none()
            && worker.config.strip_port
            && let Some(bare) = without_port(host)
        {
            return self.try_host(&snapshot, head, bare, &cleaned, tls, tried);
        }
        found
    }

    fn try_host(
        &self,
        snapshot: &Snapshot,
        head: &Parts,
        host: &str,
        cleaned: &path::Cleaned<'_>,
        tls: bool,
        tried: &[u128],
    ) -> Option<Plan> {
        let query = head.uri.query();
        for route in snapshot.table.http(host, tls, &cleaned.decoded) {
            let wish = choose::Wish {
                strategy: &self.worker.config.strategy,
                client: self.peer.remote.ip(),
                headers: Some(&head.headers),
                path: head.uri.path(),
            };
            let Some(target) = choose::choose(route, &wish, tried) else {
                return Some(Plan::Answer(answer::no_target(&self.worker.live.down_page())));
            };
            let options = &*target.options;
            let location = match &options.redirect {
                None => None,
                Some(redirect) => {
                    let location = redirect.location(target, host, cleaned, query);
                    if Redirect::loops(&location, self.used_scheme(&head.headers), host, &cleaned.raw) {
                        continue;
                    }
                    Some((redirect.code, location))
                }
            };
            let trusted = self.worker.config.trusted.as_deref();
            if !access::permits(&options.access, self.peer.remote.ip(), &head.headers, trusted) {
                return Some(Plan::Answer(Refusal::AccessDenied.answer()));
            }
            if let Some(cors) = options.edits.as_ref().and_then(|edits| edits.cors.as_ref())
                && answer::is_preflight(head)
            {
                // Browsers ask without credentials, so this comes before auth.
                return Some(Plan::Answer(answer::preflight(cors, &head.headers)));
            }
            if let Some(rate) = options.limits.as_ref().and_then(|limits| limits.rate.as_ref())
                && tried.is_empty()
                && let Some(state) = route.state.get::<RouteState>()
                && let Err(wait) = limits::rate(rate, state, self.peer.remote.ip(), &head.headers, trusted)
            {
                if let Some(target) = target.state.get::<TargetState>() {
                    target.series.limited("rate");
                }
                return Some(Plan::Answer(answer::too_many(wait)));
            }
            let plan = match location {
                Some((code, location)) => Plan::Redirect { code, location },
                None => self.plan_forward(head, route, target, cleaned),
            };
            return Some(match &options.auth {
                None => plan,
                Some(schemes) => Plan::Guarded { schemes: schemes.clone(), plan: Box::new(plan) },
            });
        }
        None
    }

    /// The scheme that the client used, as far as we are told.
    fn used_scheme<'h>(&self, headers: &'h HeaderMap) -> &'h str {
        headers
            .get(headers::X_FORWARDED_PROTO)
            .and_then(|value| value.to_str().ok())
            .filter(|proto| !proto.is_empty())
            .unwrap_or(if self.peer.tls.is_some() { "https" } else { "http" })
    }

    fn plan_forward(&self, head: &Parts, route: &Route, target: &Target, cleaned: &path::Cleaned<'_>) -> Plan {
        let speaks_http = matches!(
            (target.destination.scheme, is_websocket(&head.headers)),
            (Scheme::Http | Scheme::Https, _) | (Scheme::Ws | Scheme::Wss, true)
        );
        let (true, Some(state)) = (speaks_http, target.state.share::<TargetState>()) else {
            return Plan::Answer(Refusal::Scheme.answer());
        };
        let path = cleaned.forward(&target.options);
        let query = target.destination.query.as_deref();
        let Some(path_and_query) = request::forward_target(head.uri.path_and_query(), &path, query) else {
            return Plan::Answer(Refusal::BadTarget.answer());
        };
        let options = &target.options;
        let counted = options.limits.as_ref().is_some_and(|limits| limits.route_in_flight.is_some());
        let asked = counted || options.tries.as_ref().is_some_and(|tries| tries.asked());
        Plan::Forward(Forward {
            target: state,
            identity: target.identity(),
            route: if asked { route.state.share() } else { None },
            path_and_query,
            alone: route.targets.len() == 1,
            grant: None,
        })
    }
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
