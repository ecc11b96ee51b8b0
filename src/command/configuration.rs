//! `ferrio config`: what every option is set to, and where that comes from.

use serde_json::json;

use super::arguments::Arguments;
use super::columns::columns;
use super::{Answer, Failure};
use crate::config::{inspect, reference};
use crate::metrics;
use crate::route::tag_table;

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    if arguments.has("reference") {
        return Ok(Answer::good(reference()));
    }
    if arguments.has("metrics") {
        return Ok(Answer::good(metrics::reference()));
    }
    if arguments.has("tags") {
        return Ok(Answer::good(tag_table()));
    }
    let cfg = arguments.value("cfg").map(|file| vec!["-cfg".to_owned(), file.to_owned()]).unwrap_or_default();
    let found = inspect(cfg.into_iter().chain(arguments.behind().iter().cloned()), std::env::vars_os());
    let shown: Vec<_> = found.options.iter().filter(|option| arguments.has("all") || !option.default).collect();
    let good = found.mistakes.is_empty();
    if arguments.has("json") {
        let options: Vec<_> = shown
            .iter()
            .map(|o| json!({ "key": o.key, "value": o.value, "source": o.source, "default": o.default }))
            .collect();
        let mistakes: Vec<_> = found.mistakes.iter().map(|mistake| &mistake.text).collect();
        return Ok(Answer { text: format!("{:#}\n", json!({ "options": options, "mistakes": mistakes })), good });
    }
    let rows: Vec<_> = shown.iter().map(|o| [o.key.to_owned(), short(&o.value), o.source.clone()]).collect();
    let mut text = if rows.is_empty() {
        "Everything has its default; --all shows it.\n".to_owned()
    } else {
        columns(["OPTION", "VALUE", "FROM"], &rows)
    };
    for mistake in &found.mistakes {
        text.push_str(&format!("error: {}\n", super::columns::plain(&mistake.text)));
    }
    Ok(Answer { text, good })
}

/// Listener lists and route texts may be long.
fn short(value: &str) -> String {
    match value.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}
