//! The three lists that say *which* services changed. They are as long as the data centre is large, so they are read
//! straight into fingerprints: nothing of them is kept but a number per name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::route;

/// A fingerprint per name. Equal numbers: nothing changed that matters.
pub(super) type Prints = HashMap<Arc<str>, u64>;

/// `/v1/catalog/services`
#[derive(Debug, Default, PartialEq)]
pub(super) struct Names {
    /// Services with a route tag, and their tags.
    pub(super) tagged: Prints,
    /// The servers themselves are in the list, as they always are for those who may see them.
    pub(super) consul: bool,
    /// A service with a route tag that cannot be asked about; see [`is_askable`].
    pub(super) unaskable: Option<String>,
}

impl Names {
    pub(super) fn read(bytes: &[u8], prefix: &str) -> Result<Self, serde_json::Error> {
        seeded(bytes, NamesSeed(prefix))
    }
}

/// `/v1/health/state/any`
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checks {
    pub(super) services: Prints,
    /// Those of them with a route tag, as far as checks know: tags are copied into a check when it is written.
    pub(super) tagged: HashSet<Arc<str>>,
    /// Checks of nodes that concern all of their instances.
    pub(super) nodes: Prints,
    /// Any check of a node is in the list: every agent has one.
    pub(super) serf: bool,
}

impl Checks {
    pub(super) fn read(bytes: &[u8], prefix: &str) -> Result<Self, serde_json::Error> {
        seeded(bytes, ChecksSeed(prefix))
    }

    fn add(&mut self, check: &CheckRef<'_>, prefix: &str) {
        if !check.service_id.is_empty() || !check.service_name.is_empty() {
            let print = print(|h| {
                // The index tells of a check that failed and recovered before anybody looked; meanwhile its service may
                // have been replaced.
                (check.node.str(), check.id.str(), check.status.str(), check.modify_index).hash(h);
                check.service_id.str().hash(h);
                check.service_tags.0.hash(h);
            });
            add(&mut self.services, &check.service_name.0, print);
            let name = check.service_name.str();
            if !self.tagged.contains(name)
                && is_askable(name)
                && check.service_tags.0.iter().any(|tag| is_of_interest(tag, prefix))
            {
                self.tagged.insert(name.into());
            }
        } else if check.id.0 == "serfHealth" || check.id.0 == "_node_maintenance" {
            self.serf |= check.id.0 == "serfHealth";
            add(&mut self.nodes, &check.node.0, print(|h| (check.id.str(), check.status.str()).hash(h)));
        }
    }
}

/// `/v1/internal/ui/nodes`: what [`shape`] says of each service.
pub(super) fn shapes(bytes: &[u8]) -> Result<Prints, serde_json::Error> {
    seeded(bytes, NodesSeed)
}

/// Names whose fingerprints differ between two lists.
pub(super) fn changed<'p>(old: &'p Prints, new: &'p Prints) -> impl Iterator<Item = &'p Arc<str>> {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    new.iter().filter(|(name, print)| old.get(*name) != Some(*print)).map(|(name, _)| name).chain(gone)
}

/// What of an instance decides about its routes, health aside. Add up those of a service.
pub(super) fn shape<'t>(
    node: &str,
    id: &str,
    address: &str,
    port: i64,
    tags: impl Iterator<Item = &'t str>,
    options: impl Iterator<Item = (&'t str, &'t str)>,
) -> u64 {
    print(|h| {
        (node, id, address, port).hash(h);
        for tag in tags {
            tag.hash(h);
        }
        for option in options {
            option.hash(h);
        }
    })
}

/// The options among the metadata of an instance, `ferrio-<option>`.
pub(super) fn options(meta: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    meta.iter().filter_map(|(key, value)| Some((key.strip_prefix("ferrio-")?, value.as_str())))
}

fn print(fill: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    fill(&mut hasher);
    hasher.finish()
}

/// Sums, so that the order in a list does not matter.
fn add(prints: &mut Prints, name: &str, print: u64) {
    match prints.get_mut(name) {
        Some(sum) => *sum = sum.wrapping_add(print),
        None => {
            prints.insert(name.into(), print);
        }
    }
}

fn seeded<'de, S: DeserializeSeed<'de>>(bytes: &'de [u8], seed: S) -> Result<S::Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A string that is copied only if it has escapes. Null is empty.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    fn str(&self) -> &str {
        &self.0
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(s)))
            }
            fn visit_str<E>(self, s: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(s.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }
        d.deserialize_any(V)
    }
}

