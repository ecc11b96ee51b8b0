//! What changed between two lists of lines.

use std::collections::HashMap;

/// Lines that differ, `- old` and `+ new`, in order. Blank lines do not count.
///
/// The longest common subsequence where the part that differs is small enough to find it; beyond that, lines that one
/// list has more often than the other.
pub fn diff(old: &[String], new: &[String]) -> Vec<String> {
    let blank = |line: &&str| !line.trim().is_empty();
    let old: Vec<&str> = old.iter().map(String::as_str).filter(blank).collect();
    let new: Vec<&str> = new.iter().map(String::as_str).filter(blank).collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.len().saturating_mul(new.len()) <= MAX_CELLS { by_subsequence(old, new) } else { by_count(old, new) }
}

fn by_subsequence(old: &[&str], new: &[&str]) -> Vec<String> {
    // lengths[i][k]: the longest common subsequence of old[i..] and new[k..].
    let width = new.len() + 1;
    let mut lengths = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for k in (0..new.len()).rev() {
            lengths[i * width + k] = if old[i] == new[k] {
                lengths[(i + 1) * width + k + 1] + 1
            } else {
                lengths[(i + 1) * width + k].max(lengths[i * width + k + 1])
            };
        }
    }
    let mut lines = Vec::new();
    let (mut i, mut k) = (0, 0);
    while i < old.len() || k < new.len() {
        if i < old.len() && k < new.len() && old[i] == new[k] {
            i += 1;
            k += 1;
        } else if k == new.len() || (i < old.len() && lengths[(i + 1) * width + k] >= lengths[i * width + k + 1]) {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[k]));
            k += 1;
        }
    }
    lines
}

fn by_count(old: &[&str], new: &[&str]) -> Vec<String> {
    let only = |lines: &[&str], others: &[&str], mark: &str| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for line in others {
            *counts.entry(line).or_default() += 1;
        }
        let mut left = Vec::new();
        for line in lines {
            match counts.get_mut(line) {
                Some(count) if *count > 0 => *count -= 1,
                _ => left.push(format!("{mark} {line}")),
            }
        }
        left
    };
    let mut lines = only(old, new, "-");
    lines.extend(only(new, old, "+"));
    lines
}

/// 4 MB, and a few milliseconds.
const MAX_CELLS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn hunks_in_order() {
        for (old, new, want) in [
            ("a b c", "a b c", ""),
            ("", "a", "+ a"),
            ("a", "", "- a"),
            ("a b c", "a x c", "- b,+ x"),
            ("a b c d", "b c e d", "- a,+ e"),
            ("a b c d e", "a x c y e", "- b,+ x,- d,+ y"),
            ("a a b", "a b b", "- a,+ b"),
            ("a  b", "a b", ""),
        ] {
            assert_eq!(diff(&lines(old), &lines(new)).join(","), want, "{old} -> {new}");
        }
    }

    #[test]
    fn huge_lists_take_a_shortcut() {
        let old: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let mut new: Vec<String> = old.iter().rev().cloned().collect();
        new[5] = "x".to_owned();
        let got = diff(&old, &new);
        assert_eq!(got, [format!("- {}", 99_994), "+ x".to_owned()]);
    }
}
