//! The Prometheus text format 0.0.4, written as client_golang writes it.

use std::fmt::Write;

use super::series::{Buckets, Sample};

/// Writes one family after another. A family without a series leaves no trace.
pub(super) struct Writer {
    out: String,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { out: String::new() }
    }

    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {}", escape_help(help));
        let _ = writeln!(self.out, "# TYPE {name} {kind}");
    }

    /// `labels` in order of their names.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.line(name, "", labels, None, value);
    }

    pub(super) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], buckets: &Buckets, sample: &Sample) {
        let mut sum = 0u64;
        for (le, count) in buckets.labels.iter().zip(&sample.counts) {
            sum = sum.wrapping_add(*count);
            self.line(name, "_bucket", labels, Some(le), sum as f64);
        }
        self.line(name, "_sum", labels, None, sample.seconds());
        self.line(name, "_count", labels, None, sum as f64);
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], le: Option<&str>, value: f64) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let mut separator = '{';
        // `le` stands last whatever its place in the alphabet.
        for (label, text) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            self.out.push(separator);
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape_label(&mut self.out, text);
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        self.out.push(' ');
        self.out.push_str(&float(value));
        self.out.push('\n');
    }
}

/// A number as Go's `strconv.FormatFloat(f, 'g', -1, 64)` prints it: the shortest digits that read back the same, with an
/// exponent of two digits at least below 1e-4 and from 1e6 on. client_golang prints counts this way, too.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if value == 0.0 {
        return "0".into();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..EXPONENT_FROM).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn escape_label(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

fn escape_help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

const EXPONENT_FROM: i32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.005, "0.005"),
            (2.5, "2.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000_012_34, "1.234e-05"),
            (100_000.0, "100000"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (123_456.789, "123456.789"),
            (1e21, "1e+21"),
            (1e100, "1e+100"),
            (-2.5e-7, "-2.5e-07"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(value), want);
        }
    }

    #[test]
    fn label_values_and_help_are_escaped() {
        let mut writer = Writer::new();
        writer.family("n", "counter", "a \\ b\nc \"d\"");
        writer.sample("n", &[("a", "q\"b\\s\nn"), ("b", "\u{e4}</x>{}=,")], 3.0);
        assert_eq!(
            writer.finish(),
            "# HELP n a \\\\ b\\nc \"d\"\n# TYPE n counter\nn{a=\"q\\\"b\\\\s\\nn\",b=\"\u{e4}</x>{}=,\"} 3\n"
        );
    }
}
