//! What peers can make us say: not too long, and not too often.
//!
//! A line about a request or a connection repeats what its peer has sent, as often as the peer likes. So each place in
//! the code gets so many lines in a while; of the others only their number is said. Lines of the control plane are the
//! operator's own and are all there.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Counts the lines of each place.
#[derive(Default)]
pub(super) struct Restraint(Mutex<HashMap<Identifier, Window>>);

struct Window {
    begun: Instant,
    lines: u32,
    left_out: u64,
    /// The module of the place, for the line about what was left out.
    module: &'static str,
}

impl Restraint {
    /// Whether peers decide how often this event comes.
    pub(super) fn concerns(metadata: &Metadata<'_>) -> bool {
        let by_peers = |prefix: &str| {
            metadata.target().strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        // Whoever sets the level to debug wants to see everything.
        *metadata.level() <= Level::WARN && PLACES.iter().any(|place| by_peers(place))
    }

    /// Whether the line may be written. `false`: it is counted instead.
    pub(super) fn permits(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = places.entry(metadata.callsite()).or_insert_with(|| Window {
            begun: now,
            lines: 0,
            left_out: 0,
            module: metadata.target(),
        });
        if window.left_out == 0 && now.duration_since(window.begun) >= WINDOW {
            (window.begun, window.lines) = (now, 0);
        }
        if window.lines < LINES {
            window.lines += 1;
            return true;
        }
        window.left_out += 1;
        false
    }

    /// Windows that are over, and how much was left out in them: module and number.
    pub(super) fn over(&self, now: Instant) -> Vec<(&'static str, u64)> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = places.values_mut().filter(|w| w.left_out > 0 && now.duration_since(w.begun) >= WINDOW);
        let close = |window: &mut Window| {
            (window.begun, window.lines) = (now, 0);
            (window.module, std::mem::take(&mut window.left_out))
        };
        over.map(close).collect()
    }

    /// Something was left out and has not been said yet.
    pub(super) fn pending(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().any(|window| window.left_out > 0)
    }
}

/// The beginning of a message, on one line.
pub(super) fn cut(message: &mut String) {
    if message.len() > LENGTH {
        let left_out = message.len() - LENGTH;
        message.truncate(message.floor_char_boundary(LENGTH));
        message.push_str(&format!("... ({left_out} more bytes)"));
    }
    if message.contains('\n') {
        *message = message.replace('\n', "\\n");
    }
}

/// Modules that speak about requests and connections.
const PLACES: &[&str] = &["ferrio::proxy", "ferrio::upstream", "ferrio::listen", "ferrio::auth", "ferrio::app::edge"];
/// Lines of one place in a window: enough to see what is going on.
const LINES: u32 = 100;
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Bytes.
const LENGTH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_stay_on_one_line() {
        let mut text = format!("No route for h/{}", "ä".repeat(1000));
        cut(&mut text);
        assert!(text.starts_with("No route for h/ä") && text.ends_with("ä... (1759 more bytes)"), "{text}");
        let mut text = "a\n2026/01/01 00:00:00 [FATAL] b".to_owned();
        cut(&mut text);
        assert_eq!(text, "a\\n2026/01/01 00:00:00 [FATAL] b");
    }
}
