//! HTTP/2 from clients, frame by frame: what RFC 9113 asks of a server, and what somebody may try who breaks its rules.

use std::sync::Arc;
use std::time::Duration;

use crate::proxy::{Proxy, Start};
use crate::testing::certs::Ca;
use crate::testing::client::Client;
use crate::testing::origin::{self, Gate, Origin};
use crate::testing::{PATIENCE, until};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const NO_ERROR: u32 = 0;
const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE: u32 = 6;
const REFUSED: u32 = 7;
const COMPRESSION: u32 = 9;
const CALM: u32 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Debug, PartialEq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields as literals that change no table (RFC 7541, section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// With a prefix of seven bits, no Huffman code.
fn integer(block: &mut Vec<u8>, mut n: usize) {
    if n < 127 {
        return block.push(n as u8);
    }
    block.push(127);
    n -= 127;
    while n >= 128 {
        block.push((n % 128 + 128) as u8);
        n /= 128;
    }
    block.push(n as u8);
}

const GET: &[(&str, &str)] = &[(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block(GET))
}

/// GET with more fields.
fn with(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block(&[GET, more].concat()))
}

struct Raw(Client);

impl Raw {
    /// After the first SETTINGS of both sides.
    async fn connect(proxy: &Proxy) -> Raw {
        let mut raw = Raw(proxy.client().await);
        raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, [])].concat()).await;
        let first = raw.frame().await.expect("SETTINGS");
        assert_eq!((first.kind, first.flags, first.stream), (SETTINGS, 0, 0), "section 3.4");
        raw.send(&frame(SETTINGS, ACK, 0, [])).await;
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        // Whoever floods may find the door closed.
        let _ = self.0.try_send(bytes).await;
    }

    /// `None`: closed.
    async fn frame(&mut self) -> Option<Frame> {
        let wire = &mut self.0.wire;
        let reading = async {
            let head = wire.exact(9).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let payload = wire.exact(length).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            Some(Frame { kind: head[3], flags: head[4], stream, payload })
        };
        crate::testing::soon("a frame", reading).await
    }

    /// The next one of this kind. Panics at the end.
    async fn of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.unwrap_or_else(|| panic!("closed instead of a frame {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// How the connection or the stream ends: the code of GOAWAY (`Err`) or RST_STREAM (`Ok`); a mere close is `Err(None)`.
    async fn end(&mut self) -> Result<u32, Option<u32>> {
        loop {
            match self.frame().await {
                None => return Err(None),
                Some(frame) if frame.kind == GOAWAY => return Err(Some(code(&frame.payload[4..]))),
                Some(frame) if frame.kind == RST_STREAM => return Ok(code(&frame.payload)),
                Some(_) => {}
            }
        }
    }

    /// The first byte of the field block of the next response: an index of HPACK for the usual statuses.
    async fn status(&mut self) -> u8 {
        self.of(HEADERS).await.payload[0]
    }
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]])
}

/// Indexed `:status` 200, 204, 206, 304, 400, 404, 500.
const OK: u8 = 0x88;
const BAD_REQUEST: u8 = 0x8c;

async fn proxy(origin: &Origin) -> Proxy {
    let routes = format!("route add o / {}", origin.url());
    Start::routes(routes).property("proxy.addr", "ADDR;h2c=true").start().await
}

#[tokio::test]
async fn prior_knowledge_is_for_listeners_that_allow_it() {
    let origin = Origin::start("o").await;
    let yes = proxy(&origin).await;
    let mut raw = Raw::connect(&yes).await;
    raw.send(&get(1)).await;
    assert_eq!(raw.status().await, OK);
    assert_eq!(raw.of(DATA).await.payload, b"o");
    // HTTP/1.1 on the same port, also when the first bytes come one by one.
    assert_eq!(yes.get("h", "/").await.text(), "o");
    for request in ["PRINT / HTTP/1.1\r\nHost: h\r\n\r\n", "PRI / HTTP/1.1\r\nHost: h\r\n\r\n"] {
        let mut slow = yes.client().await;
        slow.send_slowly(request).await;
        assert_eq!(slow.response().await.text(), "o", "{request}");
    }
    let mut slow = Raw(yes.client().await);
    slow.0.send_slowly([PREFACE, &frame(SETTINGS, 0, 0, []), &get(1)].concat()).await;
    assert_eq!(slow.status().await, OK);

    let no = Start::routes(format!("route add o / {}", origin.url())).start().await;
    let mut client = no.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, [])].concat()).await;
    let answer = client.rest().await;
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 400") || answer.starts_with(b"HTTP/1.1 505"),
        "{answer:?}"
    );
    // The upgrade is dropped, and the request served.
    let before = origin.seen().len();
    let mut client = yes.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
        .await;
    assert_eq!((client.response().await.status, origin.seen().len()), (200, before + 1));
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(origin.last().header(name), None, "{name}");
    }
}

