#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::Value;

use super::loader::load_on;
use super::options::{OPTIONS, Values};
use super::parts::Machine;
use super::sockaddr::Interface;
use super::*;
use crate::{admin, cert, consul, listen, registry, route};

fn machine() -> Machine {
    let interface = |name: &str, ip: &str, default| Interface {
        name: name.to_owned(),
        ip: ip.parse().unwrap(),
        prefix_len: 8,
        up: true,
        default,
    };
    Machine {
        interfaces: vec![interface("lo", "127.0.0.1", false), interface("eth0", "10.1.2.3", true)],
        hostname: "my.host".to_owned(),
        cpus: 8,
    }
}

/// Arguments, variables and the text of a file.
#[derive(Default)]
struct Input<'a> {
    arguments: Vec<&'a str>,
    variables: Vec<(&'a str, &'a str)>,
    file: Option<&'a str>,
}

impl Input<'_> {
    fn load(&self) -> Result<Outcome, Failure> {
        let file = self.file.map(|text| {
            let file = tempfile::Builder::new().suffix(".properties").tempfile().unwrap();
            std::fs::write(file.path(), text).unwrap();
            file
        });
        let path = file.as_ref().map(|file| file.path().to_str().unwrap().to_owned());
        let cfg = path.iter().flat_map(|path| ["-cfg", path.as_str()]);
        let arguments = std::iter::once("ferrio").chain(cfg).chain(self.arguments.iter().copied());
        load_on(
            &machine(),
            arguments.map(Into::into),
            self.variables.iter().map(|(n, v)| (n.into(), v.into())),
            &["dev"],
        )
    }

    fn run(&self) -> (Config, Vec<(Level, String)>) {
        match self.load() {
            Ok(Outcome::Run { config, warnings }) => (*config, warnings),
            other => panic!("{other:?}"),
        }
    }
}

fn flags(arguments: &[&str]) -> (Config, Vec<(Level, String)>) {
    Input { arguments: arguments.to_vec(), ..Input::default() }.run()
}

fn refused(arguments: &[&str]) -> Failure {
    Input { arguments: arguments.to_vec(), ..Input::default() }.load().unwrap_err()
}

fn file(text: &str) -> (Config, Vec<(Level, String)>) {
    Input { file: Some(text), ..Input::default() }.run()
}

fn said(notes: &[(Level, String)], text: &str) -> bool {
    notes.iter().any(|(_, note)| note.contains(text))
}

