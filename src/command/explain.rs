//! `ferrio explain`: where a URL goes and why, or what keeps a service from being routed.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::columns::{count, plain};
use super::remote::{self, Remote};
use super::routes::{self, Row, share};
use super::{Answer, Failure, consul, rejects, wait_for};
use crate::consul::Client;
use crate::proxy::http::Explainer;
use crate::registry::{Backend, ConsulConfig};
use crate::route::{Candidate, Explanation, Outcome, Question};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    let url = arguments.next();
    arguments.done()?;
    match (url, arguments.value("service")) {
        (Some(url), None) => of_url(arguments, &url),
        (None, Some(service)) => of_service(arguments, service),
        _ => Err(Failure::Usage("what? Write a URL, as in example.com/path, or --service NAME".into())),
    }
}

fn of_url(arguments: &Arguments, url: &str) -> Result<Answer, Failure> {
    let question = question(arguments, url)?;
    let explanation: Explanation = wait_for(async {
        if arguments.has("consul") {
            let config = consul::whole_config(arguments)?;
            let seen = consul::look(config.registry).await?;
            return Ok(Explainer::new(config.proxy, Vec::new()).explain(&seen.table, &question));
        }
        let remote = Remote::of(arguments)?;
        let mut path = format!("/api/explain?url={}&method={}", encode(url), question.method);
        for name in ["client", "header"] {
            for value in arguments.values(name) {
                path.push_str(&format!("&{name}={}", encode(&value)));
            }
        }
        let answer = remote.text(&path).await?;
        remote::parse(remote.base(), "/api/explain", &answer).and_then(|value| {
            serde_json::from_value(value)
                .map_err(|error| Failure::Unknown(format!("{}/api/explain has another form: {error}", remote.base())))
        })
    })?;
    let good = matches!(explanation.outcome, Outcome::Forward | Outcome::Redirect);
    if arguments.has("json") {
        let value = serde_json::to_value(&explanation).unwrap_or_default();
        return Ok(Answer { text: format!("{value:#}\n"), good });
    }
    Ok(Answer { text: text(&explanation), good })
}

/// Everything that has a special meaning in a query.
fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The URL, and what the flags say about who asks for it and how.
fn question(arguments: &Arguments, url: &str) -> Result<Question, Failure> {
    let mut question = Question::parse(url).map_err(Failure::Usage)?;
    if let Some(client) = arguments.value("client") {
        let client = client.trim().parse();
        question.peer = Some(client.map_err(|_| Failure::Usage("--client is no IP address; write 10.0.0.7".into()))?);
    }
    if let Some(method) = arguments.value("method") {
        question.method = method.parse().map_err(|_| Failure::Usage(format!("{method:?} is no method")))?;
    }
    for header in arguments.values("header") {
        let wrong = || Failure::Usage(format!("--header {header:?} has no colon; write 'Name: value'"));
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        question.header(name, value);
    }
    Ok(question)
}

fn text(explanation: &Explanation) -> String {
    let mut out = format!("{}\n", plain(&explanation.summary));
    for (at, candidate) in explanation.candidates.iter().enumerate() {
        let mark = if explanation.chosen == Some(at) { "taken" } else { "fits" };
        out.push_str(&format!("\n{mark}: {}\n", route(candidate)));
        out.push_str(&format!("  because {}\n", plain(&candidate.reason)));
        if explanation.chosen == Some(at) {
            push_targets(&mut out, candidate);
        }
    }
    if !explanation.close.is_empty() {
        out.push_str("\nThese come close:\n");
    }
    for candidate in &explanation.close {
        let services: Vec<&str> = candidate.targets.iter().map(|target| target.service.as_str()).collect();
        let service = services.first().map(|service| format!(" ({service})")).unwrap_or_default();
        out.push_str(&format!("  {}{}: {}\n", route(candidate), plain(&service), plain(&candidate.reason)));
    }
    if explanation.outcome == Outcome::NoRoute {
        out.push_str("\nferrio rejects shows tags that could not be used; ferrio explain --service NAME tells about a service.\n");
    }
    out
}

fn route(candidate: &Candidate) -> String {
    let class = if candidate.class == "http" { String::new() } else { format!("{} ", candidate.class) };
    plain(&format!("{class}{}{}", candidate.host, candidate.path))
}

