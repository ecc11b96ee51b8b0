//! From a plan to a response: the request as a target gets it, the tries, and the response as the client gets it.

use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::Parts as UriParts;
use http::{Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::body::Body;
use super::compress::Wish;
use super::facts::Facts;
use super::record::Record;
use super::{Client, Forward, Plan, Tunnel, answer, choice, cookies, headers, is_websocket, limits, mirror, request};
use crate::http1::Present;
use crate::proxy::{note, preamble};
use crate::route::{HostOption, Tries};
use crate::upstream::{
    self, Effort, Error, Exchange, Inbound, Protocol, RequestBody, ResponseBody, TargetState, Times, Verdict, moment,
};

/// What a client asks for.
pub(super) struct Asked<'a> {
    pub(super) head: &'a mut Parts,
    pub(super) body: Inbound,
    /// Fields that its head may have.
    pub(super) present: Present,
    pub(super) host: &'a str,
    pub(super) kind: choice::Kind,
    /// When the listener's `wt` is over.
    pub(super) deadline: Option<std::time::Instant>,
    /// When the route's `timeout` is over.
    pub(super) end: Option<Instant>,
}

/// What is still to be done with the response of a target.
struct Finish<'a> {
    /// `None`: nothing is compressed here.
    wish: Option<Wish>,
    /// `Origin` of the request.
    origin: Option<HeaderValue>,
    /// Binds the client to this target.
    cookie: Option<HeaderValue>,
    target: &'a TargetState,
    /// The head that was sent to it.
    asked: &'a HeaderMap,
}

/// What does not depend on the target.
struct Common<'a> {
    host: &'a str,
    kind: choice::Kind,
    upgrade: Option<HeaderValue>,
    chunked: bool,
}

/// The tries of one request.
struct Run {
    body: RequestBody,
    effort: Effort,
    /// Identities of the targets that it was sent to.
    tried: Vec<u128>,
    /// How often another target was tried because there was no connection.
    moved: u32,
    /// How often it was sent again because that was asked for.
    again: u32,
    /// A target has died over it: that happens once, or it may be the request that kills them.
    died: bool,
    /// Of the whole request.
    deadline: Option<Instant>,
}

impl Client {
    pub(super) async fn forward(
        &self,
        asked: Asked<'_>,
        mut forward: Forward,
        facts: Option<Box<Facts>>,
    ) -> Response<Body> {
        let worker = &*self.worker;
        let Asked { head, body, present, host, kind, deadline, end } = asked;
        let wish = worker.config.compression.as_ref().map(|compression| compression.wish(head));
        let origin = if present.any(Present::ORIGIN) { head.headers.get(http::header::ORIGIN).cloned() } else { None };
        let bound = cookies::bound(&forward.target, &head.headers);
        let common = self.prepare(head, &body, present, host, kind);
        let mut run = Run {
            body: RequestBody::new(body, self.max_body(&forward.target.options)),
            effort: Effort::default(),
            tried: Vec::new(),
            moved: 0,
            again: 0,
            died: false,
            deadline: end,
        };
        let mut record = Record::new(forward.target.clone(), worker.shard, deadline, facts);
        if self.listener.grpc {
            record.call();
        }
        if let (Some(tries), Some(route)) = (forward.asked(), &forward.route) {
            route.budget().request(moment());
            if tries.permits(&head.method, &head.headers) {
                run.body.keep(worker.config.retry_buffer);
            }
        }
        loop {
            if let Some(limits) = &forward.target.options.limits
                && let Err(limit) =
                    Box::pin(record.held.take(limits, forward.route.as_ref(), &forward.target, run.deadline)).await
            {
                forward.target.series.limited(limit);
                let answer = if limit == limits::TIMEOUT { answer::failed(&Error::TryTimeout) } else { answer::busy() };
                record.failed(answer.status().as_u16(), limit);
                return self.paged(answer, forward.target.page_set(), &head.headers);
            }
            let answer = self.attempt(head, &common, &forward, &mut run, &mut record).await;
            record.tried(&run.effort, answer.as_ref().map(Response::status).map_err(|error| error.reason()));
            let why = match &answer {
                Ok(response) => run.after_response(head, &forward, response.status()),
                Err(error) => run.after_error(head, &forward, error),
            };
            if let Some(why) = why
                && let Some(next) = Box::pin(self.next(head, &common, &forward, &mut run, why)).await
            {
                if let Err(error) = &answer {
                    let (service, place) = (&forward.target.service, &forward.target.destination.text);
                    tracing::warn!("{service} {place}: {}; trying {}", error.chain(), next.target.destination.text);
                }
                // The connection goes with the answer, or it would go on taking the body.
                drop(answer);
                run.body.rewind();
                run.effort.retries.set(run.effort.retries.get() + 1);
                next.target.series.retried(why.name());
                record.target(next.target.clone());
                forward = next;
                continue;
            }
            return match answer {
                Ok(response) => {
                    let wish = wish.filter(|_| forward.target.options.compress);
                    let cookie = cookies::bind(&forward.target, &bound);
                    let finish = Finish { wish, origin, cookie, target: &forward.target, asked: &head.headers };
                    let response = self.pass_on(response, common.upgrade.as_ref(), finish, record).await;
                    response.map(|body| body.with_deadline(run.deadline))
                }
                Err(error) => {
                    let (service, place) = (&forward.target.service, &forward.target.destination.text);
                    match error.side() {
                        upstream::Side::Target => tracing::error!("{service} {place}: {}", error.chain()),
                        // The client's fault, and no reason to fill the log.
                        upstream::Side::Client => tracing::debug!("{service} {place}: {}", error.chain()),
                    }
                    record.failed(answer::status_of(&error).as_u16(), error.reason());
                    self.paged(answer::failed(&error), forward.target.page_set(), &head.headers)
                }
            };
        }
    }

