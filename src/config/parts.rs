//! From values to one `Config` per part, with the checks that need more than one value.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::{access_log, admin, cert, life, listen, metrics, proxy, registry, route, upstream};

use super::environment::Environment;
use super::listeners::{self, Listener, Times};
use super::options::Status;
use super::settings::Settings;
use super::sockaddr::{self, Interface};
use super::suggest::near;
use super::template::{self, PrefixScope};
use super::{
    Config, Level, Log, agent, auth, bgp, certificates, compression, duration, json, kind, number, pending, targets,
};

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
    let proxy = proxy(settings, machine);
    let registry = registry(settings, environment, machine, admin_listener.as_ref());
    let metrics = metrics(settings, machine);
    let admin = admin_listener.clone().map(|listener| admin(settings, listener, &schemes));
    let log = log(settings);
    let access_log = access_log(settings);
    let limits = limits(settings);
    let workers = workers(settings, environment, machine);
    unbuilt(settings);
    super::doubts::look(settings, &listeners);

    let values = &settings.values;
    let (proxy, mut registry, metrics) = (proxy?, registry?, metrics?);
    let connect = matches!(&registry.backend, registry::Backend::Consul(consul) if !consul.connect.is_empty());
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

fn proxy(settings: &mut Settings, machine: &Machine) -> Option<proxy::Config> {
    let local_ip = if settings.explicit("proxy.localip") {
        let text = settings.values.proxy_localip.clone();
        sockaddr::expand(&text, &machine.interfaces).unwrap_or_else(|reason| {
            settings.mistake("proxy.localip", &format!("failed to parse local ip: {reason}"));
            String::new()
        })
    } else {
        let found = sockaddr::local_ip(&machine.interfaces);
        if found.is_none() {
            settings.report.say(
                Level::Warn,
                "Could not determine local ip address; set proxy.localip for by= in the Forwarded header",
            );
        }
        found.map(|ip| ip.to_string()).unwrap_or_default()
    };
    for key in ["proxy.header.clientip", "proxy.header.tls", "proxy.header.requestid"] {
        let values = &settings.values;
        let name = match key {
            "proxy.header.clientip" => &values.proxy_header_clientip,
            "proxy.header.tls" => &values.proxy_header_tls,
            _ => &values.proxy_header_requestid,
        };
        if !name.is_empty() && http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            settings.mistake(key, "not a header name; write letters, digits and dashes only");
        } else if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
            settings.mistake(
                key,
                "a header that says where a message goes or ends; take another name, such as X-Client-Ip",
            );
        }
    }
    if http::HeaderValue::from_str(&settings.values.proxy_header_tls_value).is_err() {
        settings.mistake("proxy.header.tls.value", "a header cannot have this value; leave control characters out");
    }
    let strategy = route::Strategy::parse(&settings.values.proxy_strategy);
    if strategy.is_none() {
        let why = format!("invalid proxy.strategy: {}; write {STRATEGIES}", settings.values.proxy_strategy);
        settings.mistake("proxy.strategy", &why);
    }
    let compression = compression::read(settings);
    let trusted = trusted(settings);

    let values = &settings.values;
    let client_ip_header = match values.proxy_header_clientip.as_str() {
        // These are set anyway, in their own way.
        name if name.eq_ignore_ascii_case("X-Forwarded-For") || name.eq_ignore_ascii_case("X-Real-Ip") => String::new(),
        name => name.to_owned(),
    };
    Some(proxy::Config {
        strategy: strategy?,
        no_route_status: u16::try_from(values.proxy_noroutestatus).ok()?,
        local_ip,
        client_ip_header,
        tls_header: values.proxy_header_tls.clone(),
        tls_header_value: values.proxy_header_tls_value.clone(),
        request_id_header: values.proxy_header_requestid.clone(),
        sts: proxy::Sts {
            max_age: u32::try_from(values.proxy_header_sts_maxage.max(0)).unwrap_or(u32::MAX),
            subdomains: values.proxy_header_sts_subdomains,
            preload: values.proxy_header_sts_preload,
        },
        trusted,
        strip_port: values.proxy_matchhostport == "strip",
        max_headers: usize::try_from(values.proxy_maxheaders).ok()?,
        max_header_size: usize::try_from(values.proxy_maxheadersize).ok()?,
        grpc_max_received: u64::try_from(values.proxy_grpcmaxrxmsgsize).ok()?,
        grpc_max_sent: u64::try_from(values.proxy_grpcmaxtxmsgsize).ok()?,
        max_target_size: usize::try_from(values.proxy_maxtargetsize).ok()?,
        retry_budget: u32::try_from(values.proxy_retrybudget).ok()?,
        retry_buffer: usize::try_from(values.proxy_retrybuffer).ok()?,
        max_body: u64::try_from(values.proxy_maxbody).ok()?,
        farewell: match values.proxy_websocket_closeframe.as_str() {
            "all" => proxy::Farewell::All,
            "none" => proxy::Farewell::Nobody,
            _ => proxy::Farewell::Browsers,
        },
        websocket_idle_timeout: duration::positive(values.proxy_websocket_idletimeout),
        compression,
        flush_interval: duration::positive(values.proxy_flushinterval),
        global_flush_interval: duration::positive(values.proxy_globalflushinterval),
    })
}

