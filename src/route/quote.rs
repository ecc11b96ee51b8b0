//! How names, tags and options are written into lines for people: a line stays one line, whatever is in it.

use std::fmt::Write as _;

/// A word of the route language. Blanks and control characters become escapes.
pub(super) fn word(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            ' ' => out.push_str("\\x20"),
            c if c.is_control() || c.is_whitespace() => control(out, c),
            c => out.push(c),
        }
    }
}

/// The inside of `opts "..."`: blanks separate options there, quotes have no meaning for the parser's values.
pub(super) fn plain(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() { control(out, c) } else { out.push(c) }
    }
}

/// The inside of `tags "..."`, as Go quotes strings.
pub(super) fn quoted(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => control(out, c),
            c => out.push(c),
        }
    }
}

fn control(out: &mut String, c: char) {
    match c {
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c if c.is_ascii() => {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        }
        c => {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
}
