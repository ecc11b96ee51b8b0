//! Numbers and truth values as Go reads them, and sizes in bytes.

/// An integer in Go's notation: a sign, a base prefix (`0x`, `0o`, `0b`, a leading `0` for octal) and underscores
/// between digits.
pub(crate) fn int(text: &str) -> Result<i64, Fault> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = uint(digits)?;
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(n)) => Ok(n),
        (true, Ok(n)) => Ok(-n),
        (true, Err(_)) if magnitude == 1 << 63 => Ok(i64::MIN),
        (_, Err(_)) => Err(Fault::Range),
    }
}

/// As [`int`], without a sign.
pub(crate) fn uint(text: &str) -> Result<u64, Fault> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    // An underscore may stand between digits and behind a prefix, which here means: never first without a prefix, never
    // last, never doubled.
    let first = if digits.len() < lower.len() { digits.strip_prefix('_').unwrap_or(digits) } else { digits };
    if first.is_empty() || first.starts_with('_') || first.ends_with('_') || first.contains("__") {
        return Err(Fault::Syntax);
    }
    let mut value: Option<u64> = Some(0);
    for c in first.chars().filter(|&c| c != '_') {
        let digit = c.to_digit(radix).ok_or(Fault::Syntax)?;
        value = value.and_then(|n| n.checked_mul(u64::from(radix))?.checked_add(u64::from(digit)));
    }
    value.ok_or(Fault::Range)
}

/// Bytes: a plain number, or one with `k`, `M`, `G` (also `kB`, `KiB` and so on); all of them are powers of 1024.
pub(crate) fn size(text: &str) -> Result<i64, Fault> {
    let end = text.find(['k', 'K', 'm', 'M', 'g', 'G']).filter(|_| !text.starts_with("0x"));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(Fault::Syntax),
    };
    int(digits.trim_end())?.checked_mul(1 << shift).ok_or(Fault::Range)
}

/// `1 t T true TRUE True` and `0 f F false FALSE False`.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Syntax,
    Range,
}

impl Fault {
    /// The words of Go's strconv.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Fault::Syntax => "invalid syntax",
            Fault::Range => "value out of range",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_go_reads_them() {
        for (text, want) in [
            ("0", Ok(0)),
            ("42", Ok(42)),
            ("-42", Ok(-42)),
            ("+42", Ok(42)),
            ("0x10", Ok(16)),
            ("0X1f", Ok(31)),
            ("0b101", Ok(5)),
            ("0o17", Ok(15)),
            ("017", Ok(15)),
            ("00", Ok(0)),
            ("1_000", Ok(1000)),
            ("0x_1f", Ok(31)),
            ("0_7", Ok(7)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(Fault::Range)),
            ("99999999999999999999999", Err(Fault::Range)),
            ("", Err(Fault::Syntax)),
            ("-", Err(Fault::Syntax)),
            ("1_", Err(Fault::Syntax)),
            ("_1", Err(Fault::Syntax)),
            ("1__0", Err(Fault::Syntax)),
            ("0x", Err(Fault::Syntax)),
            ("08", Err(Fault::Syntax)),
            ("many", Err(Fault::Syntax)),
            ("1.5", Err(Fault::Syntax)),
            ("--1", Err(Fault::Syntax)),
            ("9\u{e9}", Err(Fault::Syntax)),
        ] {
            assert_eq!(int(text), want, "{text}");
        }
    }

    #[test]
    fn sizes_may_have_a_unit() {
        for (text, want) in [
            ("262144", Ok(262_144)),
            ("256k", Ok(262_144)),
            ("256KiB", Ok(262_144)),
            ("1 MB", Ok(1 << 20)),
            ("2G", Ok(2 << 30)),
            ("0x100", Ok(256)),
            ("k", Err(Fault::Syntax)),
            ("1kk", Err(Fault::Syntax)),
            ("9223372036854775807G", Err(Fault::Range)),
        ] {
            assert_eq!(size(text), want, "{text}");
        }
    }
}
