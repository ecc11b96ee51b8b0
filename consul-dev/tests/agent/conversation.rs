//! One long conversation, held with both, and every answer compared.

use serde_json::Value;

use crate::side_by_side::Pair;

#[tokio::test]
async fn every_answer_is_consuls() {
    let pair = Pair::start().await;
    let mut sessions: Vec<(String, String)> = Vec::new();
    let mut calls = 0;
    for line in SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let body = match words.next().unwrap_or_default() {
            "BIG" => "x".repeat(512 * 1024),
            "TOO-BIG" => "x".repeat(512 * 1024 + 1),
            "LONG-OUTPUT" => format!(r#"{{"Status": "warning", "Output": "{}"}}"#, "z".repeat(5000)),
            body => body.to_owned(),
        };
        let fill = |which: fn(&(String, String)) -> &String| {
            let filled = sessions.iter().enumerate();
            filled.fold(target.to_owned(), |target, (n, ids)| target.replace(&format!("{{s{n}}}"), which(ids)))
        };
        let (real, dev) = (fill(|ids| &ids.0), fill(|ids| &ids.1));
        let (theirs, ours) = pair.same_as(method, &real, &dev, &body).await;
        if target.starts_with("/v1/session/create") && theirs.status == 200 {
            let id = |value: Value| value["ID"].as_str().unwrap().to_owned();
            sessions.push((id(theirs.json()), id(ours.json())));
        }
        calls += 1;
    }
    assert!(calls >= 60, "only {calls} calls");
}

/// Method, target, body. `{s0}` is the first session that was created, and so on.
const SCRIPT: &str = include_str!("conversation.txt");
