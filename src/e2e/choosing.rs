//! Which target gets a request: strategies, priorities, sticky cookies, mirrors.

use std::collections::BTreeMap;

use crate::proxy::{Proxy, Start};
use crate::testing::client::Client;
use crate::testing::origin::{self, Gate, Origin};
use crate::testing::{PATIENCE, free_addr, until};

async fn origins<const N: usize>() -> [Origin; N] {
    let mut started = Vec::new();
    for number in 0..N {
        started.push(Origin::start(&number.to_string()).await);
    }
    started.try_into().unwrap_or_else(|_| panic!("as many as there are"))
}

fn route(origin: &Origin, opts: &str) -> String {
    format!("route add s / {} opts \"{opts}\"\n", origin.url())
}

async fn who(proxy: &Proxy, headers: &str) -> String {
    let response = proxy.raw(format!("GET /x HTTP/1.1\r\nHost: h\r\n{headers}\r\n")).await;
    assert_eq!(response.status, 200);
    response.text()
}

#[tokio::test]
async fn a_hash_sends_the_same_key_to_the_same_target_on_every_proxy() {
    let targets = origins::<4>().await;
    for (opts, property) in
        [("strategy=hash=header:X-User", "rnd"), ("hash=cookie:user", "rr"), ("", "hash=header:X-User")]
    {
        let text: String = targets.iter().map(|origin| route(origin, opts)).collect();
        let start = || Start::routes(text.clone()).property("proxy.strategy", property);
        let (one, two) = (start().start().await, start().start().await);
        let mut seen = BTreeMap::<String, u32>::new();
        for user in 0..24 {
            let key = format!("X-User: {user}\r\nCookie: a=b; user={user}\r\n");
            let home = who(&one, &key).await;
            assert_eq!(who(&one, &key).await, home);
            assert_eq!(who(&two, &key).await, home);
            *seen.entry(home).or_default() += 1;
        }
        assert!(seen.len() >= 3, "{seen:?}");
    }
}

#[tokio::test]
async fn requests_avoid_the_instance_that_is_busy() {
    for strategy in ["p2c", "least"] {
        let targets = origins::<3>().await;
        let gate = Gate::new();
        targets[1].on("/hang", origin::reply(200, &[], "1").behind(&gate));
        for other in [0, 2] {
            targets[other].on("/hang", origin::reply(200, &[], "free"));
        }
        let text: String = targets.iter().map(|origin| route(origin, &format!("strategy={strategy}"))).collect();
        let proxy = Start::routes(text).one_worker().start().await;
        // Until the second target works on one.
        let mut waiting: Vec<Client> = Vec::new();
        while targets[1].seen().is_empty() {
            let mut client = proxy.client().await;
            client.send("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n").await;
            waiting.push(client);
            assert!(waiting.len() < 1000, "never asked");
            tokio::task::yield_now().await;
        }
        let mut asked = 0;
        for _ in 0..60 {
            asked += usize::from(who(&proxy, "").await == "1");
        }
        // By turns it would be twenty. An answer that was just read may still count as in flight, and being faster otherwise
        // makes up for one request in flight at times.
        assert!(asked <= if strategy == "least" { 3 } else { 15 }, "{strategy}: {asked}");
        gate.open();
    }
}

#[tokio::test]
async fn a_standby_serves_when_the_first_ones_are_gone() {
    let [first, standby] = origins::<2>().await;
    let broken = free_addr();
    let text = format!("route add s / http://{broken}/\n{}", route(&standby, "priority=1"));
    let proxy = Start::routes(format!("{}{}", route(&first, ""), route(&standby, "priority=1"))).start().await;
    for _ in 0..30 {
        assert_eq!(who(&proxy, "").await, "0");
    }
    proxy.set_routes(&route(&standby, "priority=1"));
    proxy.serves("h", "/", "1").await;
    // One that cannot be reached is passed over after some failures, and with it its priority.
    proxy.set_routes(&text);
    until(PATIENCE, "the standby is asked", async || {
        let answers = [proxy.get("h", "/").await, proxy.get("h", "/").await, proxy.get("h", "/").await];
        answers.iter().all(|answer| answer.status == 200 && answer.text() == "1").then_some(())
    })
    .await;
}

