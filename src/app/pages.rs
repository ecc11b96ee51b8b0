//! Listeners of the control plane: the admin pages, and what Prometheus scrapes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::edge::Edge;
use crate::admin;
use crate::life::{Phase, Watch};
use crate::listen::{self, Bound};
use crate::metrics::Metrics;

/// Serves the admin API and pages until the end.
pub(super) fn admin(bound: Bound, edge: &Arc<Edge>, state: &Arc<admin::State>, life: &Watch) -> anyhow::Result<()> {
    let (edge, state, of_connections) = (edge.clone(), state.clone(), life.clone());
    accept(bound, life, move |stream, remote| {
        let Some(mut seat) = edge.seat() else { return };
        let (edge, state, life) = (edge.clone(), state.clone(), of_connections.clone());
        tokio::spawn(async move {
            if let Some((stream, peer)) = edge.admit(stream, remote, &mut seat).await {
                admin::serve_connection(stream, Some(peer.remote.ip()), state, life).await;
            }
        });
    })
}

/// Serves the metrics until the end.
pub(super) fn prometheus(bound: Bound, edge: &Arc<Edge>, metrics: &Metrics, life: &Watch) -> anyhow::Result<()> {
    let (edge, metrics, of_connections) = (edge.clone(), metrics.clone(), life.clone());
    accept(bound, life, move |stream, remote| {
        let Some(mut seat) = edge.seat() else { return };
        let (edge, metrics, life) = (edge.clone(), metrics.clone(), of_connections.clone());
        tokio::spawn(async move {
            let Some((stream, _)) = edge.admit(stream, remote, &mut seat).await else { return };
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let (metrics, path) = (metrics.clone(), request.uri().path().to_owned());
                let last = life.phase() >= Phase::Replaced;
                async move {
                    // Tens of thousands of series take their time.
                    let response = tokio::task::spawn_blocking(move || metrics.answer(&path)).await;
                    let mut response = response.unwrap_or_default();
                    if last {
                        // The next request is for whoever has taken over.
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            // Whoever scrapes slowly or breaks off is no concern of ours.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SCRAPE_PAUSE)
                .title_case_headers(true)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    })
}

fn accept(
    bound: Bound,
    life: &Watch,
    each: impl FnMut(TcpStream, SocketAddr) + Clone + Send + 'static,
) -> anyhow::Result<()> {
    for listener in bound.open()? {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (mut life, each) = (life.clone(), each.clone());
        let end = async move {
            life.reached(Phase::Replaced).await;
            // Until the last request is finished they say that we leave; a successor has taken the sockets over.
            if life.phase() != Phase::Replaced {
                life.reached(Phase::Ended).await;
            }
        };
        tokio::spawn(listen::accept(listener, end, each));
    }
    Ok(())
}

/// Longer than anybody's scrape interval: connections are kept between scrapes.
const SCRAPE_PAUSE: Duration = Duration::from_secs(300);
