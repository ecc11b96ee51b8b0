//! Which target of a route a request goes to, by what it speaks, and how it travels there.

use http::Version;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;

use super::choose::{self, Wish};
use super::{answer, grpc, is_websocket};
use crate::http1::Present;
use crate::route::{Options, Route, Scheme, Target};
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
    /// All targets are shut out by their weight, or were tried.
    Nobody,
}

/// How well a target suits a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Good,
    /// If there is no other.
    Poor,
    None,
}

impl Kind {
    /// `present`: fields that the head may have.
    pub(super) fn of(head: &Parts, present: Present) -> Self {
        if !present.any(TELLING) {
            return Self::Plain;
        }
        if is_websocket(&head.headers) {
            return Self::WebSocket;
        }
        if head.version == Version::HTTP_2 && grpc::calls(head.version, &head.headers) {
            return Self::Call;
        }
        let web = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        if head.headers.get(CONTENT_TYPE).is_some_and(web) || answer::is_preflight(head) {
            return Self::Web;
        }
        Self::Plain
    }

    /// The target for a try among those that speak the same; see [`choose::choose`].
    pub(super) fn choose<'t>(self, route: &'t Route, wish: &Wish<'_>, tried: &[u128], on_grpc: bool) -> Choice<'t> {
        let among = |fit| {
            let speaks = |target: &Target| self.fit(target, on_grpc) == fit;
            choose::choose(route, &Wish { speaks: Some(&speaks), ..*wish }, tried)
        };
        if let Some(target) = among(Fit::Good) {
            return Choice::Fits(target);
        }
        let mut open = route.targets.iter().filter(|target| target.share > 0.0).peekable();
        if open.peek().is_none() || open.any(|target| self.fit(target, on_grpc) == Fit::Good) {
            return Choice::Nobody;
        }
        Choice::Other(among(Fit::Poor))
    }

    pub(super) fn fit(self, target: &Target, on_grpc: bool) -> Fit {
        match (self, target.destination.scheme) {
            (Kind::Call, Scheme::Grpc | Scheme::Grpcs) => Fit::Good,
            // Any server that speaks HTTP/2 may serve gRPC.
            (Kind::Call, Scheme::Http | Scheme::Https) if speaks_h2(&target.options) && !is_redirect(target) => {
                Fit::Good
            }
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

/// Without these a request is a plain one.
const TELLING: Present = Present::UPGRADE.with(Present::CONTENT_TYPE).with(Present::ORIGIN);

fn is_redirect(target: &Target) -> bool {
    target.options.redirect.is_some()
}

fn speaks_h2(options: &Options) -> bool {
    options.http2 || offers_h2(options)
}

/// `alpn=h2`.
fn offers_h2(options: &Options) -> bool {
    options.reach.as_ref().is_some_and(|reach| reach.alpn.iter().any(|name| **name == *"h2"))
}

/// `on_grpc`: the request came in on a listener for gRPC, where all targets are taken to speak it.
pub(super) fn protocol(target: &TargetState, on_grpc: bool) -> Protocol {
    match target.destination.scheme {
        Scheme::Grpc | Scheme::Grpcs => Protocol::H2,
        Scheme::Https if target.options.http2 || on_grpc => Protocol::Either,
        Scheme::Https if offers_h2(&target.options) => Protocol::Either,
        Scheme::Http if target.options.http2 || on_grpc => Protocol::H2,
        _ => Protocol::Http1,
    }
}
