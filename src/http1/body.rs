//! Bodies as they are read.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::chunk::Chunks;
use super::{Flaw, Framing};

/// Takes a body out of what was read of a connection.
#[derive(Clone, Debug)]
pub enum Decoder {
    Over,
    /// Bytes that are still to come.
    Length(u64),
    Chunked(Chunks),
    /// Until the connection ends.
    Close,
}

/// What comes next of a body.
#[derive(Debug)]
pub enum Step {
    /// Never empty.
    Data(Bytes),
    /// The last thing of a body that has any.
    Trailers(HeaderMap),
    /// More has to be read first.
    Wait,
    End,
}

impl From<Framing> for Decoder {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Decoder::Over,
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(Chunks::default()),
            Framing::Close => Decoder::Close,
        }
    }
}

impl Decoder {
    pub fn step(&mut self, read: &mut BytesMut) -> Result<Step, Flaw> {
        match self {
            Decoder::Over => Ok(Step::End),
            Decoder::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                if length == 0 {
                    return Ok(Step::Wait);
                }
                *left -= length as u64;
                if *left == 0 {
                    *self = Decoder::Over;
                }
                Ok(Step::Data(read.split_to(length).freeze()))
            }
            Decoder::Chunked(chunks) => {
                let step = chunks.step(read)?;
                if chunks.is_over() && !matches!(step, Step::Wait) {
                    *self = Decoder::Over;
                }
                Ok(step)
            }
            Decoder::Close if read.is_empty() => Ok(Step::Wait),
            Decoder::Close => Ok(Step::Data(read.split().freeze())),
        }
    }

    /// Bytes of a body with a length went past, without being read.
    pub fn passed(&mut self, length: u64) {
        if let Decoder::Length(left) = self {
            debug_assert!(length <= *left, "bytes of the next message");
            *left = left.saturating_sub(length);
            if *left == 0 {
                *self = Decoder::Over;
            }
        }
    }

    /// The connection has ended: is this the end of the body?
    pub fn close(&mut self) -> bool {
        if matches!(self, Decoder::Close) {
            *self = Decoder::Over;
        }
        self.is_over()
    }

    /// Everything was taken.
    pub fn is_over(&self) -> bool {
        matches!(self, Decoder::Over)
    }

    /// Bytes that are still to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Decoder::Over => Some(0),
            Decoder::Length(left) => Some(*left),
            Decoder::Chunked(_) | Decoder::Close => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let mut read = BytesMut::from("abcdeGET");
        let mut decoder = Decoder::from(Framing::Length(5));
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Data(data) if data == "abcde"));
        assert!(decoder.is_over() && read == "GET");
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::End));

        let mut decoder = Decoder::from(Framing::Length(u64::MAX));
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Data(data) if data == "GET"));
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Wait));
        assert_eq!(decoder.left(), Some(u64::MAX - 3));
        assert!(!decoder.close(), "cut off");
    }

    #[test]
    fn until_the_end() {
        let mut read = BytesMut::from("abc");
        let mut decoder = Decoder::from(Framing::Close);
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Data(data) if data == "abc"));
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Wait));
        assert!(decoder.close() && decoder.is_over());
    }

    #[test]
    fn the_end_is_known_with_the_last_bytes() {
        let mut read = BytesMut::from("3\r\nabc\r\n0\r\n\r\nGET");
        let mut decoder = Decoder::from(Framing::Chunked);
        assert!(matches!(decoder.step(&mut read).unwrap(), Step::Data(data) if data == "abc"));
        assert!(decoder.is_over() && read == "GET");
    }
}
