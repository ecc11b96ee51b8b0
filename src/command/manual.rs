//! Help, manual page and shell completions, all from the one list of commands.

use std::fmt::Write as _;

use super::arguments::Arguments;
use super::{Answer, COMMANDS, Command, Failure};

/// What `ferrio COMMAND --help` prints.
pub(super) fn help(command: &Command) -> String {
    let usage = if command.usage.is_empty() { String::new() } else { format!(" {}", command.usage) };
    let options = if command.flags.is_empty() { "" } else { " [OPTION...]" };
    let mut out = format!("Usage: ferrio {}{usage}{options}\n\n{}\n", command.name, command.about);
    if !command.flags.is_empty() {
        out.push('\n');
    }
    for (name, value, meaning) in command.flags {
        let flag = if value.is_empty() { format!("--{name}") } else { format!("--{name} {value}") };
        _ = writeln!(out, "  {flag:<20} {meaning}");
    }
    out.push_str("\nExit codes: 0 the answer is good, 1 it is not, 2 wrong arguments, 3 nobody answered.\n");
    out
}

pub(super) fn completions(arguments: &mut Arguments) -> Result<Answer, Failure> {
    let shell = arguments.next();
    arguments.done()?;
    match shell.as_deref() {
        Some("bash") => Ok(Answer::good(bash())),
        Some("zsh") => Ok(Answer::good(zsh())),
        Some("fish") => Ok(Answer::good(fish())),
        _ => Err(Failure::Usage("for which shell? bash, zsh or fish".into())),
    }
}

fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|command| command.name).chain(["dev"]).collect()
}

fn bash() -> String {
    let mut cases = String::new();
    for command in COMMANDS {
        let mut words: Vec<String> = command.flags.iter().map(|(name, ..)| format!("--{name}")).collect();
        if command.name == "completions" {
            words.extend(["bash", "zsh", "fish"].map(str::to_owned));
        }
        _ = writeln!(cases, "    {}) words=\"{}\" ;;", command.name, words.join(" "));
    }
    format!(
        "# bash completion for ferrio
_ferrio() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
  case $before in
    --cfg | -cfg | --routes) mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;
  esac
  if [ \"$COMP_CWORD\" = 1 ]; then
    words=\"{} -cfg -h -v\"
  else
    case ${{COMP_WORDS[1]}} in
{cases}    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")
}}
complete -o default -F _ferrio ferrio
",
        names().join(" ")
    )
}

fn zsh() -> String {
    let mut out = String::from("#compdef ferrio\n_ferrio() {\n  local -a commands\n  commands=(\n");
    for command in COMMANDS {
        _ = writeln!(out, "    {}", quoted(&format!("{}:{}", command.name, command.about)));
    }
    out.push_str("    'dev:An agent, sample services and the proxy in one process.'\n  )\n");
    out.push_str(
        "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n",
    );
    for command in COMMANDS {
        _ = write!(out, "    {}) _arguments", command.name);
        for (name, value, meaning) in command.flags {
            let meaning = meaning.replace(['[', ']', ':'], " ");
            let kind = match *value {
                "" => String::new(),
                "FILE" => ":file:_files".to_owned(),
                value => format!(":{value}:"),
            };
            _ = write!(out, " {}", quoted(&format!("--{name}[{meaning}]{kind}")));
        }
        out.push_str(if command.name == "completions" {
            " '*:shell:(bash zsh fish)' ;;\n"
        } else {
            " '*:file:_files' ;;\n"
        });
    }
    out.push_str("  esac\n}\n_ferrio \"$@\"\n");
    out
}

fn fish() -> String {
    let mut out = String::from("# fish completion for ferrio\n");
    let first = "__fish_is_nth_token 1";
    for command in COMMANDS {
        _ = writeln!(out, "complete -c ferrio -n '{first}' -a {} -d {}", command.name, quoted(command.about));
        for (name, value, meaning) in command.flags {
            let takes = match *value {
                "" => "",
                "FILE" => " -r -F",
                _ => " -x",
            };
            _ = writeln!(
                out,
                "complete -c ferrio -n '__fish_seen_subcommand_from {}' -l {name}{takes} -d {}",
                command.name,
                quoted(meaning)
            );
        }
    }
    out.push_str("complete -c ferrio -n '__fish_seen_subcommand_from completions' -x -a 'bash zsh fish'\n");
    out
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

pub(super) fn page(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let mut out = format!(".TH FERRIO 1 \"\" \"ferrio {}\" \"User Commands\"\n", env!("CARGO_PKG_VERSION"));
    out.push_str(PAGE);
    for command in COMMANDS {
        let usage = if command.usage.is_empty() { String::new() } else { format!(" {}", command.usage) };
        _ = writeln!(out, ".SS \"ferrio {}{}\"\n{}", command.name, roff(&usage), roff(command.about));
        for (name, value, meaning) in command.flags {
            let value = if value.is_empty() { String::new() } else { format!(" \\fI{value}\\fR") };
            _ = writeln!(out, ".TP\n\\fB\\-\\-{}\\fR{value}\n{}", roff(name), roff(meaning));
        }
    }
    out.push_str(END);
    Ok(Answer::good(out))
}

/// A text that roff does not take for a request or an escape.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

const PAGE: &str = r#".SH NAME
ferrio \- load balancer for services that register in Consul
.SH SYNOPSIS
.B ferrio
[\fB\-cfg\fR \fIFILE\fR] [\fB\-\fIoption\fR[=\fIvalue\fR]...]
.br
.B ferrio
.I COMMAND
[\fIOPTION\fR...]
.SH DESCRIPTION
A service says in a tag of its registration in Consul which host and path it serves; ferrio watches Consul and passes
requests on. Without a command it is the proxy: flags, environment variables and a properties file set its options, and
\fBferrio \-h\fR lists them. Commands ask a running ferrio, Consul or a file; only upgrade changes anything.
.SH COMMANDS
"#;

const END: &str = r#".SH EXIT STATUS
Of commands: 0 the answer is good, 1 it is not (a mistake, a difference, no route), 2 wrong arguments, 3 nobody answered.
Of the proxy: 0 a clean end, 1 it could not start or go on, 2 wrong flags.
.SH SIGNALS
.TP
.B SIGTERM, SIGINT
Leave the registry, finish what is under way (\fIproxy.shutdownwait\fR), end. A second one ends at once.
.TP
.B SIGHUP
Open the file of the access log again.
.SH ENVIRONMENT
\fIFABIO_PROXY_ADDR\fR or \fIPROXY_ADDR\fR sets the option \fIproxy.addr\fR, and so for all options.
\fIFERRIO_ADMIN\fR says where commands find the admin listener. The variables of
Consul's own tools (\fICONSUL_HTTP_TOKEN\fR and others) count where the options say so.
"#;
