//! `mirror=`: copies of requests for another service, whose answers nobody sees.
//!
//! A copy is a task of its own, with a place in a bounded number of them and a time in which it must be over. Whatever
//! becomes of it, the request that it was made from does not notice. Only requests without a body are copied.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http_body::Body as _;

use super::{Worker, choice};
use crate::metrics::names;
use crate::net::Peer;
use crate::proxy::preamble;
use crate::route::Scheme;
use crate::upstream::{Effort, Exchange, Pools, RequestBody, ServiceState, TargetState};

/// The copies of one worker that are on their way.
#[derive(Clone, Default)]
pub(super) struct Copies(Rc<Cell<usize>>);

/// Counts a copy until it is dropped.
struct Place(Copies);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() - 1);
    }
}

impl Copies {
    fn enter(&self) -> Option<Place> {
        if self.0.get() >= MOST {
            return None;
        }
        self.0.set(self.0.get() + 1);
        Some(Place(self.clone()))
    }
}

/// Sends a copy, if the route of the target wants one of this request. `bodiless`: the request has no body.
pub(super) fn copy(worker: &Worker, target: &TargetState, peer: &Peer, head: &Parts, bodiless: bool) {
    let (Some(mirror), Some(service)) = (&target.options.mirror, &target.mirror) else { return };
    if !mirror.takes(fastrand::u64(..)) {
        return;
    }
    match start(worker, service, peer, head, bodiless) {
        Ok(()) => {}
        Err(why) => count(service, why),
    }
}

fn start(
    worker: &Worker,
    service: &Arc<ServiceState>,
    peer: &Peer,
    head: &Parts,
    bodiless: bool,
) -> Result<(), &'static str> {
    if !bodiless {
        return Err("body");
    }
    let shadow = service.pick(fastrand::u64(..)).filter(|shadow| speaks_http(shadow)).ok_or("no_instance")?;
    let place = worker.copies.enter().ok_or("too_many")?;
    let preamble = preamble(shadow.options.proxy_protocol, peer, None);
    let (head, service, pools) = (head.clone(), service.clone(), worker.pools.clone());
    tokio::task::spawn_local(async move {
        let sent = tokio::time::timeout(LONGEST, send(&pools, &shadow, &preamble, &head)).await;
        count(&service, if matches!(sent, Ok(Ok(()))) { "answered" } else { "failed" });
        drop(place);
    });
    Ok(())
}

/// Reads the answer to its end, so that the connection can be used again.
async fn send(pools: &Pools, shadow: &TargetState, preamble: &[u8], head: &Parts) -> Result<(), ()> {
    let effort = Effort::default();
    let protocol = choice::protocol(shadow, false);
    let exchange =
        Exchange { pools, endpoint: &shadow.endpoint, protocol, preamble, times: pools.times(), effort: &effort };
    let response = exchange.send(head, &RequestBody::empty()).await.map_err(drop)?;
    let mut body = response.into_body();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        frame.map_err(drop)?;
    }
    Ok(())
}

fn speaks_http(shadow: &TargetState) -> bool {
    matches!(shadow.destination.scheme, Scheme::Http | Scheme::Https) && shadow.options.redirect.is_none()
}

fn count(service: &ServiceState, result: &'static str) {
    metrics::counter!(names::MIRRORED, "service" => service.name.to_string(), "result" => result).increment(1);
}

/// Copies at a time, of one worker.
const MOST: usize = 128;
/// For one copy.
const LONGEST: Duration = Duration::from_secs(30);
