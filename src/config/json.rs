//! The effective configuration in the shape that `/api/config` of fabio has: names, order, `null` and all.

use serde_json::{Map, Number, Value, json};

use crate::registry;

use super::certificates::Entry;
use super::listeners::{self, Listener};
use super::parts::{self, Lists, Machine};
use super::settings::{REDACTED, Settings, redact};
use crate::auth::Kind;

/// Compact. Durations are nanoseconds; secrets are masked.
pub(crate) fn dump(
    settings: &Settings,
    lists: &Lists,
    registry: &registry::Config,
    proxy: &crate::proxy::Config,
    machine: &Machine,
) -> String {
    let v = &settings.values;
    let consul = match &registry.backend {
        registry::Backend::Consul(consul) => Some(consul),
        _ => None,
    };
    let none = Listener::default();
    let document = json!({
        "Log": {
            "AccessFormat": v.log_access_format,
            "AccessTarget": v.log_access_target,
            "RoutesFormat": parts::routes_format(settings),
            "Level": v.log_level,
        },
        "ProfileMode": v.profile_mode,
        "ProfilePath": v.profile_path,
        "Listen": lists.listeners.iter().map(listener).collect::<Vec<_>>(),
        "Metrics": {
            "Circonus": {
                "APIKey": masked(&v.metrics_circonus_apikey),
                "APIApp": v.metrics_circonus_apiapp,
                "APIURL": redact(&v.metrics_circonus_apiurl),
                "CheckID": v.metrics_circonus_checkid,
                "BrokerID": v.metrics_circonus_brokerid,
                "SubmissionURL": masked(&v.metrics_circonus_submissionurl),
            },
            "Target": v.metrics_target.join(","),
            "Prefix": v.metrics_prefix,
            "Names": v.metrics_names,
            "GraphiteAddr": v.metrics_graphite_addr,
            "StatsDAddr": v.metrics_statsd_addr,
            "DogstatsdAddr": v.metrics_dogstatsd_addr,
            "Prometheus": {
                "Subsystem": v.metrics_prometheus_subsystem,
                "Path": v.metrics_prometheus_path,
                "Buckets": v.metrics_prometheus_buckets.iter().map(|n| float(*n)).collect::<Vec<_>>(),
            },
            "Interval": v.metrics_interval,
            "Timeout": v.metrics_timeout,
            "Retry": v.metrics_retry,
        },
        "BGP": {
            "RouterID": v.bgp_routerid,
            "GRPCListenAddress": v.bgp_grpclistenaddress,
            "CertFile": "",
            "KeyFile": "",
            "GOBGPDCfgFile": v.bgp_gobgpdcfgfile,
            "NextHop": v.bgp_nexthop,
            "AnycastAddresses": or_null(&v.bgp_anycastaddresses),
            "ListenAddresses": or_null(&v.bgp_listenaddresses),
            "Peers": peers(lists),
            "Asn": v.bgp_asn,
            "ListenPort": v.bgp_listenport,
            "BGPEnabled": v.bgp_enabled,
            "EnableGRPC": v.bgp_enablegrpc,
            "GRPCTLS": false,
        },
        "UI": {
            "RoutingTable": {
                "Source": {
                    "Scheme": v.ui_source_scheme,
                    "Host": v.ui_source_host,
                    "Port": v.ui_source_port,
                    "LinkEnabled": v.ui_source_linkenabled,
                    "NewTab": v.ui_source_newtab,
                },
            },
            "Color": v.ui_color,
            "Title": v.ui_title,
            "Access": v.ui_access,
            "Path": v.ui_path.trim_end_matches('/'),
            "Listen": listener(lists.admin.as_ref().unwrap_or(&none)),
        },
        "Registry": {
            "Static": { "NoRouteHTML": v.registry_static_noroutehtml, "Routes": v.registry_static_routes },
            "File": { "NoRouteHTMLPath": v.registry_file_noroutehtmlpath, "RoutesPath": v.registry_file_path },
            "Backend": v.registry_backend,
            "Custom": {
                "Host": v.registry_custom_host,
                "Path": v.registry_custom_path,
                "QueryParams": redact(&v.registry_custom_queryparams),
                "Scheme": v.registry_custom_scheme,
                "NoRouteHTML": v.registry_custom_noroutehtml,
                "PollInterval": v.registry_custom_pollinterval,
                "Timeout": v.registry_custom_timeout,
                "CheckTLSSkipVerify": v.registry_custom_check_tls_skip_verify,
            },
            "Consul": {
                "Addr": consul.map_or(v.registry_consul_addr.as_str(), |c| c.client.addr.as_str()),
                "Scheme": consul.map_or("http", |c| c.client.scheme.as_str()),
                "Token": masked(&v.registry_consul_token),
                "KVPath": v.registry_consul_kvpath,
                "NoRouteHTMLPath": v.registry_consul_noroutehtmlpath,
                "TagPrefix": v.registry_consul_tagprefix,
                "Namespace": v.registry_consul_namespace,
                "ServiceAddr": consul.map_or(v.registry_consul_register_addr.as_str(), |c| c.announce.addr.as_str()),
                "ServiceName": v.registry_consul_register_name,
                "CheckScheme": consul.map_or("http", |c| c.announce.check_scheme.as_str()),
                "ChecksRequired": v.registry_consul_checks_required,
                "TLS": {
                    "KeyFile": v.registry_consul_tls_keyfile,
                    "CertFile": v.registry_consul_tls_certfile,
                    "CAFile": v.registry_consul_tls_cafile,
                    "CAPath": v.registry_consul_tls_capath,
                    "InsecureSkipVerify": v.registry_consul_tls_insecureskipverify,
                },
                "ServiceTags": or_null(&v.registry_consul_register_tags),
                "ServiceStatus": or_null(&v.registry_consul_service_status),
                "CheckInterval": v.registry_consul_register_check_interval,
                "CheckTimeout": v.registry_consul_register_check_timeout,
                "ServiceMonitors": v.registry_consul_service_monitors.max(1),
                "PollInterval": v.registry_consul_pollinterval,
                "Register": v.registry_consul_register_enabled,
                "CheckTLSSkipVerify": v.registry_consul_register_check_tls_skip_verify,
                "RequireConsistent": v.registry_consul_require_consistent,
                "AllowStale": v.registry_consul_allow_stale,
            },
            "Timeout": v.registry_timeout,
            "Retry": v.registry_retry,
        },
        "Proxy": {
            "GZIPContentTypes": if v.proxy_gzip_contenttype.is_empty() { Value::Null } else { Value::from(v.proxy_gzip_contenttype.as_str()) },
            "AuthSchemes": schemes(lists),
            "Strategy": v.proxy_strategy,
            "Matcher": v.proxy_matcher,
            "LocalIP": proxy.local_ip,
            "ClientIPHeader": v.proxy_header_clientip,
            "TLSHeader": v.proxy_header_tls,
            "TLSHeaderValue": v.proxy_header_tls_value,
            "RequestID": v.proxy_header_requestid,
            "STSHeader": { "MaxAge": v.proxy_header_sts_maxage, "Subdomains": v.proxy_header_sts_subdomains, "Preload": v.proxy_header_sts_preload },
            "NoRouteStatus": v.proxy_noroutestatus,
            "MaxConn": v.proxy_maxconn,
            "ShutdownWait": v.proxy_shutdownwait,
            "DeregisterGracePeriod": v.proxy_deregistergraceperiod,
            "DialTimeout": v.proxy_dialtimeout,
            "ResponseHeaderTimeout": v.proxy_responseheadertimeout,
            "KeepAliveTimeout": v.proxy_keepalivetimeout,
            "IdleConnTimeout": v.proxy_idleconntimeout,
            "FlushInterval": v.proxy_flushinterval,
            "GlobalFlushInterval": v.proxy_globalflushinterval,
            "GRPCMaxRxMsgSize": v.proxy_grpcmaxrxmsgsize,
            "GRPCMaxTxMsgSize": v.proxy_grpcmaxtxmsgsize,
            "GRPCGShutdownTimeout": v.proxy_grpcshutdowntimeout,
        },
        "Runtime": {
            "GOGC": v.runtime_gogc,
            "GOMAXPROCS": if v.runtime_gomaxprocs == -1 { i64::try_from(machine.cpus).unwrap_or(i64::MAX) } else { v.runtime_gomaxprocs },
        },
        "GlobCacheSize": v.glob_cache_size,
        "Insecure": v.insecure,
        "GlobMatchingDisabled": v.glob_matching_disabled,
    });
    escape(&document.to_string())
}

