//! Signs that Consul leaves out what the token may not see.
//!
//! A token that lost a permission gets no error but shorter lists. What gives it away: a list lacks what is always in it,
//! or Consul says all of a sudden that it filtered.

/// One list.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    active: bool,
    /// Something was in the list that is in it for all who may see it.
    had: bool,
    /// `X-Consul-Results-Filtered-By-ACLs` in good times. Tokens that see a part only are nothing unusual.
    filtered: Option<bool>,
    /// Length of the list in good times.
    length: usize,
}

impl Doubt {
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Looks at an answer and says whether to doubt it. `has`: what is always there is there.
    pub(super) fn look(&mut self, has: bool, length: usize, filtered: bool) -> bool {
        let lacks = self.had && !has;
        let newly = self.filtered == Some(false) && filtered;
        self.active = lacks || newly && (self.active || length * 2 < self.length);
        if !self.active {
            self.had |= has;
            self.filtered = Some(filtered);
            self.length = length;
        }
        self.active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs() {
        type Answer = (bool, usize, bool);
        let cases: &[(&str, &[(Answer, bool)])] = &[
            ("all well", &[((true, 10, false), false), ((true, 0, false), false)]),
            ("always filtered", &[((true, 10, true), false), ((true, 0, true), false)]),
            ("it was never there", &[((false, 10, false), false), ((false, 0, false), false)]),
            (
                "lacks what is always there",
                &[((true, 10, false), false), ((false, 0, false), true), ((true, 9, false), false)],
            ),
            (
                "filtered all of a sudden",
                &[((true, 10, false), false), ((true, 2, true), true), ((true, 8, true), true)],
            ),
            ("... and no longer", &[((true, 10, false), false), ((true, 2, true), true), ((true, 3, false), false)]),
            ("filtered, but little", &[((true, 10, false), false), ((true, 9, true), false), ((true, 2, true), false)]),
        ];
        for (name, answers) in cases {
            let mut doubt = Doubt::default();
            for (i, ((has, length, filtered), expected)) in answers.iter().enumerate() {
                assert_eq!(doubt.look(*has, *length, *filtered), *expected, "{name}, answer {i}");
            }
        }
    }
}
