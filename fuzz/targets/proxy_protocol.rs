//! PROXY headers off a hostile stream. The first byte says into what pieces the rest is cut.
//!
//! No panic; the same meaning in pieces and whole; not a byte read beyond a header; none lost where there is none.

#![no_main]

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use ferrio::net::proxy_protocol::{Header, read_header};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let (whole, read) = find(bytes, bytes.len());
    let (pieces, pieces_read) = find(bytes, usize::from(size));
    match whole {
        Ok(Header::Absent { read: back }) => {
            assert_eq!(back, bytes[..read]);
            assert!(matches!(pieces, Ok(Header::Absent { read: back }) if back == bytes[..pieces_read]));
        }
        Ok(header) => {
            assert_eq!(Ok(header), pieces);
            assert_eq!(read, pieces_read);
            let length = if bytes[0] == b'P' {
                bytes.iter().position(|&b| b == b'\n').expect("a line") + 1
            } else {
                16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]))
            };
            assert_eq!(read, length);
        }
        Err(()) => assert_eq!(pieces, Err(())),
    }
});

/// What is found, and how many bytes were read for it.
fn find(bytes: &[u8], size: usize) -> (Result<Header, ()>, usize) {
    let mut io = Pieces { left: bytes, size: size.max(1) };
    let found = match pin!(read_header(&mut io)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found.map_err(drop),
        Poll::Pending => unreachable!("the stream is always ready"),
    };
    (found, bytes.len() - io.left.len())
}

struct Pieces<'a> {
    left: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = self.size.min(buf.remaining()).min(self.left.len());
        buf.put_slice(&self.left[..n]);
        self.left = &self.left[n..];
        Poll::Ready(Ok(()))
    }
}
