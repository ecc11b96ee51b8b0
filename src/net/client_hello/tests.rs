#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::testing::certs::Ca;
use crate::testing::soon;

/// What rustls sends: TLS 1.3 with a post-quantum key share.
fn real(name: &str, alpn: &[&str]) -> Vec<u8> {
    let config = Ca::new().client(alpn);
    let server = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(&config), server).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn vector(width: usize, bytes: &[u8]) -> Vec<u8> {
    [&bytes.len().to_be_bytes()[8 - width..], bytes].concat()
}

fn record(fragment: &[u8]) -> Vec<u8> {
    [&[22, 3, 1], &vector(2, fragment)[..]].concat()
}

fn message_of(body: &[u8]) -> Vec<u8> {
    [&[1], &vector(3, body)[..]].concat()
}

/// A hello around these extensions, which may be none at all.
fn body(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = [&[3, 3], &[7; 32][..], &vector(1, &[1; 32]), &vector(2, &[0x13, 1]), &vector(1, &[0])].concat();
    if let Some(extensions) = extensions {
        body.extend(vector(2, extensions));
    }
    body
}

fn with(extensions: &[u8]) -> Vec<u8> {
    record(&message_of(&body(Some(extensions))))
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, data)].concat()
}

fn sni(names: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|(kind, name)| [&[*kind], &vector(2, name)[..]].concat()).collect();
    extension(0, &vector(2, &list))
}

/// Cuts the message in the first record into records of `size` bytes.
fn refragment(bytes: &[u8], size: usize) -> Vec<u8> {
    bytes[5..].chunks(size).flat_map(record).collect()
}

#[test]
fn the_name_is_found_in_real_hellos() {
    let bytes = real("a.example.com", &["h2", "http/1.1"]);
    assert!(bytes.len() > 1200, "{} bytes: no post-quantum share in it?", bytes.len());
    let want =
        ClientHello { server_name: Some("a.example.com".to_owned()), alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()] };
    assert_eq!(parse(&bytes).unwrap(), Some(want.clone()));
    // An address is not sent as a name (RFC 6066).
    assert_eq!(parse(&real("127.0.0.1", &[])).unwrap(), Some(ClientHello::default()));
    for size in [31, 100, 255, 512, 1000, 16384] {
        assert_eq!(parse(&refragment(&bytes, size)).unwrap(), Some(want.clone()), "in records of {size}");
    }
    assert!(matches!(parse(&refragment(&bytes, 2)), Err(Error::TooLong)), "in records of 2");
    let followed = [&bytes[..], &record(b"early data")].concat();
    assert_eq!(parse(&followed).unwrap(), Some(want));
}

#[test]
fn every_cut_asks_for_more() {
    let bytes = real("a.example.com", &["h2"]);
    for bytes in [refragment(&bytes, 100), bytes] {
        for cut in 0..bytes.len() {
            assert!(matches!(parse(&bytes[..cut]), Ok(None)), "cut at {cut} of {}", bytes.len());
        }
    }
}

#[test]
fn names() {
    let cases: &[(&str, Vec<u8>, Option<&str>)] = &[
        ("as sent", with(&sni(&[(0, b"A.Example.COM.")])), Some("A.Example.COM.")),
        ("first host name", with(&sni(&[(9, b"x"), (0, b"a"), (0, b"b")])), Some("a")),
        ("empty name", with(&sni(&[(0, b"")])), None),
        ("empty list", with(&sni(&[])), None),
        (
            "after others",
            with(&[extension(0xa0a, b""), extension(43, &[2, 3, 4]), sni(&[(0, b"a")])].concat()),
            Some("a"),
        ),
        ("no server name", with(&extension(23, b"")), None),
        ("no extension", with(b""), None),
        ("no extensions at all", record(&message_of(&body(None))), None),
        (
            "more in the record",
            record(&[&message_of(&body(Some(&sni(&[(0, b"a")])))), &[9, 9][..]].concat()),
            Some("a"),
        ),
    ];
    for (name, bytes, want) in cases {
        let found = parse(bytes).unwrap_or_else(|e| panic!("{name}: {e}")).unwrap_or_else(|| panic!("{name}: cut"));
        assert_eq!(found.server_name.as_deref(), *want, "{name}");
    }
}