#[test]
fn without_anything_there_are_two_listeners() {
    let (config, notes) = flags(&[]);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!((config.listeners[0].addr.as_str(), config.listeners[0].proto), (":9999", listen::Proto::Http));
    let admin = config.admin.as_ref().unwrap();
    assert_eq!((admin.listen.addr.as_str(), admin.access), (":9998", admin::Access::ReadWrite));
    assert_eq!((config.workers, config.log.level, config.insecure), (8, Level::Info, false));
    assert_eq!(config.proxy.local_ip, "10.1.2.3");
    assert_eq!(config.metrics.prefix, "my_host.fabio");
    assert_eq!(config.upstream.dial_timeout, Duration::from_secs(30));
    let registry::Backend::Consul(consul) = &config.registry.backend else { panic!() };
    assert_eq!((consul.kv_path.as_str(), consul.announce.addr.as_str()), ("fabio/config", ":9998"));
    assert!(consul.register && !consul.checks_all);
    assert!(said(&notes, "proxy.trusted is not set"));
    assert!(said(&notes, "ui.access"));
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn the_dump_has_the_shape_of_fabios() {
    let listener = |addr: &str| {
        format!(
            r#"{{"CertSource":{{"Header":null,"Name":"","Type":"","CertPath":"","KeyPath":"","ClientCAPath":"","CAUpgradeCN":"","VaultFetchToken":"","Refresh":0}},"Addr":"{addr}","Proto":"http","TLSCiphers":null,"ReadTimeout":0,"WriteTimeout":0,"IdleTimeout":0,"ProxyHeaderTimeout":0,"Refresh":0,"TLSMinVersion":0,"TLSMaxVersion":0,"StrictMatch":false,"ProxyProto":false}}"#
        )
    };
    let want = [
        r#"{"Log":{"AccessFormat":"common","AccessTarget":"","RoutesFormat":"delta","Level":"INFO"},"ProfileMode":"","ProfilePath":"/tmp","Listen":["#,
        &listener(":9999"),
        r#"],"Metrics":{"Circonus":{"APIKey":"","APIApp":"fabio","APIURL":"","CheckID":"","BrokerID":"","SubmissionURL":""},"Target":"","Prefix":"{{clean .Hostname}}.{{clean .Exec}}","Names":"{{clean .Service}}.{{clean .Host}}.{{clean .Path}}.{{clean .TargetURL.Host}}","GraphiteAddr":"","StatsDAddr":"","DogstatsdAddr":"","Prometheus":{"Subsystem":"","Path":"/metrics","Buckets":[0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10]},"Interval":30000000000,"Timeout":10000000000,"Retry":500000000},"#,
        r#""BGP":{"RouterID":"","GRPCListenAddress":"127.0.0.1:50051","CertFile":"","KeyFile":"","GOBGPDCfgFile":"","NextHop":"","AnycastAddresses":null,"ListenAddresses":["0.0.0.0"],"Peers":null,"Asn":65000,"ListenPort":179,"BGPEnabled":false,"EnableGRPC":false,"GRPCTLS":false},"#,
        r#""UI":{"RoutingTable":{"Source":{"Scheme":"http","Host":"","Port":"","LinkEnabled":false,"NewTab":true}},"Color":"light-green","Title":"","Access":"rw","Path":"","Listen":"#,
        &listener(":9998"),
        r#"},"Registry":{"Static":{"NoRouteHTML":"","Routes":""},"File":{"NoRouteHTMLPath":"","RoutesPath":""},"Backend":"consul","Custom":{"Host":"","Path":"","QueryParams":"","Scheme":"https","NoRouteHTML":"","PollInterval":10000000000,"Timeout":5000000000,"CheckTLSSkipVerify":false},"#,
        r#""Consul":{"Addr":"localhost:8500","Scheme":"http","Token":"","KVPath":"/fabio/config","NoRouteHTMLPath":"/fabio/noroute.html","TagPrefix":"urlprefix-","Namespace":"","ServiceAddr":":9998","ServiceName":"fabio","CheckScheme":"http","ChecksRequired":"one","TLS":{"KeyFile":"","CertFile":"","CAFile":"","CAPath":"","InsecureSkipVerify":false},"ServiceTags":null,"ServiceStatus":["passing"],"CheckInterval":1000000000,"CheckTimeout":3000000000,"ServiceMonitors":1,"PollInterval":0,"Register":true,"CheckTLSSkipVerify":false,"RequireConsistent":true,"AllowStale":false},"Timeout":10000000000,"Retry":500000000},"#,
        r#""Proxy":{"GZIPContentTypes":null,"AuthSchemes":{},"Strategy":"rnd","Matcher":"prefix","LocalIP":"10.1.2.3","ClientIPHeader":"","TLSHeader":"","TLSHeaderValue":"","RequestID":"","STSHeader":{"MaxAge":0,"Subdomains":false,"Preload":false},"NoRouteStatus":404,"MaxConn":10000,"ShutdownWait":0,"DeregisterGracePeriod":0,"DialTimeout":30000000000,"ResponseHeaderTimeout":0,"KeepAliveTimeout":0,"IdleConnTimeout":15000000000,"FlushInterval":1000000000,"GlobalFlushInterval":0,"GRPCMaxRxMsgSize":4194304,"GRPCMaxTxMsgSize":4194304,"GRPCGShutdownTimeout":2000000000},"#,
        r#""Runtime":{"GOGC":100,"GOMAXPROCS":8},"GlobCacheSize":1000,"Insecure":false,"GlobMatchingDisabled":false}"#,
    ];
    assert_eq!(flags(&[]).0.json, want.concat());
}

#[test]
fn flag_beats_prefixed_variable_beats_plain_variable_beats_file() {
    let text = "ui.title = file\nui.color = file\nproxy.header.clientip = file\nproxy.header.tls = file\n";
    let input = Input {
        arguments: vec!["-ui.title", "flag"],
        variables: vec![
            ("FABIO_UI_TITLE", "prefixed"),
            ("FABIO_ui_color", "prefixed"),
            ("UI_TITLE", "plain"),
            ("UI_COLOR", "plain"),
            ("proxy_header_clientip", "plain"),
        ],
        file: Some(text),
    };
    let (config, _) = input.run();
    let admin = config.admin.unwrap();
    assert_eq!((admin.title.as_str(), admin.color.as_str()), ("flag", "prefixed"));
    assert_eq!((config.proxy.client_ip_header.as_str(), config.proxy.tls_header.as_str()), ("plain", "file"));
    assert_eq!(config.proxy.request_id_header, "");
}

#[test]
fn an_empty_value_is_a_value() {
    let input = Input {
        variables: vec![("FABIO_UI_TITLE", ""), ("UI_TITLE", "plain")],
        file: Some("ui.title = file"),
        ..Input::default()
    };
    assert_eq!(input.run().0.admin.unwrap().title, "");
    let (config, notes) = flags(&["-ui.addr", ""]);
    assert!(config.admin.is_none() && said(&notes, "not registering in Consul"));
    let registry::Backend::Consul(consul) = config.registry.backend else { panic!() };
    assert!(!consul.register);
    assert!(flags(&["-proxy.addr="]).0.listeners.is_empty());
}

#[test]
fn flags_that_only_print() {
    for (arguments, stdout, want) in [
        (&["-v"][..], true, "0."),
        (&["-ui.title", "-version"], true, "0."),
        (&["-h"], false, "Usage of ferrio:\n  -aws.apigw.cert.cn string\n    \t"),
    ] {
        match (Input { arguments: arguments.to_vec(), ..Input::default() }).load() {
            Ok(Outcome::Print { text, stdout: to, code: 0 }) => {
                assert!(text.starts_with(want) && text.ends_with('\n') && to == stdout, "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let usage = reference::usage("x");
    for line in [
        "\n  -registry.consul.register.addr string\n    \taddress to register; default: that of ui.addr (default \"<ui.addr>\")\n",
        "\n  -proxy.dialtimeout duration\n    \ttime to connect to a target; 0: no limit (default 30s)\n",
        "\n  -glob.matching.disabled\n    \t",
        "\n  -bgp.asn uint\n",
        "\n  -cfg string\n",
    ] {
        assert!(usage.contains(line), "{line}");
    }
    let names: Vec<&str> = usage
        .lines()
        .filter_map(|line| line.strip_prefix("  -"))
        .map(|line| line.split([' ', '\t']).next().unwrap())
        .collect();
    assert!(names.is_sorted() && names.len() == OPTIONS.len() + 3);
}

#[test]
fn mistakes_in_flags_end_with_2_and_the_usage() {
    for (arguments, want) in [
        (&["-no.such.flag", "x"][..], "flag provided but not defined: -no.such.flag\nUsage of ferrio:\n"),
        (&["-proxy.maxconn", "x"], "invalid value \"x\" for flag -proxy.maxconn: parse error"),
        (&["-proxy.dialtimeout", "5"], "invalid value \"5\" for flag -proxy.dialtimeout: parse error"),
        (&["-insecure=maybe"], "invalid boolean value \"maybe\" for -insecure: parse error"),
        (&["-proxy.addr"], "flag needs an argument: -proxy.addr\nUsage"),
        (&["-tracing.SpanName", "x"], "flag provided but not defined: -tracing.SpanName"),
        (&["devv"], "unknown subcommand \"devv\"; there are: dev. Did you mean dev?"),
    ] {
        let failure = refused(arguments);
        assert_eq!(failure.code, 2, "{arguments:?}");
        assert!(failure.message.starts_with(want), "{}", failure.message);
    }
    let missing = refused(&["-cfg"]);
    assert_eq!(missing.code, 1);
    assert!(missing.message.contains("invalid or missing path to config file"));
}

#[test]
fn words_behind_the_flags_are_ignored_with_a_warning() {
    let (config, notes) = flags(&["-ui.title", "T", "word", "-ui.title", "other", "-no.such.flag"]);
    assert_eq!(config.admin.unwrap().title, "T");
    assert!(said(&notes, "word -ui.title other -no.such.flag"));
}

/// Key, value and what must be said about it.
const REFUSED: &[(&str, &str, &str)] = &[
    ("proxy.strategy", "random", "invalid proxy.strategy: random"),
    ("proxy.strategy", "rr ", "invalid proxy.strategy: rr "),
    ("proxy.matcher", "regex", "invalid proxy.matcher: regex"),
    ("ui.access", "none", "invalid ui.access: none"),
    ("proxy.noroutestatus", "10", "proxy.noroutestatus must be between 100 and 999"),
    ("proxy.noroutestatus", "1000", "proxy.noroutestatus must be between 100 and 999"),
    (
        "registry.consul.allowStale",
        "true",
        "registry.consul.allowStale and registry.consul.requireConsistent cannot both be true",
    ),
    ("proxy.gzip.contenttype", "^.*+json$", "invalid expression for content types: error parsing regexp"),
    ("proxy.gzip.contenttype", "^text/", "not built yet"),
    ("proxy.addr", ":5555;cs=foo", "unknown certificate source \"foo\""),
    ("proxy.addr", ":5555;proto=foo", "unknown protocol \"foo\""),
    ("proxy.addr", ":80;proto=http , :443", "unknown protocol \"http \""),
    ("proxy.addr", ":5555;proto=https", "proto 'https' requires cert source"),
    ("proxy.addr", ":5555;proto=grpcs", "proto 'grpcs' requires cert source"),
    ("proxy.addr", "proto=http", "need listening host:port"),
    ("proxy.addr", "9999", "need listening host:port"),
    ("proxy.addr", ":99999", "a port is at most 65535"),
    ("proxy.addr", "::1:80", "stands in brackets"),
    ("proxy.addr", "[::x]:80", "no IPv6 address"),
    ("proxy.addr", ":80;addr=:81", "two addresses for one listener"),
    ("proxy.addr", "{{ GetInterfaceIP \"none\" }}:80", "unable to parse template"),
    ("proxy.addr", ":80;rt=3", "rt: time: missing unit in duration \"3\""),
    ("proxy.addr", ":80;wt=", "wt: time: invalid duration \"\""),
    ("proxy.addr", ":80;it=x", "it: time: invalid duration \"x\""),
    ("proxy.addr", ":80;pxytimeout=1d", "pxytimeout: time: unknown unit \"d\""),
    ("proxy.addr", ":80;refresh=3", "refresh: time: missing unit"),
    ("proxy.addr", ":80;tlsmin=ssl30", "strconv.ParseUint: parsing \"ssl30\": invalid syntax"),
    ("proxy.addr", ":80;tlsmax=tls99", "strconv.ParseUint: parsing \"tls99\": invalid syntax"),
    ("proxy.addr", ":80;tlsciphers=\"NO_SUCH,0x1\"", "strconv.ParseUint: parsing \"NO_SUCH\": invalid syntax"),
    ("proxy.addr", ":80;tlsciphers=", "strconv.ParseUint: parsing \"\": invalid syntax"),
    ("proxy.addr", ":80;pxytrusted=\"10.0.0.0/8,x\"", "pxytrusted: \"x\" is no network"),
    ("proxy.addr", ":80;pxytrusted=", "pxytrusted: no network"),
    ("proxy.addr", ":80;strictmatch", "option strictmatch has no value"),
    ("proxy.addr", ":80;a=b;c;d=e", "unexpected ;"),
    ("proxy.addr", ":80;tlsciphers=\"x", "unbalanced quotes"),
    ("proxy.addr", ":443;cert.pem;key.pem", "unexpected ;"),
    ("proxy.addr", ":80;proto=grpc", "proto=grpc is not built yet"),
    ("ui.addr", ":1,:2", "ui.addr must contain only one listener"),
    ("ui.addr", ",", "ui.addr must contain only one listener"),
    ("ui.addr", ":x y", "need listening host:port"),
    ("proxy.cs", "type=file;cert=x", "missing 'cs' in map[cert:x type:file]"),
    ("proxy.cs", "cs=a;type=file", "missing 'cert' in map[cs:a type:file]"),
    ("proxy.cs", "cs=a;type=path;path=/x", "missing 'cert' in map[cs:a path:/x type:path]"),
    ("proxy.cs", "cs=a;cert=x", "missing 'type' in map[cert:x cs:a]"),
    ("proxy.cs", "cs=a;type=foo;cert=x", "unknown cert source type foo"),
    ("proxy.cs", "cs=a;type=http;cert=x;hdr=a:b", "invalid header a:b"),
    ("proxy.cs", "cs=a;type=http;cert=x;refresh=3", "refresh: time: missing unit"),
    ("proxy.auth", "type=basic;file=x", "missing 'name' in auth"),
    ("proxy.auth", "name=a;file=x", "missing 'type' in auth 'a'"),
    ("proxy.auth", "name=a;type=foo;file=x", "unknown auth type 'foo'"),
    ("proxy.auth", "name=a;type=basic", "missing 'file' in auth 'a'"),
    ("proxy.auth", "name=a;type=basic;file=x;refresh=1", "refresh: time: missing unit"),
    ("proxy.auth", "name=a;type=basic;file=x", "not built yet"),
    ("proxy.localip", "{{ nope }}", "failed to parse local ip: unable to parse template"),
    ("proxy.trusted", "10.0.0.0/8,me", "\"me\" is no network"),
    ("proxy.header.tls", "a b", "not a header name"),
    ("proxy.header.sts.maxage", "99999999999", "proxy.header.sts.maxage"),
    ("proxy.maxheaders", "0", "proxy.maxheaders must be between 1 and 65536"),
    ("proxy.maxconn", "-1", "proxy.maxconn must not be negative"),
    ("proxy.dialtimeout", "-1s", "proxy.dialtimeout must not be negative"),
    ("metrics.target", "nosuch", "invalid metrics backend nosuch"),
    ("metrics.target", "prometheus,promotheus", "invalid metrics backend promotheus; did you mean prometheus?"),
    ("metrics.target", "statsd", "statsd support has been removed in favor of statsd_raw"),
    ("metrics.target", "graphite", "graphite is not built yet"),
    ("metrics.prefix", "{{nope", "metrics: invalid Prefix template: unclosed action"),
    ("metrics.prometheus.path", "metrics", "must begin with /"),
    ("metrics.prometheus.buckets", "1,1", "must increase"),
    ("log.access.target", "stdout", "not built yet"),
    ("registry.backend", "zookeeper", "Unknown registry backend zookeeper"),
    ("registry.consul.addr", "", "no address of a Consul agent"),
    ("registry.consul.addr", "unix://run/consul", "whole path"),
    ("registry.consul.register.addr", "{{ nope }}", "failed to consul service address: unable to parse template"),
    ("registry.consul.register.addr", "", "write host:port"),
    ("profile.mode", "x", "invalid profile.mode: x"),
    ("bgp.enabled", "true", "not built yet"),
    ("bgp.peers", "address=1.2.3.4;port=x", "strconv.ParseUint: parsing \"x\": invalid syntax"),
    ("bgp.peers", "address=1.2.3.4;asn=-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
    ("bgp.peers", "address=1.2.3.4;multihop=x", "strconv.ParseBool: parsing \"x\": invalid syntax"),
];

#[test]
fn every_mistake_is_refused_with_key_value_source_and_reason() {
    for (key, value, want) in REFUSED {
        let variable = format!("FABIO_{}", key.replace('.', "_"));
        let failure = Input { variables: vec![(&variable, value)], ..Input::default() }.load().unwrap_err();
        let message = &failure.message;
        assert_eq!(failure.code, 1, "{key}={value}");
        assert!(message.contains(want), "{key}={value}: {message}");
        assert!(message.contains(&format!("(environment variable {variable})")), "{key}={value}: {message}");
        assert_eq!(message.lines().count(), 1, "{key}={value}: {message}");
    }
}

#[test]
fn a_certificate_source_does_not_fit_every_protocol() {
    for proto in ["http", "tcp+sni", "grpc"] {
        let addr = format!(":5555;cs=a;proto={proto}");
        let failure = refused(&["-proxy.addr", &addr, "-proxy.cs", "cs=a;type=file;cert=/none.pem"]);
        assert!(failure.message.contains(
            "cert source requires proto 'https', 'tcp', 'tcp-dynamic', 'https+tcp+sni', 'prometheus', or 'grpcs'"
        ));
    }
}

#[test]
fn all_mistakes_are_said_at_once_and_numbers_in_a_file_with_their_line() {
    let text = "proxy.maxconn = many\nproxy.dialtimeout = abc\n\nproxy.responseheadertimeout = 5\nproxy.addr = :80;proto=foo;rt=3, :81;cs=x\n";
    let input =
        Input { arguments: vec!["-proxy.strategy", "x"], variables: vec![("UI_ACCESS", "y")], file: Some(text) };
    let message = input.load().unwrap_err().message;
    for want in [
        "8 mistakes",
        ".properties:1): not a number",
        ".properties:2): time: invalid duration \"abc\"",
        ".properties:4): time: missing unit in duration \"5\"",
        ".properties:5): listener 1: unknown protocol \"foo\"",
        "listener 1: rt: time: missing unit",
        "listener 2: unknown certificate source \"x\"",
        "(flag -proxy.strategy): invalid proxy.strategy: x; write rnd or rr",
        "(environment variable UI_ACCESS): invalid ui.access: y",
    ] {
        assert!(message.contains(want), "{want}: {message}");
    }
}

#[test]
fn a_file_that_is_missing_or_broken_is_named() {
    let failure = refused(&["-cfg", "/none/none.properties"]);
    assert_eq!(failure.code, 1);
    assert!(failure.message.ends_with("open /none/none.properties: no such file or directory"), "{}", failure.message);
    for text in [
        "= no key\n",
        "ui.title = ${open\n",
        "ui.title = ${ui.color}\nui.color = ${ui.title}\n",
        "ui.title = \\u00zz\n",
    ] {
        let failure = Input { file: Some(text), ..Input::default() }.load().unwrap_err();
        assert_eq!(failure.code, 1);
        assert!(failure.message.contains("properties: Line 1"), "{}", failure.message);
    }
}

#[test]
fn typed_values_of_a_file_may_have_blanks_behind_them() {
    let (config, _) = file("proxy.maxconn = 100 \nproxy.dialtimeout = 5s\t\nglob.matching.disabled = true \n");
    assert_eq!((config.upstream.max_idle, config.upstream.dial_timeout), (100, Duration::from_secs(5)));
    assert!(!config.registry.settings.globs);
}

#[test]
fn values_in_all_their_spellings() {
    let text = "proxy.maxconn = 0x10\nproxy.keepalivetimeout = 1h2m3s\nproxy.flushinterval = 1.5s\nproxy.dialtimeout = 250us\n\
        proxy.header.sts.preload = T\nproxy.header.sts.subdomains = 1\nglob.matching.disabled = FALSE\n\
        registry.consul.register.tags =  a, b , ,c,\nproxy.responseheadertimeout = 0\nproxy.maxheadersize = 64KiB\nproxy.strategy=rr\n\
        ui.title = <${my.part}-${VARIABLE}-${NONE}>&\nmy.part = abc\nlog.access.format = $remote_host x\n";
    let (config, notes) = Input { file: Some(text), variables: vec![("VARIABLE", "env")], ..Input::default() }.run();
    assert_eq!((config.upstream.max_idle, config.proxy.max_header_size), (16, 65536));
    assert_eq!(config.upstream.keep_alive, Some(Duration::from_secs(3723)));
    assert!(config.proxy.sts.preload && config.proxy.sts.subdomains && config.registry.settings.globs);
    assert_eq!(config.proxy.strategy, route::Strategy::RoundRobin);
    let json: Value = serde_json::from_str(&config.json).unwrap();
    assert_eq!(json["UI"]["Title"], "<abc-env->&");
    assert!(config.json.contains(r"\u003cabc-env-\u003e\u0026"));
    assert_eq!(json["Registry"]["Consul"]["ServiceTags"], serde_json::json!(["a", "b", "c"]));
    assert_eq!(json["Proxy"]["FlushInterval"], 1_500_000_000);
    assert_eq!(json["Proxy"]["DialTimeout"], 250_000);
    assert_eq!(json["Log"]["AccessFormat"], "$remote_host x");
    assert!(!said(&notes, "my.part"), "{notes:?}");
}

#[test]
fn negative_times_have_a_meaning_where_fabio_gives_them_one() {
    let (config, _) =
        flags(&["-proxy.keepalivetimeout", "-1s", "-proxy.idleconntimeout=-1s", "-proxy.responseheadertimeout=-5ms"]);
    assert_eq!((config.upstream.keep_alive, config.upstream.idle_timeout), (None, Duration::ZERO));
    assert!(config.json.contains("\"KeepAliveTimeout\":-1000000000"));
    assert_eq!(flags(&["-proxy.maxconn", "0"]).0.upstream.max_idle, 2);
    assert_eq!(flags(&[]).0.upstream.keep_alive, Some(Duration::from_secs(15)));
}

#[test]
fn listeners_take_their_options() {
    let (config, notes) = flags(&[
        "-proxy.addr",
        ":5555;rt=1s;wt=2s;it=3s;tlsmin=0x0300;tlsmax=0x305;tlsciphers=\"0x123,0x456\",addr=[::1]:80;proto=http;pxyproto=true;halfclose=true,{{ GetPrivateIP }}:81;pxytrusted=\"10.0.0.0/8, ::1\";pxytimeout=1s;strictmatch=yes;rtt=1s,{{ GetInterfaceIP \"eth0\" }}:http",
        "-proxy.readtimeout",
        "9s",
        "-proxy.writetimeout",
        "8s",
    ]);
    let [one, two, three, four] = config.listeners.as_slice() else { panic!() };
    assert_eq!((one.read_timeout.as_secs(), one.write_timeout.as_secs(), one.idle_timeout.as_secs()), (1, 2, 3));
    assert_eq!((one.tls_min, one.tls_max, one.tls_ciphers.as_slice()), (0x300, 0x305, &[0x123, 0x456][..]));
    assert_eq!((two.addr.as_str(), two.proxy_protocol, two.half_close), ("[::1]:80", true, true));
    assert_eq!((two.proxy_header_timeout, two.read_timeout), (Duration::from_millis(250), Duration::from_secs(9)));
    assert_eq!(
        (three.addr.as_str(), three.proxy_header_timeout, three.strict_match),
        ("10.1.2.3:81", Duration::from_secs(1), false)
    );
    assert_eq!(three.proxy_trusted.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "::1/128"]);
    assert_eq!(four.addr, "10.1.2.3:http");
    assert_eq!(config.admin.unwrap().listen.read_timeout, Duration::ZERO);
    assert!(
        said(&notes, "listener 3: strictmatch=yes means false")
            && said(&notes, "unknown option \"rtt\" is ignored; did you mean rt?")
    );
    let json: Value = serde_json::from_str(&config.json).unwrap();
    assert_eq!(json["Listen"][1]["ProxyHeaderTimeout"], 250_000_000);
    assert_eq!(json["Listen"][0]["TLSCiphers"], serde_json::json!([291, 1110]));
}

#[test]
fn a_range_of_ports_is_a_listener_each() {
    let (config, _) = flags(&["-proxy.addr", "127.0.0.1:7000-7002;proto=tcp;rt=1s,[::1]:80-80;proto=udp,:http-alt"]);
    let got: Vec<_> = config.listeners.iter().map(|l| (l.addr.as_str(), l.proto.name())).collect();
    assert_eq!(
        got,
        [
            ("127.0.0.1:7000", "tcp"),
            ("127.0.0.1:7001", "tcp"),
            ("127.0.0.1:7002", "tcp"),
            ("[::1]:80", "udp"),
            (":http-alt", "http"),
        ]
    );
    assert!(config.listeners[..3].iter().all(|l| l.read_timeout == Duration::from_secs(1)));
    for (addr, reason) in [
        (":7002-7000;proto=tcp", "lower port first"),
        (":1-65535;proto=tcp", "1000 ports at most"),
        (":80-81", "for tcp"),
        (":80-81;proto=tcp-dynamic", "for tcp"),
    ] {
        let message = refused(&["-proxy.addr", addr]).message;
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn prometheus_may_have_a_listener_and_the_legacy_certificate_form_is_noticed() {
    let (config, notes) =
        flags(&["-proxy.addr", ":9090;proto=prometheus,:443;cert.pem", "-metrics.target", " prometheus, ,prometheus"]);
    assert_eq!(config.listeners[0].proto, listen::Proto::Prometheus);
    assert_eq!(config.metrics.targets, ["prometheus"]);
    assert!(said(&notes, "\"cert.pem\" is no option"));
}

#[test]
fn certificates_are_read_for_the_listeners_that_use_them() {
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("a.pem");
    std::fs::write(&pem, "").unwrap();
    let pem = pem.to_str().unwrap();
    let cs = format!("cs=a;type=file;cert={pem},cs=b;type=file;cert={pem};key={pem}.key,cs=unused;type=vault;cert=x");
    let (config, _) = flags(&[
        "-proxy.addr",
        ":1;cs=a,:2;cs=a;strictmatch=true;tlsmin=tls12,:3",
        "-ui.addr",
        ":9998;cs=a",
        "-proxy.cs",
        &cs,
    ]);
    assert_eq!(
        config.listeners.iter().map(|l| l.proto).collect::<Vec<_>>(),
        [listen::Proto::Https, listen::Proto::Https, listen::Proto::Http]
    );
    assert_eq!(config.cert_sources.len(), 1);
    assert!(config.cert_sources[0].kind == cert::Kind::File { cert: pem.into(), key: pem.into() });
    assert_eq!(config.cert_sources[0].refresh, Duration::ZERO);
    let registry::Backend::Consul(consul) = config.registry.backend else { panic!() };
    assert_eq!((consul.announce.check_scheme.as_str(), consul.announce.addr.as_str()), ("https", ":9998"));

    let missing = refused(&["-proxy.addr", ":1;cs=b", "-proxy.cs", &cs]).message;
    assert!(missing.contains(&format!("source b: key: open {pem}.key: no such file or directory")), "{missing}");
    let pending = refused(&["-proxy.addr", ":1;cs=unused", "-proxy.cs", &cs]).message;
    assert!(pending.contains("type=vault is not built yet"), "{pending}");
    let client = refused(&[
        "-proxy.addr",
        ":1;cs=c",
        "-proxy.cs",
        &format!("cs=c;type=file;cert={pem};clientca={pem};caupgcn=x"),
    ])
    .message;
    assert!(client.contains("clientca is not built yet") && client.contains("caupgcn is not built yet"), "{client}");
    let old = refused(&["-proxy.addr", ":1;cs=a;tlsmax=TLS11", "-proxy.cs", &cs]).message;
    assert!(old.contains("only TLS 1.2 and 1.3 can be served"), "{old}");
    let (_, notes) = flags(&[
        "-proxy.addr",
        ":1;cs=a;tlsmin=tls10;tlsciphers=\"TLS_RSA_WITH_RC4_128_SHA,0xc02f\"",
        "-proxy.cs",
        &cs,
    ]);
    assert!(
        said(&notes, "TLS 1.0 and 1.1 cannot be served") && said(&notes, "left out: TLS_RSA_WITH_RC4_128_SHA"),
        "{notes:?}"
    );
}

#[test]
fn consul_addresses_are_read_as_documented() {
    for (text, scheme, addr, prefix) in [
        ("1.2.3.4:5555", "http", "1.2.3.4:5555", ""),
        ("http://1.2.3.4:5555/", "http", "1.2.3.4:5555", ""),
        ("https://1.2.3.4:5555/", "https", "1.2.3.4:5555", ""),
        ("HTTPS://Consul.Local:5555/", "https", "consul.local:5555", ""),
        ("HTTP://127.0.0.1:8500/v1/", "http", "127.0.0.1:8500", ""),
        ("http://h:8500/Consul/", "http", "h:8500", "/Consul"),
        ("https://h/a/b/v1", "https", "h", "/a/b"),
        ("unix:///run/Consul.sock", "http", "unix:///run/Consul.sock", ""),
    ] {
        let (config, _) = flags(&["-registry.consul.addr", text]);
        let registry::Backend::Consul(consul) = config.registry.backend else { panic!() };
        assert_eq!(
            (consul.client.scheme.as_str(), consul.client.addr.as_str(), consul.client.path_prefix.as_str()),
            (scheme, addr, prefix),
            "{text}"
        );
    }
}

#[test]
fn consul_settings_fall_back_to_consuls_own_variables() {
    let variables = vec![
        ("CONSUL_HTTP_TOKEN", "t"),
        ("CONSUL_NAMESPACE", "ns"),
        ("CONSUL_PARTITION", "p"),
        ("CONSUL_CACERT", "/ca"),
        ("CONSUL_TLS_SERVER_NAME", "name"),
        ("CONSUL_HTTP_SSL_VERIFY", "false"),
        ("CONSUL_HTTP_ADDR", "elsewhere:1"),
    ];
    let client = |input: &Input<'_>| match input.run().0.registry.backend {
        registry::Backend::Consul(consul) => consul.client,
        other => panic!("{other:?}"),
    };
    let from_variables = client(&Input { variables: variables.clone(), ..Input::default() });
    assert_eq!(from_variables.token, consul::Token::Value("t".to_owned()));
    assert_eq!((from_variables.namespace.as_deref(), from_variables.partition.as_deref()), (Some("ns"), Some("p")));
    assert_eq!(from_variables.addr, "localhost:8500");
    let tls = from_variables.tls;
    assert_eq!(
        (tls.ca_file.as_deref(), tls.server_name.as_deref(), tls.insecure_skip_verify),
        (Some("/ca"), Some("name"), true)
    );

    let file = [variables.clone(), vec![("CONSUL_HTTP_TOKEN_FILE", "/t")]].concat();
    assert_eq!(client(&Input { variables: file.clone(), ..Input::default() }).token, consul::Token::File("/t".into()));
    let arguments = vec!["-registry.consul.tokenfile", "/mine", "-registry.consul.namespace", "own"];
    let own = client(&Input { arguments, variables: file.clone(), ..Input::default() });
    assert_eq!((own.token, own.namespace.as_deref()), (consul::Token::File("/mine".into()), Some("own")));
    let token = client(&Input { arguments: vec!["-registry.consul.token", "x"], variables: file, ..Input::default() });
    assert_eq!(token.token, consul::Token::Value("x".to_owned()));

    let half = refused(&["-registry.consul.addr", "https://h:1", "-registry.consul.tls.keyfile", "/k"]).message;
    assert!(half.contains("must be given together"), "{half}");
    for (consistent, stale, want) in [
        ("true", "false", consul::Consistency::Consistent),
        ("false", "true", consul::Consistency::Stale),
        ("false", "false", consul::Consistency::Default),
    ] {
        let arguments = vec!["-registry.consul.requireConsistent", "-registry.consul.allowStale"];
        let arguments = [format!("{}={consistent}", arguments[0]), format!("{}={stale}", arguments[1])];
        let input = Input { arguments: arguments.iter().map(String::as_str).collect(), ..Input::default() };
        assert_eq!(client(&input).consistency, want);
    }
}

#[test]
fn secrets_are_in_no_dump_and_no_message() {
    let arguments = &[
        "-registry.consul.token",
        "s3cret",
        "-metrics.circonus.apikey",
        "s3cret",
        "-bgp.peers",
        "address=1.2.3.4;password=s3cret",
        "-registry.custom.queryparams",
        "x=1&token=s3cret",
    ];
    let (config, notes) = flags(arguments);
    assert!(!config.json.contains("s3cret") && !format!("{config:?}{notes:?}").contains("s3cret"));
    assert!(
        config.json.contains(r#""Token":"\u003credacted\u003e""#)
            && config.json.contains(r#""Password":"\u003credacted\u003e""#)
    );
    let failure = refused(&[
        "-proxy.cs",
        "cs=a;type=foo;cert=http://u:s3cret@h/v1/kv/x?token=s3cret;hdr=Authorization: Bearer s3cret",
    ]);
    assert!(!failure.message.contains("s3cret") && failure.message.contains("<redacted>"), "{}", failure.message);
}

#[test]
fn unknown_misspelled_and_old_keys_are_said() {
    let text = "proxy.adr = :1\nno.such.key = x\ntracing.SpanName = x\nregistry.consul.pollInterval = 1s\nregistry.static.noroutehtmlpath = <p>\n\
        aws.apigw.cert.cn = x\nproxy.log.routes = detail\nlog.routes.format = all\nruntime.gogc = 200\nprofile.mode = cpu\ncfg = x\n\
        log.level = loud\nregistry.consul.checksRequired = two\nui.path = fabio/\nbgp.certfile = x\nmetrics.timeout = 1s\n";
    let (config, notes) =
        Input { file: Some(text), variables: vec![("FABIO_PROXY_ADR", ":1")], ..Input::default() }.run();
    let warned = |text: &str| notes.iter().any(|(level, note)| *level == Level::Warn && note.contains(text));
    for want in [
        ".properties:1): unknown option is ignored; did you mean proxy.addr?",
        "no.such.key",
        "tracing was removed from fabio in 1.7.0",
        "the name is registry.consul.pollinterval, not registry.consul.pollInterval",
        "the name is registry.static.noroutehtml, not registry.static.noroutehtmlpath",
        "aws.apigw.cert.cn",
        "proxy.log.routes has been deprecated. Please use 'log.routes.format' instead",
        "profile.mode",
        "environment variable FABIO_PROXY_ADR: unknown option is ignored; did you mean FABIO_PROXY_ADDR?",
        "Cannot set log level to loud",
        "means one; write one or all",
        "ui.path",
        "bgp.certfile",
    ] {
        assert!(warned(want), "{want}: {notes:?}");
    }
    assert!(notes.iter().any(|(level, note)| *level == Level::Debug && note.contains("runtime.gogc")));
    assert!(notes.iter().any(|(level, note)| *level == Level::Debug && note.contains("metrics.timeout")));
    assert!(!said(&notes, "cfg ("));
    assert_eq!(config.registry.log, registry::RoutesLog::Detail);
    assert_eq!(config.log.level, Level::Info);
    assert_eq!(config.admin.unwrap().path, "/fabio");
    let registry::Backend::Consul(consul) = config.registry.backend else { panic!() };
    assert_eq!(consul.poll_interval, Duration::from_secs(1));
}

#[test]
fn keys_of_the_past_are_accepted_as_flags() {
    let arguments = &[
        "-aws.apigw.cert.cn",
        "value",
        "-registry.consul.register.checkDeregisterCriticalServiceAfter",
        "5m",
        "-metrics.timeout",
        "1s",
    ];
    flags(arguments);
    let (config, notes) = flags(&["-proxy.log.routes", "foobar"]);
    assert!(config.json.contains("\"RoutesFormat\":\"foobar\""));
    assert!(
        said(&notes, "has been deprecated") && said(&notes, "Invalid route format \"foobar\". Defaulting to \"delta\"")
    );
}

#[test]
fn the_number_of_workers() {
    for (arguments, variables, want) in [
        (&[][..], &[][..], 8),
        (&["-runtime.gomaxprocs", "3"], &[], 3),
        (&["-runtime.gomaxprocs", "0"], &[], 8),
        (&["-runtime.gomaxprocs", "3"], &[("GOMAXPROCS", "2")], 2),
        (&["-runtime.gomaxprocs", "3"], &[("GOMAXPROCS", "")], 3),
        (&["-runtime.gomaxprocs", "3"], &[("GOMAXPROCS", "x")], 3),
    ] {
        let input = Input { arguments: arguments.to_vec(), variables: variables.to_vec(), file: None };
        assert_eq!(input.run().0.workers, want, "{arguments:?} {variables:?}");
    }
}

#[test]
fn trust_is_nobody_when_it_is_set_to_nothing() {
    assert_eq!(flags(&[]).0.proxy.trusted, None);
    assert_eq!(flags(&["-proxy.trusted="]).0.proxy.trusted, Some(vec![]));
    let (config, notes) = flags(&["-proxy.trusted", "10.1.2.3, 192.168.0.0/16"]);
    let networks: Vec<String> = config.proxy.trusted.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.1.2.3/32", "192.168.0.0/16"]);
    assert!(!said(&notes, "proxy.trusted"));
    let (_, notes) = flags(&["-ui.addr", "127.0.0.1:9998"]);
    assert!(!said(&notes, "ui.access"));
}

#[test]
fn other_backends() {
    for (backend, want) in [
        ("file", "registry.file.path = \"\" (default): registry.backend=file needs a file"),
        ("custom", "registry.custom.host = \"\" (default): registry.backend=custom needs a host:port"),
    ] {
        let failure = refused(&["-registry.backend", backend]);
        assert!(failure.message.contains(want), "{}", failure.message);
    }
    let text = "registry.backend = static\nregistry.static.routes = route add a / http://h:1/\\nroute add b /b http://h:2/\nlog.routes.format = none\n";
    let (config, _) = file(text);
    assert_eq!(config.registry.log, registry::RoutesLog::Off);
    match config.registry.backend {
        registry::Backend::Static { routes, page } => assert_eq!((routes.lines().count(), page.as_str()), (2, "")),
        other => panic!("{other:?}"),
    }
    match flags(&["-registry.backend", "file", "-registry.file.path", "/r"]).0.registry.backend {
        registry::Backend::File { path, page } => assert_eq!((path.to_str(), page), (Some("/r"), None)),
        other => panic!("{other:?}"),
    }
    match flags(&["-registry.backend", "custom", "-registry.custom.host", "h:1"]).0.registry.backend {
        registry::Backend::Custom(custom) => {
            assert_eq!((custom.scheme.as_str(), custom.poll_interval.as_secs()), ("https", 10))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_table_of_options_is_whole() {
    let mut names = std::collections::BTreeSet::new();
    for spec in OPTIONS {
        for name in std::iter::once(&spec.key).chain(spec.aliases) {
            assert!(names.insert(*name), "{name} stands twice");
        }
        assert!(
            !spec.help.is_empty()
                && (!spec.help.ends_with('.') || spec.help.ends_with("..."))
                && !spec.since.is_empty(),
            "{}",
            spec.key
        );
        let value = spec.kind.read(spec.key, spec.default).unwrap_or_else(|e| panic!("{}: {e:?}", spec.key));
        assert!((spec.set)(&mut Values::default(), value), "{}: kind and field do not fit", spec.key);
    }
    assert_eq!(OPTIONS.len(), 127);
}
