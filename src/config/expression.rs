//! Regular expressions of operators, which were written for Go.

use regex::Regex;

/// Compiles an expression. What Go refuses and the engine here would take is refused as well: `.*+` is a slip of the escape
/// in `.*\+`, not a wish.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    if let Some(operator) = nested_repetition(text) {
        return Err(format!("error parsing regexp: invalid nested repetition operator: `{operator}`"));
    }
    Regex::new(text).map_err(|e| format!("error parsing regexp: {}", e.to_string().lines().last().unwrap_or_default()))
}

/// Two repetitions in a row. A `?` behind one only makes it lazy.
fn nested_repetition(text: &str) -> Option<&str> {
    let (mut before, mut lazy, mut class) = (None, false, false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                (before, lazy) = (None, false);
            }
            '[' if !class => class = true,
            ']' if class => {
                class = false;
                (before, lazy) = (None, false);
            }
            _ if class => {}
            '*' | '+' | '?' => match before {
                None => (before, lazy) = (Some(at), false),
                Some(_) if c == '?' && !lazy => lazy = true,
                Some(start) => return Some(&text[start..=at]),
            },
            _ => (before, lazy) = (None, false),
        }
        // `(?i)` and the like: the question mark repeats nothing.
        if c == '(' && text[at + 1..].starts_with('?') {
            chars.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_refuses_is_refused() {
        for (text, valid) in [
            (r"^(text/.*|application/(javascript|json)|.*\+(json|xml))(;.*)?$", true),
            (r"^.*\+json$", true),
            ("^.*+json$", false),
            ("a**", false),
            ("a*?", true),
            ("a*??", false),
            ("a+?b+", true),
            ("[*+?]+", true),
            (r"\*+", true),
            ("(?i)text", true),
            ("(", false),
            ("*a", false),
            ("", true),
        ] {
            assert_eq!(compile(text).is_ok(), valid, "{text}");
        }
    }
}
