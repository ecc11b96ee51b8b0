#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;

/// A stream that yields one piece per read, is at its end after the last, and counts.
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    reads: usize,
}

impl Pieces {
    fn of(bytes: &[u8], size: usize) -> Self {
        Pieces { pieces: bytes.chunks(size.max(1)).map(<[u8]>::to_vec).collect(), reads: 0 }
    }

    fn left(&self) -> Vec<u8> {
        self.pieces.iter().flatten().copied().collect()
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.reads += 1;
        if let Some(mut piece) = self.pieces.pop_front() {
            let n = piece.len().min(buf.remaining());
            buf.put_slice(&piece[..n]);
            if n < piece.len() {
                self.pieces.push_front(piece.split_off(n));
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The streams above are always ready.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("pending on a stream that is always ready"),
    }
}

/// What is found in `bytes`, read in pieces of `size`, and what is left in the stream.
fn find(bytes: &[u8], size: usize) -> (Result<Header, String>, Vec<u8>) {
    let mut io = Pieces::of(bytes, size);
    let found = now(read_header(&mut io)).map_err(|e| e.to_string());
    (found, io.left())
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = V2_SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    header.extend(body);
    header
}

/// 192.0.2.1:1234 to 198.51.100.1:443
const V4_BODY: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0x04, 0xd2, 0x01, 0xbb];

fn v6_body() -> Vec<u8> {
    let mut body = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets().to_vec();
    body.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
    body.extend([0x04, 0xd2, 0x01, 0xbb]);
    body
}

fn with_checksum(body: &[u8], before: &[u8], after: &[u8], wrong: u32) -> Vec<u8> {
    let body = [body, before, &[TLV_CRC32C, 0, 4, 0, 0, 0, 0], after].concat();
    let mut header = v2(0x21, 0x11, &body);
    let sum = crc32c::sum(&[&header]) ^ wrong;
    let at = header.len() - after.len() - 4;
    header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    header
}

fn addresses(source: &str, destination: &str) -> Header {
    Header::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

/// Name, header, what it means.
fn good() -> Vec<(&'static str, Vec<u8>, Header)> {
    let v4 = || addresses("192.0.2.1:1234", "198.51.100.1:443");
    let v6 = || addresses("[2001:db8::1]:1234", "[2001:db8::2]:443");
    let unix = [0x2f; 216];
    vec![
        ("v1 TCP4", b"PROXY TCP4 192.0.2.1 198.51.100.1 1234 443\r\n".to_vec(), v4()),
        ("v1 TCP6", b"PROXY TCP6 2001:db8::1 2001:db8::2 1234 443\r\n".to_vec(), v6()),
        ("v1 TCP4, shortest", b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n".to_vec(), addresses("0.0.0.0:0", "0.0.0.0:0")),
        ("v1 TCP6, shortest", b"PROXY TCP6 :: :: 0 0\r\n".to_vec(), addresses("[::]:0", "[::]:0")),
        (
            "v1 TCP6, longest",
            b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"
                .to_vec(),
            addresses(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        (
            "v1 TCP6 with IPv4 literals",
            b"PROXY TCP6 192.0.2.1 ::ffff:198.51.100.1 1234 443\r\n".to_vec(),
            addresses("192.0.2.1:1234", "198.51.100.1:443"),
        ),
        ("v1, more words than six", b"PROXY TCP4 192.0.2.1 198.51.100.1 1234 443 more\r\n".to_vec(), v4()),
        ("v1 UNKNOWN", b"PROXY UNKNOWN\r\n".to_vec(), Header::Unknown),
        ("v1 UNKNOWN with addresses", b"PROXY UNKNOWN ::1 ::1 1 2\r\n".to_vec(), Header::Unknown),
        ("v1 UNKNOWN, 107 bytes", format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).into_bytes(), Header::Unknown),
        ("v2 IPv4", v2(0x21, 0x11, V4_BODY), v4()),
        ("v2 IPv4, datagrams", v2(0x21, 0x12, V4_BODY), v4()),
        ("v2 IPv4, a TLV", v2(0x21, 0x11, &[V4_BODY, &[0xea, 0, 3, 1, 2, 3]].concat()), v4()),
        ("v2 IPv4, padding", v2(0x21, 0x11, &[V4_BODY, &[0; 50]].concat()), v4()),
        ("v2 IPv4, a TLV that does not fit", v2(0x21, 0x11, &[V4_BODY, &[1, 0xff, 0xff, 1]].concat()), v4()),
        ("v2 IPv4, 4096 bytes", v2(0x21, 0x11, &[V4_BODY, &[4; 4084]].concat()), v4()),
        ("v2 IPv6", v2(0x21, 0x21, &v6_body()), v6()),
        ("v2 Unix", v2(0x21, 0x31, &unix), Header::Unix),
        ("v2 LOCAL", v2(0x20, 0x00, b""), Header::Local),
        ("v2 LOCAL with addresses", v2(0x20, 0x11, V4_BODY), Header::Local),
        ("v2 LOCAL, no known family", v2(0x20, 0xf7, b"whatever"), Header::Local),
        ("v2 checksum", with_checksum(V4_BODY, &[], &[], 0), v4()),
        ("v2 checksum between TLVs", with_checksum(V4_BODY, &[1, 0, 2, b'h', b'2'], &[4, 0, 1, 0], 0), v4()),
    ]
}

#[test]
fn headers_are_read_and_nothing_behind_them() {
    for behind in [&b""[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\n", &[0; 5000]] {
        for (name, header, want) in good() {
            let bytes = [&header[..], behind].concat();
            for size in [1, 2, 3, 7, 16, 100, bytes.len()] {
                let (found, left) = find(&bytes, size);
                assert_eq!(found, Ok(want.clone()), "{name}, in pieces of {size}");
                assert!(left == behind, "{name}, in pieces of {size}: {} bytes left of {}", left.len(), behind.len());
            }
        }
    }
}

#[test]
fn a_header_in_one_segment_costs_few_reads() {
    for (name, header, _) in good() {
        let mut io = Pieces::of(&header, header.len());
        now(read_header(&mut io)).unwrap();
        assert!(io.reads <= 48, "{name}: {} reads", io.reads);
    }
    let mut io = Pieces::of(b"PROXY TCP4 192.168.100.100 192.168.100.101 54321 443\r\n", 1000);
    now(read_header(&mut io)).unwrap();
    assert!(io.reads <= 9, "{} reads", io.reads);
}

#[test]
fn what_is_no_header_is_given_back() {
    for bytes in [
        &b""[..],
        b"P",
        b"PROX",
        b"POST / HTTP/1.1\r\n\r\n",
        b"PROPFIND / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r",
        b"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT",
        b"\r\n\r\n\0\r\nQUIX\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\0",
    ] {
        for size in [1, 4, 1000] {
            let mut io = Pieces::of(bytes, size);
            let found = now(read_header(&mut io)).unwrap();
            let Header::Absent { read } = &found else { panic!("{found:?} in {bytes:?}") };
            assert_eq!([&read[..], &io.left()].concat(), bytes, "nothing lost, in pieces of {size}");
            assert!(read.len() <= V1_SHORTEST);
        }
    }
}

#[test]
fn bad_headers_are_errors() {
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("v1 no family", b"PROXY\r\n".to_vec(), "line too short"),
        ("v1 empty family", b"PROXY \r\n".to_vec(), "line too short"),
        ("v1 short line alone", b"PROXY NO\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 other family", b"PROXY NONSENSE\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 lower case", b"PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 family that only begins so", b"PROXY TCP44 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 UNKNOWNX", b"PROXY UNKNOWNX\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 no space after PROXY", b"PROXYTCP4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), "TCP4, TCP6 nor UNKNOWN"),
        ("v1 one address", b"PROXY TCP4 1.2.3.4\r\n".to_vec(), "address"),
        ("v1 names", b"PROXY TCP4 a.b.c.d 5.6.7.8 1 2\r\n".to_vec(), "address"),
        ("v1 IPv6 as TCP4", b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), "address"),
        ("v1 zone", b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n".to_vec(), "address"),
        ("v1 two spaces", b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), "address"),
        ("v1 tab", b"PROXY TCP4 1.2.3.4\t5.6.7.8 1 2\r\n".to_vec(), "address"),
        ("v1 no ports", b"PROXY TCP4 1.2.3.4 5.6.7.8\r\n".to_vec(), "port"),
        ("v1 one port", b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n".to_vec(), "port"),
        ("v1 empty port", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 \r\n".to_vec(), "port"),
        ("v1 port 65536", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n".to_vec(), "port"),
        ("v1 port with a sign", b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n".to_vec(), "port"),
        ("v1 negative port", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 -2\r\n".to_vec(), "port"),
        ("v1 LF alone", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n".to_vec(), "LF without CR"),
        ("v1 CR inside", b"PROXY UNKNOWN \r x\r\n".to_vec(), "CR without LF"),
        ("v1 not ASCII", b"PROXY UNKNOWN \xff\r\n".to_vec(), "not ASCII"),
        ("v1 108 bytes", format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).into_bytes(), "too long"),
        ("v1 without end", format!("PROXY UNKNOWN {}", "x".repeat(5000)).into_bytes(), "too long"),
        ("v1 TCP4 without end", format!("PROXY TCP4 {}", "1".repeat(5000)).into_bytes(), "too long"),
        ("v1 cut", b"PROXY".to_vec(), "incomplete"),
        ("v1 cut before LF", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r".to_vec(), "incomplete"),
        ("v2 cut after the signature", V2_SIGNATURE.to_vec(), "incomplete"),
        ("v2 cut in the addresses", v2(0x21, 0x11, V4_BODY)[..20].to_vec(), "incomplete"),
        ("v2 cut LOCAL", v2(0x20, 0x11, V4_BODY)[..20].to_vec(), "incomplete"),
        ("v2 version 1", v2(0x11, 0x11, V4_BODY), "version 2: version"),
        ("v2 version 5", v2(0x51, 0x11, V4_BODY), "version 2: version"),
        ("v2 command 2", v2(0x22, 0x11, V4_BODY), "command"),
        ("v2 too short for IPv4", v2(0x21, 0x11, &V4_BODY[..11]), "family or length"),
        ("v2 too short for IPv6", v2(0x21, 0x21, V4_BODY), "family or length"),
        ("v2 too short for Unix", v2(0x21, 0x31, &[0; 215]), "family or length"),
        ("v2 PROXY, unspecified family", v2(0x21, 0x00, b""), "unspecified family"),
        ("v2 PROXY, unspecified transport", v2(0x21, 0x10, V4_BODY), "unspecified transport"),
        ("v2 no such family", v2(0x21, 0x41, V4_BODY), "family or length"),
        ("v2 no such transport", v2(0x21, 0x13, V4_BODY), "family or length"),
        ("v2 4097 bytes", v2(0x21, 0x11, &[0; 4097]), "too long"),
        ("v2 65535 bytes, none sent", v2(0x20, 0x00, &[0; 65535])[..16].to_vec(), "too long"),
        ("v2 wrong checksum", with_checksum(V4_BODY, &[], &[], 1), "checksum"),
        ("v2 cut checksum", v2(0x21, 0x11, &[V4_BODY, &[TLV_CRC32C, 0, 4, 0]].concat()), "checksum"),
        ("v2 checksum of 3 bytes", v2(0x21, 0x11, &[V4_BODY, &[TLV_CRC32C, 0, 3, 0, 0, 0]].concat()), "checksum"),
    ];
    for (name, header, want) in cases {
        for size in [1, 3, 1000] {
            let (found, _) = find(&header, size);
            let error = found.expect_err(name);
            // How much of a line that is too short was read before its end was seen depends on the pieces.
            let short = error.contains("line too short") || error.contains("TCP4, TCP6 nor UNKNOWN");
            let either = short && (want == "line too short" || want == "TCP4, TCP6 nor UNKNOWN");
            assert!(error.contains(want) || either, "{name}, in pieces of {size}: {error}");
        }
    }
}

#[test]
fn a_wrong_start_is_refused_before_the_rest_is_there() {
    for start in [&b"PROXY NONSENSE!"[..], b"PROXY \n", b"\r\n\r\n\0\r\nQUIT\n\x51", b"\r\n\r\n\0\r\nQUIT\n\x2f"] {
        assert!(next(start).is_err(), "{start:?}");
    }
}

#[test]
fn giving_up_loses_nothing_and_forgives_nothing() {
    for (bytes, absent) in [(&b""[..], true), (b"P", true), (b"PROX", true), (b"\r\n\r\n", true), (b"PROXY T", false)] {
        let mut reader = Reader::default();
        // A peer that has sent `bytes` and then waits.
        let (mut theirs, mut ours) = tokio::io::duplex(100);
        now(tokio::io::AsyncWriteExt::write_all(&mut theirs, bytes)).unwrap();
        for _ in 0..2 {
            // Dropped, as by a time-out, and taken up again.
            let mut waiting = pin!(reader.read(&mut ours));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        match reader.give_up() {
            Ok(Header::Absent { read }) if absent => assert_eq!(read, bytes),
            Err(Error::Truncated) if !absent => {}
            other => panic!("{other:?} for {bytes:?}"),
        }
    }
}

#[test]
fn v1_lines() {
    for (client, local, want) in [
        ("1.2.3.4:5", "6.7.8.9:10", "PROXY TCP4 1.2.3.4 6.7.8.9 5 10\r\n"),
        ("[::ffff:1.2.3.4]:5", "[::ffff:6.7.8.9]:10", "PROXY TCP4 1.2.3.4 6.7.8.9 5 10\r\n"),
        ("[2001:db8::1]:5", "[::1]:10", "PROXY TCP6 2001:db8::1 ::1 5 10\r\n"),
        ("[2001:db8::1]:5", "1.2.3.4:10", "PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 5 10\r\n"),
        ("1.2.3.4:5", "[::1]:10", "PROXY TCP6 ::ffff:1.2.3.4 ::1 5 10\r\n"),
    ] {
        let (client, local) = (client.parse::<SocketAddr>().unwrap(), local.parse::<SocketAddr>().unwrap());
        let line = v1_line(client, local);
        assert_eq!(line, want);
        let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let back = Header::Proxied { source: canonical(client), destination: canonical(local) };
        assert_eq!(find(line.as_bytes(), 1000).0, Ok(back), "{line}");
    }
}

/// Bytes that get past the signature often enough: a good header with some bytes changed, cut, or followed by others.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let mutated =
        (0..good().len(), proptest::collection::vec((0usize..300, any::<u8>()), 0..4), any::<usize>(), any::<bool>())
            .prop_map(|(which, changes, cut, cuts)| {
                let mut bytes = good()[which].1.clone();
                for (at, value) in changes {
                    let at = at % bytes.len();
                    bytes[at] = value;
                }
                if cuts {
                    bytes.truncate(cut % (bytes.len() + 1));
                }
                bytes
            });
    let signed = (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(first, rest)| [if first { b"PROXY TCP6 " } else { V2_SIGNATURE }, &rest].concat());
    let lines = "PROXY (TCP4|TCP6|UNKNOWN)[ 0-9a-f:.]{0,100}\r\n".prop_map(String::into_bytes);
    prop_oneof![4 => mutated, 2 => signed, 2 => lines, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes: no panic, the same meaning however it is cut, not a byte beyond the header, none lost.
    #[test]
    fn any_bytes(bytes in hostile(), size in 1usize..64, behind in proptest::collection::vec(any::<u8>(), 0..20)) {
        let bytes = [bytes, behind].concat();
        let (whole, left) = find(&bytes, bytes.len());
        let (pieces, pieces_left) = find(&bytes, size);
        let read = &bytes[..bytes.len() - left.len()];
        match whole {
            Ok(Header::Absent { read: back }) => prop_assert_eq!(&back, read),
            Ok(header) => {
                let length = if read.starts_with(V1_SIGNATURE) {
                    bytes.iter().position(|&b| b == b'\n').unwrap() + 1
                } else {
                    V2_FIXED + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]))
                };
                prop_assert_eq!(read.len(), length);
                prop_assert_eq!(pieces, Ok(header));
                prop_assert_eq!(left, pieces_left);
            }
            Err(_) => prop_assert!(pieces.is_err()),
        }
    }
}
