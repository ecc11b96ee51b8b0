//! `registry.backend=static`: routes from the configuration.

use super::publish::Feed;
use crate::route::{self, Origin};

/// Gives everything once. A line that cannot be used costs itself only.
pub(super) fn give(feed: &Feed, routes: &str, page: &str) {
    feed.whole(route::parse_text(routes, |line| Origin::Static { line }), "configuration");
    feed.page(page);
    feed.services_known();
    feed.manual_known();
}
