//! Which path means what: the table of endpoints, and what all of them have in common.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

use super::answer::{Answer, Handled};
use super::{agent, catalog, health, kv, sessions, status};
use crate::agent::Shared;
use crate::go_text::clean_path;

/// A request as endpoints see it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    /// What follows the endpoint's pattern, decoded.
    pub(super) rest: String,
    pub(super) query: Query,
    pub(super) body: Bytes,
}

/// A decoded query string.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    AgentSelf,
    AgentMembers,
    AgentServices,
    AgentService,
    AgentChecks,
    AgentMaintenance,
    ServiceRegister,
    ServiceDeregister,
    ServiceMaintenance,
    CheckRegister,
    CheckDeregister,
    CheckPass,
    CheckWarn,
    CheckFail,
    CheckUpdate,
    CatalogRegister,
    CatalogDeregister,
    CatalogDatacenters,
    CatalogNodes,
    CatalogNode,
    CatalogServices,
    CatalogService,
    HealthState,
    HealthService,
    HealthNode,
    HealthChecks,
    Kv,
    SessionCreate,
    SessionDestroy,
    SessionRenew,
    SessionInfo,
    SessionNode,
    SessionList,
    StatusLeader,
    StatusPeers,
}

type Route = (&'static str, &'static [&'static str], Endpoint, bool);

/// Pattern, methods, endpoint, and whether it looks at `ns`. A pattern that ends in a slash matches what begins with it.
const ENDPOINTS: &[Route] = &[
    ("/v1/agent/self", &["GET"], Endpoint::AgentSelf, false),
    ("/v1/agent/members", &["GET"], Endpoint::AgentMembers, false),
    ("/v1/agent/services", &["GET"], Endpoint::AgentServices, true),
    ("/v1/agent/service/", &["GET"], Endpoint::AgentService, true),
    ("/v1/agent/checks", &["GET"], Endpoint::AgentChecks, true),
    ("/v1/agent/maintenance", &["PUT"], Endpoint::AgentMaintenance, false),
    ("/v1/agent/service/register", &["PUT"], Endpoint::ServiceRegister, true),
    ("/v1/agent/service/deregister/", &["PUT"], Endpoint::ServiceDeregister, true),
    ("/v1/agent/service/maintenance/", &["PUT"], Endpoint::ServiceMaintenance, true),
    ("/v1/agent/check/register", &["PUT"], Endpoint::CheckRegister, true),
    ("/v1/agent/check/deregister/", &["PUT"], Endpoint::CheckDeregister, true),
    ("/v1/agent/check/pass/", &["PUT"], Endpoint::CheckPass, true),
    ("/v1/agent/check/warn/", &["PUT"], Endpoint::CheckWarn, true),
    ("/v1/agent/check/fail/", &["PUT"], Endpoint::CheckFail, true),
    ("/v1/agent/check/update/", &["PUT"], Endpoint::CheckUpdate, true),
    ("/v1/catalog/register", &["PUT"], Endpoint::CatalogRegister, true),
    ("/v1/catalog/deregister", &["PUT"], Endpoint::CatalogDeregister, true),
    ("/v1/catalog/datacenters", &["GET"], Endpoint::CatalogDatacenters, false),
    ("/v1/catalog/nodes", &["GET"], Endpoint::CatalogNodes, false),
    ("/v1/catalog/node/", &["GET"], Endpoint::CatalogNode, true),
    ("/v1/catalog/services", &["GET"], Endpoint::CatalogServices, true),
    ("/v1/catalog/service/", &["GET"], Endpoint::CatalogService, true),
    ("/v1/health/state/", &["GET"], Endpoint::HealthState, true),
    ("/v1/health/service/", &["GET"], Endpoint::HealthService, true),
    ("/v1/health/node/", &["GET"], Endpoint::HealthNode, true),
    ("/v1/health/checks/", &["GET"], Endpoint::HealthChecks, true),
    ("/v1/kv/", &["GET", "PUT", "DELETE"], Endpoint::Kv, true),
    ("/v1/session/create", &["PUT"], Endpoint::SessionCreate, true),
    ("/v1/session/destroy/", &["PUT"], Endpoint::SessionDestroy, true),
    ("/v1/session/renew/", &["PUT"], Endpoint::SessionRenew, true),
    ("/v1/session/info/", &["GET"], Endpoint::SessionInfo, true),
    ("/v1/session/node/", &["GET"], Endpoint::SessionNode, true),
    ("/v1/session/list", &["GET"], Endpoint::SessionList, true),
    ("/v1/status/leader", &["GET"], Endpoint::StatusLeader, false),
    ("/v1/status/peers", &["GET"], Endpoint::StatusPeers, false),
];

pub(super) async fn answer(shared: &Arc<Shared>, request: &Parts, body: Bytes) -> Answer {
    let path = percent_decode_str(request.uri.path()).decode_utf8_lossy().into_owned();
    let browsing = matches!(request.method, Method::GET | Method::HEAD);
    let clean = clean_path(&path);
    let slashed = format!("{path}/");
    let is_folder = ENDPOINTS.iter().any(|(pattern, ..)| *pattern == slashed);
    if clean != path || is_folder {
        // Go's multiplexer redirects; a client that does not follow loses its write here as there.
        let to = if clean == path { slashed } else { clean };
        let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        return Answer::moved(&format!("{}{query}", encode_path(&to)), browsing);
    }
    let matching = ENDPOINTS.iter().filter(|(pattern, ..)| match pattern.ends_with('/') {
        true => path.starts_with(pattern),
        false => path == *pattern,
    });
    let Some(route) = matching.max_by_key(|(pattern, ..)| pattern.len()) else {
        return Answer::not_found();
    };
    let mut answer = answer_endpoint(shared, request, body, &path[route.0.len()..], *route).await;
    // Consul would compress if asked to, and says so with every answer of an endpoint.
    answer.header("vary", "Accept-Encoding");
    answer
}

async fn answer_endpoint(
    shared: &Arc<Shared>,
    request: &Parts,
    body: Bytes,
    rest: &str,
    (_, methods, endpoint, namespaced): Route,
) -> Answer {
    let allow = || format!("OPTIONS,{}", methods.join(","));
    if request.method == Method::OPTIONS {
        let mut answer = Answer::ok();
        answer.header("allow", allow());
        return answer;
    }
    if !methods.contains(&request.method.as_str()) {
        let text = format!("method {} not allowed", request.method);
        let mut answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, text);
        answer.header("allow", allow());
        return answer;
    }
    let call = Call {
        method: request.method.clone(),
        rest: rest.to_owned(),
        query: Query::parse(request.uri.query().unwrap_or_default()),
        body,
    };
    if namespaced && call.query.get("ns").is_some_and(|ns| !ns.is_empty()) {
        return Answer::bad(
            "Bad request: Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature",
        );
    }
    dispatch(endpoint, shared, call).await.unwrap_or_else(|refusal| refusal)
}

async fn dispatch(endpoint: Endpoint, shared: &Arc<Shared>, call: Call) -> Handled {
    match endpoint {
        Endpoint::AgentSelf => Ok(agent::this(shared)),
        Endpoint::AgentMembers => Ok(agent::members(shared)),
        Endpoint::AgentServices => agent::services(shared, &call),
        Endpoint::AgentService => agent::service(shared, &call),
        Endpoint::AgentChecks => agent::checks(shared, &call),
        Endpoint::AgentMaintenance => agent::node_maintenance(shared, &call),
        Endpoint::ServiceRegister => agent::register_service(shared, &call),
        Endpoint::ServiceDeregister => agent::deregister_service(shared, &call),
        Endpoint::ServiceMaintenance => agent::service_maintenance(shared, &call),
        Endpoint::CheckRegister => agent::register_check(shared, &call),
        Endpoint::CheckDeregister => agent::deregister_check(shared, &call),
        Endpoint::CheckPass => agent::report(shared, &call, "passing"),
        Endpoint::CheckWarn => agent::report(shared, &call, "warning"),
        Endpoint::CheckFail => agent::report(shared, &call, "critical"),
        Endpoint::CheckUpdate => agent::update_check(shared, &call),
        Endpoint::CatalogRegister => catalog::register(shared, &call),
        Endpoint::CatalogDeregister => catalog::deregister(shared, &call),
        Endpoint::CatalogDatacenters => Ok(catalog::datacenters(shared)),
        Endpoint::CatalogNodes => catalog::nodes(shared, &call).await,
        Endpoint::CatalogNode => catalog::node(shared, &call).await,
        Endpoint::CatalogServices => catalog::services(shared, &call).await,
        Endpoint::CatalogService => catalog::service(shared, &call).await,
        Endpoint::HealthState => health::state(shared, &call).await,
        Endpoint::HealthService => health::service(shared, &call).await,
        Endpoint::HealthNode => health::node(shared, &call).await,
        Endpoint::HealthChecks => health::checks(shared, &call).await,
        Endpoint::Kv => kv::handle(shared, &call).await,
        Endpoint::SessionCreate => sessions::create(shared, &call),
        Endpoint::SessionDestroy => sessions::destroy(shared, &call),
        Endpoint::SessionRenew => sessions::renew(shared, &call),
        Endpoint::SessionInfo => sessions::info(shared, &call).await,
        Endpoint::SessionNode => sessions::node(shared, &call).await,
        Endpoint::SessionList => sessions::list(shared, &call).await,
        Endpoint::StatusLeader => Ok(status::leader(shared)),
        Endpoint::StatusPeers => Ok(status::peers(shared)),
    }
}

impl Query {
    fn parse(text: &str) -> Self {
        let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sorted by name, with a `=` in every pair.
    pub(super) fn encoded(&self) -> String {
        let mut pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.sort();
        pairs.join("&")
    }
}

/// As Go writes a path into `Location`.
fn encode_path(path: &str) -> String {
    use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
    const IN_PATH: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'<')
        .add(b'>')
        .add(b'?')
        .add(b'\\')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}');
    utf8_percent_encode(path, IN_PATH).to_string()
}
