//! What one answer about a service says: who may have traffic, and where.

use std::collections::HashSet;
use std::sync::Arc;

use super::health::Rules;
use super::lists;
use crate::consul::{Entry, Service};
use crate::route::{self, Datacenter, Instance};

pub(super) struct Instances {
    /// Those that may have traffic, by id. If none may: all of them with [`Rules::keep`], or those with `failopen=true`, and
    /// they are down.
    pub(super) accepted: Vec<Instance>,
    /// Sum of [`lists::shape`] over all of them.
    pub(super) shape: u64,
    /// Where they are.
    pub(super) nodes: HashSet<Arc<str>>,
}

impl Instances {
    /// `datacenter`: where they are, if that is not our own.
    pub(super) fn of(
        name: &Arc<str>,
        entries: &[Entry],
        prefix: &str,
        rules: &Rules,
        datacenter: Option<&Arc<Datacenter>>,
    ) -> Self {
        let mut read = Self { accepted: Vec::new(), shape: 0, nodes: HashSet::new() };
        for Entry { node, service, checks } in entries {
            // Consul finds names whatever their case.
            if service.name != **name || !lists::is_ordinary(&service.kind) {
                continue;
            }
            let address = if service.address.is_empty() { &node.address } else { &service.address };
            let tags = service.tags.iter().map(String::as_str);
            read.shape = read.shape.wrapping_add(lists::shape(
                &node.name,
                &service.id,
                address,
                service.port,
                tags,
                lists::options(&service.meta),
            ));
            if !read.nodes.contains(node.name.as_str()) {
                read.nodes.insert(node.name.as_str().into());
            }
            let routed = service.tags.iter().any(|tag| lists::is_of_interest(tag, prefix));
            if !routed {
                continue;
            }
            let up = rules.accept(&service.id, checks);
            let tags = if up || rules.keep { Some(service.tags.clone()) } else { last_resort(service, prefix) };
            if let Some(tags) = tags {
                read.accepted.push(Instance {
                    service: name.clone(),
                    id: match datacenter {
                        None => format!("{}/{}", node.name, service.id).into(),
                        Some(datacenter) => datacenter.name_instance(&node.name, &service.id),
                    },
                    datacenter: datacenter.cloned(),
                    address: address.clone(),
                    port: u16::try_from(service.port).unwrap_or(0),
                    tags,
                    options: lists::options(&service.meta)
                        .map(|(key, value)| (key.to_owned(), route::held(value)))
                        .collect(),
                    down: !up,
                });
            }
        }
        if read.accepted.iter().any(|instance| !instance.down) {
            read.accepted.retain(|instance| !instance.down);
        }
        read.accepted.sort_by(|a, b| a.id.cmp(&b.id));
        read.accepted.dedup_by(|a, b| a.id == b.id);
        read
    }
}

