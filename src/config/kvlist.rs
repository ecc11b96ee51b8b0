//! The list-of-options language of `proxy.addr`, `ui.addr`, `proxy.cs`, `proxy.auth` and `bgp.peers`.
//!
//! ```text
//! list  = [ map ] { "," [ map ] }
//! map   = first { ";" [ pair ] }
//! first = pair | bare
//! pair  = key "=" value
//! ```
//!
//! A quote counts only where a piece begins; inside quotes stand the escapes of Go strings.

use std::collections::BTreeMap;

/// One element of a list. Its bare first value stands under the empty key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub pairs: BTreeMap<String, String>,
    /// Words where a pair was expected: `c` in `a=b;c`. They have no value; the reader decides whether that matters.
    pub dangling: Vec<String>,
}

impl Map {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.get(key).map(String::as_str)
    }

    /// As Go prints a map: `map[cs:a type:file]`.
    pub fn print(&self) -> String {
        let pairs: Vec<String> = self.pairs.iter().map(|(k, v)| format!("{k}:{v}")).collect();
        format!("map[{}]", pairs.join(" "))
    }
}

/// Reads a list. The error is the token that does not fit, or what is wrong with a quoted piece.
pub fn parse(text: &str) -> Result<Vec<Map>, String> {
    let mut lexer = Lexer { rest: text };
    let mut reader = Reader::default();
    while let Some(token) = lexer.next()? {
        reader.take(token)?;
    }
    Ok(reader.end())
}

enum Token {
    Text(String),
    Equals,
    Semicolon,
    Comma,
}

struct Lexer<'a> {
    rest: &'a str,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Option<Token>, String> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let single = match first {
            '=' => Some(Token::Equals),
            ';' => Some(Token::Semicolon),
            ',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = single {
            self.rest = &self.rest[1..];
            return Ok(Some(token));
        }
        if matches!(first, '"' | '\'') {
            let (inner, rest) = quoted(&self.rest[1..], first)?;
            self.rest = rest;
            return Ok(Some(Token::Text(unescape(inner, first)?)));
        }
        let end = self.rest.find(['=', ';', ',']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(Token::Text(text.to_owned())))
    }
}

/// Splits at the closing quote; a backslash hides the character behind it.
fn quoted(text: &str, quote: char) -> Result<(&str, &str), String> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return Ok((&text[..at], &text[at + 1..]));
        }
    }
    Err(if escaped { "unterminated escape sequence" } else { "unbalanced quotes" }.to_owned())
}

/// The escapes of a Go string. Single quotes may hold any text, not just one character as in Go; in them `\'` is a
/// quote, in double ones it is a mistake, and the reverse.
fn unescape(text: &str, quote: char) -> Result<String, String> {
    let invalid = || "invalid escape sequence".to_owned();
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let push = |out: &mut Vec<u8>, c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\n' {
            return Err(invalid());
        }
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        let number = |chars: &mut std::str::Chars<'_>, digits: usize, radix: u32, first: u32| {
            let mut n = first;
            for _ in 0..digits {
                n = n * radix + chars.next().and_then(|c| c.to_digit(radix)).ok_or_else(invalid)?;
            }
            Ok::<u32, String>(n)
        };
        match chars.next().ok_or_else(invalid)? {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            '\\' => out.push(b'\\'),
            c if c == quote => push(&mut out, c),
            'x' => out.push(u8::try_from(number(&mut chars, 2, 16, 0)?).map_err(|_| invalid())?),
            c @ '0'..='7' => {
                let n = number(&mut chars, 2, 8, c.to_digit(8).unwrap_or(0))?;
                out.push(u8::try_from(n).map_err(|_| invalid())?);
            }
            'u' => push(&mut out, char::from_u32(number(&mut chars, 4, 16, 0)?).ok_or_else(invalid)?),
            'U' => {
                let high = number(&mut chars, 4, 16, 0)?;
                let low = number(&mut chars, 4, 16, 0)?;
                // More than 21 bits is no code point, and must not overflow on the way.
                let code = if high > 0x10 { u32::MAX } else { high << 16 | low };
                push(&mut out, char::from_u32(code).ok_or_else(invalid)?);
            }
            _ => return Err(invalid()),
        }
    }
    String::from_utf8(out).map_err(|_| invalid())
}

