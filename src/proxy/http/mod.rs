//! The phases of an HTTP request, top to bottom.
//!
//! What a request means is written here once, against the types of the `http` crate; which codec reads and writes it is
//! below.

mod access;
mod answer;
mod body;
mod compress;
mod facts;
mod h2;
mod headers;
mod packed;
mod record;
mod request;
mod serve;
mod tunnel;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Parts as UriParts, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Uri, Version};

use self::answer::Refusal;
use self::body::Body;
use self::compress::Wish;
pub use self::compress::{Coding, Compression};
use self::facts::Facts;
use self::record::Record;
use self::request::Asked;
pub use self::serve::{Listener, Misdirected, serve};
use crate::access_log::Logger;
use crate::auth::{self, Auth};
use crate::life::{Flag, Phase, Watch};
use crate::metrics::{Metrics, OpenWebSocket, Shard};
use crate::net::{Peer, Supplies};
use crate::proxy::{Config, preamble};
use crate::route::{HostOption, LiveTable, Options, Redirect, Route, Scheme, Snapshot, Strategy, Target, Turn, path};
use crate::upstream::{self, Effort, Exchange, Inbound, Pools, RequestBody, RouteState, TargetState, Upgraded};

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
    /// `None`: no access log.
    logger: Option<Rc<Logger>>,
    /// Raised with [`Phase::Closing`], for all connections at once; made with the first of them.
    closing: OnceCell<Rc<Flag>>,
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
            supplies: Supplies::default(),
            logger: logger.map(Rc::new),
            closing: OnceCell::new(),
        }
    }

    /// Raised once no other request is to be taken on a connection.
    fn closing(&self, life: &Watch) -> &Rc<Flag> {
        self.closing.get_or_init(|| {
            let (flag, mut life) = (Rc::new(Flag::default()), life.clone());
            let raised = flag.clone();
            tokio::task::spawn_local(async move {
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
    /// Set when a target has agreed to change the protocol.
    tunnel: std::cell::RefCell<Option<Tunnel>>,
}

/// What is left of a request once the protocol has changed. Counted and logged when it is dropped.
struct Tunnel {
    upgraded: Upgraded,
    record: Record,
    /// Set for WebSockets.
    open: Option<OpenWebSocket>,
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
    Answer(Response<Body>),
}

struct Forward {
    target: Arc<TargetState>,
    /// When the listener's `wt` is over.
    deadline: Option<Instant>,
    path_and_query: PathAndQuery,
    /// What the schemes of the route have found out about the client.
    grant: Option<auth::Grant>,
}

/// What is still to be done with the response of a target.
struct Finish<'a> {
    /// `None`: nothing is compressed here.
    wish: Option<Wish>,
    /// `Origin` of the request.
    origin: Option<HeaderValue>,
    target: &'a TargetState,
    /// The head that was sent to it.
    asked: &'a HeaderMap,
}

impl Client {
    async fn handle(&self, request: Request<Inbound>) -> Response<Body> {
        let wt = self.listener.write_timeout;
        let deadline = (!wt.is_zero()).then(|| Instant::now() + wt);
        let logger = self.worker.logger.as_ref();
        let mut facts = logger.map(|logger| Box::new(Facts::new(logger, &self.peer, &request)));
        let response = self.respond(request, deadline, &mut facts).await;
        let Some(facts) = facts.filter(|facts| facts.all()) else { return response };
        let record = Record::own(response.status().as_u16(), answer::outcome(&response), self.worker.shard, facts);
        response.map(|body| body.with_record(record))
    }

    /// Takes the facts if the request goes to a target.
    async fn respond(
        &self,
        mut request: Request<Inbound>,
        deadline: Option<Instant>,
        facts: &mut Option<Box<Facts>>,
    ) -> Response<Body> {
        let worker = &*self.worker;
        let host = match request::asked(&mut request, worker.config.max_target_size) {
            Ok(Asked::Path(host)) => host,
            Ok(Asked::Options) => return answer::options(),
            Err(refusal) => return self.paged(refusal.answer(), "", request.headers()),
        };
        if let (Some(misdirected), Some(tls)) = (&self.listener.misdirected, &self.peer.tls)
            && misdirected(tls.server_name.as_deref(), &host)
        {
            return self.paged(Refusal::Misdirected.answer(), "", request.headers());
        }
        worker.rules.distrust(request.headers_mut(), &self.peer);
        if let Some(name) = &worker.rules.request_id {
            request.headers_mut().insert(name.clone(), request_id());
        }
        if let Some(facts) = facts {
            facts.received(request.headers(), &worker.rules, &self.peer);
        }
        if let Some(port) = self.listener.redirect
            && !self.used_scheme(request.headers()).eq_ignore_ascii_case("https")
        {
            return self.to_tls(&request, &host, port);
        }
        let mut plan = self.plan(&request, &host);
        if let Plan::Guarded { schemes, pages, plan: guarded } = plan {
            let asked = auth::Request {
                method: request.method(),
                headers: request.headers(),
                host: &host,
                path: &path::clean(request.uri().path()).raw,
                query: request.uri().query(),
                peer: &self.peer,
                pools: &worker.pools,
            };
            let grant = match worker.auth.check(&schemes, &asked).await {
                Ok(grant) => grant,
                // The words of another service stay its own.
                Err(refusal @ auth::Refusal::Answer(_)) => return answer::unauthorized(refusal),
                Err(refusal) => return self.paged(answer::unauthorized(refusal), &pages, request.headers()),
            };
            plan = *guarded;
            if let Plan::Forward(forward) = &mut plan {
                forward.grant = Some(grant);
            }
        }
        match plan {
            Plan::Answer(response) => response,
            Plan::Redirect { code, location } => {
                worker.metrics.http().redirected(worker.shard, code);
                answer::redirect(code, &location, request.method())
            }
            Plan::Forward(mut forward) => {
                forward.deadline = deadline;
                self.forward(request, &host, forward, facts.take()).await
            }
            // Never made twice; closed all the same.
            Plan::Guarded { .. } => Refusal::Unauthorized.answer(),
        }
    }

    /// Everything that looks at the table. Ends before anything is waited for.
    fn plan(&self, request: &Request<Inbound>, host: &str) -> Plan {
        let worker = &*self.worker;
        let snapshot = worker.live.load();
        let cleaned = path::clean(request.uri().path());
        let tls = self.peer.tls.is_some();
        // `h:` is `h` (RFC 3986, section 3.2.3).
        let host = host.strip_suffix(':').unwrap_or(host);
        if let Some(plan) = self.try_host(&snapshot, request, host, &cleaned, tls) {
            return plan;
        }
        if worker.config.strip_port
            && let Some(bare) = without_port(host)
            && let Some(plan) = self.try_host(&snapshot, request, bare, &cleaned, tls)
        {
            return plan;
        }
        worker.metrics.http().not_found(worker.shard);
        tracing::warn!("No route for {}{}", host, request.uri().path_and_query().map_or("/", PathAndQuery::as_str));
        let answer = answer::no_route(worker.config.no_route_status, &snapshot.page);
        if !snapshot.page.is_empty() {
            return Plan::Answer(answer);
        }
        Plan::Answer(answer::with_page(answer, &snapshot.error_pages, host, request.headers()))
    }

    fn try_host(
        &self,
        snapshot: &Snapshot,
        request: &Request<Inbound>,
        host: &str,
        cleaned: &path::Cleaned<'_>,
        tls: bool,
    ) -> Option<Plan> {
        let query = request.uri().query();
        for route in snapshot.table.http(host, tls, &cleaned.decoded) {
            if !route.fits(request, &cleaned.decoded) {
                continue;
            }
            let refuse = |refusal: Refusal, set: &str| {
                let pages = &snapshot.error_pages;
                Some(Plan::Answer(answer::with_page(refusal.answer(), pages, set, request.headers())))
            };
            let Some(target) = self.pick(route) else {
                let set = route.targets.first().map_or(&*route.host, |target| route.page_set(target));
                return refuse(Refusal::NoTarget, set);
            };
            let options = &*target.options;
            let location = match &options.redirect {
                None => None,
                Some(redirect) => {
                    let location = redirect.location(target, host, cleaned, query);
                    if Redirect::loops(&location, self.used_scheme(request.headers()), host, &cleaned.raw) {
                        continue;
                    }
                    Some((redirect.code, location))
                }
            };
            let trusted = self.worker.config.trusted.as_deref();
            if !access::permits(&options.access, self.peer.remote.ip(), request.headers(), trusted) {
                return refuse(Refusal::AccessDenied, route.page_set(target));
            }
            if let Some(cors) = options.edits.as_ref().and_then(|edits| edits.cors.as_ref())
                && answer::is_preflight(request)
            {
                // Browsers ask without credentials, so this comes before auth.
                return Some(Plan::Answer(answer::preflight(cors, request.headers())));
            }
            let plan = match location {
                Some((code, location)) => Plan::Redirect { code, location },
                None => match self.plan_forward(request, target, cleaned) {
                    Ok(forward) => Plan::Forward(forward),
                    Err(refusal) => return refuse(refusal, route.page_set(target)),
                },
            };
            return Some(match &options.auth {
                None => plan,
                Some(schemes) => Plan::Guarded {
                    schemes: schemes.clone(),
                    pages: target.options.error_pages.clone().unwrap_or_else(|| route.host.clone()),
                    plan: Box::new(plan),
                },
            });
        }
        None
    }

    fn pick<'t>(&self, route: &'t Route) -> Option<&'t Target> {
        if let [only] = &*route.targets {
            // One target needs no turn, unless it is shut out by its weight.
            return (only.share > 0.0).then_some(only);
        }
        let turn = match (self.worker.config.strategy, route.state.get::<RouteState>()) {
            (Strategy::RoundRobin, Some(state)) => Turn::Nth(state.next_turn()),
            _ => Turn::Random(fastrand::u64(..)),
        };
        route.pick(turn)
    }

    /// The scheme that the client used, as far as we are told.
    fn used_scheme<'h>(&self, headers: &'h HeaderMap) -> &'h str {
        headers
            .get(headers::X_FORWARDED_PROTO)
            .and_then(|value| value.to_str().ok())
            .filter(|proto| !proto.is_empty())
            .unwrap_or(if self.peer.tls.is_some() { "https" } else { "http" })
    }

    /// The same URL with TLS at this port.
    fn to_tls(&self, request: &Request<Inbound>, host: &str, port: u16) -> Response<Body> {
        let bare = without_port(host).unwrap_or(host).trim_end_matches(':');
        if bare.is_empty() {
            return self.paged(Refusal::MissingHost.answer(), "", request.headers());
        }
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        // Only reading may change its method on the way (RFC 9110, section 15.4.2).
        let reading = matches!(*request.method(), Method::GET | Method::HEAD);
        let code = if reading { 301 } else { 308 };
        self.worker.metrics.http().redirected(self.worker.shard, code);
        answer::redirect(code, &format!("https://{bare}{port}{target}"), request.method())
    }

    /// One of our own errors, with its page.
    fn paged(&self, response: Response<Body>, set: &str, asked: &HeaderMap) -> Response<Body> {
        answer::with_page(response, &self.worker.live.load().error_pages, set, asked)
    }

    fn plan_forward(
        &self,
        request: &Request<Inbound>,
        target: &Target,
        cleaned: &path::Cleaned<'_>,
    ) -> Result<Forward, Refusal> {
        let limit = self.max_body(&target.options);
        if limit > 0 && content_length(request.headers()).is_some_and(|length| length > limit) {
            return Err(Refusal::BodyTooLarge);
        }
        let speaks_http = matches!(
            (target.destination.scheme, is_websocket(request.headers())),
            (Scheme::Http | Scheme::Https, _) | (Scheme::Ws | Scheme::Wss, true)
        );
        let (true, Some(state)) = (speaks_http, target.state.share::<TargetState>()) else {
            return Err(Refusal::Scheme);
        };
        let path = cleaned.forward(&target.options);
        let query = target.destination.query.as_deref();
        match request::forward_target(request.uri().path_and_query(), &path, query) {
            Some(path_and_query) => Ok(Forward { target: state, path_and_query, grant: None, deadline: None }),
            None => Err(Refusal::BadTarget),
        }
    }

    /// Bytes; 0: no limit.
    fn max_body(&self, options: &Options) -> u64 {
        options.max_body.unwrap_or(self.worker.config.max_body)
    }

    async fn forward(
        &self,
        request: Request<Inbound>,
        host: &str,
        forward: Forward,
        mut log: Option<Box<Facts>>,
    ) -> Response<Body> {
        let worker = &*self.worker;
        let Forward { target, path_and_query, grant, deadline } = forward;
        let (mut head, body) = request.into_parts();
        let wish = match &worker.config.compression {
            Some(compression) if target.options.compress => Some(compression.wish(&head)),
            _ => None,
        };
        let upgrade = headers::upgrade(&head.headers, head.version, &head.method);
        let unknown_length = head.version == Version::HTTP_2
            && !http_body::Body::is_end_stream(&body)
            && !head.headers.contains_key(http::header::CONTENT_LENGTH);
        let chunked = unknown_length || head.headers.contains_key(TRANSFER_ENCODING);
        let facts =
            headers::Facts { peer: &self.peer, host, version: head.version, strip: target.options.strip.as_deref() };

        // Who the client is comes from headers that hop-by-hop rules remove: Upgrade tells the scheme.
        let websocket = is_websocket(&head.headers).then(|| head.headers.get(UPGRADE).cloned()).flatten();
        worker.rules.remove_hop_by_hop(&mut head.headers);
        if let Some(protocol) = websocket {
            head.headers.insert(UPGRADE, protocol);
        }
        worker.rules.introduce(&mut head.headers, &facts);
        head.headers.remove(UPGRADE);
        let origin = head.headers.get(http::header::ORIGIN).cloned();
        if let Some(edits) = &target.options.edits {
            edits.request.apply(&mut head.headers);
        }
        if let Some(grant) = grant {
            grant.apply(&mut head.headers);
        }
        match &target.options.host {
            // HTTP/1.0 need not name a host, HTTP/1.1 must.
            None if host.is_empty() => set_host(&mut head.headers, &target.destination.authority),
            None => {}
            Some(HostOption::Destination) => set_host(&mut head.headers, &target.destination.authority),
            Some(HostOption::Name(name)) => set_host(&mut head.headers, name),
        }
        if let Some(protocol) = &upgrade {
            head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            head.headers.insert(UPGRADE, protocol.clone());
        }
        if chunked {
            // Or a GET with a body of unknown length would be sent without it.
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head.version = Version::HTTP_11;
        if let Some(log) = &mut log {
            log.forwarded(&head.headers, &path_and_query, is_websocket(&head.headers));
        }
        request::keep_query(&mut head.extensions, target.destination.query.as_deref());
        let mut uri = UriParts::default();
        uri.path_and_query = Some(path_and_query);
        head.uri = Uri::from_parts(uri).expect("a path alone is a valid URI");

        let body = RequestBody::new(body, self.max_body(&target.options));
        let mut record = Record::new(target.clone(), worker.shard, deadline, log);
        let preamble = preamble(target.options.proxy_protocol, &self.peer, None);
        let effort = Effort::default();
        let exchange =
            Exchange { pools: &worker.pools, endpoint: &target.endpoint, preamble: &preamble, effort: &effort };
        let answer = exchange.send(&head, &body).await;
        record.effort(&effort);
        match answer {
            Ok(response) => {
                let finish = Finish { wish, origin, target: &target, asked: &head.headers };
                self.pass_on(response, upgrade.as_ref(), finish, record).await
            }
            Err(error) => {
                let (service, place) = (&target.service, &target.destination.text);
                match error.side() {
                    upstream::Side::Target => tracing::error!("{service} {place}: {}", error.chain()),
                    // The client's fault, and no reason to fill the log.
                    upstream::Side::Client => tracing::debug!("{service} {place}: {}", error.chain()),
                }
                record.failed(answer::status_of(&error).as_u16(), error.reason());
                self.paged(answer::failed(&error), target.page_set(), &head.headers)
            }
        }
    }

    async fn pass_on(
        &self,
        response: Response<crate::upstream::ResponseBody>,
        asked: Option<&HeaderValue>,
        finish: Finish<'_>,
        mut record: Record,
    ) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        let worker = &*self.worker;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let agreed = head.headers.get(UPGRADE).cloned();
            let matches = asked.zip(agreed.as_ref()).is_some_and(|(asked, agreed)| {
                asked
                    .as_bytes()
                    .split(|b| *b == b',')
                    .any(|name| name.trim_ascii().eq_ignore_ascii_case(agreed.as_bytes()))
            });
            let upgraded = if matches { body.upgrade().await } else { None };
            let (Some(upgraded), Some(protocol)) = (upgraded, agreed) else {
                tracing::error!("a target changed to a protocol that nobody asked for");
                record.failed(StatusCode::BAD_GATEWAY.as_u16(), "upgrade");
                return self.paged(answer::bad_gateway(), finish.target.page_set(), finish.asked);
            };
            worker.rules.remove_hop_by_hop(&mut head.headers);
            head.headers.remove(http::header::CONTENT_LENGTH);
            head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            let websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            head.headers.insert(UPGRADE, protocol);
            record.status(head.status.as_u16());
            record.upgraded(websocket);
            let open = websocket.then(|| worker.metrics.http().websocket(worker.shard));
            self.tunnel.replace(Some(Tunnel { upgraded, record, open }));
            return Response::from_parts(head, Body::empty());
        }
        if !headers::settle_length(&mut head.headers) {
            tracing::error!("a target sent a transfer coding that is not understood");
            record.status(StatusCode::BAD_GATEWAY.as_u16());
            return self.paged(answer::bad_gateway(), finish.target.page_set(), finish.asked);
        }
        worker.rules.remove_hop_by_hop(&mut head.headers);
        if head.status == StatusCode::NO_CONTENT {
            head.headers.remove(http::header::CONTENT_LENGTH);
        }
        worker.rules.secure_transport(&mut head.headers, &self.peer);
        if let Some(edits) = &finish.target.options.edits {
            if let Some(cors) = &edits.cors {
                cors.permit(finish.origin.as_ref(), &mut head.headers);
            }
            edits.response.apply(&mut head.headers);
        }
        let coding = match (finish.wish, &worker.config.compression) {
            (Some(wish), Some(compression)) => {
                compression.apply(wish, &mut head, http_body::Body::size_hint(&body).exact())
            }
            _ => None,
        };
        let body = match coding {
            None => Body::target(body),
            Some(coding) => match Body::packed(body, coding) {
                Ok(body) => body,
                Err(error) => {
                    tracing::error!("cannot compress with {}: {error}", coding.name());
                    record.status(StatusCode::BAD_GATEWAY.as_u16());
                    return self.paged(answer::bad_gateway(), finish.target.page_set(), finish.asked);
                }
            },
        };
        head.version = Version::HTTP_11;
        record.status(head.status.as_u16());
        record.fields(&head.headers);
        Response::from_parts(head, body.with_record(record))
    }
}

/// As far as it can be read; what cannot is refused elsewhere.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn set_host(headers: &mut HeaderMap, host: &str) {
    if let Ok(value) = HeaderValue::from_str(host) {
        headers.insert(HOST, value);
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
