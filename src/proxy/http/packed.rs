//! A response body that is compressed on its way.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use flate2::write::GzEncoder;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::compress::Coding;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Compresses the frames of `source`. Whenever the source has nothing more for the moment, what it gave so far is sent, so
/// that slow streams are not held back.
pub(crate) struct Packed<B> {
    source: B,
    encoder: Encoder,
    /// Taken from the source and not compressed yet.
    rest: Bytes,
    /// Something was compressed since the last flush.
    held: bool,
    trailers: Option<HeaderMap>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended.
    Finishing,
    /// Everything but the trailers was handed over.
    Over,
}

impl<B> Packed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    /// Fails if there is no memory for the encoder.
    pub(crate) fn new(source: B, coding: Coding) -> io::Result<Self> {
        let encoder = Encoder::new(coding)?;
        Ok(Self { source, encoder, rest: Bytes::new(), held: false, trailers: None, state: State::Open })
    }

    pub(crate) fn source(&self) -> &B {
        &self.source
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over && self.trailers.is_none()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // Bodies that compress well could keep a worker from everybody else.
        let mut budget = STEP;
        while self.state == State::Open {
            if self.encoder.output().len() >= FRAME {
                return Poll::Ready(Some(Ok(Frame::data(self.encoder.take()))));
            }
            if !self.rest.is_empty() {
                if budget == 0 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let step = self.rest.len().min(budget).min(FRAME);
                self.encoder.write_all(&self.rest[..step])?;
                self.rest.advance(step);
                budget -= step;
                self.held = true;
                continue;
            }
            if self.source.is_end_stream() {
                self.state = State::Finishing;
                break;
            }
            match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Pending => {
                    if std::mem::take(&mut self.held) {
                        self.encoder.flush()?;
                    }
                    if self.encoder.output().is_empty() {
                        return Poll::Pending;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(self.encoder.take()))));
                }
                Poll::Ready(None) => self.state = State::Finishing,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.state = State::Finishing;
                    }
                },
            }
        }
        if self.state == State::Finishing {
            self.state = State::Over;
            let last = self.encoder.finish()?;
            if !last.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(last))));
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Done(Vec<u8>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        let output = Vec::new();
        Ok(match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(output, flate2::Compression::default())),
            Coding::Brotli => {
                Self::Brotli(Box::new(brotli::CompressorWriter::new(output, BUFFER, BROTLI_QUALITY, BROTLI_WINDOW)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(output, ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW)?;
                Self::Zstd(encoder)
            }
        })
    }

    fn output(&self) -> &Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_ref(),
            Self::Brotli(encoder) => encoder.get_ref(),
            Self::Zstd(encoder) => encoder.get_ref(),
            Self::Done(output) => output,
        }
    }

    fn take(&mut self) -> Bytes {
        let output = match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Done(output) => output,
        };
        std::mem::take(output).into()
    }

    /// The end of the stream, with what was not taken before.
    fn finish(&mut self) -> io::Result<Bytes> {
        let output = match std::mem::replace(self, Self::Done(Vec::new())) {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Done(output) => output,
        };
        Ok(output.into())
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Brotli(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Done(_) => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Done(_) => Ok(()),
        }
    }
}

/// Compressed bytes that are worth a frame of their own.
const FRAME: usize = 16 * 1024;
/// Bytes compressed before others get their turn: about a millisecond.
const STEP: usize = 64 * 1024;
const BUFFER: usize = 4096;
/// Quality and speed about as gzip's default. Window: 256 KiB, or one stream would take megabytes.
const BROTLI_QUALITY: u32 = 4;
const BROTLI_WINDOW: u32 = 18;
const ZSTD_LEVEL: i32 = 3;
/// 2^19 bytes; browsers refuse more than 8 MiB (RFC 9659).
const ZSTD_WINDOW: u32 = 19;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;
    use std::task::Waker;

    use http::HeaderValue;

    use super::*;

    enum Event {
        Data(Vec<u8>),
        Pause,
        Trailers(HeaderMap),
        Fail,
    }

    struct Script(VecDeque<Event>);

    impl Body for Script {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(Event::Pause) => Poll::Pending,
                Some(Event::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
                Some(Event::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Some(Event::Fail) => Poll::Ready(Some(Err("broken".into()))),
            }
        }
    }

    fn packed(events: Vec<Event>, coding: Coding) -> Packed<Script> {
        Packed::new(Script(events.into()), coding).unwrap()
    }

    /// Everything that comes, data and trailers. A pause is passed over.
    fn drain(body: &mut Packed<Script>) -> Result<(Vec<u8>, Option<HeaderMap>), Error> {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut data, mut trailers) = (Vec::new(), None);
        loop {
            match body.poll(&mut cx) {
                Poll::Pending => {}
                Poll::Ready(None) => return Ok((data, trailers)),
                Poll::Ready(Some(frame)) => match frame?.into_data() {
                    Ok(more) => {
                        assert!(!more.is_empty());
                        data.extend_from_slice(&more);
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    fn unpack(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap(),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
        };
        out
    }

    /// As much as can be read of a stream that has not ended.
    fn unpack_begun(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        };
        let (mut out, mut byte) = (Vec::new(), [0]);
        while matches!(reader.read(&mut byte), Ok(1)) {
            out.push(byte[0]);
        }
        out
    }

    #[test]
    fn bodies_of_all_sizes_come_back() {
        for coding in Coding::ALL {
            for size in [0, 1, 10, 5000, 300_000] {
                let text: Vec<u8> = (0..size).map(|n: usize| (n * n / 7) as u8).collect();
                let events = text.chunks(70_000).map(|part| Event::Data(part.to_vec())).collect();
                let mut body = packed(events, coding);
                let (got, trailers) = drain(&mut body).unwrap();
                assert!(unpack(coding, &got) == text, "{coding:?} {size}");
                assert!(trailers.is_none() && body.is_over());
            }
        }
    }

    #[test]
    fn what_was_said_before_a_pause_is_sent() {
        for coding in Coding::ALL {
            let mut cx = Context::from_waker(Waker::noop());
            let mut body = packed(vec![Event::Data(b"one".to_vec()), Event::Pause, Event::Pause], coding);
            let Poll::Ready(Some(Ok(frame))) = body.poll(&mut cx) else { panic!("{coding:?}: nothing came") };
            assert_eq!(unpack_begun(coding, &frame.into_data().unwrap()), b"one", "{coding:?}");
            assert!(body.poll(&mut cx).is_pending(), "{coding:?}: nothing new was said");
        }
    }

    #[test]
    fn trailers_stand_behind_the_data() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        for coding in Coding::ALL {
            let mut body = packed(vec![Event::Data(b"x".to_vec()), Event::Trailers(trailers.clone())], coding);
            let (data, got) = drain(&mut body).unwrap();
            assert_eq!((unpack(coding, &data).as_slice(), got), (&b"x"[..], Some(trailers.clone())));
        }
    }

    #[test]
    fn a_broken_source_breaks_the_body() {
        for coding in Coding::ALL {
            assert!(drain(&mut packed(vec![Event::Data(b"x".to_vec()), Event::Fail], coding)).is_err());
        }
    }
}
