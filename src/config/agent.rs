//! The Consul agent: how to reach it, what to watch, and how to appear in it.

use crate::route::Allow;
use crate::{consul, registry};

use super::environment::Environment;
use super::listeners::Listener;
use super::parts::Machine;
use super::settings::Settings;
use super::{Level, duration, number, sockaddr};

/// Backend `consul`; `None` if there is no way to reach it.
pub(crate) fn backend(
    settings: &mut Settings,
    environment: &Environment,
    machine: &Machine,
    admin: Option<&Listener>,
) -> Option<registry::ConsulConfig> {
    let values = settings.values.clone();
    if values.registry_consul_allow_stale && values.registry_consul_require_consistent {
        let line = "registry.consul.allowStale and registry.consul.requireConsistent cannot both be true; write registry.consul.requireConsistent=false";
        settings.mistake("registry.consul.allowStale", line);
    }
    if !matches!(values.registry_consul_checks_required.as_str(), "one" | "all") {
        settings.warn("registry.consul.checksRequired", "means one; write one or all");
    }
    if values.registry_consul_service_status.is_empty() {
        settings.warn(
            "registry.consul.service.status",
            "no check state counts as good, so nothing is ever routed; write passing",
        );
    }
    let allow = Allow::parse(values.registry_consul_allow.iter().map(String::as_str)).unwrap_or_else(|reason| {
        settings.mistake("registry.consul.allow", &reason);
        Allow::default()
    });
    let datacenters = datacenters(settings);
    let client = client(settings, environment);
    let announce = announce(settings, machine, admin);
    Some(registry::ConsulConfig {
        client: client?,
        kv_path: without_slash(&values.registry_consul_kvpath),
        page_path: without_slash(&values.registry_consul_noroutehtmlpath),
        options_path: without_slash(&values.registry_consul_optionspath),
        error_pages_path: without_slash(&values.registry_consul_errorpagespath),
        down_page_path: without_slash(&values.registry_consul_unavailablehtmlpath),
        datacenters,
        tag_prefix: values.registry_consul_tagprefix,
        allow,
        service_status: values.registry_consul_service_status,
        checks_all: values.registry_consul_checks_required == "all",
        connect: values.registry_consul_connect.clone(),
        keep_unhealthy: values.registry_consul_keepunhealthy,
        service_monitors: usize::try_from(values.registry_consul_service_monitors.max(1)).unwrap_or(1),
        poll_interval: duration::positive(values.registry_consul_pollinterval),
        register: values.registry_consul_register_enabled && !announce.addr.is_empty(),
        announce,
    })
}

/// As Consul writes their names.
fn datacenters(settings: &mut Settings) -> Vec<String> {
    const KEY: &str = "registry.consul.datacenters";
    let mut names: Vec<String> = Vec::new();
    for text in settings.values.registry_consul_datacenters.clone() {
        let name = text.to_ascii_lowercase();
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if text == "*" {
            settings.mistake(
                KEY,
                "* stands for no datacenter here, since their order says which is preferred; name them, as in east,west",
            );
        } else if text.is_empty() || !text.bytes().all(legal) {
            let line =
                format!("{text:?} is no name of a datacenter: those have letters, digits, - and _; write east,west");
            settings.mistake(KEY, &line);
        } else if names.contains(&name) {
            settings.mistake(KEY, &format!("{name} is named twice; write it once, where its place in the order is"));
        } else {
            names.push(name);
        }
    }
    names
}

