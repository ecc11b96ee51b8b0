//! `ferrio top`: what is going on, again and again.
//!
//! Plain ANSI sequences and the terminal's own line discipline, set by `stty`, are all that this takes. Into a pipe, or
//! with `--once`, it prints one picture.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use super::arguments::Arguments;
use super::columns::{columns, count, plain};
use super::remote::Remote;
use super::{Answer, Failure, wait_for};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let interval = arguments.value("interval").unwrap_or("2");
    let interval = interval.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let interval = interval.ok_or_else(|| Failure::Usage("--interval takes seconds, 0.1 to 3600".into()))?;
    let interval = Duration::from_secs_f64(interval);
    let remote = Remote::of(arguments)?;
    let live = !arguments.has("once") && !arguments.has("json");
    if live && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return watch(&remote, interval);
    }
    wait_for(async {
        // The first sample begins the counting.
        remote.json("/api/stats").await?;
        tokio::time::sleep(interval).await;
        let (status, stats) = both(&remote).await?;
        if arguments.has("json") {
            return Ok(Answer::good(format!("{stats:#}\n")));
        }
        Ok(Answer::good(picture(&remote, &status, &stats, usize::MAX)))
    })
}

async fn both(remote: &Remote) -> Result<(Value, Value), Failure> {
    Ok((remote.json("/api/status").await?, remote.json("/api/stats").await?))
}

