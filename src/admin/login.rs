//! `ui.auth`: who may see the pages and use the API. `/health` is open to everybody: Consul asks it.

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use super::answer::{Answer, error};
use super::{BoxFuture, State};

/// Asks for credentials.
pub trait Login: Send + Sync {
    /// Lets the sender of these headers in, or says what to answer.
    fn check<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), Refused>>;
}

/// Why somebody is not let in.
#[derive(Debug)]
pub enum Refused {
    /// With these challenges.
    Unauthorized(Vec<HeaderValue>),
    /// It cannot be decided now.
    Unavailable,
}

pub(super) async fn check(state: &State, headers: &HeaderMap) -> Result<(), Answer> {
    let Some(login) = &state.views.login else { return Ok(()) };
    match login.check(headers).await {
        Ok(()) => Ok(()),
        Err(Refused::Unauthorized(challenges)) => {
            let mut answer = error(StatusCode::UNAUTHORIZED, "Unauthorized");
            for challenge in challenges {
                answer.headers_mut().append(WWW_AUTHENTICATE, challenge);
            }
            Err(answer)
        }
        Err(Refused::Unavailable) => Err(error(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")),
    }
}
