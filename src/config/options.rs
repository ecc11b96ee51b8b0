//! The one table of options. It feeds the properties file, flags, environment, `-h` and the reference page.

use super::kind::{Kind, Slot, Value};

/// A row of the table.
pub(crate) struct Spec {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    /// As it would be written in a file.
    pub(crate) default: &'static str,
    /// The first fabio release that knows the key, or [`OURS`].
    pub(crate) since: &'static str,
    pub(crate) status: Status,
    pub(crate) help: &'static str,
    /// Other spellings that documentation has taught people. They work, with a warning.
    pub(crate) aliases: &'static [&'static str],
    /// False if kind and field do not fit together, which a test over the table excludes.
    pub(crate) set: fn(&mut Values, Value) -> bool,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Does what its help says.
    Built,
    /// Its value is shown nowhere and never repeated in a message.
    Secret,
    /// Not built yet: a value other than the default refuses to start. The text says what would not happen.
    Pending(&'static str),
    /// Means something only inside the Go runtime. Accepted, said at debug.
    GoOnly,
    /// Accepted, changes nothing. The text says why; said at debug.
    Inert(&'static str),
    /// Works, with a warning. The text says what to use instead.
    Deprecated(&'static str),
    /// Of the past: accepted, does nothing, with a warning. The text says what to use instead.
    Dropped(&'static str),
}

/// `since` of keys that fabio does not have.
pub(crate) const OURS: &str = "ferrio";

/// The row of a key.
pub(crate) fn find(key: &str) -> Option<usize> {
    OPTIONS.iter().position(|spec| spec.key == key)
}

/// The row that another spelling means.
pub(crate) fn find_alias(name: &str) -> Option<usize> {
    OPTIONS.iter().position(|spec| spec.aliases.contains(&name))
}

macro_rules! options {
    ($($field:ident: $type:ty = $key:literal, $kind:expr, $default:literal, $since:expr, $status:expr, $help:literal
        $(, also $($alias:literal)+)?;)*) => {
        /// The value of every option, read but not yet understood.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct Values {
            $(pub(crate) $field: $type,)*
        }

        pub(crate) static OPTIONS: &[Spec] = &[$(Spec {
            key: $key,
            kind: $kind,
            default: $default,
            since: $since,
            status: $status,
            help: $help,
            aliases: &[$($($alias),+)?],
            set: |values, value| values.$field.put(value),
        },)*];
    };
}

use Kind::{Address, Bool, Choice, Floats, List, Pairs, Path, Regex, Template, Text};
use Status::{Built, Deprecated, Dropped, GoOnly, Inert, Pending, Secret};

/// Any number.
const INT: Kind = Kind::Int { min: i64::MIN, max: i64::MAX };
/// A number of things.
const COUNT: Kind = Kind::Int { min: 0, max: i64::MAX };
/// Negative values mean the same as 0, or have a meaning of their own.
const ANY_TIME: Kind = Kind::Duration { min: i64::MIN };
const TIME: Kind = Kind::Duration { min: 0 };

const BGP: &str = "addresses would not be announced by BGP";
const GRPC: &str = "calls under way are finished";
const PUSH: &str = "no check is looked up; metrics.circonus.submissionurl says where to send";

options! {
    // The process.
    insecure: bool = "insecure", Bool, "false", "1.5.7", Built,
        "only selects the warning that root gets at start; root is never refused";
    profile_mode: String = "profile.mode", Choice(&["", "cpu", "mem", "mutex", "block", "trace"]), "", "1.5.0", Dropped("it profiles the Go runtime; profile this process from outside, with perf for instance"),
        "Go profile to write: cpu, mem, mutex, block or trace";
    profile_path: String = "profile.path", Path, "", "1.5.0", Dropped("it is where profiles of the Go runtime go"),
        "directory for the Go profile; default $TMPDIR or /tmp";
    runtime_gogc: i64 = "runtime.gogc", INT, "100", "1.0.0", GoOnly,
        "target of the Go garbage collector in percent";
    runtime_gomaxprocs: i64 = "runtime.gomaxprocs", INT, "-1", "1.0.0", Built,
        "data-plane threads; below 1: one for each CPU; at most 1024. The environment variable GOMAXPROCS wins";
    runtime_user: String = "runtime.user", Text, "", OURS, Built,
        "who to become once the sockets are bound, as user or user:group, by names or numbers; needs a start as root. Files that are read later (certificates, tokens) must be readable by that user";
    runtime_statedir: String = "runtime.statedir", Path, "", OURS, Built,
        "folder for what outlives a restart: the last known routes, served at a start without an answer of Consul; unset: that of the service manager ($STATE_DIRECTORY), else none";
    glob_matching_disabled: bool = "glob.matching.disabled", Bool, "false", "1.5.10", Built,
        "take * and the like in host names literally";
    glob_cache_size: i64 = "glob.cache.size", COUNT, "1000", "1.5.14", Inert("patterns are compiled once for each table"),
        "compiled host patterns to keep";

    // The proxy.
    proxy_addr: String = "proxy.addr", Pairs, ":9999", "1.0.0", Built,
        "listeners: [host]:port;opt=val;...,[host]:port;... with proto, cs, rt, wt, it, strictmatch, tlsmin, tlsmax, tlsciphers, pxyproto, pxytimeout, refresh, and new pxytrusted, halfclose, clientauth, clientheaders, redirect, h2c";
    proxy_cs: String = "proxy.cs", Pairs, "", "1.2", Built,
        "certificate sources: cs=name;type=file;cert=path;key=path,...";
    proxy_auth: String = "proxy.auth", Pairs, "", "1.5.11", Built,
        "authorisation schemes: name=n;type=basic;file=htpasswd;realm=r;refresh=5s,... and new types apikey, forward, jwt";
    proxy_localip: String = "proxy.localip", Address, "", "1.0.5", Built,
        "own address for by= in the Forwarded header; default: the first address that others can reach";
    proxy_strategy: String = "proxy.strategy", Text, "rnd", "1.0.0", Built,
        "how a target is chosen: rnd at random by weight, rr in turn, and new p2c, least, hash=header:NAME, hash=cookie:NAME, hash=ip, hash=path; a route overrides it with strategy=";
    proxy_matcher: String = "proxy.matcher", Choice(&["prefix", "iprefix", "glob"]), "prefix", "1.1.3", Built,
        "how paths are compared: prefix, iprefix without regard to case, glob";
    proxy_noroutestatus: i64 = "proxy.noroutestatus", Kind::Int { min: 100, max: 999 }, "404", "1.1.4", Built,
        "status for requests without a route";
    proxy_shutdownwait: i64 = "proxy.shutdownwait", ANY_TIME, "0s", "1.0.4", Built,
        "how long to wait for requests under way when shutting down";
    proxy_deregistergraceperiod: i64 = "proxy.deregistergraceperiod", ANY_TIME, "0s", "1.6.3", Built,
        "how long to go on serving after leaving the registry";
    proxy_dialtimeout: i64 = "proxy.dialtimeout", TIME, "30s", "1.0.0", Built,
        "time to connect to a target; 0: no limit";
    proxy_responseheadertimeout: i64 = "proxy.responseheadertimeout", ANY_TIME, "0s", "1.2", Built,
        "time until a target's response begins; 0: no limit";
    proxy_keepalivetimeout: i64 = "proxy.keepalivetimeout", ANY_TIME, "0s", "1.2", Built,
        "period of TCP keep-alive probes to targets; 0: 15s, negative: off";
    proxy_idleconntimeout: i64 = "proxy.idleconntimeout", ANY_TIME, "15s", "1.6.0", Built,
        "how long an idle connection to a target is kept; 0: for ever";
    proxy_maxconn: i64 = "proxy.maxconn", COUNT, "10000", "1.0.0", Built,
        "idle connections kept for each target; 0: 2";
    proxy_flushinterval: i64 = "proxy.flushinterval", ANY_TIME, "1s", "1.2.1", Inert("nothing is held back"),
        "how often responses to requests for event streams are flushed";
    proxy_globalflushinterval: i64 = "proxy.globalflushinterval", ANY_TIME, "0s", "1.5.10", Inert("nothing is held back"),
        "how often all other responses are flushed";
    proxy_readtimeout: i64 = "proxy.readtimeout", ANY_TIME, "0s", "1.0.9", Built,
        "rt of listeners that have none";
    proxy_writetimeout: i64 = "proxy.writetimeout", ANY_TIME, "0s", "1.0.9", Built,
        "wt of listeners that have none";
    proxy_header_clientip: String = "proxy.header.clientip", Text, "", "1.0.0", Built,
        "header for the address of the client";
    proxy_header_tls: String = "proxy.header.tls", Text, "", "1.0.0", Built,
        "header that is set on requests over TLS and removed from others";
    proxy_header_tls_value: String = "proxy.header.tls.value", Text, "", "1.0.0", Built,
        "value of the header for TLS";
    proxy_header_requestid: String = "proxy.header.requestid", Text, "", "1.5.0", Built,
        "header for a unique request id";
    proxy_header_sts_maxage: i64 = "proxy.header.sts.maxage", Kind::Int { min: i64::MIN, max: u32::MAX as i64 }, "0", "1.5.7", Built,
        "max-age of Strict-Transport-Security in seconds; 0: no such header";
    proxy_header_sts_subdomains: bool = "proxy.header.sts.subdomains", Bool, "false", "1.5.7", Built,
        "add includeSubdomains to Strict-Transport-Security";
    proxy_header_sts_preload: bool = "proxy.header.sts.preload", Bool, "false", "1.5.7", Built,
        "add preload to Strict-Transport-Security";
    proxy_gzip_contenttype: String = "proxy.gzip.contenttype", Regex, "", "1.3.4", Built,
        "responses whose Content-Type fits are compressed with gzip; empty: none";
    proxy_gzip_minsize: i64 = "proxy.gzip.minsize", Kind::Size { min: 0, max: i64::MAX }, "0", OURS, Built,
        "responses that are known to be smaller are not compressed, in bytes";
    proxy_compress: Vec<String> = "proxy.compress", List, "", OURS, Built,
        "codings offered, the preferred one first, of gzip, br and zstd; gzip always if proxy.gzip.contenttype is set, whose types are meant (a common set if it is empty)";
    proxy_grpcmaxrxmsgsize: i64 = "proxy.grpcmaxrxmsgsize", Kind::Size { min: 0, max: i64::MAX }, "4194304", "1.6.1", Built,
        "largest gRPC message that is taken from clients and from targets, in bytes";
    proxy_grpcmaxtxmsgsize: i64 = "proxy.grpcmaxtxmsgsize", Kind::Size { min: 0, max: i64::MAX }, "4194304", "1.6.1", Built,
        "largest gRPC message that is sent to clients, in bytes";
    proxy_grpcshutdowntimeout: i64 = "proxy.grpcshutdowntimeout", ANY_TIME, "2s", "1.6.4", Inert(GRPC),
        "how long connections to gRPC targets that have left the table are kept";
    proxy_trusted: Vec<String> = "proxy.trusted", List, "", OURS, Built,
        "networks whose forwarding headers are believed, as in 10.0.0.0/8,::1; unset: from everybody";
    proxy_targettls: String = "proxy.targettls", Pairs, "", OURS, Built,
        "files for TLS to targets, for routes to name: name=corp;ca=path,name=me;cert=path;key=path";
    proxy_unixsockets: Vec<String> = "proxy.unixsockets", List, "", OURS, Built,
        "directories whose Unix sockets may be targets (unix:/path); empty: none";
    proxy_stickykey: String = "proxy.stickykey", Text, "", OURS, Secret,
        "makes the values of sticky= cookies, the same on all proxies of a service; empty: values that can be guessed by whoever knows the instances";
    proxy_connmaxage: i64 = "proxy.connmaxage", TIME, "0s", OURS, Built,
        "how long a connection to a target is used for new requests; 0: no limit";
    proxy_connmaxrequests: i64 = "proxy.connmaxrequests", COUNT, "0", OURS, Built,
        "how many requests a connection to a target is used for; 0: no limit";
    proxy_dnsttl: i64 = "proxy.dnsttl", TIME, "30s", OURS, Built,
        "how long the addresses of a target's name are used before it is looked up again";
    proxy_matchhostport: String = "proxy.matchhostport", Choice(&["exact", "strip"]), "exact", OURS, Built,
        "strip: a request for host:port also fits the routes of host if none has that port";
    proxy_maxheaders: i64 = "proxy.maxheaders", Kind::Int { min: 1, max: 65_536 }, "512", OURS, Built,
        "header lines in one head, both directions";
    proxy_maxheadersize: i64 = "proxy.maxheadersize", Kind::Size { min: 1024, max: 64 << 20 }, "262144", OURS, Built,
        "bytes in one head, both directions";
    proxy_maxtargetsize: i64 = "proxy.maxtargetsize", Kind::Size { min: 64, max: 64 << 20 }, "65536", OURS, Built,
        "bytes in one request target";
    proxy_retrybudget: i64 = "proxy.retrybudget", Kind::Int { min: 0, max: 1000 }, "20", OURS, Built,
        "retries that a route with retry= may have, in percent of its requests; a few per second are always allowed";
    proxy_retrybuffer: i64 = "proxy.retrybuffer", Kind::Size { min: 0, max: 64 << 20 }, "65536", OURS, Built,
        "bytes of a request body that are kept so that it can be sent again; larger ones are sent once";
    proxy_requestwritetimeout: i64 = "proxy.requestwritetimeout", ANY_TIME, "60s", OURS, Built,
        "longest pause in which a target takes nothing of a request that is being sent; 0: no limit";
    proxy_maxbody: i64 = "proxy.maxbody", Kind::Size { min: 0, max: i64::MAX }, "0", OURS, Built,
        "bytes in the body of one request, unless its route says maxbody=; 0: no limit";
    proxy_maxclients: i64 = "proxy.maxclients", COUNT, "0", OURS, Built,
        "connections of clients, all listeners together; more are closed at once; 0: half of the descriptors that the process may have";
    proxy_maxclients_listener: i64 = "proxy.maxclients.listener", COUNT, "0", OURS, Built,
        "connections of clients to one listener; 0: no limit";
    proxy_maxclients_source: i64 = "proxy.maxclients.source", COUNT, "0", OURS, Built,
        "connections of clients from one address (IPv6: one network of 64 bits); 0: no limit";
    proxy_maxclients_exempt: Vec<String> = "proxy.maxclients.exempt", List, "", OURS, Built,
        "networks to whose addresses proxy.maxclients.source does not apply, as in 10.0.0.0/8,::1";
    proxy_websocket_closeframe: String = "proxy.websocket.closeframe", Choice(&["browsers", "all", "none"]), "browsers", OURS, Built,
        "who gets a close frame (1001) when ferrio goes: browsers, known by their Origin; all; or none, as in fabio";
    proxy_websocket_idletimeout: i64 = "proxy.websocket.idletimeout", TIME, "0s", OURS, Built,
        "how long nothing may move on a WebSocket, unless its route says idletimeout=; 0: for ever";

    // The logs.
    log_access_target: String = "log.access.target", Text, "", "1.4.1", Built,
        "where the access log goes: stdout, or nothing for none; new: stderr, file:PATH, syslog:ADDRESS (/dev/log, host:port, tcp://host:port)";
    log_access_format: String = "log.access.format", Text, "common", "1.4.1", Built,
        "common, combined, new json, or a format of $fields";
    log_access_all: bool = "log.access.all", Bool, "false", OURS, Built,
        "also log requests without a route, 401, 403, redirects, own errors, and the ends of WebSockets and TCP connections";
    log_access_filter: String = "log.access.filter", Choice(&["", "errors"]), "", OURS, Built,
        "errors: log only requests with a status from 400 on or that ended early";
    log_access_sample: i64 = "log.access.sample", Kind::Int { min: 1, max: i64::MAX }, "1", OURS, Built,
        "log one of so many requests; those with a status from 500 on are always logged";
    log_access_masquery: Vec<String> = "log.access.masquery", List, "", OURS, Built,
        "query parameters whose values are logged as ***, as in token,password; * for all";
    log_access_rotate: i64 = "log.access.rotate", Kind::Size { min: 0, max: i64::MAX }, "0", OURS, Built,
        "put a file aside as PATH.1 when it would grow beyond so many bytes; 0: never. SIGHUP opens the file again";
    log_access_keep: i64 = "log.access.keep", Kind::Int { min: 0, max: 1000 }, "5", OURS, Built,
        "how many files that were put aside are kept";
    log_level: String = "log.level", Text, "INFO", "1.5.3", Built,
        "TRACE, DEBUG, INFO, WARN, ERROR or FATAL";
    log_routes_format: String = "log.routes.format", Text, "delta", "1.4.1", Built,
        "how changes of the table are logged: delta, all, detail, and new none";
    proxy_log_routes: String = "proxy.log.routes", Text, "", "1.3.8", Deprecated("Please use 'log.routes.format' instead"),
        "as log.routes.format";

    // Metrics.
    metrics_target: Vec<String> = "metrics.target", List, "", "1.0.0", Built,
        "exporters: stdout, label, statsd_raw, dogstatsd, prometheus, circonus, graphite";
    metrics_prefix: String = "metrics.prefix", Template, "{{clean .Hostname}}.{{clean .Exec}}", "1.0.0", Built,
        "prefix of all series; default stands for the default";
    metrics_names: String = "metrics.names", Template, "{{clean .Service}}.{{clean .Host}}.{{clean .Path}}.{{clean .TargetURL.Host}}", "1.3", Built,
        "names of the series of routes";
    metrics_interval: i64 = "metrics.interval", ANY_TIME, "30s", "1.0.0", Built,
        "how often exporters that push do so";
    metrics_timeout: i64 = "metrics.timeout", ANY_TIME, "10s", "1.5.3", Inert("exporters connect in the background"),
        "how long an exporter is tried at start";
    metrics_retry: i64 = "metrics.retry", ANY_TIME, "500ms", "1.5.3", Inert("exporters connect in the background"),
        "pause between such attempts";
    metrics_graphite_addr: String = "metrics.graphite.addr", Text, "", "1.0.0", Built,
        "host:port of graphite";
    metrics_statsd_addr: String = "metrics.statsd.addr", Text, "", "1.2.1", Built,
        "host:port of statsd";
    metrics_dogstatsd_addr: String = "metrics.dogstatsd.addr", Text, "", "1.6.0", Built,
        "host:port of dogstatsd";
    metrics_circonus_apikey: String = "metrics.circonus.apikey", Text, "", "1.3", Secret,
        "Circonus API token";
    metrics_circonus_apiapp: String = "metrics.circonus.apiapp", Text, "fabio", "1.3", Inert(PUSH),
        "Circonus API application";
    metrics_circonus_apiurl: String = "metrics.circonus.apiurl", Text, "", "1.3", Inert(PUSH),
        "Circonus API URL";
    metrics_circonus_brokerid: String = "metrics.circonus.brokerid", Text, "", "1.3", Inert(PUSH),
        "Circonus broker";
    metrics_circonus_checkid: String = "metrics.circonus.checkid", Text, "", "1.3", Inert(PUSH),
        "Circonus check";
    metrics_circonus_submissionurl: String = "metrics.circonus.submissionurl", Text, "", "1.5.11", Secret,
        "Circonus submission URL";
    metrics_prometheus_subsystem: String = "metrics.prometheus.subsystem", Text, "", "1.6.0", Built,
        "middle part of the names of all series";
    metrics_prometheus_path: String = "metrics.prometheus.path", Text, "/metrics", "1.6.0", Built,
        "path below which a prometheus listener shows the series";
    metrics_prometheus_buckets: Vec<f64> = "metrics.prometheus.buckets", Floats, ".005,.01,.025,.05,.1,.25,.5,1,2.5,5,10", "1.6.0", Built,
        "upper bounds of histogram buckets in seconds, increasing";

    // Traces.
    tracing_otlp_endpoint: String = "tracing.otlp.endpoint", Text, "", OURS, Built,
        "collector that gets spans of requests, by OTLP over HTTP: http://HOST:4318 (/v1/traces is added if there is no path), or env for what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT say; empty: nothing is traced";
    tracing_otlp_headers: String = "tracing.otlp.headers", Text, "", OURS, Secret,
        "headers for the collector: name=value,name=value, with %2C for a comma in a value; else OTEL_EXPORTER_OTLP_HEADERS";
    tracing_otlp_timeout: i64 = "tracing.otlp.timeout", TIME, "10s", OURS, Built,
        "how long the collector may take for an answer";
    tracing_otlp_interval: i64 = "tracing.otlp.interval", TIME, "5s", OURS, Built,
        "how long a span waits for others at most";
    tracing_otlp_batch: i64 = "tracing.otlp.batch", Kind::Int { min: 1, max: 10_000 }, "512", OURS, Built,
        "so many spans are sent without waiting for others";
    tracing_otlp_tls_cafile: String = "tracing.otlp.tls.cafile", Path, "", OURS, Built,
        "CA certificates for a collector with https; empty: those of the system";
    tracing_otlp_tls_certfile: String = "tracing.otlp.tls.certfile", Path, "", OURS, Built,
        "client certificate for the collector";
    tracing_otlp_tls_keyfile: String = "tracing.otlp.tls.keyfile", Path, "", OURS, Built,
        "client key for the collector";
    tracing_service: String = "tracing.service", Text, "ferrio", OURS, Built,
        "service.name of the spans; else OTEL_SERVICE_NAME";
    tracing_resource: String = "tracing.resource", Text, "", OURS, Built,
        "what else tells who we are: name=value,name=value, as in deployment.environment.name=prod; else OTEL_RESOURCE_ATTRIBUTES";
    tracing_sample: String = "tracing.sample", Text, "1", OURS, Built,
        "part of the traces that begin here and are sent, 0 to 1; of others the sender decides; else OTEL_TRACES_SAMPLER";
    tracing_propagate: Vec<String> = "tracing.propagate", List, "w3c", OURS, Built,
        "headers in which traces come and go on, the ones that count first in first place: w3c (traceparent), b3 (one header), b3multi (X-B3-*); else OTEL_PROPAGATORS";
    tracing_parents: String = "tracing.parents", Choice(&["any", "trusted", "none"]), "any", OURS, Built,
        "whose traces are joined: any, trusted (proxy.trusted), none; the requests of others begin new ones";

    // Where routes come from.
    registry_backend: String = "registry.backend", Text, "consul", "1.1", Built,
        "where routes come from: consul, static, file or custom";
    registry_timeout: i64 = "registry.timeout", ANY_TIME, "10s", "1.3.8", Built,
        "how long the backend is tried at start";
    registry_retry: i64 = "registry.retry", TIME, "500ms", "1.3.8", Built,
        "pause between such attempts";
    registry_statemaxage: i64 = "registry.statemaxage", ANY_TIME, "72h", OURS, Built,
        "routes in runtime.statedir that are older are not used at start; 0: whatever their age";
    registry_static_routes: String = "registry.static.routes", Text, "", "1.1", Built,
        "backend static: the route commands, one on a line";
    registry_static_noroutehtml: String = "registry.static.noroutehtml", Text, "", "1.5.5", Built,
        "backend static: the page for requests without a route, as HTML",
        also "registry.static.noroutehtmlpath";
    registry_file_path: String = "registry.file.path", Path, "", "1.1", Built,
        "backend file: file with route commands";
    registry_file_noroutehtmlpath: String = "registry.file.noroutehtmlpath", Path, "", "1.5.5", Built,
        "backend file: file with the page for requests without a route";
    registry_consul_addr: String = "registry.consul.addr", Text, "localhost:8500", "1.1", Built,
        "Consul agent: host:port, http(s)://host:port[/prefix] or unix:///path";
    registry_consul_token: String = "registry.consul.token", Text, "", "1.1", Secret,
        "Consul ACL token; else registry.consul.tokenfile, CONSUL_HTTP_TOKEN_FILE or CONSUL_HTTP_TOKEN";
    registry_consul_tokenfile: String = "registry.consul.tokenfile", Path, "", OURS, Built,
        "file with the Consul ACL token, read again when it changes";
    registry_consul_namespace: String = "registry.consul.namespace", Text, "", "1.6.8", Built,
        "Consul Enterprise namespace; else CONSUL_NAMESPACE";
    registry_consul_tls_keyfile: String = "registry.consul.tls.keyfile", Path, "", "1.5.11", Built,
        "client key for Consul over https";
    registry_consul_tls_certfile: String = "registry.consul.tls.certfile", Path, "", "1.5.11", Built,
        "client certificate for Consul over https";
    registry_consul_tls_cafile: String = "registry.consul.tls.cafile", Path, "", "1.5.11", Built,
        "CA certificates for Consul over https";
    registry_consul_tls_capath: String = "registry.consul.tls.capath", Path, "", "1.5.11", Built,
        "directory of CA certificates for Consul over https";
    registry_consul_tls_insecureskipverify: bool = "registry.consul.tls.insecureskipverify", Bool, "false", "1.5.11", Built,
        "do not verify the certificate of Consul";
    registry_consul_kvpath: String = "registry.consul.kvpath", Text, "/fabio/config", "1.1", Built,
        "KV path of route overrides";
    registry_consul_noroutehtmlpath: String = "registry.consul.noroutehtmlpath", Text, "/fabio/noroute.html", "1.5.5", Built,
        "KV path of the page for requests without a route";
    registry_consul_optionspath: String = "registry.consul.optionspath", Text, "", OURS, Built,
        "KV path below which are entries that the tag option options=NAME names; empty: none";
    registry_consul_errorpagespath: String = "registry.consul.errorpagespath", Text, "", OURS, Built,
        "KV path of pages for our own errors, as in PATH/503, PATH/5xx and PATH/host/503; empty: none";
    registry_consul_tagprefix: String = "registry.consul.tagprefix", Text, "urlprefix-", "1.1", Built,
        "how tags that are routes begin";
    registry_consul_allow: Vec<String> = "registry.consul.allow", List, "", OURS, Built,
        "what services may claim in tags: a service (* stands for any characters) and hosts with paths, blanks between them, as in shop-* shop.example.com/ *.shop.example.com/, admin *; all else is a reject; empty: everybody everything";
    registry_consul_service_status: Vec<String> = "registry.consul.service.status", List, "passing", "1.1.5", Built,
        "check states that count as good";
    registry_consul_checks_required: String = "registry.consul.checksRequired", Text, "one", "1.5.9", Built,
        "one or all checks of an instance must be good";
    registry_consul_unavailablehtmlpath: String = "registry.consul.unavailablehtmlpath", Text, "", OURS, Built,
        "KV path of the page for routes whose targets are all down (503); empty: none";
    registry_consul_connect: String = "registry.consul.connect", Text, "", OURS, Built,
        "name of this proxy in Consul Connect, for routes with connect=true; empty: it is no member";
    registry_consul_datacenters: Vec<String> = "registry.consul.datacenters", List, "", OURS, Built,
        "datacenters to watch beside the agent's own, the preferred ones first: their instances serve a route while our own has none; empty: none";
    registry_consul_keepunhealthy: bool = "registry.consul.keepunhealthy", Bool, "false", OURS, Built,
        "a service whose instances are all unhealthy keeps its routes, which answer 503 instead of leaving the table";
    registry_consul_service_monitors: i64 = "registry.consul.serviceMonitors", INT, "1", "1.5.11", Built,
        "services that are asked for at once";
    registry_consul_pollinterval: i64 = "registry.consul.pollinterval", ANY_TIME, "0s", "1.5.14", Built,
        "0: blocking queries, else how often to ask",
        also "registry.consul.pollInterval";
    registry_consul_require_consistent: bool = "registry.consul.requireConsistent", Bool, "true", "1.6.1", Built,
        "consistent reads";
    registry_consul_allow_stale: bool = "registry.consul.allowStale", Bool, "false", "1.6.1", Built,
        "stale reads; needs registry.consul.requireConsistent=false";
    registry_consul_register_enabled: bool = "registry.consul.register.enabled", Bool, "true", "1.1.4", Built,
        "register the admin listener as a service";
    registry_consul_register_addr: String = "registry.consul.register.addr", Address, "", "1.1", Built,
        "address to register; default: that of ui.addr";
    registry_consul_register_name: String = "registry.consul.register.name", Text, "fabio", "1.1", Built,
        "name of that service";
    registry_consul_register_tags: Vec<String> = "registry.consul.register.tags", List, "", "1.1.3", Built,
        "tags of that service";
    registry_consul_register_check_interval: i64 = "registry.consul.register.checkInterval", TIME, "1s", "1.1", Built,
        "how often Consul checks it";
    registry_consul_register_check_timeout: i64 = "registry.consul.register.checkTimeout", TIME, "3s", "1.1", Built,
        "how long such a check may take";
    registry_consul_register_check_tls_skip_verify: bool = "registry.consul.register.checkTLSSkipVerify", Bool, "false", "1.4.3", Built,
        "Consul does not verify our certificate when it checks";
    registry_consul_register_check_deregister: String = "registry.consul.register.checkDeregisterCriticalServiceAfter", Text, "", "1.5.8",
        Inert("a registration that is not renewed is removed after one minute"),
        "without effect",
        also "registry.consul.register.deregisterCriticalServiceAfter";
    registry_custom_host: String = "registry.custom.host", Text, "", "1.5.11", Built,
        "backend custom: host:port";
    registry_custom_scheme: String = "registry.custom.scheme", Text, "https", "1.5.11", Built,
        "backend custom: http or https";
    registry_custom_path: String = "registry.custom.path", Text, "", "1.5.11", Built,
        "backend custom: path of the URL, without leading slash";
    registry_custom_queryparams: String = "registry.custom.queryparams", Text, "", "1.5.11", Built,
        "backend custom: query of the URL, without question mark";
    registry_custom_check_tls_skip_verify: bool = "registry.custom.checkTLSSkipVerify", Bool, "false", "1.5.11", Built,
        "backend custom: do not verify the certificate";
    registry_custom_timeout: i64 = "registry.custom.timeout", ANY_TIME, "5s", "1.5.11", Built,
        "backend custom: how long an answer may take";
    registry_custom_pollinterval: i64 = "registry.custom.pollinterval", TIME, "10s", "1.5.14", Built,
        "backend custom: how often to ask",
        also "registry.custom.pollinginterval" "registry.custom.pollInterval";
    registry_custom_noroutehtml: String = "registry.custom.noroutehtml", Text, "", "1.5.11", Built,
        "backend custom: the page for requests without a route, as HTML";

    // The admin listener.
    ui_addr: String = "ui.addr", Pairs, ":9998", "1.0.0", Built,
        "admin listener: [host]:port;opt=val;...; empty: none";
    ui_access: String = "ui.access", Choice(&["rw", "ro", "no"]), "rw", "1.5.0", Built,
        "rw, ro, and new no: only /health";
    ui_path: String = "ui.path", Text, "", "1.7.1", Built,
        "base path of the admin pages and the API; /health is never below it";
    ui_color: String = "ui.color", Text, "light-green", "1.0.7", Built,
        "colour of the navigation bar";
    ui_title: String = "ui.title", Text, "", "1.0.7", Built,
        "title of the admin pages";
    ui_hosts: Vec<String> = "ui.hosts", List, "", OURS, Built,
        "host names that browsers may use for the admin pages, *.example.com for all below; addresses always work. Empty: also names that cannot be anybody else's may change something";
    ui_auth: String = "ui.auth", Text, "", OURS, Built,
        "scheme of proxy.auth (basic or jwt) that lets people in to the admin pages and the API; empty: everybody. /health is always open";
    ui_source_linkenabled: bool = "ui.routingtable.source.linkenabled", Bool, "false", "1.6.3", Built,
        "make sources in the table of routes links";
    ui_source_newtab: bool = "ui.routingtable.source.newtab", Bool, "true", "1.6.3", Built,
        "open them in a new tab";
    ui_source_scheme: String = "ui.routingtable.source.scheme", Text, "http", "1.6.3", Built,
        "their scheme; empty: that of the page";
    ui_source_host: String = "ui.routingtable.source.host", Text, "", "1.6.3", Built,
        "their host if the source has none; empty: that of the page";
    ui_source_port: String = "ui.routingtable.source.port", Text, "", "1.6.3", Built,
        "their port if the source has none";

    // BGP.
    bgp_enabled: bool = "bgp.enabled", Bool, "false", "1.6.3", Pending(BGP),
        "announce addresses by BGP";
    bgp_asn: i64 = "bgp.asn", Kind::Int { min: 0, max: u32::MAX as i64 }, "65000", "1.6.3", Inert(BGP),
        "own AS number";
    bgp_anycastaddresses: Vec<String> = "bgp.anycastaddresses", List, "", "1.6.3", Inert(BGP),
        "prefixes to announce";
    bgp_routerid: String = "bgp.routerid", Text, "", "1.6.3", Inert(BGP),
        "own router id";
    bgp_listenport: i64 = "bgp.listenport", Kind::Int { min: -1, max: 65_535 }, "179", "1.6.3", Inert(BGP),
        "port to listen on; -1: none";
    bgp_listenaddresses: Vec<String> = "bgp.listenaddresses", List, "0.0.0.0", "1.6.3", Inert(BGP),
        "addresses to listen on";
    bgp_nexthop: String = "bgp.nexthop", Text, "", "1.6.3", Inert(BGP),
        "next hop to announce; empty: the router id";
    bgp_peers: String = "bgp.peers", Pairs, "", "1.6.3", Inert(BGP),
        "peers: address=ip;port=179;asn=n;multihop=false;multihoplength=2;password=p,...";
    bgp_enablegrpc: bool = "bgp.enablegrpc", Bool, "false", "1.6.3", Inert(BGP),
        "gRPC API of gobgp";
    bgp_grpclistenaddress: String = "bgp.grpclistenaddress", Text, "127.0.0.1:50051", "1.6.3", Inert(BGP),
        "its address";
    bgp_gobgpdcfgfile: String = "bgp.gobgpdcfgfile", Path, "", "1.6.3", Inert(BGP),
        "configuration file of gobgpd";

    // Of the past.
    aws_apigw_cert_cn: String = "aws.apigw.cert.cn", Text, "", "1.1.6", Dropped("set caupgcn on the certificate source"),
        "without effect";
}

/// Keys that fabio's own documentation names although fabio has never or no longer known them, and why they do nothing.
pub(crate) static GONE: &[(&str, &str)] = &[
    ("tracing.TracingEnabled", "set tracing.otlp.endpoint = http://HOST:4318, and requests are traced"),
    ("tracing.CollectorType", "spans go to an OpenTelemetry collector, which can pass them on to Zipkin or Kafka"),
    (
        "tracing.ConnectString",
        "Zipkin's protocol is not spoken; set tracing.otlp.endpoint = http://HOST:4318, an OpenTelemetry collector with a zipkin exporter, or Jaeger",
    ),
    ("tracing.ServiceName", "write tracing.service"),
    ("tracing.SpanName", "spans are named after the method and the path of the route"),
    ("tracing.SpanHost", "spans carry host and port of the request"),
    (
        "tracing.Topic",
        "Kafka is not spoken; set tracing.otlp.endpoint, an OpenTelemetry collector with a kafka exporter",
    ),
    ("tracing.SamplerRate", "write tracing.sample, a number from 0 to 1"),
    ("tracing.TraceID128Bit", "ids of traces have 128 bits"),
    ("bgp.certfile", "the gRPC API of BGP has no TLS"),
    ("bgp.keyfile", "the gRPC API of BGP has no TLS"),
    ("bgp.grpctls", "the gRPC API of BGP has no TLS"),
];

/// Flags that are not options. A property or a variable of such a name does nothing, as in fabio.
pub(crate) static DUMMIES: &[&str] = &["cfg", "v", "version"];
