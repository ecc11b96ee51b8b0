#![allow(clippy::unwrap_used)]
//! Real handshakes over loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::*;
use crate::cert::testing::{Authority, Leaf, openssl};
use crate::cert::{self, Env};
use crate::listen::Proto;
use crate::net::TlsInfo;

pub(super) fn listener() -> Config {
    Config {
        addr: "127.0.0.1:0".into(),
        proto: Proto::Https,
        cert_source: Some("test".into()),
        read_timeout: Duration::ZERO,
        write_timeout: Duration::ZERO,
        idle_timeout: Duration::ZERO,
        proxy_protocol: false,
        proxy_header_timeout: Duration::ZERO,
        proxy_trusted: Vec::new(),
        half_close: false,
        h2c: false,
        redirect: None,
        client_auth: Default::default(),
        client_headers: false,
        strict_match: false,
        tls_min: 0,
        tls_max: 0,
        tls_ciphers: Vec::new(),
        refresh: Duration::ZERO,
    }
}

fn strict() -> Config {
    Config { strict_match: true, ..listener() }
}

/// Accepts, and echoes lines until the client closes.
struct Server {
    addr: SocketAddr,
    acceptor: Arc<Acceptor>,
    accepted: tokio::sync::mpsc::UnboundedReceiver<Result<TlsInfo, AcceptError>>,
}

impl Server {
    async fn new(config: &Config, store: Arc<Store>) -> Self {
        Self::with(Acceptor::new(config, store, None, &[b"http/1.1"]).unwrap(), Duration::from_secs(10)).await
    }

    async fn with(acceptor: Arc<Acceptor>, limit: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (report, accepted) = tokio::sync::mpsc::unbounded_channel();
        let shared = acceptor.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, report) = (shared.clone(), report.clone());
                tokio::spawn(async move {
                    match acceptor.accept(stream, addr.ip(), limit).await {
                        Ok((mut stream, info)) => {
                            let _ = report.send(Ok(info));
                            let mut buffer = [0; 1024];
                            while let Ok(n) = stream.read(&mut buffer).await {
                                if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
                                    break;
                                }
                            }
                            let _ = stream.shutdown().await;
                        }
                        Err(error) => {
                            let _ = report.send(Err(error));
                        }
                    }
                });
            }
        });
        Self { addr, acceptor, accepted }
    }

    async fn outcome(&mut self) -> Result<TlsInfo, AcceptError> {
        tokio::time::timeout(Duration::from_secs(20), self.accepted.recv()).await.expect("in time").expect("running")
    }

    async fn connect(&self, client: &Arc<ClientConfig>, name: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(self.addr).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut stream = TlsConnector::from(client.clone()).connect(name, stream).await?;
        // With TLS 1.3 a client is done before the server has seen its certificate.
        stream.write_all(b"hello\n").await?;
        let mut line = [0; 6];
        stream.read_exact(&mut line).await?;
        assert_eq!(&line, b"hello\n");
        Ok(stream)
    }

    /// DER of the certificate that is served.
    async fn served(&self, client: &Arc<ClientConfig>, name: &str) -> Option<Vec<u8>> {
        self.connect(client, name).await.ok().map(|stream| leaf(&stream))
    }
}

type Client = tokio_rustls::client::TlsStream<TcpStream>;

fn leaf(stream: &Client) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Trusts everybody and makes each handshake in full, so that what is served can be looked at.
fn anybody() -> Arc<ClientConfig> {
    client(|config| config.resumption = rustls::client::Resumption::disabled())
}

fn client(change: impl FnOnce(&mut ClientConfig)) -> Arc<ClientConfig> {
    let mut config = builder(rustls::ALL_VERSIONS).with_no_client_auth();
    change(&mut config);
    Arc::new(config)
}

fn builder(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(crate::cert::testing::AnyServer))
}

fn put(dir: &Path, name: &str, leaf: &Leaf) {
    std::fs::write(dir.join(format!("{name}-cert.pem")), &leaf.cert).unwrap();
    std::fs::write(dir.join(format!("{name}-key.pem")), &leaf.key).unwrap();
}