/// Whoever breaks a rule of the connection loses it; the section says which rule.
#[tokio::test]
async fn errors_of_the_connection() {
    let origin = Origin::start("o").await;
    let proxy = proxy(&origin).await;
    let long = block(&[(":method", "GET"), ("x", &"y".repeat(20_000))]);
    let cases: Vec<(&str, Vec<u8>, &[u32])> = vec![
        ("4.2 a frame larger than allowed", frame(DATA, 0, 1, vec![0; 20_000]), &[FRAME_SIZE]),
        ("4.3 a block that is none", frame(HEADERS, 5, 1, [0xff; 20]), &[COMPRESSION]),
        ("4.3 an index that is none", frame(HEADERS, 5, 1, [0xfe]), &[COMPRESSION]),
        ("5.1 DATA on an idle stream", frame(DATA, 0, 1, b"x"), &[PROTOCOL]),
        ("5.1 RST_STREAM on an idle stream", frame(RST_STREAM, 0, 1, [0; 4]), &[PROTOCOL]),
        ("5.1 WINDOW_UPDATE on an idle stream", frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]), &[PROTOCOL]),
        ("5.1.1 an even stream", get(2), &[PROTOCOL]),
        ("5.1.1 a stream that goes back", [get(5), get(3)].concat(), &[PROTOCOL, STREAM_CLOSED]),
        ("6.1 DATA on stream 0", frame(DATA, 0, 0, b"x"), &[PROTOCOL]),
        ("6.1 more padding than there is", frame(DATA, PADDED, 1, [9, 1, 1]), &[PROTOCOL]),
        ("6.2 HEADERS on stream 0", get(0), &[PROTOCOL]),
        ("6.2 more padding than there is", frame(HEADERS, 5 | PADDED, 1, [99, 0]), &[PROTOCOL]),
        ("6.2 HEADERS inside of a block", [frame(HEADERS, 1, 1, block(GET)), get(3)].concat(), &[PROTOCOL]),
        (
            "6.2 DATA inside of a block",
            [frame(HEADERS, 0, 1, block(GET)), frame(DATA, 0, 1, b"x")].concat(),
            &[PROTOCOL],
        ),
        ("6.3 PRIORITY on stream 0", frame(PRIORITY, 0, 0, [0; 5]), &[PROTOCOL]),
        ("6.4 RST_STREAM on stream 0", frame(RST_STREAM, 0, 0, [0; 4]), &[PROTOCOL]),
        ("6.4 RST_STREAM of a wrong size", [get(1), frame(RST_STREAM, 0, 1, [0; 3])].concat(), &[FRAME_SIZE]),
        ("6.5 SETTINGS on a stream", frame(SETTINGS, 0, 1, []), &[PROTOCOL]),
        ("6.5 SETTINGS of a wrong size", frame(SETTINGS, 0, 0, [0; 5]), &[FRAME_SIZE]),
        ("6.5 an acknowledgement with settings", frame(SETTINGS, ACK, 0, [0; 6]), &[FRAME_SIZE]),
        ("6.5.2 ENABLE_PUSH that is neither", frame(SETTINGS, 0, 0, [0, 2, 0, 0, 0, 2]), &[PROTOCOL]),
        ("6.5.2 a window that is too large", frame(SETTINGS, 0, 0, [0, 4, 0x80, 0, 0, 0]), &[FLOW_CONTROL, PROTOCOL]),
        ("6.5.2 frames that are too small", frame(SETTINGS, 0, 0, [0, 5, 0, 0, 0x3f, 0xff]), &[PROTOCOL]),
        ("6.6 a client that pushes", frame(PUSH_PROMISE, 4, 1, [0, 0, 0, 2]), &[PROTOCOL]),
        ("6.7 PING of a wrong size", frame(PING, 0, 0, [0; 7]), &[FRAME_SIZE]),
        ("6.7 PING on a stream", frame(PING, 0, 1, [0; 8]), &[PROTOCOL]),
        ("6.8 GOAWAY on a stream", frame(GOAWAY, 0, 1, [0; 8]), &[PROTOCOL]),
        ("6.9 WINDOW_UPDATE of a wrong size", frame(WINDOW_UPDATE, 0, 0, [0; 3]), &[FRAME_SIZE]),
        ("6.9 WINDOW_UPDATE by nothing", frame(WINDOW_UPDATE, 0, 0, [0; 4]), &[PROTOCOL]),
        ("6.9.1 a window that overflows", frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff]), &[FLOW_CONTROL]),
        ("6.10 CONTINUATION of nothing", frame(CONTINUATION, 4, 1, block(GET)), &[PROTOCOL]),
        (
            "6.10 CONTINUATION of another stream",
            [frame(HEADERS, 1, 1, block(GET)), frame(CONTINUATION, 4, 3, [])].concat(),
            &[PROTOCOL],
        ),
        (
            "6.10 an unknown frame inside of a block",
            [frame(HEADERS, 1, 1, block(GET)), frame(0xee, 0, 1, [])].concat(),
            &[PROTOCOL],
        ),
        ("4.2 a block larger than a frame", frame(HEADERS, 5, 1, long), &[FRAME_SIZE]),
    ];
    for (name, bytes, codes) in &cases {
        let mut raw = Raw::connect(&proxy).await;
        raw.send(bytes).await;
        let end = raw.end().await;
        // The h2 crate calls some errors of sizes and compression errors of the protocol.
        let expected = |code| codes.contains(&code) || code == PROTOCOL && *codes != [FLOW_CONTROL];
        assert!(matches!(end, Err(Some(code)) if expected(code)), "{name}: {end:?}");
        // And then the connection is closed.
        until(PATIENCE, "a close", async || raw.frame().await.is_none().then_some(())).await;
    }
    assert_eq!(cases.len(), 34);
    for wrong in [&b"GET / HTTP/2.0\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        let mut client = proxy.client().await;
        client.send(wrong).await;
        client.finish().await;
        let answer = client.rest().await;
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "3.4 {answer:?}");
    }
    proxy.ends_well().await;
}

