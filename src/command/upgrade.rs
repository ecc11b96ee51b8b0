//! `ferrio upgrade`: asks a ferrio on this machine to let another process take its place, and says how it went.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::arguments::Arguments;
use super::remote::Remote;
use super::{Answer, Failure, wait_for};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let json = arguments.has("json");
    if let Some(text) = arguments.value("pid") {
        let pid = named(text)?;
        signal(pid)?;
        let text = format!("asked process {pid}; its log says how it goes, and its admin listener if --admin names it");
        return Ok(Answer::good(if json { serde_json::json!({ "pid": pid }).to_string() } else { text }));
    }
    let remote = Remote::of(arguments)?;
    wait_for(async {
        let (pid, before) = state(&remote).await?;
        // The same name on another machine would be somebody else here.
        signal(pid)?;
        let begun = Instant::now();
        loop {
            tokio::time::sleep(PAUSE).await;
            let took = begun.elapsed();
            let (now, text) = match state(&remote).await {
                Ok(state) => state,
                // Between two connections there may be nobody for a moment.
                Err(_) if took < LIMIT => continue,
                Err(failure) => return Err(failure),
            };
            let answer = |good: bool, text: String| {
                let object = serde_json::json!({ "from": pid, "to": now, "upgraded": good, "text": text });
                Ok(Answer { text: if json { object.to_string() } else { text }, good })
            };
            if now != pid {
                return answer(true, format!("process {now} has taken over from process {pid} within {took:.1?}"));
            }
            if text.starts_with("failed") && (text != before || took > SAME) {
                return answer(false, format!("process {pid} serves as before: {text}"));
            }
            if took > LIMIT {
                return answer(false, format!("process {pid} still serves after {LIMIT:?}; its log says more"));
            }
        }
    })
}

/// Process id, and what became of the last upgrade.
async fn state(remote: &Remote) -> Result<(i32, String), Failure> {
    let control = remote.json("/api/control").await?;
    let pid = control["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let unknown = || Failure::Unknown(format!("{} does not tell its process id; use --pid", remote.base()));
    Ok((pid.ok_or_else(unknown)?, control["upgrade"].as_str().unwrap_or_default().to_owned()))
}

fn named(text: &str) -> Result<i32, Failure> {
    if let Ok(pid) = text.parse() {
        return Ok(pid);
    }
    let read = std::fs::read_to_string(text).map_err(|error| Failure::Unknown(format!("{text}: {error}")))?;
    read.trim().parse().map_err(|_| Failure::Unknown(format!("{text}: there is no process id in it")))
}

/// SIGUSR2 ends a program that does not expect it, so it is only for one of ours.
fn signal(pid: i32) -> Result<(), Failure> {
    let unknown = |why: String| Failure::Unknown(why);
    // Negative ones mean groups, and not even the type may have them.
    let target = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
    let target = target.ok_or_else(|| unknown(format!("{pid} is no process id")))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_err(|_| unknown(format!("there is no process {pid} on this machine")))?;
    if !name.starts_with("ferrio") {
        return Err(unknown(format!("process {pid} is {:?}, not ferrio", name.trim())));
    }
    kill_process(target, Signal::USR2).map_err(|error| unknown(format!("cannot signal process {pid}: {error}")))
}

const PAUSE: Duration = Duration::from_millis(100);
/// After that an old failure counts as a new one with the same words.
const SAME: Duration = Duration::from_secs(3);
/// Somewhat more than the running one gives the other.
const LIMIT: Duration = Duration::from_secs(65);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_ours_is_signalled() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        std::fs::write(&file, "12\n").unwrap();
        assert_eq!(named(file.to_str().unwrap()), Ok(12));
        std::fs::write(&file, "x").unwrap();
        assert!(named(file.to_str().unwrap()).is_err());
        for (pid, why) in [(0, "no process id"), (-5, "no process id"), (i32::MAX, "no process"), (1, "not ferrio")] {
            let Err(Failure::Unknown(text)) = signal(pid) else { panic!("{pid}") };
            assert!(text.contains(why), "{text}");
        }
    }
}