fn file_config(dir: &Path, name: &str) -> cert::CertSource {
    cert::testing::config(cert::Kind::File {
        cert: dir.join(format!("{name}-cert.pem")),
        key: dir.join(format!("{name}-key.pem")),
        client_ca: None,
    })
}

async fn store(sets: &[&[&str]]) -> Arc<Store> {
    let authority = Authority::new("ca");
    let store = Arc::new(Store::new());
    store.replace(sets.iter().map(|names| authority.leaf(names).certificate(names[0])).collect());
    store
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done().await {
        assert!(Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_file_source_serves_its_pair() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let a = authority.leaf(&["a.test"]);
    put(dir.path(), "a", &a);
    let source = cert::start(&file_config(dir.path(), "a"), &Env::process()).await.unwrap();
    let mut server = Server::new(&listener(), source.store()).await;

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifying = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let verifying = Arc::new(verifying.with_root_certificates(roots).with_no_client_auth());
    let stream = server.connect(&verifying, "a.test").await.unwrap();
    assert_eq!(leaf(&stream), a.der());
    let group = stream.get_ref().1.negotiated_key_exchange_group().unwrap();
    assert_eq!(group.name(), rustls::NamedGroup::X25519MLKEM768);
    let info = server.outcome().await.unwrap();
    assert_eq!((info.version, info.server_name.as_deref()), (0x0304, Some("a.test")));
    assert!((0x1301..=0x1303).contains(&info.cipher), "{:x}", info.cipher);
    // Unknown names and none get it, too.
    assert_eq!(server.served(&anybody(), "B.test").await.unwrap(), a.der());
    assert_eq!(server.served(&anybody(), "127.0.0.1").await.unwrap(), a.der());

    let report = source.report();
    assert_eq!((report.kind, report.certificates.len(), report.error), ("file", 1, None));
    assert_eq!(report.certificates[0].facts.names, ["a.test"]);
}

#[tokio::test]
async fn a_file_source_that_cannot_be_loaded_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let (a, b) = (authority.leaf(&["a.test"]), authority.leaf(&["b.test"]));
    put(dir.path(), "a", &a);
    put(dir.path(), "b", &b);
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("text"), "text").unwrap();
    for (cert, key, parts) in [
        ("nowhere", "a-key.pem", &["nowhere", "no such file"][..]),
        ("a-cert.pem", "nowhere", &["nowhere", "no such file"]),
        ("a-cert.pem", "b-key.pem", &["a-cert.pem", "does not belong"]),
        ("text", "a-key.pem", &["text", "no CERTIFICATE"]),
        ("a-cert.pem", "a-cert.pem", &["a-cert.pem", "no PRIVATE KEY"]),
        (".", "a-key.pem", &["directory"]),
    ] {
        let kind = cert::Kind::File { cert: path(cert), key: path(key), client_ca: None };
        let error = cert::start(&cert::testing::config(kind), &Env::process()).await.err().expect(cert).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{cert} {key}: {error}");
    }
}

