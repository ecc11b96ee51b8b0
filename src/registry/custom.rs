//! `registry.backend=custom`: routes as JSON from a web server, polled.

use std::time::Duration;

use super::publish::Feed;
use super::status::Source;
use super::{CustomConfig, Error};
use crate::fetch;
use crate::route::{self, Parsed};

pub(super) struct Poll {
    http: fetch::Client,
    url: String,
    timeout: Duration,
    interval: Duration,
    source: Source,
}

impl Poll {
    pub(super) fn new(config: &CustomConfig, source: Source) -> Result<Self, Error> {
        let query = if config.query.is_empty() { String::new() } else { format!("?{}", config.query) };
        let url = format!("{}://{}/{}{query}", config.scheme, config.host, config.path);
        let host = config.host.rsplit_once(':').map_or(config.host.as_str(), |(host, _)| host);
        let settings = fetch::Settings {
            https: config.scheme.eq_ignore_ascii_case("https"),
            tls: fetch::Tls { insecure_skip_verify: config.skip_verify, ..Default::default() },
            direct: fetch::is_loopback(host),
            // As fabio does: a source that is asked every few seconds may well close meanwhile.
            idle_connections: 0,
            ..Default::default()
        };
        let http = fetch::Client::new(settings).map_err(|e| Error::Setup(fetch::chain(&e)))?;
        Ok(Self { http, url, timeout: config.timeout, interval: config.poll_interval.max(SHORTEST), source })
    }

    /// One poll. An error leaves the routes as they are.
    pub(super) async fn once(&self, feed: &Feed) -> Result<(), String> {
        let result = self.fetch().await;
        match &result {
            Ok(_) => self.source.good(0),
            Err(e) => self.source.failed(e),
        }
        feed.whole(result?, "custom registry");
        Ok(())
    }

    pub(super) async fn run(self, feed: Feed) {
        loop {
            tokio::time::sleep(self.interval).await;
            // Logged and counted there.
            let _ = self.once(&feed).await;
        }
    }

    async fn fetch(&self) -> Result<Parsed, String> {
        let exchange = async {
            let response = self.http.current().get(&self.url).send().await.map_err(fetch::explain)?;
            if response.status() != http::StatusCode::OK {
                return Err(format!("the server answered {}", response.status().as_u16()));
            }
            fetch::body(response, LIMIT).await.map_err(|e| fetch::chain(&e))
        };
        let body = match self.timeout {
            Duration::ZERO => exchange.await?,
            timeout => tokio::time::timeout(timeout, exchange)
                .await
                .map_err(|_| format!("no answer within {:.1} s", timeout.as_secs_f64()))??,
        };
        // An error is in the document as a whole; a bad element costs itself.
        route::parse_json(&body).map_err(|e| format!("answer not understood: {e}"))
    }
}

/// fabio takes any interval; below this it would only be a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);

const LIMIT: usize = 256 << 20;
