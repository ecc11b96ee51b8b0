//! Another process takes over while clients go on as if nothing had happened.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use consul_dev::{Agent, Config};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::testing::certs::Ca;
use crate::testing::client::{self, Client};
use crate::testing::consul::Consul;
use crate::testing::ferrio::{Ferrio, Setup};
use crate::testing::origin::{Origin, TcpOrigin};
use crate::testing::{PATIENCE, free_addrs, until};

/// The processes after the first, which belong to nobody; ended with the test.
struct Heirs {
    admin: SocketAddr,
    now: Cell<i32>,
}

impl Heirs {
    fn of(ferrio: &Ferrio, admin: SocketAddr) -> Heirs {
        Heirs { admin, now: Cell::new(i32::try_from(ferrio.id()).expect("a process id")) }
    }

    async fn control(&self) -> serde_json::Value {
        serde_json::from_str(&client::get(self.admin, "localhost", "/api/control").await.text()).expect("JSON")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.now.get()).expect("a process id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Asks for an upgrade, waits for it, and gives the process that was replaced.
    async fn upgrade(&self) -> i32 {
        let before = self.now.get();
        self.signal(Signal::USR2);
        until(PATIENCE, "another process", async || {
            let control = self.control().await;
            let pid = i32::try_from(control["pid"].as_i64()?).ok()?;
            // It can be asked to make way in its turn once it is alone.
            (pid != before).then(|| self.now.set(pid))
        })
        .await;
        before
    }

    async fn ends(&self) {
        self.signal(Signal::TERM);
        until(PATIENCE, "its end", async || gone(self.now.get()).then_some(())).await;
    }
}

impl Drop for Heirs {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.now.get())
            && !gone(self.now.get())
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Nobody may have asked how it ended, which is no concern of ours.
fn gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_none_or(|state| state == "Z")
}

fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn ten_upgrades_under_load_fail_nothing_and_leave_nothing() {
    let agent = Agent::start(Config::default()).await.expect("a free port on loopback");
    let consul = Consul::at(agent.addr());
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let web = Origin::start("web").await;
    let echo = TcpOrigin::start(async |mut tcp: TcpStream| {
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let [http, https, tcp, admin] = free_addrs();
    consul.put("web-1", "web", web.addr(), &["urlprefix-/"], &["passing"]).await;
    let tag = format!("urlprefix-:{} proto=tcp", tcp.port());
    consul.put("echo-1", "echo", echo.addr(), &[&tag], &["passing"]).await;
    let mut ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("proxy.addr", format!("{http},{https};proto=https;cs=a,{tcp};proto=tcp"))
        .property("proxy.cs", "cs=a;type=file;cert=cert.pem;key=key.pem")
        .property("ui.addr", admin)
        .property("registry.consul.addr", consul.addr())
        .property("registry.consul.register.enabled", true)
        .file("cert.pem", &leaf.cert_pem)
        .file("key.pem", &leaf.key_pem)
        .start()
        .await;
    let heirs = Heirs::of(&ferrio, admin);
    consul.wait_passing("fabio", 1).await;
    until(PATIENCE, "the route", async || (client::get(http, "h", "/").await.text() == "web").then_some(())).await;
    let first = descriptors(heirs.now.get());

    let (busy, served) = (Cell::new(true), Cell::new(0));
    let count = || served.set(served.get() + 1);
    let kept = async |tls: bool| {
        let config = ca.client(&["http/1.1"]);
        while busy.get() {
            let mut client = match tls {
                true => Client::connect_tls(https, "a.test", config.clone()).await,
                false => Client::connect(http).await,
            };
            loop {
                let response = client.get("a.test", "/").await;
                assert_eq!(response.text(), "web");
                count();
                if response.header("Connection") == Some("close") || !busy.get() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    };
    let fresh = async || {
        while busy.get() {
            assert_eq!(client::get(http, "h", "/").await.text(), "web");
            count();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let streams = async |lines: usize| {
        while busy.get() {
            let mut stream = TcpStream::connect(tcp).await.expect("a listener");
            for _ in 0..lines {
                stream.write_all(b"line").await.expect("an open connection");
                let mut line = [0; 4];
                stream.read_exact(&mut line).await.expect("an open connection");
                count();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    };
    let health = async || {
        while busy.get() {
            assert_eq!(client::get(admin, "localhost", "/health").await.status, 200);
            let services = consul.ok("GET", "/v1/health/service/fabio?passing", "").await;
            assert_eq!(services.as_array().map(Vec::len), Some(1), "a gap in Consul");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let upgrades = async {
        let mut before = Vec::new();
        for _ in 0..10 {
            before.push(heirs.upgrade().await);
            let served_before = served.get();
            until(PATIENCE, "requests", async || (served.get() > served_before + 50).then_some(())).await;
        }
        busy.set(false);
        before
    };
    let (.., before) =
        tokio::join!(kept(false), kept(false), kept(true), fresh(), streams(1), streams(150), health(), upgrades);
    assert!(served.get() > 500, "{}", served.get());
    for pid in before {
        until(PATIENCE, "the end of a predecessor", async || {
            (ferrio.process().exited().is_some() && gone(pid)).then_some(())
        })
        .await;
    }
    assert_eq!(ferrio.process().exited().and_then(|status| status.code()), Some(0));
    until(PATIENCE, &format!("{first} descriptors"), async || {
        (descriptors(heirs.now.get()) <= first + 2).then_some(())
    })
    .await;
    heirs.ends().await;
    let services = consul.ok("GET", "/v1/agent/services", "").await;
    assert!(!services.to_string().contains("\"fabio\""), "the last one takes the registration back");
    let said = ferrio.stderr();
    assert!(!said.contains("panicked") && !said.contains("ERROR"), "{said}");
}

fn put_program(place: &Path, text: &str) {
    let next = place.with_extension("next");
    std::fs::write(&next, text).expect("an own directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&next, mode).expect("our own file");
    std::fs::rename(next, place).expect("an own directory");
}

#[tokio::test]
async fn a_program_that_does_not_start_leaves_the_old_one_serving() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("ferrio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferrio"), &place).expect("an own directory");
    let [addr, admin, other] = free_addrs();
    let mut ferrio = Setup::new(&place)
        .property("proxy.addr", addr)
        .property("ui.addr", admin)
        .property("registry.backend", "static")
        .start()
        .await;
    let heirs = Heirs::of(&ferrio, admin);
    let own = heirs.now.get();
    for (program, why) in [
        ("#!/bin/sh\nexit 7\n", "ended with exit status: 7"),
        ("no program at all", "cannot start"),
        ("#!/bin/sh\nkill -9 $$\n", "signal: 9"),
        ("#!/bin/sh\necho something else >&0; exec sleep 1\n", "does not take over"),
    ] {
        put_program(&place, program);
        heirs.signal(Signal::USR2);
        until(PATIENCE, why, async || {
            heirs.control().await["upgrade"].as_str().filter(|text| text.contains(why)).map(drop)
        })
        .await;
        assert_eq!(client::get(addr, "h", "/").await.status, 404);
    }
    assert!(ferrio.stderr().contains("Not upgraded, and serving as before"), "{}", ferrio.stderr());

    // The right one again, and another address in the properties.
    std::fs::remove_file(&place).expect("ours");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferrio"), &place).expect("an own directory");
    let file = ferrio.dir().join("fabio.properties");
    let text = std::fs::read_to_string(&file).expect("its file");
    std::fs::write(&file, text.replace(&addr.to_string(), &other.to_string())).expect("its file");
    heirs.upgrade().await;
    assert_ne!(heirs.now.get(), own);
    assert_eq!(client::get(other, "h", "/").await.status, 404);
    until(PATIENCE, "a closed door", async || TcpStream::connect(addr).await.is_err().then_some(())).await;
    until(PATIENCE, "its end", async || ferrio.process().exited()).await;
    heirs.ends().await;
}

#[tokio::test]
async fn an_upgrade_while_it_leaves_is_refused() {
    let [addr, admin] = free_addrs();
    let mut ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("proxy.addr", addr)
        .property("ui.addr", admin)
        .property("registry.backend", "static")
        .property("proxy.deregistergraceperiod", "1h")
        .start()
        .await;
    ferrio.signal(Signal::TERM);
    ferrio.process().says(PATIENCE, "Caught SIGTERM").await;
    ferrio.signal(Signal::USR2);
    ferrio.process().says(PATIENCE, "Caught SIGUSR2. Not upgrading: this process is leaving").await;
    assert_eq!(ferrio.stop().await, Some(0));
}
