//! Where a head ends.

use bytes::{Buf, BytesMut};

use super::{Flaw, Limits};

/// Looks for the end of a head that comes in pieces. Every byte is looked at once, however small the pieces are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// Bytes already looked at.
    seen: usize,
    /// Where the line under way begins.
    line: usize,
    lines: usize,
}

impl Scan {
    /// The length of the head with its empty line, once all of it is there. `bytes` begin with the head, and must be the
    /// same as in the call before, with more behind them.
    pub fn find(&mut self, bytes: &[u8], limits: Limits) -> Result<Option<usize>, Flaw> {
        while let Some(offset) = bytes.get(self.seen..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            let end = self.seen + offset;
            if end == self.line || bytes[end - 1] != b'\r' {
                return Err(Flaw::Malformed("a line that ends without CR"));
            }
            self.seen = end + 1;
            if end + 1 > limits.bytes {
                return Err(Flaw::TooLarge);
            }
            if end - self.line == 1 {
                return Ok(Some(end + 1));
            }
            self.line = end + 1;
            self.lines += 1;
            // The first line is none of the fields.
            if self.lines > limits.lines + 1 {
                return Err(Flaw::TooLarge);
            }
        }
        self.seen = bytes.len();
        if bytes.len() >= limits.bytes { Err(Flaw::TooLarge) } else { Ok(None) }
    }
}

/// Empty lines before a request are left behind by clients that count badly (RFC 9112, section 2.2).
pub fn skip_blank_lines(bytes: &mut BytesMut) -> Result<(), Flaw> {
    while let Some(&first) = bytes.first() {
        match first {
            b'\r' if bytes.len() == 1 => return Ok(()),
            b'\r' if bytes[1] == b'\n' => bytes.advance(2),
            b'\r' | b'\n' => return Err(Flaw::Malformed("a line that ends without CR LF")),
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { lines: 3, bytes: 40 };

    #[test]
    fn ends_of_heads() {
        let malformed = Err(Flaw::Malformed("a line that ends without CR"));
        for (bytes, found) in [
            ("GET / HTTP/1.1\r\n\r\nrest", Ok(Some(18))),
            ("GET / HTTP/1.1\r\n", Ok(None)),
            ("", Ok(None)),
            ("\r\n", Ok(Some(2))),
            ("a\r\n\n", malformed),
            ("a\n\r\n", malformed),
            ("a\r\n\r\r\n", Ok(None)),
            ("\n", malformed),
            ("a\r\nb\r\nc\r\nd\r\n\r\n", Ok(Some(14))),
            ("a\r\nb\r\nc\r\nd\r\ne\r\n\r\n", Err(Flaw::TooLarge)),
            ("0123456789012345678901234567890123456\r\n\r\n", Err(Flaw::TooLarge)),
            ("012345678901234567890123456789012345\r\n\r\n", Ok(Some(40))),
            ("0123456789012345678901234567890123456789", Err(Flaw::TooLarge)),
        ] {
            assert_eq!(Scan::default().find(bytes.as_bytes(), LIMITS), found, "{bytes:?}");
            let mut scan = Scan::default();
            let mut piecewise = Ok(None);
            for end in 1..=bytes.len() {
                piecewise = scan.find(&bytes.as_bytes()[..end], LIMITS);
                if piecewise != Ok(None) {
                    break;
                }
            }
            assert_eq!(piecewise, found, "{bytes:?} in pieces");
        }
    }

    #[test]
    fn blank_lines_before_a_head() {
        for (bytes, left) in [
            ("\r\n\r\nGET", Some("GET")),
            ("GET", Some("GET")),
            ("\r", Some("\r")),
            ("\r\n\r", Some("\r")),
            ("\nGET", None),
            ("\rGET", None),
            ("", Some("")),
        ] {
            let mut buffer = BytesMut::from(bytes);
            let skipped = skip_blank_lines(&mut buffer);
            assert_eq!(skipped.is_ok(), left.is_some(), "{bytes:?}");
            if let Some(left) = left {
                assert_eq!(buffer, left, "{bytes:?}");
            }
        }
    }
}
