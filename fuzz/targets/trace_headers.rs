//! Headers of traces: the first byte says which forms are spoken, then one `name NUL value LF` for each. Whatever comes, what
//! goes on names the same trace and decision in every form that is spoken.

#![no_main]

use ferrio::traces::{Formats, Ratio};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let words: &[&str] = match first % 4 {
        0 => &["w3c"],
        1 => &["b3"],
        2 => &["b3multi"],
        _ => &["b3", "w3c", "b3multi"],
    };
    let formats = Formats::new(words.iter().copied()).expect("known words");
    let mut headers = HeaderMap::new();
    for line in rest.split(|b| *b == b'\n') {
        let (name, value) = line.split_at(line.iter().position(|b| *b == 0).unwrap_or(line.len()));
        let value = value.strip_prefix(b"\0").unwrap_or(value);
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let mut random = fastrand::Rng::with_seed(7);
    let context = formats.context(&headers, Ratio::ALL, &mut random);
    formats.write(&context, context.span, &mut headers);
    let next = formats.context(&headers, Ratio::ALL, &mut random);
    assert_eq!((next.trace, next.parent, next.sampled), (context.trace, Some(context.span), context.sampled));
});
