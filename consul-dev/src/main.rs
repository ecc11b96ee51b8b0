//! The agent as a program, started as one starts Consul: `consul-dev agent -dev -config-dir consul-dev/services`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use consul_dev::{Agent, Config, Definition};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let config = match read_arguments(std::env::args().skip(1)) {
        Ok(Some(config)) => config,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("consul-dev: {error}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime.map_err(|e| e.to_string()).and_then(|runtime| runtime.block_on(run(config)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("consul-dev: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> Result<(), String> {
    let addr = config.addr;
    let agent = Agent::start(config).await.map_err(|e| format!("cannot listen on {addr}: {e}"))?;
    println!("consul-dev: HTTP API at http://{}", agent.addr());
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    agent.stop().await;
    Ok(())
}

/// The configuration that the command line gives; `None` if it asks for help.
fn read_arguments(arguments: impl Iterator<Item = String>) -> Result<Option<Config>, String> {
    let mut settings = Settings::default();
    let mut arguments = arguments.peekable();
    if arguments.peek().is_some_and(|first| first == "agent") {
        arguments.next();
    }
    while let Some(argument) = arguments.next() {
        let name = argument.trim_start_matches('-');
        if name == argument {
            return Err(format!("unexpected argument {argument:?}"));
        }
        let (name, own_value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let mut value = || own_value.clone().or_else(|| arguments.next()).ok_or(format!("-{name} needs a value"));
        match name {
            "h" | "help" => return Ok(None),
            "dev" => settings.dev = own_value.is_none_or(|value| value != "false"),
            "server" | "ui" => {}
            "config-file" => settings.read_file(Path::new(&value()?))?,
            "config-dir" => settings.read_folder(Path::new(&value()?))?,
            "http-port" => settings.http_port = port(&value()?)?,
            "client" => settings.client = address(&value()?)?,
            "node" => settings.node = Some(value()?),
            "datacenter" => settings.datacenter = Some(value()?),
            // What a real agent needs, and this one does not.
            "bind" | "advertise" | "data-dir" | "log-level" | "bootstrap-expect" => drop(value()?),
            name => return Err(format!("unknown flag -{name}")),
        }
    }
    Ok(Some(settings.config()))
}

#[derive(Debug)]
struct Settings {
    dev: bool,
    client: IpAddr,
    http_port: u16,
    server_port: u16,
    node: Option<String>,
    datacenter: Option<String>,
    definitions: Vec<Definition>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dev: false,
            client: IpAddr::from([127, 0, 0, 1]),
            http_port: 8500,
            server_port: 8300,
            node: None,
            datacenter: None,
            definitions: Vec::new(),
        }
    }
}

impl Settings {
    fn read_folder(&mut self, folder: &Path) -> Result<(), String> {
        let entries = std::fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        files.iter().try_for_each(|path| self.read_file(path))
    }

    /// Take what this agent knows from a configuration file of Consul; the rest is meant for the real one.
    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let named = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| named(&e))?;
        let text_of = |name: &str| value.get(name).and_then(Value::as_str);
        if let Some(client) = text_of("client_addr") {
            self.client = address(client).map_err(|e| named(&e))?;
        }
        if let Some(node) = text_of("node_name") {
            self.node = Some(node.to_owned());
        }
        if let Some(datacenter) = text_of("datacenter") {
            self.datacenter = Some(datacenter.to_owned());
        }
        let port_of = |name: &str| value.get("ports")?.get(name)?.as_u64().and_then(|port| u16::try_from(port).ok());
        if let Some(port) = port_of("http") {
            self.http_port = port;
        }
        if let Some(port) = port_of("server") {
            self.server_port = port;
        }
        self.definitions.extend(Definition::parse(&text, &path.display().to_string()).map_err(|e| e.to_string())?);
        Ok(())
    }

    fn config(self) -> Config {
        let defaults = Config::default();
        Config {
            addr: SocketAddr::new(self.client, self.http_port),
            datacenter: self.datacenter.unwrap_or(defaults.datacenter),
            node_name: self.node.unwrap_or(defaults.node_name),
            definitions: self.definitions,
            pretty: self.dev,
            server_port: self.server_port,
            ..Config::default()
        }
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text:?} is no port"))
}

fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        text => text.parse().map_err(|_| format!("{text:?} is no address")),
    }
}

const USAGE: &str = "usage: consul-dev agent [-dev] [-config-file FILE] [-config-dir FOLDER] [-http-port PORT] \
[-client ADDRESS]\n                        [-node NAME] [-datacenter NAME]";
