#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::registry::status::Board;
use crate::registry::testing::{Fake, Fault, Real, Svc, View, config, svc};

struct Watched {
    view: View,
    board: Board,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn watch_with(client: Client, change: impl FnOnce(&mut Setup)) -> Watched {
    let (feed, board) = (Feed::default(), Board::default());
    let mut setup = Setup {
        client,
        rules: Rules { accepted: vec!["passing".into()], all: false, keep: false },
        prefix: "urlprefix-".into(),
        monitors: 1,
        poll: Duration::ZERO,
        datacenter: None,
        feed: feed.clone(),
        sources: Sources::of(&board, None),
    };
    change(&mut setup);
    let task = tokio::spawn(Services::new(setup).run(tokio::sync::oneshot::channel().1));
    Watched { view: View::new(&feed), board, task }
}

fn watch(client: Client) -> Watched {
    watch_with(client, |_| {})
}

async fn fake_with(services: &[Svc]) -> (Fake, Watched) {
    let fake = Fake::start().await;
    fake.node_check("n1", "serfHealth", "passing");
    for svc in services {
        fake.put(svc.clone());
    }
    let mut watched = watch(fake.client());
    watched.view.until("the services", 5.0, |v| v.services_known).await;
    (fake, watched)
}

#[tokio::test]
async fn changes_of_every_kind_are_seen_at_once() {
    let (fake, mut w) = fake_with(&[svc("web", "w1", 80)]).await;
    let view = &mut w.view;
    assert!(view.is("web:80"));
    fake.put(svc("web", "w2", 81));
    view.until("a new instance", 1.0, |v| v.is("web:80 81")).await;
    fake.check("n1/w1", "critical");
    view.until("a failing check", 1.0, |v| v.is("web:81")).await;
    fake.check("n1/w1", "passing");
    view.until("a passing check", 1.0, |v| v.is("web:80 81")).await;
    fake.put(Svc { tags: vec!["x".into(), "urlprefix-/new".into()], ..svc("web", "w2", 81) });
    view.until("new tags", 1.0, |v| v.services["web"][1].tags.len() == 2).await;
    fake.put(Svc { tags: vec!["x".into()], ..svc("web", "w2", 81) });
    view.until("no route tag any more", 1.0, |v| v.is("web:80")).await;
    fake.put(Svc { port: 8080, ..svc("web", "w1", 80) });
    view.until("a new port alone", 2.0, |v| v.is("web:8080")).await;
    fake.put(Svc { address: String::new(), port: 8080, ..svc("web", "w1", 80) });
    view.until("the node's address", 2.0, |v| v.services["web"][0].address == "10.0.0.9").await;
    fake.node_check("n1", "_node_maintenance", "critical");
    view.until("a node in maintenance", 1.0, |v| v.is("")).await;
    fake.node_check("n1", "_node_maintenance", "passing");
    fake.state().nodes.clear();
    fake.node_check("n1", "serfHealth", "passing");
    view.until("the node again", 1.0, |v| v.is("web:8080")).await;
    fake.node_check("n1", "serfHealth", "critical");
    view.until("a dead node", 1.0, |v| v.is("")).await;
    fake.node_check("n1", "serfHealth", "passing");
    fake.put(svc("my.app-v1.2", "dots", 90));
    view.until("a name with dots", 1.0, |v| v.is("my.app-v1.2:90, web:8080")).await;
    fake.remove("n1/w1");
    view.until("a service gone", 1.0, |v| v.is("my.app-v1.2:90")).await;
}

#[tokio::test]
async fn what_is_no_route_of_ours_is_never_read() {
    let fake = Fake::start().await;
    for i in 0..50 {
        fake.put(Svc { tags: vec!["other".into()], ..svc(&format!("other-{i}"), &format!("o{i}"), 70) });
    }
    fake.put(Svc { node: "n2".into(), kind: "connect-proxy".into(), ..svc("web-proxy", "p", 71) });
    fake.put(svc("web", "w1", 80));
    let mut w = watch(fake.client());
    w.view.until("the service", 5.0, |v| v.services_known && v.is("web:80")).await;
    fake.put(Svc { tags: vec![], ..svc("other-1", "o1", 99) });
    fake.put(svc("web", "w2", 81));
    w.view.until("the second instance", 2.0, |v| v.is("web:80 81")).await;
    assert_eq!(fake.saw("/health/service/other"), Vec::<String>::new());
    // A slip in the only route tag has to come to somebody's eyes.
    fake.put(Svc { tags: vec!["urlprefix:/slip".into()], ..svc("slip", "s1", 82) });
    w.view.until("the one with a slip", 2.0, |v| v.is("slip:82, web:80 81")).await;
}

#[tokio::test]
async fn the_same_id_on_two_nodes_is_two_instances() {
    let (fake, mut w) = fake_with(&[svc("web", "web", 80)]).await;
    fake.put(Svc { node: "n2".into(), checks: vec![("c".into(), "critical".into())], ..svc("web", "web", 81) });
    fake.put(svc("marker", "m", 1));
    w.view.until("the marker", 2.0, |v| v.is("marker:1, web:80")).await;
    fake.check("n2/web", "passing");
    w.view.until("both", 2.0, |v| v.is("marker:1, web:80 81")).await;
}

#[tokio::test]
async fn nothing_is_asked_while_nothing_happens() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2), svc("c", "c", 3)]).await;
    fake.put(svc("d", "d", 4));
    w.view.until("a change", 2.0, |v| v.services.len() == 4).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = fake.saw("").len();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let asked = fake.saw("").split_off(before);
    assert!(asked.is_empty(), "{asked:?}");
    let last = fake.saw("/health/state/any").pop().unwrap();
    assert!(last.contains("index=") && last.contains("wait=30s") && last.contains("consistent"), "{last}");
}

