//! `metrics.prefix` and `metrics.names`: the part of Go's text/template that metric names need.
//!
//! Text, comments, trim markers, and pipelines of one field or string literal through `clean`. No conditions, no loops,
//! no printf: an unknown word is an error, at start, rather than a name nobody expected.

use super::names::clean;

/// What the word `default` stands for.
pub const DEFAULT_PREFIX: &str = "{{clean .Hostname}}.{{clean .Exec}}";

/// Expands `metrics.prefix`. `exec` is `fabio`, whatever the binary is called: dashboards hold names with it.
pub fn expand_prefix(template: &str, hostname: &str, exec: &str) -> Result<String, PrefixError> {
    let template = if template == "default" { DEFAULT_PREFIX } else { template };
    let parsed = Template::parse(template).map_err(|reason| PrefixError { reason })?;
    parsed
        .render(|field| match field {
            ".Hostname" => Some(hostname.to_string()),
            ".Exec" => Some(exec.to_string()),
            _ => None,
        })
        .map_err(|reason| PrefixError { reason })
}

/// A `metrics.prefix` that is no template, or asks for what there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixError {
    reason: String,
}

impl std::fmt::Display for PrefixError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "metrics: invalid Prefix template: {}", self.reason)
    }
}

impl std::error::Error for PrefixError {}

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Value { operand: Operand, clean: bool },
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// With its leading dot.
    Field(String),
    Literal(String),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut trim = false;
        loop {
            let (before, found) = match rest.split_once("{{") {
                Some((before, after)) => (before, Some(after)),
                None => (rest, None),
            };
            let mut before = if trim { before.trim_start_matches(BLANKS) } else { before };
            let Some(mut action) = found else {
                push_text(&mut pieces, before);
                return Ok(Self(pieces));
            };
            if let Some(inner) = action.strip_prefix('-').filter(|inner| inner.starts_with(BLANKS)) {
                before = before.trim_end_matches(BLANKS);
                action = inner;
            }
            push_text(&mut pieces, before);

            let end = end_of_action(action)?;
            let mut inner = &action[..end];
            rest = &action[end + 2..];
            trim = match inner.strip_suffix('-').filter(|inner| inner.ends_with(BLANKS)) {
                Some(without) => {
                    inner = without;
                    true
                }
                None => false,
            };
            let inner = inner.trim_matches(BLANKS);
            if inner.starts_with("/*") && inner.ends_with("*/") && inner.len() >= 4 {
                continue;
            }
            pieces.push(pipeline(inner)?);
        }
    }

    /// `field` gives the value of a field, named with its dot.
    pub(super) fn render(&self, field: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value { operand, clean: cleaned } => {
                    let value = match operand {
                        Operand::Literal(text) => text.clone(),
                        Operand::Field(name) => field(name).ok_or_else(|| format!("can't evaluate field {name}"))?,
                    };
                    out.push_str(&if *cleaned { clean(&value) } else { value });
                }
            }
        }
        Ok(out)
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.into()));
    }
}

/// Where the `}}` of an action begins; string literals and comments may hold braces.
fn end_of_action(action: &str) -> Result<usize, String> {
    let mut quote = None;
    let mut comment = false;
    let mut skip = 0;
    for (at, c) in action.char_indices() {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let here = &action[at..];
        match (quote, comment) {
            (Some('"'), _) if c == '\\' => skip = 1,
            (Some(q), _) if c == q => quote = None,
            (Some(_), _) => {}
            (None, true) if here.starts_with("*/") => {
                comment = false;
                skip = 1;
            }
            (None, true) => {}
            (None, false) if here.starts_with("}}") => return Ok(at),
            (None, false) if here.starts_with("/*") => {
                comment = true;
                skip = 1;
            }
            (None, false) if c == '"' || c == '`' => quote = Some(c),
            (None, false) => {}
        }
    }
    Err(match quote {
        Some(_) => "unterminated quoted string".into(),
        None => "unclosed action".into(),
    })
}