/// Malformed requests cost their stream, or are answered with 400; the connection goes on, and no target sees them.
#[tokio::test]
async fn errors_of_streams() {
    let origin = Origin::start("o").await;
    let proxy = proxy(&origin).await;
    let head = |fields: &[(&str, &str)]| frame(HEADERS, END_STREAM | END_HEADERS, 1, block(fields));
    let without = |name: &str| {
        let fields: Vec<_> = GET.iter().copied().filter(|(known, _)| *known != name).collect();
        head(&fields)
    };
    let open = |more: &[(&str, &str)]| frame(HEADERS, END_HEADERS, 1, block(&[GET, more].concat()));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("8.2.1 upper case", with(1, &[("X-Upper", "1")])),
        ("8.2.1 a space in a name", with(1, &[("x y", "1")])),
        ("8.2.1 a colon in a name", with(1, &[("x:y", "1")])),
        ("8.2.1 a line break in a value", with(1, &[("x", "a\r\nb: c")])),
        ("8.2.1 a NUL in a value", with(1, &[("x", "a\0b")])),
        ("8.2.1 an empty name", with(1, &[("", "1")])),
        ("8.2.2 connection", with(1, &[("connection", "close")])),
        ("8.2.2 keep-alive", with(1, &[("keep-alive", "1")])),
        ("8.2.2 proxy-connection", with(1, &[("proxy-connection", "close")])),
        ("8.2.2 transfer-encoding", with(1, &[("transfer-encoding", "chunked")])),
        ("8.2.2 upgrade", with(1, &[("upgrade", "websocket")])),
        ("8.2.2 te", with(1, &[("te", "gzip")])),
        ("8.3 an unknown pseudo-field", with(1, &[(":x", "1")])),
        ("8.3 a response's pseudo-field", with(1, &[(":status", "200")])),
        ("8.3 a pseudo-field behind fields", with(1, &[("x", "1"), (":path", "/")])),
        ("8.3.1 no method", without(":method")),
        ("8.3.1 no path", without(":path")),
        ("8.3.1 no scheme", without(":scheme")),
        ("8.3.1 no authority and no host", without(":authority")),
        ("8.3.1 two methods", with(1, &[(":method", "GET")])),
        ("8.3.1 two paths", head(&[GET, &[(":path", "/")]].concat())),
        ("8.3.1 an empty path", head(&[(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "")])),
        (
            "8.3.1 a path that is none",
            head(&[(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "x")]),
        ),
        ("8.3.1 a host of somebody else", with(1, &[("host", "other")])),
        ("8.3.1 userinfo", head(&[(":method", "GET"), (":scheme", "http"), (":authority", "u@h"), (":path", "/")])),
        ("8.5 CONNECT", head(&[(":method", "CONNECT"), (":authority", "h:443")])),
        ("8.1.1 less than announced", [open(&[("content-length", "5")]), frame(DATA, 1, 1, b"abc")].concat()),
        ("8.1.1 more than announced", [open(&[("content-length", "2")]), frame(DATA, 1, 1, b"abc")].concat()),
        ("8.1.1 two lengths", with(1, &[("content-length", "0"), ("content-length", "1")])),
        ("8.1 trailers without an end", [open(&[]), frame(HEADERS, 4, 1, block(&[("x", "y")]))].concat()),
        ("5.3.1 depends on itself", frame(HEADERS, 5 | 0x20, 1, [&[0, 0, 0, 1, 9][..], &block(GET)].concat())),
    ];
    for (name, bytes) in &cases {
        let mut raw = Raw::connect(&proxy).await;
        let before = origin.seen().len();
        raw.send(bytes).await;
        let refused = loop {
            match raw.frame().await {
                None => break "closed".to_owned(),
                Some(frame) if frame.kind == RST_STREAM => break format!("reset {}", code(&frame.payload)),
                Some(frame) if frame.kind == GOAWAY => break format!("go away {}", code(&frame.payload[4..])),
                Some(frame) if frame.kind == HEADERS => break format!("status {:x}", frame.payload[0]),
                Some(_) => {}
            }
        };
        assert_ne!(refused, "status 88", "{name}");
        if refused.starts_with("reset") || refused.starts_with("status") {
            raw.send(&get(3)).await;
            let next = loop {
                let frame = raw.of(HEADERS).await;
                if frame.stream == 3 {
                    break frame.payload[0];
                }
            };
            assert_eq!(next, OK, "{name}: {refused}, and then");
            let whole = origin.seen().iter().skip(before).filter(|seen| seen.method() != "GET").count();
            assert_eq!(whole, 0, "{name}");
        }
    }
    assert_eq!(cases.len(), 31);
    proxy.ends_well().await;
}

