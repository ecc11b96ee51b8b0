//! The process log: `2026/12/01 10:30:00 [INFO] message` on stderr, in local time.
//!
//! Lines are handed to a thread of their own through a bounded queue: a stderr that nobody reads may cost lines, which
//! are counted and said, but never makes a caller wait. Our own events are those whose target begins with the name of a
//! crate of ours; other crates are heard with their warnings only, and their errors count as warnings.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use crate::access_log::{Append, is_harmful};
use crate::config::Level;
use crate::registry::SEVERAL_LINES;

mod restraint;

use restraint::Restraint;

/// The target of events that end the process: `tracing::error!(target: FATAL, "...")`. They are shown at every level.
pub const FATAL: &str = "fatal";

/// Starts the log at INFO. A second call changes nothing about who gets the events.
pub fn init() -> Handle {
    let (subscriber, handle) = build(io::stderr(), TimeZone::system());
    // Somebody was first, which only tests do.
    _ = tracing::subscriber::set_global_default(subscriber);
    handle
}

/// Controls the log.
#[derive(Clone)]
pub struct Handle {
    gate: reload::Handle<Gate, Registry>,
    queue: Queue,
}

impl Handle {
    /// What is below `level` is no longer shown.
    pub fn set_level(&self, level: Level) {
        // Fails only when the subscriber is gone, and the log with it.
        _ = self.gate.reload(Gate { level });
    }

    /// What is shown now.
    pub fn level(&self) -> Level {
        self.gate.with_current(|gate| gate.level).unwrap_or_default()
    }

    /// Waits until everything said so far is written, `limit` at most. To be called before the process ends.
    pub fn flush(&self, limit: Duration) {
        self.queue.flush(limit);
    }
}

fn build(out: impl Write + Send + 'static, zone: TimeZone) -> (impl Subscriber + Send + Sync, Handle) {
    let queue = Queue::start(out);
    let (gate, handle) = reload::Layer::new(Gate { level: Level::Info });
    let lines = Lines { queue: queue.clone(), zone };
    (Registry::default().with(lines.with_filter(gate)), Handle { gate: handle, queue })
}

/// Lets events through by their level, decided once for each place in the code until the level changes.
struct Gate {
    level: Level,
}

impl Gate {
    fn passes(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && severity(metadata).is_some_and(|level| level >= self.level)
    }
}

impl<S> Filter<S> for Gate {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.passes(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.passes(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.level {
            Level::Trace => LevelFilter::TRACE,
            Level::Debug => LevelFilter::DEBUG,
            Level::Info => LevelFilter::INFO,
            Level::Warn => LevelFilter::WARN,
            Level::Error | Level::Fatal => LevelFilter::ERROR,
        })
    }
}

/// The level of an event in our log; `None`: not for us.
fn severity(metadata: &Metadata<'_>) -> Option<Level> {
    let target = metadata.target();
    if target == FATAL {
        return Some(Level::Fatal);
    }
    let ours = OURS.contains(&target.split("::").next().unwrap_or_default());
    match (*metadata.level(), ours) {
        (tracing::Level::TRACE, true) => Some(Level::Trace),
        (tracing::Level::DEBUG, true) => Some(Level::Debug),
        (tracing::Level::INFO, true) => Some(Level::Info),
        (tracing::Level::ERROR, true) => Some(Level::Error),
        (tracing::Level::WARN, _) | (tracing::Level::ERROR, false) => Some(Level::Warn),
        _ => None,
    }
}

/// Makes a line of an event.
struct Lines {
    queue: Queue,
    zone: TimeZone,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(level) = severity(event.metadata()) else { return };
        let restrained = Restraint::concerns(event.metadata());
        if restrained && !self.queue.state.restraint.permits(event.metadata(), Instant::now()) {
            self.queue.wake();
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        if restrained {
            restraint::cut(&mut text.message);
            restraint::cut(&mut text.fields);
        }
        // What is fatal ends the process: a list of mistakes in its own configuration, say.
        let ours = [SEVERAL_LINES, FATAL].contains(&event.metadata().target());
        self.queue.put(line(&self.zone, Timestamp::now(), level, ours, &text));
    }
}

