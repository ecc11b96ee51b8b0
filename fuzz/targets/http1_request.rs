//! Requests off a hostile connection. The first byte says into what pieces they are cut.
//!
//! No panic; the same meaning in pieces and whole; what is written to a target is read there as it was read here.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use ferrio::http1::{Decoder, Limits, Outbox, RequestHead, Scan, Step, request, request_head, skip_blank_lines};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, usize::from(size).max(1));
    let Some((head, body, left)) = whole else {
        assert!(pieces.is_none());
        return;
    };
    let (same, same_body, same_left) = pieces.expect("understood whole");
    assert_eq!((&head.parts.method, &head.parts.uri), (&same.parts.method, &same.parts.uri));
    assert_eq!(head.parts.headers, same.parts.headers);
    assert_eq!(head.framing, same.framing);
    // What follows a malformed body is of no interest.
    assert_eq!(body, same_body);
    if body.is_some() {
        assert_eq!(left, same_left);
    }
    if !head.parts.uri.path().starts_with('/') {
        return;
    }
    let mut out = Outbox::default();
    request_head(&mut out, &head.parts, Some(&head.spelling));
    let mut written: Vec<u8> = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(pin!(&mut out).poll_write(&mut cx, &mut written), Poll::Ready(Ok(()))));
    let (again, ..) = read(&written, written.len()).expect("our own head");
    assert_eq!(again.parts.headers, head.parts.headers);
    assert_eq!(again.framing, head.framing);
    assert_eq!(again.parts.method, head.parts.method);
    assert_eq!(again.parts.uri.path_and_query(), head.parts.uri.path_and_query());
});

/// The head, the body if it is whole, and how many bytes are left behind it.
fn read(bytes: &[u8], size: usize) -> Option<(RequestHead, Option<Vec<u8>>, usize)> {
    let (mut read, mut scan) = (BytesMut::new(), Scan::default());
    let mut pieces = bytes.chunks(size);
    let mut begun = false;
    let length = loop {
        read.extend_from_slice(pieces.next()?);
        if !begun {
            skip_blank_lines(&mut read).ok()?;
            begun = !read.is_empty() && &read[..] != b"\r";
        }
        if begun && let Some(length) = scan.find(&read, Limits { lines: 100, bytes: 4096 }).ok()? {
            break length;
        }
    };
    let head = request(&read.split_to(length).freeze(), 100).ok()?;
    let mut decoder = Decoder::from(head.framing);
    let mut body = Vec::new();
    let whole = loop {
        match decoder.step(&mut read) {
            Ok(Step::Data(data)) => {
                assert!(!data.is_empty());
                body.extend_from_slice(&data);
            }
            Ok(Step::Trailers(trailers)) => assert!(trailers.keys().all(ferrio::http1::is_trailer)),
            Ok(Step::End) => break Some(body),
            Ok(Step::Wait) => match pieces.next() {
                Some(piece) => read.extend_from_slice(piece),
                None => break None,
            },
            Err(_) => break None,
        }
    };
    Some((head, whole, read.len() + pieces.map(<[u8]>::len).sum::<usize>()))
}