#[tokio::test]
async fn what_is_allowed_is_served() {
    let origin = Origin::start("o").await;
    let proxy = proxy(&origin).await;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("6.2 padding and priority", {
            let payload = [&[3, 0, 0, 0, 0, 16][..], &block(GET), &[0, 0, 0]].concat();
            frame(HEADERS, 5 | PADDED | 0x20, 1, payload)
        }),
        ("6.10 a block in pieces", {
            let block = block(GET);
            let (a, b) = block.split_at(7);
            [frame(HEADERS, 1, 1, a), frame(CONTINUATION, 0, 1, []), frame(CONTINUATION, 4, 1, b)].concat()
        }),
        ("5.5 unknown frames", [frame(0xee, 0xff, 0, b"x"), frame(0xef, 0, 1, b"y"), get(1)].concat()),
        ("6.3 priority of an idle stream", [frame(PRIORITY, 0, 7, [0, 0, 0, 0, 9]), get(1)].concat()),
        ("6.5.2 unknown settings", [frame(SETTINGS, 0, 0, [0xaa, 0xaa, 1, 2, 3, 4]), get(1)].concat()),
        ("8.2.2 te: trailers", with(1, &[("te", "trailers")])),
        ("8.3.1 a host that is the authority", with(1, &[("host", "h")])),
        ("8.3.1 host instead of authority", {
            let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "h")];
            frame(HEADERS, 5, 1, block(&fields))
        }),
        ("8.1 trailers", {
            let open = frame(HEADERS, END_HEADERS, 1, block(GET));
            [open, frame(DATA, 0, 1, b"abc"), frame(HEADERS, 5, 1, block(&[("x", "y")]))].concat()
        }),
        ("6.1 padded and empty data", {
            let open = frame(HEADERS, END_HEADERS, 1, block(GET));
            let data = [frame(DATA, PADDED, 1, [2, b'a', 0, 0]), frame(DATA, 0, 1, []), frame(DATA, 1, 1, b"b")];
            [open, data.concat()].concat()
        }),
        ("5.1.1 skipped streams", get(101)),
    ];
    for (name, bytes) in &cases {
        let mut raw = Raw::connect(&proxy).await;
        raw.send(bytes).await;
        assert_eq!(raw.status().await, OK, "{name}");
        raw.send(&frame(PING, 0, 0, b"12345678")).await;
        let pong = raw.of(PING).await;
        assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]), "6.7 after {name}");
    }
    // 8.2.3: crumbs come together, which is one field for HTTP/1.1.
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&with(1, &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")])).await;
    assert_eq!(raw.status().await, OK);
    assert_eq!(origin.last().header("cookie"), Some("a=1; b=2"));
    assert_eq!(origin.last().header("host"), Some("h"));
}

