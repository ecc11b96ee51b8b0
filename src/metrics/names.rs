//! Every series name that ferrio exports, in one place.
//!
//! The first group are fabio's internal names; exporters derive theirs from them (see [`family`]). The second group are
//! our own, recorded through the `metrics` facade by the control plane and exported as they stand here.

/// Histogram {host, path, service, target}: requests and calls that went to a target.
pub const ROUTE: &str = "route";
/// Counter {host, path, service, target}: bytes from the target to the client, TCP family.
pub const ROUTE_RX: &str = "route.rx";
/// Counter {host, path, service, target}: bytes from the client to the target, TCP family.
pub const ROUTE_TX: &str = "route.tx";
/// Counter: requests and connections without a route.
pub const NOT_FOUND: &str = "notfound";
/// Histogram {service}: HTTP requests that went to a target.
pub const REQUESTS: &str = "requests";
/// Histogram {code, service}: the same by status.
pub const HTTP_STATUS: &str = "http.status";
/// Counter {code}: redirects that we answered.
pub const HTTP_REDIRECT_COUNT: &str = "http.redirect.count";
/// Gauge: open WebSocket connections.
pub const WS_CONN: &str = "ws.conn";
/// Counter: accepted connections of grpc and grpcs listeners.
pub const GRPC_CONN: &str = "grpc.conn";
/// Histogram: finished gRPC calls.
pub const GRPC_REQUESTS: &str = "grpc.requests";
/// Counter: gRPC calls without a route.
pub const GRPC_NO_ROUTE: &str = "grpc.noroute";
/// Histogram {code}: finished gRPC calls by status, under the name that fabio's dashboards know.
pub const GREP_STATUS: &str = "grep.status";
/// The same, rightly spelled.
pub const GRPC_STATUS: &str = "grpc.status";
/// Counter: accepted connections of tcp and tcp-dynamic listeners.
pub const TCP_CONN: &str = "tcp.conn";
/// Counter: targets that could not be reached.
pub const TCP_CONN_FAIL: &str = "tcp.connfail";
/// Counter: connections without a route.
pub const TCP_NO_ROUTE: &str = "tcp.noroute";
/// As `tcp.conn`, for tcp+sni and https+tcp+sni listeners.
pub const TCP_SNI_CONN: &str = "tcp_sni.conn";
/// As `tcp.connfail`; also unreadable ClientHellos and those without a server name.
pub const TCP_SNI_CONN_FAIL: &str = "tcp_sni.connfail";
/// As `tcp.noroute`.
pub const TCP_SNI_NO_ROUTE: &str = "tcp_sni.noroute";