pub(super) fn client(settings: &mut Settings, environment: &Environment) -> Option<consul::Config> {
    let values = settings.values.clone();
    let (scheme, addr, path_prefix) = match address(&values.registry_consul_addr) {
        Ok(parts) => parts,
        Err(reason) => {
            settings.mistake("registry.consul.addr", reason);
            return None;
        }
    };
    let filled = |name: &str| environment.filled(name).map(str::to_owned);
    let option = |value: &str, name: &str| Some(value.to_owned()).filter(|v| !v.is_empty()).or_else(|| filled(name));
    if !values.registry_consul_token.is_empty() && !values.registry_consul_tokenfile.is_empty() {
        settings.warn("registry.consul.tokenfile", "not used, since registry.consul.token is set too");
    }
    let token = if !values.registry_consul_token.is_empty() {
        consul::Token::Value(values.registry_consul_token)
    } else if let Some(file) = option(&values.registry_consul_tokenfile, "CONSUL_HTTP_TOKEN_FILE") {
        consul::Token::File(file.into())
    } else {
        filled("CONSUL_HTTP_TOKEN").map_or(consul::Token::None, consul::Token::Value)
    };
    let tls = consul::Tls {
        key_file: option(&values.registry_consul_tls_keyfile, "CONSUL_CLIENT_KEY"),
        cert_file: option(&values.registry_consul_tls_certfile, "CONSUL_CLIENT_CERT"),
        ca_file: option(&values.registry_consul_tls_cafile, "CONSUL_CACERT"),
        ca_path: option(&values.registry_consul_tls_capath, "CONSUL_CAPATH"),
        server_name: filled("CONSUL_TLS_SERVER_NAME"),
        insecure_skip_verify: values.registry_consul_tls_insecureskipverify
            || filled("CONSUL_HTTP_SSL_VERIFY").is_some_and(|text| number::boolean(&text) == Some(false)),
    };
    if scheme == "https" && tls.key_file.is_some() != tls.cert_file.is_some() {
        let key = if tls.key_file.is_some() { "registry.consul.tls.certfile" } else { "registry.consul.tls.keyfile" };
        settings.mistake(key, "client key and certificate for Consul must be given together");
    }
    Some(consul::Config {
        addr,
        scheme,
        path_prefix,
        token,
        namespace: option(&values.registry_consul_namespace, "CONSUL_NAMESPACE"),
        partition: filled("CONSUL_PARTITION"),
        datacenter: None,
        consistency: match (values.registry_consul_require_consistent, values.registry_consul_allow_stale) {
            (true, _) => consul::Consistency::Consistent,
            (false, true) => consul::Consistency::Stale,
            (false, false) => consul::Consistency::Default,
        },
        tls,
    })
}

/// Scheme, `host:port` or `unix://path`, path below which the API lives. Everything but paths is in lower case.
fn address(text: &str) -> Result<(String, String, String), &'static str> {
    let text = text.trim();
    let starts = |prefix: &str| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if starts("unix://") {
        let path = &text["unix://".len()..];
        return if path.starts_with('/') {
            Ok(("http".to_owned(), format!("unix://{path}"), String::new()))
        } else {
            Err("write the socket with its whole path, as in unix:///run/consul.sock")
        };
    }
    let (scheme, rest) = if starts("https://") {
        ("https", &text["https://".len()..])
    } else if starts("http://") {
        ("http", &text["http://".len()..])
    } else {
        ("http", text)
    };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if host.is_empty()
        || host.contains("://")
        || host.contains(['?', '#', '@'])
        || host.chars().any(char::is_whitespace)
        || !is_authority(host)
    {
        return Err("no address of a Consul agent; write host:port, http(s)://host:port or unix:///path");
    }
    let path = path.trim_end_matches('/');
    // The API's own first element is not part of where it lives.
    let path = path.strip_suffix("/v1").unwrap_or(path);
    Ok((scheme.to_owned(), host.to_lowercase(), path.to_owned()))
}

/// `host` or `host:port`, of which the port is one.
fn is_authority(text: &str) -> bool {
    let behind = text.rsplit_once(']').map_or(text, |(_, behind)| behind);
    let port = behind.rsplit_once(':').map(|(_, port)| port);
    text.parse::<http::uri::Authority>().is_ok() && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn announce(settings: &mut Settings, machine: &Machine, admin: Option<&Listener>) -> registry::Announce {
    const KEY: &str = "registry.consul.register.addr";
    let explicit = settings.explicit(KEY);
    let addr = if explicit {
        let text = settings.values.registry_consul_register_addr.clone();
        sockaddr::expand(&text, &machine.interfaces).unwrap_or_else(|reason| {
            settings.mistake(KEY, &format!("failed to consul service address: {reason}"));
            String::new()
        })
    } else {
        admin.map(|listener| listener.config.addr.clone()).unwrap_or_default()
    };
    if settings.values.registry_consul_register_enabled && !settings.faulty(KEY) && !settings.faulty("ui.addr") {
        let port = addr.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if addr.is_empty() && !explicit {
            settings.report.say(
                Level::Warn,
                "ui.addr is empty: not registering in Consul, since there is nothing that it could check",
            );
        } else if port.is_none() {
            let line = if explicit {
                "write host:port with a number as port"
            } else {
                "the address of ui.addr has no number as port; set this to host:port"
            };
            settings.mistake(KEY, line);
        }
    }
    let values = &settings.values;
    registry::Announce {
        name: values.registry_consul_register_name.clone(),
        addr,
        local_ip: sockaddr::local_ip(&machine.interfaces),
        check_scheme: if admin.is_some_and(|listener| listener.source.is_some()) { "https" } else { "http" }.to_owned(),
        tags: values.registry_consul_register_tags.clone(),
        check_interval: duration::positive(values.registry_consul_register_check_interval),
        check_timeout: duration::positive(values.registry_consul_register_check_timeout),
        check_tls_skip_verify: values.registry_consul_register_check_tls_skip_verify,
    }
}

fn without_slash(path: &str) -> String {
    path.strip_prefix('/').unwrap_or(path).to_owned()
}