#[tokio::test]
async fn frames_on_streams_that_are_over() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    origin.on("/held", origin::reply(200, &[], "o").behind(&gate));
    let proxy = proxy(&origin).await;
    let held = |stream| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/held")];
        frame(HEADERS, 5, stream, block(&fields))
    };
    for (name, bytes) in
        [("5.1 DATA when half closed", frame(DATA, 1, 1, b"x")), ("5.1 HEADERS when half closed", get(1))]
    {
        let mut raw = Raw::connect(&proxy).await;
        raw.send(&[held(1), bytes].concat()).await;
        let end = raw.end().await;
        let closed = [Ok(STREAM_CLOSED), Err(Some(STREAM_CLOSED)), Ok(PROTOCOL), Err(Some(PROTOCOL))];
        assert!(closed.contains(&end), "{name}: {end:?}");
    }
    // A stream that was reset may still get what was on its way.
    let mut raw = Raw::connect(&proxy).await;
    raw.send(
        &[held(1), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]), get(3)].concat(),
    )
    .await;
    assert_eq!(raw.of(HEADERS).await.stream, 3);
    gate.open();
}

#[tokio::test]
async fn limits_on_streams_and_heads() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    origin.on("/held", origin::reply(200, &[], "o").behind(&gate));
    let routes = format!("route add o / {}", origin.url());
    let start = Start::routes(routes).property("proxy.addr", "ADDR;h2c=true");
    let proxy = start.property("proxy.maxheadersize", 16 * 1024).property("proxy.maxheaders", 50).start().await;
    // 5.1.2
    let mut raw = Raw(proxy.client().await);
    raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, [])].concat()).await;
    let settings = raw.of(SETTINGS).await.payload;
    let setting = |id: u16| settings.chunks(6).find(|s| s[..2] == id.to_be_bytes()).map(|s| code(&s[2..]));
    let streams = setting(3).expect("a limit");
    assert_eq!((setting(6), setting(8)), (Some(16 * 1024), Some(1)), "heads; RFC 8441");
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/held")];
    for n in 0..=streams {
        raw.send(&frame(HEADERS, 5, 2 * n + 1, block(&fields))).await;
    }
    let refused = raw.of(RST_STREAM).await;
    until(PATIENCE, "the others", async || (origin.seen().len() == streams as usize).then_some(())).await;
    assert_eq!((refused.stream, code(&refused.payload)), (2 * streams + 1, REFUSED));
    gate.open();

    // 10.5.1: many lines, and long ones. 431 is no indexed status: its digits stand in the block, in Huffman code.
    let lines: Vec<(String, String)> = (0..100).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let lines: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let long = "y".repeat(15_000);
    for (name, more) in
        [("many", lines), ("long", vec![("x", long.as_str()), ("z", &long[..1_000]), ("w", &long[..500])])]
    {
        let mut raw = Raw::connect(&proxy).await;
        let before = origin.seen().len();
        let block = block(&[GET, &more].concat());
        let (first, rest) = block.split_at(block.len().min(10_000));
        raw.send(&[frame(HEADERS, 1, 1, first), frame(CONTINUATION, 4, 1, rest)].concat()).await;
        let answer = raw.of(HEADERS).await;
        assert!(![OK, BAD_REQUEST].contains(&answer.payload[0]), "{name}");
        assert!(answer.payload.starts_with(&[0x48, 0x83, 0x69, 0x90, 0xff]), "{name}: {:x?}", answer.payload);
        raw.send(&get(3)).await;
        assert_eq!(raw.status().await, OK, "{name}: and the next");
        assert_eq!(origin.seen().len(), before + 1, "{name}");
    }
    proxy.ends_well().await;
}