/// The same with line breaks and four blanks for each level.
pub fn pretty(compact: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(compact) else { return compact.to_owned() };
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    if serde::Serialize::serialize(&value, &mut serializer).is_err() {
        return compact.to_owned();
    }
    escape(&String::from_utf8_lossy(&out))
}

/// As Go does for the sake of HTML. These characters only stand inside strings.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

fn listener(listener: &Listener) -> Value {
    let config = &listener.config;
    json!({
        "CertSource": source(listener.source.as_ref()),
        "Addr": config.addr,
        "Proto": if config.addr.is_empty() { "" } else { listeners::word(config.proto) },
        "TLSCiphers": or_null(&config.tls_ciphers),
        "ReadTimeout": listener.times.read,
        "WriteTimeout": listener.times.write,
        "IdleTimeout": listener.times.idle,
        "ProxyHeaderTimeout": listener.times.header,
        "Refresh": listener.times.refresh,
        "TLSMinVersion": config.tls_min,
        "TLSMaxVersion": config.tls_max,
        "StrictMatch": config.strict_match,
        "ProxyProto": config.proxy_protocol,
    })
}

fn source(entry: Option<&Entry>) -> Value {
    let text = |of: fn(&Entry) -> &str| entry.map(of).unwrap_or_default();
    let header = entry.and_then(|entry| entry.header.as_ref()).map(|(name, _)| json!({ name: [REDACTED] }));
    json!({
        "Header": header,
        "Name": text(|e| &e.name),
        "Type": text(|e| e.kind.word()),
        "CertPath": redact(text(|e| &e.cert)),
        "KeyPath": redact(text(|e| &e.key)),
        "ClientCAPath": redact(text(|e| &e.client_ca)),
        "CAUpgradeCN": text(|e| &e.ca_upgrade_cn),
        "VaultFetchToken": text(|e| &e.vault_fetch_token),
        "Refresh": entry.map_or(0, |e| e.refresh),
    })
}

