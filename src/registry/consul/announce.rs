//! Registering ourselves: the own name and the names that routes ask for with `register=`.
//!
//! A task of its own, so that a slow agent never delays a table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::consul::{AgentCheck, AgentService, Client, Registration, go_duration};
use crate::registry::Announce;
use crate::registry::publish::Aliases;
use crate::registry::status::Source;

/// Asks the task to do something.
pub(in crate::registry) enum Order {
    /// The listeners are open: register from now on.
    Begin,
    /// Take everything back and stay silent.
    End(oneshot::Sender<()>),
    /// Take nothing back and stay silent: somebody else keeps it alive.
    Leave,
}

pub(super) struct Announcer {
    client: Client,
    announce: Announce,
    /// Register the own name; aliases are registered regardless.
    own: bool,
    address: SocketAddr,
    host: String,
    source: Source,
    /// Names that are registered, as far as we know, and with which registration.
    registered: BTreeMap<String, String>,
}

impl Announcer {
    /// Fails if there is no address to register with.
    pub(super) async fn new(client: Client, announce: Announce, own: bool, source: Source) -> Result<Self, String> {
        let address = address(&announce).await?;
        let host = hostname();
        Ok(Self { client, announce, own, address, host, source, registered: BTreeMap::new() })
    }

    pub(super) async fn run(mut self, mut aliases: watch::Receiver<Aliases>, mut orders: mpsc::Receiver<Order>) {
        match orders.recv().await {
            Some(Order::Begin) => {}
            Some(Order::End(done)) => {
                let _ = done.send(());
                return;
            }
            Some(Order::Leave) | None => return,
        }
        loop {
            let wanted = self.wanted(&aliases.borrow_and_update());
            let order = tokio::select! {
                well = self.round(wanted) => {
                    let pause = if well { KEEP_ALIVE } else { RETRY };
                    tokio::select! {
                        order = orders.recv() => order,
                        changed = aliases.changed() => match changed {
                            Ok(()) => continue,
                            Err(_) => orders.recv().await,
                        },
                        () = tokio::time::sleep(pause) => continue,
                    }
                }
                order = orders.recv() => order,
            };
            match order {
                Some(Order::Begin) => {}
                Some(Order::End(done)) => {
                    self.withdraw().await;
                    let _ = done.send(());
                    return;
                }
                Some(Order::Leave) | None => return,
            }
        }
    }

    fn wanted(&self, aliases: &Aliases) -> BTreeSet<String> {
        let own = self.own.then(|| self.announce.name.clone());
        aliases.iter().map(|name| name.to_string()).chain(own).collect()
    }

    /// Makes what is registered what is wanted. `false`: something failed.
    async fn round(&mut self, wanted: BTreeSet<String>) -> bool {
        if wanted.is_empty() && self.registered.is_empty() {
            return true;
        }
        let mut well = true;
        let superfluous: Vec<String> = self.registered.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in superfluous {
            let id = self.id(&name);
            match self.client.deregister(&id).await {
                // An agent that does not know it says so with an error: the same to us.
                Ok(()) | Err(crate::consul::Error::Status { status: 404, .. }) => {
                    tracing::info!("Deregistered {id} in Consul");
                    self.registered.remove(&name);
                }
                Err(e) => {
                    self.source.failed(&format_args!("cannot deregister {id}: {e}"));
                    well = false;
                }
            }
        }
        if wanted.is_empty() {
            return well;
        }
        let there = match self.client.agent_services().await {
            Ok(there) => there,
            Err(e) => {
                self.source.failed(&e);
                return false;
            }
        };
        for name in wanted {
            well &= self.keep(&name, there.get(&self.id(&name))).await;
        }
        if well {
            self.source.good(0);
        }
        well
    }

    /// Registers a name if the agent does not have it as it should be, and keeps it alive.
    async fn keep(&mut self, name: &str, there: Option<&AgentService>) -> bool {
        let registration = self.registration(name);
        let same = there.is_some_and(|s| {
            s.name == registration.name
                && s.port == i64::from(registration.port)
                && s.address == registration.address
                && s.tags == registration.tags
        });
        if !same || !self.registered.contains_key(name) {
            // Noted first: should this be cut short, it is taken back at the end all the same.
            self.registered.insert(name.to_owned(), registration.id.clone());
            if let Err(e) = self.client.register(&registration).await {
                self.source.failed(&format_args!("cannot register {}: {e}", registration.id));
                return false;
            }
            tracing::info!("Registered {} in Consul", registration.id);
        }
        match self.client.pass(&format!("{}-ttl", registration.id)).await {
            Ok(()) => true,
            Err(e) => {
                self.source.failed(&format_args!("cannot keep {} alive: {e}", registration.id));
                false
            }
        }
    }

