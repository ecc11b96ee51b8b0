//! Request paths: whatever comes, what is matched has no dot segments and no double slashes, and what is sent decodes to
//! what was matched.
#![no_main]

use ferrio::route::path::clean;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, &str)| {
    let (raw, prefix) = data;
    let cleaned = clean(raw);
    assert!(cleaned.raw.starts_with('/') && cleaned.decoded.starts_with(b"/"));
    assert!(!cleaned.raw.contains("//"));
    assert!(!cleaned.decoded.windows(2).any(|pair| pair == b"//"));
    assert!(!cleaned.decoded.split(|b| *b == b'/').any(|segment| matches!(segment, b"." | b"..")));

    let again = clean(&cleaned.raw);
    assert_eq!((&again.raw, &again.decoded), (&cleaned.raw, &cleaned.decoded));
    if let Some(stripped) = cleaned.strip(prefix) {
        assert_eq!(clean(&stripped).raw, stripped);
    }
});
