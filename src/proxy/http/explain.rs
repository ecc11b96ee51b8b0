//! Where a request would go, and why. Asks what the phases of a request ask, in the same order; only nothing is sent, counted
//! or waited for. For people: takes its time, and is never on the path of a request.

mod words;

use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode, Version};

use self::words::{notes, place};
use super::choice::{Fit, Kind};
use super::{access, answer, headers, hosts, request, tls_location, used_scheme};
use crate::http1::Present;
use crate::proxy::Config;
use crate::route::path::{self, Cleaned};
use crate::route::{
    Access, Candidate, Choice, Class, Explanation, Outcome, Question, Redirect, Route, Table, Target, asked_host,
    near_misses, why,
};

/// What a proxy with this configuration does.
#[derive(Clone, Debug)]
pub struct Explainer {
    config: Config,
    /// Ports of listeners for HTTP without TLS, and the port with TLS that they send everybody to.
    plain: Vec<(u16, Option<u16>)>,
}

/// A request as far as it is known.
struct Asked<'a> {
    question: &'a Question,
    head: Parts,
    cleaned: &'a Cleaned<'a>,
    kind: Kind,
}

/// What becomes of a request that goes to a target.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Forward(String),
    Redirect(u16, String),
    /// A redirect to where the request comes from: the next route is asked.
    Loop,
    Denied,
    /// ferrio's own answer, and the reason.
    Own(StatusCode, &'static str),
}

/// What a route does with a request.
enum Verdict {
    /// The next route is asked; completes "passed over, because ".
    Pass(String),
    /// Targets that speak something else, taken if no other route of this host is.
    Other(Vec<Fate>),
    Take(Vec<Fate>),
    /// All targets have weight 0.
    Nobody,
}

impl Explainer {
    /// `plain`: ports of listeners for HTTP without TLS, and the port with TLS that they send everybody to, if they do.
    pub fn new(config: Config, plain: Vec<(u16, Option<u16>)>) -> Self {
        Self { config, plain }
    }

    pub fn explain(&self, table: &Table, question: &Question) -> Explanation {
        let cleaned = path::clean(&question.path);
        let mut explanation = Explanation {
            host: asked_host(&question.host, question.tls),
            tls: question.tls,
            path: String::from_utf8_lossy(&cleaned.decoded).into_owned(),
            query: question.query.clone(),
            outcome: Outcome::NoRoute,
            status: Some(self.config.no_route_status),
            summary: format!("No route fits {}{}.", question.host, cleaned.raw),
            chosen: None,
            candidates: Vec::new(),
            close: Vec::new(),
        };
        let (head, host) = match self.head(question) {
            Ok(asked) => asked,
            Err((status, reason)) => {
                explanation.answered(status, reason);
                return explanation;
            }
        };
        if !question.tls
            && let Some(port) = self.redirect(&host)
            && !used_scheme(&head.headers, false).eq_ignore_ascii_case("https")
        {
            match tls_location(&head, &host, port) {
                Some((code, location)) => {
                    explanation.outcome = Outcome::Redirect;
                    explanation.status = Some(code);
                    explanation.summary = format!("The listener sends everybody to TLS: {location}.");
                }
                None => explanation.answered(StatusCode::BAD_REQUEST, "there is no Host to redirect to"),
            }
            return explanation;
        }
        let kind = Kind::of(&head, Present::of(&head.headers));
        let asked = Asked { question, head, cleaned: &cleaned, kind };
        self.walk(table, &asked, &host, &mut explanation);
        explanation.close = near_misses(table, &host, question.tls, &cleaned)
            .into_iter()
            .map(|(route, reason)| Candidate { reason, ..self.candidate(&asked, &host, route) })
            .collect();
        explanation
    }