fn schemes(lists: &Lists) -> Value {
    let mut map = Map::new();
    let mut schemes: Vec<_> = lists.schemes.iter().collect();
    schemes.sort_by(|a, b| a.name.cmp(&b.name));
    for scheme in schemes {
        // Further kinds are ours, and what fabio's clients know of a scheme is empty there.
        let (kind, file) = match &scheme.kind {
            Kind::Basic(basic) => ("basic", basic.file.to_string_lossy()),
            Kind::ApiKey(_) => ("apikey", "".into()),
            Kind::Forward(_) => ("forward", "".into()),
            Kind::Jwt(_) => ("jwt", "".into()),
        };
        let basic = json!({ "ModTime": "0001-01-01T00:00:00Z", "Realm": scheme.realm, "File": file, "Refresh": scheme.refresh });
        map.insert(scheme.name.clone(), json!({ "Name": scheme.name, "Type": kind, "Basic": basic }));
    }
    Value::Object(map)
}

fn peers(lists: &Lists) -> Value {
    let peer = |peer: &super::bgp::Peer| {
        json!({
            "NeighborAddress": peer.address,
            "Password": masked(&peer.password),
            "NeighborPort": peer.port,
            "Asn": peer.asn,
            "MultiHopLength": peer.multihop_length,
            "MultiHop": peer.multihop,
        })
    };
    match lists.peers.as_slice() {
        [] => Value::Null,
        list => list.iter().map(peer).collect(),
    }
}

/// An unset list is `null` in Go.
fn or_null<T: Clone + Into<Value>>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { list.iter().cloned().map(Into::into).collect() }
}

fn masked(secret: &str) -> &str {
    if secret.is_empty() { "" } else { REDACTED }
}

/// Whole numbers stand without a point.
fn float(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e15 {
        return Value::from(n as i64);
    }
    Number::from_f64(n).map_or(Value::Null, Value::Number)
}
