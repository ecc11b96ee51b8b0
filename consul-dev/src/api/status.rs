//! `/v1/status`.

use super::answer::Answer;
use crate::agent::Shared;

pub(super) fn leader(shared: &Shared) -> Answer {
    Answer::json(server(shared).into())
}

pub(super) fn peers(shared: &Shared) -> Answer {
    Answer::json(vec![server(shared)].into())
}

fn server(shared: &Shared) -> String {
    format!("127.0.0.1:{}", shared.config.server_port)
}