/// A list of strings. Null is empty.
#[derive(Default)]
struct Texts<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let list = Option::<Vec<Text<'a>>>::deserialize(d)?.unwrap_or_default();
        Ok(Texts(list.into_iter().map(|t| t.0).collect()))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CheckRef<'a> {
    #[serde(borrow)]
    node: Text<'a>,
    #[serde(rename = "CheckID", borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(rename = "ServiceID", borrow)]
    service_id: Text<'a>,
    #[serde(borrow)]
    service_name: Text<'a>,
    #[serde(borrow)]
    service_tags: Texts<'a>,
    modify_index: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NodeRef<'a> {
    #[serde(borrow)]
    node: Text<'a>,
    #[serde(borrow)]
    address: Text<'a>,
    #[serde(borrow)]
    services: Option<Vec<ServiceRef<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ServiceRef<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(rename = "ID", borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    service: Text<'a>,
    #[serde(borrow)]
    tags: Texts<'a>,
    #[serde(borrow)]
    address: Text<'a>,
    port: Option<i64>,
    meta: Option<BTreeMap<String, String>>,
}

struct NamesSeed<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for NamesSeed<'_> {
    type Value = Names;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Names, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NamesSeed<'_> {
    type Value = Names;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of services and their tags")
    }
    fn visit_unit<E>(self) -> Result<Names, E> {
        Ok(Names::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let mut names = Names::default();
        while let Some((name, tags)) = map.next_entry::<Text<'de>, Texts<'de>>()? {
            names.consul |= name.0 == "consul";
            if !tags.0.iter().any(|tag| is_of_interest(tag, self.0)) {
            } else if !is_askable(&name.0) {
                names.unaskable = Some(name.0.into_owned());
            } else {
                // Consul keeps them in a set, and every answer has them in another order.
                let tags = tags.0.iter().map(|tag| print(|h| tag.hash(h)));
                names.tagged.insert(name.0.as_ref().into(), tags.fold(0, u64::wrapping_add));
            }
        }
        Ok(names)
    }
}

/// Whether a tag is a route tag.
pub(super) fn is_route(tag: &str, prefix: &str) -> bool {
    tag.trim_start().starts_with(prefix)
}

/// Whether it is a route tag, or was meant as one: then its service is read so that somebody hears of it.
pub(super) fn is_of_interest(tag: &str, prefix: &str) -> bool {
    let begins_alike = || {
        let first = |text: &str| text.as_bytes().first().map(u8::to_ascii_lowercase);
        tag.len() > prefix.len() / 2 && first(tag.trim_start()) == first(prefix)
    };
    is_route(tag, prefix) || (begins_alike() && route::is_nearly_a_route(tag.trim(), prefix))
}

/// Whether Consul can be asked about a service: it cleans the path of a request, escapes and all, so some names lead
/// elsewhere.
fn is_askable(name: &str) -> bool {
    name.strip_suffix('/').unwrap_or(name).split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Reads a list element by element.
struct Each<E, F>(F, std::marker::PhantomData<E>);

impl<'de, E: Deserialize<'de>, F: FnMut(E)> Visitor<'de> for Each<E, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_unit<X>(self) -> Result<(), X> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            self.0(element);
        }
        Ok(())
    }
}

struct ChecksSeed<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for ChecksSeed<'_> {
    type Value = Checks;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Checks, D::Error> {
        let mut checks = Checks::default();
        d.deserialize_any(Each(|check: CheckRef<'de>| checks.add(&check, self.0), std::marker::PhantomData))?;
        Ok(checks)
    }
}

struct NodesSeed;

impl<'de> DeserializeSeed<'de> for NodesSeed {
    type Value = Prints;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Prints, D::Error> {
        let mut prints = Prints::new();
        let each = |node: NodeRef<'de>| {
            for service in node.services.iter().flatten().filter(|s| is_ordinary(&s.kind.0)) {
                let address = if service.address.is_empty() { &node.address.0 } else { &service.address.0 };
                let tags = service.tags.0.iter().map(AsRef::as_ref);
                let options = service.meta.iter().flat_map(options);
                let print = shape(&node.node.0, &service.id.0, address, service.port.unwrap_or(0), tags, options);
                add(&mut prints, &service.service.0, print);
            }
        };
        d.deserialize_any(Each(each, std::marker::PhantomData))?;
        Ok(prints)
    }
}

