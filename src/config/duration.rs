//! Durations as Go writes them: `1h2m3.5s`, `250ms`, `-1s`, `0`.
//!
//! Kept as signed nanoseconds, since some options give negative values a meaning and `/api/config` shows them so.

use std::time::Duration;

/// Reads a duration: an optional sign, then one or more decimal numbers, each with a unit (`ns us µs ms s m h`). The
/// bare `0` needs no unit. Fractions below a nanosecond are cut. The error is the sentence that Go prints.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    // The smallest i64 has no positive counterpart, so the sum is kept unsigned.
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some(scale) = scale(unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let part = whole_part(whole).and_then(|n| n.checked_mul(scale)).ok_or_else(invalid)?;
        total =
            total.checked_add(part).and_then(|n| n.checked_add(fraction_part(fraction, scale))).ok_or_else(invalid)?;
        if total > LIMIT {
            return Err(invalid());
        }
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(n)) => Ok(n),
        (true, Ok(n)) => Ok(-n),
        (true, Err(_)) => Ok(i64::MIN),
        (false, Err(_)) => Err(invalid()),
    }
}

/// Writes a duration as Go does: `1h2m3s`, `500ms`, `0s`.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let text = match n {
        0 => return "0s".to_owned(),
        1..1_000 => format!("{n}ns"),
        1_000..1_000_000 => decimal(n, 1_000, "µs"),
        1_000_000..SECOND => decimal(n, 1_000_000, "ms"),
        _ => {
            let (minutes, rest) = (n / (60 * SECOND), n % (60 * SECOND));
            let seconds = decimal(rest, SECOND, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

/// For options where a negative value means the same as none.
pub fn positive(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn scale(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // Both characters that look like a micro sign: U+00B5 and U+03BC.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

fn whole_part(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
}

/// `0.<digits>` of a unit, in nanoseconds. With floats, since that is how Go rounds; it ignores digits that do not fit.
fn fraction_part(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0u64, 1f64);
    for d in digits.bytes() {
        let Some(next) = value.checked_mul(10).and_then(|n| n.checked_add(u64::from(d - b'0'))) else { break };
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn decimal(n: u64, unit: u64, name: &str) -> String {
    let (whole, mut part) = (n / unit, n % unit);
    if part == 0 {
        return format!("{whole}{name}");
    }
    let mut width = unit.ilog10() as usize;
    while part % 10 == 0 {
        part /= 10;
        width -= 1;
    }
    format!("{whole}.{part:0width$}{name}")
}

const SECOND: u64 = 1_000_000_000;

/// The magnitude of the smallest i64.
const LIMIT: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        const S: i64 = 1_000_000_000;
        for (text, want) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5 * S),
            ("30s", 30 * S),
            ("1478s", 1478 * S),
            ("-5s", -5 * S),
            ("+5s", 5 * S),
            ("5.0s", 5 * S),
            ("5.6s", 5_600_000_000),
            ("5.s", 5 * S),
            (".5s", 500_000_000),
            ("1.0s", S),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900 * S),
            ("16h", 57_600 * S),
            ("3h30m", 12_600 * S),
            ("10.5s4m", 250_500_000_000),
            ("-2m3.4s", -123_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1_200 * S),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("0.100000000000000000000h", 360 * S),
            ("0.000000000000000000000000000000000000000000000000000000000000001h", 0),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for (text, want) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            ("-.", "time: invalid duration \"-.\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("5 s", "time: unknown unit \" s\" in duration \"5 s\""),
            ("abc", "time: invalid duration \"abc\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("99999999999999999999999s", "time: invalid duration \"99999999999999999999999s\""),
        ] {
            assert_eq!(parse(text), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (500_000_000, "500ms"),
            (3_300_000_000, "3.3s"),
            (30_000_000_000, "30s"),
            (245_000_000_000, "4m5s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_000_000_000, "-1s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format(nanos), want);
            assert_eq!(parse(want), Ok(nanos), "{want} read back");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn every_value_reads_back(nanos: i64) {
            proptest::prop_assert_eq!(parse(&format(nanos)), Ok(nanos));
        }
    }
}
