//! Follows the list of what is disabled.

use std::time::Duration;

use crate::consul::{self, Client, Keys, Mode, Watch};
use crate::registry::disabled::Control;
use crate::registry::status::Source;

/// Never ends. A token that may not read the key costs the list, and nothing else.
pub(super) async fn follow(client: Client, key: String, poll: Duration, control: Control, source: Source) {
    let mode = if poll.is_zero() { Mode::Block(WAIT) } else { Mode::Poll(poll) };
    let mut watch = Watch::new(client, Keys::kv(&key), "", mode, true);
    loop {
        match watch.next(consul::pairs).await {
            Ok(seen) => {
                source.good(seen.index);
                source.warn(None);
                let pairs = seen.value.unwrap_or_default();
                control.set(&pairs.first().map(consul::Pair::text).unwrap_or_default());
            }
            Err(failure) if failure.error.is_refusal() => {
                source.warn(Some(format!("may not read {key}, so nothing can be disabled at run time")));
                tokio::time::sleep(REFUSED).await;
            }
            Err(failure) => source.failed(&failure.error),
        }
    }
}

const WAIT: Duration = Duration::from_secs(300);
/// Somebody may change the policy meanwhile.
const REFUSED: Duration = Duration::from_secs(60);