#[tokio::test]
async fn one_change_among_many_services_costs_three_calls() {
    let many: Vec<Svc> = (0..300).map(|i| svc(&format!("s{i}"), &format!("i{i}"), 1000 + i)).collect();
    let (fake, mut w) = fake_with(&many).await;
    // What was put before the watch began counts as one move; let that be over.
    tokio::time::sleep(Duration::from_millis(300)).await;
    type Write = fn(&Fake);
    let changes: [(&str, Write, &str); 5] = [
        ("register", |f| f.put(svc("s7", "more", 5)), "s7:1007 5"),
        ("fail", |f| f.check("n1/i7", "critical"), "s7:5"),
        ("pass", |f| f.check("n1/i7", "passing"), "s7:1007 5"),
        ("move", |f| f.put(svc("s7", "more", 6)), "s7:1007 6"),
        ("deregister", |f| f.remove("n1/more"), "s7:1007"),
    ];
    for (name, write, expected) in changes {
        let before = fake.saw("").len();
        write(&fake);
        let took = w.view.until(name, 3.0, |v| v.names().split(", ").any(|s| s == expected)).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let calls = fake.saw("").split_off(before);
        // The watches that go on waiting are the calls of the next change.
        let (waiting, reads): (Vec<_>, Vec<_>) = calls.iter().partition(|c| c.contains("index="));
        assert!(reads.len() <= 2 && waiting.len() <= 2 && calls.len() <= 4, "{name}: {calls:?}");
        assert!(took < Duration::from_secs(1), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn a_port_that_changed_in_a_burst_is_found() {
    for count in [3usize, 30] {
        let many: Vec<Svc> = (0..count as u16).map(|i| svc(&format!("s{i}"), &format!("i{i}"), 1000 + i)).collect();
        let (fake, mut w) = fake_with(&many).await;
        for round in 0..5u16 {
            // Gone and back elsewhere before anybody asks again; and then something else that explains the index.
            fake.put(svc("other", "o1", round));
            if count > FEW {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            fake.remove("n1/i1");
            fake.put(svc("s1", "i1", 2000 + round));
            fake.put(svc("marker", &format!("m{round}"), round));
            let expected = format!("s1:{}", 2000 + round);
            w.view.until(&expected, 2.0, |v| v.names().split(", ").any(|s| s == expected)).await;
            tokio::time::sleep(Duration::from_millis(u64::from(round) * 30)).await;
        }
    }
}

#[tokio::test]
async fn a_removal_is_never_later_than_what_came_after_it() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 1)]).await;
    for round in 2..40u16 {
        // Gone for good, gone and back elsewhere, and then a newer service.
        let old = format!("old-{round}");
        fake.put(svc(&old, &old, round));
        w.view.until("the old one", 2.0, |v| v.names().contains(&old)).await;
        fake.remove(&format!("n1/{old}"));
        fake.remove("n1/a");
        fake.put(svc("a", "a", round));
        fake.put(svc("b", "b", round));
        let newer = format!("b:{round}");
        w.view.until("the newer one", 2.0, |v| v.names().contains(&newer)).await;
        assert!(w.view.is(&format!("a:{round}, b:{round}")), "round {round}: {}", w.view.names());
    }
}

