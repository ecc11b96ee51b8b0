//! A corpus of requests that are ambiguous, malformed or hostile: a target never sees more of them, or others, than ferrio
//! has counted. The same corpus goes to targets with other parsers in scripts/peers/smuggling.

use std::collections::BTreeMap;

use crate::proxy::Start;
use crate::testing::client::Client;
use crate::testing::origin::Origin;
use crate::testing::{PATIENCE, until};

struct Case {
    name: &'static str,
    /// Requests that a target may see of it.
    most: usize,
    bytes: Vec<u8>,
}

/// Lines of a name, a number, and bytes with escapes. `@` becomes a path of its own.
fn corpus() -> Vec<Case> {
    let lines = include_str!("corpus/smuggling.txt").lines().filter(|line| !line.starts_with('#'));
    let case = |(line, number): (&'static str, usize)| {
        let mut words = line.splitn(3, ' ');
        let (name, most, text) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Case { name, most, bytes: unescape(&text.replace('@', &format!("c{number}"))) })
    };
    lines.zip(0..).map(|line| case(line).unwrap_or_else(|| panic!("{line:?}"))).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chars = text.bytes();
    while let Some(byte) = chars.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match chars.next().expect("an escape") {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                let digits = [chars.next().expect("a digit"), chars.next().expect("a digit")];
                let digits = std::str::from_utf8(&digits).expect("ASCII");
                bytes.push(u8::from_str_radix(digits, 16).expect("hex digits"));
            }
            other => bytes.push(other),
        }
    }
    bytes
}

fn count(requests: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_target_sees_no_more_than_was_counted() {
    let target = Origin::start("t").await;
    let proxy = Start::routes(format!("route add t / {}", target.url()))
        .property("proxy.addr", "ADDR;halfclose=true")
        .property("log.access.target", "file:access.log")
        .property("log.access.format", "$request_method $upstream_request_uri")
        .one_worker()
        .start()
        .await;
    let cases = corpus();
    assert!(cases.len() >= 150, "{}", cases.len());
    let mut wrong = Vec::new();
    for (case, number) in cases.iter().zip(0..) {
        let before = target.seen().len();
        let mut client: Client = proxy.client().await;
        // It may close before it has read everything.
        if client.try_send(&case.bytes).await.is_ok() {
            let _ = client.wire.stream.tcp();
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut client.wire.stream).await;
        }
        client.rest().await;
        let seen = &target.seen()[before..];
        let own = |seen: &crate::testing::origin::Seen| seen.target().starts_with(&format!("/c{number}"));
        if seen.len() > case.most || !seen.iter().all(own) {
            let targets: Vec<_> = seen.iter().map(|seen| &seen.head.line).collect();
            wrong.push(format!("{}: {} instead of {}: {targets:?}", case.name, seen.len(), case.most));
        }
        for seen in seen {
            let framings = ["content-length", "transfer-encoding"].map(|name| seen.head.all(name).len());
            if framings.iter().sum::<usize>() > 1 {
                wrong.push(format!("{}: several lengths in {:?}", case.name, seen.head));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = count(target.seen().iter().map(|seen| format!("{} {}", seen.method(), seen.target())));
    assert!(seen.len() > 20, "few requests got through: {seen:?}");
    let file = proxy.ferrio.dir().join("access.log");
    until(PATIENCE, "a line for every request that a target has seen", async || {
        let logged = std::fs::read_to_string(&file).unwrap_or_default();
        let logged = count(logged.lines().map(str::to_owned));
        seen.iter().all(|(request, times)| logged.get(request).is_some_and(|logged| logged >= times)).then_some(())
    })
    .await;
    // It is as good as before for everybody else.
    assert_eq!(proxy.get("h", "/after").await.text(), "t");
    proxy.ends_well().await;
}
