#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;

fn registration(node: &str, service: &str, check: &str) -> Registration {
    let service = Service { node: node.into(), id: service.into(), name: service.into(), ..Service::default() };
    let check = Check {
        node: node.into(),
        id: check.into(),
        status: "passing".into(),
        service_id: service.id.clone(),
        ..Check::default()
    };
    Registration {
        node: Node { name: node.into(), address: "10.0.0.1".into(), ..Node::default() },
        service: Some(service),
        checks: vec![check],
        ..Registration::default()
    }
}

fn session(store: &mut Store, id: &str, deletes: bool, lock_delay: Duration) {
    let request = SessionRequest {
        name: String::new(),
        node: "n".into(),
        lock_delay,
        behavior: if deletes { "delete" } else { "" }.into(),
        ttl: String::new(),
        node_checks: Vec::new(),
        service_checks: Vec::new(),
    };
    store.create_session(id, request).unwrap();
}

const SESSION: &str = "10b612bb-5079-5e2a-b11e-d772af061014";
const OTHER: &str = "10b612bb-5079-5e2a-b11e-d772af061015";

#[test]
fn a_faulty_registration_leaves_nothing() {
    let mut store = Store::new(1);
    let mut faulty = registration("n", "a", "c");
    faulty.checks.push(Check { node: "n".into(), id: "d".into(), service_id: "none".into(), ..Check::default() });
    let fault = store.register(faulty).unwrap_err();
    assert_eq!(fault, "failed inserting check: Missing service registration on node \"n\"");
    assert_eq!((store.nodes().count(), store.services().count(), store.checks().count()), (0, 0, 0));
    assert_eq!(store.nodes_index(), 0);
}

#[test]
fn names_are_the_same_in_any_case() {
    let mut store = Store::new(1);
    store.register(registration("Node", "Web", "C")).unwrap();
    store.register(registration("node", "web", "c")).unwrap();
    assert_eq!((store.nodes().count(), store.services().count(), store.checks().count()), (1, 1, 1));
    assert_eq!(store.instances("WEB").count(), 1);
    store.deregister("NODE", "WEB", "");
    assert_eq!((store.services().count(), store.checks().count()), (0, 0));
}

/// A service that takes over an id leaves its old name without instances.
#[test]
fn an_id_under_another_name() {
    let mut store = Store::new(1);
    store.register(registration("n", "a", "c")).unwrap();
    let mut renamed = registration("n", "a", "c");
    renamed.service.as_mut().unwrap().name = "b".into();
    store.register(renamed).unwrap();
    assert_eq!((store.instances("a").count(), store.instances("b").count()), (0, 1));
    assert_eq!(store.check("n", "c").unwrap().service_name, "b");
}

#[test]
fn shifted_indexes_keep_their_order() {
    let mut store = Store::new(1000);
    store.register(registration("n", "a", "c")).unwrap();
    store.kv_put("k", b"1".to_vec(), 0, &Write::Set, Instant::now()).unwrap();
    store.kv_put("k", b"2".to_vec(), 0, &Write::Set, Instant::now()).unwrap();
    store.shift_to(5);
    assert_eq!((store.key_index("k"), store.kv_get("k").unwrap().stamp.create, store.services_index()), (5, 4, 3));
    store.shift_to(1);
    assert_eq!((store.key_index("k"), store.services_index()), (1, 1));
    store.kv_put("k", b"3".to_vec(), 0, &Write::Set, Instant::now()).unwrap();
    assert_eq!(store.key_index("k"), 2);
    // Never up.
    store.shift_to(50);
    assert_eq!(store.key_index("k"), 2);
}

#[test]
fn a_lock_is_not_given_again_before_its_delay_is_over() {
    let mut store = Store::new(1);
    store.register(registration("n", "a", "c")).unwrap();
    session(&mut store, SESSION, false, Duration::from_secs(5));
    session(&mut store, OTHER, false, Duration::ZERO);
    let lock = |store: &mut Store, id: &str, now| {
        store.kv_put("k", Vec::new(), 0, &Write::Acquire(id.to_owned()), now).unwrap()
    };
    let now = Instant::now();
    assert!(lock(&mut store, SESSION, now));
    assert!(!lock(&mut store, OTHER, now));
    store.destroy_session(SESSION);
    assert_eq!(store.kv_get("k").unwrap().session, "");
    assert!(!lock(&mut store, OTHER, now + Duration::from_secs(4)));
    assert!(lock(&mut store, OTHER, Instant::now() + Duration::from_secs(6)));
    assert_eq!(store.kv_get("k").unwrap().lock_index, 2);
}

#[test]
fn a_node_takes_its_sessions_along() {
    let mut store = Store::new(1);
    store.register(registration("n", "a", "c")).unwrap();
    session(&mut store, SESSION, true, Duration::ZERO);
    store.kv_put("k", Vec::new(), 0, &Write::Acquire(SESSION.to_owned()), Instant::now()).unwrap();
    store.deregister("n", "", "");
    assert_eq!((store.sessions().count(), store.kv_get("k")), (0, None));
}

/// Deleted keys are remembered for their index, but not for ever.
#[test]
fn deleted_keys_are_forgotten_in_the_end() {
    let mut store = Store::new(1);
    let start = Instant::now();
    for number in 0..100 {
        let key = format!("k/{number}");
        store.kv_put(&key, Vec::new(), 0, &Write::Set, start).unwrap();
        store.kv_delete(&key, None, start);
    }
    assert_eq!(store.tombstones.len(), 100);
    store.kv_put("k/last", Vec::new(), 0, &Write::Set, start).unwrap();
    store.kv_delete("k/last", None, start + Duration::from_secs(3600));
    assert_eq!(store.tombstones.len(), 1);
}