/// Counter {host, path, reason, service, target}: tries at a target that failed.
pub const UPSTREAM_ERRORS: &str = "ferrio_upstream_errors_total";
/// Counter {host, path, reason, service, target}: requests that were sent again, to this target.
pub const UPSTREAM_RETRIES: &str = "ferrio_upstream_retries_total";
/// Counter {host, path, reason, service, target}: how often a target began to be passed over.
pub const UPSTREAM_EJECTIONS: &str = "ferrio_upstream_ejections_total";
/// Counter {host, path, reason, service, target}: requests that a limit refused.
pub const LIMITED: &str = "ferrio_limited_total";
/// Counter {source}: failed reads of a route source.
pub const REGISTRY_ERRORS: &str = "ferrio_registry_errors_total";
/// Gauge {source}: 1 while a route source does not answer.
pub const REGISTRY_FAILING: &str = "ferrio_registry_failing";
/// Gauge: tags and lines that could not be used.
pub const REGISTRY_REJECTS: &str = "ferrio_registry_rejects";
/// Counter: published tables.
pub const REGISTRY_UPDATES: &str = "ferrio_registry_updates_total";
/// Gauge: seconds to build the last table.
pub const REGISTRY_BUILD_SECONDS: &str = "ferrio_registry_build_seconds";
/// Gauge: routes of the table.
pub const REGISTRY_ROUTES: &str = "ferrio_registry_routes";
/// Gauge: targets of the table.
pub const REGISTRY_TARGETS: &str = "ferrio_registry_targets";
/// Gauge {source, name}: end of validity of a certificate, seconds since 1970. NaN: not served any more.
pub const CERT_NOT_AFTER: &str = "ferrio_cert_not_after_timestamp_seconds";
/// Gauge {source}: certificates that are served.
pub const CERT_CERTIFICATES: &str = "ferrio_cert_certificates";
/// Gauge {source}: served certificates that are expired or not yet valid.
pub const CERT_INVALID: &str = "ferrio_cert_invalid";
/// Gauge {source}: pairs that cannot be used.
pub const CERT_PROBLEMS: &str = "ferrio_cert_problems";
/// Gauge {source}: 1 while the last read of a certificate source succeeded.
pub const CERT_SOURCE_UP: &str = "ferrio_cert_source_up";
/// Gauge {source}: seconds since a certificate source was read successfully.
pub const CERT_SOURCE_AGE: &str = "ferrio_cert_source_age_seconds";
/// Counter {source}: failed reads of a certificate source.
pub const CERT_SOURCE_ERRORS: &str = "ferrio_cert_source_errors_total";
/// Counter {source, result}: orders for certificates. `ok`, `failed`, `rate_limited`, `unavailable`.
pub const ACME_ORDERS: &str = "ferrio_acme_orders_total";
/// Counter {listener, result}: TLS handshakes.
pub const TLS_HANDSHAKES: &str = "ferrio_tls_handshakes_total";
/// Counter {listener}: TLS sessions that were resumed.
pub const TLS_RESUMED: &str = "ferrio_tls_resumed_total";
/// Counter {listener, version, cipher}: successful TLS handshakes.
pub const TLS_CIPHERS: &str = "ferrio_tls_ciphers_total";
/// Counter: lines of the access log that were lost.
pub const ACCESS_LOG_DROPPED: &str = "ferrio_access_log_dropped_total";
/// Counter {reason}: spans that a collector did not get. `full`, `refused`, `failed`.
pub const TRACES_DROPPED: &str = "ferrio_traces_dropped_total";
/// Counter: spans that a collector has taken.
pub const TRACES_SENT: &str = "ferrio_traces_sent_total";
/// Counter: panics.
pub const PANICS: &str = "ferrio_panics_total";
/// Counter: observations that exporters that push could not keep up with.
pub const OBSERVATIONS_DROPPED: &str = "ferrio_metrics_observations_dropped_total";
/// Counter: targets that share a series because there are too many label sets.
pub const SERIES_OVERFLOW: &str = "ferrio_metrics_series_overflow_total";

/// Counter {service, result}: copies of requests (`mirror=`).
pub const MIRRORED: &str = "ferrio_mirror_requests_total";
/// Gauge {version}: always 1.
pub const BUILD_INFO: &str = "ferrio_build_info";
/// Counter: connections of clients.
pub const CONNECTIONS: &str = "ferrio_connections_total";
/// Gauge: those that are open.
pub const CONNECTIONS_OPEN: &str = "ferrio_connections_open";
/// Gauge: requests at targets whose answer is not over.
pub const IN_FLIGHT: &str = "ferrio_requests_in_flight";
/// Counter {code, service}: finished requests.
pub const SERVICE_REQUESTS: &str = "ferrio_requests_total";
/// Histogram {service}: how long they took.
pub const SERVICE_SECONDS: &str = "ferrio_request_duration_seconds";
/// Counter: requests and connections without a route.
pub const NO_ROUTE: &str = "ferrio_no_route_total";
/// Counter {code}: redirects that were answered.
pub const REDIRECTS: &str = "ferrio_redirects_total";
/// Gauge: open WebSocket connections.
pub const WEBSOCKETS_OPEN: &str = "ferrio_websockets_open";
/// Counter {kind}: accepted connections of TCP listeners.
pub const TCP_CONNECTIONS: &str = "ferrio_tcp_connections_total";
/// Counter {kind}: their targets that could not be reached.
pub const TCP_FAILURES: &str = "ferrio_tcp_connect_failures_total";
/// Gauge: when the last table was published, seconds since 1970.
pub const REGISTRY_UPDATED: &str = "ferrio_registry_last_update_timestamp_seconds";
/// Gauge {source}: when a route source last answered, seconds since 1970.
pub const REGISTRY_CONTACT: &str = "ferrio_registry_last_contact_timestamp_seconds";
/// Gauge: seconds from a change in the registry to the last table.
pub const REGISTRY_LAG: &str = "ferrio_registry_lag_seconds";
/// Gauge: 1 while the routes are, at least in part, those that were kept on disk.
pub const REGISTRY_STALE: &str = "ferrio_registry_stale";
/// Gauge: when the routes were last saved, seconds since 1970.
pub const REGISTRY_SAVED: &str = "ferrio_registry_saved_timestamp_seconds";
/// Counter: attempts to save them that failed.
pub const REGISTRY_SAVE_ERRORS: &str = "ferrio_registry_save_errors_total";
/// Counter {listener, reason}: connections that were closed because there were too many.
pub const CONNECTIONS_REFUSED: &str = "ferrio_connections_refused_total";
/// Counter {listener}: connections that were closed because their PROXY header was missing, bad or late.
pub const PROXY_HEADERS_BAD: &str = "ferrio_proxy_header_errors_total";
/// Counter: connections that could not be accepted, mostly for want of descriptors.
pub const ACCEPT_ERRORS: &str = "ferrio_accept_errors_total";

