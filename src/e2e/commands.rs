//! Commands: one question, one answer, one exit code. Against a real Consul where it matters.

use std::path::Path;

use consul_dev::{Agent, Config};
use serde_json::{Value, json};

use crate::proxy::Start;
use crate::testing::consul::Consul;
use crate::testing::origin::Origin;
use crate::testing::process::Process;
use crate::testing::{PATIENCE, until};

/// Exit code, standard output, standard error.
async fn ferrio(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut process = Process::start(Path::new(env!("CARGO_BIN_EXE_ferrio")), args, dir, &[]);
    let code = process.wait(PATIENCE).await.code().expect("an exit code");
    (code, process.stdout(), process.stderr())
}

/// What a command says; panics on another exit code.
async fn says(code: i32, args: &[&str]) -> String {
    let (ended, stdout, stderr) = ferrio(Path::new("/"), args).await;
    assert_eq!(ended, code, "{args:?}\n{stdout}\n{stderr}");
    stdout
}

async fn json(code: i32, args: &[&str]) -> Value {
    let text = says(code, args).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

#[tokio::test]
async fn is_my_properties_file_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |text: &str| std::fs::write(dir.path().join("f.properties"), text).expect("an own directory");
    write("proxy.addr = :1234\nproxy.strategy = rr\nproxy.stratgy = rr\n");
    let (code, out, _) = ferrio(dir.path(), &["check", "f.properties"]).await;
    assert!(code == 0 && out.contains("did you mean proxy.strategy?") && out.contains("f.properties: good"), "{out}");

    write("proxy.addr = :1234;nonsense=1\nproxy.strategy = x\nproxy.maxconn = many\nregistry.consul.token = s3cret\n");
    let (code, out, _) = ferrio(dir.path(), &["check", "-cfg", "f.properties"]).await;
    assert_eq!(code, 1, "{out}");
    for part in ["f.properties:1", "f.properties:2", "f.properties:3", "2 mistakes", "warning: proxy.addr"] {
        assert!(out.contains(part), "no {part} in\n{out}");
    }
    assert!(!out.contains("s3cret"));

    write("registry.backend = static\nregistry.static.routes = route ad x\n");
    let (code, out, _) = ferrio(dir.path(), &["check", "f.properties"]).await;
    assert!(code == 1 && out.contains("registry.static.routes line 1"), "{out}");

    let (code, _, err) = ferrio(dir.path(), &["check", "--nonsense"]).await;
    assert!(code == 2 && err.contains("there is no flag --nonsense"), "{err}");
    let (code, out, _) = ferrio(dir.path(), &["check", "gone.properties"]).await;
    assert!(code == 1 && out.contains("gone.properties"), "{out}");
}

