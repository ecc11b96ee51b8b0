//! Facts about this process under the names that Prometheus clients use everywhere.

use std::fs;

use super::exposition::Writer;

/// Appends what `/proc` tells. What it does not tell is left out.
pub(super) fn write(writer: &mut Writer) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse) {
        gauge(writer, "process_cpu_seconds_total", "counter", "User and system CPU time in seconds.", stat.cpu_seconds);
        gauge(writer, "process_virtual_memory_bytes", "gauge", "Virtual memory in bytes.", stat.virtual_bytes);
        if let Some(boot) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time) {
            let start = boot + stat.start_after_boot;
            gauge(writer, "process_start_time_seconds", "gauge", "Start of the process, seconds since 1970.", start);
        }
        gauge(writer, "process_threads", "gauge", "Threads.", stat.threads);
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident_bytes) {
        gauge(writer, "process_resident_memory_bytes", "gauge", "Resident memory in bytes.", bytes);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory that we read.
        let open = entries.count().saturating_sub(1) as f64;
        gauge(writer, "process_open_fds", "gauge", "Open file descriptors.", open);
    }
    if let Some(limit) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(open_files_limit) {
        gauge(writer, "process_max_fds", "gauge", "Limit of open file descriptors.", limit);
    }
}

fn gauge(writer: &mut Writer, name: &str, kind: &str, help: &str, value: f64) {
    writer.family(name, kind, help);
    writer.sample(name, &[], value);
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    start_after_boot: f64,
    virtual_bytes: f64,
}

impl Stat {
    /// `/proc/<pid>/stat`, see proc(5).
    fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may itself hold blanks and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and two fields are before the parenthesis.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            threads: field(20)?,
            start_after_boot: field(22)? / TICKS_PER_SECOND,
            virtual_bytes: field(23)?,
        })
    }
}

fn boot_time(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// In kB there; counted in pages elsewhere, whose size differs between machines.
fn resident_bytes(text: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(value.split_ascii_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

fn open_files_limit(text: &str) -> Option<f64> {
    let soft = text.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_ascii_whitespace().next()?;
    soft.parse().ok()
}

/// What Linux shows to user space on every platform that we run on, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let text = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 7 0 1000 8192 3 18446744073709551615 1";
        let want = Stat { cpu_seconds: 2.0, threads: 7.0, start_after_boot: 10.0, virtual_bytes: 8192.0 };
        assert_eq!(Stat::parse(text), Some(want));
        for bad in ["", "42 (a", "42 (a) S 1", ")"] {
            assert_eq!(Stat::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut writer = Writer::new();
        write(&mut writer);
        let text = writer.finish();
        for name in ["cpu_seconds_total", "resident_memory_bytes", "start_time_seconds", "open_fds", "max_fds"] {
            let line = text.lines().find(|l| l.starts_with(&format!("process_{name} "))).unwrap_or_default();
            let value: f64 = line.rsplit(' ').next().and_then(|v| v.parse().ok()).unwrap_or(-1.0);
            assert!(value >= 0.0, "{name}: {line:?}");
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let start = text.lines().find(|l| l.starts_with("process_start_time_seconds ")).unwrap();
        let start: f64 = start.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((now - 86_400.0..now + 60.0).contains(&start), "{start} against {now}");
    }
}
