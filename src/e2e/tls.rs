//! TLS with a client that is not made of rustls.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::proxy::Start;
use crate::testing::certs::Ca;
use crate::testing::soon;

#[tokio::test]
async fn renegotiation_is_refused_at_once() {
    let ca = Ca::new();
    let leaf = ca.leaf(&["h"]);
    let (cert, key) = (leaf.cert_path.display(), leaf.key_path.display());
    let proxy = Start::routes("route add s / http://127.0.0.1:1/")
        .property("proxy.cs", format!("cs=c;type=file;cert={cert};key={key}"))
        .property("proxy.addr", "ADDR,MORE;cs=c;tlsmax=tls12")
        .start()
        .await;
    let mut client = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &proxy.more.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("openssl is installed, as scripts/test sees to it");
    let mut input = client.stdin.take().expect("piped");
    // A line `R` asks for it.
    input.write_all(b"R\n").await.expect("it runs");
    let mut said = BufReader::new(client.stderr.take().expect("piped")).lines();
    let refused = async {
        while let Some(line) = said.next_line().await.expect("text") {
            if line.to_lowercase().contains("no renegotiation") {
                return;
            }
        }
        panic!("the connection ended without a word");
    };
    soon("a refusal", refused).await;
    proxy.ends_well().await;
}
