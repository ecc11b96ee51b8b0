//! `proxy.*`: what is done with a request, and how many clients there may be.

use super::super::settings::Settings;
use super::super::{Level, compression, duration, listeners, sockaddr};
use super::Machine;
use crate::{listen, proxy, route};

pub(super) fn proxy(settings: &mut Settings, machine: &Machine) -> Option<proxy::Config> {
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

pub(super) fn limits(settings: &mut Settings) -> listen::LimitsConfig {
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

const STRATEGIES: &str = "rnd, rr, p2c, least, hash=header:NAME, hash=cookie:NAME, hash=ip or hash=path";

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