fn push_targets(out: &mut String, candidate: &Candidate) {
    for target in &candidate.targets {
        let options: Vec<String> = target
            .options
            .iter()
            .map(|(key, value)| if value.is_empty() { key.clone() } else { format!("{key}={value}") })
            .collect();
        let options = if options.is_empty() { String::new() } else { format!(", {}", options.join(" ")) };
        let line = format!("{} {} of {}{options}", share(target.share), target.destination, target.service);
        out.push_str(&format!("  {}\n", plain(&line)));
        let asked = target.forward.iter().map(|path| format!("asks for {path}"));
        let sent = target.location.iter().map(|location| format!("redirects to {location}"));
        for note in asked.chain(sent).chain(target.notes.iter().cloned()) {
            out.push_str(&format!("      {}\n", plain(&note)));
        }
    }
}

/// One instance of a service, and what becomes of it.
struct Instance {
    id: String,
    /// `None`: that of the agent.
    datacenter: Option<String>,
    addr: String,
    /// Why its checks keep it out.
    unhealthy: Option<String>,
    /// Tags that are routes.
    tags: Vec<String>,
    /// Tags that look as if they were meant to be.
    nearly: Vec<String>,
}

fn of_service(arguments: &Arguments, name: &str) -> Result<Answer, Failure> {
    let (instances, silent, rows, rejects, prefix) = wait_for(async {
        let config = consul_of(arguments).await?;
        let (instances, silent) = instances(&config, name).await?;
        let mut rows = routes::both(arguments).await?.rows;
        rows.retain(|row| row.service == name);
        let mut rejects = rejects::rows(arguments).await?;
        rejects.retain(|reject| reject.service.as_deref() == Some(name));
        Ok((instances, silent, rows, rejects, config.tag_prefix))
    })?;
    let good = !rows.is_empty();
    let summary = summary(name, &instances, &rows, rejects.len(), &prefix);
    if arguments.has("json") {
        let instances: Vec<Value> = instances
            .iter()
            .map(|i| json!({ "id": i.id, "datacenter": i.datacenter, "addr": i.addr, "healthy": i.unhealthy.is_none(), "why": i.unhealthy, "tags": i.tags, "nearly": i.nearly }))
            .collect();
        let all = json!({
            "service": name, "summary": summary, "instances": instances, "silent": silent,
            "routes": rows.iter().map(Row::json).collect::<Vec<_>>(),
            "rejects": rejects.iter().map(rejects::Row::json).collect::<Vec<_>>(),
        });
        return Ok(Answer { text: format!("{all:#}\n"), good });
    }
    let mut out = format!("{}\n", plain(&summary));
    for instance in &instances {
        out.push_str(&format!("\ninstance {} at {}\n", plain(&instance.id), plain(&instance.addr)));
        if let Some(datacenter) = &instance.datacenter {
            out.push_str(&format!("  of the datacenter {datacenter}, asked while nobody before it can be\n"));
        }
        match &instance.unhealthy {
            None => out.push_str("  gets traffic: its checks are good\n"),
            Some(why) => out.push_str(&format!("  gets no traffic: {}\n", plain(why))),
        }
        for tag in &instance.tags {
            out.push_str(&format!("  tag {}\n", plain(tag)));
        }
        for tag in &instance.nearly {
            out.push_str(&format!("  tag {}: no route, since it does not begin with {}\n", plain(tag), plain(&prefix)));
        }
    }
    for line in &silent {
        out.push_str(&format!("\n{}\n", plain(line)));
    }
    if !rejects.is_empty() {
        out.push_str("\nCould not be used:\n");
        out.push_str(&rejects::text(&rejects));
    }
    if good {
        out.push_str("\nRoutes:\n");
    }
    for row in &rows {
        let line = format!("  {} {} {} {}", row.src(), row.dst, share(row.weight), row.opts);
        out.push_str(&format!("{}\n", plain(line.trim_end())));
    }
    Ok(Answer { text: out, good })
}

fn summary(name: &str, instances: &[Instance], rows: &[Row], rejects: usize, prefix: &str) -> String {
    let healthy = instances.iter().filter(|instance| instance.unhealthy.is_none()).count();
    if !rows.is_empty() {
        return format!(
            "Service {name} is routed: {}, {healthy} of {} get traffic.",
            count(rows.len(), "target"),
            count(instances.len(), "instance")
        );
    }
    let why = if instances.is_empty() {
        "Consul knows no instance of it; is it registered, and is the name right, letter by letter?".to_owned()
    } else if instances.iter().all(|instance| instance.tags.is_empty()) {
        format!("no instance has a tag that begins with {prefix}")
    } else if healthy == 0 {
        "the checks of all its instances keep them out".to_owned()
    } else if rejects > 0 {
        "its tags could not be used".to_owned()
    } else {
        "its instances with a route tag are not healthy, or an override (route del, route weight) takes its routes away"
            .to_owned()
    };
    format!("Service {name} is not routed: {why}.")
}