#[tokio::test]
async fn what_changed_together_is_published_together() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1)]).await;
    fake.fault("/health/service/", Fault::Delay(Duration::from_millis(100)));
    w.view.until("both watches", 2.0, |_| fake.saw("index=").len() >= 2).await;
    fake.put(svc("first", "f", 1));
    w.view.until("the first", 2.0, |_| fake.saw("/health/service/first").len() == 1).await;
    for i in 0..10 {
        fake.put(svc(&format!("s{i}"), &format!("i{i}"), 1));
    }
    w.view.until("any of them", 2.0, |v| v.names().contains("s0:") || v.names().contains("s9:")).await;
    assert_eq!(w.view.services.len(), 12, "{}", w.view.names());
}

#[tokio::test]
async fn a_hidden_change_is_found_even_if_the_list_of_nodes_is_forbidden() {
    let many: Vec<Svc> = (0..30).map(|i| svc(&format!("s{i}"), &format!("i{i}"), 1000 + i)).collect();
    let (fake, mut w) = fake_with(&many).await;
    fake.fault("/internal/", Fault::Status(403, "Permission denied"));
    fake.put(svc("s7", "i7", 5));
    w.view.until("the new port", 3.0, |v| v.names().contains("s7:5")).await;
}

// --- faults

#[tokio::test]
async fn outages_leave_everything_as_it_is_and_changes_follow() {
    let faults: [(&str, Option<Fault>); 5] = [
        ("refused", None),
        ("500", Some(Fault::Status(500, "No cluster leader"))),
        ("cut", Some(Fault::Cut)),
        ("half answers", Some(Fault::Half)),
        ("403", Some(Fault::Status(403, "Permission denied"))),
    ];
    for (name, fault) in faults {
        let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2)]).await;
        fake.refuse().await;
        if let Some(fault) = fault {
            fake.fault("", fault);
            fake.accept().await;
        }
        fake.put(svc("new", "n", 3));
        fake.remove("n1/b");
        w.view.stays(name, 2.5, |v| v.is("a:1, b:2")).await;
        fake.heal();
        if name == "refused" {
            fake.accept().await;
        }
        let took = w.view.until(name, 5.0, |v| v.is("a:1, new:3")).await;
        assert!(took < Duration::from_millis(2500), "{name}: {took:?}");
        assert!(w.board.status(true).sources.iter().all(|s| s.failures == 0), "{name}");
    }
}

#[tokio::test]
async fn a_consul_that_hangs_is_left_as_soon_as_anything_answers() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1)]).await;
    w.view.until("both watches", 2.0, |_| fake.saw("index=").len() >= 2).await;
    // Whatever is waiting now will never be answered; later questions are.
    fake.fault("", Fault::Hang);
    fake.put(svc("b", "b", 2));
    w.view.until("the last answer of the watch", 2.0, |_| fake.saw("/health/service/b").len() == 1).await;
    fake.put(svc("c", "c", 3));
    w.view
        .until("b, once its read timed out", 12.0, |v| {
            if fake.saw("/health/service/b").len() == 1
                && fake.times("/service/b")[0].elapsed() > Duration::from_secs(4)
            {
                fake.heal();
            }
            v.is("a:1, b:2, c:3")
        })
        .await;
}

#[tokio::test]
async fn a_restart_that_lost_everything_drops_nothing() {
    let all: Vec<Svc> = (0..10).map(|i| svc(&format!("s{i}"), &format!("i{i}"), 1000 + i)).collect();
    let (fake, mut w) = fake_with(&all).await;
    fake.refuse().await;
    w.view.stays("refused", 0.5, |v| v.services.len() == 10).await;
    fake.fault("", Fault::Status(500, "no leader"));
    fake.accept().await;
    w.view.stays("500", 1.5, |v| v.services.len() == 10).await;
    fake.forget_everything();
    fake.heal();
    w.view.stays("empty", 4.0, |v| v.services.len() == 10).await;
    for svc in &all[..9] {
        fake.put(Svc { port: svc.port + 1000, ..svc.clone() });
    }
    w.view.until("the new ports", 2.0, |v| v.names().contains("s0:2000") && v.names().contains("s8:2008")).await;
    w.view.until("the one that did not come back goes", 6.0, |v| v.services.len() == 9).await;
    fake.remove("n1/i3");
    w.view.until("a real loss", 1.0, |v| v.services.len() == 8).await;
}