fn cookie(response: &crate::testing::client::Response) -> Option<String> {
    response.header("set-cookie").map(str::to_owned)
}

#[tokio::test]
async fn a_client_stays_with_its_instance_until_that_is_gone() {
    let targets = origins::<3>().await;
    let opts = "sticky=lb stickypath=/x stickymaxage=1h stickysecure=true";
    let text: String = targets.iter().map(|origin| route(origin, opts)).collect();
    let start = || Start::routes(text.clone()).property("proxy.stickykey", "secret").property("proxy.strategy", "rr");
    let (one, two) = (start().start().await, start().start().await);
    let first = one.get("h", "/x").await;
    let set = cookie(&first).expect("a cookie");
    let (pair, attributes) = set.split_once(';').expect("attributes");
    assert_eq!(attributes, " Path=/x; Max-Age=3600; Secure; HttpOnly; SameSite=Lax");
    let value = pair.strip_prefix("lb=").expect("its name");
    assert!(value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit()), "{value}");

    let home = first.text();
    let bound = format!("GET /x HTTP/1.1\r\nHost: h\r\nCookie: a=b; {pair}; c=d\r\n\r\n");
    for proxy in [&one, &two, &one, &two] {
        let response = proxy.raw(&bound).await;
        assert_eq!((response.text(), cookie(&response)), (home.clone(), None));
    }
    // What nobody has set binds to nobody.
    let forged = one.raw("GET /x HTTP/1.1\r\nHost: h\r\nCookie: lb=ffffffffffffffffffffffffffffffff\r\n\r\n").await;
    assert!(cookie(&forged).is_some());

    let number: usize = home.parse().expect("a number");
    let rest: String =
        targets.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, origin)| route(origin, opts)).collect();
    one.set_routes(&rest);
    let moved = until(PATIENCE, "another instance", async || {
        let response = one.raw(&bound).await;
        (response.text() != home).then_some(response)
    })
    .await;
    let new = cookie(&moved).expect("a new cookie");
    assert_ne!(new.split_once(';').map(|(pair, _)| pair), Some(pair));
    // At weight 0 it is as good as gone.
    let shut = format!("{text}route weight s / weight 0 tags \"x\"\n").replacen(
        &format!("opts \"{opts}\""),
        &format!("tags \"x\" opts \"{opts}\""),
        number + 1,
    );
    let mut seen = 0;
    let shut: String = shut
        .lines()
        .map(|line| {
            let mine = line.contains(&targets[number].url());
            seen += usize::from(mine);
            let line = if mine || line.starts_with("route weight") {
                line.to_owned()
            } else {
                line.replace("tags \"x\" ", "")
            };
            format!("{line}\n")
        })
        .collect();
    assert_eq!(seen, 1);
    two.set_routes(&shut);
    until(PATIENCE, "another instance", async || (two.raw(&bound).await.text() != home).then_some(())).await;
}

#[tokio::test]
async fn copies_go_to_the_mirror_and_their_answers_nowhere() {
    let [main, shadow] = origins::<2>().await;
    shadow.always(origin::reply(500, &[("X-Shadow", "1")], "shadow"));
    let text = format!("{}route add shadow shadow.test/ {}\n", route(&main, "mirror=shadow:100"), shadow.url());
    let proxy = Start::routes(text).one_worker().start().await;
    for number in 0..5 {
        let response = proxy.get("h", &format!("/x?n={number}")).await;
        assert_eq!((response.status, response.text(), response.header("x-shadow")), (200, "0".to_owned(), None));
    }
    shadow.wait(5).await;
    let mut targets: Vec<String> = shadow.seen().iter().map(|seen| seen.target().to_owned()).collect();
    targets.sort();
    assert_eq!(targets, (0..5).map(|n| format!("/x?n={n}")).collect::<Vec<_>>());
    assert_eq!(shadow.last().header("host"), Some("h"));
}

