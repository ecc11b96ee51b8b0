//! B3, as Zipkin and Envoy speak it: one header, or several.

use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::context::{Context, Parent, from_hex, hex, span_from_hex};

/// Both forms; the single header wins. `None`: nothing is said, or nothing that can be understood.
pub(super) fn read(headers: &HeaderMap) -> Option<Parent> {
    if let Some(parent) = one(headers, &B3).and_then(parse) {
        return Some(parent);
    }
    let trace = one(headers, &TRACE).and_then(trace_id);
    let span = one(headers, &SPAN).and_then(|text| span_from_hex(text, true));
    let debug = one(headers, &FLAGS) == Some(b"1");
    let sampled = match one(headers, &SAMPLED) {
        _ if debug => Some(true),
        Some(b"1") => Some(true),
        Some(b"0") => Some(false),
        // Of the first implementations.
        Some(text) if text.eq_ignore_ascii_case(b"true") => Some(true),
        Some(text) if text.eq_ignore_ascii_case(b"false") => Some(false),
        _ => None,
    };
    let ids = trace.zip(span);
    (ids.is_some() || sampled.is_some()).then(|| Parent { ids, sampled, debug, ..Parent::default() })
}

/// `{trace}-{span}[-{decision}[-{parent span}]]`, or a decision alone.
fn parse(text: &[u8]) -> Option<Parent> {
    if let Some((sampled, debug)) = decision(text) {
        return Some(Parent { sampled: Some(sampled), debug, ..Parent::default() });
    }
    let mut fields = text.split(|b| *b == b'-');
    let trace = trace_id(fields.next()?)?;
    let span = span_from_hex(fields.next()?, true)?;
    let (sampled, debug) = match fields.next() {
        None => (None, false),
        Some(field) => decision(field).map(|(sampled, debug)| (Some(sampled), debug))?,
    };
    if fields.next().is_some_and(|parent| from_hex(parent, true).is_none()) || fields.next().is_some() {
        return None;
    }
    Some(Parent { ids: Some((trace, span)), sampled, debug, ..Parent::default() })
}

/// Sampled, and whether that is for somebody who looks for a fault.
fn decision(text: &[u8]) -> Option<(bool, bool)> {
    match text {
        b"0" => Some((false, false)),
        b"1" => Some((true, false)),
        b"d" => Some((true, true)),
        _ => None,
    }
}

/// Of 64 or 128 bits.
fn trace_id(text: &[u8]) -> Option<NonZeroU128> {
    matches!(text.len(), 16 | 32).then(|| NonZeroU128::new(from_hex(text, true)?)).flatten()
}

/// Names `span` as the parent of what is to come, in one or both forms, and nothing that contradicts it.
pub(super) fn write(context: &Context, span: NonZeroU64, single: bool, multi: bool, headers: &mut HeaderMap) {
    for name in [&B3, &TRACE, &SPAN, &PARENT, &SAMPLED, &FLAGS] {
        headers.remove(name);
    }
    let trace: HeaderValue = match u64::try_from(context.trace.get()) {
        // Those who speak 64 bits may understand no more.
        Ok(short) => value(&hex::<16>(short.into())),
        Err(_) => value(&hex::<32>(context.trace.get())),
    };
    let (own, above) = (hex::<16>(span.get().into()), hex::<16>(context.span.get().into()));
    if single {
        let said: &[u8] = match (context.debug, context.sampled) {
            (true, _) => b"d",
            (false, true) => b"1",
            (false, false) => b"0",
        };
        headers.insert(B3, value(&[trace.as_bytes(), &own, said, &above].join(&b'-')));
    }
    if multi {
        headers.insert(TRACE, trace);
        headers.insert(SPAN, value(&own));
        headers.insert(PARENT, value(&above));
        match context.debug {
            true => headers.insert(FLAGS, HeaderValue::from_static("1")),
            false => headers.insert(SAMPLED, HeaderValue::from_static(if context.sampled { "1" } else { "0" })),
        };
    }
}

fn value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("hex digits and dashes")
}

/// The one value of a field.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes().trim_ascii()),
        _ => None,
    }
}

