//! Nodes, services and checks.

use super::{Key, Store, key, lower};
use crate::records::{Check, Node, Service, Stamp};

/// One write to the catalog: a node, and optionally a service and checks on it.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) node: Node,
    /// Leave a node that exists as it is.
    pub(crate) skip_node_update: bool,
    pub(crate) service: Option<Service>,
    pub(crate) checks: Vec<Check>,
}

impl Store {
    // -- writes

    /// Apply a registration, all of it or nothing. The error is what Consul answers with status 500.
    pub(crate) fn register(&mut self, registration: Registration) -> Result<(), String> {
        self.check_registration(&registration)?;
        let index = self.next();
        self.put_node(registration.node, registration.skip_node_update, index);
        if let Some(service) = registration.service {
            self.put_service(service, index);
        }
        for check in registration.checks {
            self.put_check(check, index);
        }
        Ok(())
    }

    fn check_registration(&self, registration: &Registration) -> Result<(), String> {
        let node = &registration.node.name;
        let service = registration.service.as_ref();
        if service.is_some_and(|service| service.id.is_empty()) {
            return Err("failed inserting service: failed inserting service: object missing primary index".to_owned());
        }
        for check in &registration.checks {
            if lower(&check.node) != lower(node) {
                return Err(format!("check node {:?} does not match node {node:?}", check.node));
            }
            if check.id.is_empty() {
                return Err(format!(
                    "failed inserting check: failed inserting check: object missing primary index on node {node:?}"
                ));
            }
            let its_service = key(node, &check.service_id);
            let is_new = service.is_some_and(|service| key(node, &service.id) == its_service);
            if !check.service_id.is_empty() && !is_new && !self.services.contains_key(&its_service) {
                return Err(format!("failed inserting check: Missing service registration on node {node:?}"));
            }
        }
        Ok(())
    }

    fn put_node(&mut self, mut node: Node, skip: bool, index: u64) {
        let id = lower(&node.name);
        let old = self.nodes.get(&id);
        if let Some(old) = old {
            if node.id.is_empty() {
                node.id.clone_from(&old.id);
            }
            node.stamp = old.stamp;
            if skip || *old == node {
                return;
            }
        }
        node.stamp = Stamp::written(old.map(|old| old.stamp), index);
        self.nodes.insert(id.clone(), node);
        self.tables.nodes = index;
        self.touch_services_of(&id, index);
    }

    fn put_service(&mut self, mut service: Service, index: u64) {
        let id = key(&service.node, &service.id);
        let old = self.services.get(&id);
        if old.is_some_and(|old| old.is_same(&service)) {
            return;
        }
        service.stamp = Stamp::written(old.map(|old| old.stamp), index);
        if let Some(old) = old
            && !old.name.eq_ignore_ascii_case(&service.name)
        {
            let name = lower(&old.name);
            self.unname(&name, &id);
        }
        let name = lower(&service.name);
        self.by_name.entry(name.clone()).or_default().insert(id.clone());
        self.tables.services = index;
        self.tables.service.insert(name, index);
        self.services.insert(id, service);
    }

    fn put_check(&mut self, mut check: Check, index: u64) {
        let id = key(&check.node, &check.id);
        let old = self.checks.get(&id);
        if check.service_id.is_empty() {
            check.service_name.clear();
            check.service_tags.clear();
        } else if let Some(service) = self.services.get(&key(&check.node, &check.service_id)) {
            check.service_name.clone_from(&service.name);
            check.service_tags.clone_from(&service.tags);
        }
        let same = old.is_some_and(|old| old.is_same(&check));
        check.stamp = match old {
            Some(old) if same => old.stamp,
            old => Stamp::written(old.map(|old| old.stamp), index),
        };
        if !same {
            if check.service_id.is_empty() {
                self.touch_services_of(&lower(&check.node), index);
            } else {
                self.tables.service.insert(lower(&check.service_name), index);
            }
        }
        // The table's index moves even when the check is the same: a client that watches all checks sees a change.
        self.tables.checks = index;
        if check.status == "critical" {
            self.end_sessions_of_check(&check.node, &check.id, index);
        }
        self.checks.insert(id, check);
    }

    /// Remove a service (with its checks), a check, or the whole node, in this order of precedence.
    pub(crate) fn deregister(&mut self, node: &str, service_id: &str, check_id: &str) {
        let index = self.next();
        if !service_id.is_empty() {
            self.drop_service(&key(node, service_id), index);
        } else if !check_id.is_empty() {
            self.drop_check(&key(node, check_id), index);
        } else {
            self.drop_node(&lower(node), index);
        }
    }