#[derive(Default)]
enum State {
    /// At the start of an element.
    #[default]
    First,
    /// Behind its first word.
    After(String),
    /// Where a key may begin. `comma`: one stood since the last pair.
    Key { comma: bool },
    /// Behind a key.
    Equals { key: String, comma: bool },
    /// In the value of a key.
    Value { key: String, value: String },
}

#[derive(Default)]
struct Reader {
    state: State,
    map: Map,
    list: Vec<Map>,
}

impl Reader {
    fn take(&mut self, token: Token) -> Result<(), String> {
        let unexpected = |token: &Token| match token {
            Token::Text(text) => text.clone(),
            Token::Equals => "=".to_owned(),
            Token::Semicolon => ";".to_owned(),
            Token::Comma => ",".to_owned(),
        };
        self.state = match (std::mem::take(&mut self.state), token) {
            (State::First, Token::Text(text)) => State::After(text.trim().to_owned()),
            (State::First, Token::Semicolon | Token::Comma) => State::First,

            (State::After(key), Token::Equals) => State::Value { key, value: String::new() },
            (State::After(word), Token::Semicolon) => {
                self.bare(word);
                State::Key { comma: false }
            }
            (State::After(word), Token::Comma) => {
                self.bare(word);
                self.emit();
                State::First
            }

            (State::Key { comma }, Token::Text(text)) => State::Equals { key: text.trim().to_owned(), comma },
            (State::Key { comma }, Token::Semicolon) => State::Key { comma },
            (State::Key { .. }, Token::Comma) => State::Key { comma: true },

            (State::Equals { key, comma }, Token::Equals) => {
                // After `a=b;,` fabio reads on in the same element. That is kept unless it would lose a value.
                if comma && self.map.pairs.contains_key(&key) {
                    self.emit();
                }
                State::Value { key, value: String::new() }
            }
            // `:80;,:90`: the second is an element of its own, not a key without a value.
            (State::Equals { key, comma: true }, Token::Semicolon) => {
                self.emit();
                self.bare(key);
                State::Key { comma: false }
            }
            (State::Equals { key, comma: true }, Token::Comma) => {
                self.emit();
                self.bare(key);
                self.emit();
                State::First
            }

            (State::Value { key, mut value }, Token::Text(text)) => {
                value.push_str(&text);
                State::Value { key, value }
            }
            (State::Value { key, mut value }, Token::Equals) => {
                value.push('=');
                State::Value { key, value }
            }
            (State::Value { key, value }, Token::Semicolon) => {
                self.map.pairs.insert(key, value);
                State::Key { comma: false }
            }
            (State::Value { key, value }, Token::Comma) => {
                self.map.pairs.insert(key, value);
                self.emit();
                State::First
            }

            (_, token) => return Err(unexpected(&token)),
        };
        Ok(())
    }

    fn end(mut self) -> Vec<Map> {
        match std::mem::take(&mut self.state) {
            State::First | State::Key { .. } => {}
            State::After(word) => self.bare(word),
            State::Equals { key, comma: true } => {
                self.emit();
                self.bare(key);
            }
            State::Equals { key, comma: false } => self.dangling(key),
            State::Value { key, value } => {
                self.map.pairs.insert(key, value);
            }
        }
        self.emit();
        self.list
    }

    fn bare(&mut self, word: String) {
        if !word.is_empty() {
            self.map.pairs.insert(String::new(), word);
        }
    }

    fn dangling(&mut self, word: String) {
        if !word.is_empty() {
            self.map.dangling.push(word);
        }
    }

