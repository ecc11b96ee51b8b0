//! The `filter` parameter: which items of an answer the client wants.
//!
//! The common part of Consul's language: `==`, `!=`, `in`, `not in`, `contains`, `is empty`, `and`, `or`, `not` and
//! parentheses, on the names that the answer shows. `matches` is refused, and so is what cannot be read.

use serde_json::Value;

use super::answer::Answer;
use super::routes::Query;

/// A condition on one item of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Filter {
    All,
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    Equals(Vec<String>, String),
    Contains(Vec<String>, String),
    Empty(Vec<String>),
}

impl Filter {
    pub(super) fn parse(query: &Query) -> Result<Self, Answer> {
        match query.get("filter") {
            None | Some("") => Ok(Self::All),
            Some(text) => Self::read(text)
                .map_err(|what| Answer::error(format!("Failed to create boolean expression evaluator: {what}"))),
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
        let filter = parser.or()?;
        match parser.next() {
            None => Ok(filter),
            Some(token) => Err(format!("unexpected {token:?}")),
        }
    }

    pub(super) fn keeps(&self, item: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Not(inner) => !inner.keeps(item),
            Self::And(left, right) => left.keeps(item) && right.keeps(item),
            Self::Or(left, right) => left.keeps(item) || right.keeps(item),
            Self::Equals(path, wanted) => select(item, path).is_some_and(|value| is(value, wanted)),
            Self::Contains(path, wanted) => match select(item, path) {
                Some(Value::Array(items)) => items.iter().any(|item| is(item, wanted)),
                Some(Value::Object(members)) => members.contains_key(wanted),
                Some(Value::String(text)) => text.contains(wanted),
                _ => false,
            },
            Self::Empty(path) => match select(item, path) {
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::Object(members)) => members.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Null) | None => true,
                Some(_) => false,
            },
        }
    }
}

fn select<'a>(item: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(item, |value, name| value.get(name))
}

fn is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string().as_str() == wanted,
        Value::Bool(flag) => flag.to_string().as_str() == wanted,
        _ => false,
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A bare word: a selector, a value or an operator.
    Word(String),
    /// In quotes: always a value.
    Text(String),
    Sign(&'static str),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = ["==", "!=", "(", ")"].into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else if matches!(first, '"' | '`') {
            let end = rest[1..].find(first).ok_or("a quote is not closed")?;
            tokens.push(Token::Text(rest[1..=end].to_owned()));
            rest = &rest[end + 2..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "()=!".contains(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("no match found at {rest:?}"));
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, word: &str) -> bool {
        let taken = match self.tokens.get(self.at) {
            Some(Token::Word(known)) => known == word,
            Some(Token::Sign(known)) => *known == word,
            _ => false,
        };
        self.at += usize::from(taken);
        taken
    }

    fn or(&mut self) -> Result<Filter, String> {
        let mut left = self.and()?;
        while self.takes("or") {
            left = Filter::Or(left.into(), self.and()?.into());
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Filter, String> {
        let mut left = self.one()?;
        while self.takes("and") {
            left = Filter::And(left.into(), self.one()?.into());
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Filter, String> {
        // Each level of nesting is a level of the stack.
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("nested too deeply".to_owned());
        }
        let filter = if self.takes("not") {
            Filter::Not(self.one()?.into())
        } else if self.takes("(") {
            let inner = self.or()?;
            if !self.takes(")") {
                return Err("a parenthesis is not closed".to_owned());
            }
            inner
        } else {
            self.condition()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn condition(&mut self) -> Result<Filter, String> {
        let first = self.next().ok_or("ends too early")?;
        if self.takes("in") {
            return Ok(Filter::Contains(self.selector()?, value(first)?));
        }
        let not = self.takes("not");
        if not && self.takes("in") {
            return Ok(negated(Filter::Contains(self.selector()?, value(first)?)));
        }
        let path = selector(first)?;
        if self.takes("contains") {
            let found = Filter::Contains(path, self.value()?);
            return Ok(if not { negated(found) } else { found });
        }
        if not {
            return Err("expected in or contains after not".to_owned());
        }
        if self.takes("==") {
            return Ok(Filter::Equals(path, self.value()?));
        }
        if self.takes("!=") {
            return Ok(negated(Filter::Equals(path, self.value()?)));
        }
        if self.takes("is") {
            let not = self.takes("not");
            if self.takes("empty") {
                return Ok(if not { negated(Filter::Empty(path)) } else { Filter::Empty(path) });
            }
        }
        Err("no match found, expected: \"!=\", \"==\", \"contains\", \"in\", \"is\" or \"not\"".to_owned())
    }

    fn selector(&mut self) -> Result<Vec<String>, String> {
        selector(self.next().ok_or("ends too early")?)
    }

    fn value(&mut self) -> Result<String, String> {
        value(self.next().ok_or("ends too early")?)
    }
}

fn negated(filter: Filter) -> Filter {
    Filter::Not(filter.into())
}

fn value(token: Token) -> Result<String, String> {
    match token {
        Token::Word(text) | Token::Text(text) => Ok(text),
        Token::Sign(sign) => Err(format!("unexpected {sign:?}")),
    }
}

/// `Service.Meta.key`, or `Meta["a key"]` as long as it has no blank.
fn selector(token: Token) -> Result<Vec<String>, String> {
    let Token::Word(text) = token else { return Err(format!("{token:?} is no selector")) };
    let text = text.replace("[\"", ".").replace("\"]", "");
    let path: Vec<String> = text.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) { Err(format!("{text:?} is no selector")) } else { Ok(path) }
}

const MAX_DEPTH: usize = 50;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions() {
        let item = json!({"Service": "web", "Port": 80, "Tags": ["a", "b"], "Meta": {"k": "v"}, "Address": ""});
        for (text, kept) in [
            ("Service == web", true),
            ("Service==\"web\"", true),
            ("Service != web", false),
            ("Port == 80", true),
            ("Port == 81", false),
            ("a in Tags", true),
            ("\"c\" in Tags", false),
            ("c not in Tags", true),
            ("Tags contains b", true),
            ("Tags not contains b", false),
            ("Service contains we", true),
            ("k in Meta", true),
            ("Meta.k == v", true),
            ("Meta[\"k\"] == `v`", true),
            ("Meta.none == v", false),
            ("Address is empty", true),
            ("Tags is not empty", true),
            ("not Service == web", false),
            ("Service == no or Port == 80 and a in Tags", true),
            ("(Service == no or Port == 80) and c in Tags", false),
        ] {
            assert_eq!(Filter::read(text).unwrap().keeps(&item), kept, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read() {
        let deep = "(".repeat(100_000);
        for text in [
            "foo",
            "Service ==",
            "== web",
            "(a == b",
            "a == b)",
            "a == \"b",
            "a = b",
            "a matches b",
            "a is full",
            "a. == b",
            &deep,
        ] {
            assert!(Filter::read(text).is_err(), "{text:.20}");
        }
    }
}
