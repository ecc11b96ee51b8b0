//! Routes that a request missed by little, and what would have to be different.

use super::super::host::{Form, Host, Kind, default_port};
use super::super::path::Cleaned;
use super::super::{Class, Matcher, Route, Table};
use super::asked_host;

/// The nearest first, each with what would have to be different.
pub fn near_misses<'t>(table: &'t Table, host: &str, tls: bool, cleaned: &Cleaned<'_>) -> Vec<(&'t Route, String)> {
    let name = asked_host(host, tls);
    let name = name.as_str();
    let path = String::from_utf8_lossy(&cleaned.decoded);
    let mut found: Vec<(u32, &Route, String)> = Vec::new();
    for host in table.sorted_hosts() {
        let on_host = if host_fits(host, name, tls) { None } else { Some(host_distance(&host.key, name)) };
        if matches!(on_host, Some(None)) {
            continue;
        }
        for route in host.routes() {
            if route.class != Class::Http {
                if on_host.is_none() {
                    found.push((3, route, "is no HTTP route: its targets speak TCP or UDP".to_owned()));
                }
                continue;
            }
            let on_path = path_distance(route, table.matcher, &path);
            match (&on_host, on_path) {
                // Those that fit are candidates.
                (None, Some((0, _))) => {}
                (None, Some((far, why))) => found.push((far, route, format!("the host fits, but {why}"))),
                (Some(Some((far, why))), Some((0, _))) => {
                    found.push((*far, route, format!("the path fits, but {why}")));
                }
                (Some(Some((near, why))), Some((far, also))) => {
                    found.push((near + far + 2, route, format!("{why}, and {also}")));
                }
                _ => {}
            }
        }
        if found.len() > KEPT * 16 {
            found.sort_by_key(|(distance, ..)| *distance);
            found.truncate(KEPT);
        }
    }
    found.sort_by_key(|(distance, ..)| *distance);
    found.truncate(KEPT);
    found.into_iter().map(|(_, route, reason)| (route, reason)).collect()
}

/// Would the paths of this host be tried?
fn host_fits(host: &Host, name: &str, tls: bool) -> bool {
    let port = name.rsplit_once(':').map(|(_, port)| port).filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
    match &*host.kind {
        Kind::Hostless => true,
        Kind::Port => host.key[1..] == *port.unwrap_or(&default_port(tls)[1..]),
        Kind::Literal => *host.key == *name || host.key.strip_suffix(default_port(tls)) == Some(name),
        Kind::Pattern(pattern) => match &pattern.forms[usize::from(tls)] {
            Form::Suffix(reversed) => {
                name.len() >= reversed.len() && name.bytes().rev().zip(&**reversed).all(|(a, b)| a == *b)
            }
            form => form.matches(name.as_bytes()),
        },
    }
}

/// How far a host is from the one that was asked for, if it is near at all.
fn host_distance(key: &str, name: &str) -> Option<(u32, String)> {
    let (bare, asked) = (without_port(key), without_port(name));
    if let Some(port) = key.strip_prefix(':') {
        return Some((4, format!("the route is for port {port}")));
    }
    if bare == asked {
        return Some((1, format!("the port differs: the route is for {key}, the request for {name}")));
    }
    if let Some(domain) = bare.strip_prefix("*.")
        && domain == asked
    {
        return Some((1, format!("{key} stands for names below {domain}, not for {domain} itself")));
    }
    if bare.strip_prefix("www.") == Some(asked) || asked.strip_prefix("www.") == Some(bare) {
        return Some((1, format!("the host is {key}, not {name}")));
    }
    edits(bare, asked, 2).map(|distance| (1 + distance, format!("the host is {key}, not {name}")))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// 0: it fits.
fn path_distance(route: &Route, matcher: Matcher, path: &str) -> Option<(u32, String)> {
    let own = &*route.path;
    if let Some(glob) = &route.glob {
        if glob.matches(path.as_bytes()) {
            return Some((0, String::new()));
        }
        let plain = own.trim_end_matches(['*', '/']);
        let near = !plain.is_empty() && path.starts_with(plain);
        return near.then(|| (2, format!("the whole path does not fit the pattern {own}")));
    }
    if path.starts_with(own) || matcher == Matcher::IPrefix && path.to_lowercase().starts_with(&own.to_lowercase()) {
        return Some((0, String::new()));
    }
    if own.strip_suffix('/') == Some(path) {
        return Some((1, format!("the slash at the end of {own} is missing in the request")));
    }
    if path.to_lowercase().starts_with(&own.to_lowercase()) {
        return Some((
            1,
            format!("upper and lower case differ: the route is for {own}; proxy.matcher=iprefix would not mind"),
        ));
    }
    if own.starts_with(path) && path.len() > 1 {
        return Some((2, format!("the path ends before {own}")));
    }
    let end = path.char_indices().nth(own.chars().count()).map_or(path.len(), |(at, _)| at);
    match edits(own, &path[..end], 2) {
        Some(distance) if own.len() > 3 => Some((1 + distance, format!("the route is for {own}"))),
        _ => None,
    }
}

/// How many characters have to be changed, if at most `limit`. Both are compared up to a length that bounds the work.
fn edits(a: &str, b: &str, limit: u32) -> Option<u32> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(COMPARED).collect(), b.chars().take(COMPARED).collect());
    if a.len().abs_diff(b.len()) > limit as usize {
        return None;
    }
    let mut row: Vec<u32> = (0..).take(b.len() + 1).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i as u32 + 1;
        let mut least = row[0];
        for (k, y) in b.iter().enumerate() {
            let change = diagonal + u32::from(x != y);
            diagonal = row[k + 1];
            row[k + 1] = change.min(row[k] + 1).min(diagonal + 1);
            least = least.min(row[k + 1]);
        }
        if least > limit {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= limit)
}

/// More would be no help.
const KEPT: usize = 8;
const COMPARED: usize = 80;

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn few_edits_are_counted_and_many_are_none() {
        for (a, b, want) in [
            ("", "", Some(0)),
            ("abc", "abc", Some(0)),
            ("abc", "abd", Some(1)),
            ("abc", "ab", Some(1)),
            ("abc", "xabc", Some(1)),
            ("abc", "cab", Some(2)),
            ("abc", "xyz", None),
            ("a", "abcd", None),
        ] {
            assert_eq!(edits(a, b, 2), want, "{a} {b}");
        }
    }
}
