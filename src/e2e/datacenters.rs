//! Two real Consuls that are joined over WAN, and a proxy in one of their datacenters.

use crate::proxy::{Proxy, Start};
use crate::testing::consul::Consul;
use crate::testing::origin::Origin;
use crate::testing::{PATIENCE, client, free_addr, until};

async fn joined() -> (Consul, Consul) {
    let (here, east) = tokio::join!(Consul::real_in("dc1"), Consul::real_in("east"));
    here.join_wan(&east, "east").await;
    (here, east)
}

fn start(consul: &Consul) -> Start {
    Start::consul(consul)
        .property("registry.consul.datacenters", "east")
        .property("metrics.target", "prometheus")
        .property("proxy.addr", "ADDR,MORE;proto=prometheus")
}

/// What `/api/status` says of a datacenter.
async fn state(proxy: &Proxy, datacenter: &str) -> serde_json::Value {
    let status: serde_json::Value =
        serde_json::from_str(&proxy.page("/api/status").await.text()).expect("a status as JSON");
    let all = status["datacenters"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["name"] == datacenter).unwrap_or_default()
}

async fn is(proxy: &Proxy, datacenter: &str, wanted: &str) {
    let what = format!("{datacenter} {wanted}");
    until(PATIENCE, &what, async || (state(proxy, datacenter).await["state"] == wanted).then_some(())).await;
}

#[tokio::test]
async fn the_other_datacenter_serves_while_ours_cannot() {
    let (consul, east) = joined().await;
    let [here, second, there] =
        [Origin::start("here").await, Origin::start("second").await, Origin::start("there").await];
    // The same id on a node of the same name.
    consul.put("web-1", "web", here.addr(), &["urlprefix-/web"], &["passing"]).await;
    consul.put("web-2", "web", second.addr(), &["urlprefix-/web"], &["critical"]).await;
    east.put("web-1", "web", there.addr(), &["urlprefix-/web"], &["passing"]).await;
    east.put("far-1", "far", there.addr(), &["urlprefix-/far"], &["passing"]).await;
    let proxy = start(&consul).start().await;
    // In the first table already.
    proxy.serves("h", "/far", "there").await;
    for _ in 0..20 {
        assert_eq!(proxy.get("h", "/web").await.text(), "here");
    }
    assert_eq!(
        (state(&proxy, "dc1").await["own"].as_bool(), state(&proxy, "east").await["own"].as_bool()),
        (Some(true), Some(false))
    );
    is(&proxy, "east", "well").await;

    consul.put_check("web-1", 0, "critical").await;
    proxy.serves("h", "/web", "there").await;
    consul.put_check("web-2", 0, "passing").await;
    proxy.serves("h", "/web", "second").await;
    consul.drop("web-2").await;
    proxy.serves("h", "/web", "there").await;
    consul.put_check("web-1", 0, "passing").await;
    proxy.serves("h", "/web", "here").await;

    let routes: serde_json::Value =
        serde_json::from_str(&proxy.page("/api/routes").await.text()).expect("routes as JSON");
    let mut of: Vec<_> = routes.as_array().expect("a list").iter().filter(|row| row["path"] == "/web").collect();
    of.sort_by_key(|row| row["datacenter"].is_string());
    assert_eq!(of.len(), 2, "{routes}");
    assert_eq!((of[0].get("datacenter"), &of[1]["datacenter"]), (None, &"east".into()), "{routes}");
    let metrics = client::get(proxy.more, "h", "/metrics").await.text();
    let contact = r#"ferrio_registry_last_contact_timestamp_seconds{source="services",datacenter="east"}"#;
    assert!(metrics.contains(contact), "{metrics}");

    // While the other Consul hangs what happens here counts at once, and what happened there does when it is back.
    east.put("late-1", "late", there.addr(), &["urlprefix-/late"], &["passing"]).await;
    proxy.serves("h", "/late", "there").await;
    east.freeze();
    consul.put("soon-1", "soon", here.addr(), &["urlprefix-/soon"], &["passing"]).await;
    proxy.serves("h", "/soon", "here").await;
    proxy.serves("h", "/late", "there").await;
    east.thaw();
    east.drop("late-1").await;
    proxy.answers("h", "/late", 404).await;

    // With the other Consul dead nothing fails here, and its routes stay.
    east.kill();
    is(&proxy, "east", "failing").await;
    is(&proxy, "dc1", "well").await;
    proxy.serves("h", "/far", "there").await;
    consul.put("new-1", "new", here.addr(), &["urlprefix-/new"], &["passing"]).await;
    proxy.serves("h", "/new", "here").await;
    consul.put_check("web-1", 0, "critical").await;
    proxy.serves("h", "/web", "there").await;
    consul.put_check("web-1", 0, "passing").await;
    proxy.serves("h", "/web", "here").await;
    assert_eq!(proxy.page("/health").await.status, 200);
    // And a start without it has what is ours at once.
    let late = start(&consul).start().await;
    late.serves("h", "/web", "here").await;
    late.answers("h", "/far", 404).await;
}

#[tokio::test]
async fn requests_go_elsewhere_when_what_is_here_cannot_be_reached() {
    let (consul, east) = joined().await;
    let there = Origin::start("there").await;
    let dead = free_addr();
    consul.put("web-1", "web", dead, &["urlprefix-/web"], &["passing"]).await;
    east.put("web-1", "web", there.addr(), &["urlprefix-/web"], &["passing"]).await;
    let proxy = start(&consul).start().await;
    // Consul has not noticed yet: each of them is tried here or passed by, and answered there.
    for _ in 0..30 {
        let response = proxy.get("h", "/web").await;
        assert_eq!((response.status, response.text().as_str()), (200, "there"));
    }
    let targets = proxy.page("/api/targets").await.text();
    assert!(targets.contains("ejected"), "{targets}");
    let here = Origin::start("here").await;
    consul.put("web-1", "web", here.addr(), &["urlprefix-/web"], &["passing"]).await;
    proxy.serves("h", "/web", "here").await;
}
