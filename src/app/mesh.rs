//! Consul Connect: keeps the certificates that targets with `connect=true` are reached with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;

use crate::consul::{Client, Config, Error, Keys, Mode, Watch};
use crate::route::{LiveTable, Target};
use crate::upstream::{Credentials, Mesh};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Leaf {
    #[serde(rename = "CertPEM")]
    certificate: String,
    #[serde(rename = "PrivateKeyPEM")]
    key: String,
    #[serde(rename = "ServiceURI")]
    uri: String,
    #[serde(rename = "SerialNumber")]
    serial: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Roots {
    roots: Option<Vec<Root>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Root {
    root_cert: String,
}

/// Follows the roots of the mesh, our own certificate in it, which the agent renews, and the intentions for the services
/// that routes lead to. Never ends. What was there last stays in use while Consul does not answer.
pub(super) async fn follow(
    config: Config,
    service: String,
    credentials: Arc<Credentials>,
    live: Arc<LiveTable>,
    tables: watch::Receiver<()>,
) {
    let client = match Client::new(config) {
        Ok(client) => client,
        Err(error) => return tracing::error!("registry.consul.connect: {error}"),
    };
    let (known, leaf) = watch::channel(Leaf::default());
    let identity = identity(&client, &service, &credentials, known);
    tokio::join!(identity, intentions(&client, &credentials, leaf, &live, tables));
}

async fn identity(client: &Client, service: &str, credentials: &Credentials, known: watch::Sender<Leaf>) {
    let watch = |path: String| Watch::new(client.clone(), path, "", Mode::Block(WAIT), false);
    let (mut roots, mut leaf) = (watch(Keys::ROOTS.to_owned()), watch(Keys::leaf(service)));
    let (mut seen_roots, mut seen_leaf): (Option<Roots>, Option<Leaf>) = (None, None);
    let mut next_roots = Box::pin(step::<Roots>(&mut roots));
    let mut next_leaf = Box::pin(step::<Leaf>(&mut leaf));
    loop {
        // Each answer is waited for in its own time: a dropped wait would lose its pause.
        let changed = tokio::select! {
            (answer, watch) = &mut next_roots => {
                next_roots = Box::pin(step(watch));
                take(&mut seen_roots, answer, "the roots")
            }
            (answer, watch) = &mut next_leaf => {
                next_leaf = Box::pin(step(watch));
                take(&mut seen_leaf, answer, "our certificate")
            }
        };
        let (true, Some(roots), Some(leaf)) = (changed, &seen_roots, &seen_leaf) else { continue };
        let pems: Vec<String> = roots.roots.iter().flatten().map(|root| root.root_cert.clone()).collect();
        match Mesh::new(&pems, &leaf.certificate, &leaf.key, &leaf.uri) {
            Ok(mesh) => {
                credentials.join(mesh);
                tracing::info!("registry.consul.connect: certificate for {}", leaf.uri);
                known.send_replace(leaf.clone());
            }
            Err(why) => tracing::error!("registry.consul.connect: what Consul gave cannot be used: {why}"),
        }
    }
}

/// Asks about the services of all routes with `connect=true`: again when the table or our certificate changes, and every
/// now and then. A service that was not asked about yet is not talked to.
async fn intentions(
    client: &Client,
    credentials: &Credentials,
    mut leaf: watch::Receiver<Leaf>,
    live: &LiveTable,
    mut tables: watch::Receiver<()>,
) {
    let mut permitted: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut tick = tokio::time::interval(ASK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            Ok(()) = leaf.changed() => {}
            Ok(()) = tables.changed() => {}
        }
        let own = leaf.borrow_and_update().clone();
        if own.uri.is_empty() {
            continue;
        }
        let table = live.load_full().table.clone();
        let meshed = |target: &&Target| target.options.reach.as_ref().is_some_and(|reach| reach.connect);
        let services: BTreeSet<Arc<str>> = table
            .routes()
            .flat_map(|route| &route.targets)
            .filter(meshed)
            .map(|target| target.service.clone())
            .collect();
        permitted.retain(|service| services.contains(service));
        for service in services {
            match client.authorize(&service, &own.uri, &own.serial).await {
                Ok(true) => {
                    permitted.insert(service);
                }
                Ok(false) => {
                    if permitted.remove(&service) {
                        tracing::warn!(
                            "registry.consul.connect: the intentions for {service} do not let us in any more"
                        );
                    }
                }
                Err(error) => tracing::warn!("registry.consul.connect: cannot ask about {service}: {error}"),
            }
            // At once, so that the first ones do not wait for the last one.
            credentials.permit(permitted.clone());
        }
    }
}

async fn step<T: serde::de::DeserializeOwned + Send + 'static>(
    watch: &mut Watch,
) -> (Result<Option<T>, Error>, &mut Watch) {
    let seen = watch.next(|bytes| serde_json::from_slice::<T>(bytes)).await;
    (seen.map(|seen| seen.value).map_err(|failure| failure.error), watch)
}

/// Takes a new value over; true if it is one.
fn take<T: PartialEq>(seen: &mut Option<T>, answer: Result<Option<T>, Error>, what: &str) -> bool {
    match answer {
        Ok(value) if value.is_some() && value != *seen => {
            *seen = value;
            true
        }
        Ok(_) => false,
        Err(error) => {
            tracing::warn!("registry.consul.connect: cannot read {what}: {error}");
            false
        }
    }
}

/// For one blocking query.
const WAIT: Duration = Duration::from_secs(300);
/// How often intentions are asked about. The agent answers from its memory.
const ASK: Duration = Duration::from_secs(5);
