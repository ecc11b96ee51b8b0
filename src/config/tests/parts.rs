use super::*;

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
    assert!(config.cert_sources[0].kind == cert::Kind::File { cert: pem.into(), key: pem.into(), client_ca: None });
    assert_eq!(config.cert_sources[0].refresh, Duration::ZERO);
    let registry::Backend::Consul(consul) = config.registry.backend else { panic!() };
    assert_eq!((consul.announce.check_scheme.as_str(), consul.announce.addr.as_str()), ("https", ":9998"));

    let missing = refused(&["-proxy.addr", ":1;cs=b", "-proxy.cs", &cs]).message;
    assert!(missing.contains(&format!("source b: key: open {pem}.key: no such file or directory")), "{missing}");
    let old = refused(&["-proxy.addr", ":1;cs=a;tlsmax=TLS11", "-proxy.cs", &cs]).message;
    assert!(old.contains("tlsmax=tls11 leave no TLS version"), "{old}");
    let (_, notes) = flags(&[
        "-proxy.addr",
        ":1;cs=a;tlsmin=tls10;tlsciphers=\"TLS_RSA_WITH_RC4_128_SHA,0xc02f\"",
        "-proxy.cs",
        &cs,
    ]);
    assert!(
        said(&notes, "tlsmin=tls10: versions below TLS 1.2 are not spoken")
            && said(&notes, "left out: TLS_RSA_WITH_RC4_128_SHA"),
        "{notes:?}"
    );
    let none = ":1;cs=a;tlsciphers=\"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA\"";
    let none = refused(&["-proxy.addr", none, "-proxy.cs", &cs]).message;
    assert!(none.contains("leaves no cipher suite that is spoken; leave tlsciphers out"), "{none}");
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
        let arguments = [
            format!("-registry.consul.requireConsistent={consistent}"),
            format!("-registry.consul.allowStale={stale}"),
        ];
        let input = Input { arguments: arguments.iter().map(String::as_str).collect(), ..Input::default() };
        assert_eq!(client(&input).consistency, want);
    }
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
