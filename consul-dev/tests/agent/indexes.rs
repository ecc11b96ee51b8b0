//! Which write moves which index, and which not: the order of all indexes after each write is Consul's.

use crate::side_by_side::Pair;

const CATALOG: &[&str] = &[
    "/v1/catalog/services",
    "/v1/catalog/nodes",
    "/v1/health/state/any",
    "/v1/health/state/passing",
    "/v1/health/state/critical",
    "/v1/health/service/a",
    "/v1/health/service/a?passing",
    "/v1/health/service/b",
    "/v1/health/service/none",
    "/v1/catalog/service/a",
    "/v1/catalog/service/b",
    "/v1/catalog/service/none",
    "/v1/health/node/n1",
    "/v1/health/checks/a",
    "/v1/catalog/node/n1",
    "/v1/catalog/node/pair",
    "/v1/health/node/pair",
    "/v1/catalog/services?node-meta=a:b",
];

const KEYS: &[&str] = &[
    "/v1/kv/?recurse",
    "/v1/kv/k",
    "/v1/kv/k?recurse",
    "/v1/kv/k/a",
    "/v1/kv/k/?recurse",
    "/v1/kv/k/?keys",
    "/v1/kv/z",
    "/v1/kv/z?recurse",
    "/v1/kv/z?keys",
    "/v1/session/list",
    "/v1/session/node/pair",
];