    /// Brings the head into the form that all targets have in common.
    fn prepare<'a>(
        &self,
        head: &mut Parts,
        body: &Inbound,
        present: Present,
        host: &'a str,
        kind: choice::Kind,
    ) -> Common<'a> {
        let rules = &self.worker.rules;
        let upgrades = present.any(Present::UPGRADE);
        let upgrade = if upgrades { headers::upgrade(&head.headers, head.version, &head.method) } else { None };
        let unknown_length = head.version == Version::HTTP_2
            && !http_body::Body::is_end_stream(body)
            && !present.any(Present::CONTENT_LENGTH);
        let chunked = unknown_length || present.any(Present::TRANSFER_ENCODING);
        let facts = headers::Facts { peer: &self.peer, host, version: head.version, present, told: &self.told };

        // Who the client is comes from headers that hop-by-hop rules remove: Upgrade tells the scheme.
        let websocket = if upgrades && is_websocket(&head.headers) { head.headers.get(UPGRADE).cloned() } else { None };
        rules.remove_hop_by_hop(&mut head.headers, present);
        if let Some(protocol) = websocket {
            head.headers.insert(UPGRADE, protocol);
        }
        rules.introduce(&mut head.headers, &facts);
        if upgrades {
            head.headers.remove(UPGRADE);
        }
        head.version = Version::HTTP_11;
        Common { host, kind, upgrade, chunked }
    }

    /// Sends the request to a target once, in the form that is right for it.
    async fn attempt(
        &self,
        head: &mut Parts,
        common: &Common<'_>,
        forward: &Forward,
        run: &mut Run,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut uri = UriParts::default();
        uri.path_and_query = Some(forward.path_and_query.clone());
        let uri = Uri::from_parts(uri).expect("a path alone is a valid URI");
        let came = std::mem::replace(&mut head.uri, uri);
        let query = request::keep_query(&mut head.extensions, forward.target.destination.query.as_deref());
        let answer = if forward.edits_head(common.host) && forward.may_be_repeated() {
            // The next target gets what this one does not ask for.
            let mut own = head.clone();
            record.begin_try(&forward.target, &forward.path_and_query, &mut own.headers);
            common.suit(&mut own.headers, forward);
            self.send(&own, common, forward, run, record).await
        } else {
            record.begin_try(&forward.target, &forward.path_and_query, &mut head.headers);
            common.suit(&mut head.headers, forward);
            self.send(head, common, forward, run, record).await
        };
        head.uri = came;
        if let Some(query) = query {
            head.extensions.insert(query);
        }
        answer
    }

    async fn send(
        &self,
        head: &Parts,
        common: &Common<'_>,
        forward: &Forward,
        run: &mut Run,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, Error> {
        record.forwarded(&head.headers, &forward.path_and_query);
        let worker = &*self.worker;
        let target = &*forward.target;
        let preamble = preamble(target.options.proxy_protocol, &self.peer, None);
        if target.options.mirror.is_some() && run.moved == 0 && run.again == 0 {
            let plain = !head.headers.contains_key(UPGRADE) && http_body::Body::is_end_stream(&run.body);
            mirror::copy(worker, target, &self.peer, head, plain);
        }
        let mut times = worker.pools.times();
        let mut end = run.deadline;
        if let Some(tries) = forward.tries() {
            times = Times { connect: tries.connect.unwrap_or(times.connect), head: tries.head.unwrap_or(times.head) };
            let each = tries.each.map(|each| Instant::now() + each);
            end = each.into_iter().chain(end).min();
        }
        run.effort.connect.set(None);
        let protocol = match common.upgrade {
            Some(_) => Protocol::Http1,
            None => choice::protocol(target, self.listener.grpc),
        };
        let exchange = Exchange {
            pools: &worker.pools,
            endpoint: &target.endpoint,
            protocol,
            preamble: &preamble,
            times,
            effort: &run.effort,
        };
        let answer = match end {
            None => exchange.send(head, &run.body).await,
            Some(end) => {
                tokio::time::timeout_at(end, exchange.send(head, &run.body)).await.unwrap_or(Err(Error::TryTimeout))
            }
        };
        if let Err(error) = &answer {
            target.series.error(error.reason());
        }
        if let Some(verdict) = verdict(&answer, target, &run.effort) {
            note(target, verdict);
        }
        answer
    }

    /// Where the request goes next. `None`: nowhere.
    async fn next(
        &self,
        head: &Parts,
        common: &Common<'_>,
        failed: &Forward,
        run: &mut Run,
        why: Why,
    ) -> Option<Forward> {
        let Common { host, kind, .. } = *common;
        run.tried.push(failed.identity);
        let mut plan = self
            .plan(head, host, kind, &run.tried, false)
            .filter(|plan| !matches!(plan, Plan::Answer(_) | Plan::Redirect { .. }));
        let moves = matches!(why, Why::Unreachable | Why::Died) && run.moved < MOVES && plan.is_some();
        if moves {
            run.moved += 1;
            run.died |= why == Why::Died;
        } else {
            // Nothing was processed, but somebody has asked for no more than so many tries.
            if !run.may_go_on(failed) {
                return None;
            }
            let percent = self.worker.config.retry_budget;
            if !failed.route.as_ref().is_some_and(|route| route.budget().retry(moment(), percent)) {
                failed.target.series.limited("retry_budget");
                return None;
            }
            run.again += 1;
        }
        if plan.is_none() {
            // All have been tried: they may be tried again.
            run.tried.clear();
            plan = self.plan(head, host, kind, &run.tried, false);
        }
        self.admit(plan?, head, host, failed.grant.as_ref(), run.deadline).await.ok()?
    }

    async fn pass_on(
        &self,
        response: Response<ResponseBody>,
        asked: Option<&HeaderValue>,
        finish: Finish<'_>,
        mut record: Record,
    ) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        let present = Present::of(&head.headers);
        let worker = &*self.worker;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let agreed = head.headers.get(UPGRADE).cloned();
            let matches = asked.zip(agreed.as_ref()).is_some_and(|(asked, agreed)| {
                asked
                    .as_bytes()
                    .split(|b| *b == b',')
                    .any(|name| name.trim_ascii().eq_ignore_ascii_case(agreed.as_bytes()))
            });
            let upgraded = if matches { body.upgrade() } else { None };
            let (Some(upgraded), Some(protocol)) = (upgraded, agreed) else {
                tracing::error!("a target changed to a protocol that nobody asked for");
                record.failed(StatusCode::BAD_GATEWAY.as_u16(), "upgrade");
                return self.paged(answer::bad_gateway(), finish.target.page_set(), finish.asked);
            };
            worker.rules.remove_hop_by_hop(&mut head.headers, present);
            head.headers.remove(http::header::CONTENT_LENGTH);
            head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            let websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            head.headers.insert(UPGRADE, protocol);
            record.status(head.status.as_u16());
            record.upgraded(websocket);
            let open = websocket.then(|| worker.metrics.http().websocket(worker.shard));
            self.tunnel.replace(Some(Tunnel { upgraded, record, open, browser: finish.origin.is_some() }));
            return Response::from_parts(head, Body::empty());
        }
        if !headers::settle_length(&mut head.headers, present) {
            tracing::error!("a target sent a transfer coding that is not understood");
            record.status(StatusCode::BAD_GATEWAY.as_u16());
            return self.paged(answer::bad_gateway(), finish.target.page_set(), finish.asked);
        }
        worker.rules.remove_hop_by_hop(&mut head.headers, present);
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
        if let Some(cookie) = finish.cookie {
            head.headers.append(http::header::SET_COOKIE, cookie);
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

impl Forward {
    pub(super) fn tries(&self) -> Option<&Tries> {
        self.target.options.tries.as_deref()
    }

    /// What is asked for beside other targets after failures to connect.
    fn asked(&self) -> Option<&Tries> {
        self.tries().filter(|tries| tries.asked())
    }

    /// Could the request be sent more than once?
    fn may_be_repeated(&self) -> bool {
        !self.alone || self.asked().is_some()
    }

    /// Does the target want a head that others do not get?
    fn edits_head(&self, host: &str) -> bool {
        let options = &self.target.options;
        let set = options.strip.is_some() || options.edits.is_some() || options.host.is_some();
        set || self.grant.is_some() || host.is_empty() || self.target.destination.is_grpc()
    }
}

impl Common<'_> {
    /// Makes the headers those for this target.
    fn suit(&self, headers: &mut HeaderMap, forward: &Forward) {
        let Forward { target, grant, .. } = forward;
        if let Some(strip) = &target.options.strip {
            headers::tell_prefix(headers, strip);
        }
        if let Some(edits) = &target.options.edits {
            edits.request.apply(headers);
        }
        if let Some((_, grant)) = grant {
            grant.apply(headers);
        }
        match &target.options.host {
            // HTTP/1.0 need not name a host, HTTP/1.1 must.
            None if self.host.is_empty() => set_host(headers, &target.destination.authority),
            // As fabio.
            None if target.destination.is_grpc() => {
                let name = target.options.grpc_server_name.as_deref();
                set_host(headers, name.unwrap_or(&target.destination.authority));
            }
            None => {}
            Some(HostOption::Destination) => set_host(headers, &target.destination.authority),
            Some(HostOption::Name(name)) => set_host(headers, name),
        }
        if let Some(protocol) = &self.upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
        if self.chunked {
            // Or a GET with a body of unknown length would be sent without it.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
}

impl Run {
    /// Why it should be sent again after this response, if it should.
    fn after_response(&self, head: &Parts, forward: &Forward, status: StatusCode) -> Option<Why> {
        let tries = forward.asked()?;
        let failed = tries.on_status(status) && self.may_go_on(forward) && tries.permits(&head.method, &head.headers);
        (failed && self.body.can_rewind()).then_some(Why::Status)
    }

    /// Why it should be sent again after this error, if it should.
    fn after_error(&self, head: &Parts, forward: &Forward, error: &Error) -> Option<Why> {
        let off = forward.tries().is_some_and(|tries| tries.again == Some(0));
        let moves = !off && !forward.alone && self.moved < MOVES && self.has_time();
        if error.is_connect() {
            let again = forward.asked().is_some_and(Tries::on_connect) && self.may_go_on(forward);
            return (moves || again).then_some(Why::Unreachable);
        }
        let died = matches!(error, Error::Closed(_)) && moves && !self.died;
        let died = died && upstream::is_repeatable(head) && self.body.can_rewind();
        let died = died.then_some(Why::Died);
        let Some(tries) = forward.asked() else { return died };
        let why = match error {
            Error::Closed(_) | Error::Malformed(_) if tries.on_reset() => Why::Reset,
            // Nobody has looked at it, so any method will do.
            Error::Refused(_) if tries.on_refused() => {
                return (self.may_go_on(forward) && self.body.can_rewind()).then_some(Why::Refused);
            }
            Error::HeadTimeout | Error::TryTimeout if tries.on_timeout() => Why::Timeout,
            _ => return died,
        };
        let may = self.may_go_on(forward) && tries.permits(&head.method, &head.headers) && self.body.can_rewind();
        may.then_some(why).or(died)
    }

    /// Is there a try left of those that were asked for?
    fn may_go_on(&self, forward: &Forward) -> bool {
        let tries = forward.asked().and_then(|tries| tries.again);
        tries.is_some_and(|tries| self.again < tries) && self.has_time()
    }

    fn has_time(&self) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }
}

/// Why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Unreachable,
    /// The connection ended instead of a response.
    Died,
    Refused,
    Reset,
    Timeout,
    Status,
}

