//! JSON to the letter as Go's encoder writes it, because tools compare and grep it.

use std::fmt::Write;

/// Writes an object, key by key.
pub(super) struct Object<'a> {
    out: &'a mut String,
    separator: char,
}

impl<'a> Object<'a> {
    pub(super) fn new(out: &'a mut String) -> Self {
        Self { out, separator: '{' }
    }

    pub(super) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        string(self.key(key), value);
        self
    }

    pub(super) fn number(&mut self, key: &str, value: f64) -> &mut Self {
        number(self.key(key), value);
        self
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        let _ = write!(self.key(key), "{value}");
        self
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, key: &str, values: impl IntoIterator<Item = T>) -> &mut Self {
        array(self.key(key), values, |out, value| string(out, value.as_ref()));
        self
    }

    /// For what has no method of its own: the value has to be written to what this returns.
    pub(super) fn key(&mut self, key: &str) -> &mut String {
        self.out.push(self.separator);
        self.separator = ',';
        string(self.out, key);
        self.out.push(':');
        self.out
    }

    pub(super) fn end(&mut self) {
        if self.separator == '{' {
            self.out.push('{');
        }
        self.out.push('}');
    }
}

pub(super) fn array<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

pub(super) fn string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let short = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            _ if in_html(c) || c < ' ' => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + c.len_utf8();
        if short.is_empty() {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// As short as possible, without exponent between 1e-6 and 1e21. JSON has no words for what is not finite: `null`.
pub(super) fn number(out: &mut String, value: f64) {
    let size = value.abs();
    let _ = match value {
        _ if !value.is_finite() => write!(out, "null"),
        _ if size != 0.0 && size < 1e-6 => write!(out, "{value:e}"),
        _ if size >= 1e21 => write!(out, "{}", format!("{value:e}").replacen('e', "e+", 1)),
        _ => write!(out, "{value}"),
    };
}

/// Escapes in finished JSON what could end a script element or a line of script. Outside of strings there is none of it.
pub(super) fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if in_html(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Indents finished, compact JSON by four blanks per level. Numbers stay as they are written.
pub(super) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut empty = false;
    for c in json.chars() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        let closes = matches!(c, '}' | ']');
        // An empty array or object stays on its line.
        if empty && !closes {
            new_line(&mut out, depth);
        }
        match c {
            '{' | '[' => {
                depth += 1;
                out.push(c);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !empty {
                    new_line(&mut out, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
        empty = matches!(c, '{' | '[');
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}

fn in_html(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        for (text, want) in [
            ("", r#""""#),
            ("a\u{e4}\u{7f}", "\"a\u{e4}\u{7f}\""),
            ("<b>&\u{2028}\u{2029}", r#""\u003cb\u003e\u0026\u2028\u2029""#),
            ("\"\\\n\r\t\u{8}\u{c}\u{1}\0", r#""\"\\\n\r\t\b\f\u0001\u0000""#),
        ] {
            let mut out = String::new();
            string(&mut out, text);
            assert_eq!(out, want);
            assert_eq!(serde_json::from_str::<String>(&out).ok().as_deref(), Some(text));
        }
        assert_eq!(escape_html(r#"{"a<":"&\"\u003c"}"#), r#"{"a\u003c":"\u0026\"\u003c"}"#);
    }

    #[test]
    fn numbers_are_written_as_go_does() {
        for (value, want) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (1.0 / 3.0, "0.3333333333333333"),
            (0.000_001, "0.000001"),
            (0.000_000_1, "1e-7"),
            (123_456_789.0, "123456789"),
            (1e21, "1e+21"),
            (f64::NAN, "null"),
        ] {
            let mut out = String::new();
            number(&mut out, value);
            assert_eq!(out, want);
        }
    }

    #[test]
    fn indentation_keeps_empty_things_on_their_line() {
        for (compact, want) in [
            ("{}", "{}"),
            ("[]", "[]"),
            ("null", "null"),
            ("{\"a\":[]}", "{\n    \"a\": []\n}"),
            (
                r#"{"a,:[{":"x\\\"}","b":[1,0.50],"c":{"d":{}}}"#,
                "{\n    \"a,:[{\": \"x\\\\\\\"}\",\n    \"b\": [\n        1,\n        0.50\n    ],\n    \"c\": {\n        \"d\": {}\n    }\n}",
            ),
        ] {
            assert_eq!(pretty(compact), want, "{compact}");
        }
    }

    #[test]
    fn an_object_without_keys_is_an_object() {
        let mut out = String::new();
        Object::new(&mut out).end();
        Object::new(&mut out).text("a", "1").number("b", 2.5).flag("c", true).texts("d", ["x"]).end();
        assert_eq!(out, r#"{}{"a":"1","b":2.5,"c":true,"d":["x"]}"#);
    }
}
