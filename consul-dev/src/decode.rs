//! Reading request bodies and definition files the way Consul does: keys in any case, with or without underscores, and an
//! unknown key is an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::go_text::parse_duration;

/// What is wrong with a body; the text that Consul appends to `Request decode failed: `.
pub(crate) type Fault = String;

/// Parse a body as JSON, with Go's words for the two commonest mistakes.
pub(crate) fn json(body: &[u8]) -> Result<Value, Fault> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start();
    if text.is_empty() {
        return Err("EOF".to_owned());
    }
    // Go's decoder stops after the first value; what follows it is not looked at.
    match serde_json::Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(e)) if e.is_eof() => Err("unexpected EOF".to_owned()),
        Some(Err(e)) if e.line() == 1 && e.column() <= 2 => {
            let first = text.chars().next().unwrap_or(' ');
            Err(format!("invalid character '{first}' looking for beginning of value"))
        }
        Some(Err(e)) => Err(e.to_string()),
        None => Err("EOF".to_owned()),
    }
}

/// The members of one JSON object by their normalised names.
pub(crate) struct Fields {
    members: BTreeMap<String, Value>,
}

impl Fields {
    /// Take an object apart. `known` lists the accepted names, normalised; `None` accepts all.
    pub(crate) fn new(value: Value, known: Option<&[&str]>, type_name: &str) -> Result<Self, Fault> {
        let object = match value {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => {
                return Err(format!("json: cannot unmarshal {} into Go value of type {type_name}", kind(&other)));
            }
        };
        let mut members = BTreeMap::new();
        for (key, value) in object {
            let name = normalise(&key);
            if known.is_some_and(|known| !known.contains(&name.as_str())) {
                return Err(format!("json: unknown field {key:?}"));
            }
            members.insert(name, value);
        }
        Ok(Self { members })
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, Fault> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(mismatch(&other, name, "string")),
        }
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<i64, Fault> {
        match self.take(name) {
            None => Ok(0),
            Some(Value::Number(number)) if number.is_i64() => Ok(number.as_i64().unwrap_or_default()),
            Some(other) => Err(mismatch(&other, name, "int")),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Fault> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(mismatch(&other, name, "bool")),
        }
    }

    /// A duration: Go's text, or a number of nanoseconds.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Duration, Fault> {
        match self.take(name) {
            None => Ok(Duration::ZERO),
            Some(Value::String(text)) if text.is_empty() => Ok(Duration::ZERO),
            Some(Value::String(text)) => {
                parse_duration(&text).ok_or_else(|| format!("time: invalid duration {text:?}"))
            }
            Some(Value::Number(number)) => Ok(Duration::from_nanos(number.as_u64().unwrap_or_default())),
            Some(other) => Err(mismatch(&other, name, "time.Duration")),
        }
    }

    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Fault> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Ok(text),
                    Value::Null => Ok(String::new()),
                    other => Err(mismatch(&other, name, "string")),
                })
                .collect(),
            Some(other) => Err(mismatch(&other, name, "[]string")),
        }
    }

    /// `None` if the member is missing or null.
    pub(crate) fn map(&mut self, name: &str) -> Result<Option<BTreeMap<String, String>>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(object)) => object
                .into_iter()
                .map(|(key, value)| match value {
                    Value::String(text) => Ok((key, text)),
                    other => Err(mismatch(&other, name, "string")),
                })
                .collect::<Result<_, _>>()
                .map(Some),
            Some(other) => Err(mismatch(&other, name, "map[string]string")),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Value>, Fault> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(mismatch(&other, name, "slice")),
        }
    }
}

fn normalise(key: &str) -> String {
    key.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

fn mismatch(value: &Value, name: &str, wanted: &str) -> Fault {
    // Go prints the field name as it is declared; the one the API documents begins with a capital.
    let mut declared = name.to_owned();
    if let Some(first) = declared.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    format!("json: cannot unmarshal {} into Go struct field .{declared} of type {wanted}", kind(value))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_are_no_json() {
        for (body, fault) in [
            ("", "EOF"),
            ("  ", "EOF"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{", "unexpected EOF"),
        ] {
            assert_eq!(json(body.as_bytes()).unwrap_err(), fault, "{body:?}");
        }
        assert_eq!(json(b"{} trailing").unwrap(), serde_json::json!({}));
    }

    #[test]
    fn names_in_any_spelling() {
        for key in ["TLSSkipVerify", "tls_skip_verify", "tlsskipverify"] {
            let value = serde_json::json!({ key: true });
            let mut fields = Fields::new(value, Some(&["tlsskipverify"]), "x").unwrap();
            assert!(fields.flag("tlsskipverify").unwrap(), "{key}");
        }
        let unknown = Fields::new(serde_json::json!({"foo": 1}), Some(&["name"]), "x");
        assert_eq!(unknown.err().unwrap(), "json: unknown field \"foo\"");
    }

    #[test]
    fn wrong_types() {
        let mut fields = Fields::new(serde_json::json!({"Port": "x", "Tags": 3, "TTL": "x"}), None, "x").unwrap();
        assert_eq!(
            fields.integer("port").unwrap_err(),
            "json: cannot unmarshal string into Go struct field .Port of type int"
        );
        assert!(fields.texts("tags").is_err());
        assert_eq!(fields.duration("ttl").unwrap_err(), "time: invalid duration \"x\"");
    }
}
