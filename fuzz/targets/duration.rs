//! Durations: no panic, no overflow, and what is read is written and read the same.

#![no_main]

use ferrio::config::duration::{format, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(nanos) = parse(text) {
        assert_eq!(parse(&format(nanos)), Ok(nanos));
    }
});
