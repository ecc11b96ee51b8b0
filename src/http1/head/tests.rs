#![allow(clippy::unwrap_used)]

use super::*;

fn parse(text: &[u8]) -> Result<RequestHead, Flaw> {
    request(&Bytes::copy_from_slice(text), 100)
}

#[test]
fn a_request() {
    let head =
        parse(b"POST /x?y HTTP/1.1\r\nHost: h\r\nx-oDD:  a b \r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            .unwrap();
    assert_eq!((head.parts.method, head.parts.version), (Method::POST, Version::HTTP_11));
    assert_eq!(head.parts.uri, "/x?y");
    assert_eq!(head.parts.headers["x-odd"], "a b");
    assert_eq!((head.framing, head.persists, head.expects), (Framing::Length(5), true, true));
}

#[test]
fn malformed_requests() {
    for text in [
        &b"GET  / HTTP/1.1\r\n\r\n"[..],
        b"GET /  HTTP/1.1\r\n\r\n",
        b" GET / HTTP/1.1\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1 \r\n\r\n",
        b"GET / HTTP/1.2\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"G\0T / HTTP/1.1\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\n\r\n",
        b"GET / http/1.1\r\n\r\n",
        b"GET /<x> HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\r\n\r\n",
        b"GET / HTTP/1.1\r\n: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA(: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\0: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\x7fc\r\n\r\n",
        b"GET / HTTP/1.1\r\n\xc3\xa4: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"\r\n\r\n",
        b"",
    ] {
        assert!(parse(text).is_err(), "{:?}", text.escape_ascii().to_string());
    }
}

#[test]
fn as_many_fields_as_are_allowed() {
    for (fields, good) in [(FEW, true), (FEW + 1, true), (100, true), (101, false)] {
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(fields));
        let got = parse(text.as_bytes()).map(|head| head.parts.headers.len());
        assert_eq!(got, if good { Ok(fields) } else { Err(Flaw::TooLarge) });
    }
}

#[test]
fn responses() {
    for (text, status, framing, persists) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Framing::Length(5), true),
        ("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", 200, Framing::Length(5), true),
        ("HTTP/1.1 200 \r\n\r\n", 200, Framing::Close, false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Framing::Length(5), false),
        (
            "HTTP/1.1 999 Odd one\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            999,
            Framing::Chunked,
            false,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, Framing::None, true),
    ] {
        let head = response(&Bytes::from_static(text.as_bytes()), &Method::GET, 10).unwrap();
        assert_eq!((head.parts.status.as_u16(), head.framing, head.persists), (status, framing, persists), "{text:?}");
        assert_eq!(
            head.spelling.reason.is_some(),
            matches!(status, 999) || text.contains("200 \r") || text.contains("200\r"),
            "{text:?}"
        );
    }
    for text in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
    ] {
        assert!(response(&Bytes::from_static(text.as_bytes()), &Method::GET, 10).is_err(), "{text:?}");
    }
}

/// What hyper takes, we take with the same framing, but for rules that are named here.
#[tokio::test]
async fn hyper_agrees() {
    use http_body_util::{BodyExt, Empty};
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// What hyper hands to a service: the whole body, if it is whole. `None`: nothing was handed over.
    async fn hyper(text: &[u8]) -> Option<Option<Vec<u8>>> {
        let (mut far, near) = tokio::io::duplex(1 << 16);
        far.write_all(text).await.unwrap();
        far.shutdown().await.unwrap();
        let seen = std::rc::Rc::new(std::cell::RefCell::new(None));
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let seen = seen.clone();
            async move {
                let body = request.into_body().collect().await.ok().map(|body| body.to_bytes().to_vec());
                seen.borrow_mut().get_or_insert(body);
                Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let io = hyper_util::rt::TokioIo::new(near);
        let _ = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .keep_alive(false)
            .serve_connection(io, service)
            .await;
        let _ = far.read_to_end(&mut Vec::new()).await;
        seen.take()
    }

    fn ours(text: &[u8]) -> Option<Option<Vec<u8>>> {
        use super::super::{Decoder, Limits, Scan, Step, skip_blank_lines};
        let mut read = bytes::BytesMut::from(text);
        skip_blank_lines(&mut read).ok()?;
        let length = Scan::default().find(&read, Limits { lines: 100, bytes: 100_000 }).ok()??;
        let head = request(&read.split_to(length).freeze(), 100).ok()?;
        let mut decoder = Decoder::from(head.framing);
        let mut body = Vec::new();
        Some(loop {
            match decoder.step(&mut read) {
                Ok(Step::Data(data)) => body.extend_from_slice(&data),
                Ok(Step::Trailers(_)) => {}
                Ok(Step::End) => break Some(body),
                Ok(Step::Wait) | Err(_) => break None,
            }
        })
    }

    let lines = [
        "GET / HTTP/1.1",
        "POST / HTTP/1.1",
        "POST / HTTP/1.0",
        "get /x?y HTTP/1.1",
        "GET http://h/x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /\t HTTP/1.1",
        "\r\nGET / HTTP/1.1",
        "GET / HTTP/1.3",
        "GET /\x7f HTTP/1.1",
    ];
    let fields = [
        "",
        "Content-Length: 5\r\n",
        "Content-Length: 05\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: \r\n",
        "Content-Length:5\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 184467440737095516150\r\n",
        "Content-Length : 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: CHUNKED\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X\r\n",
        "X: a\0b\r\n",
        "X: a\rb\r\n",
    ];
    let bodies = [
        "abcde",
        "5\r\nabcde\r\n0\r\n\r\n",
        "5;a=b\r\nabcde\r\n0\r\n\r\n",
        "5 \r\nabcde\r\n0\r\n\r\n",
        "5;;\r\nabcde\r\n0\r\n\r\n",
        "5;a=\"\r\nabcde\r\n0\r\n\r\n",
        "5\nabcde\r\n0\r\n\r\n",
        "0\r\nX: y\r\n\r\n",
        "0\r\nX y\r\n\r\n",
        "ffffffffffffffffff\r\n",
        "",
    ];
    let (mut tried, mut agreed, mut stricter) = (0, 0, 0);
    for line in lines {
        for field in fields {
            for body in bodies {
                let text = format!("{line}\r\nHost: h\r\n{field}\r\n{body}");
                let (theirs, ours) = (hyper(text.as_bytes()).await, ours(text.as_bytes()));
                tried += 1;
                if theirs == ours {
                    agreed += 1;
                    continue;
                }
                stricter += 1;
                let has = |what: &str| field.contains(what);
                let named = match (&theirs, &ours) {
                    // Never more lenient, but for lengths that hyper keeps for itself.
                    (None, Some(None)) => has("18446744073709551615"),
                    // A line needs its CR; one coding, given once; a length or a coding.
                    (Some(_), None) => {
                        has("\nTransfer") && !has("\r\nTransfer")
                            || has("chunked, chunked")
                            || has("gzip, chunked")
                            || (has("Transfer") && (has("Content-Length") || field.matches("chunked").count() > 1))
                    }
                    // A chunk's line to the letter, and trailers that are fields.
                    (Some(Some(_)), Some(None)) => {
                        ["5 \r", "5;;", "a=\"", "5\n", "X y"].iter().any(|odd| body.contains(odd))
                    }
                    _ => false,
                };
                assert!(named, "{text:?}: hyper {theirs:?}, ours {ours:?}");
            }
        }
    }
    assert!(tried > 3000 && agreed > tried * 3 / 4, "{tried} {agreed} {stricter}");
}
