//! `ferrio timeline`: what changed in the table, when, and because of what.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::arguments::Arguments;
use super::columns::{count, plain};
use super::remote::Remote;
use super::{Answer, Failure, wait_for};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    arguments.done()?;
    let (zone, now) = (TimeZone::system(), Timestamp::now());
    let moment = |flag: &str| arguments.value(flag).map(|text| read(text, now, &zone)).transpose();
    let (since, until) = (moment("since")?, moment("until")?);
    let mut changes = wait_for(changes(&Remote::of(arguments)?))?;
    changes
        .retain(|change| since.is_none_or(|since| change.at >= since) && until.is_none_or(|until| change.at <= until));
    if arguments.has("json") {
        let all: Vec<Value> = changes.into_iter().map(|change| change.whole).collect();
        return Ok(Answer::good(format!("{:#}\n", Value::Array(all))));
    }
    if changes.is_empty() {
        return Ok(Answer::good("Nothing has changed in that time, as far as is still known.\n"));
    }
    Ok(Answer::good(changes.iter().map(|change| change.text(&zone)).collect::<String>()))
}

/// One new table.
struct Change {
    at: Timestamp,
    cause: String,
    lines: Vec<String>,
    /// Lines that are not kept.
    more: u64,
    whole: Value,
}

impl Change {
    fn text(&self, zone: &TimeZone) -> String {
        let at = zone.to_datetime(self.at).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let cause = if self.cause.is_empty() { String::new() } else { format!("  {}", plain(&self.cause)) };
        let lines: String = self.lines.iter().map(|line| format!("  {}\n", plain(line))).collect();
        let more =
            if self.more > 0 { format!("  and {}\n", count(self.more as usize, "more line")) } else { String::new() };
        format!("{at}{cause}\n{lines}{more}")
    }
}

/// The oldest first.
async fn changes(remote: &Remote) -> Result<Vec<Change>, Failure> {
    let all = remote.json("/api/timeline").await?;
    let list = all.as_array().or_else(|| all["changes"].as_array()).cloned().unwrap_or_default();
    let mut changes: Vec<Change> = list
        .into_iter()
        .filter_map(|whole| {
            let at = Timestamp::from_millisecond((whole["at"].as_f64()? * 1e3) as i64).ok()?;
            let lines: Vec<String> =
                whole["lines"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
            let changed = whole["added"].as_u64().unwrap_or(0) + whole["removed"].as_u64().unwrap_or(0);
            let cause = whole["cause"].as_str().unwrap_or_default().to_owned();
            Some(Change { at, cause, more: changed.saturating_sub(lines.len() as u64), lines, whole })
        })
        .collect();
    changes.sort_by_key(|change| change.at);
    Ok(changes)
}

/// `14:05`, `14:05:30`: today, or yesterday if that is still to come; `2026-12-01T14:05`; `10m`: so long ago.
fn read(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, Failure> {
    let wrong = || {
        Failure::Usage(format!("{text:?} is no time; write 14:05, 2026-12-01T14:05, or 10m for the last ten minutes"))
    };
    if let Ok(nanos) = crate::config::duration::parse(text) {
        return now.checked_sub(SignedDuration::from_nanos(nanos)).map_err(|_| wrong());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let of = |local: DateTime| zone.to_timestamp(local).map_err(|_| wrong());
    if let Ok(local) = text.parse::<DateTime>() {
        return of(local);
    }
    let time: jiff::civil::Time = text.parse().map_err(|_| wrong())?;
    let today = zone.to_datetime(now).date();
    let at = of(today.to_datetime(time))?;
    if at <= now {
        return Ok(at);
    }
    of(today.yesterday().map_err(|_| wrong())?.to_datetime(time))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let zone = TimeZone::posix("CET-1").unwrap();
        let now: Timestamp = "2026-12-01T13:10:00Z".parse().unwrap();
        for (text, want) in [
            ("14:05", "2026-12-01T13:05:00Z"),
            ("14:05:30", "2026-12-01T13:05:30Z"),
            ("23:00", "2026-11-30T22:00:00Z"),
            ("2026-11-01T14:05", "2026-11-01T13:05:00Z"),
            ("2026-11-01T14:05Z", "2026-11-01T14:05:00Z"),
            ("10m", "2026-12-01T13:00:00Z"),
        ] {
            assert_eq!(read(text, now, &zone).unwrap().to_string(), want, "{text}");
        }
        for bad in ["", "later", "25:00", "5"] {
            assert!(read(bad, now, &zone).is_err(), "{bad}");
        }
    }
}