/// Until somebody presses q, or Ctrl-C.
fn watch(remote: &Remote, interval: Duration) -> Result<Answer, Failure> {
    let _screen = Screen::take();
    let (keys, pressed) = mpsc::channel();
    // Ends with the process: a read of a terminal cannot be called off.
    std::thread::spawn(move || {
        for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
            if keys.send(byte).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Unknown(format!("cannot make a runtime: {error}")))?;
    let mut interval_now = Duration::from_millis(200);
    loop {
        let (rows, _) = size();
        let text = match runtime.block_on(both(remote)) {
            Ok((status, stats)) => picture(remote, &status, &stats, rows.saturating_sub(1)),
            Err(Failure::Unknown(why) | Failure::Usage(why)) => format!("{}\n", plain(&why)),
        };
        draw(&text, rows);
        match pressed.recv_timeout(interval_now) {
            // q, Q, Ctrl-C, Ctrl-D
            Ok(b'q' | b'Q' | 3 | 4) | Err(RecvTimeoutError::Disconnected) => return Ok(Answer::good("")),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        interval_now = interval;
    }
}

/// Line by line over what was there, so that nothing flickers.
fn draw(text: &str, rows: usize) {
    let (_, width) = size();
    let mut out = String::from("\x1b[H");
    for line in text.lines().take(rows.saturating_sub(1)) {
        out.extend(line.chars().take(width));
        out.push_str("\x1b[K\r\n");
    }
    out.push_str("\x1b[Jq: quit");
    let mut stdout = std::io::stdout().lock();
    // A terminal that is gone ends the reading of keys as well.
    let _ = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush());
}

/// The terminal as it is needed; dropping it gives it back as it was.
struct Screen {
    /// What `stty` calls the state before.
    before: String,
}

impl Screen {
    fn take() -> Self {
        let before = stty(&["-g"]);
        stty(&["-icanon", "-echo", "-isig", "min", "1"]);
        print!("\x1b[?1049h\x1b[?25l");
        Self { before }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        let _ = std::io::stdout().flush();
        match self.before.as_str() {
            "" => _ = stty(&["sane"]),
            before => _ = stty(&[before]),
        }
    }
}

/// What it says; empty without such a program.
fn stty(args: &[&str]) -> String {
    let output = Command::new("stty").args(args).stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Rows and columns.
fn size() -> (usize, usize) {
    let known = rustix::termios::tcgetwinsize(std::io::stdout());
    known
        .ok()
        .filter(|size| size.ws_row > 0 && size.ws_col > 0)
        .map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Totals, then the busiest targets, in so many lines.
fn picture(remote: &Remote, status: &Value, stats: &Value, lines: usize) -> String {
    let (number, table) = (|value: &Value| value.as_u64().unwrap_or_default() as usize, &status["table"]);
    let mut out = format!(
        "ferrio {} at {}   {}, {}   {}\n",
        plain(status["version"].as_str().unwrap_or_default()),
        remote.base(),
        count(number(&table["routes"]), "route"),
        count(number(&table["targets"]), "target"),
        if status["ready"].as_bool() == Some(true) { "ready" } else { "not ready" },
    );
    for source in status["sources"].as_array().into_iter().flatten() {
        if let Some(error) = source["error"].as_str() {
            let of = source["datacenter"].as_str().map(|name| format!(" of {}", plain(name))).unwrap_or_default();
            out.push_str(&format!("source {}{of} fails: {}\n", text(&source["name"]), plain(error)));
        }
    }
    out.push_str(&format!("all  {}\n\n", numbers(&stats["total"]).join("  ")));
    let routes = stats["routes"].as_array().into_iter().flatten();
    let mut targets: Vec<(String, &Value)> = routes
        .flat_map(|route| {
            let source = format!("{}{}", text(&route["host"]), text(&route["path"]));
            route["targets"].as_array().into_iter().flatten().map(move |target| (source.clone(), target))
        })
        .collect();
    targets.sort_by(|a, b| {
        let rate = |target: &Value| target["rate"].as_f64().unwrap_or_default();
        rate(b.1).total_cmp(&rate(a.1)).then_with(|| a.0.cmp(&b.0))
    });
    let all = targets.len();
    let room = lines.saturating_sub(out.lines().count() + 2);
    targets.truncate(room);
    if all == 0 {
        out.push_str("No requests lately.\n");
        return out;
    }
    let rows: Vec<[String; 7]> = targets
        .iter()
        .map(|(source, target)| {
            let [rate, errors, p50, p99] = numbers(target);
            [rate, errors, p50, p99, source.clone(), text(&target["service"]), text(&target["dst"])]
        })
        .collect();
    out.push_str(&columns(["REQUESTS", "ERRORS", "P50", "P99", "SOURCE", "SERVICE", "TARGET"], &rows));
    if all > rows.len() {
        out.push_str(&format!("and {} more\n", all - rows.len()));
    }
    out
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn numbers(row: &Value) -> [String; 4] {
    let seconds = |value: &Value| match value.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1.0 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.2}s"),
    };
    let rate = row["rate"].as_f64().unwrap_or_default();
    let errors = row["error_rate"].as_f64().unwrap_or_default();
    [format!("{rate:.1}/s"), format!("{:.1}%", errors * 100.0), seconds(&row["p50"]), seconds(&row["p99"])]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_busiest_come_first_and_fit() {
        let remote = Remote::at("h:1", false).unwrap();
        let target = |dst: &str, rate: f64| json!({ "service": "s", "dst": dst, "rate": rate, "error_rate": 0.25, "p50": 0.0012, "p99": 1.5 });
        let stats = json!({ "total": { "rate": 7.0, "error_rate": 0, "p50": null, "p99": null }, "routes": [
            { "host": "h", "path": "/a", "targets": [target("http://a/", 1.0), target("http://b/", 5.0)] },
            { "host": "", "path": "/", "targets": [target("http://c/", 2.0)] },
        ] });
        let status = json!({ "version": "1", "ready": true, "table": { "routes": 2, "targets": 3 },
            "sources": [{ "name": "kv", "error": "no\u{1b}[2J leader" }] });
        let all = picture(&remote, &status, &stats, usize::MAX);
        let lines: Vec<&str> = all.lines().collect();
        assert!(lines[0].contains("2 routes, 3 targets   ready"), "{all}");
        assert!(lines[1].contains("source kv fails: no\\u{1b}[2J leader"), "{all}");
        assert_eq!(lines[2], "all  7.0/s  0.0%  -  -");
        assert!(
            lines[5].starts_with("5.0/s") && lines[5].ends_with("1.2ms  1.50s  h/a     s        http://b/"),
            "{all}"
        );
        let some = picture(&remote, &status, &stats, 7);
        assert!(some.lines().count() <= 7 && some.contains("and 2 more"), "{some}");
    }
}