/// Message and fields of an event.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => _ = write!(self.fields, " {name}={value}"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// One record. Control characters become escapes, so that nobody paints on the operator's terminal, or makes up a record of
/// his own. Line breaks stay where they are `ours`.
fn line(zone: &TimeZone, now: Timestamp, level: Level, ours: bool, text: &Text) -> String {
    let t = zone.to_datetime(now);
    let mut line = String::with_capacity(32 + text.message.len() + text.fields.len());
    _ = write!(
        line,
        "{:04}/{:02}/{:02} {:02}:{:02}:{:02} [{level}] ",
        t.year(),
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    );
    for c in text.message.trim_end_matches('\n').chars().chain(text.fields.chars()) {
        if is_harmful(c) && !(ours && c == '\n') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

/// Lines on their way to the writer.
#[derive(Clone)]
struct Queue {
    sender: SyncSender<Entry>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    /// Lines that found no room since the last one that did.
    lost: AtomicUsize,
    restraint: Restraint,
    /// The writer looks from time to time, because something was left out.
    looking: AtomicBool,
}

enum Entry {
    Line(String),
    /// Nothing to write yet, but soon: see [`State::looking`].
    Wake,
    /// Answered when everything before is written.
    Flush(SyncSender<()>),
}

impl Queue {
    fn start(out: impl Write + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::sync_channel(MAX_LINES);
        let state = Arc::new(State::default());
        let writer = Arc::clone(&state);
        // Without a thread there is no log, which is no reason not to serve.
        _ = thread::Builder::new().name("log".to_owned()).spawn(move || write_all(out, receiver, &writer));
        Self { sender, state }
    }

    fn put(&self, line: String) {
        let length = line.len();
        let waiting = self.state.waiting.fetch_add(length, Ordering::Relaxed);
        // One line may be longer than the limit: a dump of the whole table, say.
        let room = waiting == 0 || waiting + length <= MAX_BYTES;
        if !room || self.sender.try_send(Entry::Line(line)).is_err() {
            self.state.waiting.fetch_sub(length, Ordering::Relaxed);
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the writer say, later, how much was left out.
    fn wake(&self) {
        // A full queue wakes it as well.
        if !self.state.looking.swap(true, Ordering::Relaxed) && self.sender.try_send(Entry::Wake).is_err() {
            self.state.looking.store(false, Ordering::Relaxed);
        }
    }

    fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let (done, wait) = mpsc::sync_channel(1);
        let mut entry = Entry::Flush(done);
        loop {
            match self.sender.try_send(entry) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => entry = back,
            }
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Ends when the last sender is gone. A closed stderr is no error: whoever closed it does not want to read.
fn write_all(out: impl Write, receiver: Receiver<Entry>, state: &State) {
    let mut out = Append::new(out);
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    loop {
        let entry = match state.looking.load(Ordering::Relaxed) {
            false => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            true => receiver.recv_timeout(restraint::WINDOW / 10),
        };
        match entry {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) | Ok(Entry::Wake) => {}
            Ok(Entry::Line(text)) => {
                put(&mut out, &text);
                state.waiting.fetch_sub(text.len(), Ordering::Relaxed);
            }
            Ok(Entry::Flush(done)) => {
                out.flush();
                _ = done.try_send(());
            }
        }
        let zone = ZONE.get_or_init(TimeZone::system);
        if state.looking.load(Ordering::Relaxed) {
            for (module, count) in state.restraint.over(Instant::now()) {
                let message = format!("{count} more lines of {module} like the last ones were left out");
                let text = Text { message, fields: String::new() };
                put(&mut out, &line(zone, Timestamp::now(), Level::Warn, false, &text));
            }
            state.looking.store(state.restraint.pending(), Ordering::Relaxed);
        }
        let lost = state.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = Text {
                message: format!("{lost} lines of this log were lost: stderr is read too slowly"),
                fields: String::new(),
            };
            put(&mut out, &line(zone, Timestamp::now(), Level::Warn, false, &text));
        }
    }
}

/// A log that cannot be written is no reason to stop.
fn put(out: &mut Append<impl Write>, record: &str) {
    _ = out.write(record.as_bytes(), &[record.len()]);
}

/// Crates whose events are taken as they are.
const OURS: &[&str] = &["ferrio", "consul_dev"];

/// A burst that a slow terminal may take its time for.
const MAX_LINES: usize = 8192;

/// Of waiting lines together.
const MAX_BYTES: usize = 16 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Keeps what is written. While `closed`, writing waits, as a full pipe makes it.
    #[derive(Clone, Default)]
    struct Sink(Arc<(Mutex<(String, bool)>, Condvar)>);

    impl Sink {
        fn text(&self) -> String {
            self.0.0.lock().unwrap().0.clone()
        }

        fn close(&self, closed: bool) {
            self.0.0.lock().unwrap().1 = closed;
            self.0.1.notify_all();
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut inner = self.0.1.wait_while(self.0.0.lock().unwrap(), |inner| inner.1).unwrap();
            inner.0.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    const SOON: Duration = Duration::from_secs(10);

    fn logged(say: impl FnOnce(&Handle)) -> String {
        let sink = Sink::default();
        let (subscriber, handle) = build(sink.clone(), TimeZone::UTC);
        tracing::subscriber::with_default(subscriber, || say(&handle));
        handle.flush(SOON);
        sink.text()
    }

    /// Without the times.
    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(|line| line.get(20..).unwrap_or(line)).collect()
    }

    fn one_of_each() {
        tracing::trace!("t");
        tracing::debug!("d");
        tracing::info!("i");
        tracing::warn!("w");
        tracing::error!("e");
        tracing::error!(target: FATAL, "f");
        tracing::info!(target: "hyper::proto", "hi");
        tracing::warn!(target: "hyper::proto", "hw");
        tracing::error!(target: "h2", "he");
    }

    #[test]
    fn each_level_shows_itself_and_what_is_above() {
        let all = ["[TRACE] t", "[DEBUG] d", "[INFO] i", "[WARN] w", "[ERROR] e", "[FATAL] f"];
        let foreign = ["[WARN] hw", "[WARN] he"];
        for (level, from, with_foreign) in [
            (Level::Trace, 0, true),
            (Level::Debug, 1, true),
            (Level::Info, 2, true),
            (Level::Warn, 3, true),
            (Level::Error, 4, false),
            (Level::Fatal, 5, false),
        ] {
            let text = logged(|handle| {
                handle.set_level(level);
                one_of_each();
            });
            let want: Vec<&str> = all[from..].iter().chain(foreign.iter().filter(|_| with_foreign)).copied().collect();
            assert_eq!(lines(&text), want, "{level}");
        }
    }

    #[test]
    fn the_level_is_info_until_it_is_set_and_may_change() {
        let text = logged(|handle| {
            one_of_each();
            handle.set_level(Level::Fatal);
            one_of_each();
            handle.set_level(Level::Trace);
            tracing::trace!("again");
        });
        assert_eq!(
            lines(&text),
            ["[INFO] i", "[WARN] w", "[ERROR] e", "[FATAL] f", "[WARN] hw", "[WARN] he", "[FATAL] f", "[TRACE] again"]
        );
    }

    #[test]
    fn a_line_has_local_time_message_and_fields() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now: Timestamp = "2026-07-01T08:09:07.9Z".parse().unwrap();
        let text = Text { message: "first\nsecond\t\u{1b}[2J\r\u{85}\n".to_owned(), fields: " key=value".to_owned() };
        for (ours, between) in [(true, "\n"), (false, "\\n")] {
            let got = line(&zone, now, Level::Warn, ours, &text);
            let want =
                format!("2026/07/01 10:09:07 [WARN] first{between}second\\t\\u{{1b}}[2J\\r\\u{{85}} key=value\n");
            assert_eq!(got, want);
        }
        let text = logged(|_| {
            tracing::warn!("{}", "a\n2026/01/01 00:00:00 [INFO] made up");
            tracing::info!(target: SEVERAL_LINES, "table\n+ route");
        });
        assert_eq!(text.lines().count(), 3, "{text}");

        let text = logged(|_| tracing::info!(route = "/a", count = 3, error = ?io::ErrorKind::NotFound, "done {}", 1));
        assert_eq!(lines(&text), ["[INFO] done 1 route=/a count=3 error=NotFound"]);
        let (date, time) = (text.get(..10).unwrap(), text.get(11..19).unwrap());
        assert!(date.matches('/').count() == 2 && time.matches(':').count() == 2, "{text}");
    }

    #[test]
    fn peers_cannot_fill_the_log() {
        let text = logged(|_| {
            for n in 0..500 {
                tracing::warn!(target: "ferrio::proxy::http", "No route for h/{n}{}", "x".repeat(5000));
                tracing::warn!(target: "ferrio::registry", "ours {n}");
            }
            tracing::error!(target: "ferrio::proxy::http", "another place");
        });
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!((of("No route"), of("ours"), of("another place")), (100, 500, 1));
        assert!(text.lines().all(|line| line.len() < 350), "{text}");
    }

    #[test]
    fn what_was_left_out_is_counted_and_said_once() {
        let restraint = Restraint::default();
        let sink = Sink::default();
        let (subscriber, handle) = build(sink.clone(), TimeZone::UTC);
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..103 {
                tracing::warn!(target: "ferrio::proxy::http", "{n}");
            }
        });
        let later = Instant::now() + restraint::WINDOW;
        assert!(handle.queue.state.restraint.pending());
        assert_eq!(handle.queue.state.restraint.over(Instant::now()), []);
        assert_eq!(handle.queue.state.restraint.over(later), [("ferrio::proxy::http", 3)]);
        assert_eq!(handle.queue.state.restraint.over(later), []);
        assert!(!restraint.pending());
    }

    #[test]
    fn a_broken_stderr_is_no_concern_of_ours() {
        let (subscriber, handle) = build(Broken, TimeZone::UTC);
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..100 {
                tracing::info!("{n}");
            }
        });
        let start = Instant::now();
        handle.flush(SOON);
        assert!(start.elapsed() < SOON);
    }

    #[test]
    fn a_stderr_that_nobody_reads_costs_lines_and_no_time() {
        let sink = Sink::default();
        sink.close(true);
        let (subscriber, handle) = build(sink.clone(), TimeZone::UTC);
        let count = MAX_LINES * 2;
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..count {
                tracing::info!("{n}");
            }
        });
        handle.flush(Duration::from_millis(20));
        assert_eq!(sink.text(), "");
        sink.close(false);
        handle.flush(SOON);
        let text = sink.text();
        assert!(text.lines().count() < count && text.contains(" [INFO] 0\n"));
        let lost = text.lines().find(|line| line.contains("lines of this log were lost")).unwrap();
        let lost: usize = lost.split("[WARN] ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(text.lines().count() - 1 + lost, count);
    }

    #[test]
    fn waiting_lines_are_bounded_in_bytes_too() {
        let sink = Sink::default();
        sink.close(true);
        let queue = Queue::start(sink.clone());
        for _ in 0..40 {
            queue.put("x".repeat(1 << 20));
        }
        assert!(queue.state.waiting.load(Ordering::Relaxed) <= MAX_BYTES);
        assert!(queue.state.lost.load(Ordering::Relaxed) >= 20);
        sink.close(false);
        queue.flush(SOON);
        assert_eq!(queue.state.waiting.load(Ordering::Relaxed), 0);
    }
}
