//! How much of a request body a target may get.

use std::cell::Cell;

/// Counts down while a body is read.
#[derive(Debug)]
pub(super) struct Allowance {
    /// `None`: any amount.
    left: Cell<Option<u64>>,
    exceeded: Cell<bool>,
}

/// The body of a request is longer than its route lets pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exceeded;

impl Allowance {
    /// 0: no limit.
    pub(super) fn new(limit: u64) -> Self {
        Self { left: Cell::new((limit > 0).then_some(limit)), exceeded: Cell::new(false) }
    }

    /// The first bytes beyond the limit are an error, and so is all that follows.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let Some(left) = self.left.get() else { return Ok(()) };
        match left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left.set(Some(left));
                Ok(())
            }
            None => {
                self.left.set(Some(0));
                self.exceeded.set(true);
                Err(Exceeded)
            }
        }
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request body is longer than maxbody")
    }
}

impl std::error::Error for Exceeded {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_there_are_too_many() {
        for (limit, sizes, fits) in [
            (0, &[usize::MAX][..], true),
            (5, &[2, 3, 0], true),
            (5, &[6], false),
            (5, &[5, 1], false),
            (5, &[9, 0], false),
        ] {
            let allowance = Allowance::new(limit);
            let all = sizes.iter().all(|size| allowance.take(*size).is_ok());
            assert_eq!((all, allowance.is_exceeded()), (fits, !fits), "{limit} {sizes:?}");
        }
    }
}