#[test]
fn what_is_refused() {
    let odd_suites = [&[3, 3], &[7; 32][..], &vector(1, b""), &vector(2, &[0x13, 1, 2]), &vector(1, &[0])].concat();
    let long_session = [&[3, 3], &[7; 32][..], &vector(1, &[1; 33]), &vector(2, &[0x13, 1]), &vector(1, &[0])].concat();
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("HTTP", b"GET / HTTP/1.1\r\n".to_vec(), "not a TLS"),
        ("one byte of something else", vec![0x15], "not a TLS"),
        ("an alert", vec![0x15, 3, 1, 1, 0xf4, 1, 0, 1, 0xeb], "not a TLS"),
        ("record above 16384", vec![0x16, 3, 1, 0x40, 1, 1, 0, 0x3f, 0xfc], "not a TLS"),
        ("record of nothing", vec![0x16, 3, 1, 0, 0], "not a TLS"),
        ("not a client hello", vec![0x16, 3, 1, 0x40, 0, 2], "not a TLS"),
        ("message of nothing", vec![0x16, 3, 1, 0x40, 0, 1, 0, 0, 0], "message length"),
        ("message of 40 bytes", vec![0x16, 3, 1, 0x40, 0, 1, 0, 0, 40], "message length"),
        ("message of 16 MiB", vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff], "too long"),
        ("message above 16 KiB", vec![0x16, 3, 1, 0x40, 0, 1, 0, 0x40, 1], "too long"),
        ("an alert between fragments", [record(&[1, 0, 1, 0]), vec![0x15]].concat(), "record type"),
        ("nothing between fragments", [record(&[1, 0, 1, 0]), vec![0x16, 3, 1, 0, 0]].concat(), "record length"),
        ("odd cipher suites", record(&message_of(&odd_suites)), "cipher suites"),
        ("session id of 33 bytes", record(&message_of(&long_session)), "session id"),
        ("garbage", record(&message_of(&[0xff; 100])), "session id"),
        ("bytes behind the extensions", record(&message_of(&[&body(Some(b""))[..], b"x"].concat())), "extensions"),
        ("extension that does not fit", with(&[0, 0, 0, 9, 1]), "extension"),
        ("name list that does not fit", with(&extension(0, &[0, 9, 0, 0, 1, b'a'])), "server name"),
        ("name that does not fit", with(&extension(0, &[0, 4, 0, 0, 9, b'a'])), "server name"),
        ("bytes behind the name list", with(&extension(0, &[0, 4, 0, 0, 1, b'a', 0])), "server name"),
        ("name that is no text", with(&sni(&[(0, b"a\xff")])), "server name"),
        ("two names", with(&[sni(&[(0, b"a")]), sni(&[(0, b"b")])].concat()), "extension twice"),
        ("ALPN that does not fit", with(&extension(16, &[0, 2, 9, b'h'])), "ALPN"),
    ];
    for (name, bytes, want) in cases {
        match parse(bytes) {
            Err(e) => assert!(e.to_string().contains(want), "{name}: {e}"),
            Ok(found) => panic!("{name}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_byte_by_byte_and_in_two_records() {
    let hello = refragment(&real("a.example.com", &[]), 900);
    let sent = [&hello[..], b"early"].concat();
    let (mut client, mut server) = tokio::io::duplex(64);
    let mut reader = Reader::default();
    let send = async {
        for byte in &sent {
            client.write_all(&[*byte]).await.unwrap();
        }
        drop(client);
    };
    let read = async {
        let found = reader.read(&mut server).await.unwrap();
        assert_eq!(found.server_name.as_deref(), Some("a.example.com"));
        let mut all = Vec::new();
        super::super::Rewind::new(reader.into_read(), server).read_to_end(&mut all).await.unwrap();
        all
    };
    let ((), all) = soon("a hello", async { tokio::join!(send, read) }).await;
    assert!(all == sent);
}

#[tokio::test]
async fn bytes_that_are_no_hello_are_given_back_and_ends_are_seen() {
    let mut reader = Reader::default();
    assert!(matches!(reader.read(&mut &b"GET / HTTP/1.1\r\n\r\n"[..]).await, Err(Error::NotTls)));
    assert_eq!(reader.into_read(), &b"GET / HTTP/1.1\r\n\r\n"[..]);
    let hello = real("a", &[]);
    assert!(matches!(Reader::default().read(&mut &hello[..50]).await, Err(Error::Truncated)));
    assert!(matches!(Reader::default().read(&mut &b""[..]).await, Err(Error::Truncated)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    /// No panic, and more bytes never change a verdict.
    #[test]
    fn any_change(changes in proptest::collection::vec((0usize..400, any::<u8>()), 1..5), cut in 0usize..500, size in 20usize..300) {
        let hello = with(&[sni(&[(0, b"a.example.com")]), extension(16, &[0, 3, 2, b'h', b'2']), extension(5, &[1; 100])].concat());
        let mut bytes = refragment(&hello, size);
        let length = bytes.len();
        for (at, value) in changes {
            bytes[at % length] = value;
        }
        let cut = cut.min(length);
        match (parse(&bytes[..cut]), parse(&bytes)) {
            (Ok(Some(early)), Ok(Some(late))) => prop_assert_eq!(early, late),
            (Ok(Some(early)), late) => prop_assert!(false, "{early:?}, then {late:?}"),
            (Err(_), Ok(late)) => prop_assert!(false, "refused, then {late:?}"),
            _ => {}
        }
    }
}
