//! How much: rates in token buckets. Nothing here waits, and no worker waits for another one.
//!
//! A bucket is one word: the time at which it will be full again (the generic cell rate algorithm). So it needs no upkeep,
//! and what is known of many keys is a table of words with a fixed size.

mod bucket;
mod keys;

use std::sync::OnceLock;

pub use self::bucket::{Bucket, Pace};
pub use self::keys::Keys;

/// The buckets of one route.
#[derive(Debug, Default)]
pub struct Buckets {
    /// Of the route as a whole.
    pub whole: Bucket,
    keys: OnceLock<Keys>,
}

impl Buckets {
    /// One for each client address or header value. Made when they are asked for.
    pub fn keys(&self) -> &Keys {
        self.keys.get_or_init(Keys::default)
    }
}