fn limits(settings: &mut Settings) -> listen::LimitsConfig {
    let mut exempt = Vec::new();
    for word in settings.values.proxy_maxclients_exempt.clone() {
        match listeners::network(&word) {
            Some(network) => exempt.push(network),
            None => settings.mistake("proxy.maxclients.exempt", &not_a_network(&word)),
        }
    }
    let values = &settings.values;
    let number = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
    listen::LimitsConfig {
        total: number(values.proxy_maxclients),
        listener: number(values.proxy_maxclients_listener),
        source: number(values.proxy_maxclients_source),
        exempt,
    }
}

fn not_a_network(word: &str) -> String {
    format!("{word:?} is no network; write 10.0.0.0/8 or 10.1.2.3, with commas between them")
}

fn trusted(settings: &mut Settings) -> Option<Vec<ipnet::IpNet>> {
    if !settings.explicit("proxy.trusted") {
        settings.report.say(
            Level::Warn,
            "proxy.trusted is not set: forwarding headers such as X-Forwarded-For are believed from everybody; list the networks of your balancers, or leave it empty to believe nobody",
        );
        return None;
    }
    let mut networks = Vec::new();
    for word in settings.values.proxy_trusted.clone() {
        match listeners::network(&word) {
            Some(network) => networks.push(network),
            None => settings.mistake("proxy.trusted", &not_a_network(&word)),
        }
    }
    Some(networks)
}

fn registry(
    settings: &mut Settings,
    environment: &Environment,
    machine: &Machine,
    admin: Option<&Listener>,
) -> Option<registry::Config> {
    let values = settings.values.clone();
    let backend = match values.registry_backend.as_str() {
        "consul" => registry::Backend::Consul(Box::new(agent::backend(settings, environment, machine, admin)?)),
        "static" => registry::Backend::Static {
            routes: values.registry_static_routes,
            page: values.registry_static_noroutehtml,
        },
        "file" => {
            if values.registry_file_path.is_empty() {
                settings.mistake("registry.file.path", "registry.backend=file needs a file with route commands");
            }
            let page = PathBuf::from(values.registry_file_noroutehtmlpath);
            registry::Backend::File {
                path: values.registry_file_path.into(),
                page: (!page.as_os_str().is_empty()).then_some(page),
            }
        }
        "custom" => {
            if values.registry_custom_host.is_empty() {
                settings.mistake("registry.custom.host", "registry.backend=custom needs a host:port to ask");
            }
            if !matches!(values.registry_custom_scheme.as_str(), "http" | "https") {
                settings.warn("registry.custom.scheme", "neither http nor https; nothing can be asked that way");
            }
            registry::Backend::Custom(registry::CustomConfig {
                host: values.registry_custom_host,
                scheme: values.registry_custom_scheme,
                path: values.registry_custom_path,
                query: values.registry_custom_queryparams,
                skip_verify: values.registry_custom_check_tls_skip_verify,
                timeout: duration::positive(values.registry_custom_timeout),
                poll_interval: duration::positive(values.registry_custom_pollinterval),
                page: values.registry_custom_noroutehtml,
            })
        }
        other => {
            let hint = near(other, BACKENDS.iter().copied()).map(|b| format!(" Did you mean {b}?")).unwrap_or_default();
            settings.mistake(
                "registry.backend",
                &format!("Unknown registry backend {other}; write {}.{hint}", kind::or(BACKENDS)),
            );
            return None;
        }
    };
    Some(registry::Config {
        backend,
        timeout: duration::positive(values.registry_timeout),
        retry: duration::positive(values.registry_retry),
        settings: route::Settings {
            matcher: match values.proxy_matcher.as_str() {
                "glob" => route::Matcher::Glob,
                "iprefix" => route::Matcher::IPrefix,
                _ => route::Matcher::Prefix,
            },
            globs: !values.glob_matching_disabled,
            known: route::Known::default(),
        },
        log: routes_log(settings),
        state: state(settings, environment),
    })
}

