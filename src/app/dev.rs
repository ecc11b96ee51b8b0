//! `ferrio dev`: an agent, sample services and the proxy in one process, to look around.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use consul_dev::{Agent, Definition, serve_samples};
use tokio::runtime::Runtime;

use super::{App, fail, log, refuse};
use crate::config::{self, Config, Outcome};
use crate::route::LiveTable;

/// Runs until a signal ends it. `arguments` are those behind `dev`: flags of ferrio, which win over what is chosen here.
pub fn main(arguments: impl Iterator<Item = OsString>, log: &log::Handle) -> ExitCode {
    let control = match super::control_runtime() {
        Ok(control) => control,
        Err(error) => return fail(&format!("{error:#}"), log),
    };
    let world = match control.block_on(World::start()) {
        Ok(world) => world,
        Err(error) => return fail(&format!("{error:#}"), log),
    };
    let flags = world.flags().into_iter().map(OsString::from).chain(arguments);
    let config = match config::load(std::iter::once("ferrio".into()).chain(flags), std::env::vars_os(), &[]) {
        Ok(Outcome::Run { config, .. }) => config,
        Ok(Outcome::Print { text, code, .. }) => {
            eprint!("{text}");
            return ExitCode::from(code);
        }
        Err(failure) => return refuse(&failure, log),
    };
    log.set_level(config.log.level);
    match run(&control, *config, &world) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), log),
    }
}

fn run(control: &Runtime, config: Config, world: &World) -> anyhow::Result<()> {
    let app = App::bind(config)?;
    let live = app.live.clone();
    let (text, targets) = (world.welcome(), world.targets);
    control.spawn(async move {
        has_targets(&live, targets).await;
        println!("{text}");
    });
    control.block_on(app.run())
}

/// Everything around the proxy.
struct World {
    agent: Agent,
    proxy: SocketAddr,
    admin: SocketAddr,
    /// How many instances there are.
    targets: usize,
    /// The origins live as long as this does.
    _samples: consul_dev::Samples,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let mut definitions = Definition::samples();
        let targets = definitions.len();
        let samples = serve_samples(&mut definitions).await.context("cannot start the sample services")?;
        let addr = preferred(8500)?;
        let agent = Agent::start(consul_dev::Config { addr, definitions, ..consul_dev::Config::default() })
            .await
            .context("cannot start the development agent")?;
        Ok(Self { agent, proxy: preferred(9999)?, admin: preferred(9998)?, targets, _samples: samples })
    }

    fn flags(&self) -> Vec<String> {
        vec![
            format!("-registry.consul.addr={}", self.agent.addr()),
            format!("-proxy.addr={}", self.proxy),
            format!("-ui.addr={}", self.admin),
            "-log.level=WARN".into(),
        ]
    }

    fn welcome(&self) -> String {
        let (proxy, admin, consul) = (self.proxy.port(), self.admin.port(), self.agent.addr().port());
        format!(
            "ferrio is ready. Try:

  curl -i localhost:{proxy}/                              two instances take turns
  curl -i localhost:{proxy}/echo/hello?name=you           what a target gets to see
  curl -i -H 'Host: demo.localhost' localhost:{proxy}/    a host of its own
  curl -s localhost:{admin}/api/routes?raw                the routing table

Routes and rejects:  http://localhost:{admin}/
Consul's API:        http://localhost:{consul}/v1/catalog/services

Add a service: its check must pass, and its tag says what it serves:

  curl -X PUT localhost:{consul}/v1/agent/service/register -d '{{\"Name\": \"mine\", \"Address\": \"127.0.0.1\", \
             \"Port\": 8080, \"Tags\": [\"urlprefix-/mine\"], \"Check\": {{\"TCP\": \"127.0.0.1:8080\", \"Interval\": \"1s\"}}}}'

Ctrl-C ends everything."
        )
    }
}

/// A loopback address with this port, or with a free one if it is taken.
fn preferred(port: u16) -> anyhow::Result<SocketAddr> {
    let taken = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    taken(port).or_else(|_| taken(0)).context("no free port on loopback")
}

/// The checks of the samples have to pass once first. Nobody waits for them for ever.
async fn has_targets(live: &Arc<LiveTable>, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while live.load().table.size().1 < count && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