/// The ways in which tools replace a certificate. Each must be noticed, and the connection from before lives on.
#[tokio::test]
async fn replaced_files_are_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let make = || authority.leaf(&["a.test"]);
    let first = make();
    let real = dir.path().join("0");
    std::fs::create_dir(&real).unwrap();
    put(&real, "a", &first);
    std::os::unix::fs::symlink("0", dir.path().join("live")).unwrap();
    let config = cert::CertSource { refresh: Duration::from_millis(50), ..file_config(&dir.path().join("live"), "a") };
    let source = cert::start(&config, &Env::process()).await.unwrap();
    let server = Server::new(&listener(), source.store()).await;
    let any = anybody();
    let mut kept = server.connect(&any, "a.test").await.unwrap();
    assert_eq!(leaf(&kept), first.der());

    let in_place = make();
    put(&real, "a", &in_place);
    until("files written in place", async || server.served(&any, "a.test").await.unwrap() == in_place.der()).await;

    let renamed = make();
    put(&real, "new", &renamed);
    for half in ["cert", "key"] {
        std::fs::rename(real.join(format!("new-{half}.pem")), real.join(format!("a-{half}.pem"))).unwrap();
        // Half of it is no reason to serve nothing.
        assert!(server.served(&any, "a.test").await.is_some());
    }
    until("renamed files", async || server.served(&any, "a.test").await.unwrap() == renamed.der()).await;

    let swapped = make();
    let other = dir.path().join("1");
    std::fs::create_dir(&other).unwrap();
    put(&other, "a", &swapped);
    std::os::unix::fs::symlink("1", dir.path().join("next")).unwrap();
    std::fs::rename(dir.path().join("next"), dir.path().join("live")).unwrap();
    until("a swapped link", async || server.served(&any, "a.test").await.unwrap() == swapped.der()).await;

    std::fs::write(other.join("a-key.pem"), "").unwrap();
    until("a report", async || !source.report().problems.is_empty()).await;
    assert_eq!(server.served(&any, "a.test").await.unwrap(), swapped.der());
    std::fs::remove_file(other.join("a-key.pem")).unwrap();
    until("an error", async || source.report().error.is_some()).await;
    assert_eq!(server.served(&any, "a.test").await.unwrap(), swapped.der());
    std::fs::write(other.join("a-key.pem"), &swapped.key).unwrap();
    until("its end", async || source.report().error.is_none() && source.report().problems.is_empty()).await;

    kept.write_all(b"still here").await.unwrap();
    let mut back = [0; 10];
    kept.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_disturb_no_handshake() {
    let authority = Authority::new("ca");
    let leaves: Vec<Leaf> = (0..4).map(|_| authority.leaf(&["a.test", "*.a.test"])).collect();
    let store = Arc::new(Store::new());
    store.replace(vec![leaves[0].certificate("0")]);
    let server = Arc::new(Server::new(&strict(), store.clone()).await);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let clients: Vec<_> = (0..8)
        .map(|n| {
            let (server, stopped) = (server.clone(), stopped.clone());
            tokio::spawn(async move {
                let client = anybody();
                let mut done = 0;
                while !*stopped.borrow() {
                    let name = if n % 2 == 0 { "a.test" } else { "b.a.test" };
                    server.connect(&client, name).await.expect("a handshake during a swap");
                    done += 1;
                }
                done
            })
        })
        .collect();
    for swap in 0..100 {
        store.replace(vec![leaves[swap % 4].certificate("0")]);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).unwrap();
    let mut done = 0;
    for client in clients {
        done += client.await.unwrap();
    }
    assert!(done > 50, "{done} handshakes");
}

#[tokio::test]
async fn strictmatch_refuses_with_an_alert() {
    let store = store(&[&["foo.com"], &["*.bar.com"]]).await;
    let mut server = Server::new(&strict(), store.clone()).await;
    let any = anybody();
    for (name, served) in [
        ("foo.com", true),
        ("a.bar.com", true),
        ("bar.com", false),
        ("a.b.bar.com", false),
        ("whiz.com", false),
        // No server name is sent for an address.
        ("127.0.0.1", false),
    ] {
        let result = server.connect(&any, name).await;
        let outcome = server.outcome().await;
        if served {
            result.expect(name);
            outcome.expect(name);
        } else {
            let text = result.expect_err(name).to_string();
            assert!(text.contains("UnrecognisedName"), "{name}: {text}");
            assert!(matches!(outcome, Err(AcceptError::NoCertificate(_))), "{name}");
        }
    }
    assert_eq!(server.acceptor.counts().of(Outcome::NoCertificate), 4);
    store.replace(Vec::new());
    let text = server.connect(&any, "foo.com").await.err().unwrap().to_string();
    assert!(text.contains("InternalError"), "{text}");
}