/// What the facade, and the reference page, need to know about a series.
pub struct Own {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

/// A family of fabio's, by its internal name.
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static str,
    pub help: &'static str,
}

/// fabio's families; see [`family`] for their names in Prometheus.
pub const FAMILIES: &[Family] = &[
    Family {
        name: ROUTE,
        kind: Kind::Histogram,
        labels: "host, path, service, target",
        help: "Requests that went to a target, and how long they took.",
    },
    Family {
        name: ROUTE_RX,
        kind: Kind::Counter,
        labels: "host, path, service, target",
        help: "Bytes from the target to the client, TCP family.",
    },
    Family {
        name: ROUTE_TX,
        kind: Kind::Counter,
        labels: "host, path, service, target",
        help: "Bytes from the client to the target, TCP family.",
    },
    Family { name: NOT_FOUND, kind: Kind::Counter, labels: "", help: "Requests and connections without a route." },
    Family { name: REQUESTS, kind: Kind::Histogram, labels: "service", help: "HTTP requests that went to a target." },
    Family { name: HTTP_STATUS, kind: Kind::Histogram, labels: "code, service", help: "The same by status." },
    Family { name: HTTP_REDIRECT_COUNT, kind: Kind::Counter, labels: "code", help: "Redirects that were answered." },
    Family { name: WS_CONN, kind: Kind::Gauge, labels: "", help: "Open WebSocket connections." },
    Family {
        name: TCP_CONN,
        kind: Kind::Counter,
        labels: "",
        help: "Accepted connections of tcp and tcp-dynamic listeners.",
    },
    Family {
        name: TCP_CONN_FAIL,
        kind: Kind::Counter,
        labels: "",
        help: "Targets of such connections that could not be reached.",
    },
    Family { name: TCP_NO_ROUTE, kind: Kind::Counter, labels: "", help: "Such connections without a route." },
    Family {
        name: TCP_SNI_CONN,
        kind: Kind::Counter,
        labels: "",
        help: "Accepted connections of tcp+sni and https+tcp+sni listeners.",
    },
    Family {
        name: TCP_SNI_CONN_FAIL,
        kind: Kind::Counter,
        labels: "",
        help: "Targets of such connections that could not be reached; also unreadable ClientHellos and those without a name.",
    },
    Family { name: TCP_SNI_NO_ROUTE, kind: Kind::Counter, labels: "", help: "Such connections without a route." },
];