const B3: HeaderName = HeaderName::from_static("b3");
const TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
const SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
const PARENT: HeaderName = HeaderName::from_static("x-b3-parentspanid");
const SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::traces::Ratio;

    const LONG: &str = "80f198ee56343ba864fe8b2a57d3eff7";
    const LOW: &str = "64fe8b2a57d3eff7";
    const ID: &str = "e457b5a2e4d86bd1";

    /// Header lines as `name: value`.
    fn map(lines: &[&str]) -> HeaderMap {
        let lines = lines.iter().map(|line| line.split_once(": ").unwrap());
        let pair = |(name, value): (&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        lines.map(pair).for_each(|(name, value): (_, HeaderValue)| _ = headers.append(name, value));
        headers
    }

    #[test]
    fn what_others_send() {
        let (long, low) = (u128::from_str_radix(LONG, 16).unwrap(), u128::from_str_radix(LOW, 16).unwrap());
        let single = |text: &str| format!("b3: {text}");
        for (lines, want) in [
            // Trace, decision, debug.
            (vec![single(&format!("{LONG}-{ID}-1-05e3ac9a4f6e3b90"))], Some((Some(long), Some(true), false))),
            (vec![single(&format!("{LONG}-{ID}-0"))], Some((Some(long), Some(false), false))),
            (vec![single(&format!("{LONG}-{ID}-d"))], Some((Some(long), Some(true), true))),
            (vec![single(&format!("{LONG}-{ID}"))], Some((Some(long), None, false))),
            (vec![single(&format!("{LOW}-{ID}-1"))], Some((Some(low), Some(true), false))),
            (vec![single("0")], Some((None, Some(false), false))),
            (vec![single("1")], Some((None, Some(true), false))),
            (vec![single("d")], Some((None, Some(true), true))),
            (vec![single("")], None),
            (vec![single("x")], None),
            (vec![single(LONG)], None),
            (vec![single(&format!("{LONG}-{ID}-2"))], None),
            (vec![single(&format!("{LONG}-{ID}-1-xyz"))], None),
            (vec![single(&format!("{LONG}-{ID}-1-{ID}-"))], None),
            (vec![single(&format!("{}-{ID}-1", &LONG[1..]))], None),
            (vec![single(&format!("{}-{ID}-1", "0".repeat(32)))], None),
            (vec![single(&format!("{LONG}-0000000000000000-1"))], None),
            (vec![single("0"), single("1")], None),
            (
                vec![format!("x-b3-traceid: {LONG}"), format!("x-b3-spanid: {ID}"), "x-b3-sampled: 1".into()],
                Some((Some(long), Some(true), false)),
            ),
            (
                vec![format!("x-b3-traceid: {LOW}"), format!("x-b3-spanid: {ID}"), "x-b3-sampled: false".into()],
                Some((Some(low), Some(false), false)),
            ),
            (
                vec![format!("X-B3-TraceId: {}", LONG.to_uppercase()), format!("X-B3-SpanId: {ID}")],
                Some((Some(long), None, false)),
            ),
            (
                vec![format!("x-b3-traceid: {LONG}"), format!("x-b3-spanid: {ID}"), "x-b3-flags: 1".into()],
                Some((Some(long), Some(true), true)),
            ),
            (vec!["x-b3-sampled: 0".into()], Some((None, Some(false), false))),
            (vec![format!("x-b3-traceid: {LONG}")], None),
            (vec![format!("x-b3-traceid: {LONG}"), "x-b3-spanid: 1".into()], None),
            // The single one wins, unless it is nothing.
            (
                vec![single(&format!("{LOW}-{ID}-0")), format!("x-b3-traceid: {LONG}"), format!("x-b3-spanid: {ID}")],
                Some((Some(low), Some(false), false)),
            ),
            (
                vec![single("?"), format!("x-b3-traceid: {LONG}"), format!("x-b3-spanid: {ID}")],
                Some((Some(long), None, false)),
            ),
            (vec![], None),
        ] {
            let headers = map(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let got = read(&headers);
            let got = got.map(|parent| (parent.ids.map(|ids| ids.0.get()), parent.sampled, parent.debug));
            assert_eq!(got, want, "{lines:?}");
        }
    }

    #[test]
    fn what_is_sent_on() {
        let mut random = fastrand::Rng::with_seed(1);
        let span = NonZeroU64::new(0xab).unwrap();
        for (came, single, multi, want) in [
            ("LONG-ID-1", true, false, &["b3: LONG-00000000000000ab-1-OWN"][..]),
            ("LOW-ID-0", true, false, &["b3: LOW-00000000000000ab-0-OWN"]),
            ("LONG-ID-d", true, false, &["b3: LONG-00000000000000ab-d-OWN"]),
            (
                "LONG-ID-1",
                false,
                true,
                &["x-b3-parentspanid: OWN", "x-b3-sampled: 1", "x-b3-spanid: 00000000000000ab", "x-b3-traceid: LONG"],
            ),
            (
                "LOW-ID-d",
                true,
                true,
                &[
                    "b3: LOW-00000000000000ab-d-OWN",
                    "x-b3-flags: 1",
                    "x-b3-parentspanid: OWN",
                    "x-b3-spanid: 00000000000000ab",
                    "x-b3-traceid: LOW",
                ],
            ),
        ] {
            let came = came.replace("LONG", LONG).replace("LOW", LOW).replace("ID", ID);
            let mut headers = map(&[&format!("b3: {came}"), "x-b3-sampled: 1", "x-b3-spanid: 1"]);
            let context = Context::new(read(&headers), Ratio::ALL, &mut random);
            write(&context, span, single, multi, &mut headers);
            let mut got: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            got.sort();
            let own = format!("{:016x}", context.span);
            let want: Vec<String> =
                want.iter().map(|line| line.replace("LONG", LONG).replace("LOW", LOW).replace("OWN", &own)).collect();
            assert_eq!(got, want, "{came}");
        }
    }
}