/// Where the last known routes are kept. What is set to nothing is nowhere, whatever the service manager has made.
fn state(settings: &Settings, environment: &Environment) -> Option<registry::StateConfig> {
    let given = settings.values.runtime_statedir.as_str();
    let dir = if settings.explicit("runtime.statedir") {
        Some(given)
    } else {
        // Several folders are possible; the first is the main one.
        environment.filled("STATE_DIRECTORY").and_then(|all| all.split(':').next())
    };
    let max_age = duration::positive(settings.values.registry_statemaxage);
    dir.filter(|dir| !dir.is_empty()).map(|dir| registry::StateConfig { dir: dir.into(), max_age })
}

/// What `log.routes.format` says, which the older key overrides.
pub(crate) fn routes_format(settings: &Settings) -> &str {
    let values = &settings.values;
    if values.proxy_log_routes.is_empty() { &values.log_routes_format } else { &values.proxy_log_routes }
}

fn routes_log(settings: &mut Settings) -> registry::RoutesLog {
    let format = routes_format(settings).to_owned();
    match format.as_str() {
        "delta" => registry::RoutesLog::Delta,
        "all" => registry::RoutesLog::All,
        "detail" => registry::RoutesLog::Detail,
        "none" => registry::RoutesLog::Off,
        other => {
            let line = format!(
                "Invalid route format {other:?}. Defaulting to \"delta\"; there are delta, all, detail and none"
            );
            settings.report.say(Level::Warn, line);
            registry::RoutesLog::Delta
        }
    }
}

fn log(settings: &mut Settings) -> Log {
    let level = settings.values.log_level.trim().parse().unwrap_or_else(|()| {
        let line = format!(
            "Cannot set log level to {}; there are TRACE, DEBUG, INFO, WARN, ERROR and FATAL",
            settings.values.log_level
        );
        settings.report.say(Level::Warn, line);
        Level::Info
    });
    Log { level }
}

/// `None` also if something is wrong with it. Without a target nobody looks at the rest, as in fabio.
fn access_log(settings: &mut Settings) -> Option<access_log::Config> {
    let values = settings.values.clone();
    if values.log_access_target.is_empty() {
        return None;
    }
    let target = access_log::Target::parse(&values.log_access_target)
        .map_err(|error| settings.mistake("log.access.target", &error.to_string()));
    let format = access_log::Format::parse(&values.log_access_format)
        .map_err(|error| settings.mistake("log.access.format", &error.to_string()));
    let target = target.ok()?;
    if values.log_access_rotate > 0 && !matches!(target, access_log::Target::File(_)) {
        settings.warn("log.access.rotate", "only a file can be rotated; this changes nothing");
    }
    Some(access_log::Config {
        target,
        format: format.ok()?,
        all: values.log_access_all,
        sample: u64::try_from(values.log_access_sample).unwrap_or(1),
        only_errors: values.log_access_filter == "errors",
        mask: access_log::Mask::new(values.log_access_masquery.iter().map(String::as_str)),
        rotate: u64::try_from(values.log_access_rotate).unwrap_or(0),
        keep: usize::try_from(values.log_access_keep).unwrap_or(0),
    })
}

