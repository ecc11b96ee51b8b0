//! One connection to a target, and the exchange that is under way on it.
//!
//! There is no task per connection: whoever waits for the response, or reads its body, polls the connection too. So a
//! request costs no wake-up of another task.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Method;
use http::request::Parts;
use tokio::net::TcpStream;

use super::directory::Endpoint;
use super::term::Term;
use super::upload::{Fault, Upload};
use super::{Config, Error, RequestBody};
use crate::http1::{BodyError, Decoder, Flaw, Limits, Link, ResponseHead, Scan, Step, response};
use crate::net::{Deadline, Stream};

pub(super) struct Connection {
    link: Link,
    upload: Upload,
    scan: Scan,
    body: Decoder,
    /// Until the response head.
    limit: Deadline,
    /// Interim answers to the request under way.
    interim: u32,
    /// The target would take another request.
    persists: bool,
    /// Some of the body was taken without being read.
    spliced: bool,
    pub(super) endpoint: u64,
    /// Not made for one client.
    pub(super) shared: bool,
    pub(super) term: Term,
}

impl Connection {
    pub(super) fn new(stream: Stream, endpoint: &Endpoint, shared: bool) -> Self {
        Self {
            link: Link::new(stream),
            upload: Upload::default(),
            scan: Scan::default(),
            body: Decoder::Over,
            limit: Deadline::default(),
            interim: 0,
            persists: false,
            spliced: false,
            endpoint: endpoint.id,
            shared,
            term: Term::new(endpoint),
        }
    }

    /// False if the target has closed it, or sent something that nobody asked for.
    pub(super) fn is_open(&mut self, cx: &mut Context<'_>) -> bool {
        self.link.buffered() == 0 && self.link.poll_fill(cx).is_pending()
    }

    pub(super) fn begin(&mut self, head: &Parts, body: &RequestBody) {
        self.upload.begin(head, body);
        self.scan = Scan::default();
        self.body = Decoder::Over;
        self.limit.clear();
        self.interim = 0;
        self.persists = false;
        self.spliced = false;
    }

    /// Nothing of the request was sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.upload.is_unsent()
    }

    /// Sends the request, and waits for the head of the response.
    pub(super) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        body: &RequestBody,
        config: &Config,
        head_limit: Duration,
    ) -> Poll<Result<ResponseHead, Error>> {
        loop {
            match self.upload.poll(cx, &mut self.link, config.write_timeout) {
                Ok(()) => {}
                Err(Fault::Body(_)) if body.is_exceeded() => return Poll::Ready(Err(Error::BodyTooLarge)),
                Err(Fault::Body(error)) => return Poll::Ready(Err(Error::Body(error))),
                Err(Fault::Stuck) => return Poll::Ready(Err(Error::SendTimeout)),
            }
            let Poll::Ready(head) = self.poll_head(cx, method, config)? else {
                // The time for the response begins when the request, with its body, is on its way, or cannot go on.
                if !self.upload.has_ended() || head_limit.is_zero() {
                    return Poll::Pending;
                }
                if !self.limit.is_set() {
                    self.limit.within(head_limit);
                }
                return self.limit.poll(cx).map(|()| Err(Error::HeadTimeout));
            };
            let status = head.parts.status;
            if !status.is_informational() || status == http::StatusCode::SWITCHING_PROTOCOLS {
                self.body = Decoder::from(head.framing);
                self.persists = head.persists;
                return Poll::Ready(Ok(head));
            }
            self.interim += 1;
            if self.interim > MOST_INTERIM {
                return Poll::Ready(Err(Error::Malformed("interim answers without end".into())));
            }
            body.pass_interim(status, &head.parts.headers, Some(&head.spelling));
            if status == http::StatusCode::CONTINUE {
                self.upload.go_on();
            }
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        config: &Config,
    ) -> Result<Poll<ResponseHead>, Error> {
        let limits = Limits { lines: config.max_headers, bytes: config.max_header_size };
        let malformed = |flaw: Flaw| Error::Malformed(flaw.into());
        loop {
            let read = self.link.buffer();
            if !read.is_empty() {
                // What is no HTTP at all need not come to an end first.
                let begun = read.len().min(PROTOCOL.len());
                if read[..begun] != PROTOCOL[..begun] {
                    return Err(malformed(Flaw::Malformed("no HTTP")));
                }
                if let Some(length) = self.scan.find(read, limits).map_err(malformed)? {
                    let bytes = read.split_to(length).freeze();
                    self.scan = Scan::default();
                    return response(&bytes, method, limits.lines).map(Poll::Ready).map_err(malformed);
                }
            }
            match self.link.poll_fill(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(length)) if length > 0 => {}
                Poll::Ready(Ok(_)) => {
                    let why = self.upload.broken().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    return Err(Error::Closed(why.into()));
                }
                Poll::Ready(Err(error)) => return Err(Error::Closed(error.into())),
            }
        }
    }

    /// What comes next of the response, while the rest of the request goes out. Never [`Step::Wait`].
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>, config: &Config) -> Poll<Result<Step, super::BodyError>> {
        match self.upload.poll(cx, &mut self.link, config.write_timeout) {
            Ok(()) => {}
            Err(Fault::Body(error)) => return Poll::Ready(Err(error)),
            Err(Fault::Stuck) => return Poll::Ready(Err(Error::SendTimeout.into())),
        }
        let step = ready!(self.link.poll_body(cx, &mut self.body));
        Poll::Ready(step.map_err(BodyError::into))
    }

    /// Where the rest of a body of known length comes from, and how long it is, if nothing has to be done with it.
    pub(super) fn bulk(&self) -> Option<(&TcpStream, u64)> {
        let Decoder::Length(left) = self.body else { return None };
        if (left < BULK && !self.spliced) || !self.upload.is_sent() {
            return None;
        }
        Some((self.link.bulk_source()?, left))
    }

    /// So many bytes of it were taken.
    pub(super) fn passed(&mut self, length: usize) {
        self.spliced = true;
        self.body.passed(length as u64);
        self.link.passed(length);
    }

    /// All of the response was taken.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_over()
    }

    /// Bytes of the response's body that were not taken yet, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.body.left()
    }

    /// Can take another request now.
    pub(super) fn is_reusable(&self) -> bool {
        self.shared && self.persists && self.body.is_over() && self.upload.is_sent() && self.link.buffered() == 0
    }

    /// Holds nothing of the exchange that is over.
    pub(super) fn rest(&mut self) {
        self.upload.clear();
        self.link.release();
    }

    /// The connection below, and what was read from it.
    pub(super) fn into_parts(self) -> (Stream, bytes::Bytes) {
        self.link.into_parts()
    }
}

const PROTOCOL: &[u8] = b"HTTP/1.";
const MOST_INTERIM: u32 = 100;
/// With less than that to come, reading and writing cost less.
const BULK: u64 = 256 * 1024;
