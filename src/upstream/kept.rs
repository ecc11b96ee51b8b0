//! What was taken from a request body, kept so that it can be sent again. Bounded: a body that is larger is not kept.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// The beginning of a body, as long as it is all that was taken.
#[derive(Debug, Default)]
pub(super) struct Kept {
    data: BytesMut,
    trailers: Option<HeaderMap>,
    /// Bytes that may be kept. 0: nothing is, or it has become too much.
    limit: usize,
    /// Bytes that were given again.
    at: usize,
    trailers_given: bool,
}

impl Kept {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Is everything here that was taken?
    pub(super) fn is_complete(&self) -> bool {
        self.limit > 0
    }

    /// A part of the body has come.
    pub(super) fn keep(&mut self, frame: &Frame<Bytes>) {
        if self.limit == 0 {
            return;
        }
        if let Some(data) = frame.data_ref() {
            if self.data.len() + data.len() > self.limit {
                *self = Self::default();
                return;
            }
            self.data.extend_from_slice(data);
            self.at = self.data.len();
        } else if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
            self.trailers_given = true;
        }
    }

    /// What is there is to be given once more.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        self.trailers_given = false;
    }

    /// The next part that was here before. Copied, since this happens only after a failure.
    pub(super) fn again(&mut self) -> Option<Frame<Bytes>> {
        if self.at < self.data.len() {
            let rest = Bytes::copy_from_slice(&self.data[self.at..]);
            self.at = self.data.len();
            return Some(Frame::data(rest));
        }
        if self.trailers_given {
            return None;
        }
        self.trailers_given = true;
        self.trailers.clone().map(Frame::trailers)
    }

    /// Bytes that are still to be given again.
    pub(super) fn left(&self) -> usize {
        self.data.len() - self.at
    }

    pub(super) fn has_more(&self) -> bool {
        self.left() > 0 || self.trailers.is_some() && !self.trailers_given
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(kept: &mut Kept) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(frame) = kept.again() {
            match frame.into_data() {
                Ok(data) => all.extend_from_slice(&data),
                Err(_) => all.push(b'!'),
            }
        }
        all
    }

    #[test]
    fn what_fits_can_be_given_again_and_again() {
        let mut kept = Kept::new(10);
        for part in ["hello", "worl"] {
            kept.keep(&Frame::data(Bytes::from_static(part.as_bytes())));
        }
        kept.keep(&Frame::trailers(HeaderMap::new()));
        assert!(kept.is_complete() && !kept.has_more());
        for _ in 0..2 {
            kept.rewind();
            assert_eq!((kept.left(), kept.has_more()), (9, true));
            assert_eq!(read(&mut kept), b"helloworl!");
            assert!(!kept.has_more());
        }
    }

    #[test]
    fn what_is_too_much_is_let_go() {
        let mut kept = Kept::new(4);
        kept.keep(&Frame::data(Bytes::from_static(b"hello")));
        assert!(!kept.is_complete());
        kept.keep(&Frame::data(Bytes::from_static(b"x")));
        kept.rewind();
        assert_eq!(read(&mut kept), b"");
    }
}
