//! Kinds of values: how text becomes one, and what an operator is told when it does not.

use super::{duration, number};

/// What an option accepts. Everything but numbers, durations, truth values and lists is kept as text here and read further by
/// the part that it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    /// Bytes.
    Size {
        min: i64,
        max: i64,
    },
    /// Nanoseconds; `min` is 0, or the smallest number where negative values have a meaning.
    Duration {
        min: i64,
    },
    Text,
    Path,
    Choice(&'static [&'static str]),
    /// Words between commas.
    List,
    /// Numbers between commas.
    Floats,
    /// The language of `kvlist`.
    Pairs,
    /// Text that may hold address templates.
    Address,
    /// A text template.
    Template,
    /// A regular expression, not anchored.
    Regex,
}

/// A value that has been read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<String>),
    Floats(Vec<f64>),
}

/// A text that is none of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not even the syntax fits. On the command line this is what Go calls a parse error.
    Syntax(String),
    /// Out of bounds, or none of the choices.
    Bounds(String),
}

impl Kind {
    /// Spaces around numbers and the like are the leftovers of a properties file; around text they belong to it.
    pub(crate) fn read(self, key: &str, text: &str) -> Result<Value, Refusal> {
        let typed = text.trim_matches([' ', '\t']);
        match self {
            Kind::Bool => match number::boolean(typed) {
                Some(b) => Ok(Value::Bool(b)),
                None => Err(Refusal::Syntax("not a truth value; write true or false".to_owned())),
            },
            Kind::Int { min, max } => {
                let n = number::int(typed)
                    .map_err(|e| Refusal::Syntax(format!("not a number ({}); write a whole number", e.words())))?;
                within(key, n, min, max, |n| n.to_string()).map(Value::Int)
            }
            Kind::Size { min, max } => {
                let n = number::size(typed).map_err(|e| {
                    Refusal::Syntax(format!("not a size ({}); write bytes as in 262144, or 256KiB", e.words()))
                })?;
                within(key, n, min, max, |n| n.to_string()).map(Value::Int)
            }
            Kind::Duration { min } => {
                let n = duration::parse(typed)
                    .map_err(|e| Refusal::Syntax(format!("{e}; write a number with a unit, as in 500ms, 3s, 1m30s")))?;
                within(key, n, min, i64::MAX, duration::format).map(Value::Int)
            }
            Kind::Choice(words) if !words.contains(&text) => {
                Err(Refusal::Bounds(format!("invalid {key}: {text}; write {}", or(words))))
            }
            Kind::List => Ok(Value::List(words(text))),
            Kind::Floats => {
                let mut floats = Vec::new();
                for word in words(text) {
                    match word.parse::<f64>() {
                        Ok(n) if n.is_finite() => floats.push(n),
                        _ => {
                            return Err(Refusal::Syntax(format!(
                                "{word:?} is not a number; write numbers with commas between them"
                            )));
                        }
                    }
                }
                Ok(Value::Floats(floats))
            }
            Kind::Text | Kind::Path | Kind::Choice(_) | Kind::Pairs | Kind::Address | Kind::Template | Kind::Regex => {
                Ok(Value::Text(text.to_owned()))
            }
        }
    }

    /// The name that Go prints for a flag of this kind.
    pub(crate) fn flag_type(self) -> &'static str {
        match self {
            Kind::Bool => "",
            Kind::Int { min: 0, .. } => "uint",
            Kind::Int { .. } | Kind::Size { .. } => "int",
            Kind::Duration { .. } => "duration",
            Kind::List | Kind::Floats => "value",
            _ => "string",
        }
    }

    /// The name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int { .. } => "int",
            Kind::Size { .. } => "size",
            Kind::Duration { .. } => "duration",
            Kind::Text => "string",
            Kind::Path => "path",
            Kind::Choice(_) => "enum",
            Kind::List => "list",
            Kind::Floats => "floats",
            Kind::Pairs => "kvlist",
            Kind::Address => "address template",
            Kind::Template => "text template",
            Kind::Regex => "regex",
        }
    }

    /// What is allowed, if that is not everything of the kind.
    pub(crate) fn bounds(self) -> Option<String> {
        match self {
            Kind::Int { min, max } | Kind::Size { min, max } => match (min, max) {
                (i64::MIN, i64::MAX) => None,
                (_, i64::MAX) => Some(format!("at least {min}")),
                (i64::MIN, _) => Some(format!("at most {max}")),
                _ => Some(format!("{min} to {max}")),
            },
            Kind::Duration { min: 0 } => Some("not negative".to_owned()),
            Kind::Choice(words) => Some(or(words)),
            _ => None,
        }
    }
}