    fn drop_service(&mut self, id: &Key, index: u64) {
        let Some(service) = self.services.get(id) else { return };
        let name = lower(&service.name);
        let checks: Vec<Key> = self.checks_of(&id.0).filter(|(_, c)| lower(&c.service_id) == id.1).map(own).collect();
        for check in checks {
            self.drop_check(&check, index);
        }
        self.services.remove(id);
        self.tables.checks = index;
        self.tables.services = index;
        self.unname(&name, id);
        if self.by_name.contains_key(&name) {
            self.tables.service.insert(name, index);
        } else {
            self.tables.service.remove(&name);
            self.tables.extinction = Some(index);
        }
    }

    fn drop_check(&mut self, id: &Key, index: u64) {
        let Some(check) = self.checks.remove(id) else { return };
        if check.service_id.is_empty() {
            self.touch_services_of(&id.0, index);
            self.tables.services = index;
        } else {
            self.tables.service.insert(lower(&check.service_name), index);
        }
        self.tables.checks = index;
        self.end_sessions_of_check(&check.node, &check.id, index);
    }

    fn drop_node(&mut self, node: &str, index: u64) {
        if !self.nodes.contains_key(node) {
            return;
        }
        let services: Vec<Key> = self.services_of(node).map(own).collect();
        for service in services {
            self.drop_service(&service, index);
        }
        let checks: Vec<Key> = self.checks_of(node).map(own).collect();
        for check in checks {
            self.drop_check(&check, index);
        }
        self.nodes.remove(node);
        self.tables.nodes = index;
        self.end_sessions_of_node(node, index);
    }

    fn unname(&mut self, name: &str, id: &Key) {
        if let Some(keys) = self.by_name.get_mut(name) {
            keys.remove(id);
            if keys.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    /// A change of a node or of a check of the node concerns every service on it.
    fn touch_services_of(&mut self, node: &str, index: u64) {
        let names: Vec<String> = self.services_of(node).map(|(_, service)| lower(&service.name)).collect();
        for name in names {
            self.tables.service.insert(name, index);
        }
    }

    fn services_of<'a>(&'a self, node: &str) -> impl Iterator<Item = (&'a Key, &'a Service)> + use<'a> {
        let node = node.to_owned();
        self.services.range((node.clone(), String::new())..).take_while(move |(k, _)| k.0 == node)
    }

    fn checks_of<'a>(&'a self, node: &str) -> impl Iterator<Item = (&'a Key, &'a Check)> + use<'a> {
        let node = node.to_owned();
        self.checks.range((node.clone(), String::new())..).take_while(move |(k, _)| k.0 == node)
    }

    // -- reads

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(&lower(name))
    }

    pub(crate) fn node_of(&self, service: &Service) -> Option<&Node> {
        self.node(&service.node)
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    pub(crate) fn services_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Service> + use<'a> {
        self.services_of(&lower(node)).map(|(_, service)| service)
    }

    pub(crate) fn instances(&self, name: &str) -> impl Iterator<Item = &Service> {
        let keys = self.by_name.get(&lower(name));
        keys.into_iter().flatten().filter_map(|key| self.services.get(key))
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.values()
    }

    pub(crate) fn check(&self, node: &str, id: &str) -> Option<&Check> {
        self.checks.get(&key(node, id))
    }

    pub(crate) fn checks_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Check> + use<'a> {
        self.checks_of(&lower(node)).map(|(_, check)| check)
    }

    pub(crate) fn service(&self, node: &str, id: &str) -> Option<&Service> {
        self.services.get(&key(node, id))
    }

    // -- indexes

    pub(crate) fn nodes_index(&self) -> u64 {
        self.tables.nodes
    }

    pub(crate) fn services_index(&self) -> u64 {
        self.tables.services
    }

    pub(crate) fn checks_index(&self) -> u64 {
        self.tables.checks
    }

    pub(crate) fn node_index(&self, node: &str) -> u64 {
        // Consul forgets about the tables when the node does not exist.
        if self.node(node).is_some() { self.tables.nodes.max(self.tables.services) } else { 0 }
    }

    /// The index of one service's instances, and with `checks` of their checks. A service without instances has the index
    /// of the last disappearance of any service, or before the first one that of the whole catalog.
    pub(crate) fn service_index(&self, name: &str, checks: bool) -> u64 {
        let name = lower(name);
        if !self.by_name.contains_key(&name)
            && let Some(index) = self.tables.extinction
        {
            return index;
        }
        if let Some(index) = self.tables.service.get(&name) {
            return *index;
        }
        let catalog = self.tables.nodes.max(self.tables.services);
        if checks { catalog.max(self.tables.checks) } else { catalog }
    }
}

fn own<T>((key, _): (&Key, &T)) -> Key {
    key.clone()
}
