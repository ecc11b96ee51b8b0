//! Paths that are changed by more than `strip` and `prepend`: `replace=/old,/new` and `rewrite=expression,replacement`.
//!
//! Both see the raw path, with its escapes as they came, after it was cleaned. What comes out is cleaned once more, and a
//! dot segment that has come about meanwhile is left out instead of followed: what a client writes into a path must not
//! lead out of where the replacement points.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regex::bytes::{Regex, RegexBuilder};

use crate::route::path;

/// How a route changes paths, after `strip` and before `prepend`.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// As written, by which two of them are compared.
    text: Box<str>,
    /// A prefix, compared after decoding once, and what stands in its place.
    replace: Option<(String, String)>,
    rewrite: Option<(Regex, Box<[u8]>)>,
}

impl Rewrite {
    /// `None` if nothing is asked for. An error is a reason not to have the route.
    pub(super) fn parse(options: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let given = |key: &str| options.get(key).map(String::as_str);
        let text = format!("{} {}", given("replace").unwrap_or_default(), given("rewrite").unwrap_or_default());
        let replace = given("replace").map(replace).transpose()?;
        let rewrite = given("rewrite").map(rewrite).transpose()?;
        let some = replace.is_some() || rewrite.is_some();
        Ok(some.then(|| Box::new(Self { text: text.into(), replace, rewrite })))
    }

    pub(in crate::route) fn apply<'a>(&self, path: Cow<'a, str>) -> Cow<'a, str> {
        let mut path = path;
        if let Some((old, new)) = &self.replace {
            let changed = path::clean(&path).without(old).map(|rest| [new, rest].concat());
            if let Some(changed) = changed {
                path = Cow::Owned(again(changed.as_bytes()));
            }
        }
        if let Some((expression, replacement)) = &self.rewrite
            && let Cow::Owned(changed) = expression.replace(path.as_bytes(), &**replacement)
        {
            path = Cow::Owned(again(&changed));
        }
        path
    }
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A path that can be sent: escapes for what cannot stand in one, no dot segments, no double slashes.
fn again(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 1);
    for byte in path {
        match byte {
            b'?' | b'#' | b'"' | b'<' | b'>' | b'\\' => path::push_escape(&mut text, *byte),
            _ if byte.is_ascii_graphic() => text.push(char::from(*byte)),
            _ => path::push_escape(&mut text, *byte),
        }
    }
    path::clean(&path::without_dots(&text)).raw.into_owned()
}

fn replace(value: &str) -> Result<(String, String), String> {
    match value.split_once(',') {
        Some((old, new)) if old.starts_with('/') && (new.is_empty() || new.starts_with('/')) => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err(format!(
            "replace={:?} is no pair of paths; write replace=/old,/new, with %2C for a comma",
            crate::route::excerpt(value)
        )),
    }
}

/// Cut at the last comma: expressions have commas, replacements hardly ever do.
fn rewrite(value: &str) -> Result<(Regex, Box<[u8]>), String> {
    let wrong = |why: &str| {
        format!(
            "rewrite={:?} {why}; write rewrite=expression,replacement as in rewrite=^/user/([0-9]+)$,/u/$1, with %2C for a comma in the replacement",
            crate::route::excerpt(value)
        )
    };
    let (expression, replacement) = value.rsplit_once(',').ok_or_else(|| wrong("has no replacement"))?;
    if replacement.contains(['?', '#']) {
        return Err(wrong("would make more than a path"));
    }
    let expression = super::regex(RegexBuilder::new(expression)).map_err(|why| wrong(&why))?;
    let groups = expression.capture_names().flatten().map(str::to_owned).collect::<Vec<_>>();
    for name in references(replacement) {
        let known = match name.parse::<usize>() {
            Ok(number) => number < expression.captures_len(),
            Err(_) => groups.iter().any(|group| group == name),
        };
        if !known {
            return Err(wrong(&format!("has no group {name}")));
        }
    }
    Ok((expression, replacement.as_bytes().into()))
}

/// The groups that a replacement names. One that is missing would silently be nothing: `$1x` is the group `1x`.
fn references(replacement: &str) -> impl Iterator<Item = &str> {
    let mut rest = replacement;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once('$')?;
            if let Some(after) = after.strip_prefix('$') {
                rest = after;
                continue;
            }
            if let Some(inner) = after.strip_prefix('{')
                && let Some((name, after)) = inner.split_once('}')
            {
                rest = after;
                return Some(name);
            }
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            rest = after;
            if !name.is_empty() {
                return Some(name);
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::Options;
    use crate::route::options::split;

    #[test]
    fn paths_that_are_sent() {
        for (options, asked, sent) in [
            ("replace=/old,/new", "/old", "/new"),
            ("replace=/old,/new", "/old/x%2Fy", "/new/x%2Fy"),
            ("replace=/old,/new", "/older", "/newer"),
            ("replace=/old,/new", "/other/old", "/other/old"),
            ("replace=/o%6Cd,/new", "/old/x", "/new/x"),
            ("replace=/old,/new", "/%6Fld/x", "/new/x"),
            ("replace=/old/,/", "/old/x", "/x"),
            ("replace=/old,", "/old", "/"),
            ("replace=/old,", "/old/x", "/x"),
            // Nothing can be made that the rules have not seen.
            ("replace=/a,/pub/", "/a./secret", "/pub/secret"),
            ("replace=/a,/pub/", "/a../secret", "/pub/secret"),
            ("replace=/a,/pub/", "/a..%2Fsecret", "/pub%2Fsecret"),
            ("replace=/a,/pub", "/a/../b", "/b"),
            ("rewrite=^/user/([0-9]+)$,/u/$1", "/user/42", "/u/42"),
            ("rewrite=^/user/([0-9]+)$,/u/$1", "/user/x", "/user/x"),
            ("rewrite=^/(?P<a>[^/]+)/(?P<b>.*)$,/${b}/$a", "/x/y%20z", "/y%20z/x"),
            ("rewrite=^/a{1,2}/,/b/", "/aa/c", "/b/c"),
            ("rewrite=^/x,y", "/x/1", "/y/1"),
            ("rewrite=^/(.*)$,/pub/$1/..", "/a/b", "/pub/a/b"),
            ("rewrite=%2E,.", "/a/%2E%2E%2E/b", "/a/.%2E%2E/b"),
            ("rewrite=^/d(.*),/pub/$1", "/d../%2e/x", "/pub/x"),
            ("rewrite=-,.", "/a/-./b", "/a/b"),
            ("rewrite=^/x/,//evil/", "/x/y", "/evil/y"),
            ("strip=/api replace=/v1,/v2 rewrite=/list$,/all prepend=/p", "/api/v1/list", "/p/v2/all"),
        ] {
            let options = Options::parse(split(options)).unwrap().0;
            let sent = sent.to_owned();
            assert_eq!(path::clean(asked).forward(&options), sent, "{:?} {asked}", options.raw);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "replace=",
            "replace=/old",
            "replace=old,/new",
            "replace=/old,new",
            "rewrite=",
            "rewrite=/a",
            "rewrite=(,/a",
            "rewrite=/a,/b?c=d",
            "rewrite=^/(a)$,/$2",
            "rewrite=^/(a)$,/$1x",
            "rewrite=^/(a)$,/${b}",
            "rewrite=(a{1000}){1000},/b",
        ] {
            let error = Rewrite::parse(&split(text)).unwrap_err();
            assert!(
                error.contains("write") && error.contains("replace=") | error.contains("rewrite="),
                "{text}: {error}"
            );
        }
    }
}
