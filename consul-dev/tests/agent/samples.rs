//! The sample services, from files and built in, and the program that serves them.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use consul_dev::{Agent, Config, Definition, serve_samples};

use crate::side_by_side::Pair;
use crate::wire::{get, put, try_call, until};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/services"))
}

/// `consul agent -dev -config-dir consul-dev/services` has the same services, tags and checks.
#[tokio::test]
async fn a_real_consul_takes_the_files() {
    let pair = Pair::start_with(Some(folder())).await;
    for target in ["/v1/catalog/services", "/v1/agent/services"] {
        let (real, _) = pair.same("GET", target, "").await;
        assert!(real.text().contains("hello"), "{}", real.text());
    }
    for name in ["hello", "echo", "demo"] {
        // States depend on what listens on this machine.
        for target in [format!("/v1/catalog/service/{name}"), format!("/v1/health/checks/{name}")] {
            let services = pair.same_but_indexes(&target, &["ID", "Status", "Output"]).await;
            assert!(!services.as_array().unwrap().is_empty(), "{target}");
        }
    }
}

#[tokio::test]
async fn samples_are_healthy_even_where_their_ports_are_taken() {
    let mut definitions = Definition::samples();
    // Whether or not somebody else has this port: now it is taken.
    let _taken = TcpListener::bind(("127.0.0.1", definitions[0].port()));
    let samples = serve_samples(&mut definitions).await.unwrap();
    for (definition, addr) in definitions.iter().zip(samples.addrs()) {
        assert_eq!(definition.port(), addr.port());
    }
    let agent = Agent::start(Config { definitions, ..Config::default() }).await.unwrap();
    for (name, count) in [("hello", 2), ("echo", 1), ("demo", 1)] {
        until(10, name, async || {
            let passing = get(agent.addr(), &format!("/v1/health/service/{name}?passing")).await.json();
            (passing.as_array().unwrap().len() == count).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn what_samples_say() {
    let mut definitions = Definition::samples();
    for definition in &mut definitions {
        definition.set_port(0);
    }
    let samples = serve_samples(&mut definitions).await.unwrap();
    let addr = |id: &str| samples.addrs()[definitions.iter().position(|d| d.id() == id).unwrap()];
    for id in ["hello-1", "hello-2", "demo-1"] {
        let answer = get(addr(id), "/a%3Cb%3E&c").await;
        assert!(answer.text().contains(&format!("Hello from {id}")) && answer.text().contains("&amp;c"));
        assert_eq!(answer.header("x-instance"), Some(id));
    }
    let echo = put(addr("echo-1"), "/path?q=1", "body").await.json();
    assert_eq!((&echo["method"], &echo["target"], &echo["body"]), (&"PUT".into(), &"/path?q=1".into(), &"body".into()));
    assert_eq!(echo["headers"]["host"], addr("echo-1").to_string());
    assert_eq!(get(addr("echo-1"), "/health").await.text(), "OK\n");
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program takes the arguments and files that are meant for Consul.
#[tokio::test]
async fn the_program_starts_like_consul() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let config = std::env::temp_dir().join(format!("consul-dev-{}-program.json", std::process::id()));
    let text = format!(
        r#"{{"ports": {{"http": {port}, "https": -1, "server": 7777}}, "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
        "datacenter": "east", "node_name": "n", "log_level": "warn", "performance": {{"raft_multiplier": 1}}}}"#
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_consul-dev"));
    command.args(["agent", "-dev", "-config-file"]).arg(&config).arg("-config-dir").arg(folder());
    let program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let this = until(10, "the start", async || try_call(addr, "GET", "/v1/agent/self", "").await.ok()).await.json();
    assert_eq!((&this["Config"]["Datacenter"], &this["Config"]["NodeName"]), (&"east".into(), &"n".into()));
    assert_eq!(get(addr, "/v1/status/leader").await.json(), "127.0.0.1:7777");
    assert!(get(addr, "/v1/catalog/services").await.text().contains("urlprefix-/echo strip=/echo"));
    drop(program);
    std::fs::remove_file(config).unwrap();
    for wrong in [["-bogus"], ["-http-port=x"], ["-config-file=/none"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_consul-dev")).arg("agent").args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
}
