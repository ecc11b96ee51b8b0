//! Commands as custom registries send them: a JSON array of objects. A bad element costs itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::command::Draft;
use super::{Command, Delete, Destination, Origin, Parsed, Reject, Remark, SetWeight, Source, Weight};

/// A route definition as custom registries send it in JSON. `null` is as good as leaving a field out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// `route add`, `route del` or `route weight`.
    #[serde(deserialize_with = "text")]
    pub cmd: String,
    #[serde(deserialize_with = "text")]
    pub service: String,
    #[serde(deserialize_with = "text")]
    pub src: String,
    #[serde(deserialize_with = "text")]
    pub dst: String,
    /// Exporters always write the field, so 0 means automatic in `route add`.
    pub weight: Option<f64>,
    #[serde(deserialize_with = "texts")]
    pub tags: Option<Vec<String>>,
    #[serde(deserialize_with = "options")]
    pub opts: Option<BTreeMap<String, String>>,
}

/// Turns a document of a custom registry into commands. An error means that it is no JSON array; `null` is an empty one.
pub fn parse_json(document: &[u8]) -> Result<Parsed, serde_json::Error> {
    let elements: Option<Vec<Value>> = serde_json::from_slice(document)?;
    let mut parsed = Parsed::default();
    for (element, index) in elements.unwrap_or_default().into_iter().zip(0..) {
        if element.is_null() {
            continue;
        }
        let text = element.to_string();
        match serde_json::from_value(element) {
            Ok(definition) => put(&mut parsed, index, definition, &text),
            Err(e) => {
                parsed.rejects.push(Reject::new(Origin::Custom { index }, &text, format!("no route definition: {e}")))
            }
        }
    }
    Ok(parsed)
}

/// Turns definitions of a custom registry into commands. Empty ones are skipped.
pub fn parse_definitions(definitions: Vec<Definition>) -> Parsed {
    let mut parsed = Parsed::default();
    for (definition, index) in definitions.into_iter().zip(0..) {
        let text = definition.line();
        put(&mut parsed, index, definition, &text);
    }
    parsed
}

fn put(parsed: &mut Parsed, index: u32, definition: Definition, text: &str) {
    if definition != Definition::default() {
        parsed.put(Origin::Custom { index }, text, definition.command());
    }
}

impl Definition {
    fn command(self) -> Result<(Command, Option<Remark>), String> {
        let number = self.weight.unwrap_or_default();
        if !number.is_finite() {
            return Err("weight is not a finite number".to_owned());
        }
        let tags: Arc<[Arc<str>]> = self.tags.unwrap_or_default().iter().map(|tag| tag.trim().into()).collect();
        let service = (!self.service.is_empty()).then(|| Arc::from(self.service.as_str()));
        match self.cmd.as_str() {
            "route add" => {
                let weight = if number > 0.0 { Weight::Fixed(number) } else { Weight::Automatic };
                Draft {
                    service: service.unwrap_or_default(),
                    instance: None,
                    datacenter: None,
                    source: Source::parse(&self.src)?,
                    destination: Arc::new(Destination::parse(&self.dst)?),
                    weight,
                    tags,
                    options: self.opts.unwrap_or_default(),
                }
                .check()
            }
            "route del" => {
                let source = (!self.src.is_empty()).then(|| Source::parse(&self.src)).transpose()?;
                let destination = (!self.dst.is_empty()).then(|| Destination::parse(&self.dst)).transpose()?;
                if service.is_none() && source.is_some() {
                    return Err("route del with src needs service".to_owned());
                }
                if source.is_none() && destination.is_some() {
                    return Err("route del with dst needs src".to_owned());
                }
                Ok((Command::Delete(Delete { service, source, destination: destination.map(Arc::new), tags }), None))
            }
            "route weight" => {
                if self.weight.is_none() {
                    return Err("route weight needs weight".to_owned());
                }
                if service.is_none() && tags.is_empty() {
                    return Err("route weight needs service or tags".to_owned());
                }
                let set =
                    SetWeight { service, source: Source::parse(&self.src)?, weight: Weight::from_number(number), tags };
                Ok((Command::Weight(set), None))
            }
            other => Err(format!(
                "route: invalid command: {:?}; cmd is \"route add\", \"route del\" or \"route weight\"",
                super::excerpt(other)
            )),
        }
    }

    /// For rejects: what was sent, on one line.
    fn line(&self) -> String {
        let mut line = format!("{} {} {} {}", self.cmd, self.service, self.src, self.dst);
        if let Some(weight) = self.weight {
            line.push_str(&format!(" weight {weight}"));
        }
        if let Some(tags) = &self.tags {
            line.push_str(&format!(" tags {tags:?}"));
        }
        if let Some(opts) = &self.opts {
            line.push_str(&format!(" opts {opts:?}"));
        }
        line
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let texts: Option<Vec<Option<String>>> = Option::deserialize(deserializer)?;
    Ok(texts.map(|texts| texts.into_iter().flatten().collect()))
}

/// Values that are no strings (`true`, `5`, `null`) are taken as they are written.
fn options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let options: Option<BTreeMap<String, Value>> = Option::deserialize(deserializer)?;
    let text = |value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Ok(options.map(|options| options.into_iter().map(|(key, value)| (key, text(value))).collect()))
}
