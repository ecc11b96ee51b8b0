//! `ui.auth`: lets people in by a scheme of `proxy.auth`.

use std::sync::Arc;

use http::HeaderMap;

use crate::admin::{BoxFuture, Login, Refused};
use crate::auth::{Auth, Refusal};

pub(super) struct Gate {
    pub(super) auth: Arc<Auth>,
    pub(super) scheme: String,
}

impl Login for Gate {
    fn check<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(async {
            match self.auth.check_headers(&self.scheme, headers).await {
                Ok(()) => Ok(()),
                Err(Refusal::Challenge(challenges)) => Err(Refused::Unauthorized(challenges)),
                Err(_) => Err(Refused::Unavailable),
            }
        })
    }
}