#[tokio::test]
async fn a_mirror_that_hangs_or_is_missing_is_not_noticed() {
    let [main, shadow] = origins::<2>().await;
    shadow.always(origin::hang());
    let missing = format!("route add s /missing {} opts \"mirror=nobody:100\"\n", main.url());
    let text =
        format!("{}{missing}route add shadow shadow.test/ {}\n", route(&main, "mirror=shadow:100"), shadow.url());
    let proxy = Start::routes(text).one_worker().property("metrics.target", "prometheus");
    let proxy = proxy.property("proxy.addr", "ADDR,MORE;proto=prometheus").start().await;
    let mut client = proxy.client().await;
    for _ in 0..200 {
        assert_eq!(client.get("h", "/").await.text(), "0");
    }
    assert_eq!(client.get("h", "/missing").await.text(), "0");
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx").await;
    assert_eq!(client.response().await.text(), "0");
    let metrics = crate::testing::client::get(proxy.more, "h", "/metrics").await.text();
    for (service, result) in [("shadow", "too_many"), ("shadow", "body"), ("nobody", "no_instance")] {
        let line = metrics.lines().find(|line| {
            line.starts_with("ferrio_mirror_requests_total")
                && line.contains(&format!("service=\"{service}\""))
                && line.contains(&format!("result=\"{result}\""))
        });
        assert!(line.is_some(), "{service} {result}: {metrics}");
    }
    assert!(shadow.accepted() <= 128, "{}", shadow.accepted());
}

#[tokio::test]
async fn a_route_without_a_healthy_instance_is_known_where_that_is_wanted() {
    let consul = crate::testing::consul::Consul::real().await;
    let origin = Origin::start("o").await;
    let put = async |status: &str| consul.put("web-1", "web", origin.addr(), &["urlprefix-/web"], &[status]).await;
    put("passing").await;
    let start = || Start::consul(&consul).property("registry.consul.unavailablehtmlpath", "fabio/down.html");
    let keeping = start().property("registry.consul.keepunhealthy", true).start().await;
    let usual = start().start().await;
    for proxy in [&keeping, &usual] {
        proxy.serves("h", "/web", "o").await;
    }
    consul.kv_put("fabio/down.html", "<html>back soon</html>").await;
    put("critical").await;
    let answers = async |proxy: &Proxy, status: u16, text: &str| {
        until(PATIENCE, &format!("{status} {text}"), async || {
            let response = proxy.get("h", "/web").await;
            (response.status == status && response.text() == text).then_some(())
        })
        .await;
    };
    answers(&keeping, 503, "<html>back soon</html>").await;
    answers(&usual, 404, "").await;
    put("passing").await;
    for proxy in [&keeping, &usual] {
        proxy.serves("h", "/web", "o").await;
    }
    // One that is gone is gone.
    consul.drop("web-1").await;
    answers(&keeping, 404, "").await;
}

#[tokio::test]
async fn a_service_that_fails_open_is_served_while_all_of_it_is_down() {
    let consul = crate::testing::consul::Consul::real().await;
    let (one, two, other) = (Origin::start("one").await, Origin::start("two").await, Origin::start("other").await);
    let tags = ["urlprefix-/web failopen=true", "urlprefix-/plain"];
    let put =
        async |id: &str, origin: &Origin, status: &str| consul.put(id, "web", origin.addr(), &tags, &[status]).await;
    put("web-1", &one, "passing").await;
    put("web-2", &two, "critical").await;
    let proxy = Start::consul(&consul).start().await;
    let answers = async |path: &str, wanted: &[&str]| {
        until(PATIENCE, &format!("{path} from {wanted:?}"), async || {
            let mut got = std::collections::BTreeSet::new();
            for _ in 0..8 {
                let response = proxy.get("h", path).await;
                got.insert(if response.status == 200 { response.text() } else { response.status.to_string() });
            }
            got.iter().map(String::as_str).eq(wanted.iter().copied()).then_some(())
        })
        .await;
    };
    answers("/web", &["one"]).await;
    put("web-1", &one, "critical").await;
    answers("/web", &["one", "two"]).await;
    answers("/plain", &["404"]).await;
    // Whoever is well comes first.
    consul.put("other-1", "other", other.addr(), &["urlprefix-/web"], &["passing"]).await;
    answers("/web", &["other"]).await;
    consul.drop("other-1").await;
    answers("/web", &["one", "two"]).await;
    put("web-2", &two, "passing").await;
    answers("/web", &["two"]).await;
    consul.drop("web-1").await;
    consul.drop("web-2").await;
    answers("/web", &["404"]).await;
}