#[tokio::test]
async fn an_address_in_a_certificate_serves_clients_without_a_name() {
    let store = store(&[&["a.com"], &["b.com", "127.0.0.1"]]).await;
    let server = Server::new(&strict(), store).await;
    let shown = server.served(&anybody(), "127.0.0.1").await.unwrap();
    assert_eq!(cert::Facts::of(&shown).unwrap().names[0], "b.com");
}

#[tokio::test]
async fn versions_and_ciphers() {
    let store = store(&[&["a.test"]]).await;
    let old = Arc::new(builder(&[&rustls::version::TLS12]).with_no_client_auth());
    let new = Arc::new(builder(&[&rustls::version::TLS13]).with_no_client_auth());
    for (min, max, ciphers, old_works, new_works) in [
        (0, 0, &[][..], Some(()), Some(())),
        (0x0304, 0, &[], None, Some(())),
        (0, 0x0303, &[], Some(()), None),
        (0x0301, 0, &[], Some(()), Some(())),
        (0, 0x0303, &[0xc02b, 0xc02c], Some(()), None),
        // The key is an elliptic one.
        (0, 0x0303, &[0xc02f], None, None),
    ] {
        let mut config = listener();
        (config.tls_min, config.tls_max, config.tls_ciphers) = (min, max, ciphers.to_vec());
        let mut server = Server::new(&config, store.clone()).await;
        let got = server.connect(&old, "a.test").await.ok().map(drop);
        if let Ok(info) = server.outcome().await {
            assert_eq!(info.version, 0x0303);
            assert!(ciphers.is_empty() || ciphers.contains(&info.cipher));
        }
        assert_eq!(
            (got, server.connect(&new, "a.test").await.ok().map(drop)),
            (old_works, new_works),
            "{min:x} {max:x}"
        );
    }
}

#[tokio::test]
async fn protocols_are_negotiated_and_a_foreign_one_is_refused() {
    let server = Server::new(&listener(), store(&[&["a.test"]]).await).await;
    for (offered, want) in [
        (&[][..], Ok(None)),
        (&["http/1.1"], Ok(Some("http/1.1"))),
        (&["h2", "http/1.1"], Ok(Some("http/1.1"))),
        (&["acme-tls/1"], Err(())),
    ] {
        let client =
            client(|config| config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect());
        let got = server.connect(&client, "a.test").await;
        let got =
            got.map(|stream| stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap()));
        assert_eq!(got.as_ref().map(Option::as_deref).map_err(drop), want, "{offered:?}");
    }
}

#[tokio::test]
async fn clear_text_http_is_told_so() {
    let mut server = Server::new(&listener(), store(&[&["a.test"]]).await).await;
    let post = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n{}", "x".repeat(30000));
    for request in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", &post, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an end without a reset");
        let (head, line) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(head, "HTTP/1.0 400 Bad Request");
        assert!(line.contains("TLS") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
        drop(stream);
        assert!(matches!(server.outcome().await, Err(AcceptError::Plain)));
    }
}

#[tokio::test]
async fn what_is_no_tls_ends_quickly() {
    let mut server = Server::new(&listener(), store(&[&["a.test"]]).await).await;
    for bytes in
        [&b"\0\0\0\0\0\0\0\0"[..], b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02", &[0x16; 70000], b"ssh"]
    {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() < 20, "{answer:?}");
        assert!(
            matches!(server.outcome().await, Err(AcceptError::Tls(_) | AcceptError::Closed(_))),
            "{:?}",
            &bytes[..3]
        );
    }
    let stream = TcpStream::connect(server.addr).await.unwrap();
    drop(stream);
    assert!(matches!(server.outcome().await, Err(AcceptError::Closed(_))));
}

