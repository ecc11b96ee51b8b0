//! placeholder
use super::arguments::Arguments;
use super::{Answer, Failure};
pub(super) fn run(_: &mut Arguments) -> Result<Answer, Failure> {
    Err(Failure::Unknown("".into()))
}
