//! The properties file: `key = value` lines with escapes, continuation and `${}`.
//!
//! Whitespace at the end of a value belongs to it. There are no comments behind a value.

use std::collections::{BTreeMap, HashMap, HashSet};

/// One `key = value` of a file, expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub key: String,
    pub value: String,
    /// Where the key stands, counted from 1.
    pub line: usize,
    /// Another value mentions it in `${}`.
    pub referenced: bool,
    /// Where the same key stands before, with a value that does not count.
    pub earlier: Vec<usize>,
    /// Names in `${}` that neither the file nor the environment knows. They stand for nothing.
    pub undefined: Vec<String>,
}

/// Reads a whole file. A key that stands twice is returned once, with its last value. `environment` answers `${NAME}` for
/// names that are no keys of the file. All mistakes are returned, not just the first.
pub fn parse(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Vec<Property>, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scanner = Scanner { rest: text, line: 1 };
    let (mut properties, mut mistakes) = (Vec::<Property>::new(), Vec::new());
    let mut places: HashMap<String, usize> = HashMap::new();
    while let Some(found) = scanner.next() {
        match found {
            Err(mistake) => mistakes.push(mistake),
            Ok(mut property) => match places.get(&property.key) {
                Some(&at) => {
                    property.earlier = std::mem::take(&mut properties[at].earlier);
                    property.earlier.push(properties[at].line);
                    properties[at] = property;
                }
                None => {
                    places.insert(property.key.clone(), properties.len());
                    properties.push(property);
                }
            },
        }
    }

    let raw: BTreeMap<&str, &str> = properties.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
    let mut expander =
        Expander { raw, environment: &environment, done: HashMap::new(), referenced: HashSet::new(), spent: 0 };
    let mut expanded = Vec::with_capacity(properties.len());
    for property in &properties {
        match expander.key(&property.key, &mut Vec::new()) {
            Ok(value) => expanded.push((value.text, value.undefined)),
            Err(mistake) => mistakes.push(format!("properties: Line {}: {}: {mistake}", property.line, property.key)),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let referenced = std::mem::take(&mut expander.referenced);
    for (property, value) in properties.iter_mut().zip(expanded) {
        property.referenced = referenced.contains(&property.key);
        (property.value, property.undefined) = value;
    }
    Ok(properties)
}

/// Replaces `${NAME}` by what `environment` knows, else by nothing.
pub fn expand(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    Expander {
        raw: BTreeMap::new(),
        environment: &environment,
        done: HashMap::new(),
        referenced: HashSet::new(),
        spent: 0,
    }
    .text(text, &mut Vec::new())
    .map(|value| value.text)
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<Result<Property, String>> {
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

/// An expanded text, how many levels of `${}` it took, and names in them that nobody knows.
#[derive(Clone, Default)]
struct Expanded {
    text: String,
    levels: usize,
    undefined: Vec<String>,
}

impl Expanded {
    fn misses(&mut self, names: &[String]) {
        for name in names {
            if self.undefined.len() < MAX_UNDEFINED && !self.undefined.contains(name) {
                self.undefined.push(name.clone());
            }
        }
    }
}

struct Expander<'a> {
    raw: BTreeMap<&'a str, &'a str>,
    environment: &'a dyn Fn(&str) -> Option<String>,
    /// Each name is worked out once, else a few lines could ask for more work than there is time.
    done: HashMap<String, Expanded>,
    referenced: HashSet<String>,
    /// Bytes in `done`.
    spent: usize,
}

impl Expander<'_> {
    fn key(&mut self, key: &str, chain: &mut Vec<String>) -> Result<Expanded, String> {
        if let Some(done) = self.done.get(key) {
            return Ok(done.clone());
        }
        if chain.iter().any(|k| k == key) {
            return Err(format!("circular reference in: {} -> {key}", chain.join(" -> ")));
        }
        if chain.len() > MAX_LEVELS {
            return Err("expansion too deep".to_owned());
        }
        chain.push(key.to_owned());
        let text = self.raw.get(key).map(|text| (*text).to_owned()).or_else(|| (self.environment)(key));
        let mut expanded = self.text(text.as_deref().unwrap_or_default(), chain)?;
        if text.is_none() {
            expanded.misses(&[key.to_owned()]);
        }
        chain.pop();
        self.spent += expanded.text.len();
        if self.spent > MAX_LENGTH {
            return Err("expansion too long".to_owned());
        }
        self.done.insert(key.to_owned(), expanded.clone());
        Ok(expanded)
    }

    fn text(&mut self, text: &str, chain: &mut Vec<String>) -> Result<Expanded, String> {
        let mut out = Expanded::default();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}') else {
                return Err(format!("malformed expression: {:?} has no closing brace", &rest[start..]));
            };
            out.text.push_str(&rest[..start]);
            let name = &rest[start + 2..start + end];
            self.referenced.insert(name.to_owned());
            let inner = self.key(name, chain)?;
            out.levels = out.levels.max(inner.levels + 1);
            if chain.len() + out.levels > MAX_LEVELS + 1 {
                return Err("expansion too deep".to_owned());
            }
            out.text.push_str(&inner.text);
            out.misses(&inner.undefined);
            if out.text.len() > MAX_LENGTH {
                return Err("expansion too long".to_owned());
            }
            rest = &rest[start + end + 1..];
        }
        out.text.push_str(rest);
        Ok(out)
    }
}