#[tokio::test]
async fn an_empty_list_with_a_lower_index_is_not_believed() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2)]).await;
    fake.fault("/v1/health/", Fault::Empty(2));
    fake.check("n1/a", "passing");
    fake.put(svc("b", "b", 3));
    w.view.stays("empty", 3.0, |v| v.services.len() == 2).await;
    fake.heal();
    w.view.until("the new port", 3.0, |v| v.is("a:1, b:3")).await;
    fake.remove("n1/a");
    w.view.until("a real loss", 2.0, |v| v.is("b:3")).await;
}

#[tokio::test]
async fn an_index_that_goes_backwards_starts_over() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1)]).await;
    fake.refuse().await;
    fake.forget_everything();
    fake.put(svc("a", "a", 1));
    fake.put(svc("b", "b", 2));
    fake.accept().await;
    w.view.until("the content", 3.0, |v| v.is("a:1, b:2")).await;
    fake.put(svc("c", "c", 3));
    w.view.until("what comes after", 1.5, |v| v.is("a:1, b:2, c:3")).await;
}

#[tokio::test]
async fn without_an_index_it_is_asked_once_a_second() {
    for index in [None, Some(0)] {
        let fake = Fake::start().await;
        fake.put(svc("a", "a", 1));
        fake.fault("", Fault::Index(index));
        let mut w = watch(fake.client());
        w.view.until("the service", 5.0, |v| v.is("a:1")).await;
        let before = fake.saw("").len();
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let asked = fake.saw("").len() - before;
        assert!((2..=8).contains(&asked), "{index:?}: {asked}");
        fake.put(svc("b", "b", 2));
        w.view.until("a change all the same", 2.5, |v| v.is("a:1, b:2")).await;
    }
}

#[tokio::test]
async fn one_service_that_cannot_be_read_keeps_its_routes() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2), svc("c", "c", 3)]).await;
    fake.fault("/health/service/b", Fault::Status(500, "no leader"));
    fake.put(Svc { tags: vec!["urlprefix-/x".into()], ..svc("b", "b", 22) });
    fake.put(svc("a", "a", 11));
    w.view.until("the other one", 2.0, |v| v.names().contains("a:11")).await;
    w.view.stays("b", 2.5, |v| v.names().contains("b:2,")).await;
    let times = fake.times("/health/service/b");
    for pair in times[1..].windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(990), "{:?}", pair[1] - pair[0]);
    }
    fake.heal();
    w.view.until("b's change", 2.5, |v| v.is("a:11, b:22, c:3")).await;
}

#[tokio::test]
async fn half_of_the_reads_failing_loses_nothing() {
    let all: Vec<Svc> = (0..10).map(|i| svc(&format!("s{i}"), &format!("i{i}"), 1000 + i)).collect();
    let (fake, mut w) = fake_with(&all).await;
    fake.fault("/health/service/", Fault::EveryOther(Arc::new(AtomicUsize::new(0))));
    for round in 1..4u16 {
        for svc in &all {
            fake.put(Svc { port: svc.port + round * 100, tags: vec![format!("urlprefix-/{round}")], ..svc.clone() });
        }
        w.view.stays("all there", 1.0, |v| v.services.len() == 10).await;
    }
    w.view.until("all right in the end", 10.0, |v| v.services.iter().all(|(_, i)| i[0].port >= 1300)).await;
}

#[tokio::test]
async fn an_answer_that_the_acl_has_emptied_is_not_believed() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2)]).await;
    // Old versions do not say so, but the list lacks what is always there.
    fake.fault("/health/", Fault::Empty(1000));
    fake.put(svc("a", "a", 11));
    w.view.stays("filtered", 3.0, |v| v.services.len() == 2).await;
    let warning = w.board.status(true).sources.into_iter().find_map(|s| s.warning);
    assert!(warning.is_some_and(|text| text.contains("ACL")), "the reason is shown");
    fake.heal();
    w.view.until("the permission is back", 4.0, |v| v.is("a:11, b:2")).await;
    assert!(w.board.status(true).sources.iter().all(|s| s.warning.is_none()));
}

