//! The table of options for people: `-h`, and the reference page.

use std::fmt::Write as _;

use super::duration;
use super::kind::Kind;
use super::options::{OPTIONS, OURS, Spec, Status};

/// What `-h` prints: all flags by name, in the form of Go's flag package.
pub(crate) fn usage(program: &str) -> String {
    let mut flags: Vec<(&str, String)> = OPTIONS.iter().map(|spec| (spec.key, flag(spec))).collect();
    flags.push(("cfg", "  -cfg string\n    \tpath or URL of a properties file\n".to_owned()));
    flags.push(("v", "  -v\tshow version\n".to_owned()));
    flags.push(("version", "  -version\n    \tshow version\n".to_owned()));
    flags.sort_by_key(|(key, _)| *key);
    let mut out = format!("Usage of {program}:\n");
    out.extend(flags.into_iter().map(|(_, text)| text));
    out
}

fn flag(spec: &Spec) -> String {
    let kind = spec.kind.flag_type();
    let kind = if kind.is_empty() { String::new() } else { format!(" {kind}") };
    let mut help = spec.help.to_owned();
    match spec.status {
        Status::Pending(_) => help.push_str("; not built yet"),
        Status::GoOnly => help.push_str("; accepted without effect"),
        Status::Inert(why) => _ = write!(help, "; accepted without effect: {why}"),
        Status::Deprecated(instead) => _ = write!(help, "; deprecated. {instead}"),
        Status::Dropped(_) => help.push_str("; accepted without effect"),
        Status::Built | Status::Secret => {}
    }
    let default = match spec.kind {
        Kind::Bool if spec.default == "false" => String::new(),
        Kind::Bool => format!(" (default {})", spec.default),
        Kind::Int { .. } | Kind::Size { .. } if spec.default == "0" => String::new(),
        Kind::Int { .. } | Kind::Size { .. } | Kind::Floats => format!(" (default {})", spec.default),
        Kind::Duration { .. } => match duration::parse(spec.default) {
            Ok(0) | Err(_) => String::new(),
            Ok(nanos) => format!(" (default {})", duration::format(nanos)),
        },
        _ if spec.key == "registry.consul.register.addr" => " (default \"<ui.addr>\")".to_owned(),
        _ if spec.default.is_empty() => String::new(),
        _ => format!(" (default {:?})", spec.default),
    };
    format!("  -{}{kind}\n    \t{help}{default}\n", spec.key)
}

/// The reference page, as Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    let mut section = "";
    for spec in OPTIONS {
        let group = spec.key.split_once('.').map_or("process", |(group, _)| group);
        if group != section {
            section = group;
            _ = write!(
                out,
                "\n## {group}\n\n| key | type | default | since | meaning |\n| --- | --- | --- | --- | --- |\n"
            );
        }
        out.push_str(&row(spec));
    }
    out
}

fn row(spec: &Spec) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut meaning = cell(spec.help);
    if let Some(bounds) = spec.kind.bounds() {
        _ = write!(meaning, " ({})", cell(&bounds));
    }
    let remark = match spec.status {
        Status::Built | Status::Secret => String::new(),
        Status::Pending(loss) => format!(" **Not built yet**: refuses to start, since without it {loss}."),
        Status::GoOnly => " Accepted without effect: it means something only inside the Go runtime.".to_owned(),
        Status::Inert(why) => format!(" Accepted without effect: {why}."),
        Status::Deprecated(instead) => format!(" Deprecated. {instead}."),
        Status::Dropped(instead) => format!(" Accepted without effect: {instead}."),
    };
    meaning.push_str(&cell(&remark));
    if !spec.aliases.is_empty() {
        let names: Vec<String> = spec.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        _ = write!(meaning, " Also understood: {}.", names.join(", "));
    }
    let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", cell(spec.default)) };
    let since = if spec.since == OURS { "new".to_owned() } else { format!("fabio {}", spec.since) };
    format!("| `{}` | {} | {default} | {since} | {meaning} |\n", spec.key, spec.kind.label())
}

const INTRODUCTION: &str = "\
# Options

Every option can be set as a flag (`-proxy.addr :80`), as an environment variable with or without prefix
(`FABIO_PROXY_ADDR`, `PROXY_ADDR`), or in a properties file (`proxy.addr = :80`) that `-cfg` names. Flags win over
`FABIO_` variables, these over plain ones, these over the file, the file over the default.
";
