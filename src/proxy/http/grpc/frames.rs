//! Messages in a stream of bytes: each has a flag and a length of four bytes before it.

/// Follows the messages without keeping anything of them.
pub(super) struct Frames {
    limit: u64,
    /// Of the current message.
    left: u64,
    head: [u8; HEAD],
    filled: usize,
}

impl Frames {
    /// `limit`: bytes in a message as it travels, compressed or not.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, left: 0, head: [0; HEAD], filled: 0 }
    }

    /// False from the head of a message on that is too large.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.left > 0 {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= n as u64;
                bytes = &bytes[n..];
                continue;
            }
            let n = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == HEAD {
                self.filled = 0;
                let [_flag, a, b, c, d] = self.head;
                self.left = u64::from(u32::from_be_bytes([a, b, c, d]));
                if self.left > self.limit {
                    return false;
                }
            }
        }
        true
    }
}

const HEAD: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_compared_with_the_limit() {
        let message = |length: u8| [&[0, 0, 0, 0, length], &vec![9; usize::from(length)][..]].concat();
        for (lengths, want) in [(&[0, 10, 10, 0, 3][..], true), (&[10, 11], false), (&[11], false), (&[], true)] {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            for piece in 1..=bytes.len().max(1) {
                let mut frames = Frames::new(10);
                assert_eq!(bytes.chunks(piece).all(|bytes| frames.pass(bytes)), want, "{lengths:?} {piece}");
            }
        }
    }
}
