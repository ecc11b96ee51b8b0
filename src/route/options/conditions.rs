//! What a request must be beside its host and path: `path=exact`, `method=`, `header=`, `query=`, `cookie=`.
//!
//! Routes with conditions stand before the plain route of the same host and path, those with more conditions first, and
//! are passed over by requests that do not fulfil all of them.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;
use regex::bytes::{Regex, RegexBuilder};

/// The conditions of a route.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// In one form, whatever the order in which they were written. Says it all: equal texts are equal conditions.
    text: Box<str>,
    count: usize,
    /// `path=exact`: the path of the route is the whole path of the request.
    pub(in crate::route) exact: bool,
    /// Empty: all.
    methods: Vec<Method>,
    headers: Vec<Field<HeaderName>>,
    query: Vec<Field<Box<[u8]>>>,
    cookies: Vec<Field<Box<[u8]>>>,
}

/// A header, a parameter or a cookie.
#[derive(Clone, Debug)]
struct Field<N> {
    name: N,
    /// `!Name`: no value may pass the test.
    not: bool,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    /// `Name`
    Present,
    /// `Name:value`
    Equals(Box<[u8]>),
    /// `Name~expression`, for the whole value.
    Matches(Regex),
}

impl Conditions {
    /// `None` if there are none. An error is a reason not to have the route.
    pub(super) fn parse(options: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let mut all = Self {
            text: "".into(),
            count: 0,
            exact: false,
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            cookies: Vec::new(),
        };
        let mut text = String::new();
        for (key, value) in options {
            match key.as_str() {
                "path" => all.exact = exact(value)?,
                "method" => all.methods = methods(value)?,
                "header" => {
                    all.headers = fields(key, value, &[':'], |name| HeaderName::from_bytes(name.as_bytes()).ok())?
                }
                // Parameters are written as they stand in a URL.
                "query" => all.query = fields(key, value, &['=', ':'], name)?,
                "cookie" => all.cookies = fields(key, value, &['=', ':'], name)?,
                _ => continue,
            }
            text.push_str(&format!("{key}={value} "));
        }
        all.text = text.into();
        all.count = usize::from(all.exact)
            + usize::from(!all.methods.is_empty())
            + all.headers.len()
            + all.query.len()
            + all.cookies.len();
        Ok((all.count > 0).then_some(all))
    }

    /// Everything but `path=exact`, which takes the path of the route.
    pub(in crate::route) fn fit(&self, method: &Method, headers: &HeaderMap, query: Option<&str>) -> bool {
        (self.methods.is_empty() || self.methods.contains(method))
            && self.headers.iter().all(|field| {
                field.holds(headers.get_all(&field.name).iter().map(|value| Cow::Borrowed(value.as_bytes())))
            })
            && self.query.iter().all(|field| field.holds(parameters(query, &field.name)))
            && self.cookies.iter().all(|field| field.holds(cookies(headers, &field.name)))
    }

    /// The order in which routes of the same path are tried: more conditions first. Plain routes come last.
    pub(in crate::route) fn order(a: Option<&Self>, b: Option<&Self>) -> Ordering {
        let rank = |conditions: Option<&Self>| Reverse(conditions.map_or(0, |conditions| conditions.count));
        let text = |conditions: Option<&Self>| conditions.map(|conditions| conditions.text.clone());
        rank(a).cmp(&rank(b)).then_with(|| text(a).cmp(&text(b)))
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Conditions {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<N> Field<N> {
    fn holds<'a>(&self, mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> bool {
        let passes = |value: Cow<'a, [u8]>| match &self.test {
            Test::Present => true,
            Test::Equals(wanted) => value.trim_ascii() == &**wanted,
            Test::Matches(expression) => expression.is_match(value.trim_ascii()),
        };
        values.any(passes) != self.not
    }
}

fn exact(value: &str) -> Result<bool, String> {
    match value {
        "exact" => Ok(true),
        // What is meant without the option.
        "prefix" => Ok(false),
        _ => Err(format!("path={:?} is neither exact nor prefix; write path=exact", crate::route::excerpt(value))),
    }
}

fn methods(value: &str) -> Result<Vec<Method>, String> {
    let wrong = |word: &str| format!("{word:?} in method is no method; write method=GET,HEAD");
    value
        .split([',', '|'])
        .map(|word| match Method::from_bytes(word.as_bytes()) {
            // Methods are case-sensitive, and nobody means `get`.
            Ok(method) if !word.bytes().any(|b| b.is_ascii_lowercase()) => Ok(method),
            _ => Err(wrong(crate::route::excerpt(word).as_str())),
        })
        .collect()
}

/// `Name`, `Name:value`, `Name~expression`, each perhaps behind `!`; several with `|` between them.
fn fields<N>(key: &str, text: &str, marks: &[char], name: impl Fn(&str) -> Option<N>) -> Result<Vec<Field<N>>, String> {
    let mark = marks[0];
    text.split('|')
        .map(|part| {
            let wrong = |why: &str| {
                format!(
                    "{:?} in {key} {why}; write {key}=name, {key}=name{mark}value or {key}=name~expression, with | between several and %7C for a | in a value",
                    crate::route::excerpt(part)
                )
            };
            let (not, rest) = part.strip_prefix('!').map_or((false, part), |rest| (true, rest));
            let end = rest.find(|c| c == '~' || marks.contains(&c));
            let (left, right) = rest.split_at(end.unwrap_or(rest.len()));
            let name = name(left).ok_or_else(|| wrong("has no name"))?;
            let value: Vec<u8> = percent_decode_str(right.get(1..).unwrap_or_default()).collect();
            let test = match right.chars().next() {
                None => Test::Present,
                Some('~') => Test::Matches(expression(&value).map_err(|why| wrong(&why))?),
                Some(_) => Test::Equals(value.trim_ascii().into()),
            };
            Ok(Field { name, not, test })
        })
        .collect()
}

fn name(text: &str) -> Option<Box<[u8]>> {
    (!text.is_empty()).then(|| percent_decode_str(text).collect())
}

/// An expression that fits only as a whole. Matching takes time linear in the value, and little memory.
fn expression(text: &[u8]) -> Result<Regex, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is no text".to_owned())?;
    // By itself first: a parenthesis too many would end the group that makes it fit as a whole.
    super::regex(RegexBuilder::new(text))?;
    super::regex(RegexBuilder::new(&format!("^(?:{text})$")))
}