/// Our own series about traffic, which workers count.
pub const TRAFFIC: &[Own] = &[
    Own { name: BUILD_INFO, kind: Kind::Gauge, help: "Always 1; the version is a label." },
    Own { name: CONNECTIONS, kind: Kind::Counter, help: "Connections of clients." },
    Own { name: CONNECTIONS_OPEN, kind: Kind::Gauge, help: "Open connections of clients." },
    Own { name: IN_FLIGHT, kind: Kind::Gauge, help: "Requests that went to a target and are not over." },
    Own {
        name: SERVICE_REQUESTS,
        kind: Kind::Counter,
        help: "Finished requests; code none: the protocol was changed.",
    },
    Own { name: SERVICE_SECONDS, kind: Kind::Histogram, help: "How long requests took, in seconds." },
    Own { name: NO_ROUTE, kind: Kind::Counter, help: "Requests and connections without a route." },
    Own { name: REDIRECTS, kind: Kind::Counter, help: "Redirects that were answered." },
    Own { name: WEBSOCKETS_OPEN, kind: Kind::Gauge, help: "Open WebSocket connections." },
    Own {
        name: TCP_CONNECTIONS,
        kind: Kind::Counter,
        help: "Accepted connections of TCP listeners; kind: tcp or sni.",
    },
    Own { name: TCP_FAILURES, kind: Kind::Counter, help: "Targets of such connections that could not be reached." },
];

