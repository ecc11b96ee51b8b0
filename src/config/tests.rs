#![allow(clippy::unwrap_used)]

mod acme;
mod document;
mod parts;
mod refusals;
mod table;
mod traces;

use std::time::Duration;

use serde_json::Value;

use super::loader::load_on;
use super::options::{OPTIONS, Status, Values};
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
fn words_behind_the_flags_are_ignored_with_a_warning() {
    let (config, notes) = flags(&["-ui.title", "T", "word", "-ui.title", "other", "-no.such.flag"]);
    assert_eq!(config.admin.unwrap().title, "T");
    assert!(said(&notes, "word -ui.title other -no.such.flag"));
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
        "spans are named after the method and the path of the route",
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