#[tokio::test]
async fn floods_end_the_connection_and_cost_nobody_else() {
    let origin = Origin::start("o").await;
    let proxy = proxy(&origin).await;
    let open = frame(HEADERS, END_HEADERS, 1, block(&[GET, &[("content-length", "100")]].concat()));
    let reset = |n: u32| [get(2 * n + 1), frame(RST_STREAM, 0, 2 * n + 1, [0, 0, 0, 8])].concat();
    let begun = frame(HEADERS, 1, 1, block(GET));
    type Flood<'a> = (&'a str, Vec<u8>, Box<dyn Fn(u32) -> Vec<u8>>);
    let floods: Vec<Flood<'_>> = vec![
        ("rapid reset", vec![], Box::new(reset)),
        ("PING", vec![], Box::new(|_| frame(PING, 0, 0, [0; 8]))),
        ("SETTINGS", vec![], Box::new(|_| frame(SETTINGS, 0, 0, []))),
        ("empty DATA", open, Box::new(|_| frame(DATA, 0, 1, []))),
        ("PRIORITY", vec![], Box::new(|_| frame(PRIORITY, 0, 1, [0, 0, 0, 0, 1]))),
        ("empty CONTINUATION", begun.clone(), Box::new(|_| frame(CONTINUATION, 0, 1, []))),
        ("CONTINUATION", begun, Box::new(|_| frame(CONTINUATION, 0, 1, block(&[("x", &"y".repeat(1000))])))),
        ("malformed requests", vec![], Box::new(|n| with(2 * n + 1, &[("connection", "close")]))),
    ];
    for (name, first, one) in &floods {
        let mut raw = Raw::connect(&proxy).await;
        raw.send(first).await;
        let mut sent = 0;
        // Nothing is read meanwhile but what the kernel takes.
        'flood: for batch in 0..1000 {
            let frames: Vec<u8> = (batch * 100..(batch + 1) * 100).flat_map(one).collect();
            let sending = tokio::time::timeout(Duration::from_millis(500), raw.0.try_send(&frames)).await;
            sent += 100;
            if !matches!(sending, Ok(Ok(()))) {
                break 'flood;
            }
        }
        let end = crate::testing::soon(name, raw.end_of_all()).await;
        assert!(matches!(end, None | Some(CALM | PROTOCOL | COMPRESSION)), "{name}: {end:?} after {sent}");
        assert_eq!(proxy.get("h", "/").await.text(), "o", "{name}");
    }
    // What has gone to the target before each reset was seen.
    assert!(origin.seen().len() < 2000, "{}", origin.seen().len());
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.ferrio.id())).expect("running");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    assert!(kilobytes < 300_000, "{line}");
    proxy.ends_well().await;
}

impl Raw {
    /// Reads until the close, and gives the code of the last GOAWAY.
    async fn end_of_all(&mut self) -> Option<u32> {
        let mut last = None;
        while let Some(frame) = self.frame().await {
            if frame.kind == GOAWAY {
                last = Some(code(&frame.payload[4..]));
            }
        }
        last
    }
}

#[tokio::test]
async fn flow_control_is_kept_and_asked_for() {
    let origin = Origin::start("o").await;
    origin.on("/large", origin::reply(200, &[], vec![b'x'; 300_000]));
    let proxy = proxy(&origin).await;
    let large = |stream| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/large")];
        frame(HEADERS, 5, stream, block(&fields))
    };
    // A stream window of 1000 bytes (6.9.2), and then more.
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&[frame(SETTINGS, 0, 0, [0, 4, 0, 0, 3, 0xe8]), large(1)].concat()).await;
    let mut got = 0;
    while got < 1000 {
        got += raw.of(DATA).await.payload.len();
    }
    assert_eq!(got, 1000);
    raw.send(&frame(PING, 0, 0, [7; 8])).await;
    assert_eq!(raw.frame().await.map(|frame| frame.kind), Some(PING), "nothing beyond the window");
    raw.send(&frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 10])).await;
    assert_eq!(raw.of(DATA).await.payload.len(), 10);
    // The connection has a window of its own (65,535 bytes): other streams use it up.
    raw.send(&[frame(SETTINGS, 0, 0, [0, 4, 0, 9, 0, 0]), large(3)].concat()).await;
    let mut all = 1010;
    while all < 65_535 {
        all += raw.of(DATA).await.payload.len();
    }
    assert_eq!(all, 65_535);
    // Smaller frames than we could send (6.5.2, 4.2): never more than the client takes.
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&[frame(WINDOW_UPDATE, 0, 0, [0, 9, 0, 0]), frame(SETTINGS, 0, 0, [0, 4, 0, 9, 0, 0]), large(1)].concat())
        .await;
    let mut all = 0;
    while all < 300_000 {
        let data = raw.of(DATA).await.payload.len();
        assert!(data <= 16_384, "{data}");
        all += data;
    }
    // Uploads are given room as they are taken.
    let mut raw = Raw::connect(&proxy).await;
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", "/")];
    raw.send(&frame(HEADERS, END_HEADERS, 1, block(&post))).await;
    let update = async {
        // What every connection begins with, and what our SETTINGS say of streams.
        let (mut room, mut stream, mut left) = (65_535, 256 * 1024, 640_000);
        while left > 0 {
            let n = 16_000.min(room).min(stream).min(left);
            if n > 0 {
                raw.send(&frame(DATA, 0, 1, vec![0; n])).await;
                (room, stream, left) = (room - n, stream - n, left - n);
                continue;
            }
            let more = raw.of(WINDOW_UPDATE).await;
            let by = code(&more.payload) as usize;
            if more.stream == 0 { room += by } else { stream += by }
        }
        raw.send(&frame(DATA, 1, 1, [])).await;
        raw.status().await
    };
    assert_eq!(crate::testing::soon("an upload", update).await, OK);
    assert_eq!(origin.last().body.bytes.len(), 640_000);
}

