//! Text as Go programs read and write it, where a client of Consul can see the difference: durations, booleans, numbers
//! in query strings, and the path cleaning of Go's request multiplexer.

use std::time::Duration;

/// Parse a duration such as `1m30s`, `1.5h` or `100ms`; negative ones become zero. `None` if it is not one.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if !number.bytes().any(|b| b.is_ascii_digit()) {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        nanos += number * scale;
        rest = tail;
    }
    if nanos > i64::MAX as f64 {
        return None;
    }
    Some(if negative { Duration::ZERO } else { Duration::from_nanos(nanos as u64) })
}

/// Write a duration as Go does: `1m0s`, `1.5s`, `100ms`, `0s`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fraction = |value: u128, scale: u128, unit: &str| {
        let mut text = format!("{}", value / scale);
        let rest = value % scale;
        if rest > 0 {
            let width = scale.ilog10() as usize;
            text = format!("{text}.{}", format!("{rest:0width$}").trim_end_matches('0'));
        }
        text + unit
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => fraction(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(nanos, 1_000_000, "ms"),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = fraction(nanos % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

/// The spellings that Go's `strconv.ParseBool` takes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The path with `//`, `.` and `..` resolved, keeping a final slash: where Go's multiplexer redirects an unclean path.
pub(crate) fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases: [(&str, Option<u64>); 14] = [
            ("1s", Some(1_000_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("100ms", Some(100_000_000)),
            ("7µs", Some(7_000)),
            (".5s", Some(500_000_000)),
            ("0", Some(0)),
            ("-1s", Some(0)),
            ("", None),
            ("1", None),
            ("s", None),
            (".s", None),
            ("1x", None),
            ("99999999999h", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_duration(text), nanos.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn durations_as_text() {
        for (nanos, text) in [
            (0, "0s"),
            (15, "15ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (1_050_000_000, "1.05s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_430_000_000_000, "1h30m30s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn paths() {
        for (path, clean) in [
            ("/v1/kv/a", "/v1/kv/a"),
            ("/v1/kv//a", "/v1/kv/a"),
            ("/v1/kv/../x", "/v1/x"),
            ("/v1/kv/a/./b", "/v1/kv/a/b"),
            ("/v1/kv/", "/v1/kv/"),
            ("/../..", "/"),
            ("", "/"),
        ] {
            assert_eq!(clean_path(path), clean, "{path:?}");
        }
    }
}