#[tokio::test]
async fn of_the_catalog() {
    let pair = Pair::start().await;
    pair.same_indexes(CATALOG, "the start").await;
    let n1 = |rest: &str| format!(r#"{{"Node": "n1", "Address": "1.1.1.1"{rest}}}"#);
    let check = |status: &str, output: &str| {
        let check = r#""CheckID": "c", "Name": "c", "ServiceID": "a""#;
        n1(&format!(r#", "Check": {{{check}, "Status": "{status}", "Output": "{output}"}}"#))
    };
    let register = "/v1/catalog/register";
    let deregister = "/v1/catalog/deregister";
    let agent = "/v1/agent/service/register";
    let steps: Vec<(&str, String)> = vec![
        (register, n1("")),
        (register, n1("")),
        (register, r#"{"Node": "n1", "Address": "1.1.1.2"}"#.into()),
        (register, n1(r#", "Service": {"Service": "a", "Port": 1}"#)),
        (register, n1(r#", "Service": {"Service": "a", "Port": 1}"#)),
        (register, n1(r#", "Service": {"Service": "a", "Port": 2}"#)),
        (register, n1(r#", "Service": {"ID": "b1", "Service": "b", "Port": 2}"#)),
        (register, check("passing", "")),
        (register, check("passing", "")),
        (register, check("critical", "")),
        (register, check("critical", "x")),
        (register, n1(r#", "Check": {"CheckID": "nc", "Name": "nc", "Status": "passing"}"#)),
        (register, n1(r#", "Check": {"CheckID": "nc", "Name": "nc", "Status": "passing"}"#)),
        (register, n1(r#", "Service": {"Service": "a", "Port": 2, "Tags": ["t"]}"#)),
        (register, check("critical", "x")),
        (register, r#"{"Node": "n1", "Address": "1.1.1.3"}"#.into()),
        (register, r#"{"Node": "n1", "Address": "1.1.1.4", "SkipNodeUpdate": true}"#.into()),
        (register, r#"{"Node": "n2", "Address": "2.1.1.4", "Service": {"Service": "a", "Port": 3}}"#.into()),
        (register, r#"{"Node": "n2", "Address": "2.1.1.4", "Service": {"ID": ""}}"#.into()),
        (deregister, r#"{"Node": "n1", "CheckID": "nc"}"#.into()),
        (deregister, r#"{"Node": "n1", "CheckID": "c"}"#.into()),
        (deregister, r#"{"Node": "n1", "CheckID": "nothing"}"#.into()),
        (deregister, r#"{"Node": "n1", "ServiceID": "nothing"}"#.into()),
        (deregister, r#"{"Node": "nothing"}"#.into()),
        (register, check("critical", "x")),
        (deregister, r#"{"Node": "n1", "ServiceID": "a"}"#.into()),
        (deregister, r#"{"Node": "n2", "ServiceID": "a"}"#.into()),
        (register, n1(r#", "Service": {"ID": "b1", "Service": "a", "Port": 2}"#)),
        (register, n1(r#", "Service": {"ID": "b1", "Service": "b", "Port": 2}"#)),
        (
            register,
            n1(r#", "Service": {"ID": "a1", "Service": "a"}, "Checks": [{"CheckID": "x1", "ServiceID": "a1"}]"#),
        ),
        (deregister, r#"{"Node": "n1"}"#.into()),
        (register, r#"{"Node": "n1", "Address": "1.1.1.1", "NodeMeta": {"a": "b"}}"#.into()),
        (deregister, r#"{"Node": "n1"}"#.into()),
        (deregister, r#"{"Node": "n2"}"#.into()),
        (agent, r#"{"Name": "a", "Port": 5, "Check": {"TTL": "30m"}}"#.into()),
        ("/v1/agent/check/pass/service:a", String::new()),
        ("/v1/agent/check/pass/service:a", String::new()),
        ("/v1/agent/check/pass/service:a?note=x", String::new()),
        ("/v1/agent/check/warn/service:a?note=y", String::new()),
        (agent, r#"{"Name": "a", "Port": 5, "Check": {"TTL": "30m"}}"#.into()),
        (agent, r#"{"Name": "a", "Port": 6, "Check": {"TTL": "30m"}}"#.into()),
        (agent, r#"{"Name": "a", "Port": 6, "Check": {"TTL": "30m", "Status": "passing"}}"#.into()),
        (agent, r#"{"Name": "a", "Port": 6, "Tags": ["v"]}"#.into()),
        (agent, r#"{"Name": "b", "Port": 7}"#.into()),
        (
            "/v1/agent/service/register?replace-existing-checks=true",
            r#"{"Name": "a", "Port": 6, "Tags": ["v"]}"#.into(),
        ),
        ("/v1/agent/service/maintenance/a?enable=true&reason=r", String::new()),
        ("/v1/agent/service/maintenance/a?enable=false", String::new()),
        ("/v1/agent/maintenance?enable=true", String::new()),
        ("/v1/agent/maintenance?enable=false", String::new()),
        ("/v1/agent/check/register", r#"{"Name": "node", "TTL": "30m"}"#.into()),
        ("/v1/agent/check/pass/node", String::new()),
        ("/v1/agent/check/deregister/node", String::new()),
        ("/v1/agent/service/deregister/b", String::new()),
        ("/v1/agent/service/deregister/a", String::new()),
    ];
    for (target, body) in steps {
        pair.same("PUT", target, &body).await;
        pair.same_indexes(CATALOG, &format!("PUT {target} {body}")).await;
    }
}

#[tokio::test]
async fn of_keys_and_sessions() {
    let pair = Pair::start().await;
    pair.same_indexes(KEYS, "the start").await;
    let steps = [
        "PUT k 1",
        "PUT k 1",
        "PUT k 2",
        "PUT k/a 1",
        "PUT k/b/c 1",
        "PUT o/a 1",
        "PUT k?cas=0 1",
        "PUT new?cas=0 1",
        "PUT new2?cas=5 1",
        "PUT new?cas=1 1",
        "DELETE k/a",
        "DELETE k/a",
        "DELETE k?cas=1",
        "DELETE k?cas=0",
        "DELETE nonexist?cas=0",
        "DELETE nonexist?cas=7",
        "DELETE nonexist?recurse",
        "PUT k/a 9",
        "DELETE k?recurse",
        "PUT k/d 1",
        "DELETE ?recurse",
        "PUT k 1",
        "PUT k?flags=42 1",
        "PUT k?flags=42 1",
        "PUT k?flags=x 1",
        "SESSION",
        "PUT k?acquire={s} 1",
        "PUT k?acquire={s} 1",
        "PUT k 1",
        "PUT k?acquire={s} 2",
        "PUT k?release={s} 3",
        "PUT k?release={s} 4",
        "PUT k?acquire={s} 5",
        "RENEW",
        "DESTROY",
        "DESTROY",
        "DELETE k",
    ];
    let mut session = (String::new(), String::new());
    for step in steps {
        match step {
            "SESSION" => {
                let (real, dev) = pair.same("PUT", "/v1/session/create", r#"{"LockDelay": "0s"}"#).await;
                let id = |value: serde_json::Value| value["ID"].as_str().unwrap().to_owned();
                session = (id(real.json()), id(dev.json()));
            }
            "RENEW" | "DESTROY" => {
                let target = |id: &str| format!("/v1/session/{}/{id}", step.to_lowercase());
                pair.same_as("PUT", &target(&session.0), &target(&session.1), "").await;
            }
            _ => {
                let mut words = step.splitn(3, ' ');
                let (method, key) = (words.next().unwrap(), words.next().unwrap());
                let target = |id: &str| format!("/v1/kv/{}", key.replace("{s}", id));
                let body = words.next().unwrap_or_default();
                pair.same_as(method, &target(&session.0), &target(&session.1), body).await;
            }
        }
        pair.same_indexes(KEYS, step).await;
    }
}
