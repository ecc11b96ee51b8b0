//! `traceparent` and `tracestate` (W3C Trace Context).

use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::context::{Context, Parent, RANDOM, SAMPLED, from_hex, hex, span_from_hex};

/// `None`: there is none, or it is not to be understood, and then `tracestate` is nobody's either (section 4.3).
pub(super) fn read(headers: &HeaderMap) -> Option<Parent> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let parent = parse(line.as_bytes().trim_ascii())?;
    let mut states = headers.get_all(TRACESTATE).iter();
    let state = match (states.next(), states.next()) {
        (Some(one), None) => Some(one.clone()),
        (Some(first), Some(second)) => {
            let lines = [first, second].into_iter().chain(states);
            let lines: Vec<&[u8]> = lines.map(HeaderValue::as_bytes).filter(|line| !line.is_empty()).collect();
            HeaderValue::from_bytes(&lines.join(&b","[..])).ok()
        }
        (None, _) => None,
    };
    Some(Parent { state, ..parent })
}

/// `version "-" trace-id "-" parent-id "-" trace-flags`, and whatever versions to come may put behind another dash.
fn parse(line: &[u8]) -> Option<Parent> {
    let (fields, rest) = line.split_at_checked(LENGTH)?;
    let version = from_hex(&fields[..2], false)?;
    let fits = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    let dashes = [2, 35, 52].into_iter().all(|place| fields[place] == b'-');
    if !fits || !dashes {
        return None;
    }
    let trace = NonZeroU128::new(from_hex(&fields[3..35], false)?)?;
    let span = span_from_hex(&fields[36..52], false)?;
    let flags = from_hex(&fields[53..], false)? as u8;
    Some(Parent {
        ids: Some((trace, span)),
        sampled: Some(flags & SAMPLED != 0),
        // What a later version means by other bits is not known.
        random: flags & RANDOM != 0,
        w3c: true,
        ..Parent::default()
    })
}

