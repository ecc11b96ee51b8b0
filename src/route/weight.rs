//! Weights as configured, and the shares of a route's requests that follow from them.

/// How much of a route's requests a target is meant to get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    /// An equal part of what the fixed weights leave. Written as no weight, or a negative one.
    #[default]
    Automatic,
    /// Above 0.
    Fixed(f64),
    /// An explicit 0: no requests.
    Excluded,
}

impl Weight {
    /// The meaning of a finite number in a tag or a command.
    pub(super) fn from_number(number: f64) -> Self {
        if number > 0.0 {
            Self::Fixed(number)
        } else if number < 0.0 {
            Self::Automatic
        } else {
            Self::Excluded
        }
    }

    /// The number as it is written in a command; `None` where nothing is written.
    pub(super) fn number(self) -> Option<f64> {
        match self {
            Self::Automatic => None,
            Self::Fixed(number) => Some(number),
            Self::Excluded => Some(0.0),
        }
    }

    /// This total divided by `n` targets.
    pub(super) fn part_of(self, n: usize) -> Self {
        match self {
            Self::Fixed(total) => Self::Fixed((total / n as f64).max(f64::MIN_POSITIVE)),
            other => other,
        }
    }
}

/// Reads a Go floating-point literal: decimal or hexadecimal, with `_` between digits. Infinity and NaN are refused.
pub(super) fn parse_number(text: &str) -> Result<f64, String> {
    let number = strip_underscores(text).and_then(|text| {
        let unsigned = text.trim_start_matches(['+', '-']);
        if text.len() - unsigned.len() > 1 {
            return None;
        }
        match unsigned.get(..2) {
            Some("0x" | "0X") => hexadecimal(&unsigned[2..]).map(|n| if text.starts_with('-') { -n } else { n }),
            // Rust reads words for infinity and NaN, Go's decimals begin with a digit or a point.
            _ if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') => text.parse().ok(),
            _ => None,
        }
    });
    match number {
        Some(number) if number.is_finite() => Ok(number),
        _ => Err(format!(
            "syntax error: weight value invalid: {:?} is not a finite number; write 0.25, 0 for no requests or -1 for automatic",
            super::excerpt(text)
        )),
    }
}

/// `None` if an underscore does not stand between digits (or between the hexadecimal prefix and a digit).
fn strip_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    for (i, _) in bytes.iter().enumerate().filter(|(_, b)| **b == b'_') {
        let before = i.checked_sub(1).map(|i| bytes[i]).unwrap_or_default();
        let after = bytes.get(i + 1).copied().unwrap_or_default();
        if !(before.is_ascii_hexdigit() || matches!(before, b'x' | b'X')) || !after.is_ascii_hexdigit() {
            return None;
        }
    }
    Some(text.replace('_', ""))
}

/// `h.hhhp±d` without sign and `0x`. The exponent is mandatory, as in Go.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut number = 0.0;
    for c in whole.chars() {
        number = number * 16.0 + f64::from(c.to_digit(16)?);
    }
    let mut unit = 1.0 / 16.0;
    for c in fraction.chars() {
        number += f64::from(c.to_digit(16)?) * unit;
        unit /= 16.0;
    }
    Some(number * 2f64.powi(exponent))
}

/// The share of each target, 0 to 1: fixed weights are shares as long as they sum to at most 1 and somebody takes the
/// rest, otherwise ratios. Excluded targets take no part.
pub(super) fn shares(weights: &[Weight]) -> Vec<f64> {
    let count = weights.iter().filter(|w| **w != Weight::Excluded).count();
    let fixed = weights.iter().filter(|w| matches!(w, Weight::Fixed(_))).count();
    // Scaled to the largest, so that a few weights of 1e308 do not sum to infinity.
    let largest = weights.iter().filter_map(|w| w.number()).fold(0.0, f64::max);
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let scaled: f64 = weights.iter().filter_map(|w| w.number()).map(|w| w / unit).sum();
    let sum = scaled * largest;
    // What floating-point sums like 0.7 + 0.2 + 0.1 miss to 1 is not a rest for anybody.
    let rest = if sum < 1.0 - 1e-9 { 1.0 - sum } else { 0.0 };
    let ratios = sum > 1.0 || fixed == count;
    weights
        .iter()
        .map(|weight| match weight {
            Weight::Excluded => 0.0,
            Weight::Automatic if fixed == 0 => 1.0 / count as f64,
            Weight::Automatic => rest / (count - fixed) as f64,
            Weight::Fixed(w) if ratios => w / unit / scaled,
            Weight::Fixed(w) => *w,
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use Weight::{Automatic as A, Excluded as X, Fixed as F};

    use super::*;

    #[test]
    fn numbers_as_go_reads_them() {
        for (text, want) in [
            ("1", 1.0),
            ("+0.5", 0.5),
            ("-1", -1.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e-3", 0.001),
            ("1E2", 100.0),
            ("1_000.5", 1000.5),
            ("0x1p-2", 0.25),
            ("0x1.8p1", 3.0),
            ("-0X_1P0", -1.0),
            ("0", 0.0),
            ("1e308", 1e308),
        ] {
            assert_eq!(parse_number(text), Ok(want), "{text}");
        }
        for text in [
            "",
            "abc",
            "nan",
            "NaN",
            "inf",
            "-Inf",
            "+infinity",
            "1e999",
            "--1",
            "+-1",
            "1_",
            "_1",
            "1__0",
            "0x1",
            "0xp1",
            "1,5",
            "1 2",
            "e5",
            ".",
            "0.5f",
        ] {
            assert!(parse_number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn examples_of_shares() {
        for (weights, want) in [
            (vec![A], vec![1.0]),
            (vec![F(0.2)], vec![1.0]),
            (vec![X], vec![0.0]),
            (vec![F(0.2), F(0.3)], vec![0.4, 0.6]),
            (vec![F(2.0), F(3.0)], vec![0.4, 0.6]),
            (vec![A, A, F(0.5)], vec![0.25, 0.25, 0.5]),
            (vec![A, F(0.25), F(0.75)], vec![0.0, 0.25, 0.75]),
            (vec![A, F(1.0), F(3.0)], vec![0.0, 0.25, 0.75]),
            (vec![A, F(0.05), F(0.05)], vec![0.9, 0.05, 0.05]),
            (vec![F(0.1), F(0.9)], vec![0.1, 0.9]),
            (vec![F(0.3), A], vec![0.3, 0.7]),
            (vec![F(0.57), A], vec![0.57, 0.43]),
            (vec![F(0.00001), A], vec![0.00001, 0.99999]),
            (vec![F(0.7), F(0.2), F(0.1), A], vec![0.7, 0.2, 0.1, 0.0]),
            (vec![X, A, A], vec![0.0, 0.5, 0.5]),
            (vec![X, F(0.5)], vec![0.0, 1.0]),
            (vec![X, F(0.25), A], vec![0.0, 0.25, 0.75]),
            (vec![F(1e308), F(1e308), A], vec![0.5, 0.5, 0.0]),
            (vec![F(5e-324), F(5e-324)], vec![0.5, 0.5]),
        ] {
            let got = shares(&weights);
            assert_eq!(got.len(), want.len());
            for (g, w) in got.iter().zip(&want) {
                assert!((g - w).abs() < 1e-9, "{weights:?}: {got:?}, expected {want:?}");
            }
        }
        let mut many = vec![A; 1234];
        many.push(F(0.2));
        assert!((shares(&many)[0] - 0.8 / 1234.0).abs() < 1e-12);
    }
}
