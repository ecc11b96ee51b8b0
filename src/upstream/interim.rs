//! Interim answers (RFC 9110, section 15.2) for a client that speaks HTTP/2.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use h2::server::SendResponse;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{Response, StatusCode};

/// The way back to the client of a stream. Cheap to clone.
#[derive(Clone)]
pub struct H2Reply(Rc<Shared>);

struct Shared {
    respond: RefCell<SendResponse<Bytes>>,
    /// The answer has not begun.
    open: Cell<bool>,
    /// The client waits with its body.
    expects: Cell<bool>,
    /// Bytes of interim answers that may still be sent.
    room: Cell<usize>,
}

impl H2Reply {
    /// `expects`: the client has said `Expect: 100-continue`.
    pub fn new(respond: SendResponse<Bytes>, expects: bool) -> Self {
        Self(Rc::new(Shared {
            respond: RefCell::new(respond),
            open: Cell::new(true),
            expects: Cell::new(expects),
            room: Cell::new(ROOM),
        }))
    }

    /// For whatever else is done with the stream. Nothing may be waited for in there.
    pub fn with<T>(&self, with: impl FnOnce(&mut SendResponse<Bytes>) -> T) -> T {
        with(&mut self.0.respond.borrow_mut())
    }

    /// From now on there are no interim answers: the answer itself begins.
    pub fn close(&self) {
        self.0.open.set(false);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.0.expects.get() && self.0.open.get()
    }

    /// The client has begun its body without being told to.
    pub(super) fn waits_no_more(&self) {
        self.0.expects.set(false);
    }

    /// Tells a client that waits to go on.
    pub(super) fn go_on(&self) {
        if self.0.expects.replace(false) {
            self.send(StatusCode::CONTINUE, HeaderMap::new());
        }
    }

    /// Passes an interim answer on. 100 is only for those who wait for it.
    pub(super) fn pass(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::CONTINUE || self.0.expects.replace(false) {
            self.send(status, presentable(headers));
        }
    }

    fn send(&self, status: StatusCode, headers: HeaderMap) {
        let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ENTRY).sum::<usize>() + ENTRY;
        let Some(room) = self.0.room.get().checked_sub(size) else { return };
        if !self.0.open.get() {
            return;
        }
        self.0.room.set(room);
        let mut answer = Response::new(());
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        if let Err(error) = self.0.respond.borrow_mut().send_informational(answer) {
            // Whoever sends the answer itself sees that the stream is over.
            tracing::debug!("an interim answer was not sent: {error}");
        }
    }
}

/// Without what belongs to a connection of the target (RFC 9113, section 8.2.2), or to the answer that is to come.
fn presentable(headers: &HeaderMap) -> HeaderMap {
    let lists = || headers.get_all(CONNECTION).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let named = |name: &HeaderName| {
        lists().map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    let dropped = |name: &HeaderName| {
        [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
            || matches!(name.as_str(), "keep-alive" | "proxy-connection")
            || named(name)
    };
    let kept = headers.iter().filter(|(name, _)| !dropped(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A client that does not read costs no more than this for the interim answers of a stream.
const ROOM: usize = 64 * 1024;
/// What h2 keeps for a field, beside its bytes (RFC 7541, section 4.1).
const ENTRY: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "</a>"),
            ("link", "</b>"),
            ("connection", "x-own, Keep-Alive"),
            ("x-own", "1"),
            ("keep-alive", "5"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.append(HeaderName::from_static(name), http::HeaderValue::from_static(value));
        }
        let kept: Vec<_> = presentable(&headers).into_iter().map(|(_, value)| value).collect();
        assert_eq!(kept, ["</a>", "</b>"]);
    }
}
