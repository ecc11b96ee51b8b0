//! The table as text: in the route language, and as a tree.

use std::fmt::Write as _;

use super::command::{push_options, push_tags};
use super::{Route, Table, Target, Weight, quote};

impl Table {
    /// The table in the route language, as `/api/routes?raw` shows it: hosts descending, the empty one last, paths
    /// descending. Targets without a share are left out. No line break at the end.
    pub fn listing(&self) -> String {
        let mut listing = String::new();
        for host in self.sorted_hosts().into_iter().rev() {
            for route in host.routes() {
                for target in route.targets.iter().filter(|target| target.share > 0.0) {
                    if !listing.is_empty() {
                        listing.push('\n');
                    }
                    push_line(&mut listing, route, target);
                }
            }
        }
        listing
    }

    /// The table as a tree, as `log.routes.format=detail` shows it.
    pub fn tree(&self) -> String {
        let mut tree = String::new();
        let hosts: Vec<_> = self.sorted_hosts();
        for (i, host) in hosts.iter().enumerate() {
            tree.push_str("+-- host=");
            quote::plain(&mut tree, &host.key);
            tree.push('\n');
            let indent = if i + 1 < hosts.len() { "|   " } else { "    " };
            let routes = host.routes();
            for (k, route) in routes.iter().enumerate() {
                let last = k + 1 == routes.len();
                tree.push_str(indent);
                tree.push_str(branch(last));
                tree.push_str("path=");
                quote::plain(&mut tree, &route.path);
                tree.push('\n');
                push_targets(&mut tree, route, indent, if last { "    " } else { "|    " });
            }
        }
        tree
    }
}

fn push_line(listing: &mut String, route: &Route, target: &Target) {
    listing.push_str("route add ");
    quote::word(listing, &target.service);
    listing.push(' ');
    quote::word(listing, &route.host);
    quote::word(listing, &route.path);
    listing.push(' ');
    quote::word(listing, &target.destination.text);
    if let Weight::Fixed(weight) = target.weight {
        let _ = write!(listing, " weight {weight:.4}");
    }
    push_tags(listing, &target.tags);
    push_options(listing, &target.options);
}

fn push_targets(tree: &mut String, route: &Route, host_indent: &str, path_indent: &str) {
    let slots = slots(route);
    let all: u64 = slots.iter().sum();
    let shown: Vec<_> = route.targets.iter().zip(slots).filter(|(_, slots)| *slots > 0).collect();
    for (i, (target, slots)) in shown.iter().enumerate() {
        tree.push_str(host_indent);
        tree.push_str(path_indent);
        tree.push_str(branch(i + 1 == shown.len()));
        tree.push_str("addr=");
        quote::plain(tree, &target.destination.authority);
        let _ = writeln!(tree, " weight {:.2} slots {slots}/{all}", *slots as f64 / all as f64);
    }
}

/// Shares as fabio counts them: one each when nobody has a weight, else in ten-thousandths and at least one.
fn slots(route: &Route) -> Vec<u64> {
    let one = |target: &&Target| target.share > 0.0;
    let fixed = route.targets.iter().any(|target| matches!(target.weight, Weight::Fixed(_)));
    if !fixed || route.targets.iter().filter(one).count() == 1 {
        return route.targets.iter().map(|target| u64::from(target.share > 0.0)).collect();
    }
    let slots = |target: &Target| if target.share > 0.0 { ((target.share * 10_000.0) as u64).max(1) } else { 0 };
    route.targets.iter().map(slots).collect()
}

fn branch(last: bool) -> &'static str {
    if last { "+-- " } else { "|-- " }
}
