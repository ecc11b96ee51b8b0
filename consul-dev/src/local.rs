//! What this agent itself has: its services and checks, and whether the catalog knows their newest form.
//!
//! Consul keeps the two apart and brings them together by anti-entropy; that shows in which indexes move, so it is kept
//! here. Only the waiting is left out: a change reaches the catalog before the call is answered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::definition::{AgentCheck, Probe, ServiceDefinition};
use crate::records::{Check, Node, Service};
use crate::store::{Registration, Store};

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) node: String,
    services: BTreeMap<String, LocalService>,
    checks: BTreeMap<String, LocalCheck>,
}

#[derive(Debug)]
struct LocalService {
    service: Service,
    in_sync: bool,
}

#[derive(Debug)]
struct LocalCheck {
    check: Check,
    in_sync: bool,
    /// A change of the output alone is told to the catalog at that time.
    sync_at: Option<Instant>,
    critical_since: Option<Instant>,
    agent_check: AgentCheck,
    runner: Runner,
}

/// The task that finds out the state of a check; ends with it.
#[derive(Debug, Default)]
struct Runner(Option<AbortHandle>);

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Local {
    pub(crate) fn new(node: &str) -> Self {
        Self { node: node.to_owned(), services: BTreeMap::new(), checks: BTreeMap::new() }
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values().map(|local| &local.service)
    }

    pub(crate) fn service(&self, id: &str) -> Option<&Service> {
        self.services.get(id).map(|local| &local.service)
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.values().map(|local| &local.check)
    }

    /// How the state of a check is found.
    pub(crate) fn probe(&self, id: &str) -> Option<&Probe> {
        self.checks.get(id).map(|local| &local.agent_check.probe)
    }

    /// Add or replace a service and its checks. Returns the checks to be run, by id. With `replace`, checks of the
    /// service that are not in the definition are removed, otherwise they stay.
    pub(crate) fn add_service(
        &mut self,
        store: &mut Store,
        definition: ServiceDefinition,
        replace: bool,
    ) -> Vec<(String, AgentCheck)> {
        let ServiceDefinition { mut service, checks } = definition;
        service.node.clone_from(&self.node);
        let several = checks.len() > 1;
        let mut started = Vec::new();
        for (number, agent_check) in checks.into_iter().enumerate() {
            let id = match agent_check.id.as_str() {
                "" if several => format!("service:{}:{}", service.id, number + 1),
                "" => format!("service:{}", service.id),
                id => id.to_owned(),
            };
            let name = match agent_check.name.as_str() {
                "" => format!("Service '{}' check", service.name),
                name => name.to_owned(),
            };
            let check = Check {
                service_id: service.id.clone(),
                service_name: service.name.clone(),
                service_tags: service.tags.clone(),
                ..self.new_check(&id, name, &agent_check)
            };
            self.put_check(check, agent_check.clone(), true);
            started.push((id, agent_check));
        }
        let id = service.id.clone();
        self.services.insert(id.clone(), LocalService { service, in_sync: false });
        self.sync(store);
        if replace {
            let kept = |check: &Check| started.iter().any(|(kept, _)| *kept == check.id);
            let old: Vec<String> =
                self.checks().filter(|c| c.service_id == id && !kept(c)).map(|c| c.id.clone()).collect();
            for check in old {
                self.remove_check(store, &check);
            }
        }
        started
    }

    /// Add or replace a check of the node or, by its `service_id`, of a service. Returns its id.
    pub(crate) fn add_check(&mut self, store: &mut Store, agent_check: AgentCheck) -> Result<String, String> {
        let id = if agent_check.id.is_empty() { agent_check.name.clone() } else { agent_check.id.clone() };
        let mut check = self.new_check(&id, agent_check.name.clone(), &agent_check);
        if !agent_check.service_id.is_empty() {
            let Some(service) = self.service(&agent_check.service_id) else {
                return Err(format!("ServiceID {:?} does not exist", agent_check.service_id));
            };
            check.service_id.clone_from(&service.id);
            check.service_name.clone_from(&service.name);
            check.service_tags.clone_from(&service.tags);
        }
        self.put_check(check, agent_check, false);
        self.sync(store);
        Ok(id)
    }

    fn new_check(&self, id: &str, name: String, agent_check: &AgentCheck) -> Check {
        let status = if agent_check.status.is_empty() { "critical" } else { &agent_check.status };
        Check {
            node: self.node.clone(),
            id: id.to_owned(),
            name,
            status: status.to_owned(),
            notes: agent_check.notes.clone(),
            kind: agent_check.kind().to_owned(),
            ..Check::default()
        }
    }

    /// With `keep_state`, a check that exists keeps its state and output: a service that registers again is not
    /// unhealthy for that.
    fn put_check(&mut self, mut check: Check, agent_check: AgentCheck, keep_state: bool) {
        let old = self.checks.get(&check.id);
        if let Some(old) = old
            && keep_state
        {
            check.status.clone_from(&old.check.status);
            check.output.clone_from(&old.check.output);
        }
        let critical_since =
            (check.status == "critical").then(|| old.and_then(|old| old.critical_since).unwrap_or_else(Instant::now));
        let local =
            LocalCheck { in_sync: false, sync_at: None, critical_since, agent_check, runner: Runner::default(), check };
        self.checks.insert(local.check.id.clone(), local);
    }

    /// Hand over the task that runs a check; it is aborted when the check goes or another task comes.
    pub(crate) fn set_runner(&mut self, id: &str, task: AbortHandle) {
        match self.checks.get_mut(id) {
            Some(local) => local.runner = Runner(Some(task)),
            None => task.abort(),
        }
    }

    /// Remove a service with its checks; `false` if there is none.
    pub(crate) fn remove_service(&mut self, store: &mut Store, id: &str) -> bool {
        if self.services.remove(id).is_none() {
            return false;
        }
        self.checks.retain(|_, local| local.check.service_id != id);
        store.deregister(&self.node, id, "");
        true
    }

    pub(crate) fn remove_check(&mut self, store: &mut Store, id: &str) -> bool {
        if self.checks.remove(id).is_none() {
            return false;
        }
        store.deregister(&self.node, "", id);
        true
    }

    /// The state of a check as just found. Returns whether there is such a check.
    pub(crate) fn update_check(&mut self, store: &mut Store, id: &str, status: &str, output: &str) -> bool {
        let Some(local) = self.checks.get_mut(id) else { return false };
        match status {
            "critical" => drop(local.critical_since.get_or_insert_with(Instant::now)),
            _ => local.critical_since = None,
        }
        if local.check.status == status {
            if local.check.output != output {
                output.clone_into(&mut local.check.output);
                local.sync_at.get_or_insert_with(|| Instant::now() + OUTPUT_DELAY);
            }
            return true;
        }
        status.clone_into(&mut local.check.status);
        output.clone_into(&mut local.check.output);
        local.in_sync = false;
        self.sync(store);
        true
    }

    /// Take a service (or with `None` the node) out of or back into service.
    pub(crate) fn set_maintenance(&mut self, store: &mut Store, service: Option<&str>, on: bool, reason: &str) {
        let id = match service {
            Some(service) => format!("_service_maintenance:{service}"),
            None => "_node_maintenance".to_owned(),
        };
        if !on {
            self.remove_check(store, &id);
            return;
        }
        if self.checks.contains_key(&id) {
            return;
        }
        let (name, what) = if service.is_some() { ("Service", "service") } else { ("Node", "node") };
        let notes = match reason {
            "" => format!(
                "Maintenance mode is enabled for this {what}, but no reason was provided. This is a default message."
            ),
            reason => reason.to_owned(),
        };
        let service = service.and_then(|id| self.service(id));
        let check = Check {
            node: self.node.clone(),
            id,
            name: format!("{name} Maintenance Mode"),
            status: "critical".to_owned(),
            notes,
            kind: "maintenance".to_owned(),
            service_id: service.map(|s| s.id.clone()).unwrap_or_default(),
            service_name: service.map(|s| s.name.clone()).unwrap_or_default(),
            service_tags: service.map(|s| s.tags.clone()).unwrap_or_default(),
            ..Check::default()
        };
        self.put_check(check, AgentCheck::default(), false);
        self.sync(store);
    }

    /// Write what the catalog does not know yet: each service together with its changed checks, then the other checks.
    fn sync(&mut self, store: &mut Store) {
        let node = || Node { name: self.node.clone(), ..Node::default() };
        for (id, local) in &mut self.services {
            if local.in_sync {
                continue;
            }
            local.in_sync = true;
            let checks = self.checks.values_mut().filter(|c| !c.in_sync && c.check.service_id == *id);
            let checks = checks.map(LocalCheck::synced).collect();
            let service = Some(local.service.clone());
            write(store, Registration { node: node(), skip_node_update: true, service, checks });
        }
        for local in self.checks.values_mut().filter(|local| !local.in_sync) {
            let checks = vec![local.synced()];
            write(store, Registration { node: node(), skip_node_update: true, service: None, checks });
        }
    }

    /// What is due at `now`: outputs that were held back, and services that were critical for too long.
    pub(crate) fn tend(&mut self, store: &mut Store, now: Instant) {
        let mut due = false;
        for local in self.checks.values_mut() {
            if local.sync_at.is_some_and(|at| at <= now) {
                local.sync_at = None;
                local.in_sync = false;
                due = true;
            }
        }
        if due {
            self.sync(store);
        }
    }

    /// Remove the services of which a check was critical for longer than its definition allows.
    pub(crate) fn reap(&mut self, store: &mut Store, now: Instant, minimum: Duration) {
        let expired: Vec<String> = self
            .checks
            .values()
            .filter(|local| {
                let after = local.agent_check.deregister_after;
                let since = local.critical_since.map(|since| now.saturating_duration_since(since));
                !after.is_zero() && since.is_some_and(|critical| critical > after.max(minimum))
            })
            .map(|local| local.check.service_id.clone())
            .collect();
        for service in expired {
            tracing::info!(service, "was critical for too long, deregistered");
            self.remove_service(store, &service);
        }
    }

    /// Make the catalog's view of this node equal to this agent's: the full anti-entropy run.
    pub(crate) fn full_sync(&mut self, store: &mut Store) {
        let strange: Vec<String> = (store.services_on(&self.node))
            .filter(|service| service.id != "consul" && !self.services.contains_key(&service.id))
            .map(|service| service.id.clone())
            .collect();
        for id in strange {
            store.deregister(&self.node, &id, "");
        }
        let strange: Vec<String> = (store.checks_on(&self.node))
            .filter(|check| check.id != "serfHealth" && !self.checks.contains_key(&check.id))
            .map(|check| check.id.clone())
            .collect();
        for id in strange {
            store.deregister(&self.node, "", &id);
        }
        for local in self.services.values_mut() {
            let known = store.service(&self.node, &local.service.id);
            local.in_sync = known.is_some_and(|known| known.is_same(&local.service));
        }
        for local in self.checks.values_mut().filter(|local| local.sync_at.is_none()) {
            let known = store.check(&self.node, &local.check.id);
            local.in_sync = known.is_some_and(|known| known.status == local.check.status);
        }
        self.sync(store);
    }
}

impl LocalCheck {
    fn synced(&mut self) -> Check {
        self.in_sync = true;
        self.sync_at = None;
        self.check.clone()
    }
}

fn write(store: &mut Store, registration: Registration) {
    if let Err(error) = store.register(registration) {
        tracing::warn!(error, "cannot bring the agent's state into the catalog");
    }
}

/// Consul holds back changes of a check's output alone for half to one and a half of `check_update_interval`, 5 min.
const OUTPUT_DELAY: Duration = Duration::from_secs(5 * 60);
