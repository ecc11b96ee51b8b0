//! Chunked bodies. The first byte says into what pieces they are cut.
//!
//! No panic; the same data in pieces and whole; written again they are the same.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use ferrio::http1::{Decoder, Encoder, Framing, Outbox, Step};
use http::HeaderMap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(size).max(1)));
    let Some((body, trailers, _)) = whole else { return };
    let (mut out, mut encoder) = (Outbox::default(), Encoder::Chunked);
    let mut written: Vec<u8> = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for piece in body.chunks(usize::from(size) + 1) {
        encoder.data(&mut out, Bytes::copy_from_slice(piece)).expect("any length");
        assert!(matches!(pin!(&mut out).poll_write(&mut cx, &mut written), Poll::Ready(Ok(()))));
    }
    encoder.end(&mut out, Some(&trailers)).expect("any length");
    assert!(matches!(pin!(&mut out).poll_write(&mut cx, &mut written), Poll::Ready(Ok(()))));
    assert_eq!(read(&written, written.len()), Some((body, trailers, 0)));
});

/// Data, trailers, and how many bytes are left behind them.
fn read(bytes: &[u8], size: usize) -> Option<(Vec<u8>, HeaderMap, usize)> {
    let (mut read, mut decoder) = (BytesMut::new(), Decoder::from(Framing::Chunked));
    let mut pieces = bytes.chunks(size);
    let (mut body, mut fields) = (Vec::new(), HeaderMap::new());
    loop {
        match decoder.step(&mut read).ok()? {
            Step::Data(data) => body.extend_from_slice(&data),
            Step::Trailers(trailers) => fields = trailers,
            Step::Wait => read.extend_from_slice(pieces.next()?),
            Step::End => break,
        }
    }
    Some((body, fields, read.len() + pieces.map(<[u8]>::len).sum::<usize>()))
}
