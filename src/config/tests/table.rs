use super::*;

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
    let documented: Vec<&str> = KEYS.split_whitespace().collect();
    for key in &documented {
        assert!(options::find(key).is_some(), "{key} is missing");
    }
    let ours = OPTIONS.iter().filter(|spec| spec.since == options::OURS).count();
    assert_eq!((documented.len(), OPTIONS.len() - ours), (121, 121));
}

/// `# key = value` and `key = value` lines of a sample.
fn lines_of(sample: &str) -> Vec<(&str, &str)> {
    let known = |key: &&str| options::find(key).is_some();
    sample
        .lines()
        .filter(|line| !line.starts_with("#  "))
        .filter_map(|line| line.trim_start_matches("# ").split_once('='))
        .map(|(key, value)| (key.trim_end(), value.trim_start()))
        .filter(|(key, _)| known(key))
        .collect()
}

#[test]
fn the_annotated_sample_has_every_key_with_its_default() {
    let sample = include_str!("../../../properties/fabio.properties");
    let lines = lines_of(sample);
    for spec in OPTIONS {
        let values: Vec<&str> = lines.iter().filter(|(key, _)| *key == spec.key).map(|(_, value)| *value).collect();
        let want = if spec.key == "ui.access" { "ro" } else { spec.default };
        assert_eq!(values, [want], "{}", spec.key);
    }
    assert_eq!(lines.len(), OPTIONS.len());

    let (config, notes) = file(sample);
    assert_eq!(config.admin.as_ref().unwrap().access, admin::Access::ReadOnly);
    assert!(!said(&notes, "unknown"), "{notes:?}");

    // The defaults written out mean what they mean when they are left out; only nothing may differ from unset.
    let written: String =
        lines.iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| format!("{key} = {value}\n")).collect();
    let (mut again, mut config) = (file(&written).0, config);
    // These say where values come from, which differs.
    again.effective.clear();
    config.effective.clear();
    assert_eq!(again, config);
}

#[test]
fn every_sample_loads() {
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("edge.pem");
    std::fs::write(&pem, "").unwrap();
    let pem = pem.to_str().unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/properties")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let input =
            Input { file: Some(&text), variables: vec![("EDGE_CERT", pem), ("EDGE_KEY", pem)], ..Input::default() };
        let (config, notes) = input.run();
        assert_eq!(config.admin.unwrap().access, admin::Access::ReadOnly, "{path:?}");
        assert!(notes.iter().all(|(_, note)| note.contains("proxy.trusted is not set")), "{path:?}: {notes:?}");
        match path.file_stem().unwrap().to_str().unwrap() {
            "edge" => assert_eq!((config.listeners.len(), config.listeners[1].proxy_trusted.len()), (3, 1)),
            "static" => match config.registry.backend {
                registry::Backend::Static { routes, page } => {
                    assert!(routes.lines().count() == 3 && page.starts_with("<!doctype"))
                }
                other => panic!("{other:?}"),
            },
            _ => {}
        }
        seen += 1;
    }
    assert!(seen >= 4, "{seen} samples");
}

#[test]
fn the_reference_names_every_key_once() {
    let page = reference();
    for spec in OPTIONS {
        assert_eq!(page.matches(&format!("\n| `{}` |", spec.key)).count(), 1, "{}", spec.key);
    }
    assert!(
        page.lines()
            .filter(|line| line.starts_with("| `"))
            .all(|line| line.replace("\\|", "").matches('|').count() == 6)
    );
    assert!(page.contains("Also understood: `registry.consul.pollInterval`."));
}

/// All that fabio 1.7.3 knows, the dummies left out.
const KEYS: &str = "
    insecure profile.mode profile.path runtime.gogc runtime.gomaxprocs glob.matching.disabled glob.cache.size
    proxy.addr proxy.cs proxy.auth proxy.localip proxy.strategy proxy.matcher proxy.noroutestatus proxy.shutdownwait
    proxy.deregistergraceperiod proxy.dialtimeout proxy.responseheadertimeout proxy.keepalivetimeout
    proxy.idleconntimeout proxy.maxconn proxy.flushinterval proxy.globalflushinterval proxy.readtimeout
    proxy.writetimeout proxy.header.clientip proxy.header.tls proxy.header.tls.value proxy.header.requestid
    proxy.header.sts.maxage proxy.header.sts.subdomains proxy.header.sts.preload proxy.gzip.contenttype
    proxy.grpcmaxrxmsgsize proxy.grpcmaxtxmsgsize proxy.grpcshutdowntimeout proxy.log.routes
    log.access.target log.access.format log.level log.routes.format
    metrics.target metrics.prefix metrics.names metrics.interval metrics.timeout metrics.retry metrics.graphite.addr
    metrics.statsd.addr metrics.dogstatsd.addr metrics.circonus.apikey metrics.circonus.apiapp metrics.circonus.apiurl
    metrics.circonus.brokerid metrics.circonus.checkid metrics.circonus.submissionurl metrics.prometheus.subsystem
    metrics.prometheus.path metrics.prometheus.buckets
    registry.backend registry.timeout registry.retry registry.static.routes registry.static.noroutehtml
    registry.file.path registry.file.noroutehtmlpath registry.consul.addr registry.consul.token
    registry.consul.namespace registry.consul.tls.keyfile registry.consul.tls.certfile registry.consul.tls.cafile
    registry.consul.tls.capath registry.consul.tls.insecureskipverify registry.consul.kvpath
    registry.consul.noroutehtmlpath registry.consul.tagprefix registry.consul.service.status
    registry.consul.checksRequired registry.consul.serviceMonitors registry.consul.pollinterval
    registry.consul.requireConsistent registry.consul.allowStale registry.consul.register.enabled
    registry.consul.register.addr registry.consul.register.name registry.consul.register.tags
    registry.consul.register.checkInterval registry.consul.register.checkTimeout
    registry.consul.register.checkTLSSkipVerify registry.consul.register.checkDeregisterCriticalServiceAfter
    registry.custom.host registry.custom.scheme registry.custom.path registry.custom.queryparams
    registry.custom.checkTLSSkipVerify registry.custom.timeout registry.custom.pollinterval registry.custom.noroutehtml
    ui.addr ui.access ui.path ui.color ui.title ui.routingtable.source.linkenabled ui.routingtable.source.newtab
    ui.routingtable.source.scheme ui.routingtable.source.host ui.routingtable.source.port
    bgp.enabled bgp.asn bgp.anycastaddresses bgp.routerid bgp.listenport bgp.listenaddresses bgp.nexthop bgp.peers
    bgp.enablegrpc bgp.grpclistenaddress bgp.gobgpdcfgfile aws.apigw.cert.cn";