/// Names `span` as the parent of what is to come. `tracestate` stays as it came, if it belongs to this trace.
pub(super) fn write(context: &Context, span: NonZeroU64, headers: &mut HeaderMap) {
    let mut line = [b'-'; LENGTH];
    line[..2].copy_from_slice(b"00");
    line[3..35].copy_from_slice(&hex::<32>(context.trace.get()));
    line[36..52].copy_from_slice(&hex::<16>(span.get().into()));
    line[53..].copy_from_slice(&hex::<2>(context.flag_bits().into()));
    headers.insert(TRACEPARENT, HeaderValue::from_bytes(&line).expect("hex digits and dashes"));
    if !context.w3c {
        headers.remove(TRACESTATE);
    }
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const LENGTH: usize = 55;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x1234_5678_9012_3456_7890_1234_5678_9012;
    const SPAN: u64 = 0x1234_5678_9012_3456;

    /// The cases of the validation suite of the W3C, by their names there.
    #[test]
    fn what_others_send() {
        for (name, line, want) in [
            ("version_0x00", "00-12345678901234567890123456789012-1234567890123456-01", Some(true)),
            ("not sampled", "00-12345678901234567890123456789012-1234567890123456-00", Some(false)),
            ("version_0x00 with a dot", "00-12345678901234567890123456789012-1234567890123456-01.", None),
            ("version_0x00 with more", "00-12345678901234567890123456789012-1234567890123456-01-what-is-this", None),
            ("version_0xcc", "cc-12345678901234567890123456789012-1234567890123456-01", Some(true)),
            ("version_0xcc with more", "cc-12345678901234567890123456789012-1234567890123456-01-what", Some(true)),
            ("version_0xcc with a dot", "cc-12345678901234567890123456789012-1234567890123456-01.what", None),
            ("version_0xff", "ff-12345678901234567890123456789012-1234567890123456-01", None),
            ("version_illegal_characters", ".0-12345678901234567890123456789012-1234567890123456-01", None),
            ("version_illegal_characters", "0.-12345678901234567890123456789012-1234567890123456-01", None),
            ("version_too_long", "000-12345678901234567890123456789012-1234567890123456-01", None),
            ("version_too_long", "0000-12345678901234567890123456789012-1234567890123456-01", None),
            ("version_too_short", "0-12345678901234567890123456789012-1234567890123456-01", None),
            ("trace_id_all_zero", "00-00000000000000000000000000000000-1234567890123456-01", None),
            ("trace_id_illegal_characters", "00-.2345678901234567890123456789012-1234567890123456-01", None),
            ("trace_id_illegal_characters", "00-1234567890123456789012345678901.-1234567890123456-01", None),
            ("trace_id upper case", "00-ABCDEF78901234567890123456789012-1234567890123456-01", None),
            ("trace_id_too_long", "00-123456789012345678901234567890123-1234567890123456-01", None),
            ("trace_id_too_short", "00-1234567890123456789012345678901-1234567890123456-01", None),
            ("parent_id_all_zero", "00-12345678901234567890123456789012-0000000000000000-01", None),
            ("parent_id_illegal_characters", "00-12345678901234567890123456789012-.234567890123456-01", None),
            ("parent_id_illegal_characters", "00-12345678901234567890123456789012-123456789012345.-01", None),
            ("parent_id_too_long", "00-12345678901234567890123456789012-12345678901234567-01", None),
            ("parent_id_too_short", "00-12345678901234567890123456789012-123456789012345-01", None),
            ("trace_flags_illegal_characters", "00-12345678901234567890123456789012-1234567890123456-.0", None),
            ("trace_flags_illegal_characters", "00-12345678901234567890123456789012-1234567890123456-0.", None),
            ("trace_flags_too_long", "00-12345678901234567890123456789012-1234567890123456-001", None),
            ("trace_flags_too_short", "00-12345678901234567890123456789012-1234567890123456-1", None),
            ("ows_handling", " \t00-12345678901234567890123456789012-1234567890123456-01 \t", Some(true)),
            ("unknown flags", "00-12345678901234567890123456789012-1234567890123456-f9", Some(true)),
            ("other separators", "00_12345678901234567890123456789012-1234567890123456-01", None),
            ("nothing", "", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, HeaderValue::from_str(line).unwrap());
            let parent = read(&headers);
            assert_eq!(parent.as_ref().map(|parent| parent.sampled), want.map(Some), "{name}: {line}");
            if let Some(parent) = parent {
                let ids = parent.ids.unwrap();
                assert_eq!((ids.0.get(), ids.1.get()), (TRACE, SPAN), "{name}: {line}");
            }
        }
    }

    #[test]
    fn several_lines() {
        let line = HeaderValue::from_static("00-12345678901234567890123456789012-1234567890123456-01");
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, line.clone());
        for state in ["a=1", "", "b=2,c=3"] {
            headers.append(TRACESTATE, HeaderValue::from_static(state));
        }
        assert_eq!(read(&headers).unwrap().state.unwrap(), "a=1,b=2,c=3");
        headers.append(TRACEPARENT, line);
        assert_eq!(read(&headers), None);
    }

    #[test]
    fn what_is_sent_on() {
        let mut random = fastrand::Rng::with_seed(1);
        let span = NonZeroU64::new(0xab).unwrap();
        for (came, sampled, want) in [
            ("00-12345678901234567890123456789012-1234567890123456-01", true, "01"),
            ("00-12345678901234567890123456789012-1234567890123456-02", false, "02"),
            ("cc-12345678901234567890123456789012-1234567890123456-ff-x", true, "03"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, HeaderValue::from_str(came).unwrap());
            headers.append(TRACESTATE, HeaderValue::from_static("a=1"));
            headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
            let context = Context::new(read(&headers), crate::traces::Ratio::ALL, &mut random);
            assert_eq!(context.sampled, sampled);
            write(&context, span, &mut headers);
            let line = format!("00-12345678901234567890123456789012-00000000000000ab-{want}");
            assert_eq!(headers.get_all(TRACEPARENT).iter().collect::<Vec<_>>(), [&line]);
            assert_eq!(headers.get_all(TRACESTATE).iter().collect::<Vec<_>>(), ["a=1", "b=2"], "as it came");
        }
        // A state without a trace that it could be the state of.
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static("00-what"));
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        let context = Context::new(read(&headers), crate::traces::Ratio::ALL, &mut random);
        write(&context, span, &mut headers);
        assert!(!headers.contains_key(TRACESTATE));
        assert!(read(&headers).unwrap().ids.unwrap().0 == context.trace);
    }
}