#[tokio::test]
async fn what_a_file_takes_for_granted_is_looked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::write(at("no.pem"), "nothing").expect("an own directory");
    std::fs::write(at("htpasswd"), "a:$apr1$x$y\n").expect("an own directory");
    std::fs::create_dir(at("empty")).expect("an own directory");
    let (base, tls) = ("registry.backend = static\nui.access = ro\nproxy.trusted =\n", "proxy.addr = :443;cs=a\n");
    for (text, code, want) in [
        (String::new(), 0, ": good\n".to_owned()),
        (
            "proxy.auth = name=a;type=basic;file=/none/x\n".into(),
            1,
            "f:4): scheme a: open /none/x: no such file".into(),
        ),
        ("proxy.auth = name=a;type=apikey;file=/none/x\n".into(), 1, "f:4): scheme a: open /none/x".into()),
        ("proxy.auth = name=a;type=jwt;secret=/none/x\n".into(), 1, "f:4): scheme a: open /none/x".into()),
        (format!("{tls}proxy.cs = cs=a;type=file;cert=/none/x\n"), 1, "f:5): source a: cert: open /none/x".into()),
        (format!("{tls}proxy.cs = cs=a;type=file;cert={}\n", at("no.pem")), 1, "no CERTIFICATE block".into()),
        (format!("{tls}proxy.cs = cs=a;type=path;cert=/none\n"), 0, "source a: /none: no such folder".into()),
        (format!("{tls}proxy.cs = cs=a;type=path;cert={}\n", at("empty")), 0, "there is no certificate at".into()),
        (format!("{tls}proxy.cs = cs=a;type=http;cert=list\n"), 1, "source a: \"list\" is no URL".into()),
        (
            "log.access.target = file:/none/access.log\n".into(),
            1,
            "f:4): /none/access.log: /none: no such folder".into(),
        ),
        (format!("log.access.target = file:{}\n", at("empty")), 1, "Is a directory; write a file".into()),
        ("runtime.user = no-such-user\n".into(), 1, "f:4): there is no user \"no-such-user\"".into()),
        (format!("runtime.statedir = {}/x\n", at("no.pem")), 0, "is no folder, so the last known routes".into()),
        ("registry.backend = file\nregistry.file.path = /none/r\n".into(), 1, "/none/r: cannot be read".into()),
        (
            "registry.backend = consul\nregistry.consul.addr = https://c\nregistry.consul.tls.cafile = /none/ca\n"
                .into(),
            1,
            "f:6): /none/ca: No such file".into(),
        ),
        ("registry.backend = consul\nregistry.consul.tokenfile = /none/t\n".into(), 0, "without a token until".into()),
        ("proxy.unixsockets = /none/run\n".into(), 0, "/none/run: no such folder".into()),
        (
            "registry.static.routes = route add a /a http://h/ opts \"auth=x\"\n".into(),
            0,
            "route /a: auth=x names a scheme that proxy.auth does not have".into(),
        ),
        (
            "registry.static.routes = route add a /a http://h/ opts \"stripp=/a\"\n".into(),
            0,
            "route /a: stripp is no option and changes nothing; did you mean strip?".into(),
        ),
    ] {
        std::fs::write(at("f"), format!("{base}{text}")).expect("an own directory");
        let (ended, out, _) = ferrio(dir.path(), &["check", "f"]).await;
        assert!(ended == code && out.contains(&want), "{ended}, not {code}, or no {want:?}\n{text}\n{out}");
        let strict = ferrio(dir.path(), &["check", "--strict", "f"]).await.0;
        assert_eq!(strict, i32::from(!out.starts_with("f: good\n")), "{text}\n{out}");
    }
    // For a machine that is not this one.
    std::fs::write(at("f"), format!("{base}runtime.user = no-such-user\n")).expect("an own directory");
    assert_eq!(ferrio(dir.path(), &["check", "--text", "f"]).await.0, 0);
}

#[tokio::test]
async fn what_is_every_option_set_to() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "proxy.strategy = rr\n").expect("an own directory");
    let (code, out, _) = ferrio(dir.path(), &["config", "--cfg", "f", "--", "-proxy.maxconn=7"]).await;
    assert_eq!(code, 0);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1..], [vec!["proxy.strategy", "rr", "f:1"], vec!["proxy.maxconn", "7", "flag", "-proxy.maxconn"]]);
}

/// A proxy with two services, one of which has a tag that cannot be used.
async fn world(consul: &Consul) -> (Origin, crate::proxy::Proxy) {
    let web = Origin::start("web").await;
    consul
        .put("web-1", "web", web.addr(), &["urlprefix-example.com/", "urlprefix-/old strip=/old"], &["passing"])
        .await;
    consul.put("bad-1", "bad", web.addr(), &["urlprefix-/bad weight=much"], &["passing"]).await;
    consul.put("sick-1", "sick", web.addr(), &["urlprefix-/sick"], &["critical"]).await;
    consul.put("mute-1", "mute", web.addr(), &["urlprefix=/mute", "other"], &["passing"]).await;
    let proxy = Start::consul(consul).start().await;
    proxy.serves("example.com", "/", "web").await;
    (web, proxy)
}

