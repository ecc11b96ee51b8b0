#![allow(clippy::unwrap_used)]
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[test]
fn loopback_hosts() {
    for (host, expected) in [
        ("localhost", true),
        ("LOCALHOST", true),
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("[::1]", true),
        ("::1", true),
        ("10.0.0.1", false),
        ("consul.example.com", false),
        ("localhost.example.com", false),
    ] {
        assert_eq!(is_loopback(host), expected, "{host}");
    }
}

#[tokio::test]
async fn bodies_are_bounded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let _ = socket.read(&mut buffer).await.unwrap();
            let long = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789";
            socket.write_all(long).await.unwrap();
        }
    });
    let client = Client::new(Settings { direct: true, ..Default::default() }).unwrap();
    let get = async || client.current().get(format!("http://{address}/")).send().await.unwrap();
    assert_eq!(body(get().await, 10).await.unwrap(), "0123456789");
    assert!(matches!(body(get().await, 9).await, Err(BodyError::TooLong(9))));
}

#[tokio::test]
async fn errors_keep_urls_to_themselves() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(Settings { direct: true, ..Default::default() }).unwrap();
    let error = client.current().get(format!("http://{address}/?token=hidden")).send().await.unwrap_err();
    let text = explain(error);
    assert!(!text.contains("hidden") && text.contains("refused"), "{text}");
}

/// A certificate authority in a folder.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `file.crt` and `file.key`, each by rename.
    fn leaf(&self, file: &str, name: &str) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        for (ending, text) in [("key", key.serialize_pem()), ("crt", cert.pem())] {
            let new = self.path("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, self.path(&format!("{file}.{ending}"))).unwrap();
        }
    }

    fn roots(&self) -> rustls::RootCertStore {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(tls::certificates(&self.path("ca.pem")).unwrap());
        roots
    }
}

/// A TLS server that answers with the certificate its client showed (as hex), or `none`. Closes after each answer.
async fn echo_certificate(authority: &Authority, name: &str, clients: bool) -> SocketAddr {
    use rustls_pki_types::PrivateKeyDer;
    use rustls_pki_types::pem::PemObject;
    authority.leaf("server", name);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = if clients {
        let roots = Arc::new(authority.roots());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let certs = tls::certificates(&authority.path("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(builder.with_single_cert(certs, key).unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await;
            let seen = stream.get_ref().1.peer_certificates();
            let text = seen.map_or("none".to_owned(), |c| c[0].iter().map(|b| format!("{b:02x}")).collect());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len());
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

async fn get(client: &Client, url: &str) -> Result<String, String> {
    let response = client.current().get(url).send().await.map_err(explain)?;
    Ok(String::from_utf8(body(response, 1 << 20).await.unwrap().to_vec()).unwrap())
}

fn settings(ca: &Path) -> Settings {
    let tls = Tls { ca_file: Some(ca.to_owned()), ..Tls::default() };
    Settings { https: true, direct: true, tls, ..Settings::default() }
}

#[tokio::test]
async fn servers_are_verified() {
    let authority = Authority::new();
    let address = echo_certificate(&authority, "server.dc1.consul", false).await;
    let by_name = format!("https://server.dc1.consul:{}/", address.port());
    let alias = Some(("server.dc1.consul".to_owned(), "127.0.0.1".to_owned()));
    let other = Authority::new();
    let ca = authority.path("ca.pem");
    let good = Settings { alias: alias.clone(), ..settings(&ca) };
    let folder =
        Settings { tls: Tls { ca_path: Some(authority.folder.path().to_owned()), ..Tls::default() }, ..good.clone() };
    let skip = Settings { tls: Tls { insecure_skip_verify: true, ..Tls::default() }, ..settings(&ca) };
    for (name, settings, url, expected) in [
        ("by the name it has", good.clone(), by_name.clone(), true),
        ("with a directory of authorities", folder, by_name.clone(), true),
        ("by another name", settings(&ca), format!("https://{address}/"), false),
        ("by another authority", Settings { alias, ..settings(&other.path("ca.pem")) }, by_name, false),
        ("not at all", skip, format!("https://{address}/"), true),
    ] {
        let result = get(&Client::new(settings).unwrap(), &url).await;
        assert_eq!(result.is_ok(), expected, "{name}: {result:?}");
    }
}

#[tokio::test]
async fn a_replaced_client_certificate_is_used_for_the_next_connection() {
    let authority = Authority::new();
    authority.leaf("client", "one");
    let address = echo_certificate(&authority, "localhost", true).await;
    let mut settings = settings(&authority.path("ca.pem"));
    settings.tls.cert_file = Some(authority.path("client.crt"));
    settings.tls.key_file = Some(authority.path("client.key"));
    let client = Client::new(settings).unwrap();
    let url = format!("https://localhost:{}/", address.port());
    let first = get(&client, &url).await.unwrap();
    assert_ne!(first, "none");
    // A pair that does not fit keeps the last one.
    std::fs::write(authority.path("client.key"), "half").unwrap();
    tokio::time::sleep(LOOK_EVERY + Duration::from_millis(50)).await;
    assert_eq!(get(&client, &url).await.unwrap(), first);
    authority.leaf("client", "two");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if get(&client, &url).await.unwrap() != first {
            return;
        }
        assert!(Instant::now() < deadline, "the new certificate is never used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn tls_files_that_do_not_fit() {
    let authority = Authority::new();
    authority.leaf("a", "a");
    authority.leaf("b", "b");
    std::fs::write(authority.path("empty"), "").unwrap();
    let file = |name: &str| Some(authority.path(name));
    for (name, tls) in [
        ("a certificate alone", Tls { cert_file: file("a.crt"), ..Tls::default() }),
        ("a key alone", Tls { key_file: file("a.key"), ..Tls::default() }),
        ("the key of another", Tls { cert_file: file("a.crt"), key_file: file("b.key"), ..Tls::default() }),
        ("no such file", Tls { ca_file: file("none"), ..Tls::default() }),
        ("an empty file", Tls { ca_file: file("empty"), ..Tls::default() }),
        ("no such directory", Tls { ca_path: file("none"), ..Tls::default() }),
    ] {
        let tls = Tls { ca_file: tls.ca_file.or_else(|| file("ca.pem").filter(|_| tls.ca_path.is_none())), ..tls };
        assert!(Client::new(Settings { https: true, tls: tls.clone(), ..Settings::default() }).is_err(), "{name}");
        // Without TLS they do not matter.
        assert!(Client::new(Settings { tls, ..Settings::default() }).is_ok(), "{name}");
    }
}

#[tokio::test]
async fn unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1024];
        let n = socket.read(&mut buffer).await.unwrap();
        let head = String::from_utf8_lossy(&buffer[..n]).into_owned();
        let first = head.lines().next().unwrap().to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}", first.len());
        socket.write_all(answer.as_bytes()).await.unwrap();
    });
    let client = Client::new(Settings { unix_socket: Some(path), ..Settings::default() }).unwrap();
    assert_eq!(get(&client, "http://localhost/v1/agent/self").await.unwrap(), "GET /v1/agent/self HTTP/1.1");
}
