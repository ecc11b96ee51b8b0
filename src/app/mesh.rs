//! Consul Connect: keeps the certificates that targets with `connect=true` are reached with.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::consul::{Client, Config, Error, Keys, Mode, Watch};
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

/// Follows the roots of the mesh and our own certificate in it, which the agent renews. Never ends. What was there last
/// stays in use while Consul does not answer.
pub(super) async fn follow(config: Config, service: String, credentials: Arc<Credentials>) {
    if let Err(error) = run(config, &service, &credentials).await {
        tracing::error!("registry.consul.connect: {error}");
    }
}

async fn run(config: Config, service: &str, credentials: &Credentials) -> Result<(), Error> {
    let client = Client::new(config)?;
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
            }
            Err(why) => tracing::error!("registry.consul.connect: what Consul gave cannot be used: {why}"),
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
