//! What a change of the overrides would do, without doing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::disabled::{Disabled, without};
use super::giver::Giver;
use super::publish::Manual;
use super::state::{Inherited, Inputs};
use crate::route::{self, Allow, Builder, Instance, Named, Origin, Parsed, Reject, Settings, Table};

/// What would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// Lines of the text that could not be used.
    pub rejects: Vec<Reject>,
    pub added: usize,
    pub removed: usize,
    /// `- route add ...` and `+ route add ...`, the first few hundred.
    pub lines: Vec<String>,
}

/// All that the table in force was made of.
pub(super) struct Ingredients {
    pub(super) settings: Settings,
    pub(super) tag_prefix: String,
    pub(super) datacenter: String,
    pub(super) allow: Allow,
    pub(super) named: Named,
    pub(super) named_texts: Manual,
    pub(super) error_texts: Manual,
    pub(super) page: Arc<str>,
    pub(super) services: Vec<(Giver, Arc<[Instance]>)>,
    pub(super) manual: Manual,
    pub(super) whole: Option<Parsed>,
    pub(super) disabled: Arc<[Disabled]>,
    pub(super) table: Arc<Table>,
}

impl Ingredients {
    /// The texts among them.
    pub(super) fn inputs(self) -> Inputs {
        let mut inputs = Inputs {
            datacenter: self.datacenter,
            services: Inherited::new(),
            remote: BTreeMap::new(),
            manual: self.manual,
            page: self.page.to_string(),
            named: self.named_texts,
            error_pages: self.error_texts,
            disabled: self.disabled.to_vec(),
        };
        for (giver, instances) in self.services {
            let all = match giver.datacenter {
                None => &mut inputs.services,
                Some(datacenter) => inputs.remote.entry(datacenter).or_default(),
            };
            all.insert(giver.service, instances);
        }
        inputs
    }

    /// Builds a table with `text` at `key`. Takes as long as a first table does.
    pub(super) fn preview(mut self, key: &str, text: &str) -> Preview {
        let mut builder = Builder::new(self.settings.clone());
        for (giver, instances) in &self.services {
            let entries = instances
                .iter()
                .map(|one| route::parse_tags_with(one, &self.tag_prefix, &self.datacenter, &self.named))
                .flat_map(|parsed| self.allow.apply(parsed).entries);
            let entries = without(entries.collect(), &self.disabled);
            builder.service_in(giver.datacenter(), &giver.service, entries);
        }
        // Consul lists keys in ascending order, and so they are applied.
        match self.manual.binary_search_by(|(known, _)| (**known).cmp(key)) {
            Ok(at) => self.manual[at].1 = text.into(),
            Err(at) => self.manual.insert(at, (key.into(), text.into())),
        }
        let mut entries = self.whole.take().map(|whole| whole.entries).unwrap_or_default();
        let mut rejects = Vec::new();
        for (at, text) in &self.manual {
            let parsed = route::parse_text(text, |line| Origin::Key { key: at.clone(), line });
            entries.extend(parsed.entries);
            rejects.extend(parsed.rejects);
        }
        builder.manual(without(entries, &self.disabled));
        let built = builder.build();
        rejects.extend(built.rejects);
        rejects.retain(|reject| matches!(&reject.origin, Origin::Key { key: at, .. } if **at == *key));

        let lines = |table: &Table| table.listing().lines().map(str::to_owned).collect::<Vec<_>>();
        let mut difference = route::diff(&lines(&self.table), &lines(&built.table));
        let count = |mark| difference.iter().filter(|line| line.starts_with(mark)).count();
        let (added, removed) = (count('+'), count('-'));
        difference.truncate(LINES);
        Preview { rejects, added, removed, lines: difference }
    }
}

const LINES: usize = 500;
