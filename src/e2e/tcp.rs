//! Listeners of the TCP family, and datagrams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::consul::Consul;
use crate::testing::ferrio::{Ferrio, Setup};
use crate::testing::origin::TcpOrigin;
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, free_addr, free_addrs, soon, until};

/// The program with listeners and fixed routes.
fn setup(addr: &str, routes: &[String]) -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("registry.backend", "static")
        .property("registry.static.routes", routes.join("\\n"))
        .property("proxy.strategy", "rr")
        .property("proxy.addr", addr)
        .property("ui.addr", free_addr())
}

fn route(key: impl std::fmt::Display, target: SocketAddr, options: &str) -> String {
    route_to(key, &format!("tcp://{target}"), options)
}

fn route_to(key: impl std::fmt::Display, target: &str, options: &str) -> String {
    format!("route add t {key} {target} opts \"{options}\"")
}

/// A TCP listener in front of one target.
async fn in_front_of(target: SocketAddr, listener: &str, options: &str) -> (Ferrio, SocketAddr) {
    let addr = free_addr();
    let routes = [route(format!(":{}", addr.port()), target, options)];
    (setup(&format!("{addr};proto=tcp{listener}"), &routes).start().await, addr)
}

/// Answers with the number of bytes once its client has ended its side.
async fn counting() -> TcpOrigin {
    TcpOrigin::start(async |mut tcp: TcpStream| {
        let mut all = Vec::new();
        let _ = tcp.read_to_end(&mut all).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = tcp.write_all(format!("{} bytes", all.len()).as_bytes()).await;
    })
    .await
}

