//! Which instances may have traffic, by their checks.

use crate::consul::Check;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry) struct Rules {
    /// Check states that count as good. Compared letter by letter.
    pub(in crate::registry) accepted: Vec<String>,
    /// All checks of an instance must be good, not just one.
    pub(in crate::registry) all: bool,
    /// A service of which no instance is good keeps its routes, without traffic.
    pub(in crate::registry) keep: bool,
}

impl Rules {
    /// Why the instance `service_id` may have no traffic; `None`: it may. The same rules as [`Rules::accept`], in words.
    pub(in crate::registry) fn refusal(&self, service_id: &str, checks: &[Check]) -> Option<String> {
        if self.accept(service_id, checks) {
            return None;
        }
        let maintenance = format!("_service_maintenance:{service_id}");
        for check in checks {
            match check.id.as_str() {
                "serfHealth" if check.status == "critical" => return Some("its node is down (serfHealth)".to_owned()),
                "_node_maintenance" => return Some("its node is in maintenance".to_owned()),
                id if id == maintenance && check.status == "critical" => {
                    return Some("it is in maintenance".to_owned());
                }
                _ => {}
            }
        }
        let own: Vec<&Check> = checks
            .iter()
            .filter(|c| {
                c.service_id == service_id && !c.service_id.is_empty() && !c.id.starts_with("_service_maintenance")
            })
            .collect();
        if own.is_empty() {
            return Some("it has no check of its own, and without one nobody says that it is well".to_owned());
        }
        let bad = own.iter().filter(|check| !self.accepted.contains(&check.status));
        let bad: Vec<String> = bad.map(|check| format!("{} is {}", check.id, check.status)).collect();
        let rule = if self.all { "all checks must be" } else { "one check must be" };
        Some(format!("{} ({rule} {})", bad.join(", "), self.accepted.join(" or ")))
    }