#[tokio::test]
async fn why_is_my_service_not_routed() {
    let consul = Consul::real().await;
    let (_web, proxy) = world(&consul).await;
    let (admin, addr) = (proxy.admin.to_string(), consul.addr().to_string());
    for ask in [["--admin", admin.as_str()], ["--consul", addr.as_str()]] {
        for (service, code, why) in [
            ("web", 0, "is routed: 2 targets, 1 of 1 instance"),
            ("bad", 1, "its tags could not be used"),
            ("sick", 1, "the checks of all its instances keep them out"),
            ("mute", 1, "no instance has a tag that begins with urlprefix-"),
            ("nobody", 1, "Consul knows no instance of it"),
        ] {
            let said = says(code, &[&["explain", "--service", service], &ask[..]].concat()).await;
            assert!(said.contains(why), "{service} {ask:?}: {said}");
        }
        let sick = says(1, &[&["explain", "--service", "sick"], &ask[..]].concat()).await;
        assert!(sick.contains("sick-1-check-0 is critical (one check must be passing)"), "{sick}");
        let mute = says(1, &[&["explain", "--service", "mute"], &ask[..]].concat()).await;
        assert!(mute.contains("urlprefix=/mute: no route, since it does not begin with urlprefix-"), "{mute}");
        let rejects = says(1, &[&["rejects"], &ask[..]].concat()).await;
        assert!(rejects.contains("urlprefix-/bad weight=much") && rejects.contains("1 tag"), "{rejects}");
        let rejects = json(1, &[&["rejects", "--json"], &ask[..]].concat()).await;
        assert_eq!(rejects[0]["service"], "bad");
        says(0, &[&["rejects", "--service", "web"], &ask[..]].concat()).await;
    }
    // Looking leaves nothing behind in Consul.
    let services = consul.ok("GET", "/v1/agent/services", "").await;
    assert_eq!(services, json!({}));
}

#[tokio::test]
async fn where_does_this_url_go() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let (web, proxy) = world(&consul).await;
    let (admin, addr) = (proxy.admin.to_string(), consul.addr().to_string());
    for ask in [["--admin", admin.as_str()], ["--consul", addr.as_str()]] {
        let said = says(0, &[&["explain", "http://example.com/a?b=c"], &ask[..]].concat()).await;
        assert!(said.contains("taken: example.com/") && said.contains(&web.addr().to_string()), "{said}");
        let said = says(0, &[&["explain", "other.com/old/x"], &ask[..]].concat()).await;
        assert!(said.contains("taken: /old") && said.contains("asks for /x"), "{said}");
        let said = says(1, &[&["explain", "exampel.com/"], &ask[..]].concat()).await;
        assert!(said.contains("No route fits") && said.contains("example.com"), "{said}");
        let found = json(0, &[&["explain", "--json", "https://example.com"], &ask[..]].concat()).await;
        assert_eq!((found["outcome"].as_str(), found["tls"].as_bool()), (Some("forward"), Some(true)));
    }
}

#[tokio::test]
async fn which_routes_are_there() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let (web, proxy) = world(&consul).await;
    let (admin, addr) = (proxy.admin.to_string(), consul.addr().to_string());
    for ask in [["--admin", admin.as_str()], ["--consul", addr.as_str()]] {
        let said = says(0, &[&["routes"], &ask[..]].concat()).await;
        assert!(said.contains("example.com/") && said.contains("2 routes, 2 targets"), "{said}");
        let said = says(0, &[&["routes", "--host", "example.com", "--config"], &ask[..]].concat()).await;
        assert_eq!(said, format!("route add web example.com/ {}/\n", web.url().trim_end_matches('/')));
        let found = json(0, &[&["routes", "--json", "--service", "web", "--host="], &ask[..]].concat()).await;
        assert_eq!((found[0]["src"].as_str(), found[0]["opts"].as_str()), (Some("/old"), Some("strip=/old")));
        assert_eq!(found.as_array().map(Vec::len), Some(1));
        says(1, &[&["routes", "--service", "bad"], &ask[..]].concat()).await;
    }
    // With the configuration of the proxy nothing else needs to be said.
    let file = proxy.ferrio.dir().join("fabio.properties");
    says(0, &["routes", "--cfg", file.to_str().expect("an ASCII path")]).await;
}