/// Facts about the process, under the names that Prometheus clients use everywhere.
pub const PROCESS: &[Own] = &[
    Own { name: "process_cpu_seconds_total", kind: Kind::Counter, help: "User and system CPU time in seconds." },
    Own { name: "process_virtual_memory_bytes", kind: Kind::Gauge, help: "Virtual memory in bytes." },
    Own { name: "process_start_time_seconds", kind: Kind::Gauge, help: "Start of the process, seconds since 1970." },
    Own { name: "process_threads", kind: Kind::Gauge, help: "Threads." },
    Own { name: "process_resident_memory_bytes", kind: Kind::Gauge, help: "Resident memory in bytes." },
    Own { name: "process_open_fds", kind: Kind::Gauge, help: "Open file descriptors." },
    Own { name: "process_max_fds", kind: Kind::Gauge, help: "Limit of open file descriptors." },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Our own series with their help texts.
pub const OWN: &[Own] = &[
    Own { name: UPSTREAM_ERRORS, kind: Kind::Counter, help: "Tries at a target that failed." },
    Own { name: UPSTREAM_RETRIES, kind: Kind::Counter, help: "Requests that were sent again, to this target." },
    Own { name: UPSTREAM_EJECTIONS, kind: Kind::Counter, help: "How often a target began to be passed over." },
    Own { name: LIMITED, kind: Kind::Counter, help: "Requests that a limit refused." },
    Own { name: REGISTRY_UPDATED, kind: Kind::Gauge, help: "When the last table was published, seconds since 1970." },
    Own { name: REGISTRY_CONTACT, kind: Kind::Gauge, help: "When the source last answered, seconds since 1970." },
    Own {
        name: REGISTRY_LAG,
        kind: Kind::Gauge,
        help: "Seconds from the first change that is in the last table to it.",
    },
    Own {
        name: REGISTRY_STALE,
        kind: Kind::Gauge,
        help: "1 while the routes are, at least in part, those that were kept on disk.",
    },
    Own { name: REGISTRY_SAVED, kind: Kind::Gauge, help: "When the routes were last saved, seconds since 1970." },
    Own { name: REGISTRY_SAVE_ERRORS, kind: Kind::Counter, help: "Attempts to save the routes that failed." },
    Own {
        name: CONNECTIONS_REFUSED,
        kind: Kind::Counter,
        help: "Connections closed at once because there were too many; reason: total, listener or source.",
    },
    Own {
        name: PROXY_HEADERS_BAD,
        kind: Kind::Counter,
        help: "Connections closed because their PROXY header was missing, bad or late.",
    },
    Own { name: ACCEPT_ERRORS, kind: Kind::Counter, help: "Failures to accept, mostly for want of descriptors." },
    Own { name: REGISTRY_ERRORS, kind: Kind::Counter, help: "Failed reads of a route source." },
    Own { name: REGISTRY_FAILING, kind: Kind::Gauge, help: "1 while the route source does not answer." },
    Own { name: REGISTRY_REJECTS, kind: Kind::Gauge, help: "Route tags and override lines that could not be used." },
    Own { name: REGISTRY_UPDATES, kind: Kind::Counter, help: "Published routing tables." },
    Own { name: REGISTRY_BUILD_SECONDS, kind: Kind::Gauge, help: "Seconds to build the last routing table." },
    Own { name: REGISTRY_ROUTES, kind: Kind::Gauge, help: "Routes of the table." },
    Own { name: REGISTRY_TARGETS, kind: Kind::Gauge, help: "Targets of the table." },
    Own { name: CERT_NOT_AFTER, kind: Kind::Gauge, help: "End of validity of a certificate, seconds since 1970." },
    Own { name: CERT_CERTIFICATES, kind: Kind::Gauge, help: "Certificates that are served." },
    Own { name: CERT_INVALID, kind: Kind::Gauge, help: "Served certificates that are expired or not yet valid." },
    Own { name: CERT_PROBLEMS, kind: Kind::Gauge, help: "Certificate pairs that cannot be used." },
    Own { name: CERT_SOURCE_UP, kind: Kind::Gauge, help: "1 while the last read of the certificate source succeeded." },
    Own {
        name: CERT_SOURCE_AGE,
        kind: Kind::Gauge,
        help: "Seconds since the certificate source was read successfully.",
    },
    Own { name: CERT_SOURCE_ERRORS, kind: Kind::Counter, help: "Failed reads of the certificate source." },
    Own { name: ACME_ORDERS, kind: Kind::Counter, help: "Orders for certificates." },
    Own { name: TLS_HANDSHAKES, kind: Kind::Counter, help: "TLS handshakes." },
    Own { name: TLS_RESUMED, kind: Kind::Counter, help: "TLS sessions that were resumed." },
    Own { name: TLS_CIPHERS, kind: Kind::Counter, help: "Successful TLS handshakes by cipher." },
    Own { name: ACCESS_LOG_DROPPED, kind: Kind::Counter, help: "Lines of the access log that were lost." },
    Own {
        name: TRACES_DROPPED,
        kind: Kind::Counter,
        help: "Spans that the collector did not get; reason: full (it is too slow), refused (by it) or failed (it does not answer).",
    },
    Own { name: TRACES_SENT, kind: Kind::Counter, help: "Spans that the collector has taken." },
    Own {
        name: PANICS,
        kind: Kind::Counter,
        help: "Panics: faults of ferrio itself, each of which cost a connection or a task.",
    },
    Own { name: MIRRORED, kind: Kind::Counter, help: "Copies of requests for another service." },
    Own { name: OBSERVATIONS_DROPPED, kind: Kind::Counter, help: "Observations that exporters that push have missed." },
    Own { name: SERIES_OVERFLOW, kind: Kind::Counter, help: "Targets that share a series: too many label sets." },
];

/// The labels of our own series, for the reference page; a series that is not here has none.
pub const LABELS: &[(&str, &str)] = &[
    (BUILD_INFO, "version"),
    (UPSTREAM_ERRORS, "host, path, reason, service, target"),
    (UPSTREAM_RETRIES, "host, path, reason, service, target"),
    (UPSTREAM_EJECTIONS, "host, path, reason, service, target"),
    (LIMITED, "host, path, reason, service, target"),
    (SERVICE_REQUESTS, "code, service"),
    (SERVICE_SECONDS, "service"),
    (MIRRORED, "result, service"),
    (TRACES_DROPPED, "reason"),
    (REDIRECTS, "code"),
    (TCP_CONNECTIONS, "kind"),
    (TCP_FAILURES, "kind"),
    (CONNECTIONS_REFUSED, "listener, reason"),
    (PROXY_HEADERS_BAD, "listener"),
    (REGISTRY_CONTACT, "source, datacenter"),
    (REGISTRY_ERRORS, "source, datacenter"),
    (REGISTRY_FAILING, "source, datacenter"),
    (CERT_NOT_AFTER, "source, name"),
    (CERT_CERTIFICATES, "source"),
    (CERT_INVALID, "source"),
    (CERT_PROBLEMS, "source"),
    (CERT_SOURCE_UP, "source"),
    (CERT_SOURCE_AGE, "source"),
    (CERT_SOURCE_ERRORS, "source"),
    (TLS_HANDSHAKES, "listener, result"),
    (TLS_RESUMED, "listener"),
    (TLS_CIPHERS, "listener, version, cipher"),
];

/// fabio's `clean`: empty becomes `_`; dots and colons become `_`; lower case.
pub fn clean(text: &str) -> String {
    if text.is_empty() {
        return "_".into();
    }
    text.replace(['.', ':'], "_").to_lowercase()
}

/// The Prometheus name of a family: `clean(prefix)_[clean(subsystem)_]clean(name)`, made legal.
pub fn family(prefix: &str, subsystem: &str, name: &str) -> String {
    let mut joined = clean(prefix);
    if !subsystem.is_empty() {
        joined.push('_');
        joined.push_str(&clean(subsystem));
    }
    joined.push('_');
    joined.push_str(&clean(name));

    let mut legal: String =
        joined.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' }).collect();
    // A name may hold digits but not begin with one; container host names often do.
    if legal.starts_with(|c: char| c.is_ascii_digit()) {
        legal.insert(0, '_');
    }
    legal
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn clean_is_fabios() {
        for (text, want) in [
            ("", "_"),
            ("Test-001.Something.com", "test-001_something_com"),
            ("a:b/c d", "a_b/c d"),
            ("10.1.2.3:12345", "10_1_2_3_12345"),
        ] {
            assert_eq!(clean(text), want, "{text:?}");
        }
    }

    #[test]
    fn families_are_legal_names() {
        for (prefix, subsystem, name, want) in [
            ("h.fabio", "", REQUESTS, "h_fabio_requests"),
            ("h.fabio", "", HTTP_STATUS, "h_fabio_http_status"),
            ("h.fabio", "", ROUTE_RX, "h_fabio_route_rx"),
            ("h.fabio", "", TCP_SNI_CONN, "h_fabio_tcp_sni_conn"),
            ("My.Pre:fix", "sub", REQUESTS, "my_pre_fix_sub_requests"),
            ("my-host.lab", "", REQUESTS, "my_host_lab_requests"),
            ("", "", REQUESTS, "__requests"),
            ("9f3a-b.c", "", REQUESTS, "_9f3a_b_c_requests"),
            ("b\u{e4}r \"x\"\n", "S/ub", NOT_FOUND, "b_r__x___s_ub_notfound"),
        ] {
            assert_eq!(family(prefix, subsystem, name), want, "{prefix:?} {subsystem:?} {name:?}");
        }
    }

    #[test]
    fn own_names_are_legal_and_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for own in OWN.iter().chain(TRAFFIC) {
            assert!(seen.insert(own.name), "{} twice", own.name);
            assert!(own.name.starts_with("ferrio_"), "{}", own.name);
            assert!(LABELS.iter().filter(|(name, _)| *name == own.name).count() <= 1, "{}", own.name);
            assert_eq!(own.name.ends_with("_total"), own.kind == Kind::Counter, "{}", own.name);
            assert!(!own.help.is_empty(), "{}", own.name);
        }
        assert!(seen.len() >= 10);
    }

    /// A name that stands somewhere else only would have no help, and nobody would find it.
    #[test]
    fn every_own_name_in_the_source_is_listed() {
        let known: Vec<_> = OWN.iter().chain(TRAFFIC).map(|own| own.name).collect();
        let pattern = regex::Regex::new("\"(ferrio_[a-z0-9_]+)\"").unwrap();
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    for name in pattern.captures_iter(&text).filter_map(|found| found.get(1)) {
                        seen += 1;
                        assert!(known.contains(&name.as_str()), "{} in {}", name.as_str(), path.display());
                    }
                }
            }
        }
        assert!(seen >= OWN.len(), "{seen}");
    }
}