#[tokio::test]
async fn a_half_closed_client_gets_its_answer_plain_and_through_tls() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let target = counting().await;
    let [plain, tls] = free_addrs();
    let routes = [plain, tls].map(|addr| route(format!(":{}", addr.port()), target.addr(), "proto=tcp"));
    let _ferrio = setup(&format!("{plain};proto=tcp,{tls};proto=tcp;cs=a"), &routes)
        .property(
            "proxy.cs",
            format!("cs=a;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .start()
        .await;
    let clients =
        [Client::connect(plain).await, Client::connect_tls(tls, "a.test", ca.client(&["h2", "http/1.1"])).await];
    for mut client in clients {
        client.send(vec![b'x'; 300_000]).await;
        client.finish().await;
        assert_eq!(client.rest().await, b"300000 bytes");
    }
}

#[tokio::test]
async fn what_is_spoken_inside_tls_is_not_our_business() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let target = TcpOrigin::banner("220 ready\r\n").await;
    let addr = free_addr();
    let _ferrio = setup(&format!("{addr};proto=tcp;cs=a"), &[route(format!(":{}", addr.port()), target.addr(), "")])
        .property(
            "proxy.cs",
            format!("cs=a;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .start()
        .await;
    for alpn in [&["h2"][..], &["postgresql"], &[]] {
        let mut client = Client::connect_tls(addr, "a.test", ca.client(alpn)).await;
        let crate::testing::wire::Stream::Tls(tls) = &client.wire.stream else { panic!("no TLS") };
        let tokio_rustls::TlsStream::Client(tls) = &**tls else { panic!("not a client") };
        assert_eq!(tls.get_ref().1.alpn_protocol(), None, "{alpn:?}");
        assert_eq!(client.exact(11).await, b"220 ready\r\n");
    }
}

#[tokio::test]
async fn the_log_tells_of_connections_and_of_tls_that_ended_here() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let echo = TcpOrigin::echo().await;
    let [plain, tls] = free_addrs();
    let routes = [plain, tls].map(|addr| route(format!(":{}", addr.port()), echo.addr(), ""));
    let mut ferrio = setup(&format!("{plain};proto=tcp,{tls};proto=tcp;cs=a"), &routes)
        .property(
            "proxy.cs",
            format!("cs=a;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .property("log.access.target", "stdout")
        .property(
            "log.access.format",
            "$upstream_service|$protocol|$outcome|$bytes_received|$response_body_size|$tls_version|$tls_server_name",
        )
        .property("log.access.all", true)
        .start()
        .await;
    let clients = [Client::connect(plain).await, Client::connect_tls(tls, "a.test", ca.client(&[])).await];
    for mut client in clients {
        client.send("12345").await;
        client.exact(5).await;
        client.finish().await;
        client.rest().await;
    }
    let process = ferrio.process();
    for want in ["t|tcp|done|5|5||", "t|tcp|done|5|5|TLSv1.3|a.test"] {
        until(PATIENCE, want, async || process.stdout().lines().any(|line| line == want).then_some(())).await;
    }
}

#[tokio::test]
async fn idle_limits_of_listener_and_route() {
    let echo = TcpOrigin::echo().await;
    let (_one, limited) = in_front_of(echo.addr(), ";rt=400ms", "").await;
    let (_two, by_route) = in_front_of(echo.addr(), "", "idletimeout=400ms").await;
    let (_three, freed) = in_front_of(echo.addr(), ";rt=400ms", "idletimeout=0").await;
    for addr in [limited, by_route] {
        let mut client = Client::connect(addr).await;
        let begun = Instant::now();
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.send("x").await;
            client.exact(1).await;
        }
        client.closed().await;
        assert!(begun.elapsed() > Duration::from_millis(1100), "{:?}", begun.elapsed());
    }
    let mut client = Client::connect(freed).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    client.send("x").await;
    client.exact(1).await;
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_costs_nobody_a_connection() {
    let echo = TcpOrigin::echo().await;
    let addr = free_addr();
    let key = format!(":{}", addr.port());
    let routes = [route(&key, free_addr(), ""), route(&key, echo.addr(), ""), route(&key, free_addr(), "")];
    let _ferrio = setup(&format!("{addr};proto=tcp"), &routes).start().await;
    for _ in 0..12 {
        let mut client = Client::connect(addr).await;
        client.send("hello").await;
        assert_eq!(client.exact(5).await, b"hello");
    }
}

#[tokio::test]
async fn without_a_target_the_connection_is_closed() {
    let [closed, unknown] = free_addrs();
    let routes = [route(format!(":{}", closed.port()), free_addr(), "")];
    let _ferrio = setup(&format!("{closed};proto=tcp,{unknown};proto=tcp"), &routes).start().await;
    for addr in [closed, unknown] {
        assert_eq!(Client::connect(addr).await.rest().await, b"");
    }
}

#[tokio::test]
async fn tls_to_the_target_behind_a_proxy_header() {
    let ca = Ca::new();
    let config = ca.server(&ca.leaf(&["t.test"]), &[]);
    let target = TcpOrigin::start(move |mut tcp| {
        let acceptor = tokio_rustls::TlsAcceptor::from(config.clone());
        async move {
            let mut header = [0; 28];
            let _ = tcp.read_exact(&mut header).await;
            let Ok(mut tls) = acceptor.accept(tcp).await else { return };
            let name = tls.get_ref().1.server_name().unwrap_or("none").to_owned();
            let _ = tls.write_all(&header).await;
            let _ = tls.write_all(name.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    })
    .await;
    let [good, strict] = free_addrs();
    let to = format!("tcps://{}", target.addr());
    let routes = [
        route_to(format!(":{}", good.port()), &to, "pxyproto=v2 tlsskipverify=true host=t.test"),
        route_to(format!(":{}", strict.port()), &to, "pxyproto=v2 host=t.test"),
    ];
    let _ferrio = setup(&format!("{good};proto=tcp,{strict};proto=tcp"), &routes).start().await;
    let mut client = Client::connect_from("127.0.0.9", good).await;
    let got = client.rest().await;
    let (header, name) = got.split_at(28);
    assert_eq!(header[..12], *b"\r\n\r\n\0\r\nQUIT\n");
    assert_eq!(header[12..24], [0x21, 0x11, 0, 12, 127, 0, 0, 9, 127, 0, 0, 1]);
    assert_eq!(header[24..26], client.local_addr().port().to_be_bytes());
    assert_eq!(header[26..28], good.port().to_be_bytes());
    assert_eq!(name, b"t.test");
    assert_eq!(Client::connect(strict).await.rest().await, b"", "the certificate is not trusted");
}

/// Answers each request with the first line that it got on its connection.
async fn first_line() -> TcpOrigin {
    TcpOrigin::start(async |mut tcp: TcpStream| {
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\n") {
            if tcp.read_buf(&mut got).await.is_ok_and(|n| n > 0) {
                continue;
            }
            return;
        }
        let line = got.split(|b| *b == b'\r').next().unwrap_or_default();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", line.len());
        let _ = tcp.write_all(&[head.as_bytes(), line].concat()).await;
        let _ = tcp.read(&mut [0]).await;
    })
    .await
}

#[tokio::test]
async fn http_targets_hear_of_each_client_and_no_connection_is_shared() {
    let target = first_line().await;
    let addr = free_addr();
    let routes = [route_to("/", &format!("http://{}/", target.addr()), "pxyproto=true")];
    let _ferrio = setup(&addr.to_string(), &routes).start().await;
    for source in ["127.0.0.7", "127.0.0.8"] {
        let mut client = Client::connect_from(source, addr).await;
        let port = client.local_addr().port();
        for _ in 0..2 {
            let line = client.get("h", "/").await.text();
            assert_eq!(line, format!("PROXY TCP4 {source} 127.0.0.1 {port} {}", addr.port()));
        }
    }
}

#[tokio::test]
async fn http_and_tcp_routes_of_one_name_never_meet() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["h.test"]);
    let web = crate::testing::origin::Origin::start("web").await;
    let server = ca.server(&leaf, &[]);
    let raw = TcpOrigin::start(move |tcp| {
        let acceptor = tokio_rustls::TlsAcceptor::from(server.clone());
        async move {
            let Ok(mut tls) = acceptor.accept(tcp).await else { return };
            let _ = tls.write_all(b"raw").await;
            let _ = tls.shutdown().await;
        }
    })
    .await;
    let [http, sni, mixed] = free_addrs();
    let routes = [
        route_to("h.test/", &format!("{}/", web.url().trim_end_matches('/')), ""),
        route("h.test/", raw.addr(), "proto=tcp"),
    ];
    let _ferrio = setup(&format!("{http},{sni};proto=tcp+sni,{mixed};proto=https+tcp+sni;cs=a"), &routes)
        .property(
            "proxy.cs",
            format!("cs=a;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .start()
        .await;
    for _ in 0..10 {
        assert_eq!(crate::testing::client::get(http, "h.test", "/").await.text(), "web");
        for addr in [sni, mixed] {
            assert_eq!(Client::connect_tls(addr, "h.test", ca.client(&[])).await.rest().await, b"raw");
        }
    }
}

/// A ClientHello with post-quantum keys, as one record.
fn client_hello(name: &str) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).expect("a name");
    let mut connection = rustls::ClientConnection::new(Ca::new().client(&[]), name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("into memory");
    hello
}

/// The same message in records of `size` bytes.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    hello[5..]
        .chunks(size)
        .flat_map(|part| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat())
        .collect()
}

#[tokio::test]
async fn a_client_hello_arrives_whole_however_it_was_cut() {
    let echo = TcpOrigin::echo().await;
    let [sni, mixed] = free_addrs();
    let routes = [route("h.test/", echo.addr(), "proto=tcp")];
    let _ferrio = setup(&format!("{sni};proto=tcp+sni,{mixed};proto=https+tcp+sni"), &routes).start().await;
    let hello = client_hello("H.test");
    assert!(hello.len() > 1200, "{} bytes: no post-quantum keys?", hello.len());
    for addr in [sni, mixed] {
        for bytes in [hello.clone(), in_records(&hello, 100), [&hello[..], &[7; 100_000]].concat()] {
            let mut client = Client::connect(addr).await;
            client.send(&bytes).await;
            assert_eq!(client.exact(bytes.len()).await, bytes);
        }
        let mut client = Client::connect(addr).await;
        client.send_slowly(in_records(&hello, 300)).await;
        assert_eq!(client.exact(hello.len() + 20).await.len(), hello.len() + 20);
    }
}

#[tokio::test]
async fn who_says_nothing_or_names_nobody_is_closed() {
    let echo = TcpOrigin::echo().await;
    let addr = free_addr();
    let routes = [route("h.test/", echo.addr(), "proto=tcp"), route(format!(":{}", addr.port()), echo.addr(), "")];
    let _ferrio = setup(&format!("{addr};proto=tcp+sni;rt=500ms"), &routes).start().await;
    for bytes in [vec![], client_hello("127.0.0.1"), client_hello("other.test"), b"SSH-2.0-x\r\n".to_vec()] {
        let mut client = Client::connect(addr).await;
        client.send(&bytes).await;
        assert_eq!(client.rest().await, b"");
    }
}

#[tokio::test]
async fn targets_that_cannot_be_reached_are_left_for_the_one_that_can() {
    let target = TcpOrigin::banner("hello").await;
    // One that takes no more connections, and so never answers: its queue is full.
    let full = tokio::net::TcpSocket::new_v4().expect("a socket");
    full.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let full = full.listen(1).expect("listening");
    let hole = full.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(hole)).await {
        waiting.push(connected.expect("loopback"));
    }
    let addr = free_addr();
    let key = format!(":{}", addr.port());
    let mut routes =
        vec![route(&key, hole, "connecttimeout=300ms"), route(&key, target.addr(), "connecttimeout=300ms")];
    // Nobody is there.
    routes.extend(free_addrs::<6>().map(|addr| route(&key, addr, "eject=0")));
    let _ferrio = setup(&format!("{addr};proto=tcp"), &routes).start().await;
    for _ in 0..16 {
        let mut client = Client::connect(addr).await;
        assert_eq!(soon("the greeting", client.exact(5)).await, b"hello");
    }
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard_at_once() {
    let target = TcpOrigin::banner("220 ready\r\n").await;
    let (plain, addr) = in_front_of(target.addr(), "", "").await;
    let (patient, waiting) = in_front_of(target.addr(), ";pxyproto=true;pxytimeout=300ms", "").await;
    for (addr, least) in [(addr, Duration::ZERO), (waiting, Duration::from_millis(300))] {
        let begun = Instant::now();
        let mut client = Client::connect(addr).await;
        assert_eq!(client.exact(11).await, b"220 ready\r\n");
        assert!(begun.elapsed() >= least);
    }
    drop((plain, patient));
}

#[tokio::test]
async fn the_client_of_a_proxy_header_is_the_one_that_counts() {
    let target = TcpOrigin::banner("hello").await;
    let options = "allow=ip:192.0.2.0/24";
    let listener = ";pxyproto=true;pxytimeout=10s";
    let (_ferrio, addr) = in_front_of(target.addr(), listener, options).await;
    let v2 = |command: u8, address: [u8; 12]| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([0x20 | command, 0x11, 0, 12 + 7]);
        header.extend(address);
        // Something that nobody has to know.
        header.extend([0xe0, 0, 4, 1, 2, 3, 4]);
        header
    };
    let from = [192, 0, 2, 1, 198, 51, 100, 1, 4, 210, 1, 187];
    for (header, served) in [
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 1234 443\r\n".to_vec(), true),
        (b"PROXY TCP4 203.0.113.1 198.51.100.1 1234 443\r\n".to_vec(), false),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 1234 443\r\n".to_vec(), false),
        // Ourselves, so to say: the address of the connection counts.
        (b"PROXY UNKNOWN\r\n".to_vec(), false),
        (v2(0, from), false),
        (v2(1, from), true),
        ([b"PROXY TCP4 ".as_slice(), &[b'1'; 110]].concat(), false),
    ] {
        let mut client = Client::connect(addr).await;
        client.send_slowly(&header).await;
        let heard = if served { client.exact(5).await } else { client.rest().await };
        assert_eq!(heard, if served { b"hello".as_slice() } else { b"" }, "{}", header.escape_ascii());
    }
}

#[tokio::test]
async fn a_connection_without_bytes_counts_no_bytes() {
    let target = TcpOrigin::echo().await;
    let [addr, metrics] = free_addrs();
    let routes = [route(format!(":{}", addr.port()), target.addr(), "")];
    let _ferrio = setup(&format!("{addr};proto=tcp,{metrics};proto=prometheus"), &routes)
        .property("metrics.target", "prometheus")
        .property("metrics.prefix", "p")
        .start()
        .await;
    let sample = async |name: &str| {
        let page = crate::testing::client::get(metrics, "h", "/metrics").await.text();
        let line = page.lines().find(|line| line.starts_with(name) && !line.starts_with('#')).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(-1.0)
    };
    for _ in 0..3 {
        let mut client = Client::connect(addr).await;
        client.finish().await;
        client.closed().await;
    }
    until(PATIENCE, "three connections", async || (sample("p_tcp_conn").await >= 3.0).then_some(())).await;
    assert!(sample("p_route_rx").await <= 0.0 && sample("p_route_tx").await <= 0.0);
}

#[tokio::test]
async fn dynamic_ports_come_and_go_and_connections_stay() {
    let consul = Consul::real().await;
    let echo = TcpOrigin::echo().await;
    let [admin, port] = free_addrs();
    let _ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("registry.consul.addr", consul.addr())
        .property("proxy.addr", "0.0.0.0:0;proto=tcp-dynamic")
        .property("ui.addr", admin)
        .start()
        .await;
    let tag = format!("urlprefix-:{} proto=tcp", port.port());
    let mut kept = Vec::new();
    for _ in 0..3 {
        consul.put("t", "t", echo.addr(), &[&tag], &["passing"]).await;
        until(PATIENCE, "the port", async || TcpStream::connect(port).await.ok()).await;
        let mut client = Client::connect(port).await;
        client.send("x").await;
        client.exact(1).await;
        kept.push(client);
        consul.drop("t").await;
        until(PATIENCE, "the end of the port", async || TcpStream::connect(port).await.err()).await;
        for client in &mut kept {
            client.send("y").await;
            assert_eq!(client.exact(1).await, b"y");
        }
    }
}

#[tokio::test]
async fn a_thousand_changes_of_the_table_cut_nobody() {
    let consul = Consul::real().await;
    let echo = TcpOrigin::echo().await;
    let [addr, admin] = free_addrs();
    let _ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .property("registry.consul.addr", consul.addr())
        .property("proxy.addr", format!("{addr};proto=tcp"))
        .property("ui.addr", admin)
        .start()
        .await;
    let tag = format!("urlprefix-:{} proto=tcp", addr.port());
    consul.put("t", "t", echo.addr(), &[&tag], &["passing"]).await;
    until(PATIENCE, "the route", async || {
        let mut stream = TcpStream::connect(addr).await.ok()?;
        stream.write_all(b"x").await.ok()?;
        (stream.read(&mut [0]).await.ok()? == 1).then_some(())
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..500 {
        clients.push(Client::connect(addr).await);
    }
    for n in 0..1000 {
        let own = if n % 2 == 0 { String::new() } else { format!("route del t :{}", addr.port()) };
        consul.kv_put("fabio/config", &format!("{own}\nroute add u /{n} http://127.0.0.1:1/")).await;
        if n % 20 == 0 {
            // Some of the changes are to be seen each for itself.
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        let client = &mut clients[n % 500];
        client.send("x").await;
        client.exact(1).await;
    }
    for client in &mut clients {
        client.send("y").await;
        assert_eq!(client.exact(1).await, b"y");
    }
}

#[tokio::test]
async fn the_end_waits_for_connections_as_long_as_it_may() {
    let echo = TcpOrigin::echo().await;
    for (wait, finishes) in [("10s", true), ("700ms", false)] {
        let addr = free_addr();
        let routes = [route(format!(":{}", addr.port()), echo.addr(), "")];
        let mut ferrio =
            setup(&format!("{addr};proto=tcp"), &routes).property("proxy.shutdownwait", wait).start().await;
        let mut client = Client::connect(addr).await;
        client.send("a").await;
        client.exact(1).await;
        let begun = Instant::now();
        ferrio.signal(Signal::TERM);
        until(PATIENCE, "nobody is let in", async || TcpStream::connect(addr).await.err()).await;
        client.send("b").await;
        assert_eq!(client.exact(1).await, b"b", "still served");
        if finishes {
            client.finish().await;
        }
        assert_eq!(client.rest().await, b"");
        assert_eq!(ferrio.process().wait(PATIENCE).await.code(), Some(0));
        let took = begun.elapsed();
        assert!(if finishes { took < Duration::from_secs(5) } else { took >= Duration::from_millis(700) }, "{took:?}");
    }
}

#[tokio::test]
async fn idle_connections_are_small() {
    const COUNT: usize = 2000;
    let echo = TcpOrigin::echo().await;
    let (mut ferrio, addr) = in_front_of(echo.addr(), "", "").await;
    let status = format!("/proc/{}/status", ferrio.process().id());
    let resident = || {
        let text = std::fs::read_to_string(&status).expect("it runs");
        let line = text.lines().find(|line| line.starts_with("RssAnon:")).expect("a kernel of today");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).expect("kB") * 1024
    };
    let mut clients = Vec::new();
    let open = async |clients: &mut Vec<Client>, count| {
        for _ in 0..count {
            let mut client = Client::connect(addr).await;
            client.send(vec![b'x'; 100]).await;
            client.exact(100).await;
            clients.push(client);
        }
    };
    open(&mut clients, 100).await;
    let before = resident();
    open(&mut clients, COUNT).await;
    let each = resident().saturating_sub(before) / COUNT;
    assert!(each < 4096, "{each} bytes per idle connection");
}

/// Answers with its name and what it got.
async fn datagrams(name: &'static str) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let addr = socket.local_addr().expect("bound");
    let task = tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let answer = [name.as_bytes(), b" ", from.port().to_string().as_bytes(), b" ", &buffer[..length]].concat();
            let _ = socket.send_to(&answer, from).await;
        }
    });
    (addr, task)
}