#[tokio::test]
async fn a_slow_client_is_cut_and_disturbs_nobody() {
    let acceptor = Acceptor::new(&listener(), store(&[&["a.test"]]).await, None, &[]).unwrap();
    let mut server = Server::with(acceptor, Duration::from_millis(400)).await;
    let mut slow = TcpStream::connect(server.addr).await.unwrap();
    slow.write_all(&[0x16, 3, 1]).await.unwrap();
    server.connect(&anybody(), "a.test").await.unwrap();
    server.outcome().await.unwrap();
    let mut end = Vec::new();
    let _ = slow.read_to_end(&mut end).await;
    assert!(matches!(server.outcome().await, Err(AcceptError::Timeout)));
}

#[tokio::test]
async fn too_many_handshakes_are_turned_away() {
    let acceptor = Acceptor::new(&listener(), store(&[&["a.test"]]).await, None, &[]).unwrap();
    let mut acceptor = Arc::into_inner(acceptor).unwrap();
    acceptor.limit = 3;
    let mut server = Server::with(Arc::new(acceptor), Duration::from_secs(30)).await;
    let slow: Vec<_> = {
        let mut slow = Vec::new();
        for _ in 0..3 {
            slow.push(TcpStream::connect(server.addr).await.unwrap());
        }
        slow
    };
    let pending = server.acceptor.clone();
    until("three of them", async || pending.pending.load(std::sync::atomic::Ordering::Relaxed) == 3).await;
    server.connect(&anybody(), "a.test").await.expect_err("turned away");
    assert!(matches!(server.outcome().await, Err(AcceptError::Busy)));
    drop(slow);
    until("the end of them", async || pending.pending.load(std::sync::atomic::Ordering::Relaxed) == 0).await;
    server.connect(&anybody(), "a.test").await.unwrap();
}

#[tokio::test]
async fn sessions_are_resumed() {
    let mut server = Server::new(&listener(), store(&[&["a.test"]]).await).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let before = server.acceptor.counts().resumed();
        let client = Arc::new(builder(&[version]).with_no_client_auth());
        for resumed in [false, true, true] {
            let mut stream = server.connect(&client, "a.test").await.unwrap();
            let kind = stream.get_ref().1.handshake_kind();
            assert_eq!(kind == Some(rustls::HandshakeKind::Resumed), resumed, "{version:?} {kind:?}");
            let _ = stream.shutdown().await;
            server.outcome().await.unwrap();
        }
        assert_eq!(server.acceptor.counts().resumed() - before, 2);
    }
    assert_eq!(server.acceptor.counts().of(Outcome::Done), 6);
}

