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

/// Counter {call}: failed calls to Consul.
pub const CONSUL_ERRORS: &str = "ferrio_consul_errors_total";
/// Counter {call}: answered calls to Consul.
pub const CONSUL_CALLS: &str = "ferrio_consul_calls_total";
/// Gauge {source}: 1 while the last read of a route source succeeded.
pub const SOURCE_UP: &str = "ferrio_registry_source_up";
/// Gauge {source}: seconds since a route source answered last.
pub const SOURCE_AGE: &str = "ferrio_registry_source_age_seconds";
/// Gauge: tags and lines that could not be used.
pub const REJECTS: &str = "ferrio_registry_rejects";
/// Gauge: routes of the table.
pub const TABLE_ROUTES: &str = "ferrio_table_routes";
/// Gauge: targets of the table.
pub const TABLE_TARGETS: &str = "ferrio_table_targets";
/// Counter: published tables.
pub const TABLE_CHANGES: &str = "ferrio_table_changes_total";
/// Histogram: seconds to build and publish a table.
pub const TABLE_BUILD: &str = "ferrio_table_build_seconds";
/// Counter: targets that share a series because there are too many label sets.
pub const SERIES_OVERFLOW: &str = "ferrio_metrics_series_overflow_total";

/// What the facade needs to know about one of our own series.
pub struct Own {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Our own series with their help texts.
pub const OWN: &[Own] = &[
    Own { name: CONSUL_ERRORS, kind: Kind::Counter, help: "Failed calls to Consul." },
    Own { name: CONSUL_CALLS, kind: Kind::Counter, help: "Answered calls to Consul." },
    Own { name: SOURCE_UP, kind: Kind::Gauge, help: "1 while the last read of the route source succeeded." },
    Own { name: SOURCE_AGE, kind: Kind::Gauge, help: "Seconds since the route source answered last." },
    Own { name: REJECTS, kind: Kind::Gauge, help: "Route tags and override lines that could not be used." },
    Own { name: TABLE_ROUTES, kind: Kind::Gauge, help: "Routes of the table." },
    Own { name: TABLE_TARGETS, kind: Kind::Gauge, help: "Targets of the table." },
    Own { name: TABLE_CHANGES, kind: Kind::Counter, help: "Published tables." },
    Own { name: TABLE_BUILD, kind: Kind::Histogram, help: "Seconds to build and publish a table." },
    Own { name: SERIES_OVERFLOW, kind: Kind::Counter, help: "Targets that share a series: too many label sets." },
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
        for own in OWN {
            assert!(seen.insert(own.name), "{} twice", own.name);
            assert!(own.name.starts_with("ferrio_"), "{}", own.name);
            assert_eq!(own.name.ends_with("_total"), own.kind == Kind::Counter, "{}", own.name);
            assert!(!own.help.is_empty(), "{}", own.name);
        }
        assert!(seen.len() >= 10);
    }
}
