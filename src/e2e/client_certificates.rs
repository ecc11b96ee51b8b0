//! Certificates of clients: who has to show one, and what targets are told.

use crate::proxy::Start;
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::origin::Origin;

#[tokio::test]
async fn targets_are_told_who_the_client_is_and_never_by_the_client() {
    let (origin, ca, other) = (Origin::start("o").await, Ca::new(), Ca::new());
    let (server, known, stranger) = (ca.leaf(&["h"]), ca.leaf(&["client.test"]), other.leaf(&["client.test"]));
    let (cert, key, authority) = (server.cert_path.display(), server.key_path.display(), ca.path());
    let proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property("proxy.cs", format!("cs=c;type=file;cert={cert};key={key};clientca={}", authority.display()))
        .property("proxy.addr", "ADDR,MORE;cs=c;clientauth=optional;clientheaders=true")
        .start()
        .await;
    let forged = "GET / HTTP/1.1\r\nHost: h\r\nX-SSL-Client-Verify: SUCCESS\r\nX_SSL_Client_S-DN: CN=admin\r\n\
                  X-SSL-Client-Cert: x\r\nConnection: X-SSL-Client-Verify, X-SSL-Client-S-DN\r\n\r\n";
    // The other listener does not set them, and leads to the same target.
    proxy.raw(forged).await;
    let seen = origin.last();
    assert!(!seen.head.fields.iter().any(|(name, _)| name.to_lowercase().contains("ssl")), "{:?}", seen.head);

    let mut nobody = Client::connect_tls(proxy.more, "h", ca.client(&[])).await;
    nobody.send(forged).await;
    assert_eq!(nobody.response().await.status, 200);
    let seen = origin.last();
    assert_eq!((seen.header("x-ssl-client-verify"), seen.header("x-ssl-client-s-dn")), (Some("NONE"), None));
    assert_eq!((seen.header("x_ssl_client_s-dn"), seen.header("x-ssl-client-cert")), (None, None));

    // Twice: a session that is resumed is still this client's.
    let config = ca.client_with(&[], &known);
    for _ in 0..2 {
        let mut client = Client::connect_tls(proxy.more, "h", config.clone()).await;
        client.send(forged).await;
        assert_eq!(client.response().await.status, 200);
        let seen = origin.last();
        assert_eq!(seen.header("x-ssl-client-verify"), Some("SUCCESS"));
        let subject = seen.header("x-ssl-client-s-dn").expect("a subject");
        assert!(subject.split(',').any(|part| part == "CN=client.test"), "{subject}");
        assert!(seen.header("x-ssl-client-i-dn").is_some_and(|issuer| issuer.contains("CN=throw-away authority")));
        assert_eq!(seen.header("x-ssl-client-san"), Some("DNS:client.test"));
        let fingerprint = seen.header("x-ssl-client-sha256").expect("a fingerprint");
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &known.chain()[0]);
        let want: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(fingerprint, want);
    }

    let mut refused = Client::connect(proxy.more).await.try_tls("h", ca.client_with(&[], &stranger)).await;
    if let Ok(client) = &mut refused {
        // With TLS 1.3 the client is done first and hears of it with the first read.
        let _ = client.try_send(forged).await;
        assert!(client.rest().await.is_empty(), "a stranger is served");
    }
    proxy.ends_well().await;
}