const MAX_LEVELS: usize = 64;

/// That are told of one value.
const MAX_UNDEFINED: usize = 8;

/// Of all expanded values together. No file needs more; without a limit `${}` can double a text with every line.
const MAX_LENGTH: usize = 16 << 20;

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "MYADDR" => Some(":1234".to_owned()),
            "NESTED" => Some("<${MYADDR}>".to_owned()),
            "LOOP" => Some("${LOOP}".to_owned()),
            _ => None,
        }
    }

    fn read(text: &str) -> String {
        match parse(text, environment) {
            Ok(list) => list.iter().map(|p| format!("{}[{}]", p.key, p.value)).collect::<Vec<_>>().join(" "),
            Err(mistakes) => mistakes.join(" | "),
        }
    }

    #[test]
    fn files_are_read_as_documented() {
        for (text, want) in [
            ("", ""),
            ("\u{feff}a=b", "a[b]"),
            ("k v", "k[v]"),
            ("k=v\nk2: v\rk3 = v\r\nk4\tv", "k[v] k2[v] k3[v] k4[v]"),
            ("k = = v", "k[= v]"),
            ("k : = v", "k[= v]"),
            ("  # no\n ! no = x \\\nk v", "k[v]"),
            ("a = b # c", "a[b # c]"),
            ("a = b  \t", "a[b  \t]"),
            ("a", "a[]"),
            ("a =\nb", "a[] b[]"),
            ("a=1\nb=2\na=3", "a[3] b[2]"),
            (r"a\ b\:c\=d = e", "a b:c=d[e]"),
            (r"a = \n\r\t\f\ \:\=\+\\", "a[\n\r\t\x0c :=+\\]"),
            (r"a = \u0041\u00e9x", "a[A\u{e9}x]"),
            (r"a = \ud83d\ude00", "a[\u{1f600}]"),
            (r"a = \ud83dx", "a[\u{fffd}x]"),
            ("a = Se\\\n    cure\nb", "a[Secure] b[]"),
            ("a = x, \\\n  y", "a[x, y]"),
            ("a = x, \\\r\n  y\r\nb = z\r\n", "a[x, y] b[z]"),
            ("a = x\\\n\nb = y", "a[x] b[y]"),
            (r"proxy.gzip.contenttype = ^.*\\+json$", r"proxy.gzip.contenttype[^.*\+json$]"),
            (r"proxy.gzip.contenttype = ^.*\+json$", r"proxy.gzip.contenttype[^.*+json$]"),
            (
                "r = route add a /a http://h:1/\\n\\\n  route add b /b http://h:2/",
                "r[route add a /a http://h:1/\nroute add b /b http://h:2/]",
            ),
            ("proxy.addr = :80;proto=http, \\\n  :443;cs=x", "proxy.addr[:80;proto=http, :443;cs=x]"),
            ("proxy.strategy = rr ", "proxy.strategy[rr ]"),
            ("a = ${MYADDR}", "a[:1234]"),
            ("a = ${NESTED}", "a[<:1234>]"),
            ("a = <${b}>${b}\nb = ${c}\nc = x", "a[<x>x] b[x] c[x]"),
            ("a = ${none}y $z ${}", "a[y $z ]"),
            ("a = $remote_host $x", "a[$remote_host $x]"),
        ] {
            assert_eq!(read(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_does_not_count_and_what_nobody_knows_is_told() {
        let text = "a = 1\nb = ${none}x${MYADDR}${b2}\na = 2\nb2 = ${gone}\na = 3";
        let found = parse(text, environment).unwrap();
        let found: Vec<_> = found.iter().map(|p| (p.key.as_str(), &p.earlier[..], p.undefined.join(" "))).collect();
        let want = [("a", &[1, 3][..], ""), ("b", &[], "none gone"), ("b2", &[], "gone")];
        assert_eq!(found, want.map(|(key, earlier, names)| (key, earlier, names.to_owned())));
    }

    #[test]
    fn every_mistake_of_a_file_is_found() {
        for (text, want) in [
            ("a = b\n= v", "properties: Line 2: \"v\": a value without a key"),
            (
                "a = \\u00zz\nb = \\u12",
                "properties: Line 1: invalid unicode literal | properties: Line 2: invalid unicode literal",
            ),
            ("a = b\\", "properties: Line 1: premature EOF"),
            ("\n\na = ${open", "properties: Line 3: a: malformed expression: \"${open\" has no closing brace"),
            (
                "a = ${b}\nb = ${a}",
                "properties: Line 1: a: circular reference in: a -> b -> a | properties: Line 2: b: circular reference in: b -> a -> b",
            ),
            ("a = ${LOOP}", "properties: Line 1: a: circular reference in: a -> LOOP -> LOOP"),
        ] {
            assert_eq!(read(text), want, "{text:?}");
        }
    }

    #[test]
    fn expansion_is_bounded_whatever_the_order_of_lines() {
        let chain = |n: usize| (0..n).map(|i| format!("k{i} = ${{k{}}}\n", i + 1)).collect::<Vec<_>>();
        for lines in [chain(60), chain(60).into_iter().rev().collect()] {
            assert!(parse(&lines.concat(), environment).is_ok());
        }
        for lines in [chain(70), chain(70).into_iter().rev().collect()] {
            let mistakes = parse(&lines.concat(), environment).unwrap_err();
            assert!(mistakes.iter().all(|m| m.ends_with("expansion too deep")), "{mistakes:?}");
        }
        let doubling =
            |last: &str| (0..60).map(|i| format!("k{i} = ${{k{0}}}${{k{0}}}\n", i + 1)).collect::<String>() + last;
        assert!(parse(&doubling("k60 ="), environment).is_ok());
        assert!(parse(&doubling("k60 = x"), environment).unwrap_err()[0].contains("expansion too long"));
    }

    #[test]
    fn a_path_is_expanded_from_the_environment_alone() {
        assert_eq!(expand("/etc/${NONE}x${MYADDR}", environment).as_deref(), Ok("/etc/x:1234"));
        assert!(expand("${open", environment).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ab=: \\\\u0-9d${}\r\n#!\t]*") {
            let _ = parse(&text, environment);
        }
    }
}
