//! Bytes both ways until both sides are done.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Bytes that were copied from `a` to `b` and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub forth: u64,
    pub back: u64,
}

/// Copies until both directions have ended; the end of one direction is passed on and does not end the other.
/// `first` are bytes already read from `a`, `answer` bytes already read from `b`.
pub async fn tunnel<A, B>(a: &mut A, b: &mut B, first: &[u8], answer: &[u8]) -> std::io::Result<Copied>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    a.write_all(answer).await?;
    a.flush().await?;
    b.write_all(first).await?;
    b.flush().await?;
    let (forth, back) = tokio::io::copy_bidirectional_with_sizes(a, b, BUFFER, BUFFER).await?;
    Ok(Copied { forth: forth + first.len() as u64, back: back + answer.len() as u64 })
}

/// Two per tunnel: small enough for many idle WebSockets.
const BUFFER: usize = 8 * 1024;
