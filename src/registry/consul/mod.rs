//! Routes from Consul: tags of healthy instances, overrides and the no-route page from the KV store.

pub(super) mod announce;
mod audit;
mod doubt;
pub(super) mod health;
pub(super) mod history;
mod hold;
mod instances;
mod kv;
mod lists;
pub(super) mod overrides;
mod overtaking;
pub(super) mod own_keys;
pub(super) mod remote;
mod services;
mod switches;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use self::announce::{Announcer, Order};
use self::kv::{Kind, Kv};
use self::own_keys::OwnKeys;
use self::services::{Services, Setup, Sources};
use super::disabled::Control;
use super::publish::{Aliases, Feed};
use super::state::Inherited;
use super::status::Board;
use super::{ConsulConfig, Error};
use crate::consul::Client;

/// Where what Consul says goes.
pub(super) struct Ends<'a> {
    pub(super) feed: &'a Feed,
    pub(super) board: &'a Board,
    pub(super) control: &'a Control,
    /// What was kept on disk, when it has come into force.
    pub(super) inherited: oneshot::Receiver<Inherited>,
}

/// Starts everything that talks to Consul.
pub(super) async fn run(
    tasks: &mut JoinSet<()>,
    client: Client,
    config: &ConsulConfig,
    ends: Ends<'_>,
    aliases: watch::Receiver<Aliases>,
    orders: mpsc::Receiver<Order>,
) -> Result<(), Error> {
    let Ends { feed, board, control, inherited } = ends;
    let announce = config.announce.clone();
    match Announcer::new(client.clone(), announce, config.register, board.source("registration")).await {
        Ok(announcer) => {
            tasks.spawn(announcer.run(aliases, orders));
        }
        Err(reason) if config.register => return Err(Error::Register(reason)),
        // Aliases alone need it, and most installations have none.
        Err(reason) => tracing::warn!("Names of register= cannot be registered: {reason}"),
    }
    let services = watcher(client.clone(), config, feed.clone(), Sources::of(board, None));
    tasks.spawn(Services::new(services).run(inherited));
    if !config.options_path.is_empty() {
        feed.await_named();
    }
    for (kind, path, name) in [
        (Kind::Overrides, &config.kv_path, "overrides"),
        (Kind::Page, &config.page_path, "page"),
        (Kind::DownPage, &config.down_page_path, "unavailable page"),
        (Kind::Options, &config.options_path, "options"),
        (Kind::ErrorPages, &config.error_pages_path, "error pages"),
    ] {
        // The first two mean the whole store then, as in fabio.
        if path.is_empty() && matches!(kind, Kind::DownPage | Kind::Options | Kind::ErrorPages) {
            continue;
        }
        let path = path.trim_start_matches('/').to_owned();
        let source = board.source(name);
        let kv = Kv { client: client.clone(), kind, path, poll: config.poll_interval, feed: feed.clone(), source };
        tasks.spawn(kv.run());
    }
    if let Some(key) = OwnKeys::new(&config.kv_path).disabled() {
        let source = board.source("disabled");
        tasks.spawn(switches::follow(client, key, config.poll_interval, control.clone(), source));
    }
    Ok(())
}

/// What watches the services of our own datacenter.
fn watcher(client: Client, config: &ConsulConfig, feed: Feed, sources: Sources) -> Setup {
    Setup {
        client,
        rules: health::Rules {
            accepted: config.service_status.clone(),
            all: config.checks_all,
            keep: config.keep_unhealthy,
        },
        prefix: Arc::from(config.tag_prefix.as_str()),
        monitors: config.service_monitors,
        poll: config.poll_interval,
        datacenter: None,
        feed,
        sources,
    }
}
