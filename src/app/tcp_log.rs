//! Lines of the access log about connections that were passed on as they are.

use std::rc::Rc;

use crate::access_log::{Line, Logger, Outcome, Tls, Upstream};
use crate::proxy::tcp::{Ended, Family, Hook, Reason};

/// Writes a line for each connection, if the log is for everything.
pub(super) fn hook(logger: Logger) -> Option<Hook> {
    if !logger.all() {
        return None;
    }
    Some(Rc::new(move |ended: &Ended<'_>| {
        let protocol = if ended.family == Family::Datagrams { "udp" } else { "tcp" };
        logger.write(&Line {
            host: ended.server_name.unwrap_or_default().as_bytes(),
            sent_host: ended.server_name.unwrap_or_default().as_bytes(),
            tls: ended.tls.map(|tls| Tls {
                version: tls.version,
                cipher: tls.cipher,
                server_name: tls.server_name.as_deref().unwrap_or_default(),
                client: tls.client.as_deref().map_or("", |client| client.subject.as_str()),
            }),
            sent: ended.from_target,
            received: Some(ended.from_client),
            outcome: match ended.reason {
                Reason::Done => Outcome::Done,
                Reason::NoRoute => Outcome::NoRoute,
                Reason::Denied => Outcome::Denied,
                reason => Outcome::Failed(reason.name()),
            },
            upstream: ended.target.map(|target| Upstream {
                service: &target.service,
                scheme: target.destination.scheme.name(),
                addr: &target.destination.authority,
                uri: "",
            }),
            ..Line::new(protocol, ended.remote, ended.took)
        });
    }))
}
