//! What Consul sends and takes, as far as it matters here. Fields that are unknown are ignored, and null is the same as
//! absent everywhere: versions of Consul differ in both.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// One element of `/v1/health/service/NAME`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Entry {
    #[serde(deserialize_with = "nullable")]
    pub node: Node,
    #[serde(deserialize_with = "nullable")]
    pub service: Service,
    #[serde(deserialize_with = "nullable")]
    pub checks: Vec<Check>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Node {
    #[serde(rename = "Node", deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Service {
    /// Empty for ordinary services, else the kind of proxy or gateway.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub id: String,
    #[serde(rename = "Service", deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub tags: Vec<String>,
    /// Empty: the node's.
    #[serde(deserialize_with = "nullable")]
    pub address: String,
    #[serde(deserialize_with = "nullable")]
    pub port: i64,
    #[serde(deserialize_with = "nullable")]
    pub meta: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Check {
    #[serde(deserialize_with = "nullable")]
    pub node: String,
    #[serde(rename = "CheckID", deserialize_with = "nullable")]
    pub id: String,
    #[serde(deserialize_with = "nullable")]
    pub status: String,
    #[serde(rename = "ServiceID", deserialize_with = "nullable")]
    pub service_id: String,
    #[serde(deserialize_with = "nullable")]
    pub service_name: String,
    #[serde(deserialize_with = "nullable")]
    pub service_tags: Vec<String>,
}

/// One element of `/v1/kv/PREFIX?recurse`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Pair {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Base64; null when empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    #[serde(deserialize_with = "nullable")]
    pub modify_index: u64,
}

impl Pair {
    /// The value as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.value).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// One value of `/v1/agent/services`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AgentService {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub id: String,
    #[serde(rename = "Service", deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub address: String,
    #[serde(deserialize_with = "nullable")]
    pub port: i64,
}

/// Body of `/v1/agent/service/register`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Registration {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    pub port: u16,
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    pub checks: Vec<AgentCheck>,
}

/// A check definition. Times are in Go's notation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentCheck {
    #[serde(rename = "CheckID", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    #[serde(rename = "HTTP", skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    #[serde(rename = "Interval", skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    #[serde(rename = "Timeout", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(rename = "TLSSkipVerify", skip_serializing_if = "std::ops::Not::not")]
    pub tls_skip_verify: bool,
    #[serde(rename = "DeregisterCriticalServiceAfter", skip_serializing_if = "Option::is_none")]
    pub deregister_after: Option<String>,
}

/// Null becomes the default.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn null_unknown_and_absent_fields() {
        for text in [
            r#"[{"Node":{"Node":"n","Address":"10.0.0.1","New":{"a":[1]}},"Service":{"ID":"i","Service":"s","Tags":null,"Port":80},
                "Checks":null,"Future":true}]"#,
            r#"[{"Node":{"Node":"n","Address":"10.0.0.1","Meta":null},"Service":{"ID":"i","Service":"s","Kind":null,"Address":null,"Port":80}}]"#,
        ] {
            let entries: Vec<Entry> = serde_json::from_str(text).unwrap();
            let entry = &entries[0];
            assert_eq!((entry.node.name.as_str(), entry.node.address.as_str()), ("n", "10.0.0.1"));
            assert_eq!((entry.service.id.as_str(), entry.service.name.as_str(), entry.service.port), ("i", "s", 80));
            assert!(entry.service.tags.is_empty() && entry.checks.is_empty() && entry.service.kind.is_empty());
        }
    }

    #[test]
    fn values_are_decoded() {
        for (value, expected) in
            [("null", ""), ("\"\"", ""), ("\"YWJj\"", "abc"), ("\"/w==\"", "\u{fffd}"), ("\"!\"", "")]
        {
            let pair: Pair =
                serde_json::from_str(&format!(r#"{{"Key":"k","Value":{value},"ModifyIndex":3}}"#)).unwrap();
            assert_eq!((pair.text().as_str(), pair.modify_index), (expected, 3), "{value}");
        }
    }

    #[test]
    fn registration_has_the_documented_shape() {
        let registration = Registration {
            id: "fabio-host1-9998".into(),
            name: "fabio".into(),
            tags: vec![],
            port: 9998,
            address: "10.0.0.5".into(),
            namespace: None,
            partition: None,
            checks: vec![
                AgentCheck {
                    id: Some("fabio-host1-9998-ttl".into()),
                    ttl: Some("15s".into()),
                    deregister_after: Some("1m0s".into()),
                    ..Default::default()
                },
                AgentCheck {
                    http: Some("http://10.0.0.5:9998/health".into()),
                    interval: Some("1s".into()),
                    timeout: Some("3s".into()),
                    ..Default::default()
                },
            ],
        };
        let expected: serde_json::Value = serde_json::from_str(
            r#"{"ID":"fabio-host1-9998","Name":"fabio","Port":9998,"Address":"10.0.0.5","Checks":[
                {"CheckID":"fabio-host1-9998-ttl","TTL":"15s","DeregisterCriticalServiceAfter":"1m0s"},
                {"Interval":"1s","Timeout":"3s","HTTP":"http://10.0.0.5:9998/health"}]}"#,
        )
        .unwrap();
        assert_eq!(serde_json::to_value(&registration).unwrap(), expected);
    }
}
