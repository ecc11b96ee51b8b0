//! How targets are reached: TLS by names of the configuration, Unix sockets, kept connections.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::client;
use crate::testing::consul::Consul;
use crate::testing::origin::{self, Origin};
use crate::testing::{PATIENCE, until};

async fn rejects(proxy: &Proxy) -> String {
    client::get(proxy.admin, "h", "/api/rejects").await.text()
}

#[tokio::test]
async fn authorities_and_certificates_are_named_not_read() {
    let (ca, other) = (Ca::new(), Ca::new());
    let leaf = ca.leaf(&["web.internal"]);
    let origin = Origin::start_tls("secure", ca.server(&leaf, &[])).await;
    let url = format!("https://{}/", origin.addr());
    let routes = [
        ("/good", "cafile=corp servername=web.internal"),
        ("/host", "cafile=corp host=web.internal"),
        ("/address", "cafile=corp"),
        ("/wrong", "cafile=other servername=web.internal"),
        ("/system", "servername=web.internal"),
        ("/skip", "tlsskipverify=true"),
        ("/unknown", "cafile=none servername=web.internal"),
        ("/path", "cafile=/etc/passwd"),
        ("/cert", "clientcert=corp"),
    ];
    let text: String =
        routes.iter().map(|(path, opts)| format!("route add s {path} {url} opts \"{opts}\"\n")).collect();
    let files = format!("name=corp;ca={},name=other;ca={}", ca.path().display(), other.path().display());
    let proxy = Start::routes(text).property("proxy.targettls", files).start().await;
    for (path, status) in [
        ("/good", 200),
        ("/host", 200),
        ("/address", 502),
        ("/wrong", 502),
        ("/system", 502),
        ("/skip", 200),
        ("/unknown", 404),
        ("/path", 404),
        ("/cert", 404),
    ] {
        assert_eq!(proxy.get("h", path).await.status, status, "{path}");
    }
    let rejects = rejects(&proxy).await;
    for hint in ["cafile=none is not known", "not a path", "clientcert=corp is not known"] {
        assert!(rejects.contains(hint), "{hint}: {rejects}");
    }
}

#[tokio::test]
async fn a_target_may_ask_who_we_are() {
    let ca = Ca::new();
    let (leaf, me, stranger) = (ca.leaf(&["web.internal"]), ca.leaf(&["ferrio"]), Ca::new().leaf(&["stranger"]));
    let origin = Origin::start_tls("mutual", ca.mutual_server(&leaf)).await;
    let url = format!("https://{}/", origin.addr());
    let line = |path: &str, opts: &str| {
        format!("route add s {path} {url} opts \"cafile=corp servername=web.internal {opts}\"\n")
    };
    let text = [line("/me", "clientcert=me"), line("/nobody", ""), line("/stranger", "clientcert=stranger")].concat();
    let dir = tempfile::tempdir().expect("a directory");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, &stranger.cert_pem).expect("a file");
    std::fs::write(&key, &stranger.key_pem).expect("a file");
    let files = format!(
        "name=corp;ca={},name=me;cert={};key={},name=stranger;cert={};key={}",
        ca.path().display(),
        me.cert_path.display(),
        me.key_path.display(),
        cert.display(),
        key.display()
    );
    let proxy = Start::routes(text).property("proxy.targettls", files).start().await;
    assert_eq!(proxy.get("h", "/me").await.text(), "mutual");
    assert_eq!(proxy.get("h", "/nobody").await.status, 502);
    assert_eq!(proxy.get("h", "/stranger").await.status, 502);
    // Files that were replaced are read again.
    std::fs::write(&key, &me.key_pem).expect("a file");
    std::fs::write(&cert, &me.cert_pem).expect("a file");
    proxy.serves("h", "/stranger", "mutual").await;
}

#[tokio::test]
async fn a_unix_socket_is_a_target_where_that_is_allowed() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = vec![];
                while stream.read_buf(&mut head).await.is_ok_and(|n| n > 0) {
                    if head.ends_with(b"\r\n\r\n") {
                        let first = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}", first.len());
                        let _ = stream.write_all(answer.as_bytes()).await;
                        head.clear();
                    }
                }
            });
        }
    });
    let (inside, outside) = (dir.path().display(), "/var/run/other.sock");
    let text = format!(
        "route add a /a unix:{inside}/app.sock\nroute add b /b unix:{outside}\nroute add c /c unix:{inside}/../x.sock\n\
         route add d /d unix:{inside}/none.sock\n"
    );
    let proxy = Start::routes(&text).property("proxy.unixsockets", inside).start().await;
    for _ in 0..2 {
        assert_eq!(proxy.get("h", "/a/x?y").await.text(), "GET /a/x?y HTTP/1.1");
    }
    for (path, status) in [("/b", 404), ("/c", 404), ("/d", 502)] {
        assert_eq!(proxy.get("h", path).await.status, status, "{path}");
    }
    assert!(rejects(&proxy).await.contains("in no directory that proxy.unixsockets names"));
    let closed = Start::routes(&text).start().await;
    assert_eq!(closed.get("h", "/a").await.status, 404);
}

