//! Asking targets how they are (`check=`). In the control plane: one prober per place and kind of check, however many
//! routes lead there. What it finds hangs on the place, where workers see it.

mod grpc;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::AbortHandle;

use super::tls::Alpn;
use super::{Config, Endpoint, Shared, TargetState, connect};
use crate::net::Stream;
use crate::route::{Check, CheckKind, LiveTable, ProxyVersion, Scheme, Snapshot};

/// Keeps a prober for each place that is to be probed, until it is dropped.
pub async fn probe(live: Arc<LiveTable>, config: Config, shared: Shared) {
    let mut probers = Probers { config, shared, running: HashMap::new() };
    let mut seen: Weak<Snapshot> = Weak::new();
    loop {
        let snapshot = live.load_full();
        if seen.upgrade().is_none_or(|seen| !Arc::ptr_eq(&seen, &snapshot)) {
            probers.follow(&snapshot);
            seen = Arc::downgrade(&snapshot);
        }
        drop(snapshot);
        tokio::time::sleep(LOOK).await;
    }
}

struct Probers {
    config: Config,
    shared: Shared,
    running: HashMap<(u64, Check), Prober>,
}

/// Ends with the last table that asks for it.
struct Prober(AbortHandle);

impl Drop for Prober {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Probers {
    fn follow(&mut self, snapshot: &Snapshot) {
        let mut wanted: HashMap<(u64, Check), Prober> = HashMap::new();
        for target in snapshot.table.routes().flat_map(|route| &route.targets) {
            let (Some(check), Some(state)) = (&target.options.check, target.state.share::<TargetState>()) else {
                continue;
            };
            let key = (state.endpoint.id, (**check).clone());
            if wanted.contains_key(&key) {
                continue;
            }
            let prober = self.running.remove(&key).unwrap_or_else(|| {
                let run = run(state, (**check).clone(), self.config.clone(), self.shared.clone());
                Prober(tokio::spawn(run).abort_handle())
            });
            wanted.insert(key, prober);
        }
        self.running = wanted;
    }
}

async fn run(target: Arc<TargetState>, check: Check, config: Config, shared: Shared) {
    let mut finding = Finding { endpoint: target.endpoint.clone(), fails: false };
    let mut failures = 0;
    // Those that begin together do not go on together.
    tokio::time::sleep(check.interval.mul_f64(fastrand::f64()).min(FIRST)).await;
    loop {
        let result = tokio::time::timeout(check.timeout, once(&target, &check.kind, &config, &shared)).await;
        let result = result.unwrap_or_else(|_| Err("no answer in time".into()));
        failures = if result.is_ok() { 0 } else { failures + 1 };
        if (failures == 0 || failures >= FAILURES) && finding.is_news(failures > 0) {
            let (service, place) = (&target.service, &target.destination.text);
            match result {
                Ok(()) => tracing::info!("~ {service} {place} is used again: its check passes"),
                Err(why) => {
                    target.series.ejected("probe");
                    tracing::warn!("~ {service} {place} is passed over while its check fails: {why}");
                }
            }
        }
        tokio::time::sleep(check.interval.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// What a prober has found out. A place with several is used while none of them finds it failing.
struct Finding {
    endpoint: Arc<Endpoint>,
    fails: bool,
}

impl Finding {
    fn is_news(&mut self, fails: bool) -> bool {
        let news = self.fails != fails;
        if news {
            self.fails = fails;
            self.endpoint.health.probe_fails(fails);
        }
        news
    }
}

impl Drop for Finding {
    /// Who is not probed any more is not passed over for what was found.
    fn drop(&mut self) {
        self.is_news(false);
    }
}

async fn once(target: &TargetState, kind: &CheckKind, config: &Config, shared: &Shared) -> Result<(), String> {
    let endpoint = &target.endpoint;
    // Over HTTP/2 only it is enough for `http:` that somebody is there: what is asked below is HTTP/1.1.
    let h2 = matches!(kind, CheckKind::Grpc(_))
        || target.destination.is_grpc()
        || target.destination.scheme == Scheme::Http && target.options.http2;
    let tls = endpoint.tls.as_ref().map(|tls| (tls, if h2 { Alpn::H2 } else { Alpn::Http1 }));
    // Who waits for a PROXY header gets one that speaks for nobody: it is us who ask.
    let preamble: &[u8] = match target.options.proxy_protocol {
        None => b"",
        Some(ProxyVersion::V1) => b"PROXY UNKNOWN\r\n",
        Some(ProxyVersion::V2) => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    };
    let stream = connect::connect(endpoint, tls, config, shared, Duration::ZERO, preamble).await;
    let mut stream = stream.map_err(|error| error.chain())?;
    let host = &target.destination.authority;
    let path = match kind {
        CheckKind::Tcp => return Ok(()),
        CheckKind::Grpc(service) => return grpc::ask(stream, host, endpoint.tls.is_some(), service).await,
        CheckKind::Http(_) if h2 => return Ok(()),
        CheckKind::Http(path) => path,
    };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ferrio-check\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    match status(&mut stream).await.map_err(|error| error.to_string())? {
        200..=399 => Ok(()),
        status => Err(format!("status {status}")),
    }
}

/// From the first line of the response; the rest is of no interest.
async fn status(stream: &mut Stream) -> io::Result<u16> {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(&rest[2..]).ok());
    status
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is no HTTP response"))
}

/// How often the table is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The first probe is not later than that.
const FIRST: Duration = Duration::from_secs(1);
/// In a row: one is an accident.
const FAILURES: u32 = 2;