    fn emit(&mut self) {
        let map = std::mem::take(&mut self.map);
        if !map.pairs.is_empty() {
            self.list.push(map);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn print(text: &str) -> String {
        match parse(text) {
            Ok(list) => list.iter().map(Map::print).collect::<Vec<_>>().join(" "),
            Err(e) => format!("error {e}"),
        }
    }

    #[test]
    fn lists_are_read_as_documented() {
        for (text, want) in [
            ("", ""),
            ("a=b", "map[a:b]"),
            ("a=\"b\"", "map[a:b]"),
            ("a='b'", "map[a:b]"),
            (" a =b", "map[a:b]"),
            ("a= b ", "map[a: b ]"),
            ("a= \"b\"", "map[a: \"b\"]"),
            ("b", "map[:b]"),
            ("b,c", "map[:b] map[:c]"),
            ("b;c=d,e;f=g", "map[:b c:d] map[:e f:g]"),
            (" :80 ;proto=http", "map[::80 proto:http]"),
            (",a=b", "map[a:b]"),
            ("a=b,", "map[a:b]"),
            (";a=b", "map[a:b]"),
            ("a=b;", "map[a:b]"),
            (",,;;,a=b;;;c=d", "map[a:b c:d]"),
            ("a=b;c=d,e=f;g=h", "map[a:b c:d] map[e:f g:h]"),
            ("a=b=c;d=e=f", "map[a:b=c d:e=f]"),
            ("a=b=c,d=e=f", "map[a:b=c] map[d:e=f]"),
            ("a=", "map[a:]"),
            ("a=;b=c", "map[a: b:c]"),
            ("a=b;a=c", "map[a:c]"),
            ("a=\"b,c;d=e\"", "map[a:b,c;d=e]"),
            (r#"a="b\\\"""#, "map[a:b\\\"]"),
            ("a=\"b\"c", "map[a:bc]"),
            ("a=b\"c,d\"", "map[a:b\"c] map[:d\"]"),
            ("\"a,b\";c=d", "map[:a,b c:d]"),
            ("a=b;c", "map[a:b]"),
            ("a=b;,c=d", "map[a:b c:d]"),
            (":80;,:90", "map[::80] map[::90]"),
            ("a=b;,:90;c=d", "map[a:b] map[::90 c:d]"),
            ("a=b;,:90,:91", "map[a:b] map[::90] map[::91]"),
            ("cs=a;type=file;,cs=b;type=path", "map[cs:a type:file] map[cs:b type:path]"),
            ("a='bc'", "map[a:bc]"),
            (r"a='b\'c'", "map[a:b'c]"),
            (r#"a="\x41\101\u00e9\U0001F600\t""#, "map[a:AA\u{e9}\u{1f600}\t]"),
            (
                "cs=n;type=http;cert=https://u:p@h/l;hdr=Authorization: Bearer 1",
                "map[cert:https://u:p@h/l cs:n hdr:Authorization: Bearer 1 type:http]",
            ),
            (":80;proto=http , :443;cs=x", "map[::80 proto:http ] map[::443 cs:x]"),
            ("a=b;c;d=e", "error ;"),
            ("=b", "error ="),
            ("a=b;=c", "error ="),
            ("\"a\"b", "error b"),
            ("a=b;c,d=e", "error ,"),
            ("a=\"b", "error unbalanced quotes"),
            ("a='b", "error unbalanced quotes"),
            ("a=\"b\\", "error unterminated escape sequence"),
            (r#"a="\q""#, "error invalid escape sequence"),
            (r#"a="\'""#, "error invalid escape sequence"),
            (r#"a="\x4""#, "error invalid escape sequence"),
            (r#"a="\777""#, "error invalid escape sequence"),
            (r#"a="\uD800""#, "error invalid escape sequence"),
            (r#"a="\UFFFFFFFF""#, "error invalid escape sequence"),
            (r#"a="\xff""#, "error invalid escape sequence"),
            ("a=\"b\nc\"", "error invalid escape sequence"),
        ] {
            assert_eq!(print(text), want, "{text}");
        }
    }

    #[test]
    fn a_word_without_a_value_is_not_forgotten() {
        assert_eq!(parse(":443;cert.pem").unwrap()[0].dangling, ["cert.pem"]);
        assert_eq!(parse("a=b;c;").unwrap_err(), ";");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[a-c:=;,'\"\\\\x0-9 ]*") {
            let _ = parse(&text);
        }
    }
}
