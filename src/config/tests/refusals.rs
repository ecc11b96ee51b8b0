use super::*;

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

/// Key, value and what must be said about it.
const REFUSED: &[(&str, &str, &str)] = &[
    ("proxy.header.requestid", "content-length", "says where a message goes or ends"),
    ("proxy.header.clientip", "Host", "says where a message goes or ends"),
    ("proxy.strategy", "random", "invalid proxy.strategy: random"),
    ("proxy.strategy", "hash=query", "invalid proxy.strategy: hash=query"),
    ("proxy.targettls", "ca=x", "an entry has no name"),
    ("proxy.targettls", "name=a;ca=/none", "a: ca: open /none"),
    ("proxy.targettls", "name=a;cert=/none", "a: cert needs key, and key needs cert"),
    ("proxy.targettls", "name=a;x=y", "a: unknown option \"x\""),
    ("proxy.targettls", "name=/etc;ca=x", "letters, digits"),
    ("proxy.unixsockets", "run/x", "is no absolute path"),
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
    ("registry.consul.datacenters", "*", "name them, as in east,west"),
    ("registry.consul.datacenters", "east,a.b", "\"a.b\" is no name of a datacenter"),
    ("registry.consul.datacenters", "east,west,EAST", "east is named twice"),
    ("proxy.gzip.contenttype", "^.*+json$", "invalid expression for content types: error parsing regexp"),
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
    ("ui.addr", ":1,:2", "ui.addr must contain only one listener"),
    ("ui.addr", ",", "ui.addr must contain only one listener"),
    ("ui.addr", ":x y", "need listening host:port"),
    ("proxy.addr", ":80,:80;proto=tcp", ":80 is the address of another listener as well"),
    ("proxy.addr", ":80-90;proto=tcp,:85", ":85 is the address of another listener as well"),
    ("proxy.addr", ":7000-70000;proto=tcp", "a port is at most 65535"),
    ("proxy.addr", ":9998", ":9998 is the address of ui.addr as well"),
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
    ("metrics.prefix", "{{nope", "metrics: invalid Prefix template: unclosed action"),
    ("metrics.prometheus.path", "metrics", "must begin with /"),
    ("metrics.prometheus.buckets", "1,1", "must increase"),
    ("registry.backend", "zookeeper", "Unknown registry backend zookeeper"),
    ("registry.consul.addr", "", "no address of a Consul agent"),
    ("registry.consul.addr", "ftp://x", "no address of a Consul agent"),
    ("registry.consul.addr", "localhost:99999", "no address of a Consul agent"),
    ("registry.consul.addr", "localhost:", "no address of a Consul agent"),
    ("runtime.gomaxprocs", "many", "not a number"),
    ("registry.consul.addr", "unix://run/consul", "whole path"),
    ("registry.consul.register.addr", "{{ nope }}", "failed to consul service address: unable to parse template"),
    ("registry.consul.register.addr", "", "write host:port"),
    ("profile.mode", "x", "invalid profile.mode: x"),
    ("bgp.peers", "address=1.2.3.4;port=x", "strconv.ParseUint: parsing \"x\": invalid syntax"),
    ("bgp.peers", "address=1.2.3.4;asn=-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
    ("bgp.peers", "address=1.2.3.4;multihop=x", "strconv.ParseBool: parsing \"x\": invalid syntax"),
];

/// Key, value and what must be said about it: fabio takes these, so they are no reason not to start.
const DOUBTED: &[(&str, &str, &str)] = &[
    ("proxy.addr", "", "there is no listener"),
    ("proxy.addr", ":80;rt=-1s", "rt: a negative time means the same as 0s"),
    ("proxy.addr", ":80;refresh=1s", "refresh changes nothing without proto=tcp-dynamic"),
    ("proxy.addr", ":80;pxytrusted=10.0.0.0/8", "pxytrusted changes nothing without pxyproto=true"),
    ("proxy.addr", ":80;tlsmin=tls12", "tlsmin changes nothing without cs="),
    ("proxy.cs", "cs=a;type=path;cert=/none", "source a: no listener refers to it"),
    ("proxy.cs", "cs=a;type=path;cert=/x,cs=a;type=path;cert=/y", "source a stands there twice"),
    ("proxy.auth", "name=a;type=basic;file=/x,name=a;type=basic;file=/y", "scheme a stands there twice"),
    ("proxy.shutdownwait", "-5s", "a negative time means the same as 0s"),
    ("proxy.localip", "foo", "no IP address"),
    ("log.access.format", "$nothing", "not used as long as log.access.target is empty"),
    ("metrics.statsd.addr", "foo", "write host:port"),
    ("metrics.target", "prometheus", "no listener shows the series"),
    ("registry.consul.tls.cafile", "/none", "not used, since registry.consul.addr is not https"),
    ("ui.color", "rainbow", "no colour"),
    ("ui.routingtable.source.port", "99999", "no port"),
    ("ui.hosts", "http://a", "is no host name"),
    ("registry.consul.service.status", "passing,good", "\"good\" is no state of a check in Consul"),
    ("registry.consul.tagprefix", "", "every tag of every service"),
    ("registry.consul.kvpath", "/", "all keys in Consul"),
    ("registry.consul.register.checkInterval", "0s", "nothing is registered"),
];

#[test]
fn what_fabio_takes_but_nobody_means_is_a_warning() {
    for (key, value, want) in DOUBTED {
        let variable = format!("FABIO_{}", key.replace('.', "_"));
        let input = Input { variables: vec![(&variable, value)], ..Input::default() };
        let Ok(Outcome::Run { warnings, .. }) = input.load() else { panic!("{key}={value} is refused") };
        let sentence = format!("(environment variable {variable}): ");
        let said = |text: &String| text.starts_with(key) && text.contains(&sentence) && text.contains(want);
        assert!(
            warnings.iter().any(|(level, text)| *level == Level::Warn && said(text)),
            "{key}={value}: {warnings:?}"
        );
    }
    // Negative means something of its own here, and more threads than Go has are as many as it has.
    for (key, value) in
        [("PROXY_KEEPALIVETIMEOUT", "-1s"), ("RUNTIME_GOMAXPROCS", "99999"), ("UI_COLOR", "red darken-2")]
    {
        let input = Input { variables: vec![(key, value)], ..Input::default() };
        let Ok(Outcome::Run { warnings, .. }) = input.load() else { panic!("{key}={value} is refused") };
        assert!(!warnings.iter().any(|(_, text)| text.contains(key)), "{key}={value}: {warnings:?}");
    }
}

#[test]
fn a_file_that_says_a_thing_twice_or_leaves_it_open_is_warned_about() {
    let text = "proxy.strategy = rr\nui.title = ${NO_SUCH}\nproxy.strategy = rnd\nui.color = ${NO_SUCH}red${TITLE}\n";
    let input = Input { variables: vec![("TITLE", "")], file: Some(text), ..Input::default() };
    let Ok(Outcome::Run { warnings, .. }) = input.load() else { panic!("refused") };
    for want in [
        ":3): also stands in line 1; only the last one counts",
        ":2): the value is empty, since nobody defines ${NO_SUCH}; set it",
        ":4): a part of the value is empty: nobody defines ${NO_SUCH}; set it",
    ] {
        assert!(warnings.iter().any(|(_, text)| text.contains(want)), "{want}: {warnings:?}");
    }
}

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
        "(flag -proxy.strategy): invalid proxy.strategy: x; write rnd, rr, p2c",
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

/// What would be ignored in silence is refused as long as it is not built.
#[test]
fn what_is_not_built_refuses_to_start() {
    let asks = |key: &str| match key {
        "proxy.auth" => "name=a;type=basic;file=x",
        "proxy.gzip.contenttype" => "^text/",
        _ => "true",
    };
    for spec in OPTIONS.iter().filter(|spec| matches!(spec.status, Status::Pending(_))) {
        let failure = refused(&[&format!("-{}={}", spec.key, asks(spec.key))]);
        assert!(failure.message.contains("not built yet") && failure.code == 1, "{}", failure.message);
        flags(&[&format!("-{}={}", spec.key, spec.default)]);
    }
    for proto in pending::PROTOS.iter().filter(|proto| **proto != "grpcs") {
        let failure = refused(&["-proxy.addr", &format!(":1;proto={proto}")]);
        assert!(failure.message.contains(&format!("proto={proto} is not built yet")), "{}", failure.message);
        // The admin listener speaks HTTP whatever is written there.
        flags(&["-ui.addr", &format!(":1;proto={proto}")]);
    }
    for kind in pending::CERT_TYPES {
        let cs = format!("cs=a;type={kind};cert=x");
        let failure = refused(&["-proxy.addr", ":1;cs=a", "-proxy.cs", &cs]);
        assert!(failure.message.contains(&format!("type={kind} is not built yet")), "{}", failure.message);
        flags(&["-proxy.cs", &cs]);
    }
    for target in pending::METRICS_TARGETS {
        let failure = refused(&["-metrics.target", target]);
        assert!(failure.message.contains(&format!("{target} is not built yet")), "{}", failure.message);
    }
}