#[tokio::test]
async fn a_slow_reader_holds_up_its_target() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let sent = Arc::new(AtomicUsize::new(0));
    let endless = {
        let sent = sent.clone();
        crate::testing::origin::TcpOrigin::start(move |mut tcp: tokio::net::TcpStream| {
            let sent = sent.clone();
            async move {
                use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                let _ = tcp.read(&mut [0; 4096]).await;
                let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while tcp.write_all(&[b'x'; 16 * 1024]).await.is_ok() {
                    sent.fetch_add(16 * 1024, Ordering::SeqCst);
                }
            }
        })
        .await
    };
    let routes = format!("route add o / http://{}/", endless.addr());
    let proxy = Start::routes(routes).property("proxy.addr", "ADDR;h2c=true").start().await;
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&get(1)).await;
    raw.of(DATA).await;
    let mut last = 0;
    until(PATIENCE, "the target to stop", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = sent.load(Ordering::SeqCst);
        (std::mem::replace(&mut last, now) == now).then_some(())
    })
    .await;
    // What the kernel's buffers hold, mostly.
    assert!(last < 20_000_000, "{last}");
    proxy.ends_well().await;
}

#[tokio::test]
async fn time_limits_of_listeners() {
    let origin = Origin::start("o").await;
    origin.on("/large", origin::reply(200, &[], vec![b'x'; 300_000]));
    let routes = format!("route add o / {}", origin.url());
    let proxy =
        Start::routes(routes).property("proxy.addr", "ADDR;h2c=true;rt=400ms,MORE;h2c=true;wt=400ms").start().await;
    // A client that stops in its body (`rt`).
    let mut raw = Raw::connect(&proxy).await;
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", "/")];
    raw.send(&[frame(HEADERS, END_HEADERS, 1, block(&post)), frame(DATA, 0, 1, b"a")].concat()).await;
    assert_eq!(raw.status().await, BAD_REQUEST);
    // A connection that is idle is told to go, and closed.
    assert_eq!(raw.end_of_all().await, Some(NO_ERROR));
    // Half a block and then nothing.
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&frame(HEADERS, 1, 1, block(GET))).await;
    raw.end_of_all().await;
    // Half a preface.
    let mut client = proxy.client().await;
    client.send(&PREFACE[..10]).await;
    client.closed().await;

    // A client that does not read (`wt`).
    let more = Proxy { addr: proxy.more, ..proxy };
    let mut raw = Raw::connect(&more).await;
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/large")];
    raw.send(&frame(HEADERS, 5, 1, block(&fields))).await;
    let begun = std::time::Instant::now();
    assert_eq!(raw.end().await, Ok(8));
    assert!(begun.elapsed() > Duration::from_millis(300), "{:?}", begun.elapsed());
    raw.send(&get(3)).await;
    assert_eq!(raw.of(HEADERS).await.stream, 3);
}

