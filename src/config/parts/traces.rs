//! `tracing.*`: where spans go, and of which requests. What is left open here may stand in the variables that everything
//! which speaks to an OpenTelemetry collector knows.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::super::duration;
use super::super::environment::Environment;
use super::super::settings::Settings;
use super::Machine;
use crate::traces::{Config, Formats, Parents, Ratio};
use crate::{access_log, fetch};

/// `None`: nothing is traced, or something is wrong with it.
pub(super) fn traces(settings: &mut Settings, environment: &Environment, machine: &Machine) -> Option<Config> {
    let nobody = Environment::default();
    // Variables that are meant for others do not matter as long as nothing is traced.
    let environment = if settings.values.tracing_otlp_endpoint.is_empty() { &nobody } else { environment };
    let sample = sample(settings, environment);
    let formats = formats(settings, environment);
    let headers = headers(settings, environment);
    let resource = resource(settings, environment, machine);
    let endpoint = endpoint(settings, environment);
    let values = settings.values.clone();
    if values.tracing_otlp_endpoint.is_empty() {
        let idle = settings.given().find(|(spec, given)| spec.key.starts_with("tracing.") && !given.text.is_empty());
        if let Some((spec, _)) = idle {
            settings.warn(spec.key, "nothing is traced as long as tracing.otlp.endpoint is empty");
        }
        return None;
    }
    if values.tracing_parents == "trusted" && !settings.explicit("proxy.trusted") {
        settings
            .warn("tracing.parents", "proxy.trusted is not set, so everybody is; write none, or list networks there");
    }
    for (key, time) in
        [("tracing.otlp.timeout", values.tracing_otlp_timeout), ("tracing.otlp.interval", values.tracing_otlp_interval)]
    {
        if time <= 0 {
            settings.mistake(key, "must be above 0");
        }
    }
    let path = |text: &str| (!text.is_empty()).then(|| text.into());
    let tls = fetch::Tls {
        cert_file: path(&values.tracing_otlp_tls_certfile),
        key_file: path(&values.tracing_otlp_tls_keyfile),
        ca_file: path(&values.tracing_otlp_tls_cafile),
        ..fetch::Tls::default()
    };
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        settings.mistake("tracing.otlp.tls.certfile", "goes with tracing.otlp.tls.keyfile; give both, or none");
    }
    let masked = values.log_access_masquery.iter().map(String::as_str).chain(SIGNATURES.iter().copied());
    Some(Config {
        endpoint: endpoint?,
        headers: headers?,
        tls,
        timeout: duration::positive(values.tracing_otlp_timeout),
        interval: duration::positive(values.tracing_otlp_interval).max(Duration::from_millis(1)),
        batch: usize::try_from(values.tracing_otlp_batch).unwrap_or(1),
        resource: resource?,
        sample: sample?,
        formats: formats?,
        parents: match values.tracing_parents.as_str() {
            "trusted" => Parents::Trusted,
            "none" => Parents::Nobody,
            _ => Parents::Everybody,
        },
        mask: access_log::Mask::new(masked),
    })
}

fn endpoint(settings: &mut Settings, environment: &Environment) -> Option<String> {
    let key = "tracing.otlp.endpoint";
    let given = settings.values.tracing_otlp_endpoint.clone();
    if given.is_empty() {
        return None;
    }
    // Only of the first one the path is part of the value.
    let exact = environment.filled("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let (text, whole) = match (given.as_str(), exact, environment.filled("OTEL_EXPORTER_OTLP_ENDPOINT")) {
        ("env", Some(exact), _) => (exact.to_owned(), true),
        ("env", None, Some(base)) => (format!("{}{PATH}", base.trim_end_matches('/')), true),
        ("env", None, None) => {
            let line = "neither OTEL_EXPORTER_OTLP_TRACES_ENDPOINT nor OTEL_EXPORTER_OTLP_ENDPOINT is set; set one, or write http://HOST:4318";
            settings.mistake(key, line);
            return None;
        }
        _ => (given, false),
    };
    let uri = text.parse::<http::Uri>().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
    let Some(uri) = uri else {
        let hint = if text.contains("://") { "" } else { ", with its scheme" };
        settings.mistake(
            key,
            &format!("{text:?} is no URL of a collector; write http://HOST:4318 or https://HOST/v1/traces{hint}"),
        );
        return None;
    };
    if uri.port_u16() == Some(4317) {
        settings.warn(key, "4317 is the port for OTLP over gRPC, which is not spoken here; collectors take OTLP over HTTP at port 4318");
    }
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    Some(if bare && !whole { format!("{}{PATH}", text.trim_end_matches('/')) } else { text })
}