#[tokio::test]
async fn connections_are_given_up_after_their_time_and_their_number() {
    let origin = Origin::start("o").await;
    let route = format!("route add o / {}", origin.url());
    let proxy = Start::routes(&route).one_worker().property("proxy.connmaxrequests", 3).start().await;
    let mut client = proxy.client().await;
    for _ in 0..9 {
        assert_eq!(client.get("h", "/").await.status, 200);
    }
    let of = |n: usize| origin.seen().iter().filter(|seen| seen.connection == n).count();
    assert_eq!((origin.accepted(), of(0), of(1), of(2)), (3, 3, 3, 3));

    let origin = Origin::start("o").await;
    let route = format!("route add o / {}", origin.url());
    let proxy = Start::routes(&route).one_worker().property("proxy.connmaxage", "50ms").start().await;
    assert_eq!(proxy.get("h", "/").await.status, 200);
    until(PATIENCE, "the old connection is closed", async || (origin.open() == 0).then_some(())).await;
    assert_eq!(proxy.get("h", "/").await.status, 200);
    assert_eq!(origin.accepted(), 2);
}

#[tokio::test]
async fn idle_connections_are_counted_over_all_workers_and_end_with_their_target() {
    let origin = Origin::start("o").await;
    origin.on("/slow", origin::reply(200, &[], "o").after(Duration::from_millis(50)));
    let route = format!("route add o / {}", origin.url());
    let proxy = Start::routes(&route)
        .property("runtime.gomaxprocs", 4)
        .property("proxy.maxconn", 2)
        .property("proxy.idleconntimeout", "1h")
        .start()
        .await;
    crate::routing::all((0..32).map(async |_| assert_eq!(proxy.get("h", "/slow").await.status, 200))).await;
    assert!(origin.accepted() >= 8, "{}", origin.accepted());
    until(PATIENCE, "two idle connections", async || (origin.open() == 2).then_some(())).await;
    let other = Origin::start("p").await;
    proxy.set_routes(&format!("route add p / {}", other.url()));
    proxy.serves("h", "/", "p").await;
    until(PATIENCE, "none is left", async || (origin.open() == 0).then_some(())).await;
}

#[tokio::test]
async fn names_are_looked_up_and_addresses_of_version_6_reached() {
    let origin = Origin::start("o").await;
    let six = tokio::net::TcpListener::bind("[::1]:0").await;
    let text = format!("route add o /name http://localhost:{}/\n", origin.port());
    let (text, six) = match &six {
        Ok(six) => {
            let addr = six.local_addr().expect("bound");
            (format!("{text}route add o /six http://{addr}/\n"), Some(six))
        }
        // A machine without IPv6.
        Err(_) => (text, None),
    };
    let proxy = Start::routes(text).start().await;
    assert_eq!(proxy.get("h", "/name").await.text(), "o");
    if let Some(six) = six {
        let (answer, ()) = tokio::join!(proxy.get("h", "/six"), async {
            let (mut stream, _) = six.accept().await.expect("a connection");
            let mut head = vec![];
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.expect("a request");
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n6").await.expect("sent");
        });
        assert_eq!(answer.text(), "6");
    }
}

/// Certificate, key and name of a service in the mesh, and its roots, as the agent gives them.
async fn member(consul: &Consul, service: &str) -> (String, String, String) {
    let (_, leaf) = consul.call("GET", &format!("/v1/agent/connect/ca/leaf/{service}"), "").await;
    let leaf: serde_json::Value = serde_json::from_str(&leaf).expect("JSON");
    let (_, roots) = consul.call("GET", "/v1/agent/connect/ca/roots", "").await;
    let roots: serde_json::Value = serde_json::from_str(&roots).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    (text(&leaf["CertPEM"]), text(&leaf["PrivateKeyPEM"]), text(&roots["Roots"][0]["RootCert"]))
}

/// A server that is this service, and lets in who is of the mesh.
async fn native(consul: &Consul, service: &str, name: &str) -> Origin {
    let (cert, key, root) = member(consul, service).await;
    Origin::start_tls(name, crate::testing::certs::mutual_server(&root, &cert, &key)).await
}

#[tokio::test]
async fn a_member_of_the_mesh_is_known_by_its_uri() {
    let consul = Consul::real().await;
    let web = native(&consul, "web", "web").await;
    let impostor = native(&consul, "other", "impostor").await;
    let outsider = Origin::start_tls("outsider", {
        let ca = Ca::new();
        ca.server(&ca.leaf(&["web"]), &[])
    })
    .await;
    for (id, path, origin) in
        [("web-1", "/web", &web), ("web-2", "/impostor", &impostor), ("web-3", "/outsider", &outsider)]
    {
        let tag = format!("urlprefix-{path} connect=true");
        consul.put(id, "web", origin.addr(), &[&tag], &["passing"]).await;
    }
    let proxy = Start::consul(&consul).property("registry.consul.connect", "fabio");
    let proxy = proxy.property("proxy.connmaxrequests", 1).start().await;
    proxy.serves("h", "/web", "web").await;
    assert_eq!(proxy.get("h", "/impostor").await.status, 502);
    assert_eq!(proxy.get("h", "/outsider").await.status, 502);
    assert!(impostor.seen().is_empty() && outsider.seen().is_empty());

    let deny = r#"{"SourceName":"fabio","DestinationName":"web","Action":"deny"}"#;
    assert_eq!(consul.call("POST", "/v1/connect/intentions", deny).await.0, 200);
    until(PATIENCE, "the intention is heeded", async || (proxy.get("h", "/web").await.status == 502).then_some(()))
        .await;

    let stranger = Start::consul(&consul).start().await;
    assert_eq!(stranger.get("h", "/web").await.status, 404);
    assert!(rejects(&stranger).await.contains("set registry.consul.connect"));
}
