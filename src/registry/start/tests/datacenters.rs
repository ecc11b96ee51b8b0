//! Several datacenters: who serves a route, and that one that fails costs nothing but itself.

use super::*;
use crate::registry::StateConfig;
use crate::registry::testing::Svc;
use crate::route::{Class, Turn};

/// Our own, `dc1`, and two others.
struct World {
    own: Fake,
    east: Fake,
    west: Fake,
}

impl World {
    async fn new() -> Self {
        let world = Self { own: Fake::start().await, east: Fake::start().await, west: Fake::start().await };
        world.own.join("east", &world.east);
        world.own.join("west", &world.west);
        for fake in [&world.own, &world.east, &world.west] {
            fake.node_check("n1", "serfHealth", "passing");
        }
        world
    }

    fn config(&self, datacenters: &[&str]) -> Config {
        let mut consul = consul(self.own.config());
        consul.datacenters = datacenters.iter().map(|name| (*name).to_owned()).collect();
        config(Backend::Consul(Box::new(consul)))
    }

    async fn run(&self, datacenters: &[&str]) -> Running {
        let running = run(self.config(datacenters)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(10), running.registry.ready()).await.unwrap();
        running
    }
}

impl Running {
    /// The ports of the targets that a route has, in the order in which they have their turn, as `port@datacenter`.
    fn targets(&self, path: &str) -> String {
        let Some(table) = self.tables.table() else { return String::new() };
        let Some(route) = table.routes().find(|route| *route.path == *path) else { return String::new() };
        let mut targets: Vec<_> = route.targets.iter().collect();
        targets.sort_by_key(|target| (target.priority(), target.destination.port));
        let name = |target: &&crate::route::Target| match &target.datacenter {
            None => target.destination.port.to_string(),
            Some(datacenter) => format!("{}@{}", target.destination.port, datacenter.name),
        };
        targets.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    async fn has(&self, path: &str, targets: &str) {
        self.tables.until(&format!("{path}: {targets}"), 5.0, |_| self.targets(path) == targets).await;
    }

    fn datacenters(&self) -> String {
        let status = self.registry.status();
        let all = status.datacenters.iter();
        all.map(|one| format!("{} {}/{}", one.name, one.services, one.instances)).collect::<Vec<_>>().join(", ")
    }

    /// Of the services of a datacenter.
    fn failures(&self, datacenter: &str) -> u64 {
        let status = self.registry.status();
        status.datacenters.iter().find(|one| *one.name == *datacenter).unwrap().failures
    }
}

fn at(port: u16) -> Svc {
    svc("web", "web-1", port)
}

#[tokio::test]
async fn targets_elsewhere_are_for_when_there_is_none_here() {
    let world = World::new().await;
    world.own.put(at(1));
    world.own.put(svc("web", "web-2", 2));
    world.east.put(at(3));
    world.west.put(at(4));
    let mut spare = svc("web", "web-9", 9);
    spare.tags = vec!["urlprefix-/web priority=3".into()];
    world.own.put(spare);
    let running = world.run(&["west", "dc1", "east"]).await;
    running.has("/web", "1 2 9 4@west 3@east").await;
    let table = running.tables.table().unwrap();
    let route = table.routes().find(|route| route.class == Class::Http).unwrap();
    for turn in 0..10 {
        assert!(route.pick(Turn::Nth(turn)).unwrap().datacenter.is_none());
    }
    // The same ids everywhere, and each is an instance of its own.
    let mut names: Vec<_> = route.targets.iter().map(|target| target.instance.as_deref().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["n1/web-1", "n1/web-1@east", "n1/web-1@west", "n1/web-2", "n1/web-9"]);
    assert_eq!(running.datacenters(), "dc1 1/3, west 1/1, east 1/1");

    // Gone, failing, and back.
    world.own.check("n1/web-1", "critical");
    world.own.remove("n1/web-2");
    world.own.remove("n1/web-9");
    running.has("/web", "4@west 3@east").await;
    world.west.check("n1/web-1", "critical");
    running.has("/web", "3@east").await;
    world.own.check("n1/web-1", "passing");
    running.has("/web", "1 3@east").await;
    world.west.check("n1/web-1", "passing");
    running.has("/web", "1 4@west 3@east").await;
    let status = running.registry.status();
    let causes: Vec<&str> = status.table.changes.iter().map(|change| change.cause.as_str()).collect();
    assert!(causes.contains(&"service web in west") && causes.contains(&"service web"), "{causes:?}");
}

#[tokio::test]
async fn a_route_may_be_elsewhere_only_and_has_the_name_of_its_datacenter() {
    let world = World::new().await;
    for fake in [&world.own, &world.east] {
        let mut tagged = at(5);
        tagged.tags = vec!["urlprefix-$DC.example.com/x".into(), "urlprefix-/only".into()];
        fake.put(Svc { name: "tagged".into(), ..tagged });
    }
    world.east.put(svc("far", "far", 6));
    world.east.kv("fabio/config", Some("route add m /m http://10.0.0.9:1/"));
    world.own.kv("fabio/config", Some("route del far"));
    let running = world.run(&["east"]).await;
    running.tables.shows("east.example.com/x http://10.0.0.1:5/").await;
    running.tables.shows("dc1.example.com/x http://10.0.0.1:5/").await;
    running.has("/only", "5 5@east").await;
    assert_eq!(running.targets("/far"), "", "overrides are for all targets");
    world.own.kv("fabio/config", Some(""));
    running.has("/far", "6@east").await;
    assert!(!running.tables.listing().contains(" /m "), "those of others are not ours");
    assert!(world.east.saw("/v1/kv/").is_empty());
}

#[tokio::test]
async fn without_a_list_nothing_is_asked_elsewhere() {
    let world = World::new().await;
    world.own.put(at(1));
    world.east.put(at(2));
    for list in [&[][..], &["dc1"]] {
        let running = world.run(list).await;
        running.has("/web", "1").await;
        assert_eq!(running.datacenters(), "dc1 1/1");
        assert!(world.own.saw("dc=").is_empty() && world.east.saw("").is_empty());
    }
}

#[tokio::test]
async fn one_that_fails_keeps_its_routes_and_holds_up_nobody() {
    let troubles = [
        ("refuses", Some(Fault::Status(500, "rpc error: no leader"))),
        ("hangs", Some(Fault::Hang)),
        ("is cut off", Some(Fault::Cut)),
        ("no longer joined", None),
    ];
    for (name, fault) in troubles {
        let world = World::new().await;
        world.own.put(at(1));
        world.east.put(at(2));
        world.east.put(svc("far", "far", 6));
        world.west.put(at(3));
        let running = world.run(&["east", "west"]).await;
        running.has("/web", "1 2@east 3@west").await;
        match fault {
            Some(fault) => world.east.fault("", fault),
            None => world.own.part("east"),
        }
        // Ends the blocking queries: the next ones are in trouble.
        let asked = |list| world.east.saw(list).len();
        let before = (asked("/catalog/services"), asked("/state/any"));
        world.east.put(svc("other", "other", 8));
        match name {
            "hangs" => {
                until(name, 10.0, async || asked("/catalog/services") > before.0 && asked("/state/any") > before.1)
                    .await;
            }
            _ => until(name, 10.0, async || running.failures("east") > 1).await,
        }
        world.east.remove("n1/far");
        for port in [11, 12, 13] {
            let started = Instant::now();
            world.own.put(at(port));
            world.west.put(at(port + 10));
            running.has("/web", &format!("{port} 2@east {}@west", port + 10)).await;
            assert!(started.elapsed() < Duration::from_secs(2), "{name}: {:?}", started.elapsed());
        }
        assert_eq!((running.failures("dc1"), running.failures("west")), (0, 0), "{name}");
        world.own.remove("n1/web-1");
        running.has("/web", "2@east 23@west").await;
        assert_eq!(running.targets("/far"), "6@east", "{name}");
        world.east.heal();
        world.own.join("east", &world.east);
        if name != "hangs" {
            running.has("/far", "").await;
            until(name, 10.0, async || running.failures("east") == 0).await;
        }
    }
}

#[tokio::test]
async fn trouble_here_is_none_there() {
    let world = World::new().await;
    world.own.put(at(1));
    world.east.put(at(2));
    let running = world.run(&["east"]).await;
    running.has("/web", "1 2@east").await;
    world.own.fault("", Fault::Status(500, "no leader"));
    world.own.put(svc("other", "other", 8));
    until("trouble", 10.0, async || running.failures("dc1") > 1).await;
    world.own.remove("n1/web-1");
    world.east.put(at(7));
    running.has("/web", "1 7@east").await;
    assert_eq!(running.failures("east"), 0);
}

#[tokio::test]
async fn the_first_table_has_all_that_is_to_be_had() {
    for (name, fault, most) in [
        ("slow", Some(Fault::Delay(Duration::from_millis(500))), 2.9),
        ("refusing", Some(Fault::Status(500, "no leader")), 1.5),
        ("hanging", Some(Fault::Hang), 3.9),
        ("unknown", None, 1.5),
    ] {
        let world = World::new().await;
        world.own.put(at(1));
        world.east.put(at(2));
        match fault.clone() {
            Some(fault) => world.east.fault("", fault),
            None => world.own.part("east"),
        }
        let started = Instant::now();
        let running = world.run(&["east"]).await;
        let took = started.elapsed().as_secs_f64();
        assert!(took < most, "{name}: {took}");
        let first = if name == "slow" { "1 2@east" } else { "1" };
        assert_eq!(running.targets("/web"), first, "{name}");
        if fault.is_none() {
            let east = running.registry.status().datacenters[1].clone();
            assert!(east.warning.as_deref().unwrap().contains("registry.consul.datacenters"), "{east:?}");
            world.own.join("east", &world.east);
            running.has("/web", "1 2@east").await;
            assert!(running.registry.status().datacenters[1].warning.is_none());
        }
    }
}

/// A world of which all is kept on disk.
struct Kept {
    world: World,
    dir: tempfile::TempDir,
}

impl Kept {
    async fn new() -> Self {
        let kept = Self { world: World::new().await, dir: tempfile::tempdir().unwrap() };
        kept.world.own.put(at(1));
        kept.world.east.put(at(2));
        kept.world.east.put(svc("far", "far", 6));
        kept.world.west.put(at(3));
        let running = kept.run(&["east", "west"]).await;
        running.has("/web", "1 2@east 3@west").await;
        kept.holds("n1/web-1@west").await;
        kept.holds("n1/far@east").await;
        kept
    }

