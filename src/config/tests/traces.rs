//! `tracing.*`, and the variables that stand for it.

use super::*;
use crate::traces::{Formats, Parents, Ratio};

const ON: &str = "-tracing.otlp.endpoint=http://c:4318";

#[test]
fn nothing_is_traced_unless_there_is_an_endpoint() {
    let variables = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "nonsense"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "nonsense"),
    ];
    let (config, notes) = Input { variables, ..Input::default() }.run();
    assert_eq!(config.traces, None);
    assert!(!said(&notes, "OTEL") && !said(&notes, "tracing"), "{notes:?}");
    let (config, notes) = flags(&["-tracing.sample=0.5"]);
    assert_eq!(config.traces, None);
    assert!(said(&notes, "nothing is traced as long as tracing.otlp.endpoint is empty"), "{notes:?}");
}

#[test]
fn endpoints() {
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/x/");
    let exact = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://exact/");
    for (given, variables, want) in [
        ("http://c:4318", vec![base], "http://c:4318/v1/traces"),
        ("http://c:4318/", vec![], "http://c:4318/v1/traces"),
        ("https://c/own/path", vec![], "https://c/own/path"),
        ("https://c/?key=1", vec![], "https://c/?key=1"),
        ("http://[::1]:4318", vec![], "http://[::1]:4318/v1/traces"),
        ("env", vec![base], "http://base:4318/x/v1/traces"),
        ("env", vec![base, exact], "https://exact/"),
    ] {
        let given = format!("-tracing.otlp.endpoint={given}");
        let (config, notes) = Input { arguments: vec![&given], variables, ..Input::default() }.run();
        assert_eq!(config.traces.unwrap().endpoint, want, "{given}");
        assert!(!said(&notes, "tracing"), "{notes:?}");
    }
    let (_, notes) = flags(&["-tracing.otlp.endpoint=http://c:4317"]);
    assert!(said(&notes, "OTLP over gRPC"), "{notes:?}");
}

#[test]
fn everything() {
    let (config, _) = flags(&[
        "-tracing.otlp.endpoint=https://c",
        "-tracing.otlp.headers=Authorization=Bearer%20s3cret%2C,x=y=z",
        "-tracing.otlp.timeout=1s",
        "-tracing.otlp.interval=2s",
        "-tracing.otlp.batch=7",
        "-tracing.otlp.tls.cafile=/ca",
        "-tracing.service=edge",
        "-tracing.resource=service.name=other,host.name=h,a=b",
        "-tracing.sample=0.25",
        "-tracing.propagate=b3,w3c",
        "-tracing.parents=trusted",
        "-proxy.trusted=10.0.0.0/8",
        "-log.access.masquery=token",
    ]);
    let traces = config.traces.unwrap();
    let headers: Vec<_> = traces.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("authorization", "Bearer s3cret,"), ("x", "y=z")]);
    assert!(!format!("{traces:?}").contains("s3cret") && !config.json.contains("s3cret"));
    assert!(!format!("{:?}", config.effective).contains("s3cret"));
    assert_eq!((traces.timeout.as_secs(), traces.interval.as_secs(), traces.batch), (1, 2, 7));
    assert_eq!(traces.tls.ca_file.as_deref(), Some(std::path::Path::new("/ca")));
    let resource = |key: &str| traces.resource.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    assert_eq!((resource("service.name"), resource("host.name"), resource("a")), (Some("edge"), Some("h"), Some("b")));
    assert_eq!(traces.sample, Ratio::new(0.25).unwrap());
    assert_eq!((traces.formats, traces.parents), (Formats::new(["b3", "w3c"]).unwrap(), Parents::Trusted));
    assert_eq!(traces.mask.query("TOKEN=a&X-Amz-Signature=b&c=d"), "TOKEN=***&X-Amz-Signature=***&c=d");
}

