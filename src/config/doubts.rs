//! Values that are accepted, since fabio accepts them, but are hardly meant. Each is a warning at start and in `ferrio check`.

use std::net::IpAddr;

use super::kind::or;
use super::listeners::Listener;
use super::settings::Settings;
use crate::listen::Proto;
use crate::{access_log, admin};

/// Looks at everything that does not stand in a list of listeners, sources or schemes: those are looked at while they are read.
pub(super) fn look(settings: &mut Settings, listeners: &[Listener]) {
    let values = settings.values.clone();
    let scraped = |listener: &Listener| listener.config.proto == Proto::Prometheus;
    if values.metrics_target.iter().any(|target| target == "prometheus") && !listeners.iter().any(scraped) {
        let line = "no listener shows the series of prometheus; add one to proxy.addr, as in :9997;proto=prometheus";
        settings.warn("metrics.target", line);
    }
    if values.proxy_addr.trim().is_empty() {
        settings.warn("proxy.addr", "there is no listener, so nobody is served; write for instance :9999");
    }
    let ip = values.proxy_localip.as_str();
    if !ip.is_empty() && !ip.contains("{{") && ip.parse::<IpAddr>().is_err() {
        settings.warn("proxy.localip", "no IP address; it goes into the header Forwarded as it is");
    }
    if values.log_access_target.is_empty()
        && let Err(error) = access_log::Format::parse(&values.log_access_format)
    {
        let line = format!("{error}; not used as long as log.access.target is empty");
        settings.warn("log.access.format", &line);
    }
    for (key, addr) in [
        ("metrics.graphite.addr", &values.metrics_graphite_addr),
        ("metrics.statsd.addr", &values.metrics_statsd_addr),
        ("metrics.dogstatsd.addr", &values.metrics_dogstatsd_addr),
    ] {
        if !addr.is_empty() && !has_port(addr) {
            settings.warn(key, "nothing can be sent there; write host:port");
        }
    }
    ui(settings);
    match values.registry_backend.as_str() {
        "consul" => consul(settings),
        "custom" if values.registry_custom_pollinterval == 0 => {
            settings.warn("registry.custom.pollinterval", "asks again as soon as is allowed; write 10s");
        }
        _ => {}
    }
}

fn ui(settings: &mut Settings) {
    let values = settings.values.clone();
    if !values.ui_color.is_empty() && !admin::is_color(&values.ui_color) {
        let line = "no colour of Materialize CSS; the default is shown: write for instance light-green, indigo or red darken-2";
        settings.warn("ui.color", line);
    }
    let port = values.ui_source_port.as_str();
    if !port.is_empty() && port.parse::<u16>().is_err() {
        settings.warn("ui.routingtable.source.port", "no port, so the links lead nowhere; write a number up to 65535");
    }
    for host in values.ui_hosts.iter().filter(|host| host.contains(['/', ' ', '\t']) || host.contains("://")) {
        let line = format!("{host:?} is no host name; write names alone, as in admin.example.com, *.example.com");
        settings.warn("ui.hosts", &line);
    }
}

/// What Consul does not know, or takes for more than is meant.
fn consul(settings: &mut Settings) {
    let values = settings.values.clone();
    for word in values.registry_consul_service_status.iter().filter(|word| !STATES.contains(&word.as_str())) {
        let line = format!("{word:?} is no state of a check in Consul; write {}", or(STATES));
        settings.warn("registry.consul.service.status", &line);
    }
    if values.registry_consul_tagprefix.is_empty() {
        settings.warn("registry.consul.tagprefix", "every tag of every service is taken for a route; write urlprefix-");
    }
    if values.registry_consul_kvpath.trim_matches('/').is_empty() {
        let line = "all keys in Consul are taken for route overrides; write a path of their own, as in /fabio/config";
        settings.warn("registry.consul.kvpath", line);
    }
    let plain = !values.registry_consul_addr.to_lowercase().starts_with("https://");
    for (key, path) in [
        ("registry.consul.tls.cafile", &values.registry_consul_tls_cafile),
        ("registry.consul.tls.capath", &values.registry_consul_tls_capath),
        ("registry.consul.tls.certfile", &values.registry_consul_tls_certfile),
    ] {
        if plain && !path.is_empty() {
            settings.warn(key, "not used, since registry.consul.addr is not https; write https://host:port there");
        }
    }
    if values.registry_consul_register_enabled && values.registry_consul_register_check_interval == 0 {
        let line = "Consul refuses a check without an interval, so nothing is registered; write 1s";
        settings.warn("registry.consul.register.checkInterval", line);
    }
}

/// `host:port`.
fn has_port(addr: &str) -> bool {
    addr.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
}

const STATES: &[&str] = &["passing", "warning", "critical", "maintenance"];
