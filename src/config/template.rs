//! As much of Go's text templates as addresses and metric prefixes need: text, fields, functions with arguments, string
//! literals, parentheses, pipes, comments and the trim markers. No control structures.

/// What a template may use. Names come without their dot.
pub(crate) trait Scope {
    fn field(&self, name: &str) -> Result<String, String>;
    fn call(&self, function: &str, arguments: &[String]) -> Result<String, String>;
}

/// The text with every `{{...}}` replaced.
pub(crate) fn expand(text: &str, scope: &dyn Scope) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, action) = (&rest[..start], &rest[start + 2..]);
        let end = action_end(action).ok_or("unclosed action")?;
        let (mut action, mut after) = (&action[..end], &action[end + 2..]);
        out.push_str(before);
        if let Some(inner) = action.strip_prefix('-').filter(|a| a.starts_with(char::is_whitespace)) {
            out.truncate(out.trim_end().len());
            action = inner;
        }
        if let Some(inner) = action.strip_suffix('-').filter(|a| a.ends_with(char::is_whitespace)) {
            after = after.trim_start();
            action = inner;
        }
        let action = action.trim();
        if !(action.starts_with("/*") && action.ends_with("*/")) {
            let mut parser = Parser { rest: action, scope, depth: 0 };
            out.push_str(&parser.pipeline()?);
            parser.blanks();
            if !parser.rest.is_empty() {
                return Err(format!("unexpected {:?} in action", parser.rest));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the `}}` of an action is; those in string literals do not count.
fn action_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match quote {
            Some('"') if c == '\\' => _ = chars.next(),
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if text[at..].starts_with("}}") => return Some(at),
            None => {}
        }
    }
    None
}

struct Parser<'a> {
    rest: &'a str,
    scope: &'a dyn Scope,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn pipeline(&mut self) -> Result<String, String> {
        let mut value = self.command(None)?;
        loop {
            self.blanks();
            let Some(rest) = self.rest.strip_prefix('|') else { return Ok(value) };
            self.rest = rest;
            value = self.command(Some(value))?;
        }
    }

    /// `piped` is the last argument.
    fn command(&mut self, piped: Option<String>) -> Result<String, String> {
        self.blanks();
        if !self.rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            let value = self.operand()?.ok_or("missing value for command")?;
            return match piped {
                None => Ok(value),
                Some(_) => Err("non executable command in pipeline".to_owned()),
            };
        }
        let function = self.word();
        let mut arguments = Vec::new();
        while let Some(argument) = self.operand()? {
            arguments.push(argument);
        }
        arguments.extend(piped);
        self.scope.call(function, &arguments)
    }

    fn operand(&mut self) -> Result<Option<String>, String> {
        self.blanks();
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        match first {
            '|' | ')' => Ok(None),
            '.' => {
                self.rest = &self.rest[1..];
                let end =
                    self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(self.rest.len());
                let (name, rest) = self.rest.split_at(end);
                self.rest = rest;
                self.scope.field(name).map(Some)
            }
            '`' => {
                let end = self.rest[1..].find('`').ok_or("unterminated raw quoted string")?;
                let value = self.rest[1..=end].to_owned();
                self.rest = &self.rest[end + 2..];
                Ok(Some(value))
            }
            '"' => self.string().map(Some),
            '(' => {
                // Each level is a frame on the stack.
                if self.depth == 32 {
                    return Err("parentheses nested too deeply".to_owned());
                }
                self.depth += 1;
                self.rest = &self.rest[1..];
                let value = self.pipeline()?;
                self.blanks();
                self.rest = self.rest.strip_prefix(')').ok_or("unclosed left paren")?;
                self.depth -= 1;
                Ok(Some(value))
            }
            '0'..='9' | '-' | '+' => {
                let end =
                    self.rest.find(|c: char| c.is_whitespace() || c == ')' || c == '|').unwrap_or(self.rest.len());
                let (number, rest) = self.rest.split_at(end);
                self.rest = rest;
                Ok(Some(number.to_owned()))
            }
            c if c.is_alphabetic() || c == '_' => {
                let function = self.word();
                self.scope.call(function, &[]).map(Some)
            }
            c => Err(format!("unexpected {c:?} in action")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let mut value = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => value.push(c),
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    // Regular expressions in address templates: `"^eth\d"` is a mistake in Go too.
                    _ => return Err("invalid escape sequence in quoted string".to_owned()),
                },
                c => value.push(c),
            }
        }
        Err("unterminated quoted string".to_owned())
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

/// What `metrics.prefix` may use.
pub(crate) struct PrefixScope<'a> {
    pub(crate) hostname: &'a str,
    pub(crate) program: &'a str,
}

impl Scope for PrefixScope<'_> {
    fn field(&self, name: &str) -> Result<String, String> {
        match name {
            "Hostname" => Ok(self.hostname.to_owned()),
            "Exec" => Ok(self.program.to_owned()),
            _ => Err(format!("no field .{name}; there are .Hostname and .Exec")),
        }
    }

    fn call(&self, function: &str, arguments: &[String]) -> Result<String, String> {
        match (function, arguments) {
            ("clean", [text]) => Ok(clean(text)),
            ("clean", _) => Err("clean takes one argument".to_owned()),
            ("print", _) => Ok(arguments.concat()),
            _ => Err(format!("function {function:?} not defined")),
        }
    }
}

/// fabio's `clean`: a name that metric systems take as one level.
fn clean(text: &str) -> String {
    if text.is_empty() {
        return "_".to_owned();
    }
    text.replace(['.', ':'], "_").to_lowercase()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Result<String, String> {
        expand(text, &PrefixScope { hostname: "My.Host", program: "ferrio" })
    }

    #[test]
    fn prefixes_are_expanded() {
        for (text, want) in [
            ("", ""),
            ("plain.", "plain."),
            ("{{clean .Hostname}}.{{clean .Exec}}", "my_host.ferrio"),
            ("{{ .Hostname | clean }}", "my_host"),
            ("{{ clean (print .Exec \"-\" .Hostname) }}", "ferrio-my_host"),
            ("{{clean \"\"}}{{`x}}`}}", "_x}}"),
            ("a {{- /* nothing */ -}} b", "ab"),
            ("a {{- .Exec -}} b", "aferriob"),
            ("{{ \"q\\\"}}\" }}", "q\"}}"),
        ] {
            assert_eq!(prefix(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, want) in [
            ("{{nope", "unclosed action"),
            ("{{nope}}", "function \"nope\" not defined"),
            ("{{}}", "missing value for command"),
            ("{{.Nope}}", "no field .Nope"),
            ("{{clean}}", "clean takes one argument"),
            ("{{clean .Exec", "unclosed action"),
            ("{{(.Exec}}", "unclosed left paren"),
            ("{{.Exec)}}", "unexpected \")\""),
            ("{{\"x}}", "unclosed action"),
            ("{{if .Exec}}x{{end}}", "function \"if\" not defined"),
        ] {
            let mistake = prefix(text).unwrap_err();
            assert!(mistake.contains(want), "{text}: {mistake}");
        }
        assert!(prefix(&format!("{{{{{}.Exec{}}}}}", "(".repeat(100_000), ")".repeat(100_000))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[{}.|()\"`\\\\a-c -]*") {
            let _ = prefix(&text);
        }
    }
}
