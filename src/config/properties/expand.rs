//! `${NAME}`: by other keys of the file, else by the environment, else by nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

/// An expanded text, how many levels of `${}` it took, and names in them that nobody knows.
#[derive(Clone, Default)]
pub(super) struct Expanded {
    pub(super) text: String,
    levels: usize,
    pub(super) undefined: Vec<String>,
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

pub(super) struct Expander<'a> {
    pub(super) raw: BTreeMap<&'a str, &'a str>,
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
    /// Each name is worked out once, else a few lines could ask for more work than there is time.
    pub(super) done: HashMap<String, Expanded>,
    pub(super) referenced: HashSet<String>,
    /// Bytes in `done`.
    pub(super) spent: usize,
}

impl Expander<'_> {
    pub(super) fn key(&mut self, key: &str, chain: &mut Vec<String>) -> Result<Expanded, String> {
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

    pub(super) fn text(&mut self, text: &str, chain: &mut Vec<String>) -> Result<Expanded, String> {
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
