//! What a route limits: the rate of its requests, and how many are under way.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::HeaderMap;
use ipnet::IpNet;

use super::access;
use crate::limit::{Buckets, Pace};
use crate::route::{Limits, Rate, RateKey};
use crate::upstream::{Full, OnRoute, Permit, RouteState, TargetState};

/// Takes a token for the request; or gives the time until there is one.
pub(super) fn rate(
    rate: &Rate,
    route: &RouteState,
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: Option<&[IpNet]>,
) -> Result<(), Duration> {
    if route.buckets.is_empty() {
        route.buckets.fill(Arc::new(Buckets::default()));
    }
    let Some(buckets) = route.buckets.get::<Buckets>() else { return Ok(()) };
    let pace = Pace { interval: rate.interval, burst: rate.burst };
    let now = nanos();
    match &rate.key {
        RateKey::Route => buckets.whole.take(now, pace),
        RateKey::Client => buckets.keys().take(network(access::client(peer, headers, trusted)), now, pace),
        // Those without the header share a bucket.
        RateKey::Header(name) => {
            buckets.keys().take(headers.get(name).map_or(&b""[..], |value| value.as_bytes()), now, pace)
        }
    }
}

/// A home or a phone has a whole /64 of IPv6.
fn network(client: IpAddr) -> u128 {
    match client {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) >> 64 << 64,
    }
}

/// What a request that is under way has taken of a limit. Dropped, it gives that back.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permit: Option<Permit>,
    on_route: Option<OnRoute>,
}

impl Held {
    /// Takes what is needed for a try at this target, and waits for it in the queue if there is one. An error is the name
    /// of the option that is to blame: [`TIMEOUT`] if the deadline has come while there was still room to wait.
    pub(super) async fn take(
        &mut self,
        limits: &Limits,
        route: Option<&Arc<RouteState>>,
        target: &TargetState,
        deadline: Option<tokio::time::Instant>,
    ) -> Result<(), &'static str> {
        // That of the try before, perhaps at another target.
        self.permit = None;
        if let (Some(limit), Some(route), None) = (limits.route_in_flight, route, &self.on_route) {
            self.on_route = Some(route.clone().enter(limit).ok_or("routemaxconn")?);
        }
        if let Some(limit) = limits.in_flight {
            let place = target.endpoint.clone();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now()));
            let short = left.filter(|left| *left <= limits.patience);
            let entered = place.enter(limit, limits.pending, short.unwrap_or(limits.patience)).await;
            self.permit = Some(entered.map_err(|full| match full {
                Full::Waited if short.is_some() => TIMEOUT,
                full => full.name(),
            })?);
        }
        Ok(())
    }
}

/// The option for all the time that a request may take.
pub(super) const TIMEOUT: &str = "timeout";

/// Since the process began.
fn nanos() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
