//! From the queue to the collector: batches, tries, and what is lost.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::time::timeout;

use super::protobuf::{self as wire, Field};
use super::queue::Reader;
use super::span::Attributes;
use super::{Config, Shared};
use crate::fetch;
use crate::metrics::names;

/// Sends spans, one batch after the other.
pub(super) struct Exporter<'a> {
    config: &'a Config,
    client: &'a fetch::Client,
    reader: Reader,
    /// What comes before and between: `resource_spans`, as far as it is always the same.
    resource: Vec<u8>,
    scope: Vec<u8>,
    batch: Batch,
    losses: Losses,
}

/// Spans that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    spans: u64,
    /// When the first of them came.
    since: Option<Instant>,
}

/// What became of a post.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The collector has all but so many, and says why.
    Taken { but: u64, why: String },
    /// It may be tried again, not before so long.
    Later { pause: Option<Duration>, why: String },
    /// It is not to be sent again.
    Refused(String),
}

impl<'a> Exporter<'a> {
    pub(super) fn new(shared: &'a Shared, reader: Reader) -> Self {
        let config = &shared.config;
        let mut resource = Vec::new();
        wire::message(&mut resource, 1, |out| {
            let mut attributes = Attributes::of_resource(out);
            config.resource.iter().for_each(|(key, value)| attributes.text(key, value));
        });
        let mut scope = Vec::new();
        wire::message(&mut scope, 1, |out| {
            wire::bytes(out, 1, env!("CARGO_PKG_NAME").as_bytes());
            wire::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
        });
        let (batch, losses) = (Batch::default(), Losses::new());
        Self { config, client: &shared.client, reader, resource, scope, batch, losses }
    }

    /// Until `ended` is ready, and a moment longer.
    pub(super) async fn run(mut self, ended: impl Future<Output = ()>) {
        tokio::pin!(ended);
        tokio::select! {
            () = &mut ended => {}
            () = self.send_always() => {}
        }
        // Requests that are cut at the end are told, too.
        tokio::time::sleep(TICK).await;
        let _ = timeout(FAREWELL, self.send_rest()).await;
        let mut left = self.batch.spans;
        while let Some(entry) = self.reader.next() {
            left += entry.spans;
        }
        self.losses.add(FAILED, left, "there was no time left");
        self.losses.add(FULL, self.reader.dropped(), FULL_WHY);
        self.losses.say();
    }

    /// Can be dropped at any time: a batch under way is still there.
    async fn send_always(&mut self) {
        loop {
            self.losses.add(FULL, self.reader.dropped(), FULL_WHY);
            self.losses.say_now_and_then();
            self.fill();
            if self.batch.is_due(self.config) {
                self.send().await;
            } else {
                tokio::time::sleep(TICK).await;
            }
        }
    }

    /// Everything, each batch once.
    async fn send_rest(&mut self) {
        loop {
            self.fill();
            if self.batch.spans == 0 {
                return;
            }
            let body = self.body();
            let answer = post(self.config, self.client, body).await;
            let (Answer::Later { why, .. } | Answer::Refused(why) | Answer::Taken { why, .. }) = &answer;
            let lost = if let Answer::Taken { but, .. } = answer { but } else { self.batch.spans };
            self.done(lost, if matches!(answer, Answer::Later { .. }) { FAILED } else { REFUSED }, &why.clone());
        }
    }

    fn fill(&mut self) {
        while self.batch.spans < self.config.batch as u64 && self.batch.bytes.len() < BATCH_BYTES {
            let Some(entry) = self.reader.next() else { return };
            self.batch.since.get_or_insert_with(Instant::now);
            self.batch.bytes.extend_from_slice(&entry.bytes);
            self.batch.spans += entry.spans;
        }
    }

