//! ClientHellos of hostile clients: no panic, and a verdict on the beginning of a stream holds for the rest.

#![no_main]

use ferrio::net::client_hello::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = parse(bytes);
    match parse(&bytes[..bytes.len() * usize::from(cut) / 255]) {
        Ok(Some(early)) => assert_eq!(whole.expect("found before"), Some(early)),
        Ok(None) => {}
        Err(_) => assert!(whole.is_err()),
    }
});