#[tokio::test]
async fn going_away_lets_streams_finish() {
    let origin = Origin::start("o").await;
    let gate = Gate::new();
    origin.on("/held", origin::reply(200, &[], "late").behind(&gate));
    let routes = format!("route add o / {}", origin.url());
    let start = Start::routes(routes).property("proxy.addr", "ADDR;h2c=true").property("proxy.shutdownwait", "10s");
    let proxy = start.start().await;
    let mut raw = Raw::connect(&proxy).await;
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/held")];
    raw.send(&frame(HEADERS, 5, 1, block(&fields))).await;
    until(PATIENCE, "the request", async || (!origin.seen().is_empty()).then_some(())).await;
    proxy.signal(crate::testing::process::Signal::TERM);
    let goaway = raw.of(GOAWAY).await;
    assert_eq!(code(&goaway.payload[4..]), NO_ERROR);
    gate.open();
    assert_eq!(raw.of(DATA).await.payload, b"late");
}

#[tokio::test]
async fn a_client_that_resets_ends_its_request() {
    let (ended, mut end) = tokio::sync::mpsc::channel(1);
    let silent = crate::testing::origin::TcpOrigin::start(move |mut tcp: tokio::net::TcpStream| {
        let ended = ended.clone();
        async move {
            let read = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
            let _ = ended.send(read.is_ok_and(|n| n > 0)).await;
        }
    })
    .await;
    let routes = format!("route add s / http://{}/", silent.addr());
    let proxy = Start::routes(routes).property("proxy.addr", "ADDR;h2c=true").start().await;
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&get(1)).await;
    assert!(tokio::time::timeout(Duration::from_millis(100), end.recv()).await.is_err(), "ended before the client");
    raw.send(&frame(RST_STREAM, 0, 1, [0, 0, 0, 8])).await;
    crate::testing::soon("the end of the request at its target", end.recv()).await;
}

#[tokio::test]
async fn websockets_go_over_a_stream() {
    let origin = Origin::start("o").await;
    origin.on("/ws", origin::websocket());
    origin.on("/no", origin::reply(403, &[], "no"));
    let ca = Ca::new();
    let leaf = ca.leaf(&["a.test"]);
    let proxy = Start::routes(format!("route add o / {}", origin.url()))
        .property(
            "proxy.cs",
            format!("cs=c;type=file;cert={};key={}", leaf.cert_path.display(), leaf.key_path.display()),
        )
        .property("proxy.addr", "ADDR;h2c=true,MORE;cs=c;rt=300ms;wt=300ms")
        .start()
        .await;
    let tls = Client::connect_tls(proxy.more, "a.test", ca.client(&["h2"])).await;
    let mut tls = Raw(tls);
    tls.send(&[PREFACE, &frame(SETTINGS, 0, 0, [])].concat()).await;
    for mut raw in [Raw::connect(&proxy).await, tls] {
        let connect = |stream, path, protocol| {
            let fields = [
                (":method", "CONNECT"),
                (":protocol", protocol),
                (":scheme", "https"),
                (":authority", "a.test"),
                (":path", path),
                ("sec-websocket-version", "13"),
                ("sec-websocket-protocol", "chat"),
                ("origin", "https://a.test"),
            ];
            frame(HEADERS, END_HEADERS, stream, block(&fields))
        };
        raw.send(&connect(1, "/ws", "websocket")).await;
        let answer = raw.of(HEADERS).await;
        assert_eq!((answer.payload[0], answer.flags & END_STREAM), (OK, 0));
        let seen = origin.last();
        for (name, value) in [
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
            ("host", "a.test"),
            ("origin", "https://a.test"),
        ] {
            assert_eq!(seen.header(name), Some(value), "{name}");
        }
        assert_eq!((seen.method(), seen.header("sec-websocket-key").map(str::len)), ("GET", Some(24)));
        // Longer than the time limits of requests.
        tokio::time::sleep(Duration::from_millis(500)).await;
        raw.send(&frame(DATA, 0, 1, b"frame")).await;
        assert_eq!(raw.of(DATA).await.payload, b"frame");
        // Requests beside it, and handshakes that are refused.
        raw.send(&connect(3, "/no", "websocket")).await;
        assert_ne!(raw.status().await, OK);
        raw.send(&connect(5, "/ws", "other")).await;
        assert_ne!(raw.status().await, OK);
        raw.send(&with(7, &[])).await;
        assert_eq!(raw.status().await, OK);
        raw.send(&frame(DATA, END_STREAM, 1, b"last")).await;
        let mut rest = Vec::new();
        loop {
            let frame = raw.of(DATA).await;
            if frame.stream != 1 {
                continue;
            }
            rest.extend_from_slice(&frame.payload);
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
        assert_eq!(rest, b"last");
    }
}