#[test]
fn variables_stand_for_what_is_not_given() {
    let variables = vec![
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
        ("OTEL_SERVICE_NAME", "named"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=less,k=v%20w"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_PROPAGATORS", "tracecontext,baggage, b3multi"),
    ];
    let traces = |arguments: Vec<&str>, variables: &[(&'static str, &'static str)]| {
        let (config, notes) = Input { arguments, variables: variables.to_vec(), ..Input::default() }.run();
        (config.traces.unwrap(), notes)
    };
    let of = |traces: &crate::traces::Config, key: &str| {
        traces.resource.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let (all, _) = traces(vec![ON], &variables);
    assert_eq!((all.headers.len(), all.sample), (1, Ratio::new(0.5).unwrap()));
    assert_eq!(all.formats, Formats::new(["w3c", "b3multi"]).unwrap());
    assert_eq!((of(&all, "service.name"), of(&all, "k")), (Some("named".into()), Some("v w".into())));
    let own = vec![
        ON,
        "-tracing.otlp.headers=",
        "-tracing.service=own",
        "-tracing.resource=k=own",
        "-tracing.sample=1",
        "-tracing.propagate=w3c",
    ];
    let (own, _) = traces(own, &variables);
    assert_eq!((own.headers.len(), own.sample, own.formats), (0, Ratio::ALL, Formats::default()));
    assert_eq!((of(&own, "service.name"), of(&own, "k")), (Some("own".into()), Some("own".into())));
    let (none, _) = traces(vec![ON], &[]);
    assert_eq!((none.sample, none.formats, none.parents), (Ratio::ALL, Formats::default(), Parents::Everybody));
    assert_eq!(of(&none, "service.name"), Some("ferrio".into()));
    let (_, notes) = traces(vec![ON, "-tracing.parents=trusted"], &[]);
    assert!(said(&notes, "proxy.trusted is not set, so everybody is"), "{notes:?}");
    let (odd, notes) = traces(vec![ON], &[("OTEL_TRACES_SAMPLER", "jaeger_remote")]);
    assert_eq!(odd.sample, Ratio::ALL);
    assert!(said(&notes, "OTEL_TRACES_SAMPLER=jaeger_remote is not known here"), "{notes:?}");
}

#[test]
fn refusals() {
    for (arguments, reason) in [
        (&["-tracing.otlp.endpoint=c:4318"][..], "write http://HOST:4318"),
        (&["-tracing.otlp.endpoint=ftp://c"], "no URL of a collector"),
        (&["-tracing.otlp.endpoint=http://"], "no URL of a collector"),
        (&["-tracing.otlp.endpoint=env"], "neither OTEL_EXPORTER_OTLP_TRACES_ENDPOINT nor"),
        (&[ON, "-tracing.sample=2"], "write a number from 0 to 1"),
        (&[ON, "-tracing.sample=ten"], "write a number from 0 to 1"),
        (&[ON, "-tracing.propagate=jaeger"], "\"jaeger\" is not known; write w3c, b3, b3multi"),
        (&[ON, "-tracing.otlp.headers=s3cret"], "write name=value,name=value"),
        (&[ON, "-tracing.otlp.headers=a b=s3cret"], "write name=value,name=value"),
        (&[ON, "-tracing.otlp.headers=a=s3cret%0d%0ax"], "write name=value,name=value"),
        (&[ON, "-tracing.resource=what"], "a part is no pair"),
        (&[ON, "-tracing.otlp.interval=0s"], "must be above 0"),
        (&[ON, "-tracing.otlp.timeout=0s"], "must be above 0"),
        (&[ON, "-tracing.otlp.tls.certfile=/c"], "goes with tracing.otlp.tls.keyfile"),
        (&[ON, "-tracing.parents=some"], "write any, trusted or none"),
    ] {
        let message = refused(arguments).message;
        assert!(message.contains(reason), "{arguments:?}: {message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
}

/// Those that a properties file of fabio 1.6 may have: it starts, and is told what to write instead.
#[test]
fn keys_of_fabios_own_tracing() {
    let text = "tracing.TracingEnabled = true\ntracing.CollectorType = http\ntracing.ConnectString = http://localhost:9411/api/v1/spans\n\
        tracing.ServiceName = Fabiolb\ntracing.SpanName = x\ntracing.SpanHost = localhost:9998\ntracing.Topic = t\n\
        tracing.SamplerRate = -1\ntracing.TraceID128Bit = true\ntracing.smaple = 1\n";
    let (config, notes) = file(text);
    assert_eq!(config.traces, None);
    for want in [
        "tracing.TracingEnabled (",
        "set tracing.otlp.endpoint = http://HOST:4318",
        "an OpenTelemetry collector with a zipkin exporter",
        "write tracing.service",
        "write tracing.sample",
        "did you mean tracing.sample?",
    ] {
        assert!(said(&notes, want), "{want}: {notes:?}");
    }
}
