//! Other datacenters than our own, and the order in which targets have their turn.

use std::sync::Arc;

use super::Options;

/// A datacenter that is not ours. Its targets are there for when ours has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Datacenter {
    pub name: Arc<str>,
    /// Its place in the order of preference, counted from 1.
    pub rank: u32,
}

impl Datacenter {
    /// `<node>/<service id>@<datacenter>`: node names and service ids are those of a datacenter.
    pub fn name_instance(&self, node: &str, service_id: &str) -> Arc<str> {
        format!("{node}/{service_id}@{}", self.name).into()
    }

    /// What such an instance is called in its own datacenter.
    pub(super) fn home_name<'a>(&self, instance: &'a str) -> &'a str {
        let bare = instance.strip_suffix(&*self.name).and_then(|rest| rest.strip_suffix('@'));
        bare.unwrap_or(instance)
    }
}

/// When a target has its turn: those of a greater one are asked only when none of a lesser one is available. Our own
/// datacenter comes first whatever the `priority=` of others, and instances that are down and have `failopen=true` come
/// behind everybody who is well, wherever they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    last_resort: bool,
    /// See [`Datacenter::rank`]; 0 is our own.
    rank: u32,
    own: u32,
}

impl Priority {
    pub(super) fn of(options: &Options, datacenter: Option<&Datacenter>) -> Self {
        let own = options.balance.as_ref().map_or(0, |balance| balance.priority);
        Self { last_resort: own == u32::MAX, rank: datacenter.map_or(0, |datacenter| datacenter.rank), own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_instances() {
        let east = Datacenter { name: "east".into(), rank: 1 };
        for (node, id) in [("n", "web"), ("n", "a@east"), ("n", "a/b@c"), ("", "")] {
            let name = east.name_instance(node, id);
            assert_eq!(name.strip_suffix("@east"), Some(east.home_name(&name)));
            assert_eq!(east.home_name(&name), format!("{node}/{id}"));
        }
        assert_eq!(east.home_name("n/web@west"), "n/web@west");
    }

    #[test]
    fn order() {
        let priority = |rank, own| {
            let options = Options::parse([("priority".to_owned(), own)].into()).expect("a priority").0;
            let datacenter = Datacenter { name: "x".into(), rank };
            Priority::of(&options, (rank > 0).then_some(&datacenter))
        };
        let all: Vec<Priority> =
            [(0, "0"), (0, "1"), (0, "4294967294"), (1, "0"), (1, "7"), (2, "0"), (0, "4294967295"), (1, "4294967295")]
                .into_iter()
                .map(|(rank, own)| priority(rank, own.to_owned()))
                .collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    }
}
