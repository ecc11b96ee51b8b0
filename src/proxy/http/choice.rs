//! Which target of a route a request goes to, by what it speaks, and how it travels there.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Version};

use super::{answer, grpc, is_websocket};
use crate::route::{Route, Scheme, Target};
use crate::upstream::{Protocol, TargetState};

/// What a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    WebSocket,
    /// gRPC.
    Call,
    /// What a page does to call gRPC services: grpc-web, or asking whether it may.
    Web,
}

/// What a route has for a request.
pub(super) enum Choice<'t> {
    Fits(&'t Target),
    /// Targets that speak something else; perhaps one that might do.
    Other(Option<&'t Target>),
    /// All targets are shut out by their weight.
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Good,
    /// If there is no other.
    Poor,
    None,
}

impl Kind {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        if is_websocket(request.headers()) {
            return Self::WebSocket;
        }
        if request.version() == Version::HTTP_2 && grpc::is_call(request) {
            return Self::Call;
        }
        let web = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        if request.headers().get(CONTENT_TYPE).is_some_and(web) || answer::is_preflight(request) {
            return Self::Web;
        }
        Self::Plain
    }

    /// `turn`: whose turn it would be. If that one does not fit, the shares of those that do decide.
    pub(super) fn choose<'t>(self, route: &'t Route, turn: Option<&'t Target>, on_grpc: bool) -> Choice<'t> {
        let Some(turn) = turn else { return Choice::Nobody };
        if self.fit(turn, on_grpc) == Fit::Good {
            return Choice::Fits(turn);
        }
        if let Some(target) = self.among(route, Fit::Good, on_grpc) {
            return Choice::Fits(target);
        }
        Choice::Other(self.among(route, Fit::Poor, on_grpc))
    }

    fn among(self, route: &Route, fit: Fit, on_grpc: bool) -> Option<&Target> {
        let fitting = || route.targets.iter().filter(|target| target.share > 0.0 && self.fit(target, on_grpc) == fit);
        let sum: f64 = fitting().map(|target| target.share).sum();
        let mut left = fastrand::f64() * sum;
        let chosen = fitting().find(|target| {
            left -= target.share;
            left < 0.0
        });
        // Rounding may leave a rest.
        chosen.or_else(|| fitting().next())
    }

    fn fit(self, target: &Target, on_grpc: bool) -> Fit {
        match (self, target.destination.scheme) {
            (Kind::Call, Scheme::Grpc | Scheme::Grpcs) => Fit::Good,
            // Any server that speaks HTTP/2 may serve gRPC.
            (Kind::Call, Scheme::Http | Scheme::Https) if target.options.http2 && !is_redirect(target) => Fit::Good,
            (Kind::Call, Scheme::Http | Scheme::Https) => Fit::Poor,
            (Kind::Web, Scheme::Grpc | Scheme::Grpcs) => Fit::Poor,
            (Kind::Plain | Kind::Web, Scheme::Http | Scheme::Https) => Fit::Good,
            (Kind::WebSocket, Scheme::Http | Scheme::Https | Scheme::Ws | Scheme::Wss) => Fit::Good,
            // Only calls come in on such a listener.
            (Kind::Plain, Scheme::Grpc | Scheme::Grpcs) if on_grpc => Fit::Poor,
            _ => Fit::None,
        }
    }
}

fn is_redirect(target: &Target) -> bool {
    target.options.redirect.is_some()
}

/// `on_grpc`: the request came in on a listener for gRPC, where all targets are taken to speak it.
pub(super) fn protocol(target: &TargetState, on_grpc: bool) -> Protocol {
    match target.destination.scheme {
        Scheme::Grpc | Scheme::Grpcs => Protocol::H2,
        Scheme::Https if target.options.http2 || on_grpc => Protocol::Either,
        Scheme::Http if target.options.http2 || on_grpc => Protocol::H2,
        _ => Protocol::Http1,
    }
}