/// Where a value of the table goes. The kinds and the fields are matched by a test over the table.
pub(crate) trait Slot {
    /// False if the value is of another type; nothing is stored then.
    fn put(&mut self, value: Value) -> bool;
}

macro_rules! slot {
    ($type:ty, $variant:ident) => {
        impl Slot for $type {
            fn put(&mut self, value: Value) -> bool {
                if let Value::$variant(value) = value {
                    *self = value;
                    return true;
                }
                false
            }
        }
    };
}

slot!(bool, Bool);
slot!(i64, Int);
slot!(String, Text);
slot!(Vec<String>, List);
slot!(Vec<f64>, Floats);

/// Words between commas, trimmed, empty ones dropped.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `a, b or c`; the empty word is called so.
pub(crate) fn or(words: &[&str]) -> String {
    let named: Vec<&str> = words.iter().map(|w| if w.is_empty() { "nothing" } else { w }).collect();
    match named.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

fn within(key: &str, n: i64, min: i64, max: i64, show: impl Fn(i64) -> String) -> Result<i64, Refusal> {
    if (min..=max).contains(&n) {
        return Ok(n);
    }
    Err(Refusal::Bounds(match max {
        i64::MAX if min == 0 => format!("{key} must not be negative"),
        i64::MAX => format!("{key} must be at least {}", show(min)),
        _ if min == i64::MIN => format!("{key} must be at most {}", show(max)),
        _ => format!("{key} must be between {} and {}", show(min), show(max)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_kind() {
        let any = Kind::Int { min: i64::MIN, max: i64::MAX };
        for (kind, text, want) in [
            (Kind::Bool, "T", Value::Bool(true)),
            (Kind::Bool, " FALSE ", Value::Bool(false)),
            (any, "0x10", Value::Int(16)),
            (any, "100 ", Value::Int(100)),
            (Kind::Duration { min: 0 }, "1.5s ", Value::Int(1_500_000_000)),
            (Kind::Duration { min: i64::MIN }, "-1s", Value::Int(-1_000_000_000)),
            (Kind::Text, " a ", Value::Text(" a ".to_owned())),
            (Kind::List, " a, b , ,c,", Value::List(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])),
            (Kind::List, "", Value::List(vec![])),
            (Kind::Floats, " .005, 1,2.5", Value::Floats(vec![0.005, 1.0, 2.5])),
            (Kind::Choice(&["rr", "rnd"]), "rr", Value::Text("rr".to_owned())),
        ] {
            assert_eq!(kind.read("k", text), Ok(want), "{kind:?} {text}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        for (kind, text, want) in [
            (Kind::Bool, "yes", Refusal::Syntax("not a truth value; write true or false".to_owned())),
            (Kind::Bool, "", Refusal::Syntax("not a truth value; write true or false".to_owned())),
            (Kind::Int { min: 100, max: 999 }, "10", Refusal::Bounds("k must be between 100 and 999".to_owned())),
            (Kind::Int { min: 0, max: i64::MAX }, "-1", Refusal::Bounds("k must not be negative".to_owned())),
            (Kind::Int { min: i64::MIN, max: 9 }, "10", Refusal::Bounds("k must be at most 9".to_owned())),
            (Kind::Choice(&["rr", "rnd"]), "rr ", Refusal::Bounds("invalid k: rr ; write rr or rnd".to_owned())),
            (
                Kind::Duration { min: 0 },
                "5",
                Refusal::Syntax(
                    "time: missing unit in duration \"5\"; write a number with a unit, as in 500ms, 3s, 1m30s"
                        .to_owned(),
                ),
            ),
            (
                Kind::Floats,
                "1,nan",
                Refusal::Syntax("\"nan\" is not a number; write numbers with commas between them".to_owned()),
            ),
        ] {
            assert_eq!(kind.read("k", text), Err(want), "{kind:?} {text}");
        }
    }
}
