//! Other datacenters: each is watched as our own is, through the agent here, and none waits for another.
//!
//! Only their services: overrides, pages and all else in the KV store are those of our own datacenter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::services::{Services, Sources};
use super::watcher;
use crate::consul::Client;
use crate::registry::ConsulConfig;
use crate::registry::publish::Feed;
use crate::registry::state::Inherited;
use crate::registry::status::{Board, Source};

pub(in crate::registry) struct Remotes {
    pub(in crate::registry) client: Client,
    pub(in crate::registry) config: ConsulConfig,
    pub(in crate::registry) feed: Feed,
    pub(in crate::registry) board: Arc<Board>,
    /// What was kept on disk, by datacenter.
    pub(in crate::registry) kept: BTreeMap<Arc<str>, Inherited>,
}

impl Remotes {
    /// To be called when it is known which datacenter is our own. The first table waits for the others from now on, but not
    /// for long.
    pub(in crate::registry) fn watch(mut self, own: &str, tasks: &mut JoinSet<()>) {
        for datacenter in self.config.ranked().iter().filter(|datacenter| *datacenter.name != *own) {
            let client = match self.client.in_datacenter(&datacenter.name) {
                Ok(client) => client,
                Err(error) => {
                    tracing::error!("registry: the datacenter {} cannot be watched: {error}", datacenter.name);
                    continue;
                }
            };
            let feed = self.feed.of(&datacenter.name);
            let (heir, inherited) = oneshot::channel();
            feed.awaited(self.kept.remove(&datacenter.name).unwrap_or_default(), heir);
            self.board.other_datacenter(&datacenter.name, client.clone());
            let sources = Sources::of(&self.board, Some(&datacenter.name));
            let lists = [sources.names.clone(), sources.checks.clone()];
            tasks.spawn(wait(self.board.clone(), feed.clone(), datacenter.name.clone(), lists));
            let mut setup = watcher(client, &self.config, feed, sources);
            setup.datacenter = Some(datacenter.clone());
            setup.monitors = setup.monitors.min(MONITORS);
            tasks.spawn(Services::new(setup).run(inherited));
        }
    }
}

/// The end of the first table's patience. It begins when the agent answers: before that nobody could say anything.
async fn wait(board: Arc<Board>, feed: Feed, datacenter: Arc<str>, lists: [Source; 2]) {
    while !board.has_own_services() {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(SILENCE).await;
    if lists.iter().all(Source::has_answered) {
        tokio::time::sleep(PATIENCE - SILENCE).await;
    }
    if feed.late() {
        tracing::warn!("registry: not all services of the datacenter {datacenter} are known yet, going on without");
    }
}

/// How long the first table waits for a datacenter that says nothing, and for one that is being read.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(6);

/// Between two looks at whether the agent answers.
const LOOK: Duration = Duration::from_millis(250);

/// Reads under way at once in each of them; all of them ask one agent, which takes 200 connections of a client.
const MONITORS: usize = 16;