impl Why {
    fn name(self) -> &'static str {
        match self {
            Why::Unreachable => "connect",
            Why::Died => "closed",
            Why::Refused => "refused-stream",
            Why::Reset => "reset",
            Why::Timeout => "timeout",
            Why::Status => "status",
        }
    }
}

/// What a try says about the health of its target. `None`: nothing.
fn verdict(answer: &Result<Response<ResponseBody>, Error>, target: &TargetState, effort: &Effort) -> Option<Verdict> {
    match answer {
        Ok(response) => {
            let status = response.status();
            if !status.is_client_error() && !status.is_server_error() {
                return Some(Verdict::Fine);
            }
            let failure = target.options.tries.as_ref().is_some_and(|tries| tries.asked() && tries.on_status(status));
            Some(match status.as_u16() {
                502..=504 => Verdict::Gateway,
                _ if failure => Verdict::Gateway,
                500.. => Verdict::Failed,
                _ => Verdict::Fine,
            })
        }
        Err(error) if error.is_connect() => Some(Verdict::Broken),
        // A kept connection may end at any time.
        Err(Error::Closed(_)) => effort.connect.get().is_some().then_some(Verdict::Broken),
        Err(Error::HeadTimeout | Error::TryTimeout | Error::Refused(_) | Error::Malformed(_)) => Some(Verdict::Gateway),
        Err(_) => None,
    }
}

fn set_host(headers: &mut HeaderMap, host: &str) {
    if let Ok(value) = HeaderValue::from_str(host) {
        headers.insert(HOST, value);
    }
}

/// Targets that are tried beside the first one when there is no connection. More would keep a client waiting for what is a
/// general outage.
const MOVES: u32 = 3;
