//! Memory that is lent while bytes are under way. Each thread has its own; an idle connection holds none of it.

use std::cell::RefCell;

use bytes::BytesMut;
use http::HeaderMap;

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool { small: Vec::new(), large: Vec::new(), out: Vec::new(), maps: Vec::new() })
    };
}

struct Pool {
    small: Vec<BytesMut>,
    large: Vec<BytesMut>,
    out: Vec<Vec<u8>>,
    maps: Vec<HeaderMap>,
}

/// An empty buffer to read into, of [`SMALL`] or [`LARGE`] bytes.
pub(super) fn take(large: bool) -> BytesMut {
    let size = if large { LARGE } else { SMALL };
    POOL.with_borrow_mut(|pool| if large { pool.large.pop() } else { pool.small.pop() })
        .unwrap_or_else(|| BytesMut::with_capacity(size))
}

/// Gives a buffer back, unless somebody still holds a part of it: then it is handed back to the caller.
pub(super) fn give(mut buffer: BytesMut) -> Option<BytesMut> {
    buffer.clear();
    let large = buffer.try_reclaim(LARGE);
    if !large && !buffer.try_reclaim(SMALL) {
        return Some(buffer);
    }
    POOL.with_borrow_mut(|pool| {
        let (shelf, kept) = if large { (&mut pool.large, KEPT_LARGE) } else { (&mut pool.small, KEPT) };
        if shelf.len() < kept && buffer.capacity() <= 2 * LARGE {
            shelf.push(buffer);
        }
    });
    None
}

/// An empty buffer to write from.
pub(super) fn take_out() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.out.pop()).unwrap_or_else(|| Vec::with_capacity(OUT))
}

pub(super) fn give_out(mut buffer: Vec<u8>) {
    buffer.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.out.len() < KEPT && (1..=LARGE).contains(&buffer.capacity()) {
            pool.out.push(buffer);
        }
    });
}

/// An empty map for the fields of a head.
pub(super) fn take_map() -> HeaderMap {
    POOL.with_borrow_mut(|pool| pool.maps.pop()).unwrap_or_default()
}

/// Gives a map back that is needed no more, for the next head on this thread.
pub fn give_map(mut map: HeaderMap) {
    if !(1..=FIELDS).contains(&map.capacity()) {
        return;
    }
    map.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.maps.len() < KEPT {
            pool.maps.push(map);
        }
    });
}

/// Enough for the head and the body of most messages.
pub(super) const SMALL: usize = 8 * 1024;
/// What a fast connection has ready at once.
pub(super) const LARGE: usize = 64 * 1024;
const OUT: usize = 4 * 1024;
/// A map for more is not kept.
const FIELDS: usize = 64;
const KEPT: usize = 128;
const KEPT_LARGE: usize = 16;
