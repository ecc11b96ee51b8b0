//! The end of the process: by a signal, or because another one has taken over.

use std::time::Duration;

use tokio::sync::oneshot;

use super::LAST_MOMENT;
use super::signals::{self, Signals, Wish};
use super::upgrade::{self, Succession};
use crate::life::{Life, Notify, Phase};
use crate::registry::Registry;

/// Serves until a signal ends it, or until another process has taken over (`None`).
pub(super) async fn reign(signals: &mut Signals, succession: &Succession, notify: &Notify) -> Option<signals::Signal> {
    loop {
        if let Wish::End(signal) = signals.next().await {
            return Some(signal);
        }
        tracing::info!("Caught SIGUSR2. Upgrading");
        succession.set_state("starting");
        let started = tokio::select! {
            started = upgrade::start(succession) => started,
            signal = signals.end("an upgrade is under way") => return Some(signal),
        };
        match started {
            Ok(successor) => {
                tracing::info!("Process {} serves. Finishing what is under way here", successor.pid);
                // Before it speaks for itself.
                notify.main_pid(successor.pid);
                succession.set_state(format!("{} process {}", upgrade::REPLACED, successor.pid));
                successor.go();
                return None;
            }
            Err(error) => {
                tracing::error!("Not upgraded, and serving as before: {error:#}");
                succession.set_state(format!("failed: {error:#}"));
            }
        }
    }
}

/// Lets what is under way end while another process takes what is new. Registrations stay: they are its.
pub(super) async fn make_way(
    config: &crate::life::Config,
    registry: &Registry,
    life: &Life,
    succession: &Succession,
    signals: &mut Signals,
    workers: Vec<oneshot::Receiver<()>>,
) {
    registry.leave().await;
    succession.clear();
    life.advance(Phase::Replaced);
    let done = all_ended(workers);
    tokio::pin!(done);
    let begun = tokio::time::Instant::now();
    let (part, mut end) = (begun + PARTING, begun + config.wait.max(FAREWELL));
    let (mut asked, mut ended) = (false, false);
    while !ended {
        tokio::select! {
            () = &mut done => ended = true,
            // By now clients that are busy have had their last answer. Others find a closed connection.
            () = tokio::time::sleep_until(part), if life.watch().phase() < Phase::Closing => life.advance(Phase::Closing),
            () = tokio::time::sleep_until(end) => break,
            signal = signals.end(LEAVING) => {
                if asked {
                    return tracing::warn!("Caught {signal} again. Exiting at once");
                }
                tracing::info!("Caught {signal}. Exiting sooner");
                asked = true;
                life.advance(Phase::Closing);
                end = tokio::time::Instant::now() + config.wait;
            }
        }
    }
    // Of pages, whose connections nobody counts.
    life.advance(Phase::Closing);
    tokio::time::sleep(LAST_MOMENT).await;
    life.advance(Phase::Ended);
    if !ended {
        // They only drop what they have.
        let _ = tokio::time::timeout(LAST_MOMENT, done).await;
    }
}

async fn all_ended(workers: Vec<oneshot::Receiver<()>>) {
    for worker in workers {
        let _ = worker.await;
    }
}

/// Leave the registry, keep serving for the grace, let nobody new in, finish what is under way.
pub(super) async fn shut_down(
    config: &crate::life::Config,
    registry: &Registry,
    life: &Life,
    succession: &Succession,
    workers: Vec<oneshot::Receiver<()>>,
) {
    life.advance(Phase::Leaving);
    registry.deregister().await;
    tokio::time::sleep(config.grace).await;
    succession.clear();
    life.advance(Phase::Closing);
    let done = all_ended(workers);
    tokio::pin!(done);
    let in_time = tokio::time::timeout(config.wait, &mut done).await.is_ok();
    life.advance(Phase::Ended);
    if !in_time {
        // They only drop what they have.
        let _ = tokio::time::timeout(LAST_MOMENT, done).await;
    }
}

/// For connections between two requests, once another process has taken over: their next answer tells them to leave.
const PARTING: Duration = Duration::from_secs(10);
/// At least that long what is under way may take then: nobody waits for it.
const FAREWELL: Duration = Duration::from_secs(300);
pub(super) const LEAVING: &str = "this process is leaving";