/// `operand`, `clean operand`, and either of them followed by `| clean` any number of times.
fn pipeline(text: &str) -> Result<Piece, String> {
    let mut words = words(text)?.into_iter();
    let mut cleaned = false;
    let mut word = words.next().ok_or("missing value for command")?;
    if word == Word::Name("clean".into()) {
        cleaned = true;
        word = words.next().ok_or("wrong number of args for clean: want 1 got 0")?;
    }
    let operand = match word {
        Word::Literal(text) => Operand::Literal(text),
        Word::Name(name) if name.len() > 1 && name.starts_with('.') => Operand::Field(name),
        Word::Name(name) => return Err(format!("function {name:?} not defined")),
        Word::Pipe => return Err("missing value for command".into()),
    };
    while let Some(word) = words.next() {
        match (word, words.next()) {
            (Word::Pipe, Some(Word::Name(name))) if name == "clean" => cleaned = true,
            (Word::Pipe, Some(Word::Name(name))) => return Err(format!("function {name:?} not defined")),
            (Word::Pipe, _) => return Err("missing value for command".into()),
            _ => return Err(format!("wrong number of args in {text:?}")),
        }
    }
    Ok(Piece::Value { operand, clean: cleaned })
}

#[derive(Debug, PartialEq)]
enum Word {
    Name(String),
    Literal(String),
    Pipe,
}

fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(BLANKS);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '|' => {
                words.push(Word::Pipe);
                1
            }
            '"' | '`' => {
                let (literal, length) = literal(rest, first)?;
                words.push(Word::Literal(literal));
                length
            }
            _ => {
                let length = rest.find(|c: char| "|\"`".contains(c) || BLANKS.contains(&c)).unwrap_or(rest.len());
                let name = &rest[..length];
                if let Some(c) = name.chars().find(|c| !c.is_alphanumeric() && *c != '_' && *c != '.') {
                    return Err(format!("unexpected {c:?} in command"));
                }
                words.push(Word::Name(name.into()));
                length
            }
        };
        rest = rest[length..].trim_start_matches(BLANKS);
    }
    Ok(words)
}

/// A Go string literal and its length in bytes, quotes included.
fn literal(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((value, at + 1)),
            '\\' if quote == '"' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                _ => return Err("invalid escape in quoted string".into()),
            },
            c => value.push(c),
        }
    }
    Err("unterminated quoted string".into())
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_expand() {
        for (template, want) in [
            ("default", "myhost.fabio"),
            (DEFAULT_PREFIX, "myhost.fabio"),
            ("", ""),
            ("lab", "lab"),
            ("My.Pre:fix", "My.Pre:fix"),
            ("{{.Hostname}}", "My.Host"),
            ("{{ clean .Hostname }}", "my_host"),
            ("a-{{.Hostname | clean}}-b", "a-my_host-b"),
            ("{{clean .Hostname|clean}}", "my_host"),
            ("{{`raw.}}` | clean}}{{\"a\\\"}}\"}}", "raw_}}a\"}}"),
            ("a {{- /* no {{ here */ -}} b", "ab"),
            ("a \n{{- .Exec -}}\t b", "afabiob"),
            ("{{.Exec}}}}{", "fabio}}{"),
            ("\u{e4}{{.Exec}}\u{e4}", "\u{e4}fabio\u{e4}"),
        ] {
            let hostname =
                if template.contains("Hostname") && template != DEFAULT_PREFIX { "My.Host" } else { "myhost" };
            assert_eq!(expand_prefix(template, hostname, "fabio").as_deref(), Ok(want), "{template:?}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (template, reason) in [
            ("{{", "unclosed action"),
            ("{{.Hostname", "unclosed action"),
            ("{{.Hostname}", "unclosed action"),
            ("{{}}", "missing value for command"),
            ("{{ | clean}}", "missing value for command"),
            ("{{.Hostname |}}", "missing value for command"),
            ("{{.Hostname | upper}}", "function \"upper\" not defined"),
            ("{{upper .Hostname}}", "function \"upper\" not defined"),
            ("{{clean}}", "wrong number of args for clean: want 1 got 0"),
            ("{{.Hostname .Exec}}", "wrong number of args in \".Hostname .Exec\""),
            ("{{.Nope}}", "can't evaluate field .Nope"),
            ("{{.}}", "function \".\" not defined"),
            ("{{\"a}}", "unterminated quoted string"),
            ("{{\"\\x\"}}", "invalid escape in quoted string"),
            ("{{$x}}", "unexpected '$' in command"),
            ("{{(clean .Exec)}}", "unexpected '(' in command"),
            ("{{/* a", "unclosed action"),
        ] {
            let error = expand_prefix(template, "h", "fabio").map_err(|e| e.to_string());
            assert_eq!(error, Err(format!("metrics: invalid Prefix template: {reason}")), "{template:?}");
        }
    }
}