/// The values of a parameter of the query, decoded as forms are.
fn parameters<'a>(query: Option<&'a str>, name: &'a [u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.into_iter().flat_map(|query| query.split('&')).filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*unescape(key) == *name).then(|| unescape(value))
    })
}

fn unescape(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect())
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a [u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let lines = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|b| *b == b';')).filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let (key, value) = match pair.iter().position(|b| *b == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        (key == name).then_some(Cow::Borrowed(value))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    fn parse(text: &str) -> Conditions {
        Conditions::parse(&split(text)).unwrap().unwrap()
    }

    #[test]
    fn requests_and_conditions() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-canary", "1"),
            ("x-two", "a"),
            ("x-two", " b "),
            ("cookie", "a=b; c=d=e"),
            ("cookie", "f"),
            ("x-e", ""),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let query = Some("v=2&w=a%20b+c&empty=&bare&v=3");
        for (text, fits) in [
            ("method=GET", true),
            ("method=POST,GET", true),
            ("method=HEAD|POST", false),
            ("header=X-Canary", true),
            ("header=x-canary:1", true),
            ("header=X-Canary:2", false),
            ("header=X-Canary:", false),
            ("header=X-E:", true),
            ("header=X-Missing", false),
            ("header=!X-Missing", true),
            ("header=!X-Canary", false),
            ("header=!X-Canary:2", true),
            ("header=X-Two:b", true),
            ("header=X-Two:c", false),
            ("header=X-Canary:1|X-Two:a", true),
            ("header=X-Canary:1|X-Two:c", false),
            ("header=X-Canary~[0-9]", true),
            ("header=X-Canary~[0-9]{2}", false),
            ("header=X-Two~a%7Cz", true),
            ("header=!X-Two~a", false),
            ("query=v", true),
            ("query=v=2", true),
            ("query=v:3", true),
            ("query=v=4", false),
            ("query=w=a%20b%20c", true),
            ("query=bare", true),
            ("query=empty=", true),
            ("query=!debug", true),
            ("query=v=2|w~a.*", true),
            ("cookie=a", true),
            ("cookie=a=b", true),
            ("cookie=a:b", true),
            ("cookie=c=d=e", true),
            ("cookie=f", true),
            ("cookie=a=c", false),
            ("cookie=b", false),
            ("cookie=a=b method=GET header=X-Canary:1 query=v=2", true),
            ("cookie=a=b method=GET header=X-Canary:1 query=v=9", false),
        ] {
            assert_eq!(parse(text).fit(&Method::GET, &headers, query), fits, "{text}");
        }
        assert!(!parse("query=v").fit(&Method::GET, &headers, None));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "path=suffix",
            "path=",
            "method=",
            "method=get",
            "method=GET,",
            "method=G@T",
            "header=",
            "header=a:1|",
            "header=:1",
            "header=a(b:1",
            "header=a~(",
            "header=a~(a{1000}){1000}",
            "query==1",
            "cookie=|a",
        ] {
            let error = Conditions::parse(&split(text)).unwrap_err();
            let key = text.split('=').next().unwrap();
            assert!(error.contains(key) && error.contains("write"), "{text}: {error}");
        }
        assert_eq!(Conditions::parse(&split("path=prefix strip=/a")), Ok(None));
    }

    #[test]
    fn more_conditions_come_first() {
        let mut all = [None, Some(parse("method=GET")), Some(parse("method=GET header=a")), Some(parse("header=a"))];
        all.sort_by(|a, b| Conditions::order(a.as_ref(), b.as_ref()));
        let texts: Vec<&str> = all.iter().map(|c| c.as_ref().map_or("", Conditions::text)).collect();
        assert_eq!(texts, ["header=a method=GET ", "header=a ", "method=GET ", ""]);
    }
}