#[tokio::test]
async fn a_list_that_is_whole_again_is_noticed_without_a_change() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2)]).await;
    fake.fault("/health/state", Fault::Empty(1000));
    let doubtful = |w: &Watched| w.board.status(true).sources.iter().any(|s| s.warning.is_some());
    let started = Instant::now();
    while !doubtful(&w) {
        assert!(started.elapsed() < Duration::from_secs(2), "nobody doubts");
        // A query that waits already is still answered in full.
        fake.check("n1/a", "passing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = fake.saw("/health/state").len();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let asked = fake.saw("/health/state").len() - before;
    assert!((1..=4).contains(&asked), "{asked}");
    fake.heal();
    while doubtful(&w) {
        assert!(started.elapsed() < Duration::from_secs(7), "for ever in doubt");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(w.view.is("a:1, b:2"));
    fake.check("n1/a", "critical");
    w.view.until("a failing check", 2.0, |v| v.is("b:2")).await;
}

#[tokio::test]
async fn slow_answers_do_not_pile_up() {
    let (fake, mut w) = fake_with(&[svc("a", "a", 1), svc("b", "b", 2)]).await;
    fake.fault("", Fault::Delay(Duration::from_millis(600)));
    let before = fake.saw("").len();
    for port in 100..110 {
        fake.put(Svc { tags: vec![format!("urlprefix-/{port}")], ..svc("a", "a", port) });
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    w.view.until("the last change", 3.0, |v| v.is("a:109, b:2")).await;
    let asked = fake.saw("").len() - before;
    assert!(asked < 30, "{asked}");
}

#[tokio::test]
async fn the_first_table_waits_for_all_services() {
    let fake = Fake::start().await;
    for i in 0..5 {
        fake.put(svc(&format!("s{i}"), &format!("i{i}"), 1));
    }
    fake.fault("/health/service/s3", Fault::Status(500, "no leader"));
    let mut w = watch(fake.client());
    w.view.until("the others", 2.0, |v| v.services.len() == 4).await;
    assert!(!w.view.services_known);
    w.view.stays("not yet known", 1.5, |v| !v.services_known).await;
    fake.heal();
    w.view.until("all of them", 2.5, |v| v.services_known && v.services.len() == 5).await;
}

#[tokio::test]
async fn the_first_table_does_not_wait_for_ever() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    fake.put(svc("b", "b", 1));
    fake.fault("/health/service/b", Fault::Status(500, "no leader"));
    let started = Instant::now();
    let mut w = watch(fake.client());
    w.view.until("known", 8.0, |v| v.services_known).await;
    assert!(started.elapsed() > Duration::from_secs(4) && w.view.is("a:1"));
}

#[tokio::test]
async fn polling_never_blocks() {
    let fake = Fake::start().await;
    fake.put(svc("a", "a", 1));
    let mut w = watch_with(fake.client(), |s| s.poll = Duration::from_millis(100));
    let took = w.view.until("the service", 2.0, |v| v.is("a:1")).await;
    assert!(took < Duration::from_millis(90), "the first query does not wait: {took:?}");
    fake.put(svc("a", "a", 2));
    w.view.until("a new port", 2.0, |v| v.is("a:2")).await;
    let before = fake.saw("/health/state").len();
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let polls = fake.saw("/health/state").len() - before;
    assert!((5..=11).contains(&polls), "{polls}");
    assert_eq!(fake.saw("index="), Vec::<String>::new());
}

#[tokio::test]
async fn reads_are_parallel_but_bounded() {
    let fake = Fake::start().await;
    fake.fault("/health/service/", Fault::Delay(Duration::from_millis(200)));
    for i in 0..8 {
        fake.put(svc(&format!("s{i}"), &format!("i{i}"), 1));
    }
    for (monitors, most) in [(8, 0.35), (1, 0.65)] {
        let mut w = watch_with(fake.client(), |s| s.monitors = monitors);
        let took = w.view.until("all", 3.0, |v| v.services_known && v.services.len() == 8).await.as_secs_f64();
        assert!(took < most, "{monitors}: {took}");
    }
}

// --- the real thing

/// Changes in a real Consul, and how long after Consul's own notice they are there.
#[tokio::test]
async fn real_consul_every_change_is_seen() {
    let consul = Real::start().await;
    let mut w = watch(Client::new(config(&consul.address)).unwrap());
    w.view.until("known", 5.0, |v| v.services_known).await;
    let view = &mut w.view;
    let mut times = Vec::new();
    let tag = ["urlprefix-/web"];
    for round in 0..3u16 {
        consul.agent("w1", "web", 80, &tag).await;
        times.push(view.until("register", 1.0, |v| v.is("web:80")).await);
        for (status, expected) in [("critical", ""), ("passing", "web:80")] {
            let body = serde_json::json!({"Status": status});
            consul.put("/v1/agent/check/update/w1:0", body).await;
            times.push(view.until(status, 1.0, |v| v.is(expected)).await);
        }
        for path in ["/v1/agent/service/maintenance/w1", "/v1/agent/maintenance"] {
            for (enable, expected) in [("true", ""), ("false", "web:80")] {
                consul.put(&format!("{path}?enable={enable}"), serde_json::Value::Null).await;
                times.push(view.until(path, 1.0, |v| v.is(expected)).await);
            }
        }
        consul.agent("w1", "web", 81 + round, &tag).await;
        times.push(view.until("a new port", 1.0, |v| v.names() == format!("web:{}", 81 + round)).await);
        consul.agent("w1", "web", 81 + round, &["urlprefix-/other"]).await;
        times.push(view.until("new tags", 1.0, |v| v.services["web"][0].tags[0] == "urlprefix-/other").await);
        consul.put("/v1/agent/service/deregister/w1", serde_json::Value::Null).await;
        times.push(view.until("deregister", 1.0, |v| v.is("")).await);
        consul.catalog("c1", "cat", 90, &tag, Some("passing")).await;
        times.push(view.until("the catalog", 1.0, |v| v.is("cat:90")).await);
        consul.catalog("c1", "cat", 91, &tag, None).await;
        times.push(view.until("a port in the catalog alone", 2.0, |v| v.is("cat:91")).await);
        consul.put("/v1/catalog/deregister", serde_json::json!({"Node": "node"})).await;
        times.push(view.until("the node gone", 1.0, |v| v.is("")).await);
    }
    times.sort();
    let median = times[times.len() / 2];
    eprintln!("median {median:?}, most {:?} of {}", times[times.len() - 1], times.len());
    assert!(median < Duration::from_millis(100), "{median:?}");
}

/// A read that something else caused may be newer than the list that names an older change.
#[tokio::test]
async fn nothing_is_seen_before_what_was_written_earlier() {
    let (fake, mut w) = fake_with(&[svc("s-1", "s-1", 1), svc("marker", "m", 1)]).await;
    fake.fault("/health/service/", Fault::Delay(Duration::from_millis(10)));
    for round in 2..12u16 {
        let (old, new) = (format!("s-{}", round - 1), format!("s-{round}"));
        // Both lists answer and wait for the reads they cause; the next changes are made before these are answered.
        let reads = fake.saw("/health/service/").len();
        fake.remove(&format!("n1/{old}"));
        w.view.until("reads", 2.0, |_| fake.saw("/health/service/").len() > reads).await;
        fake.put(svc(&new, &new, round));
        fake.put(svc("marker", "m", round));
        let newer = format!("marker:{round}");
        w.view.until(&newer, 2.0, |v| v.names().contains(&newer)).await;
        assert!(w.view.is(&format!("{newer}, {new}:{round}")), "round {round}: {}", w.view.names());
    }
}

#[tokio::test]
async fn real_consul_that_freezes_is_followed_when_it_goes_on() {
    let consul = Real::start().await;
    consul.catalog("c1", "cat", 90, &["urlprefix-/"], Some("passing")).await;
    let mut w = watch(Client::new(config(&consul.address)).unwrap());
    w.view.until("known", 5.0, |v| v.is("cat:90")).await;
    consul.signal(rustix::process::Signal::STOP);
    w.view.stays("frozen", 2.0, |v| v.is("cat:90")).await;
    consul.signal(rustix::process::Signal::CONT);
    consul.catalog("c2", "cat", 91, &["urlprefix-/"], Some("passing")).await;
    w.view.until("a change", 2.0, |v| v.is("cat:90 91")).await;
}

/// A minute of each kind of trouble. Run by hand:
/// `cargo nextest run --run-ignored only a_minute_of_each --no-capture`.
#[tokio::test]
#[ignore = "takes four minutes"]
async fn real_consul_a_minute_of_each_trouble() {
    let mut consul = Real::start().await;
    for i in 0..10u16 {
        consul.catalog(&format!("i{i}"), &format!("s{i}"), 1000 + i, &["urlprefix-/"], Some("passing")).await;
    }
    let mut w = watch(Client::new(config(&consul.address)).unwrap());
    w.view.until("known", 5.0, |v| v.services.len() == 10).await;
    const MINUTE: f64 = 65.0;

    consul.signal(rustix::process::Signal::STOP);
    w.view.stays("frozen", MINUTE, |v| v.services.len() == 10).await;
    consul.signal(rustix::process::Signal::CONT);
    consul.catalog("i3", "s3", 2003, &["urlprefix-/"], None).await;
    eprintln!("frozen: {:?}", w.view.until("after the freeze", 2.0, |v| v.names().contains("s3:2003")).await);

    consul.kill().await;
    w.view.stays("stopped", MINUTE, |v| v.services.len() == 10).await;
    consul.restart().await;
    w.view.stays("empty", MINUTE, |v| v.services.len() == 10).await;
    for i in 0..10u16 {
        consul.catalog(&format!("i{i}"), &format!("s{i}"), 3000 + i, &["urlprefix-/"], Some("passing")).await;
        w.view.stays("coming back", 0.3, |v| v.services.len() == 10).await;
    }
    let all_new = |v: &View| v.services.len() == 10 && v.services.values().all(|i| i.len() == 1 && i[0].port >= 3000);
    eprintln!("restarted empty: {:?}", w.view.until("all new", 2.0, all_new).await);
    consul.put("/v1/catalog/deregister", serde_json::json!({"Node": "node", "ServiceID": "i5"})).await;
    eprintln!("deregistered: {:?}", w.view.until("a real loss", 1.0, |v| v.services.len() == 9).await);

    // All data lost in an instant, and told again.
    consul.kill().await;
    consul.restart().await;
    for i in (0..10u16).filter(|i| *i != 5) {
        consul.catalog(&format!("i{i}"), &format!("s{i}"), 4000 + i, &["urlprefix-/"], Some("passing")).await;
    }
    let all_new = |v: &View| v.services.len() == 9 && v.services.values().all(|i| i.len() == 1 && i[0].port >= 4000);
    eprintln!("restarted at once: {:?}", w.view.until("all new", 2.5, all_new).await);
}

/// What a change of one instance among 5,000 services with 15,000 instances costs, beside the JSON. Run by hand:
/// `cargo nextest run --run-ignored only many_services --no-capture`.
#[tokio::test]
#[ignore = "takes a minute"]
async fn real_consul_with_many_services() {
    let consul = Real::start().await;
    for i in 0..5000u16 {
        for j in 0..3u16 {
            let name = format!("service-{i}");
            consul
                .catalog(&format!("{name}-{j}"), &name, 1000 + j, &[&format!("urlprefix-/{i}")], Some("passing"))
                .await;
        }
    }
    let started = Instant::now();
    let mut w = watch(Client::new(config(&consul.address)).unwrap());
    w.view.until("all", 60.0, |v| v.services_known).await;
    eprintln!("first load {:?}", started.elapsed());
    assert_eq!(w.view.services.len(), 5000);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let has = |v: &View, port: u16| v.services["service-77"].iter().any(|i| i.port == port);
    for round in 0..5u16 {
        let port = 2000 + round;
        let started = Instant::now();
        consul.catalog("service-77-1", "service-77", port, &["urlprefix-/77"], None).await;
        let wrote = started.elapsed();
        let took = w.view.until("the port", 3.0, |v| has(v, port)).await;
        eprintln!("port: {wrote:?} {took:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        consul.catalog("service-77-2", "service-77", 1002, &["urlprefix-/77"], Some("critical")).await;
        let took = w.view.until("the check", 3.0, |v| !has(v, 1002)).await;
        consul.catalog("service-77-2", "service-77", 1002, &["urlprefix-/77"], Some("passing")).await;
        eprintln!("check: {took:?}, back {:?}", w.view.until("the check", 3.0, |v| has(v, 1002)).await);
    }
}
