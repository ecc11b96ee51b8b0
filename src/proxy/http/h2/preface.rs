//! Which protocol a client begins with, on listeners without TLS.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::net::{Rewind, Stream};

/// Reads until it is clear whether the client begins with the preface of HTTP/2 (RFC 9113, section 3.4), and gives the
/// stream back as if nobody had. `None`: the client went away, or was too slow.
pub(in super::super) async fn speaks_h2(stream: Stream, limit: Duration) -> Option<(Stream, bool)> {
    let (mut read, mut tcp) = match stream {
        Stream::Plain(tcp) => (BytesMut::new(), tcp),
        Stream::Rewound(rewind) => {
            let (left, tcp) = rewind.into_parts();
            (BytesMut::from(&left[..]), tcp)
        }
        // What is spoken behind TLS was agreed on.
        tls => return Some((tls, false)),
    };
    let looking = async {
        loop {
            let length = read.len().min(PREFACE.len());
            if read[..length] != PREFACE[..length] {
                return Some(false);
            }
            if length == PREFACE.len() {
                return Some(true);
            }
            if tcp.read_buf(&mut read).await.ok()? == 0 {
                // Whoever sends half a preface and no more has no request.
                return None;
            }
        }
    };
    let h2 = if limit.is_zero() { looking.await? } else { tokio::time::timeout(limit, looking).await.ok()?? };
    Some((Stream::Rewound(Rewind::new(read.freeze(), tcp)), h2))
}

/// For clients that speak HTTP/1 where only HTTP/2 is spoken.
pub(in super::super) async fn refuse(mut stream: Stream) {
    let goodbye = async {
        if stream.write_all(REFUSAL).await.is_ok() && stream.shutdown().await.is_ok() {
            // Closing over unread bytes would take the answer back.
            let mut left = DRAIN;
            let mut waste = [0; 4096];
            while let Ok(n) = stream.read(&mut waste).await
                && n > 0
                && left > n
            {
                left -= n;
            }
        }
    };
    let _ = tokio::time::timeout(super::LAST_WORDS, goodbye).await;
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
    This port speaks HTTP/2 only.\n";
/// Read of a client that was refused.
const DRAIN: usize = 64 * 1024;