/// The tags with which an instance that is down is kept: those of routes with `failopen=true`, and what is no route. `None`:
/// it is not kept.
fn last_resort(service: &Service, prefix: &str) -> Option<Vec<String>> {
    if lists::options(&service.meta).any(|(key, value)| key == route::FAIL_OPEN && value == "true") {
        return Some(service.tags.clone());
    }
    let open = |tag: &&String| lists::is_route(tag, prefix) && route::fails_open(tag);
    service.tags.iter().find(open)?;
    Some(service.tags.iter().filter(|tag| open(tag) || !lists::is_route(tag, prefix)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consul::Check;

    fn entry(id: &str) -> Entry {
        let mut entry = Entry::default();
        entry.node.name = "n".into();
        entry.node.address = "10.0.0.9".into();
        entry.service.name = "s".into();
        entry.service.id = id.into();
        entry.service.address = "10.0.0.1".into();
        entry.service.port = 80;
        entry.service.tags = vec![" urlprefix-/".into()];
        entry.checks =
            vec![Check { id: "c".into(), service_id: id.into(), status: "passing".into(), ..Check::default() }];
        entry
    }

    #[test]
    fn who_is_in() {
        type Change = fn(&mut Entry);
        let cases: [(&str, Change, &str); 12] = [
            ("as it is", |_| {}, "10.0.0.1:80"),
            ("the node's address", |e| e.service.address.clear(), "10.0.0.9:80"),
            ("a side-car", |e| e.service.kind = "connect-proxy".into(), ""),
            ("a gateway", |e| e.service.kind = "api-gateway".into(), ""),
            ("another case of the name", |e| e.service.name = "S".into(), ""),
            ("no route tag", |e| e.service.tags = vec!["urlprefix".into()], ""),
            ("no tags", |e| e.service.tags.clear(), ""),
            ("no checks", |e| e.checks.clear(), ""),
            ("failing", |e| e.checks[0].status = "critical".into(), ""),
            ("a negative port", |e| e.service.port = -1, "10.0.0.1:0"),
            ("a port that is none", |e| e.service.port = 70_000, "10.0.0.1:0"),
            ("a service with a check of another one", |e| e.checks[0].service_id = "other".into(), ""),
        ];
        for (name, change, expected) in cases {
            let mut entry = entry("i");
            change(&mut entry);
            let rules = Rules { accepted: vec!["passing".into()], all: false, keep: false };
            let read = Instances::of(&"s".into(), &[entry], "urlprefix-", &rules, None);
            let found: Vec<String> = read.accepted.iter().map(|i| format!("{}:{}", i.address, i.port)).collect();
            assert_eq!(found.join(" "), expected, "{name}");
        }
    }

    #[test]
    fn a_service_that_is_down_is_kept_where_that_is_wanted() {
        let (up, mut down) = (entry("up"), entry("down"));
        down.checks[0].status = "critical".into();
        for (keep, entries, expected) in [
            (true, vec![up.clone(), down.clone()], "n/up"),
            (true, vec![down.clone()], "n/down is down"),
            (false, vec![down.clone()], ""),
            (true, vec![], ""),
        ] {
            let rules = Rules { accepted: vec!["passing".into()], all: false, keep };
            let read = Instances::of(&"s".into(), &entries, "urlprefix-", &rules, None);
            let text = |i: &Instance| format!("{}{}", i.id, if i.down { " is down" } else { "" });
            assert_eq!(read.accepted.iter().map(text).collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn what_fails_open_stays_when_all_is_down() {
        let down = |tags: &[&str], meta: &[(&str, &str)]| {
            let mut entry = entry("down");
            entry.checks[0].status = "critical".into();
            entry.service.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            entry.service.meta = meta.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            entry
        };
        let (both, meta) = (["v1", "urlprefix-/a failopen=true", "urlprefix-/b"], [("ferrio-failopen", "true")]);
        for (entries, expected) in [
            (vec![down(&both, &[])], "v1,urlprefix-/a failopen=true"),
            (vec![down(&both, &meta)], "v1,urlprefix-/a failopen=true,urlprefix-/b"),
            (vec![down(&["urlprefix-/b", "failopen=true"], &[])], ""),
            (vec![down(&["urlprefix-/b failopen=false"], &[])], ""),
            (vec![down(&both, &[]), entry("up")], " urlprefix-/"),
        ] {
            let rules = Rules { accepted: vec!["passing".into()], all: false, keep: false };
            let read = Instances::of(&"s".into(), &entries, "urlprefix-", &rules, None);
            let tags: Vec<String> = read.accepted.iter().flat_map(|instance| instance.tags.clone()).collect();
            assert_eq!(tags.join(","), expected, "{entries:?}");
        }
    }

    #[test]
    fn ids_are_of_their_node() {
        let mut other = entry("i");
        other.node.name = "m".into();
        let rules = Rules { accepted: vec!["passing".into()], all: false, keep: false };
        let read = Instances::of(&"s".into(), &[entry("i"), other], "urlprefix-", &rules, None);
        assert_eq!(read.accepted.iter().map(|i| &*i.id).collect::<Vec<_>>(), ["m/i", "n/i"]);
        assert_eq!(read.nodes.len(), 2);
        let east = Arc::new(Datacenter { name: "east".into(), rank: 1 });
        let there = Instances::of(&"s".into(), &[entry("i")], "urlprefix-", &rules, Some(&east));
        assert_eq!((&*there.accepted[0].id, &there.accepted[0].datacenter), ("n/i@east", &Some(east)));
        assert_eq!(there.shape, Instances::of(&"s".into(), &[entry("i")], "urlprefix-", &rules, None).shape);
    }
}