    async fn run(&self, datacenters: &[&str]) -> Running {
        let state = Some(StateConfig { dir: self.dir.path().to_owned(), max_age: Duration::from_secs(600) });
        let config = Config { state, timeout: Duration::from_millis(600), ..self.world.config(datacenters) };
        let running = run(config).await.unwrap();
        tokio::time::timeout(Duration::from_secs(10), running.registry.ready()).await.unwrap();
        running
    }

    async fn holds(&self, text: &str) {
        let file = self.dir.path().join("routes.state");
        until(text, 10.0, async || std::fs::read_to_string(&file).is_ok_and(|all| all.contains(text))).await;
    }
}

#[tokio::test]
async fn a_restart_while_one_is_away_has_its_last_routes() {
    let kept = Kept::new().await;
    let world = &kept.world;
    world.own.part("east");
    world.own.put(at(11));
    let running = kept.run(&["west", "east"]).await;
    assert_eq!(running.targets("/web"), "11 3@west 2@east", "in the first table, in the order of now");
    assert_eq!(running.targets("/far"), "6@east");
    assert!(running.registry.stale().is_none(), "what is ours is not from disk");
    kept.holds("\"port\":11").await;
    kept.holds("n1/far@east").await;
    // What it has lost meanwhile goes when it says so.
    world.east.remove("n1/far");
    world.east.put(at(12));
    world.own.join("east", &world.east);
    running.has("/web", "11 3@west 12@east").await;
    running.has("/far", "").await;
}

#[tokio::test]
async fn a_restart_without_the_agent_waits_for_nobody_afterwards() {
    let kept = Kept::new().await;
    let world = &kept.world;
    world.own.refuse().await;
    let running = kept.run(&["east"]).await;
    assert!(running.registry.stale().is_some());
    assert_eq!(running.targets("/web"), "1 2@east", "west is not asked for any more");
    assert_eq!(running.targets("/far"), "6@east");
    // The agent is back, and one that says nothing does not hold up what it says.
    world.east.fault("", Fault::Hang);
    world.own.put(at(11));
    world.own.accept().await;
    running.has("/web", "11 2@east").await;
    until("fresh", 10.0, async || running.registry.stale().is_none()).await;
    for port in [12, 13] {
        let started = Instant::now();
        world.own.put(at(port));
        running.has("/web", &format!("{port} 2@east")).await;
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    assert_eq!(running.targets("/far"), "6@east");
}

#[tokio::test]
async fn what_one_has_lost_does_not_come_from_disk_when_another_is_in_trouble() {
    let kept = Kept::new().await;
    let world = &kept.world;
    world.east.remove("n1/far");
    world.west.put(at(13));
    for list in ["/catalog/", "/health/", "/kv/"] {
        world.own.fault(list, Fault::Status(500, "no leader"));
    }
    let running = kept.run(&["east", "west"]).await;
    assert!(running.registry.stale().is_some());
    running.has("/web", "1 2@east 13@west").await;
    assert_eq!(running.targets("/far"), "");
    world.own.heal();
    until("fresh", 10.0, async || running.registry.stale().is_none()).await;
    assert_eq!((running.targets("/web").as_str(), running.targets("/far").as_str()), ("1 2@east 13@west", ""));
}