    /// Takes everything back, all at once, once.
    async fn withdraw(&mut self) {
        let mut running = JoinSet::new();
        for (_, id) in std::mem::take(&mut self.registered) {
            let client = self.client.clone();
            running.spawn(async move {
                if let Err(e) = client.deregister(&id).await {
                    tracing::warn!("Cannot deregister {id} in Consul: {e}");
                }
            });
        }
        while running.join_next().await.is_some() {}
    }

    fn id(&self, name: &str) -> String {
        format!("{name}-{}-{}", self.host, self.address.port())
    }

    fn registration(&self, name: &str) -> Registration {
        let announce = &self.announce;
        let id = self.id(name);
        let config = self.client.config();
        Registration {
            name: name.to_owned(),
            tags: announce.tags.clone(),
            port: self.address.port(),
            address: self.address.ip().to_string(),
            namespace: config.namespace.clone(),
            partition: config.partition.clone(),
            checks: vec![
                AgentCheck {
                    id: Some(format!("{id}-ttl")),
                    ttl: Some("15s".into()),
                    deregister_after: Some("1m0s".into()),
                    ..AgentCheck::default()
                },
                AgentCheck {
                    http: Some(format!("{}://{}/health", announce.check_scheme, self.address)),
                    interval: Some(go_duration(announce.check_interval)),
                    timeout: Some(go_duration(announce.check_timeout)),
                    tls_skip_verify: announce.check_tls_skip_verify,
                    ..AgentCheck::default()
                },
            ],
            id,
        }
    }
}

/// The address that others reach us at.
async fn address(announce: &Announce) -> Result<SocketAddr, String> {
    let (host, port) = announce.addr.rsplit_once(':').ok_or_else(|| format!("{:?} has no port", announce.addr))?;
    let port: u16 = port.parse().map_err(|_| format!("{port:?} is not a port number"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let literal = host.parse::<IpAddr>().ok();
    if let Some(ip) = literal.filter(|ip| !ip.is_unspecified()) {
        return Ok(SocketAddr::new(ip, port));
    }
    if literal.is_none() && !host.is_empty() {
        match tokio::net::lookup_host((host, port)).await.map(|mut found| found.next()) {
            Ok(Some(found)) => return Ok(found),
            _ => tracing::warn!("registry.consul.register.addr: {host} cannot be resolved, using a local address"),
        }
    }
    let ip = announce.local_ip.ok_or("there is no local address to register with")?;
    Ok(SocketAddr::new(ip, port))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The TTL is 15 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

const RETRY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn announce(addr: &str, local: Option<&str>) -> Announce {
        Announce {
            name: "fabio".into(),
            addr: addr.into(),
            local_ip: local.map(|ip| ip.parse().unwrap()),
            check_scheme: "http".into(),
            tags: vec![],
            check_interval: Duration::from_secs(1),
            check_timeout: Duration::from_secs(3),
            check_tls_skip_verify: false,
        }
    }

    #[tokio::test]
    async fn addresses() {
        for (addr, local, expected) in [
            ("127.0.0.1:9998", None, Some("127.0.0.1:9998")),
            ("[fd00::1]:9998", None, Some("[fd00::1]:9998")),
            (":9998", Some("10.0.0.5"), Some("10.0.0.5:9998")),
            ("0.0.0.0:9998", Some("10.0.0.5"), Some("10.0.0.5:9998")),
            ("[::]:9998", Some("fd00::5"), Some("[fd00::5]:9998")),
            (":9998", None, None),
            ("", Some("10.0.0.5"), None),
            ("10.0.0.1:http", None, None),
        ] {
            let found = address(&announce(addr, local)).await.ok();
            assert_eq!(found, expected.map(|e| e.parse().unwrap()), "{addr}");
        }
    }
}