/// The Consul of `--consul`, or the one that the running ferrio says it reads.
async fn consul_of(arguments: &Arguments) -> Result<ConsulConfig, Failure> {
    let mut flags = vec!["-registry.backend=consul".to_owned()];
    match arguments.value("consul") {
        Some(addr) => flags.push(format!("-registry.consul.addr={addr}")),
        None => {
            let all = Remote::of(arguments)?.json("/api/config").await?;
            let theirs = &all["Registry"]["Consul"];
            let text = |key: &str| theirs[key].as_str().unwrap_or_default();
            let states: Vec<&str> =
                theirs["ServiceStatus"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if all["Registry"]["Backend"].as_str() != Some("consul") {
                return Err(Failure::Unknown("its routes do not come from Consul; ferrio routes shows them".into()));
            }
            let addr = text("Addr");
            let addr = if addr.starts_with("unix:") { addr.to_owned() } else { format!("{}://{addr}", text("Scheme")) };
            flags.extend([
                format!("-registry.consul.addr={addr}"),
                format!("-registry.consul.tagprefix={}", text("TagPrefix")),
                format!("-registry.consul.service.status={}", states.join(",")),
                format!("-registry.consul.checksRequired={}", text("ChecksRequired")),
            ]);
            let status = Remote::of(arguments)?.json("/api/status").await?;
            let others = status["datacenters"].as_array().into_iter().flatten();
            let others = others.filter(|one| one["own"] == false).filter_map(|one| one["name"].as_str());
            flags.push(format!("-registry.consul.datacenters={}", others.collect::<Vec<_>>().join(",")));
        }
    }
    match consul::config(arguments, flags)?.registry.backend {
        Backend::Consul(consul) => Ok(*consul),
        _ => Err(Failure::Unknown("the routes do not come from Consul; ferrio routes shows them".into())),
    }
}

/// And what is to be said about datacenters that do not answer.
async fn instances(config: &ConsulConfig, name: &str) -> Result<(Vec<Instance>, Vec<String>), Failure> {
    let place = config.client.place();
    let fail = |error: crate::consul::Error| Failure::Unknown(format!("Consul at {place}: {error}"));
    let client = Client::new(config.client.clone()).map_err(fail)?;
    let entries = client.service(name).await.map_err(fail)?.value.unwrap_or_default();
    let mut all: Vec<Instance> = entries.into_iter().map(|entry| instance(config, None, entry)).collect();
    let mut silent = Vec::new();
    if !config.datacenters.is_empty() {
        let own = client.datacenter().await.map_err(fail)?;
        for datacenter in config.datacenters.iter().filter(|other| **other != own) {
            match client.in_datacenter(datacenter).map_err(fail)?.service(name).await {
                Ok(answer) => {
                    let entries = answer.value.unwrap_or_default().into_iter();
                    all.extend(entries.map(|entry| instance(config, Some(datacenter), entry)));
                }
                Err(error) => silent.push(format!("The datacenter {datacenter} does not say what it has: {error}")),
            }
        }
    }
    Ok((all, silent))
}

fn instance(config: &ConsulConfig, datacenter: Option<&String>, entry: crate::consul::Entry) -> Instance {
    let prefix = config.tag_prefix.as_str();
    let service = entry.service;
    let host = if service.address.is_empty() { &entry.node.address } else { &service.address };
    let addr = format!("{host}:{}", service.port);
    let (tags, rest): (Vec<String>, Vec<String>) =
        service.tags.into_iter().partition(|tag| tag.trim_start().starts_with(prefix));
    let stem = prefix.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let nearly = rest.into_iter().filter(|tag| !stem.is_empty() && tag.to_lowercase().contains(&stem)).collect();
    Instance {
        unhealthy: config.refusal(&service.id, &entry.checks),
        id: format!("{}/{}", entry.node.name, service.id),
        datacenter: datacenter.cloned(),
        addr,
        tags,
        nearly,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_how() {
        let flags = &[("client", "ADDRESS", ""), ("method", "METHOD", ""), ("header", "NAME:VALUE", "")];
        let of = |words: &[&str]| {
            let arguments = Arguments::new(words.iter().map(|word| (*word).to_owned()), flags);
            question(&arguments, "https://h/p?q=1")
        };
        let got = of(&["--client=10.0.0.7", "--method", "POST", "--header", "X-A: b:c", "--header=Host:g"]).unwrap();
        assert_eq!((got.host.as_str(), got.tls, got.method.as_str()), ("g", true, "POST"));
        assert_eq!(
            (got.peer.unwrap().to_string().as_str(), &got.headers["x-a"]),
            ("10.0.0.7", &http::HeaderValue::from_static("b:c"))
        );
        for bad in [&["--client=me"], &["--method=a b"], &["--header=x"]] {
            assert!(matches!(of(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }
}
