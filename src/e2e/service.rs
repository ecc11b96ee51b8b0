//! Run by a service manager: what it is told, the sockets that it hands over, and becoming somebody who may do less.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use crate::proxy::Start;
use crate::testing::client;
use crate::testing::ferrio::Setup;
use crate::testing::origin::Origin;
use crate::testing::process::{Process, Signal};
use crate::testing::{PATIENCE, free_addrs, until};

/// The next message that contains `text`.
async fn hears(socket: &UnixDatagram, text: &str) -> String {
    socket.set_nonblocking(true).expect("our own socket");
    until(PATIENCE, &format!("the service manager to hear {text:?}"), async || {
        let mut buffer = [0; 500];
        let n = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..n]).into_owned()).filter(|message| message.contains(text))
    })
    .await
}

#[tokio::test]
async fn the_service_manager_hears_of_start_life_reload_and_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("an own directory");
    let [addr, admin] = free_addrs();
    let mut ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("proxy.addr", addr)
        .property("ui.addr", admin)
        .property("registry.backend", "static")
        .env("NOTIFY_SOCKET", path.to_str().expect("an ASCII path"))
        .env("WATCHDOG_USEC", "400000")
        .start()
        .await;
    hears(&socket, "READY=1").await;
    // By then connections are taken.
    assert_eq!(client::get(addr, "h", "/").await.status, 404);
    for _ in 0..3 {
        hears(&socket, "WATCHDOG=1").await;
    }
    ferrio.signal(Signal::HUP);
    assert!(hears(&socket, "RELOADING=1").await.contains("MONOTONIC_USEC="));
    hears(&socket, "READY=1").await;
    ferrio.signal(Signal::TERM);
    hears(&socket, "STOPPING=1").await;
    assert_eq!(ferrio.process().wait(PATIENCE).await.code(), Some(0));
}

/// Opens the sockets, as a service manager would, and becomes the program that is to have them.
const ACTIVATE: &str = r#"
import os, socket, sys
sockets = []
for address in sys.argv[1].split(","):
    host, port = address.rsplit(":", 1)
    one = socket.socket(); one.bind((host, int(port))); one.listen(16); sockets.append(one)
ready = [one.fileno() for one in sockets]
for at, number in enumerate(ready): os.dup2(number, 50 + at)
for at in range(len(ready)): os.dup2(50 + at, 3 + at, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(ready)))
os.execv(sys.argv[2], sys.argv[2:])
"#;

#[tokio::test]
async fn sockets_that_are_handed_over_are_served() {
    let origin = Origin::start("o").await;
    let [addr, admin, other] = free_addrs();
    let routes = format!("-registry.static.routes=route add o / {}", origin.url());
    let args = [
        "-c".to_owned(),
        ACTIVATE.to_owned(),
        format!("{addr},{admin},{other}"),
        env!("CARGO_BIN_EXE_ferrio").to_owned(),
        format!("-proxy.addr={addr}"),
        format!("-ui.addr={admin}"),
        "-registry.backend=static".to_owned(),
        routes,
        "-runtime.gomaxprocs=3".to_owned(),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let mut process = Process::start(Path::new("python3"), &args, dir.path(), &[]);
    process.says(PATIENCE, "proxy listening on").await;
    // Several connections, so that more than one worker has taken one.
    for _ in 0..20 {
        assert_eq!(client::get(addr, "h", "/").await.text(), "o");
    }
    assert_eq!(client::get(admin, "admin", "/health").await.status, 200);
    let said = process.stderr();
    assert!(said.contains(&format!("no listener has the address of the socket {other}")), "{said}");
    process.signal(Signal::TERM);
    assert_eq!(process.wait(PATIENCE).await.code(), Some(0), "{}", process.said());
}

#[tokio::test]
async fn root_is_given_up_by_every_thread() {
    let start = Start::routes("").property("registry.backend", "static").property("runtime.user", "65534:65534");
    if !rustix::process::getuid().is_root() {
        let mut proxy = start.spawn();
        assert_eq!(proxy.ferrio.process().wait(PATIENCE).await.code(), Some(1));
        assert!(proxy.ferrio.stderr().contains("only root can become somebody else"), "{}", proxy.ferrio.stderr());
        return;
    }
    let proxy = start.start().await;
    assert_eq!(proxy.get("h", "/").await.status, 404);
    let tasks = format!("/proc/{}/task", proxy.ferrio.id());
    let mut seen = 0;
    for task in std::fs::read_dir(tasks).expect("our own child") {
        let status = task.expect("a thread").path().join("status");
        // A thread may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(status) else { continue };
        let of =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        assert_eq!(of("Uid:"), "65534\t65534\t65534\t65534");
        assert_eq!(of("Gid:"), "65534\t65534\t65534\t65534");
        assert_eq!(of("Groups:"), "65534");
        assert_eq!(of("CapEff:"), "0000000000000000");
        seen += 1;
    }
    assert!(seen >= 4, "{seen} threads");
    proxy.ends_well().await;
}

#[tokio::test]
async fn a_user_that_there_is_not_stops_the_start() {
    let mut proxy = Start::routes("").property("runtime.user", "no-such-user").spawn();
    assert_eq!(proxy.ferrio.process().wait(Duration::from_secs(20)).await.code(), Some(1));
    assert!(proxy.ferrio.stderr().contains("no user \"no-such-user\""), "{}", proxy.ferrio.stderr());
}