#[tokio::test]
async fn is_the_table_the_same_as_that_of_another() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let (web, proxy) = world(&consul).await;
    let admin = proxy.admin.to_string();
    says(0, &["compare", &admin, "--consul", &consul.addr().to_string()]).await;

    // As fabio has it: other order of options, no slash at the end, and what was refused here is served there.
    let fabio = Origin::start("fabio").await;
    let row = |service: &str, host: &str, path: &str, opts: &str, weight: f64| {
        json!({ "service": service, "host": host, "path": path, "src": format!("{host}{path}"), "dst": web.url(),
                "opts": opts, "weight": weight, "cmd": "route add", "rate1": 0, "pct99": 0 })
    };
    let table = json!([row("web", "example.com", "/", "", 1.0), row("web", "", "/old", "strip=/old", 1.0)]);
    fabio.on("/api/routes", crate::testing::origin::reply(200, &[], table.to_string()));
    let said = says(0, &["compare", &fabio.addr().to_string(), "--admin", &admin]).await;
    assert!(said.contains("The tables are the same: 2 targets here, 2 there"), "{said}");

    let table = json!([row("web", "example.com", "/", "strip=/x", 0.5), row("bad", "", "/bad", "weight=much", 1.0)]);
    fabio.on("/api/routes", crate::testing::origin::reply(200, &[], table.to_string()));
    let said = says(1, &["compare", &fabio.addr().to_string(), "--admin", &admin]).await;
    for part in [
        "+ /old web",
        "- /bad bad",
        "refused here: urlprefix-/bad",
        "options strip=/x only there",
        "share 100% here, 50% there",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let found = json(1, &["compare", "--json", &fabio.addr().to_string(), "--admin", &admin]).await;
    assert_eq!((found["same"].as_bool(), found["differences"].as_array().map(Vec::len)), (Some(false), Some(4)));
}

#[tokio::test]
async fn what_changed_at_that_time() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let (web, proxy) = world(&consul).await;
    let admin = proxy.admin.to_string();
    consul.put("late-1", "late", web.addr(), &["urlprefix-/late"], &["passing"]).await;
    proxy.serves("h", "/late", "web").await;
    let said = until(PATIENCE, "the change in the timeline", async || {
        Some(says(0, &["timeline", "--since", "10m", "--admin", &admin]).await).filter(|said| said.contains("/late"))
    })
    .await;
    assert!(said.contains("+ route add late /late"), "{said}");
    let said = says(0, &["timeline", "--until", "2000-01-01T00:00", "--admin", &admin]).await;
    assert!(said.contains("Nothing has changed"), "{said}");
    assert!(json(0, &["timeline", "--json", "--admin", &admin]).await.as_array().is_some_and(|all| !all.is_empty()));
}

#[tokio::test]
async fn what_is_going_on() {
    let web = Origin::start("web").await;
    let proxy = Start::routes(format!("route add web / {}", web.url())).start().await;
    let admin = proxy.admin.to_string();
    // What was before somebody looked is no news: requests go on as long as the command runs.
    let busy = async {
        loop {
            assert_eq!(proxy.get("h", "/").await.status, 200);
        }
    };
    let args = ["top", "--once", "--interval", "1", "--admin", &admin];
    let said = tokio::select! {
        said = says(0, &args) => said,
        () = busy => unreachable!("requests have no end"),
    };
    assert!(said.contains("web") && said.contains("1 route, 1 target"), "{said}");
}

#[tokio::test]
async fn nobody_there_and_wrong_words_have_codes_of_their_own() {
    says(3, &["routes", "--admin", "127.0.0.1:1"]).await;
    says(3, &["routes", "--consul", "127.0.0.1:1"]).await;
    says(2, &["routes", "too", "many"]).await;
    says(0, &["routes", "--help"]).await;
    let (code, _, err) = ferrio(Path::new("/"), &["route"]).await;
    assert!(code == 2 && err.contains("Did you mean routes?"), "{err}");
}