#[tokio::test]
async fn a_client_hello_may_come_byte_by_byte() {
    let mut server = Server::new(&strict(), store(&[&["a.test"]]).await).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (target, addr) = (server.addr, relay.local_addr().unwrap());
    tokio::spawn(async move {
        let (near, _) = relay.accept().await.unwrap();
        let far = TcpStream::connect(target).await.unwrap();
        far.set_nodelay(true).unwrap();
        let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.into_split(), far.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut far_read, &mut near_write).await });
        let mut byte = [0];
        while near_read.read_exact(&mut byte).await.is_ok() {
            far_write.write_all(&byte).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    server.addr = addr;
    server.connect(&anybody(), "a.test").await.unwrap();
    assert_eq!(server.outcome().await.unwrap().server_name.as_deref(), Some("a.test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_agrees() {
    let Some(dir) = openssl::folder() else { return };
    let server = Server::new(&strict(), store(&[&["a.test"], &["B.test"]]).await).await;
    let addr = server.addr;
    for (options, want) in [
        ("-servername a.test", Ok("CN = a.test")),
        ("-servername A.TEST. -tls1_2", Ok("CN = a.test")),
        ("-servername b.test -tls1_3", Ok("CN = B.test")),
        ("-servername b.test -tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305", Ok("CN = B.test")),
        ("-servername c.test", Err("unrecognized name")),
        ("-noservername", Err("unrecognized name")),
        ("-servername a.test -tls1_1 -cipher ALL@SECLEVEL=0", Err("handshake failure")),
        ("-servername a.test -alpn foo", Err("no application protocol")),
    ] {
        let line = format!("openssl s_client -connect {addr} {options} </dev/null 2>&1 || true");
        let path = dir.path().to_owned();
        let output = tokio::task::spawn_blocking(move || openssl::run(&path, &line)).await.unwrap();
        let lower = output.to_lowercase().replace("cn=", "cn = ");
        match want {
            Ok(subject) => assert!(lower.contains(&subject.to_lowercase()), "{options}: {output}"),
            Err(alert) => assert!(lower.contains(alert), "{options}: {output}"),
        }
    }
}

/// A client that shows this certificate, if it is asked for one.
fn showing(leaf: Option<&Leaf>, version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    let builder = builder(&[version]);
    Arc::new(match leaf {
        None => builder.with_no_client_auth(),
        Some(leaf) => {
            let chain = CertificateDer::pem_slice_iter(leaf.cert.as_bytes()).collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// A server whose clients have to be in this file, which is looked at all the time.
async fn demanding(ca_file: &Path, demand: Demand, upgrade: Option<&str>) -> (Server, Arc<cert::Source>) {
    let dir = ca_file.parent().unwrap();
    put(dir, "a", &Authority::new("server-ca").leaf(&["a.test"]));
    let cert::CertSource { kind: cert::Kind::File { cert, key, .. }, .. } = file_config(dir, "a") else {
        unreachable!()
    };
    let config = cert::CertSource {
        refresh: Duration::from_millis(50),
        ca_upgrade_cn: upgrade.map(str::to_owned),
        ..cert::testing::config(cert::Kind::File { cert, key, client_ca: Some(ca_file.to_owned()) })
    };
    let source = cert::start(&config, &Env::process()).await.unwrap();
    let clients = Clients { authorities: source.authorities().unwrap(), demand };
    let acceptor = Acceptor::new(&listener(), source.store(), Some(clients), &[]).unwrap();
    (Server::with(acceptor, Duration::from_secs(10)).await, source)
}

const BOTH: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let between = ours.authority("between");
    let mut chained = between.leaf(&["chained.test"]);
    chained.cert.push_str(&between.pem());
    let (own, own_ca) = (Leaf::self_signed("own.test", false), Leaf::self_signed("own-ca.test", true));
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, format!("{}{}{}", ours.pem(), own.cert, own_ca.cert)).unwrap();
    for (demand, without) in [(Demand::Required, false), (Demand::Optional, true)] {
        let (mut server, _source) = demanding(&file, demand, None).await;
        for (name, leaf, works) in [
            ("of ours", Some(ours.leaf(&["client.test"])), true),
            ("through another authority", Some(chained.clone()), true),
            ("none", None, without),
            ("of another", Some(other.leaf(&["client.test"])), false),
            ("expired", Some(ours.leaf_valid(&["client.test"], -9, -1)), false),
            ("not yet valid", Some(ours.leaf_valid(&["client.test"], 1, 9)), false),
            ("listed itself", Some(own.clone()), true),
            ("listed itself, as authority", Some(own_ca.clone()), true),
            ("signed by itself, not listed", Some(Leaf::self_signed("own.test", false)), false),
        ] {
            for version in BOTH {
                let what = format!("{demand:?} {name} {version:?}");
                let result = server.connect(&showing(leaf.as_ref(), version), "a.test").await;
                assert_eq!(result.is_ok(), works, "{what} {:?}", result.err());
                match server.outcome().await {
                    Ok(info) => {
                        let shown = info.client.as_ref().map(|client| client.subject.clone());
                        let want = leaf.as_ref().map(|leaf| cert::Facts::of(leaf.der()).unwrap());
                        assert_eq!(shown, want.as_ref().map(|facts| facts.subject.clone()), "{what}");
                        if let (Some(client), Some(facts)) = (&info.client, want) {
                            assert_eq!(client.fingerprint, facts.fingerprint);
                            assert!(client.alternative[0].starts_with("DNS:"), "{:?}", client.alternative);
                        }
                    }
                    Err(error) => assert!(!works && matches!(error, AcceptError::Tls(_)), "{what} {error}"),
                }
            }
        }
        assert!(server.acceptor.counts().of(Outcome::ClientCertificate) >= 8);
    }
}

/// Somebody who may connect may not let others connect.
#[tokio::test]
async fn a_listed_client_is_no_authority() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    let (client, signed) = Leaf::signs("client.test", "victim.test");
    std::fs::write(&file, &client.cert).unwrap();
    let version = &rustls::version::TLS13;
    let (server, _source) = demanding(&file, Demand::Required, Some("somebody else")).await;
    server.connect(&showing(Some(&client), version), "a.test").await.unwrap();
    server.connect(&showing(Some(&signed), version), "a.test").await.expect_err("refused");
    // Unless the operator says so.
    let (server, _source) = demanding(&file, Demand::Required, Some("client.test")).await;
    server.connect(&showing(Some(&signed), version), "a.test").await.unwrap();
}

#[tokio::test]
async fn authorities_that_cannot_be_loaded_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    put(dir.path(), "a", &authority.leaf(&["a.test"]));
    let file = dir.path().join("ca.pem");
    let cert::Kind::File { cert, key, .. } = file_config(dir.path(), "a").kind else { unreachable!() };
    let config = cert::testing::config(cert::Kind::File { cert, key, client_ca: Some(file.clone()) });
    for (content, part) in [
        (None, "no such file"),
        (Some(String::new()), "no certificates"),
        (Some("text".to_owned()), "no certificates"),
        (Some(authority.pem()[..99].to_owned()), "broken PEM"),
        (Some(format!("{}{}", authority.pem(), authority.leaf(&["x"]).key)), "private key"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let error = cert::start(&config, &Env::process()).await.err().expect(part).to_string();
        assert!(error.contains(part) && error.contains("clientca"), "{part}: {error}");
    }
}

#[tokio::test]
async fn revoked_clients_are_refused_also_with_a_ticket() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, second) = (Authority::new("ours"), Authority::new("second"));
    let (good, bad, foreign) = (ours.leaf(&["good.test"]), ours.leaf(&["bad.test"]), second.leaf(&["x.test"]));
    let file = dir.path().join("ca.pem");
    let both = format!("{}{}", ours.pem(), second.pem());
    std::fs::write(&file, &both).unwrap();
    let (server, source) = demanding(&file, Demand::Required, None).await;
    for version in BOTH {
        let bad_leaf = &bad;
        let (good, bad) = (showing(Some(&good), version), showing(Some(&bad), version));
        for resumed in [false, true] {
            for client in [&good, &bad] {
                let stream = server.connect(client, "a.test").await.unwrap();
                let kind = stream.get_ref().1.handshake_kind();
                assert_eq!(kind == Some(rustls::HandshakeKind::Resumed), resumed, "{version:?}");
            }
        }
        let before = source.authorities().unwrap().generation();
        std::fs::write(&file, format!("{both}{}", ours.revoke(bad_leaf))).unwrap();
        until("the list", async || source.authorities().unwrap().generation() > before).await;
        server.connect(&good, "a.test").await.unwrap();
        server.connect(&bad, "a.test").await.expect_err("revoked");
        // An authority without a list.
        server.connect(&showing(Some(&foreign), version), "a.test").await.unwrap();

        // What is broken is not taken.
        let before = source.authorities().unwrap().generation();
        std::fs::write(&file, "broken").unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.connect(&good, "a.test").await.unwrap();
        server.connect(&bad, "a.test").await.expect_err("still revoked");
        assert_eq!(source.authorities().unwrap().generation(), before);
        std::fs::write(&file, &both).unwrap();
        until("the end of the list", async || source.authorities().unwrap().generation() > before).await;
        server.connect(&bad, "a.test").await.unwrap();
    }
}

/// A stand-in for Vault's PKI engine, which answers as its API documentation says.
#[tokio::test]
async fn certificates_are_issued_during_the_handshake() {
    let authority = Authority::new("vault");
    let addr = cert::testing::serve(move |request| {
        let (status, body) = match request.path.as_str() {
            "/v1/sys/wrapping/unwrap" => (400, serde_json::json!({ "errors": ["wrapping token is not valid"] })),
            "/v1/auth/token/lookup-self" => (200, serde_json::json!({ "data": { "ttl": 0, "expire_time": null } })),
            "/v1/pki/issue/web" if request.body.contains("good") => {
                let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
                let leaf = authority.leaf(&[body["common_name"].as_str().unwrap()]);
                let data = serde_json::json!({ "certificate": leaf.cert, "private_key": leaf.key });
                (200, serde_json::json!({ "data": data }))
            }
            _ => (400, serde_json::json!({ "errors": ["common name not allowed by this role"] })),
        };
        Some((status, String::new(), body.to_string()))
    })
    .await;
    let kind = cert::Kind::VaultPki { cert: "pki/issue/web".into(), client_ca: None };
    let env = Env::of(&[("VAULT_ADDR", &format!("http://{addr}")), ("VAULT_TOKEN", "plain")]);
    let source = cert::start(&cert::testing::config(kind), &env).await.unwrap();
    let mut server = Server::new(&listener(), source.store()).await;
    let any = anybody();
    for name in ["good.test", "Good.test", "also.good.test"] {
        let shown = server.served(&any, name).await.expect(name);
        assert_eq!(cert::Facts::of(&shown).unwrap().names, [name.to_lowercase()]);
        server.outcome().await.unwrap();
    }
    assert_eq!(source.report().certificates.len(), 2);
    for (name, alert) in [("bad.test", "InternalError"), ("127.0.0.1", "UnrecognisedName")] {
        let text = server.connect(&any, name).await.expect_err(name).to_string();
        assert!(text.contains(alert), "{name}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_for_vault_is_in_nobodys_way() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (authority, held, asked) =
        (Authority::new("vault"), Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (hold, seen) = (held.clone(), asked.clone());
    let addr = cert::testing::serve(move |request| {
        let (status, body) = match request.path.as_str() {
            "/v1/pki/issue/web" => {
                let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
                let name = body["common_name"].as_str().unwrap();
                if name == "slow.test" {
                    seen.store(true, Ordering::Relaxed);
                    // Or whatever else is queued for this thread waits, too.
                    tokio::task::block_in_place(|| {
                        while hold.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    });
                }
                let leaf = authority.leaf(&[name]);
                let data = serde_json::json!({ "certificate": leaf.cert, "private_key": leaf.key });
                (200, serde_json::json!({ "data": data }))
            }
            "/v1/auth/token/lookup-self" => (200, serde_json::json!({ "data": { "ttl": 0, "expire_time": null } })),
            _ => (400, serde_json::json!({ "errors": ["wrapping token is not valid"] })),
        };
        Some((status, String::new(), body.to_string()))
    })
    .await;
    let kind = cert::Kind::VaultPki { cert: "pki/issue/web".into(), client_ca: None };
    let env = Env::of(&[("VAULT_ADDR", &format!("http://{addr}")), ("VAULT_TOKEN", "plain")]);
    let source = cert::start(&cert::testing::config(kind), &env).await.unwrap();
    let acceptor = Acceptor::new(&listener(), source.store(), None, &[]).unwrap();
    let mut acceptor = Arc::into_inner(acceptor).unwrap();
    acceptor.limit = 1;
    let server = Arc::new(Server::with(Arc::new(acceptor), Duration::from_secs(30)).await);
    let any = anybody();
    server.served(&any, "good.test").await.expect("issued");
    let slow = {
        let (server, any) = (server.clone(), any.clone());
        tokio::spawn(async move { server.served(&any, "slow.test").await })
    };
    until("the question to Vault", async || asked.load(Ordering::Relaxed)).await;
    // One handshake at a time is allowed, and the one that waits is none.
    server.served(&any, "good.test").await.expect("served meanwhile");
    held.store(false, Ordering::Relaxed);
    assert!(slow.await.unwrap().is_some(), "issued in the end");
}
