//! A read that is repeated for ever: blocking or polling, with pauses where Consul does not behave.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::client::Recovery;
use super::position::{Position, Step, pause_after_answer, pause_after_failure};
use super::{Client, Error, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each query waits at Consul for a change, at most that long.
    Block(Duration),
    /// Ask every so often.
    Poll(Duration),
}

pub struct Watch {
    client: Client,
    path: String,
    query: String,
    mode: Mode,
    missing_is_empty: bool,
    position: Position,
    failures: u32,
    /// When the last attempt began, and how long to wait after its end.
    last: Option<(Instant, Duration)>,
    recovery: watch::Receiver<Recovery>,
}

/// An answer of a watch.
#[derive(Debug)]
pub struct Seen<T> {
    /// `None`: 404 where that means empty.
    pub value: Option<T>,
    pub index: u64,
    pub step: Step,
    /// Attempts before this one that failed.
    pub after_failures: u32,
    pub filtered: bool,
    /// Time that decoding took.
    pub decoding: Duration,
}

/// An attempt that failed. The next call of [`Watch::next`] tries again after a pause.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    /// In a row, this one counted.
    pub failures: u32,
}

impl Watch {
    /// `path` and `query` as in [`Client::get`].
    pub fn new(client: Client, path: String, query: &str, mode: Mode, missing_is_empty: bool) -> Self {
        let recovery = client.recovery();
        Self {
            client,
            path,
            query: query.to_owned(),
            mode,
            missing_is_empty,
            position: Position::default(),
            failures: 0,
            last: None,
            recovery,
        }
    }

    /// Waits for the next answer. Not to be dropped half-way without a loss of the pause that is due.
    pub async fn next<T, D>(&mut self, decode: D) -> Result<Seen<T>, Failure>
    where
        T: Send + 'static,
        D: Fn(&[u8]) -> Result<T, serde_json::Error> + Clone + Send + 'static,
    {
        self.pause().await;
        loop {
            let asked = Instant::now();
            let (index, wait) = match self.mode {
                Mode::Block(wait) => (self.position.ask(), wait),
                Mode::Poll(_) => (None, Duration::ZERO),
            };
            let read = Read { index, wait, missing_is_empty: self.missing_is_empty, ..Read::default() };
            let lost = self.recovery.borrow_and_update().lost;
            let answer = tokio::select! {
                answer = self.client.get(&self.path, &self.query, read, decode.clone()) => answer,
                () = lost_again(&mut self.recovery, lost, asked) => continue,
            };
            let took = asked.elapsed();
            return match answer {
                Ok(answer) => {
                    let step = self.position.answered(answer.index);
                    let pause = match self.mode {
                        Mode::Block(_) => pause_after_answer(step, took),
                        Mode::Poll(interval) => interval,
                    };
                    self.last = Some((asked, pause));
                    Ok(Seen {
                        value: answer.value,
                        index: answer.index,
                        step,
                        after_failures: std::mem::take(&mut self.failures),
                        filtered: answer.filtered,
                        decoding: answer.decoding,
                    })
                }
                Err(error) => {
                    self.position.failed();
                    self.failures = self.failures.saturating_add(1);
                    self.last = Some((asked, pause_after_failure(self.failures, took, fastrand::f64())));
                    Err(Failure { error, failures: self.failures })
                }
            };
        }
    }

    /// The last answer is not believed: the next attempt comes soon and does not wait for a change.
    pub fn disbelieve(&mut self) {
        self.position.failed();
        if let Some((_, pause)) = &mut self.last {
            *pause = (*pause).max(RETRY_NEVER_BELOW);
        }
    }

    async fn pause(&mut self) {
        let Some((asked, pause)) = self.last.take() else { return };
        if pause.is_zero() {
            return;
        }
        let sleep = tokio::time::sleep(pause);
        if self.failures == 0 {
            return sleep.await;
        }
        // Another watch may notice first that Consul is back.
        let known = self.recovery.borrow_and_update().any;
        let back = tokio::select! {
            () = sleep => false,
            _ = self.recovery.wait_for(|r| r.any != known) => true,
        };
        if back {
            tokio::time::sleep(RETRY_NEVER_BELOW.saturating_sub(asked.elapsed())).await;
        }
    }
}

/// Ends when Consul came back after losing requests while this one, asked a while ago, is still without an answer.
async fn lost_again(recovery: &mut watch::Receiver<Recovery>, known: u64, asked: Instant) {
    if recovery.wait_for(|r| r.lost != known).await.is_err() {
        std::future::pending::<()>().await;
    }
    // Ours may be answered in the same moment; and it is not repeated more than once a second either.
    tokio::time::sleep(RETRY_NEVER_BELOW.saturating_sub(asked.elapsed()).max(Duration::from_millis(200))).await;
}

const RETRY_NEVER_BELOW: Duration = Duration::from_secs(1);