/// The words of the answer. Asks again only while nobody listens, and when an answer takes longer than `limit`.
async fn ask_again(socket: &UdpSocket, text: &str, limit: Duration) -> Option<Vec<String>> {
    let mut buffer = vec![0; 65536];
    for _ in 0..50 {
        socket.send(text.as_bytes()).await.expect("sent");
        let received = tokio::time::timeout(limit, socket.recv(&mut buffer)).await;
        if let Ok(Ok(length)) = received {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            return Some(text.split(' ').map(str::to_owned).collect());
        }
        // Refused: it does not listen yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn ask(socket: &UdpSocket, text: &str) -> Option<Vec<String>> {
    // The first datagram is answered: nothing is lost on loopback.
    soon("an answer", ask_again(socket, text, PATIENCE * 2)).await
}

async fn udp_client(addr: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    socket.connect(addr).await.expect("an address");
    socket
}

#[tokio::test]
async fn datagrams_have_sessions_that_end_when_idle() {
    let ((a, _a), (b, _b)) = (datagrams("a").await, datagrams("b").await);
    let tcp = TcpOrigin::banner("tcp").await;
    let addr = free_addr();
    let key = format!(":{}", addr.port());
    // The same port for both, as DNS needs it.
    let routes = [
        route_to(&key, &format!("udp://{a}"), ""),
        route_to(&key, &format!("udp://{b}"), ""),
        route(&key, tcp.addr(), ""),
    ];
    let _ferrio = setup(&format!("{addr};proto=tcp,{addr};proto=udp;rt=600ms"), &routes).start().await;
    assert_eq!(Client::connect(addr).await.exact(3).await, b"tcp");
    let mut names = Vec::new();
    for _ in 0..4 {
        let client = udp_client(addr).await;
        let first = ask(&client, "x").await.expect("an answer");
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(ask(&client, "x").await.as_ref(), Some(&first), "another session");
        }
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let later = ask(&client, "x").await.expect("an answer");
        assert_ne!(first[1], later[1], "the old session");
        names.extend([first[0].clone(), later[0].clone()]);
    }
    assert_eq!(names.iter().filter(|name| *name == "a").count(), 4, "{names:?}");
    let big = "y".repeat(40_000);
    assert_eq!(ask(&udp_client(addr).await, &big).await.expect("an answer")[2], big);
}

