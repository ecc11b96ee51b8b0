//! Values of clients in a line: nothing they send can begin a line of its own or paint on a terminal.

use std::io::Write;

/// Stands for itself, wherever it is.
pub(super) fn is_harmless(byte: u8, quoted: bool) -> bool {
    (0x20..0x7f).contains(&byte) && !(quoted && matches!(byte, b'"' | b'\\'))
}

/// Copies a value. Control characters, also those of Unicode, and bytes that are no UTF-8 become `\x0a`; between double
/// quotes these and the backslash as well, as in nginx.
pub(super) fn plain(value: &[u8], quoted: bool, out: &mut Vec<u8>) {
    for chunk in value.utf8_chunks() {
        let mut buffer = [0; 4];
        for c in chunk.valid().chars() {
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            if is_harmful(c) || (quoted && matches!(c, '"' | '\\')) {
                hex(bytes, out)
            } else {
                out.extend_from_slice(bytes)
            }
        }
        hex(chunk.invalid(), out);
    }
}

/// A JSON string with its quotes.
pub(super) fn json(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in value.utf8_chunks() {
        let mut buffer = [0; 4];
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                c if is_harmful(c) => _ = write!(out, "\\u{:04x}", u32::from(c)),
                c => out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            }
        }
        // A lone byte has no place in JSON; as Latin-1, which header values once were, it can at least be read.
        for byte in chunk.invalid() {
            let _ = write!(out, "\\u{byte:04x}");
        }
    }
    out.push(b'"');
}

/// Controls, separators that end a line for some readers, and what changes the direction of the text around it.
pub fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_on_their_line() {
        for (value, want, as_json) in [
            (&b"plain \"quoted\" \\"[..], "plain \"quoted\" \\", r#""plain \"quoted\" \\""#),
            (b"a\r\nb\0\x1b[2J\x7f", r"a\x0d\x0ab\x00\x1b[2J\x7f", r#""a\u000d\u000ab\u0000\u001b[2J\u007f""#),
            ("h\u{e9}llo \u{4e16}".as_bytes(), "h\u{e9}llo \u{4e16}", "\"h\u{e9}llo \u{4e16}\""),
            ("\u{85}x\u{2028}".as_bytes(), r"\xc2\x85x\xe2\x80\xa8", r#""\u0085x\u2028""#),
            (b"\xe9t\xc3", r"\xe9t\xc3", r#""\u00e9t\u00c3""#),
            (b"", "", "\"\""),
        ] {
            let mut out = Vec::new();
            plain(value, false, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
            out.clear();
            plain(value, true, &mut out);
            let quoted = want.replace("plain \"quoted\" \\", r"plain \x22quoted\x22 \x5c");
            assert_eq!(String::from_utf8_lossy(&out), quoted);
            out.clear();
            json(value, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), as_json);
            assert!(serde_json::from_slice::<String>(&out).is_ok());
        }
    }
}
