//! Services that routes name beside their own targets (`mirror=`), and which instances of them there are.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::TargetState;

/// The instances of a service that are in the table. They come with the routes of the service, and go with them.
pub struct ServiceState {
    pub name: Arc<str>,
    /// One for each endpoint. Dead ones are cleared when another one comes.
    instances: ArcSwap<Vec<Weak<TargetState>>>,
}

impl ServiceState {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, instances: ArcSwap::default() }
    }

    /// Control plane only.
    pub(super) fn join(&self, target: &Arc<TargetState>) {
        let current = self.instances.load();
        let live = || current.iter().filter(|other| other.strong_count() > 0);
        if live().filter_map(Weak::upgrade).any(|other| other.endpoint.id == target.endpoint.id) {
            return;
        }
        self.instances.store(Arc::new(live().cloned().chain([Arc::downgrade(target)]).collect()));
    }

    /// One of them, by a random number.
    pub fn pick(&self, random: u64) -> Option<Arc<TargetState>> {
        let instances = self.instances.load();
        let count = instances.len();
        let first = ((u128::from(random) * count as u128) >> 64) as usize;
        let (before, behind) = instances.split_at(first);
        behind.iter().chain(before).find_map(Weak::upgrade)
    }
}