    /// The request, checked as one that comes in, and the host that it asks for. Else the answer and the reason.
    fn head(&self, question: &Question) -> Result<(Parts, String), (StatusCode, &'static str)> {
        const MALFORMED: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "the request line is malformed");
        let target = match &question.query {
            Some(query) => format!("{}?{}", question.path, visible(query)),
            None => question.path.clone(),
        };
        let mut request = Request::new(());
        *request.method_mut() = question.method.clone();
        *request.uri_mut() = target.parse().map_err(|_| MALFORMED)?;
        *request.headers_mut() = question.headers.clone();
        let host = HeaderValue::from_str(&question.host).map_err(|_| MALFORMED)?;
        request.headers_mut().insert(HOST, host);
        let is_call = |kind: &HeaderValue| {
            kind.as_bytes().starts_with(b"application/grpc") && !kind.as_bytes().starts_with(b"application/grpc-web")
        };
        if request.headers().get(CONTENT_TYPE).is_some_and(is_call) {
            // Only HTTP/2 carries calls.
            *request.version_mut() = Version::HTTP_2;
        }
        let present = Present::of(request.headers());
        let host = match request::asked(&mut request, present, self.config.max_target_size) {
            Ok(request::Asked::Path(host)) => host.to_str().unwrap_or_default().to_owned(),
            Ok(request::Asked::Options) => return Err((StatusCode::OK, "OPTIONS * is about the proxy")),
            Err(refusal) => return Err((refusal.answer().status(), refusal.reason())),
        };
        if let Some(peer) = question.peer {
            headers::distrust(self.config.trusted.as_deref(), request.headers_mut(), peer);
        }
        Ok((request.into_parts().0, host))
    }

    /// Where the listener of this host's port sends everybody. Behind a port that is no listener's, all of them must.
    fn redirect(&self, host: &str) -> Option<u16> {
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
        match self.plain.iter().find(|(known, _)| *known == port) {
            Some((_, redirect)) => *redirect,
            None if self.plain.iter().all(|(_, redirect)| redirect.is_some()) => self.plain.first()?.1,
            None => None,
        }
    }

    fn walk(&self, table: &Table, asked: &Asked<'_>, host: &str, explanation: &mut Explanation) {
        let (head, cleaned, tls) = (&asked.head, asked.cleaned, asked.question.tls);
        let mut seen: Vec<&Route> = Vec::new();
        for host in hosts(table, head, host, tls, cleaned, asked.kind, self.config.strip_port) {
            let mut other = None;
            for route in table.http(host, tls, &cleaned.decoded) {
                if seen.iter().any(|known| std::ptr::eq(*known, route)) {
                    continue;
                }
                if seen.len() == CANDIDATES {
                    break;
                }
                seen.push(route);
                let mut candidate = self.candidate(asked, host, route);
                candidate.reason = why(table, route);
                if let Some(conditions) = &route.conditions {
                    candidate.reason.push_str(&format!(", only with {}", conditions.text().trim_end()));
                }
                let at = explanation.candidates.len();
                let verdict = self.judge(asked, host, route);
                if explanation.chosen.is_some() && !matches!(verdict, Verdict::Pass(_)) {
                    candidate.reason.push_str("; not reached, because one before it is taken");
                    explanation.candidates.push(candidate);
                    continue;
                }
                match verdict {
                    Verdict::Pass(reason) => candidate.reason.push_str(&format!("; passed over, because {reason}")),
                    Verdict::Other(fates) => {
                        candidate.reason.push_str("; passed over, because its targets speak another protocol");
                        let poor = other.as_ref().is_some_and(|(_, fates): &(_, Vec<Fate>)| !fates.is_empty());
                        if !poor && (other.is_none() || !fates.is_empty()) {
                            other = Some((at, fates));
                        }
                    }
                    Verdict::Take(fates) => explanation.take(at, route, &candidate, &fates),
                    Verdict::Nobody => {
                        let place = place(route);
                        explanation.chosen = Some(at);
                        explanation.outcome = Outcome::NoTarget;
                        explanation.status = Some(StatusCode::SERVICE_UNAVAILABLE.as_u16());
                        explanation.summary =
                            format!("Route {place} is taken, but all of its targets have weight 0: 503.");
                    }
                }
                explanation.candidates.push(candidate);
            }
            if let (None, Some((at, fates))) = (explanation.chosen, other) {
                let route = seen[at];
                if fates.is_empty() {
                    explanation.chosen = Some(at);
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    explanation.answered(status, "the only routes that fit have targets of another protocol");
                } else if fates.iter().any(|fate| *fate != Fate::Loop) {
                    let candidate = explanation.candidates[at].clone();
                    explanation.take(at, route, &candidate, &fates);
                }
            }
        }
    }

    fn judge(&self, asked: &Asked<'_>, host: &str, route: &Route) -> Verdict {
        if !route.fits(&asked.head, &asked.cleaned.decoded) {
            let plain = asked.head.method == http::Method::GET && asked.question.headers.is_empty();
            let conditions = route.conditions.as_ref().map_or("", |conditions| conditions.text());
            return Verdict::Pass(match plain {
                true => "a GET without headers does not fulfil its conditions".to_owned(),
                false => format!("the request does not meet its conditions: {conditions}"),
            });
        }
        let open = || route.targets.iter().filter(|target| target.share > 0.0);
        let fates = |fit: Fit| -> Vec<Fate> {
            open()
                .filter(|target| asked.kind.fit(target, false) == fit)
                .map(|target| self.fate(asked, host, target))
                .collect()
        };
        let good = fates(Fit::Good);
        if good.iter().any(|fate| *fate != Fate::Loop) {
            return Verdict::Take(good);
        }
        if !good.is_empty() {
            return Verdict::Pass("its redirect leads to the same URL".to_owned());
        }
        if open().next().is_none() {
            return Verdict::Nobody;
        }
        Verdict::Other(fates(Fit::Poor))
    }

    fn fate(&self, asked: &Asked<'_>, host: &str, target: &Target) -> Fate {
        let Asked { head, cleaned, .. } = asked;
        let options = &*target.options;
        let location = options.redirect.as_ref().map(|redirect| {
            let location = redirect.location(target, host, cleaned, head.uri.query());
            (redirect.code, location)
        });
        if let Some((_, location)) = &location
            && Redirect::loops(location, used_scheme(&head.headers, asked.question.tls), host, &cleaned.raw)
        {
            return Fate::Loop;
        }
        if self.permitted(asked, &options.access) == Some(false) {
            return Fate::Denied;
        }
        if let Some(cors) = options.edits.as_ref().and_then(|edits| edits.cors.as_ref())
            && answer::is_preflight(head)
        {
            return Fate::Own(answer::preflight(cors, &head.headers).status(), "what a page may do is asked");
        }
        if let Some((code, location)) = location {
            return Fate::Redirect(code, location);
        }
        let limit = options.max_body.unwrap_or(self.config.max_body);
        if limit > 0 && super::content_length(&head.headers).is_some_and(|length| length > limit) {
            return Fate::Own(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than the route lets pass");
        }
        let own = target.destination.query.as_deref();
        match request::forward_target(head.uri.path_and_query(), &cleaned.forward(options), own) {
            Some(target) => Fate::Forward(target.as_str().to_owned()),
            None => Fate::Own(StatusCode::BAD_REQUEST, "what the target would be asked for is no request target"),
        }
    }

    /// `None`: that depends on who asks, which is not said.
    fn permitted(&self, asked: &Asked<'_>, rules: &Access) -> Option<bool> {
        let trusted = self.config.trusted.as_deref();
        match asked.question.peer {
            Some(peer) => Some(access::permits(rules, peer, &asked.head.headers, trusted)),
            None => access::permits_anybody(rules, &asked.head.headers, trusted),
        }
    }

    fn candidate(&self, asked: &Asked<'_>, host: &str, route: &Route) -> Candidate {
        let class = match route.class {
            Class::Http => "http",
            Class::Tcp => "tcp",
            Class::Udp => "udp",
        };
        Candidate {
            class: class.to_owned(),
            host: route.host.to_string(),
            path: route.path.to_string(),
            reason: String::new(),
            targets: route.targets.iter().map(|target| self.choice(asked, host, target)).collect(),
        }
    }

    fn choice(&self, asked: &Asked<'_>, host: &str, target: &Target) -> Choice {
        let options = &*target.options;
        let (mut forward, mut location) = (None, None);
        match self.fate(asked, host, target) {
            Fate::Forward(asked_for) if asked.kind.fit(target, false) != Fit::None => forward = Some(asked_for),
            Fate::Redirect(_, url) => location = Some(url),
            _ => {}
        }
        let permitted = match &options.access {
            Access::Everyone => None,
            rules => self.permitted(asked, rules),
        };
        Choice {
            service: target.service.to_string(),
            instance: target.instance.as_ref().map(ToString::to_string),
            datacenter: target.datacenter.as_ref().map(|datacenter| datacenter.name.to_string()),
            destination: target.destination.text.clone(),
            tags: target.tags.iter().map(ToString::to_string).collect(),
            share: target.share,
            options: options.raw.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            forward,
            location,
            notes: notes(target, permitted),
            permitted,
            auth: options.auth.clone(),
        }
    }
}

/// A query as it can stand in a `Uri`. Bytes that cannot are forwarded as they came, but no rule looks at them.
fn visible(query: &str) -> String {
    let mut out = String::with_capacity(query.len());
    for byte in query.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => out.push_str(&format!("%{byte:02X}")),
            _ if byte.is_ascii_graphic() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Of one question. A table can have any number of routes for a path.
const CANDIDATES: usize = 100;

#[cfg(test)]
mod tests;
