//! The route language: commands as people write them into KV, files and properties, one per line.
//!
//! ```text
//! route add <svc> <src> <dst> [weight <w>] [tags "<t1>,<t2>"] [opts "<k=v> <k=v>"]
//! route del <svc> tags "<t1>,<t2>"    route del tags "<t1>,<t2>"    route del <svc> [<src> [<dst>]]
//! route weight <svc> <src> weight <w> [tags "<t1>,<t2>"]    route weight <src> weight <w> tags "<t1>,<t2>"
//! ```

use std::sync::Arc;

use super::command::Draft;
use super::weight::parse_number;
use super::{Command, Delete, Destination, Origin, Parsed, Remark, SetWeight, Source, Weight, options};

/// Reads commands in the route language. `origin` names the place of a line, counted from 1. A bad line costs itself.
pub fn parse_text(text: &str, origin: impl Fn(u32) -> Origin) -> Parsed {
    let mut parsed = Parsed::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, number) in text.split('\n').zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("//") {
            continue;
        }
        parsed.put(origin(number), line, command(line));
    }
    parsed
}

fn command(line: &str) -> Result<(Command, Option<Remark>), String> {
    let mut words = Words(line);
    if words.next() != Some("route") {
        return Err(EXPECTED.to_owned());
    }
    match words.next() {
        Some("add") => add(words),
        Some("del") => delete(words).map(|delete| (Command::Delete(delete), None)),
        Some("weight") => weight(words).map(|set| (Command::Weight(set), None)),
        _ => Err(EXPECTED.to_owned()),
    }
}

fn add(mut words: Words<'_>) -> Result<(Command, Option<Remark>), String> {
    let (Some(service), Some(source), Some(destination)) = (words.next(), words.next(), words.next()) else {
        return Err(ADD.to_owned());
    };
    let mut weight = Weight::Automatic;
    if words.take("weight") {
        weight = Weight::from_number(parse_number(words.next().ok_or(ADD)?)?);
    }
    let tags = words.list("tags").ok_or(ADD)?;
    let options = words.list("opts").ok_or(ADD)?;
    if !words.is_empty() {
        return Err(ADD.to_owned());
    }
    Draft {
        service: service.into(),
        instance: None,
        datacenter: None,
        source: Source::parse(source)?,
        destination: Arc::new(Destination::parse(destination)?),
        weight,
        tags: split_tags(tags.unwrap_or_default()),
        options: options::split(options.unwrap_or_default()),
    }
    .check()
}

fn delete(words: Words<'_>) -> Result<Delete, String> {
    let nothing = Delete { service: None, source: None, destination: None, tags: Arc::default() };

    let mut form = words;
    if let Some(service) = form.next()
        && let Some(Some(tags)) = form.list("tags")
        && form.is_empty()
    {
        return Ok(Delete { service: Some(service.into()), tags: split_tags(tags), ..nothing });
    }
    let mut form = words;
    if let Some(Some(tags)) = form.list("tags")
        && form.is_empty()
    {
        return Ok(Delete { tags: split_tags(tags), ..nothing });
    }
    let mut form = words;
    let (service, source, destination) = (form.next().ok_or(DEL)?, form.next(), form.next());
    if !form.is_empty() {
        return Err(DEL.to_owned());
    }
    Ok(Delete {
        service: Some(service.into()),
        source: source.map(Source::parse).transpose()?,
        destination: destination.map(Destination::parse).transpose()?.map(Arc::new),
        ..nothing
    })
}

fn weight(words: Words<'_>) -> Result<SetWeight, String> {
    let mut form = words;
    if let (Some(service), Some(source)) = (form.next(), form.next())
        && form.take("weight")
        && let Some(number) = form.next()
        && let Some(tags) = form.list("tags")
        && form.is_empty()
    {
        return set_weight(Some(service), source, number, tags.unwrap_or_default());
    }
    let mut form = words;
    if let Some(source) = form.next()
        && form.take("weight")
        && let Some(number) = form.next()
        && let Some(Some(tags)) = form.list("tags")
        && form.is_empty()
    {
        return set_weight(None, source, number, tags);
    }
    Err(WEIGHT.to_owned())
}

fn set_weight(service: Option<&str>, source: &str, number: &str, tags: &str) -> Result<SetWeight, String> {
    Ok(SetWeight {
        service: service.map(Into::into),
        source: Source::parse(source)?,
        weight: Weight::from_number(parse_number(number)?),
        tags: split_tags(tags),
    })
}

/// What is left of a line, taken word by word.
#[derive(Clone, Copy)]
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn is_empty(self) -> bool {
        self.rest().is_empty()
    }

    fn rest(self) -> &'a str {
        self.0.trim_start_matches(BLANKS)
    }

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let (word, rest) = rest.split_at(rest.find(BLANKS).unwrap_or(rest.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, keyword: &str) -> bool {
        let mut ahead = *self;
        let there = ahead.next() == Some(keyword);
        if there {
            *self = ahead;
        }
        there
    }

    /// Takes `keyword "..."` if it comes next: `Some(None)` if it does not, `None` if the keyword has no list.
    fn list(&mut self, keyword: &str) -> Option<Option<&'a str>> {
        if !self.take(keyword) {
            return Some(None);
        }
        let (list, rest) = self.rest().strip_prefix('"')?.split_once('"')?;
        if !rest.is_empty() && !rest.starts_with(BLANKS) {
            return None;
        }
        self.0 = rest;
        Some(Some(list))
    }
}

fn split_tags(list: &str) -> Arc<[Arc<str>]> {
    if list.trim().is_empty() {
        return Arc::default();
    }
    list.split(',').map(|tag| tag.trim().into()).collect()
}

/// What separates words. Unicode has more white space; here it is a part of words.
const BLANKS: &[char] = &['\t', '\n', '\x0c', '\r', ' '];

const EXPECTED: &str = "syntax error: 'route' expected; a line begins with route add, route del or route weight";
const ADD: &str = r#"syntax error: 'route add' invalid; write route add <service> <source> <destination> [weight <w>] [tags "<t1>,<t2>"] [opts "<k=v> <k=v>"]"#;
const DEL: &str = r#"syntax error: 'route del' invalid; write route del <service> [<source> [<destination>]], route del <service> tags "<t1>,<t2>" or route del tags "<t1>,<t2>""#;
const WEIGHT: &str = r#"syntax error: 'route weight' invalid; write route weight <service> <source> weight <w> [tags "<t1>,<t2>"] or route weight <source> weight <w> tags "<t1>,<t2>""#;
