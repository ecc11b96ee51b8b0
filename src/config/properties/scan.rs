//! From characters to keys and values: lines, escapes, continuation.

use super::Property;

pub(super) struct Scanner<'a> {
    pub(super) rest: &'a str,
    pub(super) line: usize,
}

impl Scanner<'_> {
    pub(super) fn next(&mut self) -> Option<Result<Property, String>> {
        loop {
            match self.rest.chars().next()? {
                ' ' | '\t' | '\x0c' | '\r' | '\n' => _ = self.take(),
                '#' | '!' => self.skip_line(),
                _ => break,
            }
        }
        let line = self.line;
        let key = match self.key() {
            Ok(key) => key,
            Err(mistake) => return Some(Err(self.abandon(line, mistake))),
        };
        self.separator();
        let value = match self.value() {
            Ok(value) => value,
            Err(mistake) => return Some(Err(self.abandon(line, mistake))),
        };
        if key.is_empty() {
            return Some(Err(format!("properties: Line {line}: {value:?}: a value without a key")));
        }
        Some(Ok(Property { key, value, line, referenced: false, earlier: Vec::new(), undefined: Vec::new() }))
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip_line(&mut self) {
        let end = self.rest.find(['\r', '\n']).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// The rest of a broken line means nothing.
    fn abandon(&mut self, line: usize, mistake: String) -> String {
        self.skip_line();
        format!("properties: Line {line}: {mistake}")
    }

    fn key(&mut self) -> Result<String, String> {
        let mut key = String::new();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\x0c' | '\r' | '\n' | ':' | '=' => break,
                '\\' => self.escape(&mut key)?,
                _ => {
                    key.push(c);
                    self.take();
                }
            }
        }
        Ok(key)
    }

    fn separator(&mut self) {
        self.blanks();
        if matches!(self.peek(), Some(':' | '=')) {
            self.take();
            self.blanks();
        }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\x0c')) {
            self.take();
        }
    }

    fn value(&mut self) -> Result<String, String> {
        let mut value = String::new();
        while let Some(c) = self.peek() {
            match c {
                '\r' | '\n' => break,
                '\\' => self.escape(&mut value)?,
                _ => {
                    value.push(c);
                    self.take();
                }
            }
        }
        Ok(value)
    }

    /// At a backslash.
    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        self.take();
        match self.take() {
            None => return Err("premature EOF".to_owned()),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let unit = self.hex()?;
                out.push(self.code_point(unit));
            }
            // A continued line; CR LF is one line end.
            Some(c @ ('\r' | '\n')) => {
                if c == '\r' && self.peek() == Some('\n') {
                    self.take();
                }
                self.blanks();
            }
            Some(c) => out.push(c),
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|c| c.to_digit(16)).ok_or("invalid unicode literal")?;
            self.take();
            code = code * 16 + digit;
        }
        Ok(code)
    }

    /// Java writes characters beyond the first plane as two units.
    fn code_point(&mut self, unit: u32) -> char {
        if let (0xd800..0xdc00, Some(rest)) = (unit, self.rest.strip_prefix("\\u")) {
            let low = rest.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            if let Some(low @ 0xdc00..0xe000) = low {
                self.rest = &rest[4..];
                return char::from_u32(0x10000 + ((unit - 0xd800) << 10 | (low - 0xdc00))).unwrap_or(REPLACEMENT);
            }
        }
        char::from_u32(unit).unwrap_or(REPLACEMENT)
    }
}

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