#[tokio::test]
async fn a_target_that_refuses_datagrams_is_left() {
    let (a, _a) = datagrams("a").await;
    let addr = free_addr();
    let key = format!(":{}", addr.port());
    let routes = [
        route_to(&key, &format!("udp://{}", free_addr()), ""),
        route_to(&key, &format!("udp://{a}"), ""),
        route_to(":1", &format!("udp://{a}"), "deny=ip:127.0.0.1"),
    ];
    let mut ferrio = setup(&format!("{addr};proto=udp"), &routes).spawn();
    let clients = [udp_client(addr).await, udp_client(addr).await, udp_client(addr).await];
    for client in &clients {
        let answer = soon("an answer", ask_again(client, "x", Duration::from_millis(300))).await.expect("an answer");
        assert_eq!(answer[0], "a");
    }
    // And after a few of them for everybody.
    for _ in 0..12 {
        let client = udp_client(addr).await;
        soon("an answer", ask_again(&client, "x", Duration::from_millis(100))).await.expect("an answer");
    }
    ferrio.process().says(PATIENCE, "is passed over").await;
    for _ in 0..4 {
        let client = udp_client(addr).await;
        assert_eq!(ask(&client, "x").await.expect("an answer")[0], "a");
    }
}

#[tokio::test]
async fn ranges_of_ports_are_routed_each() {
    // A range of free ports is hard to be sure of, so one of a single port, and a neighbour is tried when it is free.
    let echo = TcpOrigin::echo().await;
    let addr = free_addr();
    let port = addr.port();
    let routes = [route(format!(":{port}"), echo.addr(), "")];
    let _ferrio = setup(&format!("127.0.0.1:{port}-{port};proto=tcp"), &routes).spawn();
    let mut client = until(PATIENCE, "the port", async || TcpStream::connect(addr).await.ok()).await;
    client.write_all(b"x").await.expect("open");
    assert_eq!(soon("the echo", client.read(&mut [0])).await.expect("open"), 1);
}
