//! From values to one `Config` per part, with the checks that need more than one value.

mod logs;
mod metrics;
mod proxy;
mod registry;
mod traces;

use std::net::IpAddr;
use std::time::Duration;

use crate::registry::Backend;
use crate::{admin, cert, life, listen, upstream};

pub(crate) use registry::routes_format;

use super::environment::Environment;
use super::listeners::{self, Listener, Times};
use super::options::Status;
use super::settings::Settings;
use super::sockaddr::{self, Interface};
use super::{Config, auth, bgp, certificates, duration, json, number, targets};

/// What the configuration takes from the machine.
pub(crate) struct Machine {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) hostname: String,
    pub(crate) cpus: usize,
}

impl Machine {
    pub(crate) fn this() -> Self {
        Self {
            interfaces: sockaddr::interfaces(),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What was read of the option lists, for `/api/config`.
pub(crate) struct Lists {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) admin: Option<Listener>,
    pub(crate) schemes: Vec<auth::Scheme>,
    pub(crate) peers: Vec<bgp::Peer>,
}

/// Builds everything; `None` if a part cannot be built. Mistakes are in the report either way.
pub(crate) fn build(settings: &mut Settings, environment: &Environment, machine: &Machine) -> Option<Config> {
    if !settings.explicit("profile.path") {
        settings.values.profile_path = environment.filled("TMPDIR").unwrap_or("/tmp").to_owned();
    }
    let sources = certificates::parse(settings, &settings.values.proxy_cs.clone());
    let schemes = auth::parse(settings, &settings.values.proxy_auth.clone());
    let peers = bgp::parse(settings, &settings.values.bgp_peers.clone());
    let admin_listener = admin_listener(settings, &sources, machine);
    let times = Times {
        read: settings.values.proxy_readtimeout,
        write: settings.values.proxy_writetimeout,
        ..Times::default()
    };
    let text = settings.values.proxy_addr.clone();
    let listeners = listeners::parse(settings, "proxy.addr", &text, times, &sources, &machine.interfaces);
    listeners::each_once(settings, &listeners, admin_listener.as_ref());

    let mut cert_sources: Vec<cert::CertSource> = Vec::new();
    for entry in listeners.iter().chain(&admin_listener).filter_map(|listener| listener.source.as_ref()) {
        if !cert_sources.iter().any(|source| source.name == entry.name) {
            cert_sources.push(certificates::used(settings, entry, environment));
        }
    }

    for entry in sources.iter().filter(|entry| !cert_sources.iter().any(|used| used.name == entry.name)) {
        let name = &entry.name;
        settings.warn("proxy.cs", &format!("source {name}: no listener refers to it; write cs={name} on one"));
    }

    let target_tls = targets::tls(settings);
    let sockets = targets::unix(settings);
    let proxy = self::proxy::proxy(settings, machine);
    let registry = self::registry::registry(settings, environment, machine, admin_listener.as_ref());
    let metrics = self::metrics::metrics(settings, machine);
    let admin = admin_listener.clone().map(|listener| admin(settings, listener, &schemes));
    let log = logs::log(settings);
    let access_log = logs::access_log(settings);
    let traces = traces::traces(settings, environment, machine);
    let limits = self::proxy::limits(settings);
    let workers = workers(settings, environment, machine);
    unbuilt(settings);
    super::doubts::look(settings, &listeners);

    let values = &settings.values;
    let (proxy, mut registry, metrics) = (proxy?, registry?, metrics?);
    let connect = matches!(&registry.backend, Backend::Consul(consul) if !consul.connect.is_empty());
    registry.settings.known = targets::known(&target_tls, sockets, connect);
    let upstream = upstream::Config {
        dial_timeout: duration::positive(values.proxy_dialtimeout),
        write_timeout: duration::positive(values.proxy_requestwritetimeout),
        response_header_timeout: duration::positive(values.proxy_responseheadertimeout),
        keep_alive: match values.proxy_keepalivetimeout {
            ..0 => None,
            0 => Some(Duration::from_secs(15)),
            nanos => Some(duration::positive(nanos)),
        },
        idle_timeout: duration::positive(values.proxy_idleconntimeout),
        max_idle: match usize::try_from(values.proxy_maxconn) {
            Ok(0) => 2,
            Ok(n) => n,
            Err(_) => usize::MAX,
        },
        max_headers: proxy.max_headers,
        max_header_size: proxy.max_header_size,
        max_age: duration::positive(values.proxy_connmaxage),
        max_requests: u64::try_from(values.proxy_connmaxrequests).unwrap_or(0),
        names_for: duration::positive(values.proxy_dnsttl),
        tls: target_tls,
        sticky_key: values.proxy_stickykey.clone().into(),
    };
    let life = life::Config {
        grace: duration::positive(values.proxy_deregistergraceperiod),
        wait: duration::positive(values.proxy_shutdownwait),
    };
    let insecure = values.insecure;
    let user = values.runtime_user.clone();
    let lists = Lists { listeners, admin: admin_listener, schemes, peers };
    let auth = auth::config(&lists.schemes);
    let effective = super::effective::effective(settings);
    let json = json::dump(settings, &lists, &registry, &proxy, machine);
    let listeners = lists.listeners.into_iter().map(|listener| listener.config).collect();
    Some(Config {
        log,
        access_log,
        listeners,
        limits,
        cert_sources,
        admin,
        registry,
        proxy,
        auth,
        upstream,
        metrics,
        traces,
        life,
        workers,
        user,
        insecure,
        json,
        effective,
    })
}

fn admin_listener(settings: &mut Settings, sources: &[certificates::Entry], machine: &Machine) -> Option<Listener> {
    let text = settings.values.ui_addr.clone();
    if text.is_empty() {
        return None;
    }
    if super::kvlist::parse(&text).is_ok_and(|maps| maps.len() != 1) {
        settings.mistake("ui.addr", "ui.addr must contain only one listener; write [host]:port, or nothing for none");
        return None;
    }
    listeners::parse(settings, "ui.addr", &text, Times::default(), sources, &machine.interfaces).pop()
}

fn admin(settings: &mut Settings, listener: Listener, schemes: &[auth::Scheme]) -> admin::Config {
    let path = settings.values.ui_path.trim_end_matches('/').to_owned();
    let path = if path.is_empty() || path.starts_with('/') {
        path
    } else {
        settings.warn("ui.path", "begins with / from now on");
        format!("/{path}")
    };
    let access = match settings.values.ui_access.as_str() {
        "no" => admin::Access::Closed,
        "ro" => admin::Access::ReadOnly,
        _ => admin::Access::ReadWrite,
    };
    let login = Some(settings.values.ui_auth.clone()).filter(|name| !name.is_empty());
    if let Some(name) = &login {
        let known = auth::config(schemes).schemes.into_iter().find(|scheme| scheme.name == *name);
        match known.map(|scheme| scheme.kind) {
            Some(crate::auth::Kind::Basic(_) | crate::auth::Kind::Jwt(_)) => {}
            Some(_) => settings.mistake("ui.auth", "has to be a scheme of type basic or jwt"),
            None => settings.mistake("ui.auth", "proxy.auth has no scheme of this name"),
        }
    }
    if access == admin::Access::ReadWrite && login.is_none() && !loopback(&listener.config) {
        settings.warn("ui.access", "everybody who reaches the admin listener can change routes; write ro, or let ui.addr listen on 127.0.0.1 only");
    }
    let values = &settings.values;
    admin::Config {
        listen: listener.config,
        access,
        path,
        title: values.ui_title.clone(),
        color: values.ui_color.clone(),
        source_link: admin::SourceLink {
            enabled: values.ui_source_linkenabled,
            new_tab: values.ui_source_newtab,
            scheme: values.ui_source_scheme.clone(),
            host: values.ui_source_host.clone(),
            port: values.ui_source_port.clone(),
        },
        hosts: values.ui_hosts.clone(),
        auth: login,
    }
}

fn loopback(listen: &listen::Config) -> bool {
    let host = listen.addr.rsplit_once(':').map_or("", |(host, _)| host).trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn workers(settings: &Settings, environment: &Environment, machine: &Machine) -> usize {
    let asked = environment.filled("GOMAXPROCS").and_then(|text| number::int(text).ok()).filter(|n| *n > 0);
    match usize::try_from(asked.unwrap_or(settings.values.runtime_gomaxprocs)) {
        Ok(n) if n > 0 => n.min(MAX_WORKERS),
        _ => machine.cpus,
    }
}

/// Options of features that are still to be built, with a value that asks for them.
fn unbuilt(settings: &mut Settings) {
    let asked: Vec<(&'static str, &'static str)> = settings
        .given()
        .filter_map(|(spec, given)| match spec.status {
            Status::Pending(loss) => {
                let differs = spec.kind.read(spec.key, &given.text) != spec.kind.read(spec.key, spec.default);
                differs.then_some((spec.key, loss))
            }
            _ => None,
        })
        .collect();
    for (key, loss) in asked {
        // What is wrong with the value itself comes first.
        if !settings.faulty(key) {
            settings.mistake(key, &format!("not built yet, and without it {loss}; remove it"));
        }
    }
}

/// Also the bound of `runtime.gomaxprocs`.
const MAX_WORKERS: usize = 1024;