/// `name=value,name=value`, values perhaps with percent signs, as in the variable.
fn headers(settings: &mut Settings, environment: &Environment) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let key = "tracing.otlp.headers";
    let variables = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let text = or_variable(settings, key, &settings.values.tracing_otlp_headers, environment, &variables);
    let mut headers = Vec::new();
    for pair in pairs(&text) {
        let header = pair.and_then(|(name, value)| {
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        });
        let Some(header) = header else {
            settings.mistake(key, "a part is no header; write name=value,name=value");
            return None;
        };
        headers.push(header);
    }
    Some(headers)
}

/// Who we are. What is said later replaces what stands before.
fn resource(settings: &mut Settings, environment: &Environment, machine: &Machine) -> Option<Vec<(String, String)>> {
    let key = "tracing.resource";
    let more =
        or_variable(settings, key, &settings.values.tracing_resource, environment, &["OTEL_RESOURCE_ATTRIBUTES"]);
    let mut all = vec![
        ("service.name".to_owned(), settings.values.tracing_service.clone()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), format!("{}:{}", machine.hostname, std::process::id())),
        ("host.name".to_owned(), machine.hostname.clone()),
        ("process.pid".to_owned(), std::process::id().to_string()),
    ];
    let mut put = |name: String, value: String| match all.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 = value,
        None => all.push((name, value)),
    };
    for pair in pairs(&more) {
        let Some((name, value)) = pair else {
            settings.mistake(key, "a part is no pair; write name=value,name=value");
            return None;
        };
        put(name, value);
    }
    // More particular than the list.
    if settings.explicit("tracing.service") {
        put("service.name".to_owned(), settings.values.tracing_service.clone());
    } else if let Some(name) = environment.filled("OTEL_SERVICE_NAME") {
        put("service.name".to_owned(), name.to_owned());
    }
    Some(all)
}

fn sample(settings: &mut Settings, environment: &Environment) -> Option<Ratio> {
    let key = "tracing.sample";
    let mut text = settings.values.tracing_sample.trim().to_owned();
    if !settings.explicit(key)
        && let Some(sampler) = environment.filled("OTEL_TRACES_SAMPLER")
    {
        text = match sampler {
            "parentbased_always_on" => "1".to_owned(),
            "parentbased_always_off" => "0".to_owned(),
            "parentbased_traceidratio" => environment.filled("OTEL_TRACES_SAMPLER_ARG").unwrap_or("1").to_owned(),
            other => {
                let line = format!(
                    "OTEL_TRACES_SAMPLER={other} is not known here, where the sender of a request decides first; write tracing.sample = 0 to 1"
                );
                settings.warn(key, &line);
                text
            }
        };
    }
    let ratio = text.parse().ok().and_then(Ratio::new);
    if ratio.is_none() {
        settings.mistake(key, "no part of all; write a number from 0 to 1, as in 0.1");
    }
    ratio
}

fn formats(settings: &mut Settings, environment: &Environment) -> Option<Formats> {
    let key = "tracing.propagate";
    let mut words: Vec<String> = settings.values.tracing_propagate.clone();
    if !settings.explicit(key)
        && let Some(list) = environment.filled("OTEL_PROPAGATORS")
    {
        let known = |word: &str| match word.trim() {
            "tracecontext" => Some("w3c".to_owned()),
            word @ ("b3" | "b3multi") => Some(word.to_owned()),
            // Baggage goes through as it is, and of others nothing is known.
            _ => None,
        };
        words = list.split(',').filter_map(known).collect();
    }
    match Formats::new(words.iter().map(String::as_str)) {
        Ok(formats) => Some(formats),
        Err(unknown) => {
            settings.mistake(key, &format!("{:?} is not known; write w3c, b3, b3multi, or several of them", unknown.0));
            None
        }
    }
}

/// The value of an option, or of the first variable that has one if nobody has given the option.
fn or_variable(settings: &Settings, key: &str, value: &str, environment: &Environment, variables: &[&str]) -> String {
    let variable = variables.iter().find_map(|name| environment.filled(name));
    variable.filter(|_| !settings.explicit(key)).unwrap_or(value).to_owned()
}

/// `None` for what is no pair.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let decoded = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), decoded.into_owned()))
    })
}

const PATH: &str = "/v1/traces";
/// Parameters of URLs that let their holder in (OpenTelemetry's conventions for `url.query`).
const SIGNATURES: &[&str] =
    &["AWSAccessKeyId", "Signature", "sig", "X-Goog-Signature", "X-Amz-Signature", "X-Amz-Credential"];