    /// The batch, as often as that may help.
    async fn send(&mut self) {
        let body = self.body();
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let (asked, why) = match post(self.config, self.client, body.clone()).await {
                Answer::Taken { but, why } => return self.done(but, REFUSED, &why),
                Answer::Refused(why) => return self.done(self.batch.spans, REFUSED, &why),
                Answer::Later { pause, why } => (pause, why),
            };
            // Not all ferrio at once.
            let now =
                pause.mul_f64(fastrand::f64().mul_add(0.5, 0.75)).max(asked.unwrap_or_default().min(LONGEST_PAUSE));
            let over = begun.elapsed() + now > GIVE_UP;
            if over {
                self.done(self.batch.spans, FAILED, &why);
            } else {
                self.losses.trouble(&why);
            }
            // Also before the next batch: the collector wants to be left alone.
            let until = Instant::now() + now;
            while Instant::now() < until {
                tokio::time::sleep(TICK.min(until.saturating_duration_since(Instant::now()))).await;
                self.losses.add(FULL, self.reader.dropped(), FULL_WHY);
                self.losses.say_now_and_then();
            }
            if over {
                return;
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The batch has come to its end.
    fn done(&mut self, lost: u64, reason: &'static str, why: &str) {
        let spans = std::mem::take(&mut self.batch).spans;
        let lost = lost.min(spans);
        if lost < spans {
            ::metrics::counter!(names::TRACES_SENT).increment(spans - lost);
            self.losses.fine();
        }
        self.losses.add(reason, lost, why);
    }

    fn body(&self) -> Bytes {
        // ExportTraceServiceRequest.resource_spans[0].scope_spans[0].spans
        let (scoped, spans) = (self.scope.len() + self.batch.bytes.len(), &self.batch.bytes);
        let resourced = self.resource.len() + wire::head_length(2, scoped) + scoped;
        let mut body = Vec::with_capacity(wire::head_length(1, resourced) + resourced);
        wire::head(&mut body, 1, resourced);
        body.extend_from_slice(&self.resource);
        wire::head(&mut body, 2, scoped);
        body.extend_from_slice(&self.scope);
        body.extend_from_slice(spans);
        Bytes::from(body)
    }
}

impl Batch {
    fn is_due(&self, config: &Config) -> bool {
        let full = self.spans >= config.batch as u64 || self.bytes.len() >= BATCH_BYTES;
        full || self.since.is_some_and(|since| since.elapsed() >= config.interval)
    }
}

async fn post(config: &Config, client: &fetch::Client, body: Bytes) -> Answer {
    let mut headers: HeaderMap = config.headers.iter().cloned().collect();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let request = client.current().post(&config.endpoint).headers(headers).body(body);
    let exchange = async {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        // What is wrong with the body changes nothing about the status.
        Ok((status, headers, fetch::body(response, ANSWER_MAX).await.unwrap_or_default()))
    };
    match timeout(config.timeout, exchange).await {
        Ok(Ok((status, headers, body))) => judge(status, &headers, &body, SystemTime::now()),
        Ok(Err(error)) => Answer::Later { pause: None, why: fetch::explain(error) },
        Err(_) => Answer::Later { pause: None, why: "no answer in time".to_owned() },
    }
}

/// By the rules of OTLP: which statuses may be tried again, and what a collector says in a body.
fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Answer {
    if status.is_success() {
        let (but, why) = rejected(body);
        return Answer::Taken { but, why };
    }
    let why = match message(body, 2) {
        "" => format!("status {}", status.as_u16()),
        text => format!("status {}: {text:?}", status.as_u16()),
    };
    match status.as_u16() {
        429 | 502..=504 => Answer::Later { pause: retry_after(headers, now), why },
        _ => Answer::Refused(why),
    }
}

/// `ExportTraceServiceResponse.partial_success`.
fn rejected(mut body: &[u8]) -> (u64, String) {
    while let Some((field, value)) = wire::next(&mut body) {
        if let (1, Field::Bytes(mut partial)) = (field, value) {
            let why = format!("the collector says {:?}", message(partial, 2));
            while let Some((field, value)) = wire::next(&mut partial) {
                if let (1, Field::Number(count)) = (field, value) {
                    // Negative numbers are nonsense.
                    return (u64::try_from(count as i64).unwrap_or(0), why);
                }
            }
        }
    }
    (0, String::new())
}

/// A text in a message, as far as it is good for a log.
fn message(mut body: &[u8], wanted: u64) -> &str {
    while let Some((field, value)) = wire::next(&mut body) {
        if let Field::Bytes(text) = value
            && field == wanted
            && let Ok(text) = std::str::from_utf8(text)
        {
            return &text[..text.floor_char_boundary(SAID_MAX)];
        }
    }
    ""
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

/// Counts what is lost, and says it from time to time.
struct Losses {
    unsaid: u64,
    why: String,
    said: Option<Instant>,
    /// The collector was said not to answer.
    troubled: bool,
}

impl Losses {
    fn new() -> Self {
        // So that they are there before something is lost.
        for reason in [FULL, REFUSED, FAILED] {
            ::metrics::counter!(names::TRACES_DROPPED, "reason" => reason).increment(0);
        }
        ::metrics::counter!(names::TRACES_SENT).increment(0);
        Self { unsaid: 0, why: String::new(), said: None, troubled: false }
    }

    fn add(&mut self, reason: &'static str, spans: u64, why: &str) {
        if spans > 0 {
            ::metrics::counter!(names::TRACES_DROPPED, "reason" => reason).increment(spans);
            self.unsaid += spans;
            self.why = why.to_owned();
        }
    }

    /// Nothing is lost so far.
    fn trouble(&mut self, why: &str) {
        if !self.troubled {
            self.troubled = true;
            tracing::warn!("traces: the collector does not take spans, they are kept for a while: {why}");
        }
    }

    fn fine(&mut self) {
        if std::mem::take(&mut self.troubled) {
            tracing::info!("traces: the collector takes spans again");
        }
    }

    fn say_now_and_then(&mut self) {
        if self.said.is_none_or(|said| said.elapsed() >= SAY) {
            self.say();
        }
    }

    fn say(&mut self) {
        if self.unsaid > 0 {
            tracing::warn!("traces: {} spans were lost: {}", self.unsaid, self.why);
            (self.unsaid, self.said) = (0, Some(Instant::now()));
        }
    }
}

/// Reasons for a loss.
const FULL: &str = "full";
const REFUSED: &str = "refused";
const FAILED: &str = "failed";
const FULL_WHY: &str = "more came than the collector takes";

/// How often the queue is looked at.
const TICK: Duration = Duration::from_millis(50);
/// A batch is no larger by much: collectors take a few megabytes at once.
const BATCH_BYTES: usize = 1 << 20;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// What a collector may ask for; beyond that it is tried all the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A batch that nobody has taken by then is lost.
const GIVE_UP: Duration = Duration::from_secs(60);
/// For what is left at the end.
const FAREWELL: Duration = Duration::from_secs(1);
const ANSWER_MAX: usize = 64 << 10;
/// Of a message of the collector, in the log.
const SAID_MAX: usize = 200;
const SAY: Duration = Duration::from_secs(10);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_the_rules() {
        let partial = [&[0x0a, 0x08, 0x08, 0x05, 0x12, 0x04][..], b"full"].concat();
        let negative = [&[0x0a, 0x0b, 0x08][..], &[0xff; 9], &[0x01]].concat();
        let said = [&[0x08, 0x03, 0x12, 0x03][..], b"no\n"].concat();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let later = |seconds: Option<u64>, why: &str| Answer::Later {
            pause: seconds.map(Duration::from_secs),
            why: why.to_owned(),
        };
        let taken = |but, why: &str| Answer::Taken { but, why: why.to_owned() };
        let refused = |why: &str| Answer::Refused(why.to_owned());
        for (status, after, body, want) in [
            (200, "", &b""[..], taken(0, "")),
            (202, "", b"", taken(0, "")),
            (200, "", &partial, taken(5, "the collector says \"full\"")),
            (200, "", &partial[..5], taken(0, "")),
            (200, "", &negative, taken(0, "the collector says \"\"")),
            (200, "", b"<html>", taken(0, "")),
            (400, "", &said, refused("status 400: \"no\\n\"")),
            (404, "", b"not here", refused("status 404")),
            (301, "", b"", refused("status 301")),
            (500, "5", b"", refused("status 500")),
            (429, "7", b"", later(Some(7), "status 429")),
            (502, "", b"", later(None, "status 502")),
            (503, "Sun, 06 Nov 1994 08:49:47 GMT", &said, later(Some(10), "status 503: \"no\\n\"")),
            (503, "Sun, 06 Nov 1994 08:49:27 GMT", b"", later(None, "status 503")),
            (503, "soon", b"", later(None, "status 503")),
            (504, "-1", b"", later(None, "status 504")),
        ] {
            let mut headers = HeaderMap::new();
            if !after.is_empty() {
                headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
            }
            assert_eq!(judge(StatusCode::from_u16(status).unwrap(), &headers, body, now), want, "{status} {after}");
        }
    }
}