    /// Whether the instance `service_id` may have traffic. `checks` are those of its node: the node's own and the
    /// instance's; checks of other instances do not matter.
    pub(super) fn accept<'c>(&self, service_id: &str, checks: impl IntoIterator<Item = &'c Check>) -> bool {
        let (mut good, mut bad) = (0, 0);
        for check in checks {
            if check.id == "serfHealth" {
                if check.status == "critical" {
                    return false;
                }
            } else if check.id == "_node_maintenance" {
                return false;
            } else if let Some(rest) = check.id.strip_prefix("_service_maintenance") {
                if rest.strip_prefix(':') == Some(service_id) && check.status == "critical" {
                    return false;
                }
            } else if !check.service_id.is_empty() && check.service_id == service_id {
                match self.accepted.contains(&check.status) {
                    true => good += 1,
                    false => bad += 1,
                }
            }
        }
        // An instance without a check of its own is nobody's word: it gets nothing.
        good > 0 && !(self.all && bad > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `abc-1+`: a passing check of the instance abc-1; `w` warning, `-` critical; `@2`: on another node. A letter after
    /// the number tells several checks of an instance apart. `S+`, `S-`: serfHealth; `NM`: node in maintenance;
    /// `M1`: abc-1 in maintenance.
    fn check(text: &str) -> Check {
        let (text, node) = match text.split_once("@2") {
            Some((before, after)) => (format!("{before}{after}"), "node2"),
            None => (text.to_owned(), "node"),
        };
        let check = |id: &str, service_id: &str, status: &str| Check {
            node: node.into(),
            id: id.into(),
            service_id: service_id.into(),
            status: status.into(),
            ..Check::default()
        };
        match text.as_str() {
            "S+" => check("serfHealth", "", "passing"),
            "S-" => check("serfHealth", "", "critical"),
            "NM" => check("_node_maintenance", "", "critical"),
            "M1" => check("_service_maintenance:abc-1", "abc-1", "critical"),
            "M2" => check("_service_maintenance:abc-2", "abc-2", "critical"),
            _ => {
                let (id, state) = text.split_at(2);
                let service = match id.split_at(1) {
                    ("a", n) => format!("abc-{n}"),
                    ("d", n) => format!("def-{n}"),
                    other => panic!("{other:?}"),
                };
                let status = match state {
                    "+" => "passing",
                    "w" => "warning",
                    "-" => "critical",
                    other => panic!("{other}"),
                };
                check(&format!("service:{service}:{state}"), &service, status)
            }
        }
    }

    /// The instances that are accepted, as `service id@node`.
    fn accepted(rules: &Rules, checks: &[Check]) -> Vec<String> {
        let mut out = Vec::new();
        for c in checks.iter().filter(|c| !c.service_id.is_empty() && !c.id.starts_with('_')) {
            let instance = format!("{}@{}", c.service_id, c.node);
            if rules.accept(&c.service_id, checks.iter().filter(|o| o.node == c.node)) && !out.contains(&instance) {
                out.push(instance);
            }
        }
        out.sort();
        out
    }

    #[test]
    fn vectors() {
        const ONE: (&str, bool) = ("passing", false);
        const ONE_WARNING: (&str, bool) = ("passing warning", false);
        const ALL: (&str, bool) = ("passing", true);
        const ALL_WARNING: (&str, bool) = ("passing warning", true);
        let cases = [
            (ONE, "", ""),
            (ONE, "a1+", "abc-1@node"),
            (ONE, "a1+ d1+", "abc-1@node def-1@node"),
            (ONE, "S+ a1+", "abc-1@node"),
            (ONE, "S- a1+", ""),
            (ONE, "NM a1+", ""),
            (ONE, "M1 a1+", ""),
            (ONE, "NM M1 a1+", ""),
            (ONE, "S- NM M1 a1+", ""),
            (ONE, "M2 a1+", "abc-1@node"),
            (ONE, "M1 a1+ d1+", "def-1@node"),
            (ONE, "a3- a1@2+", "abc-1@node2"),
            (ONE, "M1 a1@2+", "abc-1@node2"),
            (ONE_WARNING, "S+ a1+ a3-", "abc-1@node"),
            (ONE_WARNING, "S+ a2w a3-", "abc-2@node"),
            (ONE_WARNING, "S+ a1+ a2w", "abc-1@node abc-2@node"),
            (ONE_WARNING, "S+ a2w a3- a1+", "abc-1@node abc-2@node"),
            (ONE, "a1+ a1w", "abc-1@node"),
            (ALL, "a1+ a1w", ""),
            (ALL, "a1+ a1w d1+", "def-1@node"),
            (ALL_WARNING, "a1+ a1w", "abc-1@node"),
            // The order of checks does not matter.
            (ONE, "a1+ S-", ""),
            (ONE, "a1w a1+", "abc-1@node"),
            // A node's other checks do not matter, and the same id on two nodes is two instances.
            (ONE, "a1+ a1@2-", "abc-1@node"),
            (ONE, "S-@2 a1+ a1@2+", "abc-1@node"),
            (ONE, "a1w", ""),
        ];
        for ((states, all), checks, expected) in cases {
            let rules = Rules { accepted: states.split(' ').map(Into::into).collect(), all, keep: false };
            let checks: Vec<Check> = checks.split_whitespace().map(check).collect();
            assert_eq!(accepted(&rules, &checks).join(" "), expected, "{states} {all} {checks:?}");
        }
    }

    #[test]
    fn odd_checks() {
        let rules = Rules { accepted: vec!["passing".into()], all: false, keep: false };
        let check = |id: &str, service: &str, status: &str| Check {
            id: id.into(),
            service_id: service.into(),
            status: status.into(),
            ..Check::default()
        };
        for (name, checks, expected) in [
            ("no check at all", vec![], false),
            ("only the node's", vec![check("serfHealth", "", "passing")], false),
            ("another check of the node", vec![check("disk", "", "critical"), check("c", "a", "passing")], true),
            ("another node check cannot help", vec![check("disk", "", "passing")], false),
            ("letter case counts", vec![check("c", "a", "Passing")], false),
            ("a check with an odd id", vec![check("service: ü/x", "a", "passing")], true),
            (
                "maintenance of an instance whose id begins the same",
                vec![check("_service_maintenance:a-2", "a-2", "critical"), check("c", "a", "passing")],
                true,
            ),
            (
                "maintenance that is over",
                vec![check("_service_maintenance:a", "a", "passing"), check("c", "a", "passing")],
                true,
            ),
            (
                "a node in maintenance, whatever the state",
                vec![check("_node_maintenance", "", "passing"), check("c", "a", "passing")],
                false,
            ),
        ] {
            assert_eq!(rules.accept("a", &checks), expected, "{name}");
            let refusal = rules.refusal("a", &checks);
            assert_eq!(refusal.is_none(), expected, "{name}: {refusal:?}");
        }
        let none = Rules { accepted: vec![], all: false, keep: false };
        assert!(!none.accept("a", &[check("c", "a", "passing")]), "no accepted state, no instance");
    }
}
