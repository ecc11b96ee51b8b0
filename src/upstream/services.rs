//! Services that routes name beside their own targets (`mirror=`), and which instances of them there are.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::TargetState;

/// The instances of a service that are in the table. They come with the routes of the service, and go with them.
pub struct ServiceState {
    pub name: Arc<str>,
    /// One for each endpoint, by the rank of its datacenter. Dead ones are cleared when another one comes.
    instances: ArcSwap<Vec<(u32, Weak<TargetState>)>>,
}

impl ServiceState {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, instances: ArcSwap::default() }
    }

    /// Control plane only.
    pub(super) fn join(&self, target: &Arc<TargetState>) {
        let current = self.instances.load();
        let live = || current.iter().filter(|(_, other)| other.strong_count() > 0);
        if live().filter_map(|(_, other)| other.upgrade()).any(|other| other.endpoint.id == target.endpoint.id) {
            return;
        }
        let mut all: Vec<_> = live().cloned().collect();
        let at = all.partition_point(|(rank, _)| *rank <= target.rank);
        all.insert(at, (target.rank, Arc::downgrade(target)));
        self.instances.store(Arc::new(all));
    }

    /// One of them, by a random number: of the first datacenter that has any.
    pub fn pick(&self, random: u64) -> Option<Arc<TargetState>> {
        let instances = self.instances.load();
        instances.chunk_by(|(a, _), (b, _)| a == b).find_map(|equals| {
            let first = ((u128::from(random) * equals.len() as u128) >> 64) as usize;
            let (before, behind) = equals.split_at(first);
            behind.iter().chain(before).find_map(|(_, one)| one.upgrade())
        })
    }
}
