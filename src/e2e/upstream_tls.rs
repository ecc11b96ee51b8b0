//! TLS to targets: who is believed to be whom.

use crate::testing::certs::Ca;
use crate::testing::client;
use crate::testing::ferrio::Setup;
use crate::testing::free_addrs;
use crate::testing::origin::Origin;

/// `SSL_CERT_FILE` is where the roots of the system are looked for.
#[tokio::test]
async fn r104_targets_with_tls_are_verified_unless_their_route_says_otherwise() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let known = Origin::start_tls("known", ca.server(&ca.leaf(&["localhost"]), &["http/1.1"])).await;
    let foreign = Origin::start_tls("foreign", stranger.server(&stranger.leaf(&["localhost"]), &["http/1.1"])).await;
    let to = |path: &str, host: &str, origin: &Origin, options: &str| {
        format!("route add o {path} https://{host}:{}/ opts \"proto=https {options}\"", origin.port())
    };
    let routes = [
        to("/good", "localhost", &known, ""),
        to("/named", "127.0.0.1", &known, "host=localhost"),
        to("/wrong", "127.0.0.1", &known, ""),
        to("/foreign", "localhost", &foreign, ""),
        to("/any", "localhost", &foreign, "tlsskipverify=true"),
    ];
    let [addr, admin] = free_addrs();
    let mut ferrio = Setup::new(env!("CARGO_BIN_EXE_ferrio"))
        .env("SSL_CERT_FILE", &ca.path().display().to_string())
        .property("registry.backend", "file")
        .property("registry.file.path", "routes.txt")
        .file("routes.txt", &routes.join("\n"))
        .property("runtime.gomaxprocs", 1)
        .property("proxy.addr", addr)
        .property("ui.addr", admin)
        .start()
        .await;
    // Twice, in an order that would find connections of others if these were shared.
    for _ in 0..2 {
        for (path, status, body) in [
            ("/any", 200, "foreign"),
            ("/foreign", 502, ""),
            ("/good", 200, "known"),
            ("/wrong", 502, ""),
            ("/named", 200, "known"),
        ] {
            let response = client::get(addr, "h", path).await;
            assert_eq!(response.status, status, "{path}: {}", ferrio.stderr());
            if status == 200 {
                assert_eq!(response.text(), body, "{path}");
            }
        }
    }
    let log = ferrio.stderr();
    assert!(
        log.lines().any(|line| line.contains("[ERROR]") && line.contains("127.0.0.1") && line.contains("certificate")),
        "{log}"
    );
    assert_eq!(ferrio.stop().await, Some(0));
}