/// Side-car proxies inherit the tags of their service, and gateways are none of our targets either.
pub(super) fn is_ordinary(kind: &str) -> bool {
    matches!(kind, "" | "typical")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_with_route_tags() {
        let text = r#"{"consul":[],"a":["urlprefix-/a","x"],"b":null,"c":["  urlprefix-/c"],"d":["xurlprefix-/"],"e\u0041":["urlprefix-/"]}"#;
        let names = Names::read(text.as_bytes(), "urlprefix-").unwrap();
        let mut found: Vec<&str> = names.tagged.keys().map(|k| &**k).collect();
        found.sort_unstable();
        assert_eq!((found, names.consul), (vec!["a", "c", "eA"], true));
        let tags = |tags: &str| Names::read(format!(r#"{{"a":[{tags}]}}"#).as_bytes(), "urlprefix-").unwrap();
        let both = tags(r#""urlprefix-/a","x""#);
        assert_eq!(both, tags(r#""x","urlprefix-/a""#), "the order does not matter");
        assert_ne!(both, tags(r#""urlprefix-/a""#));
        assert_eq!(Names::read(b"null", "urlprefix-").unwrap(), Names::default());
        for bad in ["[]", "{", "", "{} x"] {
            assert!(Names::read(bad.as_bytes(), "u").is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_cannot_be_asked_for() {
        for name in ["..", ".", "a/../b", "a//b", "/a", "a/.", "//"] {
            let text = format!(r#"{{"{name}":["urlprefix-/"],"b":["urlprefix-/"]}}"#);
            let names = Names::read(text.as_bytes(), "urlprefix-").unwrap();
            assert_eq!((names.tagged.len(), names.unaskable.as_deref()), (1, Some(name)));
        }
        for name in ["a/b", "a/", "..a", "a..", "x y", "ü%"] {
            assert!(is_askable(name), "{name}");
        }
    }

    fn check(node: &str, id: &str, status: &str, service: &str, tags: &str, output: &str) -> String {
        format!(
            r#"{{"Node":"{node}","CheckID":"{id}","Status":"{status}","Output":"{output}","ServiceID":"{service}","ServiceName":"{service}","ServiceTags":{tags},"X":1}}"#
        )
    }

    #[test]
    fn checks_change_when_it_matters() {
        let read = |list: &[String]| Checks::read(format!("[{}]", list.join(",")).as_bytes(), "t").unwrap();
        let base = [
            check("n", "serfHealth", "passing", "", "null", ""),
            check("n", "c1", "passing", "a", r#"["t"]"#, "1"),
            check("n", "c2", "passing", "b", "[]", "1"),
        ];
        let old = read(&base);
        assert!(old.serf);
        assert_eq!(old.tagged.iter().map(|n| &**n).collect::<Vec<_>>(), ["a"]);
        for (name, index, new, services, nodes) in [
            ("output", 1, check("n", "c1", "passing", "a", r#"["t"]"#, "2"), vec![], vec![]),
            ("status", 1, check("n", "c1", "critical", "a", r#"["t"]"#, "1"), vec!["a"], vec![]),
            ("tags", 1, check("n", "c1", "passing", "a", r#"["u"]"#, "1"), vec!["a"], vec![]),
            (
                "failed and recovered",
                1,
                check("n", "c1", "passing", "a", r#"["t"]"#, "1").replace("\"X\":1", "\"ModifyIndex\":2"),
                vec!["a"],
                vec![],
            ),
            ("another node", 1, check("m", "c1", "passing", "a", r#"["t"]"#, "1"), vec!["a"], vec![]),
            ("node fails", 0, check("n", "serfHealth", "critical", "", "null", ""), vec![], vec!["n"]),
            ("service gone", 2, check("n", "disk", "critical", "", "null", ""), vec!["b"], vec![]),
        ] {
            let mut list = base.clone();
            list[index] = new;
            let new = read(&list);
            let services_changed: Vec<&str> = changed(&old.services, &new.services).map(|n| &**n).collect();
            let nodes_changed: Vec<&str> = changed(&old.nodes, &new.nodes).map(|n| &**n).collect();
            assert_eq!((services_changed, nodes_changed), (services, nodes), "{name}");
        }
        let mut reversed = base.clone();
        reversed.reverse();
        assert_eq!(read(&reversed), old, "the order does not matter");
        assert_eq!(Checks::read(b"null", "t").unwrap(), Checks::default());
        assert!(Checks::read(br#"[{"Node":"n"#, "t").is_err());
    }

    #[test]
    fn shapes_agree_with_those_of_entries() {
        let text = r#"[{"Node":"n","Address":"10.0.0.1","Services":[
            {"ID":"a1","Service":"a","Tags":["x","y"],"Address":"","Port":80,"Kind":null,"Meta":{"ferrio-b":"c","x":"y"}},
            {"ID":"p1","Service":"a","Tags":["x"],"Port":81,"Kind":"connect-proxy"}],"Checks":[]},
            {"Node":"m","Address":"10.0.0.2","Services":[{"ID":"a1","Service":"a","Tags":null,"Address":"10.9.9.9","Port":80}]},
            {"Node":"o","Services":null}]"#;
        let shapes = shapes(text.as_bytes()).unwrap();
        let expected = shape("n", "a1", "10.0.0.1", 80, ["x", "y"].into_iter(), [("b", "c")].into_iter())
            .wrapping_add(shape("m", "a1", "10.9.9.9", 80, std::iter::empty(), std::iter::empty()));
        assert_eq!(shapes.get("a"), Some(&expected));
        assert_eq!(shapes.len(), 1);
    }
}
