#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::client_hello::ClientHello;
use crate::net::{Peer, Stream};
use crate::route::{Builder, Origin, Settings, Snapshot, parse_text};
use crate::testing::free_addr;
use crate::{metrics, upstream};

/// (service, bytes from the client, bytes from the target, reason)
type Line = (String, u64, u64, Reason);

struct Bench {
    place: Place,
    lines: Rc<RefCell<Vec<Line>>>,
}

impl Bench {
    fn new(routes: &str) -> Self {
        let metrics = Metrics::new(
            &metrics::Config {
                targets: vec!["prometheus".into()],
                prefix: "p".into(),
                names: String::new(),
                interval: Duration::from_secs(30),
                prometheus_subsystem: String::new(),
                prometheus_path: "/metrics".into(),
                prometheus_buckets: vec![1.0],
                addresses: Default::default(),
                circonus_url: Default::default(),
            },
            1,
        );
        let mut builder = Builder::new(Settings::default());
        builder.manual(parse_text(routes, |line| Origin::Static { line }).entries);
        let table = builder.build().table;
        upstream::Directory::new(metrics.clone(), &Strategy::RoundRobin, "").attach(table.routes());
        let live = Arc::new(LiveTable::default());
        live.store(Snapshot { table, page: "".into(), ..Snapshot::default() });
        let config = upstream::Config {
            dial_timeout: Duration::from_secs(5),
            max_idle: 1,
            max_headers: 100,
            max_header_size: 1000,
            ..Default::default()
        };
        let shared = upstream::Shared::new(&config).unwrap();
        let pools = Pools::new(config, shared);
        let lines = Rc::new(RefCell::new(Vec::new()));
        let heard = lines.clone();
        let hook: Hook = Rc::new(move |ended| {
            let service = ended.target.map_or("", |target| &target.service).to_owned();
            heard.borrow_mut().push((service, ended.from_client, ended.from_target, ended.reason));
        });
        let worker = Worker::new(live, Strategy::RoundRobin, pools, metrics, Shard(0), Some(hook));
        let listener = Listener { family: Family::Port, idle_timeout: Duration::ZERO, write_timeout: Duration::ZERO };
        Self { place: Place { worker: Rc::new(worker), listener: Rc::new(listener) }, lines }
    }

    fn connection(&self) -> Connection {
        let addr: SocketAddr = "127.0.0.1:1".parse().unwrap();
        Connection::new(self.place.clone(), Peer { remote: addr, local: addr, tls: None })
    }

    fn find(&self, key: &str) -> Found {
        self.place.worker.find(&[key], "127.0.0.1".parse().unwrap())
    }

    fn series(&self, name: &str) -> String {
        let text = self.place.worker.metrics.render();
        let line = text.lines().find(|line| line.starts_with(&format!("p_{name}")));
        line.unwrap_or_default().rsplit(' ').next().unwrap_or_default().to_owned()
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (far, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn every_end_is_heard_of_once() {
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = target.local_addr().unwrap();
    let gone = free_addr();
    let bench = Bench::new(&format!(
        "route add good :1 tcp://{to}
        route add closed :2 tcp://{to} opts \"deny=ip:127.0.0.0/8\"
        route add gone :3 tcp://{gone}
        route add nobody :4 tcp://{to} weight 0
        route add second :5 tcp://{gone}
        route add second :5 tcp://{to}"
    ));
    for key in [":2", ":9", ":4"] {
        assert!(bench.connection().admit(bench.find(key)).is_none(), "{key}");
    }
    let (connection, candidates) = bench.connection().admit(bench.find(":3")).unwrap();
    assert!(connection.connect(candidates, None).await.is_none());
    bench.connection().close(Reason::NoName);

    // Cut in the middle, after another target was tried.
    let (connection, candidates) = bench.connection().admit(bench.find(":5")).unwrap();
    let (connection, _stream) = connection.connect(candidates, None).await.unwrap();
    drop(connection);

    let (connection, candidates) = bench.connection().admit(bench.find(":1")).unwrap();
    let state = candidates.first.clone();
    let (connection, stream) = connection.connect(candidates, None).await.unwrap();
    assert_eq!(state.connections(), 1);
    let _cut = target.accept().await.unwrap();
    let (mut far_target, _) = target.accept().await.unwrap();
    let (mut client, near) = pair().await;
    let peers = async {
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        far_target.read_exact(&mut [0; 8]).await.unwrap();
        far_target.write_all(b"answer").await.unwrap();
        far_target.shutdown().await.unwrap();
        client.read_exact(&mut [0; 6]).await.unwrap();
    };
    tokio::join!(connection.relay(Stream::Plain(near), stream), peers);
    assert_eq!(state.connections(), 0);

    let want: Vec<Line> = [
        ("closed", 0, 0, Reason::Denied),
        ("", 0, 0, Reason::NoRoute),
        ("", 0, 0, Reason::NoRoute),
        ("gone", 0, 0, Reason::Unreachable),
        ("", 0, 0, Reason::NoName),
        ("second", 0, 0, Reason::Shutdown),
        ("good", 8, 6, Reason::Done),
    ]
    .map(|(service, from_client, from_target, reason)| (service.to_owned(), from_client, from_target, reason))
    .into();
    assert_eq!(*bench.lines.borrow(), want);
    for (name, want) in [("tcp_conn ", "7"), ("tcp_noroute", "2"), ("tcp_connfail", "3"), ("notfound", "2")] {
        assert_eq!(bench.series(name), want, "{name}");
    }
    for (name, want) in [("route_rx{host=\":1\"", "6"), ("route_tx{host=\":1\"", "8")] {
        assert_eq!(bench.series(name), want, "{name}");
    }
}

#[test]
fn turns_are_taken_once_each_and_the_others_stand_behind() {
    let bench = Bench::new(
        "route add a :1 tcp://10.0.0.1:1
        route add b :1 tcp://10.0.0.2:1
        route add c :1 tcp://10.0.0.3:1 opts \"allow=ip:10.0.0.0/8\"
        route add d :1 tcp://10.0.0.4:1
        route add e :1 tcp://10.0.0.5:1",
    );
    let mut orders = Vec::new();
    for _ in 0..5 {
        let Found::Targets(candidates) = bench.find(":1") else {
            orders.push("denied".to_owned());
            continue;
        };
        orders.push(candidates.first.service.to_string());
        let others: BTreeSet<&str> = candidates.others.iter().map(|target| &*target.service).collect();
        assert!(
            others.len() == 3 && !others.contains("c") && !others.contains(&*candidates.first.service),
            "{others:?}"
        );
    }
    assert_eq!(orders, ["a", "b", "denied", "d", "e"]);
}

#[test]
fn names_that_are_no_names_find_nothing() {
    for (sent, want) in [
        (Some("a.test"), Some("a.test")),
        (Some("A.test."), Some("A.test")),
        (Some(":443"), None),
        (Some("127.0.0.1:80"), None),
        (Some("a.test/x"), None),
        (Some("."), None),
        (None, None),
    ] {
        let hello = ClientHello { server_name: sent.map(str::to_owned), alpn: Vec::new() };
        let hello = Hello { read: bytes::Bytes::new(), hello: Ok(hello) };
        assert_eq!(hello.server_name(), want, "{sent:?}");
    }
}
