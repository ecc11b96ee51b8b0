//! Responses of a hostile target. The first byte says which method was asked with.
//!
//! No panic; a body is never longer than what was sent; what goes to a client is read there as it was read here.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use ferrio::http1::{
    Decoder, Encoder, Framing, Limits, Outbox, ResponseHead, ResponseLine, Scan, Step, is_bodiless, response, response_head,
};
use http::{Method, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    let method = if which & 1 == 0 { Method::GET } else { Method::HEAD };
    let Some((mut head, body)) = read(bytes, &method) else { return };
    let Some(body) = body else { return };
    assert!(body.len() <= bytes.len());
    for name in ["connection", "transfer-encoding"] {
        head.parts.headers.remove(name);
    }
    let framing = match head.framing {
        Framing::None => Framing::None,
        _ => {
            head.parts.headers.remove("content-length");
            if which & 2 == 0 { Framing::Chunked } else { Framing::Length(body.len() as u64) }
        }
    };
    let line = ResponseLine { version: Version::HTTP_11, status: head.parts.status, framing: Some(framing), close: false };
    let mut out = Outbox::default();
    response_head(&mut out, line, &head.parts.headers, Some(&head.spelling));
    let mut encoder = Encoder::from(framing);
    encoder.data(&mut out, Bytes::from(body.clone())).expect("as long as was said");
    encoder.end(&mut out, None).expect("as long as was said");
    let mut written: Vec<u8> = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(pin!(&mut out).poll_write(&mut cx, &mut written), Poll::Ready(Ok(()))));
    let (again, body_again) = read(&written, &method).expect("our own head");
    assert_eq!(again.parts.status, head.parts.status);
    assert_eq!(body_again.expect("our own body"), body);
    if is_bodiless(&method, head.parts.status) {
        assert!(body.is_empty());
    }
});

/// The head, and the body if it is whole.
fn read(bytes: &[u8], method: &Method) -> Option<(ResponseHead, Option<Vec<u8>>)> {
    let mut read = BytesMut::from(bytes);
    let length = Scan::default().find(&read, Limits { lines: 100, bytes: 4096 }).ok()??;
    let head = response(&read.split_to(length).freeze(), method, 100).ok()?;
    let mut decoder = Decoder::from(head.framing);
    let mut body = Vec::new();
    let whole = loop {
        match decoder.step(&mut read) {
            Ok(Step::Data(data)) => body.extend_from_slice(&data),
            Ok(Step::Trailers(_)) => {}
            Ok(Step::End) => break Some(body),
            Ok(Step::Wait) => break decoder.close().then_some(body),
            Err(_) => break None,
        }
    };
    Some((head, whole))
}