fn metrics(settings: &mut Settings, machine: &Machine) -> Option<metrics::Config> {
    let mut targets: Vec<String> = Vec::new();
    for target in settings.values.metrics_target.clone() {
        if target == "statsd" {
            settings.mistake("metrics.target", "statsd support has been removed in favor of statsd_raw");
        } else if pending::METRICS_TARGETS.contains(&target.as_str()) {
            settings.mistake(
                "metrics.target",
                &format!("{target} is not built yet; nothing would be sent: write prometheus, or nothing"),
            );
        } else if target != "prometheus" && !metrics::PUSH_TARGETS.contains(&target.as_str()) {
            let known = pending::METRICS_TARGETS.iter().chain(metrics::PUSH_TARGETS).copied().chain(["prometheus"]);
            let hint = near(&target, known).map(|t| format!("; did you mean {t}?")).unwrap_or_default();
            settings.mistake("metrics.target", &format!("invalid metrics backend {target}{hint}"));
        } else {
            let target = if target == "flat" { "stdout".to_owned() } else { target };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    if targets.iter().any(|target| matches!(target.as_str(), "statsd_raw" | "dogstatsd" | "graphite"))
        && settings.values.metrics_interval <= 0
    {
        settings.mistake("metrics.interval", "must be above 0 for exporters that push");
    }
    for (target, key, empty) in [
        ("statsd_raw", "metrics.statsd.addr", settings.values.metrics_statsd_addr.is_empty()),
        ("dogstatsd", "metrics.dogstatsd.addr", settings.values.metrics_dogstatsd_addr.is_empty()),
        ("graphite", "metrics.graphite.addr", settings.values.metrics_graphite_addr.is_empty()),
    ] {
        if empty && targets.iter().any(|known| known == target) {
            settings.warn(key, &format!("{target} has no host:port to send to; nothing is sent"));
        }
    }
    if targets.iter().any(|target| target == "circonus") {
        let (key, url) = (&settings.values.metrics_circonus_apikey, &settings.values.metrics_circonus_submissionurl);
        if key.is_empty() && url.is_empty() {
            settings.mistake("metrics.target", "metrics: Circonus API token key or SubmissionURL");
        } else if url.is_empty() {
            settings.mistake(
                "metrics.circonus.apikey",
                "looking up a check by its key is not built yet, and nothing would be sent: set metrics.circonus.submissionurl",
            );
        } else if !url.starts_with("http://") && !url.starts_with("https://") {
            settings.mistake("metrics.circonus.submissionurl", "not a URL; write https://host/path");
        }
    }
    if let Err(reason) = metrics::check_names(&settings.values.metrics_names) {
        settings.mistake("metrics.names", &format!("metrics: invalid Names template: {reason}"));
    }
    let prefix = match settings.values.metrics_prefix.as_str() {
        "default" => DEFAULT_PREFIX.to_owned(),
        text => text.to_owned(),
    };
    let prefix = template::expand(&prefix, &PrefixScope { hostname: &machine.hostname, program: "fabio" })
        .unwrap_or_else(|reason| {
            let line = format!("metrics: invalid Prefix template: {reason}; write for instance {DEFAULT_PREFIX}");
            settings.mistake("metrics.prefix", &line);
            String::new()
        });
    if !settings.values.metrics_prometheus_path.starts_with('/') {
        settings.mistake("metrics.prometheus.path", "must begin with /");
    }
    let buckets = &mut settings.values.metrics_prometheus_buckets;
    if buckets.is_empty() {
        buckets.extend_from_slice(BUCKETS);
    }
    if !buckets.is_sorted_by(|a, b| a < b) {
        settings.mistake("metrics.prometheus.buckets", "must increase from one to the next");
    }
    let values = &settings.values;
    Some(metrics::Config {
        targets,
        prefix,
        names: values.metrics_names.clone(),
        interval: duration::positive(values.metrics_interval),
        circonus_url: values.metrics_circonus_submissionurl.clone(),
        addresses: metrics::Addresses {
            statsd: values.metrics_statsd_addr.clone(),
            dogstatsd: values.metrics_dogstatsd_addr.clone(),
            graphite: values.metrics_graphite_addr.clone(),
        },
        prometheus_subsystem: values.metrics_prometheus_subsystem.clone(),
        prometheus_path: values.metrics_prometheus_path.clone(),
        prometheus_buckets: values.metrics_prometheus_buckets.clone(),
    })
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

const STRATEGIES: &str = "rnd, rr, p2c, least, hash=header:NAME, hash=cookie:NAME, hash=ip or hash=path";
const BACKENDS: &[&str] = &["consul", "static", "file", "custom"];

const DEFAULT_PREFIX: &str = "{{clean .Hostname}}.{{clean .Exec}}";

/// Seconds.
const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Also the bound of `runtime.gomaxprocs`.
const MAX_WORKERS: usize = 1024;

/// Headers that are no place for facts about the client.
const FRAMING: [&str; 11] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Host",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Content-Encoding",
];
